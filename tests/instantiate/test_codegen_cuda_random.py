"""Random scopes as CUDA text over scattered operands, run on the host: on small integers they compute what is written, bit for bit."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.nodes import Iter, Mul, Scope, Tensor, read
from einnet.expr.notation.text import parse
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


MATRIX = Tensor("C", (4, 4), values=tuple(Fraction(v) for v in (1, 0, -1, 0, 0, 0, 0, 0, 0, -1, 2, 0, 0, 1, 0, -1)))
TRANSFORM = Scope(
    (Iter("p", 0, 4), Iter("q", 0, 4), Iter("f", 0, 40)), (Iter("i", 0, 4), Iter("j", 0, 4)),
    Mul((read(MATRIX, "p", "i"), read(MATRIX, "q", "j"), read(Tensor("D", (4, 4, 40)), "i", "j", "f"))),
)  # fmt: skip
FORMS = (
    "A : f32[40,50]\nL[i<40,j<50] A[i,j]*{L[i<40] Σ[k<50] A[i,k]}[i] + {L[j<50] Σ[k<40] A[k,j]}[j]",
    "A : f32[41,23]\nB : f32[23,29]\nR : f32[41,29]\nL[m<41,n<29] relu({L[m<41,n<29] Σ[k<23] A[m,k]*B[k,n]}[m,n] + R[m,n])",
    "A : f32[17,600]\nB : f32[40,600]\nL[m<17,n<40] Σ[k<600] A[m,k]*B[n,k]", "A : f32[19,5]\nL[i<19,j<5] A[i,j] + {L[i<19] Σ[k<0] A[i,k]}[i]",
)


def test_forms_of_grids() -> None:
    """Values stored between kernels, what is done with a sum, sums that lanes share, sums over nothing, and known matrices with rows of 0."""
    check_text([(n, scope) for n, scope in enumerate((TRANSFORM, *map(parse, FORMS)))])
