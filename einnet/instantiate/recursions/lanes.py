"""Lanes: dimensions at each place of which the equations of a recursion hold by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import product
from math import prod

from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import Tensor, reads
from einnet.expr.recursions.recursion import Equation, Recursion

NEAR = 1 << 12
"""Elements of all states and what leads to them that a near cache holds."""

MOST_LANES = 256


@dataclass(frozen=True)
class Lanes:
    """Dimensions of the tensors, by name of the tensor, a column for each that is divided; and the places along them."""

    axes: tuple[Mapping[str, int], ...] = ()
    points: tuple[tuple[int, ...], ...] = ((),)

    def outer(self, e: Equation) -> dict[str, Range]:
        """The loops of an equation that are none of a lane's kernel."""
        return {e.scope.loops[axes[e.tensor.name]].name: e.scope.loops[axes[e.tensor.name]].range for axes in self.axes}


def lanes_of(r: Recursion) -> Lanes:
    """As many dimensions as it takes for the tensors of a lane to stay near, the outer ones first."""
    size = sum(prod(e.tensor.shape[1:]) for e in r.steps)
    found: list[Mapping[str, int]] = []
    extents: list[int] = []
    first = r.steps[0]
    for axis in range(1, len(first.tensor.shape)):
        extent = first.tensor.shape[axis]
        if size <= NEAR or extent == 1 or prod(extents) * extent > MOST_LANES:
            continue
        axes = along(r, axis)
        if axes is not None:
            found.append(axes)
            extents.append(extent)
            size //= extent
    return Lanes(tuple(found), tuple(product(*(range(n) for n in extents))))


def along(r: Recursion, axis: int) -> Mapping[str, int] | None:
    """The dimension of every tensor over time that goes with one of the first; None where an equation reads across it."""
    steps = {e.tensor.name for e in r.steps}
    found = {r.steps[0].tensor.name: axis}
    for e in (e for _ in r.steps for e in r.steps):
        own = over_time(e, steps)
        name = e.tensor.name
        for other, index in own:
            if name not in found and other in found:
                found.update((name, n) for n, i in enumerate(e.scope.loops) if index[found[other]] == var(i.name))
        if name in found:
            along = var(e.scope.loops[found[name]].name)
            found |= {other: index.index(along) for other, index in own if other not in found and along in index}
    return found if found.keys() == steps and all(_apart(e, found) for e in r.steps) else None


def over_time(e: Equation, names: Set[str]) -> list[tuple[str, tuple[Index, ...]]]:
    """The tensors of these names that an equation reads, and where."""
    return [(x.base.name, x.index) for x in reads(e.scope.body) if isinstance(x.base, Tensor) and x.base.name in names]


def _apart(e: Equation, axes: Mapping[str, int]) -> bool:
    """The equation reads tensors over time at its own place along the dimension."""
    own = axes[e.tensor.name]
    return own > 0 and all(index[axes[other]] == var(e.scope.loops[own].name) for other, index in over_time(e, axes.keys()))
