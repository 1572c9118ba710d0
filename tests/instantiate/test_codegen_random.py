"""Random scopes as kernels over scattered operands, many in one module."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.nodes import Body, Const, Div, Iter, Read, Scope, Tensor, children, nested
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen import build, lower
from tests import strategies
from tests.instantiate.compiled import call, random_values, scattered

LARGE = (Tensor("A", (37,)), Tensor("B", (9, 20)), Tensor("K", (2, 18)), Tensor("X", (7, 5, 19)), Tensor("S", ()))
MOST_STEPS = 100_000
LARGEST = 1 << 16
"""Results below it are sums of products that float32 has, with room for what stands behind the point."""


def steps(scope: Scope) -> int:
    own = 1
    for i in (*scope.loops, *scope.sums):
        own *= i.extent
    return own + sum(steps(s) for s in nested(scope))


def iterators(rng: Random, names: tuple[str, ...], count: int, extent: int = 3) -> tuple[Iter, ...]:
    lows = [rng.choice((0, 0, 0, -1, 1)) for _ in range(count)]
    return tuple(Iter(n, lo, lo + rng.choice((1, 2, 3, 5, 8, 17, 20, 33))) for n, lo in zip(names, lows, strict=False))


def drawn(first: int, count: int) -> list[tuple[int, Scope]]:
    """The first scopes that are not too much work, with their seeds."""
    found: list[tuple[int, Scope]] = []
    seed = first
    while len(found) < count:
        scope = strategies.random_scope(Random(seed), depth=seed % 3)
        if steps(scope) <= MOST_STEPS:
            found.append((seed, scope))
        seed += 1
    return found


def whole(body: Body) -> bool:
    """On integers nothing is rounded: there are no quotients, and fractions are halves and their like."""
    if isinstance(body, Div):
        return False
    told = body.value if isinstance(body, Const) else body.fill if isinstance(body, Read) else 0
    dyadic = not isinstance(told, Fraction) or told.denominator & (told.denominator - 1) == 0
    return dyadic and all(map(whole, children(body)))


def agrees(got: np.ndarray, expected: np.ndarray, scope: Scope) -> None:
    """Bit for bit where nothing is rounded, else closely; what is no number there may be anything."""
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    exact = scale < LARGEST and all(whole(s.body) for s in scope.parts)
    same = np.isnan(expected) | (got == expected if exact else np.isclose(got, expected, rtol=1e-4, atol=1e-5 * scale))
    assert same.all(), f"{scope}\n{got[~same][:5]} instead of {expected[~same][:5]}"


def check_random(first: int, count: int) -> None:
    found = drawn(first, count)
    ops = [scattered(scope, seed) for seed, scope in found]
    kernels = [lower(op, f"random{seed}", threads=1 + seed % 2) for (seed, _), op in zip(found, ops, strict=True)]
    module = build(kernels)
    for kernel, op in zip(kernels, ops, strict=True):
        values = {n: np.round(2 * v) for n, v in random_values(op).items()}
        agrees(call(module, kernel, op, values), evaluate(op.scope, values, dtype="float64"), op.scope)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_small_scopes(first: int) -> None:
    check_random(first, 8)


@pytest.mark.parametrize("first", range(1000, 1080, 20))
def test_scopes_longer_than_vectors(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "TENSORS", LARGE)
    monkeypatch.setattr(strategies, "random_iterators", iterators)
    check_random(first, 6)


@pytest.mark.slow
def test_many_scopes_longer_than_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "TENSORS", LARGE)
    monkeypatch.setattr(strategies, "random_iterators", iterators)
    for first in range(10_000, 20_000, 1000):
        check_random(first, 60)
