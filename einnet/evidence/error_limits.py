"""How far single precision may be from an expression's exact value: a running error analysis, element by element, before any code has run.

A value v and a bound e of its absolute error travel together as the complex number v + e·i, or as v alone where it has no error. A sum of n terms,
added in any order, errs by n roundings of the sum of the absolute values of its terms at most; a product, quotient or element function hands on
what its operands err by, and adds its own. The bound holds for every order of additions and with fused multiply-adds; what generated code takes for
exp, tanh, erf and the like errs as their records say (`einnet.expr.functions.rounding`).

Where factors are first rounded to numbers of another arithmetic (`instantiate.kernels.arithmetics`), each errs by that, too: relative to itself, or
by the least normal number, below which some processors have zero alone. Of a factor beyond the arithmetic's largest number nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.rounding import LEAST, UNIT
from einnet.expr.nodes import Number, Scope, Tensor
from einnet.expr.values.arithmetic import Array, Machine
from einnet.expr.values.points import effort, values_at
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic


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


class Bounded(Machine):
    """Values with bounds of their errors in single precision; see the module's docstring."""

    contracts = False

    def __init__(self, cut_off: float = 0.0, arithmetic: Arithmetic = F32) -> None:
        """`cut_off`: by how much costly functions may err beside what they do in generated code, as they do in engines that stop at their limits.

        `arithmetic` is that of factors.
        """
        super().__init__("complex128")
        self.cut_off, self.arithmetic = cut_off, arithmetic

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

    def factor(self, a: Array) -> Array:
        """A factor as the arithmetic has it."""
        if not self.arithmetic.rounds:
            return a
        v, e = parts(a)
        reach = np.abs(v) + e
        beyond = reach * (1 + self.arithmetic.roundoff) > self.arithmetic.largest
        return pair(v, np.where(beyond, np.inf, e + self.arithmetic.roundoff * reach + np.where(reach > 0, self.arithmetic.least, 0.0)))

    def multiply(self, a: Array, b: Array) -> Array:
        if not self.arithmetic.rounds and whole(a, b) and whole(product := np.asarray(a * b)):
            return product
        (v, e), (w, f) = parts(self.factor(a)), parts(self.factor(b))
        return rounded(v * w, _times(np.abs(v), f) + _times(np.abs(w), e) + _times(e, f))

    def divide(self, a: Array, b: Array) -> Array:
        (v, e), (w, f) = parts(a), parts(b)
        q, room = v / w, np.abs(w) - f
        return rounded(q, np.where(room > 0, (e + _times(np.abs(q), f)) / np.where(room > 0, room, 1.0), np.inf), 2 * UNIT)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        value, error = FUNCTIONS[name].bounded(*(part for a in args for part in parts(a)))
        if FUNCTIONS[name].costly:
            return pair(value, error + self.cut_off)
        return pair(value, error) if np.any(error) else np.asarray(value, np.float64)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        v, e = parts(array)
        if kind != "sum":
            function = np.max if kind == "max" else np.min
            return pair(np.asarray(function(v, axis=axes)), np.asarray(np.max(e, axis=axes)) if e.ndim else e)
        count = math.prod(array.shape[a] for a in axes)
        errors = np.sum(e, axis=axes) if e.ndim else e
        size = np.sum(np.abs(v), axis=axes) + errors
        return pair(np.asarray(np.sum(v, axis=axes)), np.asarray(errors + count * (UNIT * size + LEAST)))


def _times(a: Array, b: Array) -> Array:
    """A product in which 0 times infinity is 0: an error that there is not is not enlarged."""
    if b is NONE or a is NONE:
        return NONE
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.asarray(a * b)
        return found if np.isfinite(found.sum()) else np.where((a == 0) | (b == 0), 0.0, found)


def narrowed(x: Array) -> Array | float:
    """By how much numbers move that float32 has not, where they are read."""
    single = x.astype(np.float32)
    if np.array_equal(single, x, equal_nan=True):
        return 0.0
    return np.where(single == x, 0.0, np.nan_to_num(np.abs(single - x), nan=np.inf, posinf=np.inf))


FEWEST = 4


def some_points(scope: Scope, budget: int, most: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Points of the scope's box, all of them or so many that evaluating costs about the budget, spread evenly from a random start."""
    size = math.prod(scope.shape)
    count = min(size, most)
    while count > FEWEST and effort(scope, count) > budget:
        count //= 2
    start = int(np.random.default_rng(seed).integers(max(size // max(count, 1), 1))) if size else 0
    flat = (start + np.arange(count) * (size / max(count, 1)).__floor__()) if count < size else np.arange(size)
    columns = np.unravel_index(np.unique(flat), scope.shape) if scope.shape else ()
    rank = len(scope.shape)
    return np.stack([c + lo for c, (lo, _) in zip(columns, scope.box)], axis=1) if rank else np.zeros((min(size, 1), 0), np.int64)


Points = np.ndarray[Any, np.dtype[np.int64]]


def bounded_at(
    scope: Scope, points: Points, arrays: Mapping[str, Array], errors: Mapping[str, float], cut_off: float = 0.0, arithmetic: Arithmetic = F32
) -> tuple[Array, Array]:
    """Values of the scope at points, and how far single precision may be from them; `errors` are absolute ones of the arrays, 0 where not given.

    Factors of products are rounded to the `arithmetic`.
    """
    held = {name: np.asarray(a).reshape(-1) for name, a in arrays.items()}

    def element(t: Tensor, address: Array) -> Array:
        read = np.take(held[t.name], address, mode="clip")
        return pair(read, errors.get(t.name, 0.0) + (narrowed(read) if read.dtype == np.float64 else 0.0))

    system = Bounded(cut_off, arithmetic)
    with np.errstate(all="ignore"):
        found = values_at(scope, points, system, element, system.places)
    return found.real, found.imag
