"""Decompositions and products of small matrices run on one thread, and leave all else as it was."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from einnet.evidence.error_limits import bounded_at
from einnet.expr.notation.text import parse
from einnet.expr.values.arithmetic import Machine
from einnet.expr.values.blas import on_one_thread
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import values_at
from einnet.graph.passes import low_rank, table_factors


def threads() -> set[int]:
    """Of all libraries of linear algebra in this process."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def fourier() -> np.ndarray:
    k = np.arange(64)
    return np.cos(2 * np.pi / 64 * np.outer(k, k)).astype(np.float32).reshape(1, 64, 1, 64, 1)


@pytest.mark.parametrize(("inside", "call"), [
    ("qr", lambda: low_rank.low_rank(np.random.default_rng(0).standard_normal((96, 80)).astype(np.float32), ("sum", "loop"))),
    ("svd", lambda: low_rank.low_rank(np.ones((96, 80), np.float32), ("sum", "loop"))),
    ("svd", lambda: table_factors.factored(fourier())),
])  # fmt: skip
def test_weights_are_decomposed_on_one_thread(inside, call, monkeypatch):
    seen: list[set[int]] = []
    compute = getattr(np.linalg, inside)
    monkeypatch.setattr(np.linalg, inside, lambda *args, **options: seen.append(threads()) or compute(*args, **options))
    with threadpool_limits(limits=2, user_api="blas"):
        call()
        assert threads() == {2}
    assert seen and all(found == {1} for found in seen)


PRODUCT = "A : f32[8,9]\nB : f32[9,5]\nL[h<8,n<5] Σ[k<9] A[h,k]*B[k,n]"
ARRAYS = {"A": np.ones((8, 9), np.float32), "B": np.ones((9, 5), np.float32)}
PLACE = np.array([[1, 2]])


@pytest.mark.parametrize("call", [
    lambda scope: evaluate(scope, ARRAYS, "float64"),
    lambda scope: values_at(scope, PLACE, Machine("float64"), lambda t, address: np.take(ARRAYS[t.name], address)),
    lambda scope: bounded_at(scope, PLACE, ARRAYS, {}),
])  # fmt: skip
def test_expressions_are_evaluated_on_one_thread(call, monkeypatch):
    seen: list[set[int]] = []

    def seeing(compute):
        return lambda *args, **options: seen.append(threads()) or compute(*args, **options)

    for name in ("einsum", "take", "sum"):
        monkeypatch.setattr(np, name, seeing(getattr(np, name)))
    with threadpool_limits(limits=2, user_api="blas"):
        call(parse(PRODUCT))
        assert threads() == {2}
    assert seen and all(found == {1} for found in seen)


def test_an_error_leaves_as_many_threads_as_there_were():
    @on_one_thread
    def failing() -> None:
        raise ArithmeticError

    with threadpool_limits(limits=2, user_api="blas"):
        with pytest.raises(ArithmeticError):
            failing()
        assert threads() == {2}
