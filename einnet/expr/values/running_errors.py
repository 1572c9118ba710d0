"""Running errors: a value and a bound of what single precision makes it err by, element by element, before any code has run.

A value v and a bound e of its absolute error travel together as the complex number v + e·i, or as v alone where it has no error. A sum of n terms,
added in any order, errs by n roundings of the sum of the absolute values of its terms at most; a product, quotient or element function hands on
what its operands err by, and adds its own. The bound holds for every order of additions and with fused multiply-adds; what generated code takes for
exp, tanh, erf and the like errs as their records say (`einnet.expr.functions.rounding`).
"""

from __future__ import annotations

import math

import numpy as np

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.rounding import LEAST, UNIT
from einnet.expr.nodes import Number
from einnet.expr.values.arithmetic import Array, Machine, contracted, uncontracted


def pair(value: Array, error: Array | float) -> Array:
    """v + e·i; v where there is no error."""
    v = np.asarray(value, np.float64)
    if np.ndim(error) == 0 and error == 0:
        return v
    found = np.empty(np.broadcast_shapes(v.shape, np.shape(error)), np.complex128)
    found.real, found.imag = v, error
    return found


def parts(pair: Array) -> tuple[Array, Array]:
    """Values and errors."""
    return (pair.real, pair.imag) if pair.dtype.kind == "c" else (pair, NONE)


NONE: Array = np.zeros(())
"""No error."""

WHOLE = 1 << 20
"""Whole numbers up to here are added and multiplied without an error, a dozen of them in any order."""


def whole(*arrays: Array) -> bool:
    """All are such whole numbers, without errors."""
    first = all(x.dtype.kind != "c" and x.size and float(x.flat[0]).is_integer() for x in arrays)
    return first and all(bool(((x == np.rint(x)) & (np.abs(x) <= WHOLE)).all()) for x in arrays)


def rounded(value: Array, error: Array, relative: float = UNIT) -> Array:
    """A result with what computing it adds to its error."""
    return pair(value, error + relative * (np.abs(value) + error) + LEAST)


class Running(Machine):
    """Values with bounds of their errors in single precision; see the module's docstring."""

    def __init__(self) -> None:
        super().__init__("complex128")

    def roundings(self, count: int) -> int:
        """How often a sum of so many terms rounds, at most."""
        return count

    def number(self, value: Number) -> Array:
        x = float(value)
        return pair(np.asarray(x), 0.0 if math.isinf(x) or float(np.float32(x)) == x else UNIT * abs(x))

    def values(self, array: Array) -> Array:
        return array if array.dtype == self.dtype else pair(array, 0.0)

    def integers(self, array: Array, den: int) -> Array:
        value = np.asarray(array / den)
        return value if whole(value) else pair(value, UNIT * np.abs(value))

    def places(self, array: Array) -> Array | None:
        """See `points.Places`: what lies within an error of less than a half of a value is the number nearest to it."""
        value, error = parts(array)
        return np.nan_to_num(np.rint(value)).astype(np.int64) if bool((error < 0.5).all()) else None

    def add(self, a: Array, b: Array) -> Array:
        if whole(a, b):
            return np.asarray(a + b)
        (v, e), (w, f) = parts(a), parts(b)
        return rounded(v + w, e + f)

    def multiply(self, a: Array, b: Array) -> Array:
        if whole(a, b) and whole(product := np.asarray(a * b)):
            return product
        return self.product(a, b)

    def product(self, a: Array, b: Array) -> Array:
        """A product that rounds."""
        (v, e), (w, f) = parts(a), parts(b)
        return rounded(v * w, _times(np.abs(v), f) + _times(np.abs(w), e) + _times(e, f))

    def divide(self, a: Array, b: Array) -> Array:
        (v, e), (w, f) = parts(a), parts(b)
        q, room = v / w, np.abs(w) - f
        return rounded(q, np.where(room > 0, (e + _times(np.abs(q), f)) / np.where(room > 0, room, 1.0), np.inf), 2 * UNIT)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        value, error = FUNCTIONS[name].bounded(*(part for a in args for part in parts(a)))
        return pair(value, error) if np.any(error) else np.asarray(value, np.float64)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        v, e = parts(array)
        if kind != "sum":
            function = np.max if kind == "max" else np.min
            return pair(np.asarray(function(v, axis=axes)), np.asarray(np.max(e, axis=axes)) if e.ndim else e)
        count = self.roundings(math.prod(array.shape[a] for a in axes))
        errors = np.sum(e, axis=axes) if e.ndim else e
        size = np.sum(np.abs(v), axis=axes) + errors
        return pair(np.asarray(np.sum(v, axis=axes)), np.asarray(errors + count * (UNIT * size + LEAST)))

    def accumulate(self, kind: str, array: Array) -> Array:
        """What `reduce` says of the first one, two, three along the first axis, each by as many roundings as all of them: whoever adds them one after
        the other rounds so often."""
        v, e = parts(array)
        if kind != "sum":
            function = np.maximum if kind == "max" else np.minimum
            return pair(function.accumulate(v), np.maximum.accumulate(e) if e.ndim else e)
        errors = np.cumsum(e, axis=0) if e.ndim else e
        size = np.cumsum(np.abs(v), axis=0) + errors
        return pair(np.cumsum(v, axis=0), errors + self.roundings(len(array)) * (UNIT * size + LEAST))

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        """A sum of products by contractions of values and of errors, where all of these are numbers; it errs as `product` and `reduce` say."""
        if len(factors) != 2 or not all(bool(np.isfinite(f).all()) for f in factors):
            return uncontracted(self, factors, rank, shape)
        (v, e), (w, f) = map(parts, factors)

        def total(a: Array, b: Array) -> Array:
            return contracted([a, b], rank, shape) if a.ndim and b.ndim else NONE

        e, f = (x if x.any() else NONE for x in (e, f))
        value, size = total(v, w), total(np.abs(v), np.abs(w))
        error = total(np.abs(v), f) + total(e, np.abs(w)) + total(e, f)
        varied = [n for axis, n in enumerate(shape) if axis >= rank and any(x.shape[axis] > 1 for x in factors)]
        error = error + UNIT * (size + error) + math.prod(varied) * LEAST
        return pair(value, error + self.roundings(math.prod(varied)) * (UNIT * (size + error) + LEAST))


def _times(a: Array, b: Array) -> Array:
    """A product in which 0 times infinity is 0: an error that there is not is not enlarged."""
    if b is NONE or a is NONE:
        return NONE
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.asarray(a * b)
        return found if np.isfinite(found.sum()) else np.where((a == 0) | (b == 0), 0.0, found)
