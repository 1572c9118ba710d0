"""What a load touches while a block of threads works: a box in coordinates in which its address and its guards are affine.

Iterators whose coefficients in the address and in every guard are multiples of those of one of them move along one coordinate
(`A[2h+r]` has the coordinate `u = 2h+r`): neighbouring elements share what they read, and a guard on the sum stays a guard on the coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import Floor, Index, combine, var
from einnet.instantiate.codegen.cuda.lanes import Lanes
from einnet.instantiate.codegen.ir import Load, substitute_expr

BANKS = 32
"""Words that shared memory delivers at once, each from a bank of its own."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A coordinate u = Σ factor·iterator; `stride` is what a step of it adds to the address, `extent` its values within the box."""

    name: str
    members: tuple[tuple[str, int], ...]
    stride: int
    extent: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """The box that a load touches; a copy of it keeps axis k's neighbours `pitches[k]` elements apart, in `size` elements."""

    load: Load
    axes: tuple[Axis, ...]
    pitches: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        return prod(a.extent for a in self.axes)

    def at(self) -> Load:
        """The load by coordinates, which stand under the names of their axes."""
        unit = {n: Index((), 0) for a in self.axes for n, _ in a.members}
        found = substitute_expr(self.load, {**unit, **{a.members[0][0]: var(a.name) for a in self.axes}})
        assert isinstance(found, Load)
        return found

    def position(self, extents: Mapping[str, int], locally: Mapping[str, str]) -> Index:
        """Where the copy holds the load's element, by the distances of its iterators from the first of the block."""
        terms = []
        for axis, pitch in zip(self.axes, self.pitches, strict=True):
            for n, factor in axis.members:
                own = var(locally[n]) if factor > 0 else (extents[n] - 1) - var(locally[n])
                terms.append((own, abs(factor) * pitch))
        return combine(*terms, (Index((), 0), 1))


def footprint(load: Load, extents: Mapping[str, int]) -> Footprint | None:
    """The box over iterators that take so many values in a block; None for loads that depend on none, or on one inside a floor division."""
    used = [load.address, *(c.index for c in load.guards)]
    if any(isinstance(a, Floor) for e in used for a, _ in e.terms):
        return None
    vectors = {n: tuple(e.coefficient(n) for e in used) for n in extents}
    axes: list[Axis] = []
    for n in sorted((n for n, v in vectors.items() if v[0]), key=lambda n: (abs(vectors[n][0]), n)):
        for k, axis in enumerate(axes):
            factor = multiple(vectors[n], vectors[axis.members[0][0]])
            if factor and abs(factor) < axis.extent:
                axes[k] = replace(axis, members=(*axis.members, (n, factor)), extent=axis.extent + abs(factor) * (extents[n] - 1))
                break
        else:
            axes.append(Axis(f"u{len(axes)} {load.array}", ((n, 1),), vectors[n][0], extents[n]))
    guarded = {n for n, v in vectors.items() if any(v)}
    if not axes or guarded != {n for a in axes for n, _ in a.members}:
        return None
    return dense(Footprint(load, tuple(axes), (), 0), tuple(range(len(axes)))[::-1], 0)


def multiple(v: tuple[int, ...], of: tuple[int, ...]) -> int:
    """The integer k with v = k·of, 0 if there is none."""
    k = v[0] // of[0]
    return k if k and all(a == k * b for a, b in zip(v, of, strict=True)) else 0


def dense(f: Footprint, order: tuple[int, ...], padding: int) -> Footprint:
    """The copy with its axes in that order, outermost first, and rows that many elements longer."""
    pitches, step = [0] * len(order), 1
    for place, k in enumerate(reversed(order)):
        pitches[k] = step
        step *= f.axes[k].extent
        step += padding if place == 0 and len(order) > 1 else 0
    return replace(f, pitches=tuple(pitches), size=step)


def arranged(f: Footprint, lanes: Lanes, points: Mapping[str, int]) -> tuple[Footprint, int]:
    """The copy that the threads of a warp read with the fewest turns, and the turns.

    Of equal ones that in which a thread's own elements are neighbours.
    """
    best: tuple[tuple[int, int, int], Footprint] | None = None
    outside = tuple(range(len(f.axes)))
    for inner in outside:
        own = sum(points.get(n, 1) - 1 for n, _ in f.axes[inner].members)
        order = (*(k for k in reversed(outside) if k != inner), inner)
        for padding in (0, 1):
            trial = dense(f, order, padding)
            key = (turns(trial, lanes), -own, padding)
            if best is None or key < best[0]:
                best = key, trial
            if key[0] == 1:
                break
    assert best is not None
    return best[1], best[0][0]


def turns(f: Footprint, lanes: Lanes) -> int:
    """Most different words of one bank that the lanes' places lie in."""
    steps = {n: abs(k) * pitch for a, pitch in zip(f.axes, f.pitches, strict=True) for n, k in a.members}
    found = [0] * BANKS
    for w in set(lanes.places(steps)):
        found[w % BANKS] += 1
    return max(found)
