"""Interval arithmetic in double precision: an enclosure of every real value, so that two that are apart prove two expressions different.

An interval is a complex number: the lower end is its real part, the upper end its imaginary one. An end moves outwards only where the operation
rounded, so that integers and short binary fractions stay points and ties are seen. A value that does not exist (1/0, the logarithm of -1) is
UNDEFINED and makes everything undefined that is computed from it; MAYBE stands where enclosures are too wide to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.nodes import Number

Intervals = NDArray[np.complex128]
Ends = NDArray[np.float64]

UNDEFINED = complex(math.nan, math.nan)
MAYBE = complex(math.nan, 0.0)

_ULPS = 16 * 2.0**-53
"""Relative error that numpy's functions are trusted to stay within; they claim four units in the last place."""

_SPLIT = float((1 << 27) + 1)
_WHOLE = 1 << 53


def interval(lo: Any, hi: Any) -> Intervals:
    """The intervals between some ends."""
    low, high = np.broadcast_arrays(np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64))
    out = np.empty(low.shape, dtype=np.complex128)
    out.real, out.imag = low, high
    return out


def _down(x: Ends) -> Ends:
    return np.nextafter(x, -np.inf)


def _up(x: Ends) -> Ends:
    return np.nextafter(x, np.inf)


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


def _sum_ends(a: Ends, b: Ends) -> tuple[Ends, Ends]:
    """a + b rounded down and up: where the rounding error is 0, both are the sum itself."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    unsure = np.isnan(error) & np.isfinite(s)
    return np.where((error < 0) | unsure, _down(s), s), np.where((error > 0) | unsure, _up(s), s)


def _product_error(a: Ends, b: Ends, p: Ends) -> Ends:
    """a*b - p for the rounded product p, exactly where nothing over- or underflows."""
    ah, bh = a * _SPLIT, b * _SPLIT
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _product_ends(a: Ends, b: Ends) -> tuple[Ends, Ends]:
    """a * b rounded down and up; 0 times an infinity is 0 here, as an end of an interval."""
    zero = (a == 0) | (b == 0)
    p = np.where(zero, 0.0, a * b)
    error = np.where(zero, 0.0, _product_error(a, b, p))
    unsure = ~zero & (np.isnan(error) | (np.abs(p) < 1e-280)) & ~(np.isinf(p) & (np.isinf(a) | np.isinf(b)))
    low, high = (error < 0) | unsure, (error > 0) | unsure
    return np.where(low, _down(p), p), np.where(high, _up(p), p)


def _told(result: Intervals, *args: Intervals) -> Intervals:
    """The result, undefined or maybe so where an argument is; NaN that arose otherwise is MAYBE."""
    strange = np.isnan(result.real)
    for a in args:
        strange = strange | np.isnan(a.real)
    if not strange.any():
        return result
    undefined = np.zeros(result.shape, dtype=np.bool_)
    for a in args:
        undefined = undefined | (np.isnan(a.real) & np.isnan(a.imag))
    return np.where(undefined, UNDEFINED, np.where(strange | np.isnan(result.imag), MAYBE, result))


def _wider(lo: Ends, hi: Ends) -> Intervals:
    """Ends that a function gave, moved outwards by what it may err."""
    return interval(_down(lo - np.abs(lo) * _ULPS), _up(hi + np.abs(hi) * _ULPS))


def _monotone(f: Callable[[Ends], Ends], fixed: tuple[tuple[float, float], ...], least: float, most: float) -> Callable[[Intervals], Intervals]:
    """A nondecreasing function between two bounds, with arguments at which its value is known."""

    def apply(x: Intervals) -> Intervals:
        out = _wider(f(x.real), f(x.imag))
        lo, hi = np.clip(out.real, least, most), np.clip(out.imag, least, most)
        for at, value in fixed:
            lo = np.where(x.real >= at, np.maximum(lo, value), lo)
            hi = np.where(x.imag <= at, np.minimum(hi, value), hi)
        return interval(lo, hi)

    return apply


def _erf(x: Ends) -> Ends:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


def _sigmoid(x: Ends) -> Ends:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def _log(x: Intervals) -> Intervals:
    out = _wider(np.log(x.real), np.log(x.imag))
    one = (x.real == 1) & (x.imag == 1)
    out = np.where(one, 0j, out)
    return np.where(x.imag <= 0, UNDEFINED, np.where(x.real <= 0, MAYBE, out))


def _sqrt(x: Intervals) -> Intervals:
    lo, hi = np.sqrt(np.maximum(x.real, 0)), np.sqrt(np.maximum(x.imag, 0))
    below, above = _product_ends(lo, lo), _product_ends(hi, hi)
    exact_lo, exact_hi = (below[0] == x.real) & (below[1] == x.real), (above[0] == x.imag) & (above[1] == x.imag)
    out = interval(np.where(exact_lo, lo, np.maximum(_down(lo), 0)), np.where(exact_hi, hi, _up(hi)))
    return np.where(x.imag < 0, UNDEFINED, np.where(x.real < 0, MAYBE, out))


def _wave(f: Callable[[Ends], Ends]) -> Callable[[Intervals], Intervals]:
    """sin and cos: their slope is 1 at most."""

    def apply(x: Intervals) -> Intervals:
        middle = x.real + (x.imag - x.real) / 2
        half = _up(np.maximum(x.imag - middle, middle - x.real))
        at = f(middle)
        reach = np.where((x.real == 0) & (x.imag == 0), 0.0, half + np.abs(middle) * 2.0**-52 + _ULPS)
        narrow = np.isfinite(at) & (np.abs(middle) < 1e6)
        return interval(np.where(narrow, np.clip(at - reach, -1, 1), -1.0), np.where(narrow, np.clip(at + reach, -1, 1), 1.0))

    return apply


def _abs(x: Intervals) -> Intervals:
    lo, hi = np.abs(x.real), np.abs(x.imag)
    across = (x.real < 0) & (x.imag > 0)
    return interval(np.where(across, 0.0, np.minimum(lo, hi)), np.maximum(lo, hi))


def _both_ends(f: Callable[[Ends], Ends]) -> Callable[[Intervals], Intervals]:
    """A nondecreasing function that does not round."""
    return lambda x: interval(f(x.real), f(x.imag))


def _less(x: Intervals, y: Intervals) -> Intervals:
    return interval((x.imag < y.real).astype(np.float64), (x.real < y.imag).astype(np.float64))


def _equal(x: Intervals, y: Intervals) -> Intervals:
    same = (x.real == x.imag) & (y.real == y.imag) & (x.real == y.real)
    may = (x.real <= y.imag) & (y.real <= x.imag)
    return interval(same.astype(np.float64), may.astype(np.float64))


def _whole_power(x: Intervals, n: int) -> Intervals:
    """x^n for n >= 1 by repeated products; an even power of an interval around 0 begins at 0."""
    base = _abs(x) if n % 2 == 0 else x
    result, square, left = interval(np.ones(x.shape), np.ones(x.shape)), base, n
    while left:
        if left & 1:
            result = _times(result, square)
        left >>= 1
        if left:
            square = _times(square, square)
    return result


def _power(x: Intervals, y: Intervals) -> Intervals:
    x, y = np.broadcast_arrays(x, y)
    logs = _times(y, _log(x))
    out = np.where(x.real > 0, _EXP(logs), np.where(x.imag < 0, UNDEFINED, MAYBE))
    known = (y.real == y.imag) & (np.mod(y.real, 1) == 0) & (np.abs(y.real) <= 64)
    for n in np.unique(y.real[known]).tolist():
        one = np.full(x.shape, 1 + 1j)
        whole = one if n == 0 else _whole_power(x, int(abs(n)))
        out = np.where(known & (y.real == n), _divided(one, whole) if n < 0 else whole, out)
    zero = (x.real == 0) & (x.imag == 0) & ~known
    out = np.where(zero, np.where(y.real > 0, 0j, np.where(y.imag < 0, UNDEFINED, MAYBE)), out)
    unclear = ~known & (x.imag < 0) & (np.floor(y.imag) >= np.ceil(y.real))
    return np.where(unclear, MAYBE, out)


def _times(a: Intervals, b: Intervals) -> Intervals:
    ends = [_product_ends(x, y) for x in (a.real, a.imag) for y in (b.real, b.imag)]
    lo, hi = ends[0]
    for low, high in ends[1:]:
        lo, hi = np.minimum(lo, low), np.maximum(hi, high)
    infinite = (np.isinf(a.real) & (a.real == a.imag) & (b.real <= 0) & (b.imag >= 0)) | (
        np.isinf(b.real) & (b.real == b.imag) & (a.real <= 0) & (a.imag >= 0)
    )
    return _told(np.where(infinite, MAYBE, interval(lo, hi)) if infinite.any() else interval(lo, hi), a, b)


def _divided(a: Intervals, b: Intervals) -> Intervals:
    lo: Ends | None = None
    hi: Ends | None = None
    for x in (a.real, a.imag):
        for y in (b.real, b.imag):
            q = x / y
            back = _product_ends(q, y)
            exact = (back[0] == x) & (back[1] == x) | (x == 0)
            low, high = np.where(exact, q, _down(q)), np.where(exact, q, _up(q))
            lo, hi = (low, high) if lo is None or hi is None else (np.minimum(lo, low), np.maximum(hi, high))
    assert lo is not None and hi is not None
    none, maybe = (b.real == 0) & (b.imag == 0), (b.real <= 0) & (b.imag >= 0)
    return _told(np.where(none, UNDEFINED, np.where(maybe, MAYBE, interval(lo, hi))), a, b)


_EXP = _monotone(np.exp, ((0.0, 1.0),), 0.0, np.inf)
_ONE: dict[str, Callable[[Intervals], Intervals]] = {
    "relu": _both_ends(lambda x: np.maximum(x, 0)), "abs": _abs, "sign": _both_ends(np.sign), "floor": _both_ends(np.floor),
    "ceil": _both_ends(np.ceil), "round": _both_ends(np.rint), "exp": _EXP, "log": _log, "sqrt": _sqrt, "sin": _wave(np.sin), "cos": _wave(np.cos),
    "tanh": _monotone(np.tanh, ((0.0, 0.0),), -1.0, 1.0), "erf": _monotone(_erf, ((0.0, 0.0),), -1.0, 1.0),
    "sigmoid": _monotone(_sigmoid, ((0.0, 0.5),), 0.0, 1.0), "softplus": _monotone(lambda x: np.logaddexp(0, x), (), 0.0, np.inf),
    "not": lambda x: _equal(x, np.zeros(x.shape, dtype=np.complex128)),
}  # fmt: skip
_TWO: dict[str, Callable[[Intervals, Intervals], Intervals]] = {
    "max": lambda x, y: interval(np.maximum(x.real, y.real), np.maximum(x.imag, y.imag)),
    "min": lambda x, y: interval(np.minimum(x.real, y.real), np.minimum(x.imag, y.imag)),
    "less": _less, "equal": _equal, "pow": _power,
}  # fmt: skip


class Enclosures:
    """Intervals as a number system (`einnet.expr.arithmetic.Arithmetic`)."""

    dtype = np.dtype(np.complex128)
    contracts = False

    def number(self, value: Number) -> Intervals:
        return np.asarray(enclosure(value))

    def values(self, array: NDArray[Any]) -> Intervals:
        return interval(array, array)

    def integers(self, array: NDArray[Any], den: int) -> Intervals:
        whole = np.asarray(array)
        near = whole.astype(np.float64)
        large = np.abs(near) >= _WHOLE
        found = interval(np.where(large, _down(near), near), np.where(large, _up(near), near))
        return found if den == 1 else self.divide(found, self.number(Fraction(den)))

    def add(self, a: Intervals, b: Intervals) -> Intervals:
        lo, _ = _sum_ends(a.real, b.real)
        _, hi = _sum_ends(a.imag, b.imag)
        return _told(interval(lo, hi), a, b)

    def multiply(self, a: Intervals, b: Intervals) -> Intervals:
        return _times(a, b)

    def divide(self, a: Intervals, b: Intervals) -> Intervals:
        return _divided(a, b)

    def call(self, name: str, args: tuple[Intervals, ...]) -> Intervals:
        given = tuple(np.asarray(a) for a in args)
        if len(given) == 1:
            return _told_function(_ONE[name](given[0]), given)
        one, other = np.broadcast_arrays(*given)
        return _told_function(_TWO[name](one, other), (one, other))

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
