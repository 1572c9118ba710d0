"""How far single precision may be from an expression's exact value: a running error analysis, element by element, before any code has run.

A value v and a bound e of its absolute error travel together as the complex number v + e·i. A sum of n terms, added in any order, errs by n
roundings of the sum of the absolute values of its terms at most; a product, quotient or element function hands on what its operands err by, and adds
its own. The bound holds for every order of additions and with fused multiply-adds; what generated code takes for exp, tanh, erf and the like
errs by `FUNCTIONS` relative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.expr.arithmetic import Array, Machine
from einnet.expr.nodes import Number

UNIT = 2.0**-24
"""The greatest relative error of one rounding in single precision."""

FUNCTIONS = 1e-6
"""The greatest relative error of an element function in generated code (`instantiate.codegen.mathfunctions`), 17 units in the last place."""

LEAST = 2.0**-125
"""What an operation may lose where its result is no normal number; some vendor code takes such for 0."""


def pair(value: Array, error: Array | float) -> Array:
    """v + e·i."""
    v = np.asarray(value, np.float64)
    found = np.empty(np.broadcast_shapes(v.shape, np.shape(error)), np.complex128)
    found.real, found.imag = v, error
    return found


def rounded(value: Array, error: Array, relative: float = UNIT) -> Array:
    """A result with what computing it adds to its error."""
    return pair(value, error + relative * (np.abs(value) + error) + LEAST)


def _relu(v: Array, e: Array) -> tuple[Array, Array]:
    return np.maximum(v, 0), np.where(v + e < 0, 0.0, e)


def _jump(function: Callable[[Array], Array], most: float) -> Callable[[Array, Array], tuple[Array, Array]]:
    """A step function: no error where no jump is within reach."""

    def call(v: Array, e: Array) -> tuple[Array, Array]:
        low, high = function(v - e), function(v + e)
        return function(v), np.where(low == high, 0.0, np.maximum(np.abs(high - low), most))

    return call


def _monotone(function: Callable[[Array], Array]) -> Callable[[Array, Array], tuple[Array, Array]]:
    """A function that rises everywhere: its error is how far its value moves."""

    def call(v: Array, e: Array) -> tuple[Array, Array]:
        y = function(v)
        moved = np.maximum(np.abs(function(v + e) - y), np.abs(y - function(v - e)))
        return y, moved + (FUNCTIONS + UNIT) * (np.abs(y) + moved) + LEAST

    return call


def _wave(function: Callable[[Array], Array]) -> Callable[[Array, Array], tuple[Array, Array]]:
    """sin and cos, whose generated code reduces its argument in single precision."""
    return lambda v, e: (function(v), e + FUNCTIONS * (1 + np.abs(v)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


def _positive(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(np.maximum(x, 0))


_ONE: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "relu": _relu, "abs": lambda v, e: (np.abs(v), e), "exp": _monotone(np.exp), "tanh": _monotone(np.tanh), "sigmoid": _monotone(_sigmoid),
    "erf": _monotone(_erf), "softplus": _monotone(lambda x: np.logaddexp(0, x)), "log": _monotone(_positive(np.log)),
    "sqrt": _monotone(_positive(np.sqrt)), "sin": _wave(np.sin), "cos": _wave(np.cos), "sign": _jump(np.sign, 1.0), "floor": _jump(np.floor, 1.0),
    "ceil": _jump(np.ceil, 1.0), "round": _jump(np.rint, 1.0), "not": _jump(lambda x: (x == 0).astype(np.float64), 1.0),
}  # fmt: skip


class Bounded(Machine):
    """Values with bounds of their errors in single precision; see the module's docstring."""

    contracts = False

    def __init__(self) -> None:
        super().__init__("complex128")

    def number(self, value: Number) -> Array:
        x = float(value)
        return pair(np.asarray(x), 0.0 if math.isinf(x) or float(np.float32(x)) == x else UNIT * abs(x))

    def values(self, array: Array) -> Array:
        return array if array.dtype == self.dtype else pair(array, 0.0)

    def integers(self, array: Array, den: int) -> Array:
        return pair(array / den, UNIT * np.abs(array / den))

    def add(self, a: Array, b: Array) -> Array:
        return rounded(a.real + b.real, a.imag + b.imag)

    def multiply(self, a: Array, b: Array) -> Array:
        x, y = np.abs(a.real), np.abs(b.real)
        return rounded(a.real * b.real, _times(x, b.imag) + _times(y, a.imag) + _times(a.imag, b.imag))

    def divide(self, a: Array, b: Array) -> Array:
        v, room = a.real / b.real, np.abs(b.real) - b.imag
        return rounded(v, np.where(room > 0, (a.imag + _times(np.abs(v), b.imag)) / np.where(room > 0, room, 1.0), np.inf), 2 * UNIT)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        if len(args) == 1:
            return pair(*_ONE[name](args[0].real, args[0].imag))
        a, b = args
        if name in ("max", "min"):
            function: Any = np.maximum if name == "max" else np.minimum
            return pair(function(a.real, b.real), np.maximum(a.imag, b.imag))
        if name in ("less", "equal"):
            y = (a.real < b.real if name == "less" else a.real == b.real).astype(np.float64)
            near = np.abs(a.real - b.real) <= a.imag + b.imag
            return pair(y, np.where(near & ((a.imag + b.imag) > 0), 1.0, 0.0))
        if name == "pow":
            return _power(a, b)
        raise UsageError(f"{name} has no bound of its error")

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        if kind != "sum":
            function = np.max if kind == "max" else np.min
            return pair(np.asarray(function(array.real, axis=axes)), np.asarray(np.max(array.imag, axis=axes)))
        count = math.prod(array.shape[a] for a in axes)
        size = np.sum(np.abs(array.real) + array.imag, axis=axes)
        return pair(np.asarray(np.sum(array.real, axis=axes)), np.asarray(np.sum(array.imag, axis=axes) + count * (UNIT * size + LEAST)))


def _times(a: Array, b: Array) -> Array:
    """A product in which 0 times infinity is 0: an error that there is not is not enlarged."""
    with np.errstate(invalid="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b)


def _power(a: Array, b: Array) -> Array:
    """a to the b, an exact integer or of a positive base: relative errors are |b| times as large, and those of b count by log a."""
    v = np.power(a.real, b.real)
    relative = np.where(np.abs(a.real) > a.imag, a.imag / np.maximum(np.abs(a.real) - a.imag, LEAST), np.inf)
    grown = np.where(a.imag == 0, 0.0, np.expm1(np.minimum(np.abs(b.real) * relative, 700.0)))
    turned = np.where(b.imag == 0, 0.0, b.imag * np.abs(np.log(np.maximum(np.abs(a.real), LEAST))))
    own = FUNCTIONS * (1 + np.abs(b.real) * np.abs(np.log(np.maximum(np.abs(a.real), LEAST))))
    return pair(v, np.abs(v) * (grown + turned + own) + LEAST)
