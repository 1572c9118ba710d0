"""Arguments of functions where they count: what stands under conditions that do not hold is computed by nobody, however large it would be."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from einnet.expr.nodes import Body, Call, Cond, Const, Div, Read, Scope, Select, children, rebuild


@lru_cache(maxsize=1 << 10)
def asked(scope: Scope) -> Scope:
    """The scope with arguments of functions and divisors that are 0 where the conditions of the selects around them do not hold."""
    return replace(scope, body=_asked(scope.body, ()))


def _asked(body: Body, conds: tuple[Cond, ...]) -> Body:
    match body:
        case Read(Scope() as base, index, fill):
            return Read(asked(base), index, fill)
        case Select(own, then, other):
            return Select(own, _asked(then, (*conds, *own)), _asked(other, conds))
        case Call(name, args):
            return Call(name, tuple(_only(_asked(a, conds), conds) for a in args))
        case Div(num, den):
            return Div(_asked(num, conds), _only(_asked(den, conds), conds))
    args = children(body)
    return rebuild(body, tuple(_asked(a, conds) for a in args)) if args else body


def _only(body: Body, conds: tuple[Cond, ...]) -> Body:
    """The body where the conditions hold, else 0."""
    return Select(conds, body, Const(Fraction(0))) if conds else body
