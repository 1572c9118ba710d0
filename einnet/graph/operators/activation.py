"""Activations as compositions of the language's element functions."""

from __future__ import annotations

from fractions import Fraction
from math import pi, sqrt

from einnet.expr.index import ZERO
from einnet.expr.nodes import Body, Call, Const, make_add, make_div, make_mul
from einnet.graph.operators.builders import constant, pointwise, scaled, subtract
from einnet.graph.operators.op import Function, Op, Result, Unsupported, number

ONE = constant(1)


def relu(x: Body) -> Body:
    return Call("relu", (x,))


def negative_part(x: Body) -> Body:
    """min(x, 0)."""
    return Call("min", (x, constant(0)))


def leaky(x: Body, slope: Body) -> Body:
    """x above 0, slope·x below."""
    return make_add((relu(x), make_mul((slope, negative_part(x)))))


def clipped(x: Body, low: Body | None, high: Body | None) -> Body:
    if low is not None:
        x = Call("max", (x, low))
    return x if high is None else Call("min", (x, high))


def leaky_relu(op: Op) -> Result:
    slope = Const(op.real("alpha", 0.01))
    return pointwise(op, lambda x: leaky(x, slope))


def clip(op: Op) -> Result:
    """min(max(x, low), high); the bounds are attributes before opset 11, scalar inputs from then on."""
    low: Body | None = None
    high: Body | None = None
    if op.version < 11:
        for name in ("min", "max"):
            value = op.attributes.get(name)
            if isinstance(value, float) and abs(value) < 3.4e38:
                bound = Const(number(value))
                low, high = (bound, high) if name == "min" else (low, bound)
    else:
        low, high = (op.read(n, (ZERO,) * len(op.input(n).shape)) if op.given(n) else None for n in (1, 2))
    return pointwise(op, lambda x: clipped(x, low, high), 1)


def exponential(x: Body, alpha: Fraction, inner: Fraction) -> Body:
    """x above 0, alpha·(exp(x·inner) - 1) below."""
    below = subtract(Call("exp", (scaled(negative_part(x), inner),)), ONE)
    return make_add((relu(x), scaled(below, alpha)))


def elu(op: Op) -> Result:
    alpha = op.real("alpha", 1.0)
    return pointwise(op, lambda x: exponential(x, alpha, Fraction(1)))


def selu(op: Op) -> Result:
    alpha, gamma = op.real("alpha", 1.67326319217681884765625), op.real("gamma", 1.05070102214813232421875)
    return pointwise(op, lambda x: scaled(exponential(x, alpha, Fraction(1)), gamma))


def celu(op: Op) -> Result:
    alpha = op.real("alpha", 1.0)
    if alpha <= 0:
        return Unsupported("Celu with alpha <= 0")
    return pointwise(op, lambda x: exponential(x, alpha, 1 / alpha))


def hard_sigmoid_of(x: Body, alpha: Fraction, beta: Fraction) -> Body:
    return clipped(make_add((scaled(x, alpha), Const(beta))), constant(0), ONE)


def hard_sigmoid(op: Op) -> Result:
    alpha, beta = op.real("alpha", 0.2), op.real("beta", 0.5)
    return pointwise(op, lambda x: hard_sigmoid_of(x, alpha, beta))


def hard_swish(op: Op) -> Result:
    return pointwise(op, lambda x: make_mul((x, hard_sigmoid_of(x, Fraction(1, 6), Fraction(1, 2)))))


def gelu(op: Op) -> Result:
    """x/2·(1 + erf(x/√2)), or the tanh form."""
    mode = op.string("approximate", "none")

    def build(x: Body) -> Body:
        if mode == "none":
            bell = Call("erf", (scaled(x, Fraction(str(1 / sqrt(2)))),))
        else:
            cubic = make_add((x, scaled(make_mul((x, x, x)), Fraction("0.044715"))))
            bell = Call("tanh", (scaled(cubic, Fraction(str(sqrt(2 / pi)))),))
        return make_mul((constant(Fraction(1, 2)), x, make_add((ONE, bell))))

    return pointwise(op, build) if mode in ("none", "tanh") else Unsupported(f"approximate={mode!r}")


def swish(op: Op) -> Result:
    alpha = op.real("alpha", 1.0)
    return pointwise(op, lambda x: make_mul((x, Call("sigmoid", (scaled(x, alpha),)))))


def thresholded_relu(op: Op) -> Result:
    """x above alpha, 0 below: the factor is finite where it is multiplied by 0, also for an infinite x."""
    alpha = Const(op.real("alpha", 1.0))
    return pointwise(op, lambda x: make_mul((Call("max", (x, alpha)), Call("less", (alpha, x)))))


ACTIVATIONS: dict[str, Function] = {
    "Softsign": lambda op: pointwise(op, lambda x: make_div(x, make_add((ONE, Call("abs", (x,)))))),
    "Mish": lambda op: pointwise(op, lambda x: make_mul((x, Call("tanh", (Call("softplus", (x,)),))))),
    "PRelu": lambda op: pointwise(op, leaky),
    "LeakyRelu": leaky_relu,
    "Clip": clip,
    "Elu": elu,
    "Selu": selu,
    "Celu": celu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Gelu": gelu,
    "Swish": swish,
    "ThresholdedRelu": thresholded_relu,
}
