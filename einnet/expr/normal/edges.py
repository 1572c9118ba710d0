"""Reads that may leave the box of a scope, written as choices between what is inside and the fill.

Forms read a scope at its own loops where they never leave its box. Other expressions may name their loops so, too: whether they stay is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping

from einnet.expr import sets  # isl is not there where programs only run
from einnet.expr.index import Range
from einnet.expr.nodes import Body, Cond, Const, Read, Scope, Select, children, rebuild


def at_own_loops(read: Read) -> bool:
    """The read is of a scope, at indices that are called as its loops are."""
    loops = read.base.loops if isinstance(read.base, Scope) else ()
    return all(len(e.terms) == 1 and e.terms[0] == (i.name, 1) and not e.const and e.den == 1 for e, i in zip(read.index, loops, strict=True))


def explicit(body: Body, ranges: Mapping[str, Range], given: tuple[Cond, ...] = ()) -> Body:
    """The body in which every read of a scope at its own loops stays in its box, where the iterators have these ranges and `given` holds."""
    match body:
        case Read(Scope() as base, index, fill) if at_own_loops(body):
            ends = (c for e, (lo, hi) in zip(index, base.box, strict=True) for c in (Cond(e - lo), Cond(hi - 1 - e)))
            left = tuple(c for c in ends if not sets.implied(c, given, ranges))
            return Select(left, body, Const(fill)) if left else body
        case Select(conds, then, other):
            inside, outside = explicit(then, ranges, (*given, *conds)), explicit(other, ranges, given)
            return body if inside is then and outside is other else Select(conds, inside, outside)
    args = children(body)
    new = tuple(explicit(a, ranges, given) for a in args)
    return body if all(a is b for a, b in zip(args, new)) else rebuild(body, new)
