"""Choices whose conditions are known where they stand: by the box, or by a choice around them."""

from __future__ import annotations

from collections.abc import Mapping

from einnet.expr.index import Range
from einnet.expr.nodes import Body, Cond, Select, children, rebuild
from einnet.expr.sets import implied


def decided(body: Body, ranges: Mapping[str, Range], known: tuple[Cond, ...] = ()) -> Body:
    """The body, which stands where `known` holds, without the choices of which it is known there what they are, and the conditions that hold anyway.

    select(p >= 0, f, g): p >= 0 is known in f, and -p - 1 >= 0 in g where p is an integer.
    """
    if not isinstance(body, Select):
        args = children(body)
        return rebuild(body, tuple(decided(a, ranges, known) for a in args)) if args else body
    left = tuple(c for c in body.conds if not implied(c, known, ranges))
    if not left:
        return decided(body.then, ranges, known)
    contrary = [_contrary(c) for c in left]
    if any(c is not None and implied(c, known, ranges) for c in contrary):
        return decided(body.other, ranges, known)
    otherwise = contrary[0] if len(left) == 1 else None
    other = decided(body.other, ranges, known if otherwise is None else (*known, otherwise))
    return Select(left, decided(body.then, ranges, (*known, *left)), other)


def _contrary(cond: Cond) -> Cond | None:
    """What holds where a condition does not, if one condition says it."""
    return None if cond.equal or cond.index.den != 1 else Cond(-cond.index - 1)
