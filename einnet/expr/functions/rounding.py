"""By how much a function's value errs in single precision, given by how much its argument does: v and e are a value and a bound of its error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from einnet.expr.functions.record import Array

UNIT = 2.0**-24
"""The greatest relative error of one rounding in single precision."""

ERROR = 1e-6
"""The greatest relative error of a function in generated code (`instantiate.codegen.mathfunctions`), 17 units in the last place."""

LEAST = 2.0**-125
"""What an operation may lose where its result is no normal number; some vendor code takes such for 0."""

Bounded = tuple[Array, Array]
Function = Callable[[Array], Array]


def jump(function: Function) -> Callable[[Array, Array], Bounded]:
    """A step function: no error where no jump is within reach."""

    def call(v: Array, e: Array) -> Bounded:
        low, high = function(v - e), function(v + e)
        return function(v), np.where(low == high, 0.0, np.maximum(np.abs(high - low), 1.0))

    return call


def monotone(function: Function) -> Callable[[Array, Array], Bounded]:
    """A function that rises everywhere: its error is how far its value moves."""

    def call(v: Array, e: Array) -> Bounded:
        y = function(v)
        moved = np.maximum(np.abs(function(v + e) - y), np.abs(y - function(v - e)))
        return y, moved + (ERROR + UNIT) * (np.abs(y) + moved) + LEAST

    return call


def wave(function: Function) -> Callable[[Array, Array], Bounded]:
    """sin and cos, whose generated code reduces its argument in single precision."""
    return lambda v, e: (function(v), e + ERROR * (1 + np.abs(v)))


def positive(function: Function) -> Callable[[Array, Array], Bounded]:
    """A rising function of what is not negative: NaN below 0, and nothing is told where an argument may lie on either side."""
    inner = monotone(lambda x: function(np.maximum(x, 0)))

    def call(v: Array, e: Array) -> Bounded:
        y, error = inner(v, e)
        return np.where(v < 0, np.nan, y), np.where((v - e < 0) & (v + e >= 0), np.inf, error)

    return call


def extreme(function: Callable[[Array, Array], Array]) -> Callable[..., Bounded]:
    """max and min."""
    return lambda v, e, w, f: (function(v, w), np.maximum(e, f))


def compared(function: Callable[[Array, Array], Array]) -> Callable[..., Bounded]:
    """less and equal: certain where the operands are farther apart than they err."""

    def call(v: Array, e: Array, w: Array, f: Array) -> Bounded:
        near = (np.abs(v - w) <= e + f) & ((e + f) > 0)
        return function(v, w).astype(np.float64), np.where(near, 1.0, 0.0)

    return call


def power(v: Array, e: Array, w: Array, f: Array) -> Bounded:
    """v to the w, an exact integer or of a positive base: relative errors are |w| times as large, and those of w count by log v."""
    y = np.power(v, w)
    relative = np.where(np.abs(v) > e, e / np.maximum(np.abs(v) - e, LEAST), np.inf)
    size = np.abs(np.log(np.maximum(np.abs(v), LEAST)))
    by_base = np.where(e == 0, 0.0, (np.abs(w) + f) * relative)
    moved = np.expm1(np.minimum(by_base + np.where(f == 0, 0.0, f * size), 700.0))
    own = ERROR * (1 + np.abs(w) * size)
    return y, np.where((e > 0) & (np.abs(v) <= e), np.inf, np.abs(y) * (moved + own * (1 + moved)) + LEAST)


def chosen(c: Array, e: Array, x: Array, f: Array, y: Array, g: Array) -> Bounded:
    """The error of the side that is taken; where the condition is uncertain, either may be."""
    value = np.where(c != 0, x, y)
    return value, np.where(e > 0, np.abs(x - y) + np.maximum(f, g), np.where(c != 0, f, g))
