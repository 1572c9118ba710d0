"""Truth values, which are the numbers 0 and 1: comparisons, logic, what is NaN or infinite, and casts between them and numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from einnet.expr.nodes import INF, Body, Call, Const, make_mul
from einnet.graph.dtypes import HALVES
from einnet.graph.operators.builders import pointwise
from einnet.graph.operators.op import EXACT_INTEGERS, Function, Op, Result, Unsupported

ZERO = Const(Fraction(0))


def less(a: Body, b: Body) -> Body:
    return Call("less", (a, b))


def equal(a: Body, b: Body) -> Body:
    return Call("equal", (a, b))


def opposite(a: Body) -> Body:
    return Call("not", (a,))


def either(a: Body, b: Body) -> Body:
    """A value that is no number is neither below another one nor equal to it: `or`, and not what is left of `less`."""
    return Call("max", (a, b))


def comparison(build: Callable[[Body, Body], Body]) -> Function:
    """The operator that compares its broadcast operands."""

    def function(op: Op) -> Result:
        whole = [n for n in (0, 1) if op.input(n).element not in ("f32", "bool")]
        if whole and not any(op.input(n).small for n in (0, 1)):
            return Unsupported(f"integers are compared with a constant below {EXACT_INTEGERS} only")
        return pointwise(op, build, 2)

    return function


def is_infinite(op: Op) -> Result:
    """IsInf, of either sign or of one."""
    signs = [sign for sign, name in ((INF, "detect_positive"), (-INF, "detect_negative")) if op.integer(name, 1)]
    if not signs:
        return Unsupported("it detects neither infinity")
    if len(signs) == 2:
        return pointwise(op, lambda x: equal(Call("abs", (x,)), Const(INF)))
    return pointwise(op, lambda x: equal(x, Const(signs[0])))


def cast(op: Op) -> Result:
    """To float32 from integers and truth values, to a shorter float rounded, to integers from what is small; to a truth value, what is not 0.

    NaN is not 0. What is cast to float32 from a shorter float is it already.
    """
    if op.element in HALVES:
        if op.input(0).element not in ("f32", "bool") and not op.input(0).small:
            return Unsupported(f"a cast of integers to {op.element}")
        return pointwise(op, lambda x: Call(f"as_{op.element}", (x,)), 1)
    if op.element == "bool":
        return pointwise(op, lambda x: x if op.input(0).element == "bool" else opposite(equal(x, ZERO)), 1)
    if op.element != "f32" and not op.input(0).small:
        return Unsupported(f"a cast to {op.element}")
    return pointwise(op, lambda x: x, 1)


TRUTH: dict[str, Function] = {
    "Less": comparison(less),
    "Greater": comparison(lambda a, b: less(b, a)),
    "LessOrEqual": comparison(lambda a, b: either(less(a, b), equal(a, b))),
    "GreaterOrEqual": comparison(lambda a, b: either(less(b, a), equal(a, b))),
    "Equal": comparison(equal),
    "Not": lambda op: pointwise(op, opposite),
    "And": lambda op: pointwise(op, lambda a, b: make_mul((a, b))),
    "Or": lambda op: pointwise(op, either),
    "Xor": lambda op: pointwise(op, lambda a, b: opposite(equal(a, b))),
    "IsNaN": lambda op: pointwise(op, lambda x: Call("isnan", (x,))),
    "IsInf": is_infinite,
    "Cast": cast,
    "CastLike": cast,
}
