"""Which nested scopes are kept in a local array at a level of a nest, because inlining them there would repeat work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from einnet.expr.index import Index, as_index, bounds, combine, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen.ir import (
    Expr,
    Function,
    Load,
    Nest,
    Ranges,
    Reduce,
    Use,
    children,
    expand,
    guarded,
    names,
    pruned,
    rebuild,
    simplified,
    substitute_expr,
)  # fmt: skip
from einnet.instantiate.codegen.schedule import SMALL
from einnet.instantiate.kernels import dense_strides

LARGEST = 1 << 24
"""Elements of the largest local array."""
GAIN = 1.9
"""How much work a local array must save."""


@dataclass(frozen=True, slots=True)
class Place:
    """A use, the ranges that hold where it stands, and the summation iterators around it."""

    use: Use
    ranges: Ranges
    sums: tuple[Iter, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """function(base + i) for 0 <= i < extents, in a row-major array; the dimension `near`, if there is one, is the last there."""

    function: Function
    base: tuple[Index, ...]
    extents: tuple[int, ...]
    ranges: Ranges
    near: int | None = None

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the array's dimensions, in elements."""
        if self.near is None:
            return dense_strides(self.extents)
        width = self.extents[self.near]
        others = dense_strides(tuple(1 if n == self.near else e for n, e in enumerate(self.extents)))
        return tuple(1 if n == self.near else width * s for n, s in enumerate(others))

    def loop(self, array: str, n: int) -> Iter:
        """The loop along a dimension of the array, of the nest that computes it."""
        return Iter(f"{array}.{n}", 0, self.extents[n])

    def filling(self, array: str) -> Nest:
        """The nest that computes the array; points outside the function's box are 0."""
        loops = tuple(self.loop(array, n) for n in range(len(self.extents)))
        index = [b + var(i.name) for b, i in zip(self.base, loops)]
        ranges = {**self.ranges, **{i.name: i.range for i in loops}}
        conds = [c for e, i in zip(index, self.function.loops) for c in (Cond(e - i.lo), Cond(i.hi - 1 - e))]
        left = pruned(conds, ranges)
        assert left is not None, "a use whose guards hold nowhere was not removed"
        value = substitute_expr(self.function.expr, {i.name: e for i, e in zip(self.function.loops, index)})
        address = combine(*((var(i.name), s) for i, s in zip(loops, self.strides)))
        kept = tuple(i for i in loops if i.extent > 1)
        unit = {i.name: as_index(0) for i in loops if i.extent == 1}
        carrier = substitute_expr(Load("", address), unit)
        assert isinstance(carrier, Load)
        return Nest(kept, array, carrier.address, simplified(substitute_expr(guarded(value, left, 0.0), unit), ranges))

    def load(self, use: Use, array: str) -> Load:
        parts = zip(self.strides, use.index, self.base)
        return Load(array, combine(*((e - b, s) for s, e, b in parts)), use.guards)


def kept_arrays(expr: Expr, rest: Sequence[Iter], points: Sequence[Iter], bound: frozenset[str], ranges: Ranges) -> list[Kept]:
    """Functions to keep in arrays here: inside the loops bound so far, outside the loops `rest` (in order) and the unrolled points."""
    groups: dict[Function, list[Place]] = {}
    for place in places(expr, ranges, ()):
        groups.setdefault(place.use.function, []).append(place)
    result = []
    for function, group in groups.items():
        distinct = list({p.use: p for p in group}.values())
        if all(names(p.use) <= bound for p in distinct):
            continue
        here = window(function, distinct, bound, ranges)
        if here is None or prod(here.extents) > LARGEST:
            continue
        inline = sum(repeated(p, rest, points, bound) for p in distinct)
        if inline > GAIN * prod(here.extents) and not later_is_as_good(here, function, distinct, rest, bound, ranges):
            result.append(here)
    return result[:1]


def later_is_as_good(here: Kept, function: Function, group: Sequence[Place], rest: Sequence[Iter], bound: frozenset[str], ranges: Ranges) -> bool:
    """A smaller array further in costs no more."""
    steps = 1
    for n, i in enumerate(rest):
        steps *= i.extent
        inner = window(function, group, bound | {j.name for j in rest[: n + 1]}, ranges)
        if inner is not None and steps * prod(inner.extents) <= prod(here.extents):
            return True
    return False


def places(e: Expr, ranges: Ranges, sums: tuple[Iter, ...]) -> Iterator[Place]:
    """All uses, those inside functions included."""
    if isinstance(e, Use):
        yield Place(e, ranges, sums)
        yield from places(expand(e), ranges, sums)
    if isinstance(e, Reduce):
        ranges, sums = {**ranges, **{i.name: i.range for i in e.sums}}, (*sums, *e.sums)
    for a in children(e):
        yield from places(a, ranges, sums)


def window(function: Function, group: Sequence[Place], bound: frozenset[str], ranges: Ranges) -> Kept | None:
    """The part of the function's box that the group reads while the bound iterators stand still; None if that has no common base."""
    base: list[Index] = []
    extents: list[int] = []
    for n in range(len(function.loops)):
        parts = [split_index(p.use.index[n], bound) for p in group]
        if any(fixed != parts[0][0] for fixed, _ in parts):
            return None
        spans = [bounds(moving, p.ranges) for (_, moving), p in zip(parts, group)]
        lo, hi = min(a for a, _ in spans), max(b for _, b in spans)
        if parts[0][0].is_const:
            loop = function.loops[n]
            lo, hi = max(lo, loop.lo - parts[0][0].const), min(hi, loop.hi - 1 - parts[0][0].const)
            if lo > hi:
                return None
        base.append(parts[0][0] + lo)
        extents.append(hi - lo + 1)
    return Kept(function, tuple(base), tuple(extents), ranges)


def split_index(e: Index, bound: frozenset[str]) -> tuple[Index, Index]:
    """The terms over bound iterators and the rest (with the constant)."""
    fixed = tuple((a, c) for a, c in e.terms if (a in bound if isinstance(a, str) else a.num.names() <= bound))
    return Index(fixed), Index(tuple(t for t in e.terms if t not in fixed), e.const)


def repeated(place: Place, rest: Sequence[Iter], points: Sequence[Iter], bound: frozenset[str]) -> int:
    """How often an inlined use would be computed: once for each step of the loops around it, unrolled ones counted where it varies."""
    own = names(place.use)
    if own <= bound:
        return 1
    loops = [i.extent for i in rest if not own <= bound | {j.name for j in rest[: rest.index(i)]}]
    small = prod(i.extent for i in place.sums) <= 8 * SMALL
    sums = [i.extent for i in place.sums if i.name in own or not small]
    return prod(loops) * prod(sums) * prod(i.extent for i in points if i.name in own)


def replaced(expr: Expr, kept: Kept, array: str) -> Expr:
    """Uses of the kept function, inside other functions too, as loads from its array."""
    if isinstance(expr, Use):
        if expr.function == kept.function:
            return kept.load(expr, array)
        inner = expand(expr)
        return replaced(inner, kept, array) if any(p.use.function == kept.function for p in places(inner, {}, ())) else expr
    args = children(expr)
    return rebuild(expr, tuple(replaced(a, kept, array) for a in args)) if args else expr
