"""CUDA text of eOperators: what it computes through the host's compiler, how it is launched, and what is stored between kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from einnet.expr.evaluate import evaluate
from einnet.expr.nodes import Tensor, tensors
from einnet.expr.text import parse
from einnet.instantiate.codegen.cuda import CudaOperator, lower_cuda
from einnet.instantiate.codegen.resolve import OUT
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cuda import shim

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")


def operator(text: str, shapes: dict[str, tuple[int, ...]], out: View | None = None) -> EOperator:
    scope = parse(text, {name: Tensor(name, shape) for name, shape in shapes.items()})
    return EOperator(scope, tuple((n, dense_view(n, t.shape)) for n, t in tensors(scope).items()), out or dense_view("out", scope.shape))


def execute(made: CudaOperator, arrays: dict[str, np.ndarray]) -> None:
    library = shim._compiled(shim.compiler(), shim.source({"k": made.text}, {k.name: len(k.arguments) for k in made.kernels}))
    arrays = arrays | {name: np.full(size, np.nan, np.float32) for name, size in made.stages}
    for k in made.kernels:
        pointers = (ctypes.c_void_p * len(k.arguments))(*(arrays[a].ctypes.data for a in k.arguments))
        getattr(library, f"run_{k.name}")(pointers, k.grid[0], k.block[0])


CASES = {
    "offset reduce": "L[h<9,w<7,f<6] Σ[r<3,s<3] A[h+r-1,w+s-1,f,r,s]",
    "transpose": "L[a<33,b<5,c<17] A[c,a,b]",
    "phases": "L[h<8,w<6] A[h%2,w%2,h//2,w//2]",
    "fraction": "L[h<9] Σ[r<4] A[(h-r+1)/2]*K[r]",
    "softmax": "L[i<6,j<40] exp(A[i,j]-{L[i<6] max[l<40] A[i,l]}[i])/{L[i<6] Σ[k<40] exp(A[i,k]-{L[i<6] max[l<40] A[i,l]}[i])}[i]",
    "functions": "L[i<50] tanh(A[i])+sigmoid(A[i])*erf(A[i])+softplus(A[i])+log(abs(A[i])+1)+sqrt(abs(A[i]))",
    "band": "L[i<12,j<5] Σ[k<4] Q[i,k]*P[i+2*j-4,k]",
    "few channels": "L[h<6,w<6,f<2] relu({L[h<6,w<6,f<2] Σ[c<3,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]}[h,w,f])",
}
BOXES = {
    "offset reduce": {"A": (9, 7, 6, 3, 3)}, "transpose": {"A": (17, 33, 5)}, "phases": {"A": (2, 2, 4, 3)}, "fraction": {"A": (4,), "K": (4,)},
    "softmax": {"A": (6, 40)}, "functions": {"A": (50,)}, "band": {"Q": (12, 4), "P": (12, 4)}, "few channels": {"A": (6, 6, 3), "K": (3, 3, 2, 3)},
}  # fmt: skip


def case(name: str) -> EOperator:
    return operator(CASES[name], BOXES[name])


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_text_computes_the_expression(name):
    op = case(name)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    out = np.full(op.out.shape, np.nan, np.float32)
    execute(lower_cuda(op, "k"), {**{f"operand {n}": given[name] for n, (name, _) in enumerate(op.operands)}, OUT: out})
    wanted = evaluate(op.scope, given)
    np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())


def test_what_many_threads_need_is_stored_once():
    made = lower_cuda(case("softmax"), "k")
    assert [size for _, size in made.stages] == [6, 6]
    assert [k.grid[0] * k.block[0] for k in made.kernels] == [32, 32, 256]
    assert made.kernels[-1].arguments[-1] == OUT or OUT in made.kernels[-1].arguments


def test_what_one_thread_needs_is_not_stored():
    made = lower_cuda(case("few channels"), "k")
    assert not made.stages
    assert len(made.kernels) == 1


def test_neighbouring_threads_write_neighbouring_elements():
    made = lower_cuda(operator("L[i<64,j<64] A[i,j]+1", {"A": (64, 64)}, View("out", (64, 64), (1, 64))), "k")
    assert made.kernels[0].block == (256, 1, 1)
    assert made.kernels[0].grid == (16, 1, 1)


def test_restrict_is_promised_only_where_nothing_is_shared():
    op = operator("L[i<8] relu(A[i])", {"A": (8,)})
    assert "__restrict__" in lower_cuda(op, "k").text
    alias = EOperator(op.scope, (("A", dense_view("out", (8,))),), op.out)
    assert "__restrict__" not in lower_cuda(alias, "k").text
