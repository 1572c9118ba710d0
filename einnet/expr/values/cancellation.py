"""What becomes of rounding errors where elements are nearly equal, or large.

The sum of absolute values does not grow when (x - m)*(x - m) is opened to x*x - 2*x*m + m*m, yet where x and m are nearly equal the first is nearly
exact and the second is all error. So both sides are evaluated with running errors for such elements, each of which errs by one rounding of itself,
as what was computed before does. By that, f*(x - m) = f*x - f*m loses nothing that the elements had not lost: products of differences count, and what
leaves single precision, as an exponential without its shift. A sum rounds once here: how often it does is told by `derivation.checker.bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType

import numpy as np

from einnet.expr.functions.modular import random_function, seed_of
from einnet.expr.functions.rounding import LEAST, UNIT
from einnet.expr.nodes import Add, Body, Const, Mul, Read, Scope, Tensor, children, walk
from einnet.expr.partings import apart, name_apart
from einnet.expr.values.arithmetic import Array, uncontracted
from einnet.expr.values.bodies import Integers
from einnet.expr.values.points import values_at, work
from einnet.expr.values.running_errors import Running, pair, parts

LEVELS = (1.0, 128.0)
"""Elements are about as large as this. The exponential of the second is no number of single precision."""

APART = 2.0**-12
"""By so much elements differ, relative to themselves: the square of a difference errs by so much less than what it is opened to."""

FACTOR = 64.0
"""Errors may grow by so much for other numbers of operations; what cancels makes them grow 2,048 times or more."""

LARGEST = float(np.finfo(np.float32).max)
_RANGE = 1 << 61
NOTHING: Mapping[str, Scope] = MappingProxyType({})
EVALUATIONS = 50_000
"""Of the body of a side, at most, where there are several points."""

MOST_EVALUATIONS = 1 << 22
"""Of the body of a side for one point: it takes two seconds."""

SPREAD_EVALUATIONS = 1 << 26
"""Of the body of a side at the points where something changes, at most, as `effort` counts them: more of these are left out."""


class Conditioned(Running):
    """Running errors with one rounding for each sum, of which nothing is known beyond the largest number of single precision."""

    def roundings(self, count: int) -> int:
        return 1

    def add(self, a: Array, b: Array) -> Array:
        return _held(super().add(a, b))

    def multiply(self, a: Array, b: Array) -> Array:
        return _held(super().multiply(a, b))

    def divide(self, a: Array, b: Array) -> Array:
        return _held(super().divide(a, b))

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        return _held(super().call(name, args))

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        return _held(super().reduce(kind, array, axes))

    def accumulate(self, kind: str, array: Array) -> Array:
        return _held(super().accumulate(kind, array))

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        """At once where no product and no sum of them can be beyond the largest number."""
        reach = prod(shape[rank:]) * prod(greatest(f) for f in factors)
        return super().contract(factors, rank, shape) if reach < LARGEST else uncontracted(self, factors, rank, shape)


def greatest(found: Array) -> float:
    """The largest that an element may be, its error included."""
    value, error = parts(found)
    return float((np.abs(value) + error).max(initial=0.0))


def _held(found: Array) -> Array:
    value, error = parts(found)
    beyond = np.abs(value) + error > LARGEST
    return pair(value, np.where(beyond, np.inf, error)) if beyond.any() else found


def errors_at(scope: Scope, points: Integers, level: float, sums: Mapping[str, Scope] = NOTHING) -> Array:
    """How far single precision may be from the scope's values at points, for elements of the level and a little more; infinite where it has none.

    Tensors by the names of `sums` stand for scopes of such elements.
    """
    large = {name: size(s, level) for name, s in sums.items()}

    def element(t: Tensor, address: Integers) -> Array:
        noise = random_function(seed_of(t.name), (address,)).astype(np.float64) / _RANGE
        value = large.get(t.name, level) * (1 + APART * noise)
        return pair(value, UNIT * value)

    system = Conditioned()
    value, error = parts(values_at(scope, points, system, element, system.places))
    return np.where(np.isfinite(value), error, np.inf)


def lost(before: Scope, after: Scope, points: Integers, sums: Mapping[str, Scope] = NOTHING) -> float:
    """By how much errors grow at most, for nearly equal elements of each level, where `before` has a value; `sums` as in `errors_at`."""
    if not subtracts(before):
        return 1.0
    grown = [1.0]
    for level in LEVELS:
        old, new = (errors_at(s, points, level, sums) for s in (before, after))
        there = np.isfinite(old)
        grown += ((new[there] + LEAST) / (old[there] + LEAST)).tolist()
    return max(grown)


def survives(before: Scope, after: Scope) -> bool:
    """Errors do not grow so at corners of the box and in its middle, be it where sums that both read are any tensors of that size; what is too large
    to be evaluated does not survive."""
    if not subtracts(before):
        return True
    corners = [[at(lo, hi) for lo, hi in before.box] for at in (lambda lo, _: lo, lambda lo, hi: (lo + hi) // 2, lambda _, hi: hi - 1)]
    points = np.asarray(corners, np.int64).reshape(len(corners), -1)
    sums = {name_apart(s): s for s in walk(before) if adds_up(s)}
    sides = dict.fromkeys((apart(before, after, only=adds_up), (before, after)))
    return any(max(work(one, 1), work(other, 1)) <= EVALUATIONS and lost(one, other, points, sums) <= FACTOR for one, other in sides)


@lru_cache(maxsize=1 << 12)
def subtracts(scope: Scope) -> bool:
    """A number in it is negative: without, elements that are not negative are never subtracted."""
    return any(_negative(s.body) for s in walk(scope))


def only_adds(scope: Scope) -> bool:
    """All that it computes is sums of what it reads."""

    def adds(body: Body) -> bool:
        return isinstance(body, Read) or (isinstance(body, Add) and all(map(adds, body.args)))

    return all(s.reduce == "sum" and adds(s.body) for s in walk(scope))


@lru_cache(maxsize=1 << 12)
def adds_up(scope: Scope) -> bool:
    """Sums and products of elements and of numbers above 0: what it gives of elements of a level is about as large everywhere, and none is negative,
    so that as a tensor it stands for itself."""
    return scope.reduce == "sum" and all(_adds_up(s.body) and s.reduce == "sum" for s in walk(scope))


def size(scope: Scope, level: float) -> float:
    """About how large a scope that adds up is, of elements of a level."""
    return prod(i.extent for i in scope.sums) * _size(scope.body, level)


def _size(body: Body, level: float) -> float:
    match body:
        case Const(value):
            return float(value)
        case Read(Scope() as base):
            return size(base, level)
        case Add(args):
            return sum(_size(a, level) for a in args)
        case Mul(args):
            return prod(_size(a, level) for a in args)
    return level


def _adds_up(body: Body) -> bool:
    match body:
        case Const(value):
            return value > 0
        case Read(Scope()):
            return not body.fill
        case Read(Tensor() as base):
            return base.values is None and not body.fill
    return isinstance(body, Add | Mul) and all(map(_adds_up, children(body)))


def _negative(body: Body) -> bool:
    match body:
        case Const(value):
            return value < 0
        case Read(Tensor() as base):
            return base.values is not None and min(base.values, default=0) < 0
    return any(map(_negative, children(body)))
