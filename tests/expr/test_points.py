"""Evaluation at points against dense evaluation of the same pseudo-random tensors."""

from __future__ import annotations

import time
from itertools import product
from math import prod

import numpy as np
from hypothesis import given

from einnet.expr.functions.modular import P, add, inverse, multiply, random_function, seed_of
from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values import points as module
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import evaluate_at, work
from tests.strategies import repeatable, scopes

MANY = repeatable(80)


def pseudo_random(scope: Scope, seed: int) -> dict[str, np.ndarray]:
    return {n: random_function(seed_of(seed, n), (np.arange(np.prod(t.shape, dtype=int)).reshape(t.shape),)) for n, t in tensors(scope).items()}


@MANY
@given(scopes(depth=2))
def test_points_are_those_of_the_dense_values(scope: Scope) -> None:
    grid = np.asarray(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64).reshape(prod(scope.shape), len(scope.loops))
    want = evaluate(scope, pseudo_random(scope, 3), "mod").reshape(-1)
    assert (evaluate_at(scope, grid, 3) == want).all()


def test_points_outside_the_box_are_zero() -> None:
    scope = parse("A : f32[4]\nL[1<=i<3] A[i]")
    assert (evaluate_at(scope, np.asarray([[0], [1], [2], [3]]), 1) != 0).tolist() == [False, True, True, False]


def test_large_sums_are_chunked(monkeypatch) -> None:
    scope = parse("A : f32[40,50]\nB : f32[50,40]\nL[i<40,j<40] Σ[k<50,l<7] A[i,k]*B[k,j]*val(l)")
    at = np.asarray([[0, 0], [39, 39], [3, 8]])
    whole = evaluate_at(scope, at, 1)
    monkeypatch.setattr(module, "_CHUNK", 16)
    assert (evaluate_at(scope, at, 1) == whole).all()


def test_real_extents_are_no_matter() -> None:
    scope = parse("A : f32[56,56,512]\nK : f32[3,3,512,512]\nL[h<56,w<56,f<512] Σ[c<512,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]")
    at = np.random.default_rng(0).integers(0, 56, (64, 3))
    start = time.perf_counter()
    evaluate_at(scope, at, 1)
    assert time.perf_counter() - start < 2
    assert work(scope, 64) == 64 * 9 * 512


def test_field_arithmetic() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, P, (2, 500), dtype=np.uint64)
    a[:4], b[:4] = [0, 1, P - 1, P - 1], [0, P - 1, P - 1, 1]
    assert multiply(a, b).tolist() == [int(x) * int(y) % P for x, y in zip(a, b, strict=True)]
    assert add(a, b).tolist() == [(int(x) + int(y)) % P for x, y in zip(a, b, strict=True)]
    assert not add(a, multiply(a, np.uint64(P - 1))).any()
    assert (multiply(a, inverse(a)) == (a != 0)).all()
