"""Blocks of rows with the rows in vector lanes: every array of a block has its rows side by side, so that no other order matters.

What rows share is then one number for a vector of rows, at whatever place it stands, and no stage of a transform moves anything between lanes: what
comes in is turned once, and so is what goes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import Floor, Index, bounds, combine, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen.buffering import LARGEST, Kept, Place, split_index
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Expr, Load, Nest, Ranges, children, expanded, rebuild
from einnet.instantiate.codegen.schedule import accesses, lane_costs
from einnet.instantiate.kernels import dense_strides

MOST_ASKED = 1 << 16
"""Places of a row that are counted one by one."""


class Key(NamedTuple):
    """The array of a load, what of its address is fixed while a block is computed, its step from row to row, and where it is 0 instead.

    A limit (sign, c) holds where sign*place + c >= 0, for the place that is neither fixed nor of a row.
    """

    array: str
    fixed: Index
    step: int
    limits: tuple[tuple[int, int], ...]
    fill: float

    def place(self, load: Load, row: str) -> Index:
        """Of a load, as far as it moves within a row."""
        return load.address - self.fixed - self.step * var(row)


def turned(kept: Kept, group: Sequence[Place], row: Iter) -> Kept | None:
    """The array with its rows side by side; itself where it has none, None where they are no dimension of it."""
    moving = {n for p in group for n, ix in enumerate(p.use.index) if row.name in ix.names()}
    if not moving:
        return kept
    near = min(moving)
    plain = all(p.use.index[near].coefficient(row.name) == 1 and row.name not in floored(p.use.index[near]) for p in group)
    return replace(kept, near=near) if len(moving) == 1 and plain and kept.extents[near] == row.extent else None


def floored(ix: Index) -> frozenset[str]:
    """The iterators inside of floor divisions."""
    return frozenset(n for a, _ in ix.terms if isinstance(a, Floor) for n in a.num.names())


def written_across(last: Nest, row: Iter, name: str) -> tuple[Nest, int, Nest]:
    """The last nest into an array with rows side by side, its elements, and the nest that turns that into where it belongs.

    Where a row is written without gaps, the array has its places in the order of memory, and what turns it is one loop along them.
    """
    others = [i for i in last.loops if i.name != row.name]
    names = {i.name for i in others}
    place = Index(tuple((a, c) for a, c in last.address.terms if isinstance(a, str) and a in names))
    count = without_gaps(place, last, others)
    if count is not None:
        array = replace(last, array=name, address=row.extent * place + var(row.name))
        next_to = Iter(f"{name}.n", 0, count)
        turned = Load(name, row.extent * var(next_to.name) + var(row.name))
        along = replace(last, loops=(row, next_to), address=last.address - place + var(next_to.name), expr=turned, guards=())
        return array, row.extent * count, along
    strides = dense_strides(tuple(i.extent for i in others))
    address = combine(*((var(i.name), row.extent * s) for i, s in zip(others, strides)), (var(row.name), 1))
    size = row.extent * prod(i.extent for i in others)
    return replace(last, array=name, address=address), size, replace(last, expr=Load(name, address))


def without_gaps(place: Index, nest: Nest, loops: Sequence[Iter]) -> int | None:
    """How many places from 0 on a nest writes along these of its loops; None where there are gaps, or too many to ask of each."""
    known = {i.name for i in loops}
    if prod(i.extent for i in loops) > MOST_ASKED or any(a not in known for ix in (place, *(c.index for c in nest.guards)) for a, _ in ix.terms):
        return None
    grid = dict(zip((i.name for i in loops), np.indices([i.extent for i in loops]), strict=True))

    def at(ix: Index) -> NDArray[np.int64]:
        return np.asarray(sum((c * grid[a] for a, c in ix.terms if isinstance(a, str)), start=np.int64(ix.const)))

    inside = np.ones([i.extent for i in loops], bool)
    for c in nest.guards:
        inside &= at(c.index) == 0 if c.equal else at(c.index) >= 0
    written = np.broadcast_to(at(place), inside.shape)[inside]
    return written.size if 0 < written.size == written.max() + 1 and written.min() == 0 else None


@dataclass
class Turning:
    """What a block reads of operands across its rows, each array with the places from the least to the greatest that are read, and how often.

    The row of a nest is the loop `along` which its array has rows side by side; other arrays, which all rows share, have none.
    """

    size: int
    bound: frozenset[str]
    along: Mapping[str, str]
    places: dict[Key, tuple[int, int]] = field(default_factory=dict)
    count: dict[Key, int] = field(default_factory=dict)
    gaps: set[Key] = field(default_factory=set)
    """Those of which not every place between is read, as far as is known: what is not read may not be there."""

    def note(self, nest: Nest) -> None:
        """Add what a nest of the block reads."""
        row = self.along.get(nest.array)
        if row is None:
            return
        for load, ranges in ((x, ranges) for x, ranges in expanded(nest.expr, nest.ranges) if isinstance(x, Load)):
            key = self.key(load, row, nest)
            if key is not None:
                low, high = bounds(key.place(load, row), ranges)
                before = self.places.get(key, (low, high))
                if not gapless(key.place(load, row), ranges) or low > before[1] + 1 or before[0] > high + 1:
                    self.gaps.add(key)
                self.places[key] = min(low, before[0]), max(high, before[1])
                self.count[key] = self.count.get(key, 0) + prod(hi - lo for n, (lo, hi) in ranges.items() if n not in self.bound and n != row)

    def worth(self) -> dict[Key, str]:
        """The arrays to turn, those that are read more than once, by their names."""
        kept = [key for key in self.places if key not in self.gaps and self.count[key] * self.size > self.elements(key) <= LARGEST]
        return {key: f"turned {n}" for n, key in enumerate(kept)}

    def elements(self, key: Key) -> int:
        """Of a turned array."""
        low, high = self.places[key]
        return self.size * (high - low + 1)

    def key(self, load: Load, row: str, nest: Nest) -> Key | None:
        """None where there is nothing to turn: rows lie side by side, or are no rows of the array."""
        step = load.address.coefficient(row)
        if abs(step) <= 1 or row in floored(load.address) or load.array in nest.tables:
            return None
        fixed, _ = split_index(load.address, self.bound)
        limits = [limit(c, load.address - fixed - step * var(row)) for c in load.guards]
        return None if None in limits else Key(load.array, fixed, int(step), tuple(t for t in limits if t), load.fill)

    def fill(self, key: Key, name: str, last: Nest) -> Nest:
        """The nest that puts the rows of an array side by side."""
        low, high = self.places[key]
        row, place = Iter(f"{name}.m", 0, self.size), Iter(f"{name}.n", 0, high - low + 1)
        at = var(place.name) + low
        guards = tuple(Cond(sign * at + c) for sign, c in key.limits)
        load = Load(key.array, key.fixed + key.step * var(row.name) + at, guards, key.fill)
        return Nest((row, place), name, self.size * var(place.name) + var(row.name), load, outer=last.outer, tables=last.tables)

    def loaded(self, nest: Nest, names: Mapping[Key, str]) -> Nest:
        """A nest with loads from turned arrays."""
        row = self.along.get(nest.array)
        if row is None:
            return nest

        def exchanged(e: Expr) -> Expr:
            if isinstance(e, Load):
                key = self.key(e, row, nest)
                return e if key is None or key not in names else Load(names[key], self.size * (key.place(e, row) - self.places[key][0]) + var(row))
            args = children(e)
            return rebuild(e, tuple(map(exchanged, args))) if args else e

        return replace(nest, expr=exchanged(nest.expr))


def gapless(place: Index, ranges: Ranges) -> bool:
    """Every whole number from the least to the greatest value of an affine index is one of its values."""
    reach = 0
    for name, step in sorted(place.terms, key=lambda term: abs(term[1])):
        if not isinstance(name, str) or abs(step) > reach + 1:
            return False
        reach += abs(step) * (ranges[name][1] - ranges[name][0] - 1)
    return place.den == 1


def limit(c: Cond, place: Index) -> tuple[int, int] | None:
    """The condition on a place, by its sign and constant; None where it is none on that alone."""
    left = [(sign, c.index - sign * place) for sign in (1, -1)]
    return next(((sign, int(rest.const)) for sign, rest in left if rest.is_const and not c.equal and rest.den == 1), None)


def effort(nest: Nest) -> float:
    """What a nest takes, in contiguous loads."""
    nest = normalise(nest)
    return prod(i.extent for i in nest.loops) * min(lane_costs(nest, tuple(accesses(nest.expr))).values())
