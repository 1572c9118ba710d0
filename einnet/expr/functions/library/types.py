"""Roundings to the numbers of shorter types: to nearest, half to even, with a value up to the greatest number of the type only."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from einnet.expr.functions import ends, modular
from einnet.expr.functions.exact import NAN, Infinite
from einnet.expr.functions.record import ODD, Array, Exact, ScalarFunction, Span
from einnet.expr.functions.rounding import Bounded


def nearest(x: Fraction, digits: int, least: int) -> Fraction:
    """The multiple of the unit in the last place that is nearest to x, for numbers of so many binary digits, none finer than 2^least."""
    size = abs(x)
    above = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** above:
        above -= 1
    unit = Fraction(2) ** max(above - digits + 1, least)
    return round(x / unit) * unit


def machine(digits: int, least: int, greatest: float) -> Callable[[Array], Array]:
    """The rounding of floats; what rounds to more than the greatest number is infinite."""

    def apply(x: Array) -> Array:
        given = np.asarray(x)
        wide = given.astype(np.float64)
        with np.errstate(all="ignore"):
            _, exponent = np.frexp(wide)
            unit = np.ldexp(1.0, np.maximum(exponent - digits, least))
            rounded = np.where(np.isfinite(wide), np.rint(wide / unit) * unit, wide)
            found: Array = np.where(np.abs(rounded) > greatest, np.copysign(np.inf, rounded), rounded).astype(given.dtype)
        return found

    return apply


def rounding(name: str, digits: int, least: int, greatest: Fraction) -> ScalarFunction:
    """The rounding to numbers of so many binary digits, multiples of 2^least, up to the greatest of them."""
    single = machine(digits, least, float(greatest))
    beyond = greatest + greatest / (2 ** (digits + 1) - 2)
    """What is no nearer to the greatest number than to the one that would follow."""
    drawn = modular.drawn(name)

    def rational(x: Exact) -> Exact:
        if isinstance(x, float):
            return x if x == x else NAN
        return nearest(x, digits, least) if abs(x) < beyond else Infinite(1 if x > 0 else -1)

    def enclosure(x: ends.Intervals) -> ends.Intervals:
        found = ends.interval(single(x.real), single(x.imag))
        finite = np.isfinite(x.real) | np.isfinite(x.imag)
        none = finite & ((x.real >= float(beyond)) | (x.imag <= -float(beyond)))
        perhaps = finite & ((x.imag >= float(beyond)) | (x.real <= -float(beyond)))
        return np.where(none, ends.UNDEFINED, np.where(perhaps, ends.MAYBE, found))

    def residue(x: modular.Residues) -> modular.Residues:
        return np.where(np.abs(modular.order(x) // 2) < 2 ** (digits - 1), x, drawn(x))

    def bounded(v: Array, e: Array) -> Bounded:
        y = single(v)
        with np.errstate(invalid="ignore"):
            moved = np.maximum(np.abs(single(v + e) - y), np.abs(y - single(v - e)))
        return y, np.where(e == 0, 0.0, np.where(np.isnan(moved), np.inf, moved))

    def end(x: Exact) -> Exact:
        return nearest(x, digits, least) if isinstance(x, Fraction) and abs(x) < beyond else x

    return ScalarFunction(
        name, 1, single, enclosure, residue, bounded, rational,
        span=lambda x: Span(end(x.lo), False, end(x.hi), False), exists=lambda x: bool(-beyond < x.lo and x.hi < beyond),
        keeps_zero=True, mirror=ODD, accurate=True,
    )  # fmt: skip


AS_F16 = rounding("as_f16", 11, -24, Fraction(65504))
"""To float16."""

AS_BF16 = rounding("as_bf16", 8, -133, Fraction(255 * 2**120))
"""To bfloat16."""
