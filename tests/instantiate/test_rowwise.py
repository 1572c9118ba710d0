"""Rows that one team of threads reduces, reduces again and writes: numbers, launches, and what has no rows."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.emit import lower_cuda
from einnet.instantiate.codegen.cuda.rowwise import divided, row
from einnet.instantiate.codegen.resolve import OUT, resolve
from einnet.instantiate.kernels import EOperator, dense_view
from einnet.runtime.cuda import nvrtc
from tests.instantiate.cuda_cases import operator
from tests.instantiate.test_codegen_cuda import execute, needs_compiler


def softmax(rows: str, size: int, score: str) -> str:
    top = f"{{L[{rows}] max[l<{size}] {score.replace('J', 'l')}}}[b,i]"
    total = f"{{L[{rows}] Σ[k<{size}] exp({score.replace('J', 'k')}-{top})}}[b,i]"
    return f"L[{rows},j<{size}] exp({score.replace('J', 'j')}-{top})/{total}"


MEAN = "{L[i<7] Σ[k<77] 1/77*A[i,k]}[i]"
CASES = {
    "softmax": (softmax("b<3,i<5", 45, "A[b,i,J]"), {"A": (3, 5, 45)}),
    "long softmax": (softmax("b<2,i<3", 1500, "A[b,i,J]"), {"A": (2, 3, 1500)}),
    "masked softmax": (softmax("b<2,i<37", 37, "(A[b,i,J]+M[i,J])"), {"A": (2, 37, 37), "M": (37, 37)}),
    "softmax of a band": (softmax("b<2,i<9", 33, "A[b,i,J]*B[i+J-4]"), {"A": (2, 9, 33), "B": (37,)}),
    "along the first dimension": ("L[j<50,i<6] exp(A[j,i])/{L[i<6] Σ[k<50] exp(A[k,i])}[i]", {"A": (50, 6)}),
    "normalised": (f"L[i<7,j<77] (A[i,j]-{MEAN})/sqrt(1/100+{{L[i<7] Σ[k<77] 1/77*(A[i,k]-{MEAN})*(A[i,k]-{MEAN})}}[i])*G[j]",
                   {"A": (7, 77), "G": (77,)}),
    "one row": ("L[j<300] A[j]/{L[o<1] Σ[k<300] abs(A[k])}[0]", {"A": (300,)}),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_rows_are_one_launch_and_the_expression(name):
    op = operator(*CASES[name])
    made = lower_cuda(op, "k")
    assert len(made.kernels) == 1 and not made.stages
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    out = np.full(op.out.shape, np.nan, np.float32)
    execute(made, {**{f"operand {i}": given[n] for i, (n, _) in enumerate(op.operands)}, OUT: out})
    wanted = evaluate(op.scope, given, dtype="float64")
    np.testing.assert_allclose(out, wanted, rtol=3e-6, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("text", "boxes"), [
    ("L[i<40,j<50] A[i,j]*{L[i<40] Σ[k<50] A[i,k]}[i]*{L[j<50] Σ[k<40] A[k,j]}[j]", {"A": (40, 50)}),
    ("L[i<40,j<8] A[i,j]*{L[i<40] Σ[k<8] A[i,k]}[i]", {"A": (40, 8)}),
    ("L[i<4,j<9000] A[i,j]*{L[i<4] Σ[k<9000] A[i,k]}[i]", {"A": (4, 9000)}),
    ("L[i<40,j<50] relu(A[i,j])", {"A": (40, 50)}),
])  # fmt: skip
def test_other_nests_have_no_rows(text, boxes):
    assert row(normalise(resolve(operator(text, boxes)))) is None


def test_a_row_that_is_written_where_it_is_read_is_not_reduced_meanwhile():
    op = operator(*CASES["along the first dimension"])
    same = EOperator(op.scope, (("A", dense_view("out", (50, 6))),), op.out)
    assert len(lower_cuda(op, "k").kernels) == 1
    assert len(lower_cuda(same, "k").kernels) == 2
    assert len(divided(resolve(same), apart=False).nests) == 2


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("name", CASES)
def test_rows_compile_for_the_card_without_spills(name):
    assert not any(r.spilled for r in nvrtc.resources(lower_cuda(operator(*CASES[name]), "k").text).values())
