"""What the order of numbers decides: relu, abs, sign, max, min, and the whole numbers below, above and nearest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import whole
from einnet.expr.functions.record import ABOVE_0, EVEN, FROM_0, ODD, SYMMETRIC, Array, Exact, ScalarFunction, Span
from einnet.expr.functions.rounding import Bounded


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


def _bounded_relu(v: Array, e: Array) -> Bounded:
    return _relu(v), np.where(v + e < 0, 0.0, e)


def _sign(x: Exact) -> Exact:
    return Fraction((x > 0) - (x < 0))


def _greatest(*args: Span) -> Span:
    low = max(args, key=lambda s: (s.lo, s.lo_open))
    high = max(args, key=lambda s: (s.hi, not s.hi_open))
    return Span(low.lo, low.lo_open, high.hi, high.hi_open)


def _least(*args: Span) -> Span:
    low = min(args, key=lambda s: (s.lo, s.lo_open))
    high = min(args, key=lambda s: (s.hi, not s.hi_open))
    return Span(low.lo, low.lo_open, high.hi, high.hi_open)


RELU = ScalarFunction(
    "relu", 1, _relu, ends.both_ends(_relu), modular.by_order(lambda x: np.maximum(x, 0)), _bounded_relu, lambda x: max(x, Fraction(0)),
    span=lambda x: x if x.lo >= 0 else FROM_0, below="finite", keeps_zero=True, within=True, accurate=True, onnx="Relu",
)  # fmt: skip

ABS = ScalarFunction(
    "abs", 1, np.abs, ends.absolute, modular.by_order(np.abs), lambda v, e: (np.abs(v), e), abs,
    span=lambda x: ABOVE_0 if x.nonzero else FROM_0, keeps_zero=True, mirror=EVEN, within=True, accurate=True, library="fabs", onnx="Abs",
)  # fmt: skip

SIGN = ScalarFunction(
    "sign", 1, np.sign, ends.both_ends(np.sign), modular.by_order(np.sign), rounding.jump(np.sign), _sign,
    span=SYMMETRIC, keeps_zero=True, mirror=ODD, whole=True, accurate=True, onnx="Sign",
)  # fmt: skip

MAX = ScalarFunction(
    "max", 2, np.maximum, lambda x, y: ends.interval(np.maximum(x.real, y.real), np.maximum(x.imag, y.imag)),
    modular.by_order(np.maximum), rounding.extreme(np.maximum), max, span=_greatest, below="greatest", within=True, accurate=True, onnx="Max",
)  # fmt: skip

MIN = ScalarFunction(
    "min", 2, np.minimum, lambda x, y: ends.interval(np.minimum(x.real, y.real), np.minimum(x.imag, y.imag)),
    modular.by_order(np.minimum), rounding.extreme(np.minimum), min, span=_least, below="least", within=True, accurate=True, onnx="Min",
)  # fmt: skip

FLOOR = ScalarFunction(
    "floor", 1, np.floor, ends.both_ends(np.floor), modular.kept_where_whole("floor"), rounding.jump(np.floor), whole(math.floor),
    keeps_zero=True, nondecreasing=True, whole=True, accurate=True, library="floor", onnx="Floor",
)  # fmt: skip

CEIL = ScalarFunction(
    "ceil", 1, np.ceil, ends.both_ends(np.ceil), modular.kept_where_whole("ceil"), rounding.jump(np.ceil), whole(math.ceil),
    keeps_zero=True, nondecreasing=True, whole=True, accurate=True, library="ceil", onnx="Ceil",
)  # fmt: skip

ROUND = ScalarFunction(
    "round", 1, np.rint, ends.both_ends(np.rint), modular.kept_where_whole("round"), rounding.jump(np.rint), whole(round),
    keeps_zero=True, nondecreasing=True, mirror=ODD, whole=True, accurate=True, library="nearbyint", onnx="Round",
)  # fmt: skip
"""To the nearest whole number, half to even."""
