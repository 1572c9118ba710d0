"""Exact values of functions: rationals, infinities, and values that do not exist, of which IEEE 754 may still know something.

`NONE` is a value that does not exist; single precision has an infinity or NaN there, or a number. `NAN` is one for which it has NaN for sure, as 0/0,
and an `Infinite` one for which it has an infinity for sure, as 1/0: of which sign is known where that of the 0 is, as of an element that is
`PLUS_ZERO`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from einnet.errors import UsageError
from einnet.expr.functions.record import Exact


class _Nan(float):
    """NaN in IEEE 754, too."""


class Infinite(float):
    """No number, and infinite in IEEE 754: `sign` is 1, -1, or 0 where it is not known."""

    sign: int

    def __new__(cls, sign: int) -> Infinite:
        found = super().__new__(cls, "nan")
        found.sign = sign
        return found


class _PlusZero(Fraction):
    """A zero whose sign is known: that of an element which is given. What is computed has none that is known."""


NONE = math.nan
NAN: float = _Nan("nan")
PLUS_ZERO: Fraction = _PlusZero(0)


def missing(x: Exact) -> bool:
    """The value does not exist."""
    return isinstance(x, float) and math.isnan(x)


def absent(machine: Callable[..., object], *args: Exact) -> float:
    """What a function gives for values of which one at least does not exist: by what the machine has for all that they may be there."""
    if any(isinstance(x, _Nan) for x in args):
        return NAN
    if any(missing(x) and not isinstance(x, Infinite) for x in args):
        return NONE
    with np.errstate(all="ignore"):
        found = [float(np.asarray(machine(*map(np.float64, given)))) for given in product(*map(_floats, args))]
    if all(map(math.isnan, found)):
        return NAN
    return Infinite(_common([int(math.copysign(1, x)) for x in found])) if all(map(math.isinf, found)) else NONE


def _floats(x: Exact) -> Iterator[float]:
    """The doubles that a value may be."""
    if isinstance(x, Infinite):
        yield from (sign * math.inf for sign in ((x.sign,) if x.sign else (1, -1)))
    else:
        yield float(x)


def _common(signs: list[int]) -> int:
    return signs[0] if len(set(signs)) == 1 else 0


def is_nan(x: Exact) -> Fraction:
    """1 for NaN, 0 for numbers and infinities. Raises UsageError where a value may be either."""
    if missing(x) and not isinstance(x, _Nan | Infinite):
        raise UsageError("whether a value that does not exist is NaN or infinite is not known")
    return Fraction(isinstance(x, _Nan))


def plus(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return _sum_of_missing(a, b)
    if isinstance(a, float) or isinstance(b, float):
        found = float(a) + float(b)
        return NAN if math.isnan(found) else found
    return a + b


def _sum_of_missing(a: Exact, b: Exact) -> float:
    if isinstance(a, _Nan) or isinstance(b, _Nan):
        return NAN
    signs = [_sign(x) for x in (a, b) if isinstance(x, float)]
    if None in signs or (len(signs) == 2 and 0 in signs):
        return NONE
    return Infinite(signs[0] or 0) if len(set(signs)) == 1 else NAN


def _sign(x: Exact) -> int | None:
    """The sign of a number or of an infinity, 0 where that is not known; None for what need not be infinite."""
    if isinstance(x, Infinite):
        return x.sign
    return None if missing(x) else (x > 0) - (x < 0)


def _endless(x: Exact) -> bool:
    return isinstance(x, Infinite) or (isinstance(x, float) and math.isinf(x))


def times(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return _product_of_missing(a, b)
    if isinstance(a, float) or isinstance(b, float):
        return NAN if a == 0 or b == 0 else math.copysign(math.inf, (1 if a > 0 else -1) * (1 if b > 0 else -1))
    return a * b


def _product_of_missing(a: Exact, b: Exact) -> float:
    if isinstance(a, _Nan) or isinstance(b, _Nan) or ((_endless(a) or _endless(b)) and (a == 0 or b == 0)):
        return NAN
    one, other = _sign(a), _sign(b)
    return NONE if one is None or other is None else Infinite(one * other)


def over(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return _quotient_of_missing(a, b)
    if b == 0:
        return NAN if a == 0 else Infinite(((a > 0) - (a < 0)) * (b is PLUS_ZERO))
    if isinstance(b, float):
        return NAN if isinstance(a, float) else Fraction(0)
    return times(a, 1 / Fraction(b))


def _quotient_of_missing(a: Exact, b: Exact) -> float:
    """Of an infinity and a number that is infinite; what is divided by an infinity is a number for IEEE 754, though it does not exist."""
    if isinstance(a, _Nan) or isinstance(b, _Nan) or (_endless(a) and _endless(b)):
        return NAN
    if not isinstance(a, Infinite) or missing(b):
        return NONE
    return Infinite(0 if b == 0 else a.sign * (1 if b > 0 else -1))


def power(x: Exact, y: Exact) -> Exact:
    if isinstance(x, float) or isinstance(y, float):
        raise UsageError("a power is irrational")
    if x == 0 and y < 0:
        return Infinite(1 if x is PLUS_ZERO or y.denominator != 1 or y % 2 == 0 else 0)
    if y.denominator != 1:
        if x > 0 and x != 1:
            raise UsageError("a power is irrational")
        return x if x >= 0 else NAN
    if abs(y) > 256:
        raise UsageError("a power is too large")
    return x ** int(y)


def root(x: Exact) -> Exact:
    if isinstance(x, float):
        return x if x > 0 else NAN
    if x < 0:
        return NAN
    found = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if found * found != x:
        raise UsageError("a root is irrational")
    return found


def known(name: str, at: int, value: int | Fraction, ends: tuple[int, int] | None = None) -> Callable[[Exact], Exact]:
    """A function of which one rational value is known, and perhaps those at its `ends`: of -inf and of inf."""

    def apply(x: Exact) -> Exact:
        if ends is not None and x in (-math.inf, math.inf):
            return Fraction(ends[x > 0])
        if x != at:
            raise UsageError(f"{name} is irrational")
        return Fraction(value)

    return apply


def whole(f: Callable[[Fraction], int]) -> Callable[[Exact], Exact]:
    """Infinities are whole numbers to `floor`, `ceil` and `round`."""
    return lambda x: x if isinstance(x, float) else Fraction(f(x))


def truth(f: Callable[..., bool]) -> Callable[..., Exact]:
    return lambda *args: Fraction(int(f(*args)))
