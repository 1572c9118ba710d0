"""Intervals as complex numbers, lower end and upper end, with rounding outwards: what the enclosures of functions are made of.

An end moves outwards only where the operation rounded, so that integers and short binary fractions stay points and ties are seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.complex128]
Ends = NDArray[np.float64]

UNDEFINED = complex(math.nan, math.nan)
"""There is no value, and none of anything that is computed from it."""
MAYBE = complex(math.nan, 0.0)
"""Enclosures are too wide to tell whether there is a value."""

_ULPS = 16 * 2.0**-53
"""Relative error that numpy's functions are trusted to stay within; they claim four units in the last place."""

_SPLIT = float((1 << 27) + 1)


def interval(lo: Any, hi: Any) -> Intervals:
    """The intervals between some ends."""
    low, high = np.broadcast_arrays(np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64))
    out = np.empty(low.shape, dtype=np.complex128)
    out.real, out.imag = low, high
    return out


def down(x: Ends) -> Ends:
    return np.nextafter(x, -np.inf)


def up(x: Ends) -> Ends:
    return np.nextafter(x, np.inf)


def sum_ends(a: Ends, b: Ends) -> tuple[Ends, Ends]:
    """a + b rounded down and up: where the rounding error is 0, both are the sum itself."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    unsure = np.isnan(error) & ((np.isfinite(a) & np.isfinite(b)) | np.isfinite(s))
    return np.where((error < 0) | unsure, down(s), s), np.where((error > 0) | unsure, up(s), s)


def _product_error(a: Ends, b: Ends, p: Ends) -> Ends:
    """a*b - p for the rounded product p, exactly where nothing over- or underflows."""
    ah, bh = a * _SPLIT, b * _SPLIT
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl


def product_ends(a: Ends, b: Ends) -> tuple[Ends, Ends]:
    """a * b rounded down and up; 0 times an infinity is 0 here, as an end of an interval."""
    zero = (a == 0) | (b == 0)
    p = np.where(zero, 0.0, a * b)
    error = np.where(zero, 0.0, _product_error(a, b, p))
    unsure = ~zero & (np.isnan(error) | (np.abs(p) < 1e-280)) & ~(np.isinf(p) & (np.isinf(a) | np.isinf(b)))
    low, high = (error < 0) | unsure, (error > 0) | unsure
    return np.where(low, down(p), p), np.where(high, up(p), p)


def points(a: Intervals, *others: Intervals) -> NDArray[np.bool_]:
    """Where all intervals are single numbers, or infinite: what overflows is no point."""
    found = np.asarray(a.real == a.imag)
    for b in others:
        found = found & (b.real == b.imag)
    return found


def told(result: Intervals, *args: Intervals) -> Intervals:
    """The result, undefined or maybe so where an argument is; NaN that arose otherwise is MAYBE."""
    strange = np.isnan(result.real) | np.isnan(result.imag)
    for a in args:
        strange = strange | np.isnan(a.real)
    if not strange.any():
        return result
    undefined = np.zeros(result.shape, dtype=np.bool_)
    for a in args:
        undefined = undefined | (np.isnan(a.real) & np.isnan(a.imag))
    return np.where(undefined, UNDEFINED, np.where(strange, MAYBE, result))


def wider(lo: Ends, hi: Ends) -> Intervals:
    """Ends that a function gave, moved outwards by what it may err; one that overflowed is large."""
    low, high = (np.where(np.isfinite(x), np.abs(x) * _ULPS, 0.0) for x in (lo, hi))
    return interval(down(lo - low), up(hi + high))


def _limit(end: Ends, value: Ends, bound: Ends) -> Ends:
    """What bounds a function at an end of its argument: where that is infinite and the value no fraction, the value itself."""
    return np.where(np.isinf(end) & (value == np.rint(value)), value, bound)


def monotone(f: Callable[[Ends], Ends], fixed: tuple[tuple[float, float], ...], least: float, most: float) -> Callable[[Intervals], Intervals]:
    """A nondecreasing function between two bounds, with arguments at which its value is known."""

    def apply(x: Intervals) -> Intervals:
        low, high = f(x.real), f(x.imag)
        out = wider(low, high)
        lo, hi = (np.clip(_limit(end, value, found), least, most) for end, value, found in ((x.real, low, out.real), (x.imag, high, out.imag)))
        for at, value in fixed:
            lo = np.where(x.real >= at, np.maximum(lo, value), lo)
            hi = np.where(x.imag <= at, np.minimum(hi, value), hi)
        return interval(lo, hi)

    return apply


def logarithm(x: Intervals) -> Intervals:
    out = monotone(np.log, (), -np.inf, np.inf)(x)
    one = (x.real == 1) & (x.imag == 1)
    out = np.where(one, 0j, out)
    return np.where(x.imag <= 0, UNDEFINED, np.where(x.real <= 0, MAYBE, out))


def root(x: Intervals) -> Intervals:
    lo, hi = np.sqrt(np.maximum(x.real, 0)), np.sqrt(np.maximum(x.imag, 0))
    below, above = product_ends(lo, lo), product_ends(hi, hi)
    exact_lo, exact_hi = (below[0] == x.real) & (below[1] == x.real), (above[0] == x.imag) & (above[1] == x.imag)
    out = interval(np.where(exact_lo, lo, np.maximum(down(lo), 0)), np.where(exact_hi, hi, up(hi)))
    return np.where(x.imag < 0, UNDEFINED, np.where(x.real < 0, MAYBE, out))


def wave(f: Callable[[Ends], Ends]) -> Callable[[Intervals], Intervals]:
    """sin and cos: their slope is 1 at most."""

    def apply(x: Intervals) -> Intervals:
        nowhere = points(x) & np.isinf(x.real)
        middle = x.real + (x.imag - x.real) / 2
        half = up(np.maximum(x.imag - middle, middle - x.real))
        at = f(middle)
        reach = np.where((x.real == 0) & (x.imag == 0), 0.0, half + np.abs(middle) * 2.0**-52 + _ULPS)
        narrow = np.isfinite(at) & (np.abs(middle) < 1e6)
        found = interval(np.where(narrow, np.clip(at - reach, -1, 1), -1.0), np.where(narrow, np.clip(at + reach, -1, 1), 1.0))
        return np.where(nowhere, UNDEFINED, found)

    return apply


def absolute(x: Intervals) -> Intervals:
    lo, hi = np.abs(x.real), np.abs(x.imag)
    across = (x.real < 0) & (x.imag > 0)
    return interval(np.where(across, 0.0, np.minimum(lo, hi)), np.maximum(lo, hi))


def both_ends(f: Callable[[Ends], Ends]) -> Callable[[Intervals], Intervals]:
    """A nondecreasing function that does not round."""
    return lambda x: interval(f(x.real), f(x.imag))


def less(x: Intervals, y: Intervals) -> Intervals:
    return interval((x.imag < y.real).astype(np.float64), (x.real < y.imag).astype(np.float64))


def equal(x: Intervals, y: Intervals) -> Intervals:
    same = (x.real == x.imag) & (y.real == y.imag) & (x.real == y.real)
    may = (x.real <= y.imag) & (y.real <= x.imag)
    return interval(same.astype(np.float64), may.astype(np.float64))


def whole_power(x: Intervals, n: int) -> Intervals:
    """x^n for n >= 1 by repeated products; an even power of an interval around 0 begins at 0."""
    base = absolute(x) if n % 2 == 0 else x
    result, square, left = interval(np.ones(x.shape), np.ones(x.shape)), base, n
    while left:
        if left & 1:
            result = times(result, square)
        left >>= 1
        if left:
            square = times(square, square)
    return result


def power(x: Intervals, y: Intervals) -> Intervals:
    x, y = np.broadcast_arrays(x, y)
    logs = times(y, logarithm(x))
    out = np.where(x.real > 0, exponential(logs), np.where(x.imag < 0, UNDEFINED, MAYBE))
    known = (y.real == y.imag) & (np.mod(y.real, 1) == 0) & (np.abs(y.real) <= 64)
    for n in np.unique(y.real[known]).tolist():
        one = np.full(x.shape, 1 + 1j)
        whole = one if n == 0 else whole_power(x, int(abs(n)))
        out = np.where(known & (y.real == n), divided(one, whole) if n < 0 else whole, out)
    zero = (x.real == 0) & (x.imag == 0) & ~known
    out = np.where(zero, np.where(y.real > 0, 0j, np.where(y.imag < 0, UNDEFINED, MAYBE)), out)
    unclear = ~known & (x.imag < 0) & (np.floor(y.imag) >= np.ceil(y.real))
    return np.where(unclear, MAYBE, out)


def times(a: Intervals, b: Intervals) -> Intervals:
    ends = [product_ends(x, y) for x in (a.real, a.imag) for y in (b.real, b.imag)]
    lo, hi = ends[0]
    for low, high in ends[1:]:
        lo, hi = np.minimum(lo, low), np.maximum(hi, high)
    large, other = (np.isinf(x.real) | np.isinf(x.imag) for x in (a, b))
    infinite = (large & (b.real <= 0) & (b.imag >= 0)) | (other & (a.real <= 0) & (a.imag >= 0))
    if not infinite.any():
        return told(interval(lo, hi), a, b)
    return np.where(infinite & points(a, b), UNDEFINED, told(np.where(infinite, MAYBE, interval(lo, hi)), a, b))


def divided(a: Intervals, b: Intervals) -> Intervals:
    lo: Ends | None = None
    hi: Ends | None = None
    for x in (a.real, a.imag):
        for y in (b.real, b.imag):
            q = x / y
            back = product_ends(q, y)
            exact = (back[0] == x) & (back[1] == x) | (x == 0) | (np.isfinite(x) & np.isinf(y))
            low, high = np.where(exact, q, down(q)), np.where(exact, q, up(q))
            lo, hi = (low, high) if lo is None or hi is None else (np.minimum(lo, low), np.maximum(hi, high))
    assert lo is not None and hi is not None
    none, maybe = (b.real == 0) & (b.imag == 0), (b.real <= 0) & (b.imag >= 0)
    found = told(np.where(maybe, MAYBE, interval(lo, hi)), a, b)
    return np.where(none | (points(a, b) & np.isinf(a.real) & np.isinf(b.real)), UNDEFINED, found)


exponential = monotone(np.exp, ((0.0, 1.0),), 0.0, np.inf)
