"""How far single precision may be from an expression's exact value, for the numbers that stand in memory: running errors of what kernels compute.

Where factors are first rounded to numbers of another arithmetic (`instantiate.kernels.arithmetics`), each errs by that, too: relative to itself, or
by the least normal number, below which some processors have zero alone. Of a factor beyond the arithmetic's largest number nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Scope, Tensor
from einnet.expr.values.arithmetic import Array
from einnet.expr.values.points import effort, values_at
from einnet.expr.values.running_errors import Running, pair, parts
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic


class Bounded(Running):
    """Running errors of what runs: of costly functions that are cut off, and of factors in another arithmetic.

    Nothing is known of what is computed of numbers beyond the largest one: a quotient of such a one may be a number.
    """

    def __init__(self, cut_off: float = 0.0, arithmetic: Arithmetic = F32) -> None:
        """`cut_off`: by how much costly functions may err beside what they do in generated code, as they do in engines that stop at their limits.

        `arithmetic` is that of factors.
        """
        super().__init__()
        self.cut_off, self.arithmetic = cut_off, arithmetic

    def factor(self, a: Array) -> Array:
        """A factor as the arithmetic has it."""
        v, e = parts(a)
        reach = np.abs(v) + e
        beyond = reach * (1 + self.arithmetic.roundoff) > self.arithmetic.largest
        return pair(v, np.where(beyond, np.inf, e + self.arithmetic.roundoff * reach + np.where(reach > 0, self.arithmetic.least, 0.0)))

    def add(self, a: Array, b: Array) -> Array:
        return super().add(known(a), known(b))

    def multiply(self, a: Array, b: Array) -> Array:
        if not self.arithmetic.rounds:
            return super().multiply(known(a), known(b))
        return self.product(self.factor(a), self.factor(b))

    def divide(self, a: Array, b: Array) -> Array:
        return super().divide(known(a), known(b))

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        return super().reduce(kind, known(array), axes)

    def accumulate(self, kind: str, array: Array) -> Array:
        return super().accumulate(kind, known(array))

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        return super().contract([self.factor(f) if self.arithmetic.rounds else known(f) for f in factors], rank, shape)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        found = super().call(name, tuple(map(known, args)))
        if not FUNCTIONS[name].costly:
            return found
        value, error = parts(found)
        return pair(value, error + self.cut_off)


def known(a: Array) -> Array:
    """Numbers of which nothing is known where they may be beyond the largest one; infinities are what they are."""
    value, error = parts(a)
    beyond = np.isfinite(value) & (np.abs(value) + error > F32.largest)
    return pair(value, np.where(beyond, np.inf, error)) if beyond.any() else a


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
