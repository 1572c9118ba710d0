"""Reductions along a diagonal as reductions of rows under a mask: ONNX has no strides that would walk a diagonal without a copy."""

from __future__ import annotations

from dataclasses import replace

from einnet.expr.index import Floor, Index, bounds, simplify, var
from einnet.expr.nodes import Cond, Const, Iter, Mul, Scope, Select, fresh, map_indices, neutral, reads, substitute_body

WIDER = 2
"""Times the extent of an iterator that the row under the mask may have."""


def unskewed(s: Scope) -> Scope:
    """L[m] reduce[n] f(m, m+n) = L[m] reduce[t] [t-m in N] f(m, t), the brackets neutral outside, wherever all reads of n are at one m+n.

    A sum of products stays as it is: it is a contraction, under a mask no longer.
    """
    if isinstance(s.body, Mul) or any(i.extent == 0 for i in (*s.loops, *s.sums)):
        return s
    for n in s.sums:
        to = diagonal(s, n)
        if to is not None:
            return unskewed(along(s, n, to))
    return s


def diagonal(s: Scope, n: Iter) -> Index | None:
    """The one index function at which all that depends on n is read: n and other iterators, no division; None where there is none."""
    found = {ix for r in reads(s.body) for ix in r.index if n.name in ix.names()}
    if len(found) != 1:
        return None
    (to,) = found
    plain = to.den == 1 and not any(isinstance(a, Floor) for a, _ in to.terms)
    if not plain or len(to.terms) < 2 or abs(to.coefficient(n.name)) != 1:
        return None
    first, last = bounds(to, s.ranges)
    return to if last + 1 - first <= WIDER * n.extent else None


def along(s: Scope, n: Iter, to: Index) -> Scope:
    """The reduction over t = to(n, ...) in the place of n."""
    t = fresh("t", s.ranges)
    sign = to.coefficient(n.name)
    back = (var(t) - Index(tuple((a, k) for a, k in to.terms if a != n.name), to.const)) * sign
    first, last = bounds(to, s.ranges)
    sums = tuple(Iter(t, first, last + 1) if i == n else i for i in s.sums)
    made = replace(s, sums=sums)
    body = map_indices(substitute_body(s.body, {n.name: back}), lambda ix: simplify(ix, made.ranges))
    inside = (Cond(back - n.lo), Cond(n.hi - 1 - back))
    return replace(made, body=Select(inside, body, Const(neutral(s.reduce))))
