"""Choices whose conditions are known where they stand: by the box, or by a choice around them."""

from __future__ import annotations

from collections.abc import Mapping

from einnet.expr.index import Range
from einnet.expr.nodes import Body, Cond, Select, children, rebuilt
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
    contrary = (Cond(-c.index - 1) for c in left if len(left) == 1 and not c.equal and c.index.den == 1)
    return Select(left, decided(body.then, ranges, (*known, *left)), decided(body.other, ranges, (*known, *contrary)))
