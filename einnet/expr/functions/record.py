"""What is known of a scalar function, in one record: its values in every number system, its facts, and what other libraries call it.

A function's record is the only place where the importer, the checker, the error analysis and the code generators learn of it. Number systems follow
`einnet.expr.arithmetic`, `intervals`, `rationals` and `modular`; a backend that has a better form than the C library's registers it by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, Literal, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Exact = Union[Fraction, float]
"""A rational, an infinity, or NaN where there is no value."""


class Span(NamedTuple):
    """Values from `lo` to `hi`; an open end is not among them."""

    lo: Exact = -inf
    lo_open: bool = False
    hi: Exact = inf
    hi_open: bool = False

    @property
    def positive(self) -> bool:
        return self.lo > 0 or (self.lo == 0 and self.lo_open)

    @property
    def nonzero(self) -> bool:
        return self.positive or self.hi < 0 or (self.hi == 0 and self.hi_open)

    @property
    def point(self) -> Fraction | None:
        """The only value, if that is known."""
        return self.lo if self.lo == self.hi and isinstance(self.lo, Fraction) else None

    def negated(self) -> Span:
        return Span(-self.hi, self.hi_open, -self.lo, self.lo_open)


ANY = Span()
_ZERO = Fraction(0)
FROM_0, ABOVE_0 = Span(_ZERO), Span(_ZERO, True)
UNIT = Span(_ZERO, False, Fraction(1))
"""Truth values lie in it, 0 for false and 1 for true."""
SYMMETRIC = Span(Fraction(-1), False, Fraction(1))


def within_1(x: Span) -> Span:
    """Of a rising function from -1 to 1 that keeps the sign."""
    negative = x.hi < 0 or (x.hi == 0 and x.hi_open)
    low = (_ZERO, x.positive) if x.lo >= 0 else (Fraction(-1), True)
    return Span(*low, *((_ZERO, negative) if x.hi <= 0 else (Fraction(1), True)))


def hull(a: Span, b: Span) -> Span:
    """The least range that holds both."""
    lo = (b.lo, b.lo_open) if b.lo < a.lo else (a.lo, a.lo_open and (b.lo > a.lo or b.lo_open))
    hi = (b.hi, b.hi_open) if b.hi > a.hi else (a.hi, a.hi_open and (b.hi < a.hi or b.hi_open))
    return Span(*lo, *hi)


class Mirror(NamedTuple):
    """f(x) = scale·f(-x) + constant + slope·x for all numbers."""

    scale: int
    constant: int = 0
    slope: int = 0


ODD, EVEN = Mirror(-1), Mirror(1)

Below = Literal["none", "finite", "greatest", "least", "chosen"]
"""What the value is where an argument may be -inf: perhaps none, a number, -inf where all arguments are, where one is, where the chosen one is."""


@dataclass(frozen=True)
class ScalarFunction:
    """A function of the language.

    Values: `machine` on numpy arrays, NaN and infinities as IEEE 754 has them; `enclosure` on intervals that exist (`ends`); `rational` on exact
    numbers and infinities, raising UsageError where the value is irrational; `residue` modulo 2^61-1, exact or a fixed pseudo-random function;
    `bounded` on a value and a bound of its error in single precision (`rounding`).

    Facts: `span` gives a range of the values from ranges of the arguments; `exists` says from these whether there is a value at all numbers.
    """

    name: str
    arity: int
    machine: Callable[..., Array]
    enclosure: Callable[..., NDArray[np.complex128]]
    residue: Callable[..., NDArray[np.uint64]]
    bounded: Callable[..., tuple[Array, Array]]
    rational: Callable[..., Exact] | None = None
    span: Span | Callable[..., Span] = ANY
    exists: Callable[..., bool] | None = None
    below: Below = "none"
    keeps_zero: bool = False
    """f(0) = 0."""
    nondecreasing: bool = False
    """It keeps an order, and is defined everywhere."""
    mirror: Mirror | None = None
    truth: bool = False
    """Its values are 0 and 1."""
    within: bool = False
    """Its value is no greater, in absolute value, than the greatest of its arguments."""
    whole: bool = False
    """It gives whole numbers, for whole numbers none greater than they or 1."""
    accurate: bool = False
    """Single precision computes it without an error."""
    strict: bool = True
    """Where an argument has no value, it has none."""
    costly: bool = False
    """It takes far longer than a load and a store."""
    library: str | None = None
    """Its name in the C library and in the code generator's own, where that is exact enough."""
    onnx: str | None = None
    """The ONNX operator that is this function."""

    def range(self, *arguments: Span) -> Span:
        """A range that holds the values for arguments that are numbers in these ranges."""
        return self.span if isinstance(self.span, Span) else self.span(*arguments)

    def total(self, *arguments: Span) -> bool:
        """There is a value at all numbers in these ranges."""
        return self.exists is None or self.exists(*arguments)
