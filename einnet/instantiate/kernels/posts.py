"""What a vendor kernel can apply to each element of its result: one record a kind, from which matching, lifting and backends take its meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import pi, sqrt

from einnet.expr.nodes import Body, Call, Const, make_add, make_div, make_mul

ZERO, HALF, ONE = Const(Fraction(0)), Const(Fraction(1, 2)), Const(Fraction(1))
NEAR = 1e-6
"""How far a number of a model may be, relative, from that which a vendor has for it: a rounding of the same decimal in float32."""


@dataclass(frozen=True, slots=True)
class PostKind:
    """`meaning(y, alpha, beta)` is the expression; a vendor that has a number of its own for a parameter has it in `fixed`."""

    meaning: Callable[[Body, Const, Const], Body]
    parameters: int = 0
    fixed: tuple[float, ...] = ()

    def takes(self, *values: Const) -> bool:
        """The vendor computes with these parameters, or with its own that are these but for rounding."""
        return all(abs(float(v.value) - own) <= NEAR * own for v, own in zip(values, self.fixed))


def _relu(y: Body, alpha: Const, _: Const) -> Body:
    above = Call("relu", (y,))
    return above if alpha == ZERO else make_add((above, make_mul((alpha, Call("min", (y, ZERO))))))


def _clip(y: Body, low: Const, high: Const) -> Body:
    raised = y if isinstance(low.value, float) else Call("max", (y, low))
    return raised if isinstance(high.value, float) else Call("min", (raised, high))


def _linear(y: Body, scale: Const, shift: Const) -> Body:
    scaled = y if scale == ONE else make_mul((y, scale))
    return scaled if shift == ZERO else make_add((scaled, shift))


def _swish(y: Body, alpha: Const, _: Const) -> Body:
    return make_mul((y, Call("sigmoid", (y if alpha == ONE else make_mul((alpha, y)),))))


def _hardswish(y: Body, alpha: Const, beta: Const) -> Body:
    return make_mul((y, _clip(_linear(y, alpha, beta), ZERO, ONE)))


def _elu(y: Body, alpha: Const, _: Const) -> Body:
    below = make_add((Call("exp", (Call("min", (y, ZERO)),)), Const(Fraction(-1))))
    return make_add((Call("relu", (y,)), make_mul((alpha, below))))


def _gelu(y: Body, alpha: Const, _: Const) -> Body:
    return make_mul((HALF, y, make_add((ONE, Call("erf", (make_mul((alpha, y)),))))))


def _gelu_divided(y: Body, alpha: Const, _: Const) -> Body:
    return make_mul((HALF, y, make_add((ONE, Call("erf", (make_div(y, alpha),))))))


def _gelu_tanh(y: Body, alpha: Const, beta: Const) -> Body:
    cubic = make_add((y, make_mul((beta, y, y, y))))
    return make_mul((HALF, y, make_add((ONE, Call("tanh", (make_mul((alpha, cubic)),))))))


ELEMENTWISE: dict[str, PostKind] = {
    "relu": PostKind(_relu, 1),
    "tanh": PostKind(lambda y, a, b: Call("tanh", (y,))),
    "sigmoid": PostKind(lambda y, a, b: Call("sigmoid", (y,))),
    "clip": PostKind(_clip, 2),
    "linear": PostKind(_linear, 2),
    "swish": PostKind(_swish, 1),
    "hardswish": PostKind(_hardswish, 2),
    "elu": PostKind(_elu, 1),
    "mish": PostKind(lambda y, a, b: make_mul((y, Call("tanh", (Call("softplus", (y,)),))))),
    "gelu": PostKind(_gelu, 1, (1 / sqrt(2),)),
    "gelu_divided": PostKind(_gelu_divided, 1, (sqrt(2),)),
    "gelu_tanh": PostKind(_gelu_tanh, 2, (sqrt(2 / pi), 0.044715)),
}
"""Kinds without an operand by name, with what they mean of a result y and two parameters."""


def _quantised(y: Body, scale: Const, zero: Const) -> Body:
    steps = Call("round", (y if scale == ONE else make_div(y, scale),))
    return _clip(steps if zero == ZERO else make_add((steps, zero)), ZERO, Const(Fraction(255)))


U8, U8_IN_F32 = "u8", "u8_in_f32"
QUANTISED: dict[str, PostKind] = {kind: PostKind(_quantised, 2) for kind in (U8, U8_IN_F32)}
"""Rounding to integers from 0 to 255, by a scale and a zero point, which are stored as bytes or as floats: the last operation on a sum of bytes."""

WITHOUT_OPERAND = {**ELEMENTWISE, **QUANTISED}
"""All kinds without an operand."""
