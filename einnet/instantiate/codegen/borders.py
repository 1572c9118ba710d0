"""Bodies that are written twice, for the interior and for the borders: when the interior is reached, and what is left to guard in it."""

from __future__ import annotations

from collections.abc import Collection

from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen.ir import Choose, Expr, Load, Nest, Ranges, Use, children, decide, rebuild
from einnet.instantiate.codegen.pieces import located


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
