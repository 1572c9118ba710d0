"""Exact arithmetic on rationals in which a value may not exist: what decides ties, zeros and divisions by 0 without any rounding.

Slow; for few points. A value that does not exist is NaN and makes all undefined that is computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.arithmetic import EXACT_FUNCTIONS, Exact
from einnet.expr.nodes import FUNCTIONS, Number

Array = NDArray[Any]
NONE = math.nan


def missing(x: Number) -> bool:
    """The value does not exist."""
    return isinstance(x, float) and math.isnan(x)


def _plus(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(a) + float(b) if not missing(a) and not missing(b) else NONE
    return a + b


def _times(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return NONE if missing(a) or missing(b) or a == 0 or b == 0 else math.copysign(math.inf, (1 if a > 0 else -1) * (1 if b > 0 else -1))
    return a * b


def _over(a: Number, b: Number) -> Number:
    if missing(a) or missing(b) or b == 0:
        return NONE
    if isinstance(b, float):
        return NONE if isinstance(a, float) else Fraction(0)
    return _times(a, 1 / Fraction(b))


def _power(x: Number, y: Number) -> Number:
    if isinstance(x, float) or isinstance(y, float) or (y.denominator != 1 and x not in (0, 1)):
        raise UsageError("a power is irrational")
    if y.denominator != 1:
        return x if y > 0 or x else NONE
    if abs(y) > 256:
        raise UsageError("a power is too large")
    return NONE if x == 0 and y < 0 else x ** int(y)


def _root(x: Number) -> Number:
    if isinstance(x, float):
        return x if x > 0 else NONE
    if x < 0:
        return NONE
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root * root != x:
        raise UsageError("a root is irrational")
    return root


def _known(name: str, at: int, value: int) -> Callable[[Number], Number]:
    """A function of which one rational value is known."""

    def apply(x: Number) -> Number:
        if x != at:
            raise UsageError(f"{name} is irrational")
        return Fraction(value)

    return apply


def _whole(f: Callable[[Number], Number]) -> Callable[[Number], Number]:
    """Infinities are whole numbers to `floor`, `ceil` and `round`."""
    return lambda x: x if isinstance(x, float) else f(x)


_SPECIAL: dict[str, Callable[..., Number]] = {
    "pow": _power, "sqrt": _root, "tanh": _known("tanh", 0, 0), "erf": _known("erf", 0, 0), "sin": _known("sin", 0, 0), "cos": _known("cos", 0, 1),
    "exp": lambda x: Fraction(0) if x == -math.inf else _known("exp", 0, 1)(x),
    "log": lambda x: NONE if x <= 0 else _known("log", 1, 0)(x),
    **{name: _whole(EXACT_FUNCTIONS[name]) for name in ("floor", "ceil", "round")},
}  # fmt: skip


def _strict(f: Callable[..., Number]) -> Callable[..., Number]:
    return lambda *args: NONE if any(map(missing, args)) else f(*args)


def _lifted(f: Callable[..., Number], count: int) -> np.ufunc:
    """The function on arrays of objects."""
    lifted: np.ufunc = np.frompyfunc(_strict(f), count, 1)
    return lifted


_PLUS, _TIMES, _OVER = _lifted(_plus, 2), _lifted(_times, 2), _lifted(_over, 2)
_CALLS: dict[str, np.ufunc] = {name: _lifted(f, FUNCTIONS[name]) for name, f in {**EXACT_FUNCTIONS, **_SPECIAL}.items()}


def folded(name: str, numbers: tuple[Fraction, ...]) -> Fraction | None:
    """The value of a function of numbers where it exists and is rational, as far as that is known."""
    if name not in _CALLS:
        return None
    try:
        found = _CALLS[name](*numbers)
    except UsageError:
        return None
    return found if isinstance(found, Fraction) else None


class Rationals(Exact):
    """`Exact`, but that a value need not exist. Functions are known where they are rational; UsageError elsewhere."""

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(_PLUS(a, b), dtype=object)

    def multiply(self, a: Array, b: Array) -> Array:
        return np.asarray(_TIMES(a, b), dtype=object)

    def divide(self, a: Array, b: Array) -> Array:
        return np.asarray(_OVER(a, b), dtype=object)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        if name not in _CALLS:
            raise UsageError(f"{name} is irrational")
        return np.asarray(_CALLS[name](*args), dtype=object)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        how: np.ufunc = {"sum": _PLUS, "max": _CALLS["max"], "min": _CALLS["min"]}[kind]
        for axis in sorted(axes, reverse=True):
            array = np.asarray(how.reduce(array, axis=axis), dtype=object)
        return array
