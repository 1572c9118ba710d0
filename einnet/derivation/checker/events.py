"""Where an expression changes what it computes: the edges of conditions and of boxes that are read, and where a value of an index meets a constant.

Scopes that are read are looked into, their iterators replaced by the indices at which they are read, so that an edge of a nested scope becomes a
condition on the iterators of the outermost one. isl finds a point for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import prod

from einnet.expr import sets
from einnet.expr.index import ZERO, Index, Range, bounds, substitute, var
from einnet.expr.nodes import Add, Body, Cond, Const, Div, Mul, Read, Scope, Select, Tensor, Val, children, tensors

_MOST_EVENTS = 160
_MOST_CONSTANTS = 8
_MOST_ENTRIES = 24
_LARGEST_FACTOR, _MOST_FACTORS = 1 << 12, 8

Point = dict[str, int]
Event = tuple[tuple[Cond, ...], tuple[Cond, ...]]
"""What is to happen, and what holds where it does."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A body of a scope inside: its iterators by those of the whole, and what holds where it is read."""

    names: Mapping[str, Index]
    given: tuple[Cond, ...]


def points_of_events(scope: Scope, other: Scope) -> Iterator[Point]:
    """Values of the loops that an event fixes; of loops that it has nothing to do with none is given."""
    ranges: dict[str, Range] = dict(scope.ranges)
    tables = _tables(other)
    numbers = sorted({c for s in (scope, other) for c in _integers(s)}, key=abs)[:_MOST_CONSTANTS]
    place = _Place({n: var(n) for n in ranges}, ())
    loops = [i.name for i in scope.loops]
    done: set[Event] = set()
    for event in islice(_events(scope, place, ranges, numbers, tables), _MOST_EVENTS):
        if event in done:
            continue
        done.add(event)
        point = _solved(event, ranges, loops)
        if point is not None:
            yield point


def _solved(event: Event, ranges: Mapping[str, Range], loops: Iterable[str]) -> Point | None:
    """A point at which the event happens, of the names that occur in it or are tied to those."""
    conds = (*event[0], *event[1])
    names = frozenset().union(*(c.index.names() for c in event[0]))
    while True:
        tied = [c for c in conds if c.index.names() & names]
        wider = names.union(*(c.index.names() for c in tied))
        if wider == names:
            break
        names = wider
    if not names & set(loops):
        return None
    found = sets.sample(tied, {n: ranges[n] for n in names})
    return None if found is None else {n: x for n, x in found.items() if n in loops}


def _events(
    scope: Scope, place: _Place, ranges: dict[str, Range], numbers: list[int], tables: tuple[Tensor, ...]
) -> Iterator[Event]:
    """What changes something."""
    inner: list[tuple[Scope, _Place]] = []

    def visit(body: Body, given: tuple[Cond, ...]) -> Iterator[Event]:
        match body:
            case Select(conds, then, other):
                own = tuple(Cond(substitute(c.index, place.names), c.equal) for c in conds)
                yield from _at_conditions(own, given)
                yield from visit(then, (*given, *own))
                yield from visit(other, given)
                return
            case Val() | Add() | Mul():
                yield from ((event, given) for event in _at_values(body, place, numbers, ranges))
            case Read(base, index, _):
                image = tuple(substitute(e, place.names) for e in index)
                inside = _inside(image, base.box, ranges)
                yield from _at_box(image, base.box, inside, given, ranges)
                if isinstance(base, Scope):
                    inner.append((base, _entered(base, image, (*given, *(c for _, c in inside)), ranges)))
                elif base.values is not None and base not in tables:
                    yield from ((entry, given) for table in tables for entry in _entries(base, table, image))
        for child in children(body):
            yield from visit(child, given)

    yield from visit(scope.body, place.given)
    for below, where in inner:
        yield from _events(below, where, ranges, numbers, tables)


def _at_values(body: Val | Add | Mul, place: _Place, numbers: list[int], ranges: dict[str, Range]) -> Iterator[tuple[Cond, ...]]:
    """Where a number that iterators make, alone, in a sum or in a product of two, is beside a number."""
    match body:
        case Val(e):
            yield from _at_numbers(substitute(e, place.names), numbers, ranges)
        case Add():
            total = _linear(body)
            if total is not None and len(total.names()) > 1:
                yield from _at_numbers(substitute(total, place.names), [0, *numbers], ranges)
        case Mul(args):
            values = [substitute(e, place.names) for e in map(_linear, args) if e is not None and e.terms]
            if len(values) == 2:
                yield from _at_products(values[0], values[1], numbers)


def _at_conditions(own: tuple[Cond, ...], given: tuple[Cond, ...]) -> Iterator[Event]:
    """The edges of each condition, where the others hold; and a place where all hold, though they be about different loops."""
    for n, c in enumerate(own):
        rest = (*given, *(o for k, o in enumerate(own) if k != n))
        yield from (((edge,), rest) for edge in _edges(c))
    together = (*given, *own)
    if len(together) > 1:
        yield together, ()


def _at_box(
    image: tuple[Index, ...], box: tuple[Range, ...], inside: list[tuple[int, Cond]], given: tuple[Cond, ...], ranges: Mapping[str, Range]
) -> Iterator[Event]:
    """The ends of a box that is read, and what lies beside them, in each dimension, where the read is inside in the others."""
    for n, (e, (lo, hi)) in enumerate(zip(image, box, strict=True)):
        rest = (*given, *(c for k, c in inside if k != n))
        low, high = bounds(e, ranges)
        yield from (((Cond(e - at, True),), rest) for at in (lo - 1, lo, hi - 1, hi) if low <= at <= high)


