"""Which expressions are integers wherever they are evaluated, and between which two: what may be stored as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from math import inf, prod

from einnet.expr.index import Index, Range, bounds, in_range, substitute
from einnet.expr.nodes import Add, Body, Call, Const, Mul, Number, Read, Scope, Select, Val
from einnet.expr.selection import selection

Ends = tuple[float, float]
"""The least and the greatest number, both infinite where that is not known."""

ENDS: Mapping[str, Ends] = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767), "bool": (0, 1)}
"""Types of integers all of which float32 has."""

BYTES = ("u8", "i8")
"""Of these the ones that programs store."""

ROUNDS = ("round", "floor", "ceil")
MOST_TERMS = ((1 << 31) - 1) // (255 * 128)
"""So many products of two bytes have a sum, and all parts of it, that 32 bits hold."""
MOST_TAPS = 64
"""Places of a window that are tried for one that is always inside."""


def holds(dtype: str, scope: Scope) -> bool:
    """Every element of the scope is an integer of the type, for inputs that are numbers."""
    found = integers(scope)
    return found is not None and dtype in ENDS and within(found, ENDS[dtype])


def within(inner: Ends, outer: Ends) -> bool:
    """All numbers between the first two lie between the others."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def integers(scope: Scope) -> Ends | None:
    """The ends of a scope all of whose elements are integers; None where one may be another number."""
    chosen = selection(scope)
    if chosen is not None:
        return _hull((of(chosen.term, scope.ranges), (0, 0)))
    if scope.sums and scope.reduce in ("max", "min"):
        body = _padded(scope) if isinstance(scope.body, Read) else scope.body
        return of(body, scope.ranges)
    found = of(scope.body, scope.ranges)
    if found is None or not scope.sums:
        return found
    count = prod(i.extent for i in scope.sums)
    return (_times(found[0], count), _times(found[1], count)) if scope.reduce == "sum" else None


def _padded(scope: Scope) -> Body:
    """The read of a maximum or minimum, with what is neutral outside left out where some place of every window is inside."""
    read = scope.body
    assert isinstance(read, Read)
    neutral = -inf if scope.reduce == "max" else inf
    if read.fill != neutral or prod(i.extent for i in scope.sums) > MOST_TAPS:
        return read
    for place in product(*(range(i.lo, i.hi) for i in scope.sums)):
        at = {i.name: Index((), n) for i, n in zip(scope.sums, place, strict=True)}
        if inside((substitute(e, at) for e in read.index), read, scope.ranges):
            found = of(Read(read.base, read.index), scope.ranges)
            return Read(read.base, read.index, Fraction(int(found[0]))) if found and abs(found[0]) < inf else read
    return read


def of(body: Body, ranges: Mapping[str, Range]) -> Ends | None:
    """The ends of a body that is an integer at all points of the ranges, else None."""
    match body:
        case Const(v):
            return _number(v)
        case Val(index) if index.den == 1:
            return bounds(index, ranges)
        case Read(base, index, fill):
            found = integers(base) if isinstance(base, Scope) else ENDS.get(base.dtype)
            if found is None or inside(index, body, ranges):
                return found
            return _hull((found, _number(fill)))
        case Add(args):
            return _sum([of(a, ranges) for a in args])
        case Mul(args):
            return _product([of(a, ranges) for a in args])
        case Select(_, then, other):
            return _hull((of(then, ranges), of(other, ranges)))
        case Call(name, args):
            return _called(name, [of(a, ranges) for a in args])
    return None


def _called(name: str, args: list[Ends | None]) -> Ends | None:
    """A function of arguments that are integers, or None."""
    if name in ROUNDS:
        return args[0] or (-inf, inf)
    if name == "relu":
        return _extreme("max", [*args, (0, 0)])
    return _extreme(name, args) if name in ("min", "max") else None


def inside(index: Iterable[Index], read: Read, ranges: Mapping[str, Range]) -> bool:
    """The index stays in the box of what is read."""
    return all(in_range(e, box, ranges) for e, box in zip(index, read.base.box, strict=True))


def _number(v: Number) -> Ends | None:
    """An integer; what is infinite is none."""
    x = float(v)
    return (x, x) if x.is_integer() else None


def _hull(parts: Iterable[Ends | None]) -> Ends | None:
    found = list(parts)
    return None if None in found else (min(p[0] for p in found if p), max(p[1] for p in found if p))


def _extreme(name: str, parts: Iterable[Ends | None]) -> Ends | None:
    """The greatest of several integers, or the least."""
    found = list(parts)
    pick = max if name == "max" else min
    return None if None in found else (pick(p[0] for p in found if p), pick(p[1] for p in found if p))


def _sum(parts: list[Ends | None]) -> Ends | None:
    return None if None in parts else (sum(p[0] for p in parts if p), sum(p[1] for p in parts if p))


def _product(parts: list[Ends | None]) -> Ends | None:
    found: Ends = (1, 1)
    for p in parts:
        if p is None:
            return None
        ends = [_times(a, b) for a in found for b in p]
        found = min(ends), max(ends)
    return found


def _times(a: float, b: float) -> float:
    return 0 if 0 in (a, b) else a * b
