"""Exact values of functions: rationals, infinities, and NaN of two kinds where there is no number.

`NONE` is a value that does not exist; single precision has an infinity or NaN there. `NAN` is one for which it has NaN for sure, as 0/0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from einnet.errors import UsageError
from einnet.expr.functions.record import Exact


class _Nan(float):
    """NaN in IEEE 754, too."""


NONE = math.nan
NAN: float = _Nan("nan")


def missing(x: Exact) -> bool:
    """The value does not exist."""
    return isinstance(x, float) and math.isnan(x)


def absent(*args: Exact) -> float:
    """What is computed from values of which one at least does not exist: NaN for sure where one is."""
    return NAN if any(isinstance(x, _Nan) for x in args) else NONE


def is_nan(x: Exact) -> Fraction:
    """1 for NaN, 0 for numbers and infinities. Raises UsageError where a value may be either."""
    if missing(x) and not isinstance(x, _Nan):
        raise UsageError("whether a value that does not exist is NaN or infinite is not known")
    return Fraction(missing(x))


def plus(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return absent(a, b)
    if isinstance(a, float) or isinstance(b, float):
        found = float(a) + float(b)
        return NAN if math.isnan(found) else found
    return a + b


def times(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return absent(a, b)
    if isinstance(a, float) or isinstance(b, float):
        return NAN if a == 0 or b == 0 else math.copysign(math.inf, (1 if a > 0 else -1) * (1 if b > 0 else -1))
    return a * b


def over(a: Exact, b: Exact) -> Exact:
    if missing(a) or missing(b):
        return absent(a, b)
    if b == 0:
        return NAN if a == 0 else NONE
    if isinstance(b, float):
        return NAN if isinstance(a, float) else Fraction(0)
    return times(a, 1 / Fraction(b))


def power(x: Exact, y: Exact) -> Exact:
    if isinstance(x, float) or isinstance(y, float) or (y.denominator != 1 and x not in (0, 1)):
        raise UsageError("a power is irrational")
    if y.denominator != 1:
        return x if y > 0 or x else NONE
    if abs(y) > 256:
        raise UsageError("a power is too large")
    return NONE if x == 0 and y < 0 else x ** int(y)


def root(x: Exact) -> Exact:
    if isinstance(x, float):
        return x if x > 0 else NAN
    if x < 0:
        return NAN
    found = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if found * found != x:
        raise UsageError("a root is irrational")
    return found


def known(name: str, at: int, value: int) -> Callable[[Exact], Exact]:
    """A function of which one rational value is known."""

    def apply(x: Exact) -> Exact:
        if x != at:
            raise UsageError(f"{name} is irrational")
        return Fraction(value)

    return apply


def whole(f: Callable[[Fraction], int]) -> Callable[[Exact], Exact]:
    """Infinities are whole numbers to `floor`, `ceil` and `round`."""
    return lambda x: x if isinstance(x, float) else Fraction(f(x))


def truth(f: Callable[..., bool]) -> Callable[..., Exact]:
    return lambda *args: Fraction(int(f(*args)))
