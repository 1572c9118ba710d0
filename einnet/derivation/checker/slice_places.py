"""Where the slices of a tensor lie, and what reads and conditions are at the points of a slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import gcd, isqrt
from typing import NamedTuple

from einnet.expr.index import ZERO, Index, Range, substitute, var
from einnet.expr.nodes import Cond, Iter, Scope
from einnet.expr.notation.sized_text import follows, multiple, value
from einnet.expr.sets import PARAMETER, Relation, same_relation
from einnet.expr.sized import SLICE, Frame, Sized, Unsliced

MOST_PLACES = 64
"""Ways to divide the result that are tried."""

_LARGEST_DIVISOR = 1 << 16

_AT_ONE = {PARAMETER: Index((), 1), SLICE: ZERO}


class Place(NamedTuple):
    """Where slices lie: along a dimension of (blocks·N)·stride elements."""

    dimension: int
    blocks: int
    stride: int


def dimension_of(box: Sequence[Range], what: str) -> int | None:
    """The one dimension that follows N."""
    found = follows(tuple(box))
    if len(found) > 1:
        raise Unsliced(f"{what} has {len(found)} dimensions that follow the size")
    if found and box[found[0]][0] != 0:
        raise Unsliced(f"a dimension of {what} that follows the size does not start at 0")
    return found[0] if found else None


def places(dimension: int, extent: int) -> Iterator[Place]:
    """The ways to divide a dimension of k·N elements: adjacent slices, slices in turns, and between the two, as far as there are not too many."""
    k = multiple(extent)
    small = [t for t in range(1, min(isqrt(k), _LARGEST_DIVISOR) + 1) if k % t == 0]
    strides = dict.fromkeys((k, 1, *(k // t for t in small), *reversed(small)))
    yield from (Place(dimension, k // t, t) for t in islice(strides, MOST_PLACES))


def points(scope: Scope, place: Place | None) -> Frame:
    """The points of a scope in a slice."""
    iterators: dict[str, Sized] = {}
    ranges: dict[str, Range] = {}
    for n, i in enumerate((*scope.loops, *scope.sums)):
        if place is None or n != place.dimension:
            iterators[i.name], ranges[i.name] = Sized(ZERO, var(i.name)), i.range
            continue
        block, within = Iter(f"{i.name}#a", 0, place.blocks), Iter(f"{i.name}#b", 0, place.stride)
        ranges |= {j.name: j.range for j in (block, within) if j.extent > 1}
        many, rest = (var(j.name) if j.extent > 1 else ZERO for j in (block, within))
        iterators[i.name] = Sized(place.stride * many, place.stride * var(SLICE) + rest)
    return Frame(iterators, ranges)


def parts(frame: Frame, e: Sized, place: Place) -> tuple[Index, Index]:
    """(block, within) of a place: e = block·stride·N + within, with 0 <= within < stride·N where that is inside."""
    if e.many.is_const and place.blocks == 1:
        return ZERO, e.rest + e.many.const * var(PARAMETER)
    block = e.many / place.stride
    if block.den != 1:
        raise Unsliced("blocks of slices are read in parts")
    j = frame.quotient(e.rest, place.stride)
    return block + j, e.rest - j * place.stride * var(PARAMETER)


def plain(e: Sized) -> Index:
    """An index of what does not follow N, or a value."""
    if not e.many.is_const:
        raise Unsliced("a multiple of the size where nothing follows it")
    return e.rest + e.many.const * var(PARAMETER)


def condition(frame: Frame, cond: Cond) -> set[Cond]:
    """The condition in terms of slices: e >= 0 where ⌊e / g·N⌋ >= 0, for the greatest common divisor g of what many is made of."""
    e = value(cond.index, frame)
    if e.many.is_const:
        rest = e.rest + e.many.const * var(PARAMETER)
        return {Cond(Index(rest.terms, rest.const), cond.equal)}
    g = gcd(e.many.const, *(c for _, c in e.many.terms))
    j = frame.quotient(e.rest, g)
    return {Cond(e.many / g + j, cond.equal)} | ({Cond(e.rest - j * g * var(PARAMETER), True)} if cond.equal else set())


def same(frame: Frame, image: tuple[Index, ...], conds: set[Cond], place: Place | None) -> None:
    """The image and the conditions are at every N and s what they are at N = 1 and s = 0; with a place, the image's first is s."""
    one = [substitute(e, _AT_ONE) for e in image]
    if place is not None:
        one[0] = var(SLICE)
    at_one = frozenset(Cond(substitute(c.index, _AT_ONE), c.equal) for c in conds)
    found, wanted = Relation(frame.domain, image, frame.conds | conds), Relation(frame.domain, tuple(one), frame.conds | at_one)
    if not same_relation(found, wanted):
        raise Unsliced("it is not the same in all slices")
