"""Truth values, 0 and 1: comparisons, negation, what is NaN; and the choice between two values."""

from __future__ import annotations

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import NONE, is_nan, missing, truth
from einnet.expr.functions.record import UNIT, Array, Exact, ScalarFunction, Span, hull


def _taken(c: Array, x: Array, y: Array) -> Array:
    found: Array = np.where(c != 0, x, y)
    return found


def _never(x: Array) -> Array:
    return np.zeros(np.shape(x))


def _maybe_nan(x: ends.Intervals) -> ends.Intervals:
    """A value that does not exist may be infinite; one that exists is not NaN."""
    return ends.interval(np.zeros(np.shape(x)), np.isnan(x.real).astype(np.float64))


def _one_of(c: ends.Intervals, x: ends.Intervals, y: ends.Intervals) -> ends.Intervals:
    """One of two enclosures, the hull of both where the condition is open."""
    c, x, y = np.broadcast_arrays(c, x, y)
    taken, left = (c.real > 0) | (c.imag < 0), (c.real == 0) & (c.imag == 0)
    either = ends.interval(np.minimum(x.real, y.real), np.maximum(x.imag, y.imag))
    told = np.where(np.isnan(x.real) | np.isnan(y.real), ends.MAYBE, either)
    known = np.where(taken, x, np.where(left, y, told))
    return np.where(np.isnan(c.real), np.where(np.isnan(c.imag), ends.UNDEFINED, ends.MAYBE), known)


def _choice(c: Exact, x: Exact, y: Exact) -> Exact:
    return NONE if missing(c) else x if c != 0 else y


def _choice_span(c: Span, x: Span, y: Span) -> Span:
    if c.point == 0:
        return y
    return x if c.nonzero else hull(x, y)


LESS = ScalarFunction(
    "less", 2, np.less, ends.less, modular.by_order(np.less), rounding.compared(np.less), truth(lambda x, y: x < y),
    span=UNIT, below="finite", truth=True, whole=True, accurate=True, onnx="Less",
)  # fmt: skip

EQUAL = ScalarFunction(
    "equal", 2, np.equal, ends.equal, modular.by_order(np.equal), rounding.compared(np.equal), truth(lambda x, y: x == y),
    span=UNIT, below="finite", truth=True, whole=True, accurate=True, onnx="Equal",
)  # fmt: skip

NOT = ScalarFunction(
    "not", 1, lambda x: x == 0, lambda x: ends.equal(x, np.zeros(x.shape, dtype=np.complex128)), modular.by_order(lambda x: x == 0),
    lambda v, e: rounding.compared(np.equal)(v, e, np.zeros(np.shape(v)), np.zeros(np.shape(v))),
    truth(lambda x: x == 0), span=UNIT, below="finite", truth=True, whole=True, accurate=True,
)  # fmt: skip
"""1 for 0, and 0 for any other number."""

ISNAN = ScalarFunction(
    "isnan", 1, np.isnan, _maybe_nan, modular.by_order(_never), lambda v, e: (np.isnan(v).astype(np.float64), np.zeros(np.shape(v))), is_nan,
    span=UNIT, below="finite", truth=True, whole=True, accurate=True, strict=False, onnx="IsNaN",
)  # fmt: skip
"""1 for NaN, 0 for numbers and infinities. It is the only function of the language that tells of a value whether it exists."""

CHOOSE = ScalarFunction(
    "choose", 3, _taken, _one_of, _taken, rounding.chosen, _choice,
    span=_choice_span, below="chosen", within=True, accurate=True, strict=False,
)  # fmt: skip
"""choose(c, x, y) is x where the truth value c is 1, and y where it is 0: no product, what is not taken may be NaN."""
