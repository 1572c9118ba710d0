"""Random scopes as kernels over scattered operands, many in one module."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.nodes import Iter, Scope, Tensor, nested
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen import build, lower
from tests import strategies
from tests.instantiate.compiled import call, random_values, scattered

LARGE = (Tensor("A", (37,)), Tensor("B", (9, 20)), Tensor("K", (2, 18)), Tensor("X", (7, 5, 19)), Tensor("S", ()))
MOST_STEPS = 100_000


def steps(scope: Scope) -> int:
    own = 1
    for i in (*scope.loops, *scope.sums):
        own *= i.extent
    return own + sum(steps(s) for s in nested(scope))


def iterators(rng: Random, names: tuple[str, ...], count: int, extent: int = 3) -> tuple[Iter, ...]:
    lows = [rng.choice((0, 0, 0, -1, 1)) for _ in range(count)]
    return tuple(Iter(n, lo, lo + rng.choice((1, 2, 3, 5, 8, 17, 20, 33))) for n, lo in zip(names, lows, strict=False))


def check_random(first: int, count: int) -> None:
    found: list[tuple[int, Scope]] = []
    seed = first
    while len(found) < count:
        scope = strategies.random_scope(Random(seed), depth=seed % 3)
        if steps(scope) <= MOST_STEPS:
            found.append((seed, scope))
        seed += 1
    ops = [scattered(scope, seed) for seed, scope in found]
    kernels = [lower(op, f"random{seed}", threads=1 + seed % 2) for (seed, _), op in zip(found, ops, strict=True)]
    module = build(kernels)
    for kernel, op in zip(kernels, ops, strict=True):
        values = {n: np.round(2 * v) for n, v in random_values(op).items()}
        expected = evaluate(op.scope, values, dtype="float64")
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
        got = call(module, kernel, op, values)
        same = np.isnan(expected) | np.isclose(got, expected, rtol=1e-4, atol=1e-5 * scale)
        assert same.all(), f"{kernel.name}: {op.scope}\n{got[~same][:5]} instead of {expected[~same][:5]}"


def test_small_scopes() -> None:
    check_random(0, 40)


def test_scopes_longer_than_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "TENSORS", LARGE)
    monkeypatch.setattr(strategies, "random_iterators", iterators)
    check_random(1000, 25)


@pytest.mark.slow
def test_many_scopes_longer_than_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "TENSORS", LARGE)
    monkeypatch.setattr(strategies, "random_iterators", iterators)
    for first in range(10_000, 20_000, 1000):
        check_random(first, 60)