def _edges(c: Cond) -> tuple[Cond, ...]:
    """Just outside and just inside of a condition."""
    e = Index(c.index.terms, c.index.const)
    if c.equal:
        return Cond(e, True), Cond(e - 1), Cond(-e - 1)
    return Cond(e + 1, True), Cond(e, True)


def _linear(body: Body) -> Index | None:
    """A body of values of indices, added up and multiplied by numbers, as one index; None for another."""
    match body:
        case Val(e):
            return e
        case Const(Fraction() as v):
            return Index((), v.numerator, v.denominator)
        case Add(args):
            parts = [_linear(a) for a in args]
            return sum((p for p in parts if p is not None), ZERO) if None not in parts else None
        case Mul(args):
            factor = prod((a.value for a in args if isinstance(a, Const) and isinstance(a.value, Fraction)), start=Fraction(1))
            rest = [a for a in args if not isinstance(a, Const)]
            inner = _linear(rest[0]) if len(rest) == 1 else None
            return None if inner is None else inner * factor.numerator / factor.denominator
        case Div(num, Const(Fraction(numerator=n) as v)) if n:
            return _linear(Mul((Const(1 / v), num)))
    return None


def _at_numbers(value: Index, numbers: Iterable[int], ranges: Mapping[str, Range]) -> Iterator[tuple[Cond, ...]]:
    """Where a value is one of some numbers, or beside it."""
    for at in _met(value, numbers, ranges):
        yield (Cond(Index(value.terms, value.const - at * value.den), True),)


def _at_products(one: Index, other: Index, numbers: Iterable[int]) -> Iterator[tuple[Cond, ...]]:
    """Where a product of two values is one of some numbers."""
    if one.den == other.den == 1:
        for number in numbers:
            for d in [d for d in range(1, min(abs(number), _LARGEST_FACTOR) + 1) if number % d == 0][-_MOST_FACTORS:]:
                yield Cond(one - d, True), Cond(other - number // d, True)
                yield Cond(one - number // d, True), Cond(other - d, True)


def _met(value: Index, numbers: Iterable[int], ranges: Mapping[str, Range]) -> list[int]:
    """The whole numbers at and beside constants that a value takes, as far as bounds tell."""
    lo, hi = bounds(value, ranges)
    return [n for c in numbers for n in (c, c + 1, c - 1) if lo <= n <= hi]


def _inside(image: tuple[Index, ...], box: tuple[Range, ...], ranges: Mapping[str, Range]) -> list[tuple[int, Cond]]:
    """What must hold, by dimension, for a read to be inside its box."""
    found: list[tuple[int, Cond]] = []
    for n, (e, (lo, hi)) in enumerate(zip(image, box, strict=True)):
        low, high = bounds(e, ranges)
        num = Index(e.terms, e.const)
        if low < lo:
            found.append((n, Cond(num - lo * e.den)))
        if high >= hi:
            found.append((n, Cond((hi - 1) * e.den - num)))
        if e.den != 1:
            found.append((n, Cond(num % e.den, True)))
    return found


def _entered(scope: Scope, image: tuple[Index, ...], given: tuple[Cond, ...], ranges: dict[str, Range]) -> _Place:
    """The place of a scope that is read: its sums become iterators of the whole, its loops what they are read at."""
    names: dict[str, Index] = {}
    for i, e in zip(scope.loops, image, strict=True):
        if e.den == 1:
            names[i.name] = e
            continue
        fresh = f"{i.name}#{len(ranges)}"
        ranges[fresh] = i.range
        names[i.name] = var(fresh)
        given = (*given, Cond(Index(e.terms, e.const) - e.den * var(fresh), True))
    for i in scope.sums:
        fresh = f"{i.name}#{len(ranges)}"
        ranges[fresh] = i.range
        names[i.name] = var(fresh)
    return _Place(names, given)


def _tables(scope: Scope) -> tuple[Tensor, ...]:
    """Tensors of the other side that carry their values."""
    return tuple(t for t in tensors(scope).values() if t.values is not None)


def _entries(base: Tensor, other: Tensor, image: tuple[Index, ...]) -> Iterator[tuple[Cond, ...]]:
    """Where entries are read that the other side's table has otherwise."""
    if base.values is None or other.values is None or base.shape != other.shape:
        return
    apart = [n for n, (a, b) in enumerate(zip(base.values, other.values, strict=True)) if a != b]
    for n in apart[:_MOST_ENTRIES]:
        conds: list[Cond] = []
        rest = n
        for e, extent in zip(reversed(image), reversed(base.shape), strict=True):
            rest, at = divmod(rest, extent)
            conds.append(Cond(Index(e.terms, e.const - at * e.den), True))
        yield tuple(conds)


def _integers(scope: Scope) -> Iterator[int]:
    """Whole numbers at constants of the bodies, and at quotients of two of them."""
    found: list[Fraction] = []

    def visit(body: Body) -> None:
        if isinstance(body, Const) and isinstance(body.value, Fraction):
            found.append(abs(body.value))
        for child in children(body):
            visit(child)
        if isinstance(body, Read) and isinstance(body.base, Scope):
            visit(body.base.body)

    visit(scope.body)
    distinct = dict.fromkeys(found)
    for c in distinct:
        yield c.numerator // c.denominator
        yield from ((c / d).numerator // (c / d).denominator for d in distinct if d not in (0, 1))
