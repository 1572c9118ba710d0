"""Where a body may be infinite for elements of tensors that are numbers: equations of numbers that do not hold there are not used.

Infinities come from constants, from fills and from maxima of nothing; a quotient by 0 is no value at all. What is -inf times a sum is not what the
products add up to, some of which may be inf; nor is 2·x - x then x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.record import ANY
from einnet.expr.index import Range
from einnet.expr.nodes import Add, Body, Call, Const, Div, Mul, Read, Scope, Select, children
from einnet.expr.normal.terms import Term, with_plain_fills
from einnet.expr.normal.totals import FINITE, state

NEITHER, LOW, HIGH, BOTH = 0, 1, 2, 3
"""Never infinite; perhaps -inf; perhaps inf; perhaps either."""


def unbounded(term: Term, ranges: Mapping[str, Range]) -> bool:
    """Some factor of the term may be infinite."""
    return any(infinities(f) and infinities(with_plain_fills(f, ranges)) for f in term.factors)


def infinities(body: Body) -> int:
    """Which infinities the body may be."""
    match body:
        case Const(v):
            return NEITHER if not isinstance(v, float) else LOW if v < 0 else HIGH
        case Read(base, _, fill):
            found = (_of_scope(base) if isinstance(base, Scope) else NEITHER) | infinities(Const(fill))
        case Add() | Select():
            found = _any_of(children(body))
        case Mul(args):
            found = BOTH if _any_of(args) else NEITHER
        case Div(num, _):
            found = BOTH if infinities(num) else NEITHER
        case Call(name, args):
            found = _of_call(name, args)
        case _:
            return NEITHER
    return found if found and state(body) != FINITE else NEITHER


def _any_of(bodies: Iterable[Body]) -> int:
    found = NEITHER
    for b in bodies:
        found |= infinities(b)
    return found


def _of_call(name: str, args: tuple[Body, ...]) -> int:
    """What keeps the order of numbers keeps the infinities, as far as its values reach."""
    function, given = FUNCTIONS[name], _any_of(args)
    if not given:
        return NEITHER
    values = function.range(*(ANY,) * function.arity)
    reached = (LOW if values.lo == ANY.lo else NEITHER) | (HIGH if values.hi == ANY.hi else NEITHER)
    return reached & (given if keeps_infinities(name) else BOTH)


def keeps_infinities(name: str) -> bool:
    """The function has a value at infinite arguments, and none but those of the arguments is infinite there."""
    function = FUNCTIONS[name]
    return function.nondecreasing or function.below != "none"


@lru_cache(maxsize=1 << 12)
def _of_scope(scope: Scope) -> int:
    if scope.reduce != "sum" and any(i.extent == 0 for i in scope.sums):
        return LOW if scope.reduce == "max" else HIGH
    return infinities(scope.body)
