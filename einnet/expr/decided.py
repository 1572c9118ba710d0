"""Choices whose conditions are known where they stand, by the box or by a choice around them; and where what stands in them is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import Body, Cond, Read, Select, children, rebuilt
from einnet.expr.sets import empty, implied


def decided(body: Body, ranges: Mapping[str, Range], known: tuple[Cond, ...] = ()) -> Body:
    """The body, which stands where `known` holds, without the choices of which it is known there what they are, and the conditions that hold anyway.

    select(p >= 0, f, g): p >= 0 is known in f, and -p - 1 >= 0 in g where p is an integer.
    """
    if not isinstance(body, Select):
        return rebuilt(body, tuple(decided(a, ranges, known) for a in children(body)))
    left = tuple(c for c in body.conds if not implied(c, known, ranges))
    if not left:
        return decided(body.then, ranges, known)
    if empty((*known, *left), ranges):
        return decided(body.other, ranges, known)
    return Select(left, decided(body.then, ranges, (*known, *left)), decided(body.other, ranges, (*known, *contrary(left))))


def contrary(conds: Sequence[Cond]) -> tuple[Cond, ...]:
    """What holds where not all of some conditions hold: known of one inequality of an integer only, p >= 0, which is -p - 1 >= 0 then."""
    return tuple(Cond(-c.index - 1) for c in conds if len(conds) == 1 and not c.equal and c.index.den == 1)


def reads_where(body: Body, ranges: Mapping[str, Range]) -> Iterator[tuple[Read, Mapping[str, Range]]]:
    """The reads of a body, and the ranges of iterators under the conditions of the choices around each."""
    match body:
        case Read():
            yield body, ranges
        case Select(conds, then, other):
            if (where := ranges_where(conds, ranges)) is not None:
                yield from reads_where(then, where)
            if (where := ranges_where(contrary(conds), ranges)) is not None:
                yield from reads_where(other, where)
        case _:
            for part in children(body):
                yield from reads_where(part, ranges)


def ranges_where(conds: Iterable[Cond], ranges: Mapping[str, Range]) -> Mapping[str, Range] | None:
    """The ranges of iterators where conditions hold; None where they hold nowhere."""
    found = dict(ranges)
    for ix, equal in conds:
        for name, c in ((a, c) for a, c in ix.terms if isinstance(a, str)):
            least, most = bounds(Index(tuple((a, k) for a, k in ix.terms if a != name), ix.const), found)
            lo, hi = found[name]
            sides = [(c, most), (-c, -least)] if equal else [(c, most)]  # k * value + rest >= 0
            for k, rest in sides:
                lo, hi = (max(lo, -(rest // k)), hi) if k > 0 else (lo, min(hi, rest // -k + 1))
            if lo >= hi:
                return None
            found[name] = lo, hi
    return found
