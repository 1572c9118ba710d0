"""Arithmetic and element functions with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Body, Call, Const, make_add, make_div, make_mul, negate
from einnet.graph.operators.builders import IN_ROW, constant, pointwise, subtract
from einnet.graph.operators.op import Function, Op, Result, Unsupported

_POWERS = 4


def element(build: Callable[..., Body]) -> Function:
    """The operator that applies `build` to its broadcast operands."""

    def function(op: Op) -> Result:
        if op.attributes.get("broadcast") or "axis" in op.attributes:
            return Unsupported("one-sided broadcasting of opset 6 and before")
        return pointwise(op, build)

    return function


def call(name: str) -> Function:
    """The operator that is a named scalar function."""
    return element(lambda x: Call(name, (x,)))


def folded(name: str) -> Function:
    """max or min of any number of operands."""

    def of(*xs: Body) -> Body:
        if len(xs) > IN_ROW:
            return Call(name, (of(*xs[: len(xs) // 2]), of(*xs[len(xs) // 2 :])))
        return reduce(lambda a, b: Call(name, (a, b)), xs)

    return element(of)


def power(op: Op) -> Result:
    """x**y; whole exponents up to 4 as products."""
    if op.input(1).tensor.dtype != "f32" and op.input(1).value is None:
        return Unsupported("the exponent is not a float32 tensor")
    exponent = op.input(1).scalar

    def build(x: Body, y: Body) -> Body:
        if exponent is not None:
            e = Fraction(exponent.value)
            if e == Fraction(1, 2):
                return Call("sqrt", (x,))
            if e.denominator == 1 and 1 <= e <= _POWERS:
                return make_mul([x] * int(e))
        return Call("pow", (x, y))

    return pointwise(op, build)


def sum_of(*xs: Body) -> Body:
    return make_add(xs)


def mean_of(*xs: Body) -> Body:
    return sum_of(*xs) if len(xs) == 1 else make_div(sum_of(*xs), constant(len(xs)))


def copy(op: Op) -> Result:
    """Identity, and Dropout at inference."""
    if op.given(2) and bool(op.constant(2).reshape(-1)[0]):
        return Unsupported("Dropout in training mode")
    return pointwise(op, lambda x: x, 1)


ELEMENTWISE: dict[str, Function] = {
    "Add": element(sum_of),
    "Sum": element(sum_of),
    "Mean": element(mean_of),
    "Sub": element(subtract),
    "Mul": element(lambda a, b: make_mul((a, b))),
    "Div": element(make_div),
    "Neg": element(negate),
    "Reciprocal": element(lambda x: make_div(Const(Fraction(1)), x)),
    "Pow": power,
    "Max": folded("max"),
    "Min": folded("min"),
    "Identity": copy,
    "Dropout": copy,
    **{f.onnx: call(f.name) for f in FUNCTIONS.values() if f.onnx and f.arity == 1 and not f.truth},
    "Tan": element(lambda x: make_div(Call("sin", (x,)), Call("cos", (x,)))),
}
