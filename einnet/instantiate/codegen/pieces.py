"""Ranges of a loop on which conditions are decided: borders are split off so that the interior needs no predicate. And bodies that are written twice,
for the interior and for the borders: when the interior is reached, and what is left to guard in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from einnet.expr.index import Floor, Index, Range
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen.ir import (
    Choose,
    Expr,
    Load,
    Nest,
    Ranges,
    Use,
    children,
    conditions,
    decide,
    enclosure,
    expanded,
    rebuild,
)  # fmt: skip

Located = tuple[Cond, Ranges]
"""A condition and the ranges of what it depends on."""


def located(e: Expr, ranges: Ranges) -> list[Located]:
    """All undecided conditions of an expression, with the ranges that hold where they stand."""
    found: dict[Cond, Ranges] = {}
    for node, inside in expanded(e, ranges):
        for c in conditions(node):
            if c not in found and decide(c, inside) is None:
                found[c] = inside
    return list(found.items())


def pieces(name: str, own: Range, conds: Iterable[Located], most: int) -> list[Range]:
    """A partition of the range, in order, into at most `most` intervals with as many conditions decided on as many points as possible."""
    lo, hi = own
    involved = [(c, r) for c, r in conds if name in c.index.names()]
    cuts = sorted({lo, hi} | {cut for c, r in involved for cut in _cuts(name, c, r) if lo < cut < hi})
    spans = list(pairwise(cuts))
    if len(spans) == 1:
        return spans
    open_ = {s: any(decide(c, {**r, name: s}) is None for c, r in involved) for s in spans}
    if len(spans) > most:
        spans = _joined(spans, open_)
    while len(spans) > most:
        at = min(range(len(spans) - 1), key=lambda n: spans[n + 1][1] - spans[n][0])
        spans[at : at + 2] = [(spans[at][0], spans[at + 1][1])]
    return spans


def _joined(spans: list[Range], open_: dict[Range, bool]) -> list[Range]:
    """Adjacent intervals with open conditions as one."""
    result: list[Range] = []
    last_open = False
    for s in spans:
        if result and last_open and open_[s]:
            result[-1] = (result[-1][0], s[1])
        else:
            result.append(s)
        last_open = open_[s]
    return result


def _cuts(name: str, cond: Cond, ranges: Ranges) -> list[int]:
    """Points where the condition becomes decided, as far as interval arithmetic sees, and (near them) every point in between."""
    e = cond.index
    c = e.coefficient(name)
    if not c or any(isinstance(a, Floor) and name in a.num.names() for a, _ in e.terms):
        return []
    low, high = enclosure(Index(tuple(t for t in e.terms if t[0] != name), e.const), ranges)
    if cond.equal:
        return [x for v in {-low, -high} for x in (v // c, v // c + 1)] if high - low < 8 else []
    always, never = (-(low // c), -(high // c)) if c > 0 else (high // -c + 1, low // -c + 1)
    first, last = sorted((always, never))
    return list(range(first, last + 1)) if last - first <= 8 else [first, last]


def interior(nest: Nest, expr: Expr, ranges: Ranges, lane: str, inner: Collection[str]) -> tuple[Cond, ...] | None:
    """Conditions on the loops around the body under which all its guards hold that do not vary over the lanes; () if there are none to test.

    `inner` are the loops inside the body. None if no such point is known.
    """
    found: dict[Cond, None] = {}
    for cond, inside in (*located(expr, ranges), *((c, ranges) for c in nest.guards)):
        if lane in cond.index.names() or decide(cond, inside):
            continue
        weakest = least(cond, inside, {n for n in inside if n in inner or n not in ranges})
        if weakest is None or decide(weakest, ranges) is False:
            return None
        if decide(weakest, ranges) is None:
            found[weakest] = None
    return tuple(found)


def least(cond: Cond, ranges: Ranges, inner: Collection[str]) -> Cond | None:
    """The condition at the values of the inner iterators where it is hardest to meet; None for equalities and inner floor divisions."""
    if cond.equal or any(isinstance(a, Floor) and not a.num.names().isdisjoint(inner) for a, _ in cond.index.terms):
        return None
    terms, const = [], cond.index.const
    for a, c in cond.index.terms:
        if a in inner and isinstance(a, str):
            lo, hi = ranges[a]
            const += c * (lo if c > 0 else hi - 1)
        else:
            terms.append((a, c))
    return Cond(Index(tuple(terms), const))


def unguarded(e: Expr, lane: str) -> Expr:
    """The expression where all conditions hold that do not vary over the lanes."""
    match e:
        case Load(array, address, guards, fill):
            return Load(array, address, tuple(c for c in guards if lane in c.index.names()), fill)
        case Use(function, index, guards):
            return Use(function, index, tuple(c for c in guards if lane in c.index.names()))
        case Choose(conds, then, other):
            left = tuple(c for c in conds if lane in c.index.names())
            return Choose(left, unguarded(then, lane), other) if left else unguarded(then, lane)
    args = children(e)
    return rebuild(e, tuple(unguarded(a, lane) for a in args)) if args else e
