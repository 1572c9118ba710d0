"""What the normal form knows of truth values: which bodies are 0 or 1 everywhere, which of them are known, and a choice as a sum.

choose(c, x, y) = c·x + (1 - c)·y where all of it are numbers for all elements of tensors. What need not exist stays: what is not chosen is
no term.
"""

from __future__ import annotations

from fractions import Fraction

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Add, Body, Call, Const, Mul, Read, Scope, Tensor, make_add, make_mul
from einnet.expr.normal.totals import BROKEN, span, state, total

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


def is_truth(body: Body) -> bool:
    """The body is 0 or 1 wherever it has a value."""
    match body:
        case Const(v):
            return v in (0, 1)
        case Mul(args) | Call(("max" | "min"), args) | Call("choose", (_, *args)):
            return all(map(is_truth, args))
        case Add((a, b)):
            return any(one == ONE and isinstance(c, Mul) and c.args[0] == Const(Fraction(-1)) and is_truth(_rest(c)) for one, c in ((a, b), (b, a)))
        case Call(name, _):
            return FUNCTIONS[name].truth
        case Read(Tensor() as base, _, fill):
            return base.dtype == "bool" and fill in (0, 1)
        case Read(Scope() as base, _, fill):
            return fill in (0, 1) and is_truth(base.body) and (base.reduce != "sum" or not base.sums)
    return False


def _rest(product: Mul) -> Body:
    """The product without its first factor."""
    return make_mul(product.args[1:])


def known(name: str, args: tuple[Body, ...]) -> Body | None:
    """A value that follows from what is known of the arguments: numbers are not NaN, a known condition chooses; not c = 1 - c."""
    if name == "isnan":
        return ZERO if state(args[0]) != BROKEN else None
    if name == "not":
        return make_add((ONE, make_mul((Const(Fraction(-1)), args[0])))) if is_truth(args[0]) and total(args[0]) else None
    if name != "choose":
        return None
    condition, then, other = args
    if then == other and total(condition):
        return then
    found = span(condition)
    if not total(condition):
        return None
    return other if found.point == 0 else then if found.nonzero else None


def as_sum(condition: Body, then: Body, other: Body) -> Body | None:
    """A choice between numbers by a truth value as a sum of products; None where one of them need not be a number."""
    if not all(map(total, (condition, then, other))):
        return None
    where = condition if is_truth(condition) else make_add((ONE, make_mul((Const(Fraction(-1)), Call("not", (condition,))))))
    return make_add((make_mul((where, then)), other, make_mul((Const(Fraction(-1)), where, other))))
