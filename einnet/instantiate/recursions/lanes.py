"""Lanes: dimensions at each place of which the equations of a recursion hold by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from math import prod

from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import Tensor, reads
from einnet.expr.recursions.recursion import Equation

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


def lanes_of(steps: Sequence[Equation]) -> Lanes:
    """As many dimensions as it takes for the tensors of a lane to stay near, the outer ones first.

    What every lane reads again at every time has to be near itself, or take less than the states do that otherwise are not.
    """
    whole = size = sum(prod(e.tensor.shape[1:]) for e in steps)
    found: list[Mapping[str, int]] = []
    extents: list[int] = []
    first = steps[0]
    for axis in range(1, len(first.tensor.shape)):
        extent = first.tensor.shape[axis]
        if size <= NEAR or extent == 1 or prod(extents) * extent > MOST_LANES:
            continue
        axes = along(steps, axis)
        if axes is not None and ((again := read_again(steps, axes)) <= NEAR or prod(extents) * extent * again <= whole):
            found.append(axes)
            extents.append(extent)
            size //= extent
    return Lanes(tuple(found), tuple(product(*(range(n) for n in extents))))


def along(steps: Sequence[Equation], axis: int) -> Mapping[str, int] | None:
    """The dimension of every tensor over time that goes with one of the first; None where an equation reads across it."""
    names = {e.tensor.name for e in steps}
    found = {steps[0].tensor.name: axis}
    for e in (e for _ in steps for e in steps):
        own = over_time(e, names)
        name = e.tensor.name
        for other, index in own:
            if name not in found and other in found:
                found.update((name, n) for n, i in enumerate(e.scope.loops) if index[found[other]] == var(i.name))
        if name in found:
            along = var(e.scope.loops[found[name]].name)
            found |= {other: index.index(along) for other, index in own if other not in found and along in index}
    return found if found.keys() == names and all(_apart(e, found) for e in steps) else None


def read_again(steps: Sequence[Equation], axes: Mapping[str, int]) -> int:
    """Elements of what is given or known before that equations read at every time and in every lane, where tensors over time are divided so."""
    found: dict[str, int] = {}
    for e in steps:
        moving = {e.scope.loops[0].name, e.scope.loops[axes[e.tensor.name]].name}
        for x in reads(e.scope.body):
            if isinstance(x.base, Tensor) and x.base.name not in axes and not any(moving & set(ix.names()) for ix in x.index):
                found[x.base.name] = prod(x.base.shape)
    return sum(found.values())


def over_time(e: Equation, names: Set[str]) -> list[tuple[str, tuple[Index, ...]]]:
    """The tensors of these names that an equation reads, and where."""
    return [(x.base.name, x.index) for x in reads(e.scope.body) if isinstance(x.base, Tensor) and x.base.name in names]


def _apart(e: Equation, axes: Mapping[str, int]) -> bool:
    """The equation reads tensors over time at its own place along the dimension."""
    own = axes[e.tensor.name]
    return own > 0 and all(index[axes[other]] == var(e.scope.loops[own].name) for other, index in over_time(e, axes.keys()))


def systems(steps: Sequence[Equation]) -> list[tuple[Equation, ...]]:
    """Equations that do not read one another, apart: each of these goes through all times by itself."""
    found: list[tuple[Equation, ...]] = []
    names = {e.tensor.name for e in steps}
    for e in steps:
        linked = {e.tensor.name, *(name for name, _ in over_time(e, names))}
        near = [s for s in found if linked & {name for x in s for name in (x.tensor.name, *(n for n, _ in over_time(x, names)))}]
        found = [*(s for s in found if s not in near), (*(x for s in near for x in s), e)]
    return [tuple(e for e in steps if e in s) for s in found]
