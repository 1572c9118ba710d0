"""A nest around one reduction: what is reduced, what is done with the result, and what that reads and leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from einnet.expr.index import Floor, Index, bounds
from einnet.instantiate.codegen.ir import (
    Choose,
    Expr,
    Known,
    Load,
    Nest,
    Reduce,
    Use,
    children,
    conditions,
    expand,
    rebuild,
    simplified,
    walk,
    weights,
)  # fmt: skip

SUM = Known("(the reduction)", frozenset())
"""What stands for the reduction in the expression around it."""


def contraction(nest: Nest) -> tuple[Reduce, Expr] | None:
    """The one reduction of a nest, without another inside, and the expression around it; None if the nest is of another form."""
    if nest.outer or any(i.extent <= 0 for i in nest.loops):
        return None
    whole = simplified(uses_expanded(nest.expr), nest.ranges)
    found = list(dict.fromkeys(e for e in walk(whole) if isinstance(e, Reduce)))
    if len(found) != 1 or weights(found[0], nest.tables) or any(i.extent <= 0 for i in found[0].sums):
        return None
    (reduce,) = found
    if any(isinstance(e, Choose) and reduce in walk(e) and e.conds for e in walk(whole)):
        return None
    return (reduce, replaced(whole, reduce)) if any(isinstance(e, Load) for e in walk(reduce.body)) else None


def uses_expanded(e: Expr) -> Expr:
    """The expression with the values of functions in their places."""
    if isinstance(e, Use):
        return uses_expanded(expand(e))
    args = children(e)
    return rebuild(e, tuple(uses_expanded(a) for a in args)) if args else e


def self_contained(nest: Nest) -> Nest:
    """The nest with the values of functions in their places: functions are equal by name, so that nests of different kernels may be equal though
    they compute something else. What is remembered of a nest is remembered of this one."""
    return replace(nest, expr=simplified(uses_expanded(nest.expr), nest.ranges))


def replaced(e: Expr, reduce: Reduce) -> Expr:
    if e == reduce:
        return SUM
    args = children(e)
    return rebuild(e, tuple(replaced(a, reduce) for a in args)) if args else e


def live_share(reduce: Reduce) -> float:
    """The share of the terms that are not always 0: a fractional index reads nothing."""
    equal = {c.index for e in walk(reduce.body) for c in conditions(e) if c.equal}
    return prod(1.0 / max((a.den for a, _ in e.terms if isinstance(a, Floor)), default=1) for e in equal)


def traffic(nest: Nest, reduce: Reduce, rest: Expr) -> int:
    """Bytes that come from memory or go there, each once."""
    ranges = {**nest.ranges, **{i.name: i.range for i in reduce.sums}}
    reached: dict[str, int] = {}
    for e in {*walk(reduce.body), *walk(rest)}:
        if isinstance(e, Load):
            lo, hi = bounds(e.address, ranges)
            count = min(hi - lo + 1, prod(ranges[n][1] - ranges[n][0] for n in e.address.names()))
            reached[e.array] = max(count, reached.get(e.array, 0))
    return 4 * (sum(reached.values()) + prod(i.extent for i in nest.loops))


def floor_names(e: Index) -> Iterator[str]:
    for a, _ in e.terms:
        if isinstance(a, Floor):
            yield from a.num.names()
