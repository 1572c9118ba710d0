"""Decompositions of small matrices run on one thread, and leave all else as it was."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from einnet.graph.blas import on_one_thread
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


def test_an_error_leaves_as_many_threads_as_there_were():
    @on_one_thread
    def failing() -> None:
        raise ArithmeticError

    with threadpool_limits(limits=2, user_api="blas"):
        with pytest.raises(ArithmeticError):
            failing()
        assert threads() == {2}
