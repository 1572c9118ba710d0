"""Random scopes as CUDA text over scattered operands, run on the host: on small integers they compute what is written, bit for bit."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.nodes import Scope
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.cuda.emit import CudaOperator, lower_cuda
from einnet.instantiate.codegen.resolve import OUT
from einnet.instantiate.kernels import EOperator
from einnet.runtime.cuda import shim
from tests import strategies
from tests.instantiate.compiled import GUARD, memory_for, random_values, scattered, window
from tests.instantiate.test_codegen_random import LARGE, agrees, drawn, iterators

pytestmark = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")


def launched(library: ctypes.CDLL, made: CudaOperator, op: EOperator, values: dict[str, np.ndarray]) -> np.ndarray:
    """The result; fails where anything was written outside of it."""
    held = {OUT: memory_for(op.out, float(GUARD), room=19), **{name: np.full(size, np.nan, np.float32) for name, size in made.stages}}
    for n, (name, view) in enumerate(op.operands):
        held[f"operand {n}"] = memory_for(view, np.nan)
        window(view, held[f"operand {n}"])[...] = values[name]
    for k in made.kernels:
        pointers = (ctypes.c_void_p * len(k.arguments))(*(held[a].ctypes.data for a in k.arguments))
        assert getattr(library, f"run_{k.name}")(pointers, k.grid[0], k.block[0]) == 0
    result = window(op.out, held[OUT]).copy()
    window(op.out, held[OUT])[...] = GUARD
    assert (held[OUT] == GUARD).all(), "elements outside the output were written"
    return result


def check_text(found: list[tuple[int, Scope]]) -> None:
    ops = [scattered(scope, seed) for seed, scope in found]
    made = [lower_cuda(op, f"k{n}") for n, op in enumerate(ops)]
    library = shim.compiled({f"k{n}": m.text for n, m in enumerate(made)}, {k.name: len(k.arguments) for m in made for k in m.kernels})
    for m, op in zip(made, ops, strict=True):
        values = {n: np.round(2 * v) for n, v in random_values(op).items()}
        agrees(launched(library, m, op, values), evaluate(op.scope, values, dtype="float64"), op.scope)


def test_small_scopes() -> None:
    check_text(drawn(2000, 8))


def test_scopes_longer_than_a_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "TENSORS", LARGE)
    monkeypatch.setattr(strategies, "random_iterators", iterators)
    check_text(drawn(3000, 7))
