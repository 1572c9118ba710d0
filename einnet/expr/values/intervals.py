"""Interval arithmetic in double precision: an enclosure of every real value, so that two that are apart prove two expressions different.

An interval is a complex number: the lower end is its real part, the upper end its imaginary one (`einnet.expr.functions.ends`). A value that does not
exist (1/0, the logarithm of -1) is UNDEFINED and makes everything undefined that is computed from it; MAYBE stands where enclosures are too wide to
tell.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.ends import MAYBE, UNDEFINED, Intervals, divided, down, interval, points, sum_ends, times, told, up
from einnet.expr.nodes import Number

_WHOLE = 1 << 53


@lru_cache(maxsize=1 << 12)
def enclosure(value: Number) -> complex:
    """The least interval of doubles around a number."""
    if isinstance(value, float):
        return complex(value, value)
    try:
        near = float(value)
    except OverflowError:
        return complex(1.7e308, math.inf) if value > 0 else complex(-math.inf, -1.7e308)
    exact = Fraction(near)
    return complex(near if exact <= value else math.nextafter(near, -math.inf), near if exact >= value else math.nextafter(near, math.inf))


class Enclosures:
    """Intervals as a number system (`einnet.expr.values.arithmetic.Arithmetic`)."""

    dtype = np.dtype(np.complex128)

    def number(self, value: Number) -> Intervals:
        return np.asarray(enclosure(value))

    def values(self, array: NDArray[Any]) -> Intervals:
        return interval(array, array)

    def integers(self, array: NDArray[Any], den: int) -> Intervals:
        whole = np.asarray(array)
        near = whole.astype(np.float64)
        large = np.abs(near) >= _WHOLE
        found = interval(np.where(large, down(near), near), np.where(large, up(near), near))
        return found if den == 1 else self.divide(found, self.number(Fraction(den)))

    def add(self, a: Intervals, b: Intervals) -> Intervals:
        lo, _ = sum_ends(a.real, b.real)
        _, hi = sum_ends(a.imag, b.imag)
        return np.where(points(a, b) & np.isnan(lo), UNDEFINED, told(interval(lo, hi), a, b))

    def multiply(self, a: Intervals, b: Intervals) -> Intervals:
        return times(a, b)

    def divide(self, a: Intervals, b: Intervals) -> Intervals:
        return divided(a, b)

    def call(self, name: str, args: tuple[Intervals, ...]) -> Intervals:
        given = np.broadcast_arrays(*args)
        function = FUNCTIONS[name]
        result = function.enclosure(*given)
        return _told_function(result, tuple(given)) if function.strict else result

    def reduce(self, kind: str, array: Intervals, axes: tuple[int, ...]) -> Intervals:
        """Sums by halves, greatest and least elements by ends."""
        if not axes:
            return array
        if kind != "sum":
            how = np.max if kind == "max" else np.min
            found = interval(how(array.real, axis=axes), how(array.imag, axis=axes))
            strange = np.isnan(array.real)
            if not strange.any():
                return found
            undefined = (strange & np.isnan(array.imag)).any(axis=axes)
            return np.where(undefined, UNDEFINED, np.where(strange.any(axis=axes), MAYBE, found))
        for axis in axes:
            array = np.moveaxis(array, axis, 0)
            while (n := array.shape[0]) > 1:
                half = self.add(array[: n // 2], array[n // 2 : 2 * (n // 2)])
                array = np.concatenate([half, array[n - 1 :]]) if n % 2 else half
            array = np.moveaxis(array, 0, axis)
        return array.reshape([n for a, n in enumerate(array.shape) if a not in axes])


def _told_function(result: Intervals, args: tuple[Intervals, ...]) -> Intervals:
    """A function's result: what it says itself of being undefined stays, what its arguments say comes first."""
    strange = np.isnan(args[0].real)
    undefined = strange & np.isnan(args[0].imag)
    for a in args[1:]:
        strange = strange | np.isnan(a.real)
        undefined = undefined | (np.isnan(a.real) & np.isnan(a.imag))
    return np.where(undefined, UNDEFINED, np.where(strange, MAYBE, result)) if strange.any() else result


def apart(a: Intervals, b: Intervals) -> NDArray[np.bool_]:
    """Where two values differ for sure: the intervals are disjoint, or only one of the two exists."""
    none_a, none_b = np.isnan(a.real) & np.isnan(a.imag), np.isnan(b.real) & np.isnan(b.imag)
    some_a, some_b = ~np.isnan(a.real), ~np.isnan(b.real)
    return ((a.real > b.imag) | (b.real > a.imag)) & some_a & some_b | (none_a & some_b) | (none_b & some_a)
