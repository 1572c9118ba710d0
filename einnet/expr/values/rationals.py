"""Exact arithmetic on rationals in which a value may not exist: what decides ties, zeros and divisions by 0 without any rounding.

Slow; for few points. A value that does not exist is NaN and makes all undefined that is computed from it (`einnet.expr.functions.exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.exact import NONE, PLUS_ZERO, absent, missing, over, plus, times
from einnet.expr.functions.record import ScalarFunction
from einnet.expr.nodes import Number
from einnet.expr.values.arithmetic import Exact

Array = NDArray[Any]


def _strict(function: ScalarFunction) -> Callable[..., Number]:
    """The function where all arguments exist; a truth value of one that does not is unknown, and so is the sign of a zero that is computed."""
    assert function.rational is not None
    if not function.strict:
        return function.rational
    rational = function.rational

    def apply(*args: Number) -> Number:
        if any(map(missing, args)):
            return NONE if function.truth else absent(function.machine, *args)
        found = rational(*args)
        return Fraction(0) if found is PLUS_ZERO else found

    return apply


def _lifted(f: Callable[..., Number], count: int) -> np.ufunc:
    """The function on arrays of objects."""
    lifted: np.ufunc = np.frompyfunc(f, count, 1)
    return lifted


_PLUS, _TIMES, _OVER = _lifted(plus, 2), _lifted(times, 2), _lifted(over, 2)
_CALLS: dict[str, np.ufunc] = {name: _lifted(_strict(f), f.arity) for name, f in FUNCTIONS.items() if f.rational is not None}


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
