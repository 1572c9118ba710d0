"""A step's expressions at a time, or at all times at once: every read of the body becomes one of what stands for it over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf

from einnet.expr.index import Index, Range, bounds, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Const,
    Iter,
    Mul,
    Read,
    Scope,
    Tensor,
    Val,
    fresh,
    map_reads,
    substitute_body,
    tensors,
)  # fmt: skip
from einnet.expr.selection import selection

Source = Callable[[Read, Index, Mapping[str, Range]], Body]
"""What stands for a read of a tensor of the body at a time; ranges are those of the iterators around."""

Sources = Mapping[str, Source]


def still(tensor: Tensor | Scope) -> Source:
    """The same at all times."""
    return lambda read, time, ranges: Read(tensor, read.index, read.fill)


def along(tensor: Tensor | Scope, axis: int = 0, last: int | None = None) -> Source:
    """A slice along an axis; counted from `last` down where that is given."""
    return lambda read, time, ranges: Read(tensor, (*read.index[:axis], time if last is None else last - time, *read.index[axis:]), read.fill)


def at_time(scope: Scope, time: Index, sources: Sources, ranges: Mapping[str, Range] | None = None) -> Scope:
    """The scope at a time; a variable time is an iterator of `ranges`, and nested scopes that depend on it get a loop of their own for it."""
    inside = {**(ranges or {}), **scope.ranges}

    def swapped(read: Read) -> Body:
        if isinstance(read.base, Tensor):
            return sources[read.base.name](read, time, inside)
        if time.is_const:
            return Read(at_time(read.base, time, sources), read.index, read.fill)
        (lo, hi), *_ = [r for n, r in inside.items() if n in time.names()]
        return Read(over_time(read.base, hi - lo, sources), (time, *read.index), read.fill)

    return selected(replace(scope, body=map_reads(scope.body, swapped)), ranges or {})


def over_time(scope: Scope, count: int, sources: Sources) -> Scope:
    """The scope at times 0 to count, which is its first loop."""
    t = Iter(fresh("t", scope.ranges), 0, count)
    moved = at_time(scope, var(t.name), sources, {t.name: t.range})
    return replace(moved, loops=(t, *moved.loops))


def reads_any(scope: Scope, names: set[str]) -> bool:
    """The scope reads a tensor of these names."""
    return not names.isdisjoint(tensors(scope))


def selected(scope: Scope, around: Mapping[str, Range]) -> Scope:
    """A sum of which one term is taken, at a place that is an index function within the range, as that term."""
    found = selection(scope)
    if found is None:
        return scope
    ranges = {**around, **scope.ranges}
    place = whole(found.place, ranges)
    if place is None:
        return scope
    low, high = bounds(place, ranges)
    if low < found.over.lo or high >= found.over.hi:
        return scope
    return Scope(scope.loops, (), substitute_body(found.term, {found.over.name: place}))


def whole(body: Body, ranges: Mapping[str, Range]) -> Index | None:
    """A body that is an index function, as that; comparisons count where ranges decide them."""
    match body:
        case Val(index) if index.den == 1:
            return index
        case Const(value) if isinstance(value, Fraction) and value.denominator == 1:
            return Index((), int(value))
        case Add(args):
            found = [whole(a, ranges) for a in args]
            return sum((f for f in found if f is not None), Index()) if None not in found else None
        case Mul((Const(value), other)) if isinstance(value, Fraction) and value.denominator == 1:
            factor = whole(other, ranges)
            return None if factor is None else factor * int(value)
        case Call("less", (left, right)):
            return _less(whole(left, ranges), whole(right, ranges), ranges)
    return None


def _less(left: Index | None, right: Index | None, ranges: Mapping[str, Range]) -> Index | None:
    low, high = bounds(left - right, ranges) if left is not None and right is not None else (-inf, inf)
    return Index((), 1) if high < 0 else Index() if low >= 0 else None
