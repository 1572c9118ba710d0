"""Products inside products, in blocks of rows: numbers, NaN, what is stored for a block, and what is no block."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import Scope
from einnet.expr.normal.inline import inline
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import builds
from einnet.instantiate.codegen.blocking.panels import packed
from einnet.instantiate.codegen.blocking.rows import rows
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Load, walk
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import EOperator
from tests.instantiate.compiled import build, call, check, dense, lower, random_values, scattered


def attention(heads: int, queries: int, keys: int, size: int, mask: str = "", bias: str = "", width: int = 0) -> Scope:
    """Softmax of the scores, by which the values are weighted; divided by the normaliser at the end."""
    scores = f"{{L[b<{heads},m<{queries},n<{keys}] Σ[k<{size}] Q[b,m,k]*K[b,n,k]}}"
    if mask or bias:
        more = " + ".join(filter(None, (f"{scores}[b,m,n]", mask, bias)))
        scores = f"{{L[b<{heads},m<{queries},n<{keys}] {more}}}"
    top = f"{{L[b<{heads},m<{queries}] max[n<{keys}] {scores}[b,m,n]}}"
    raised = f"{{L[b<{heads},m<{queries},n<{keys}] exp({scores}[b,m,n] - {top}[b,m])}}"
    total = f"{{L[b<{heads},m<{queries}] Σ[n<{keys}] {raised}[b,m,n]}}"
    width = width or size
    given = [("Q", (heads, queries, size)), ("K", (heads, keys, size)), ("V", (heads, keys, width)), *([("B", (queries, keys))] if bias else [])]
    declared = "\n".join(f"{n} : f32{list(shape)}" for n, shape in given)
    loops = f"L[b<{heads},m<{queries},d<{width}]"
    return parse(f"{declared}\n{loops} {{{loops} Σ[n<{keys}] {raised}[b,m,n]*V[b,n,d]}}[b,m,d]/{total}[b,m]")


CAUSAL = "select(m-n>=0, 0, -inf)"
CASES = {
    "plain": attention(2, 32, 48, 16),
    "causal and biased": attention(2, 32, 32, 8, CAUSAL, "B[m,n]"),
    "rows that are no multiple": attention(1, 27, 32, 16),
    "keys that are no multiple": attention(2, 40, 37, 16, width=24),
}


def nest_of(scope: Scope) -> object:
    return rows(normalise(resolve(dense(scope))))


@pytest.mark.parametrize("name", CASES)
def test_blocks_of_rows_compute_the_expression(name: str) -> None:
    assert nest_of(CASES[name])
    check([scattered(CASES[name], 3)])


def test_threads_share_the_blocks() -> None:
    kernels = check([dense(attention(1, 64, 64, 16, CAUSAL)), dense(attention(4, 40, 32, 16))], threads=2)
    assert all(kernel.parallel for kernel in kernels)


def test_no_step_stores_all_scores() -> None:
    (blocks,) = rows(normalise(resolve(dense(attention(2, 512, 640, 16)))))
    assert max(fill.size for fill in blocks.steps) == 8 * 640


def test_what_all_blocks_read_is_packed_once() -> None:
    (blocks,) = rows(normalise(resolve(dense(attention(2, 64, 48, 16)))))
    found = packed(blocks)
    assert [fill.size for fill in found.packs] == [48 * 16]
    arrays = {x.array for fill in found.steps for x in walk(fill.nest.expr) if isinstance(x, Load)}
    assert "K" not in arrays and "Q" in arrays


def test_a_projection_is_computed_once_and_not_for_each_block() -> None:
    projected = "{L[n<64,k<16] Σ[c<24] X[n,c]*W[c,k]}"
    scores = f"{{L[m<64,n<64] Σ[k<16] A[m,k]*{projected}[n,k]}}"
    scope = parse(f"A : f32[64,24]\nX : f32[64,24]\nW : f32[24,16]\nV : f32[64,16]\nL[m<64,d<16] Σ[n<64] {scores}[m,n]*V[n,d]")
    (blocks,) = rows(normalise(resolve(dense(scope))))
    assert [fill.size for fill in blocks.packs] == [64 * 16]
    check([dense(scope)])


@pytest.mark.parametrize("text", [
    "A : f32[64,64]\nB : f32[64,64]\nL[m<64,n<64] Σ[k<64] A[m,k]*B[k,n]",
    "A : f32[64,64]\nL[m<64,n<64] A[m,n]/{L[m<64] Σ[k<64] exp(A[m,k])}[m]",
    "A : f32[64]\nB : f32[64,64]\nL[n<64] Σ[k<64] {L[k<64] Σ[j<64] A[j]*B[j,k]}[k]*B[k,n]",
])  # fmt: skip
def test_what_has_no_rows(text: str) -> None:
    assert nest_of(parse(text)) is None


def test_nan_and_masked_rows_are_as_the_expression_has_them() -> None:
    """A NaN of Q is in its row, one of K everywhere; a row without any key is NaN, for 0/0 is."""
    case = attention(1, 24, 32, 8, "select(m-n>=4, 0, -inf)")
    op = dense(case)
    kernel = lower(op, "masked")
    values = random_values(op)
    values["Q"][0, 11, 3] = np.nan
    values["V"][0, 5, 2] = np.inf
    wanted = evaluate(case, values, dtype="float32")
    got = call(build([kernel]), kernel, op, values)
    assert np.isnan(got[0, :4]).all() and np.isnan(got[0, 11]).all() and not np.isnan(got[0, 12]).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_one_way_to_run_it_stores_nothing() -> None:
    case = attention(2, 32, 32, 8, CAUSAL)
    made = list(builds(case, {}, "out"))
    (kernel,) = made[-1].kernels
    assert isinstance(kernel, EOperator) and not made[-1].temporaries
    assert inline(kernel.scope).key == inline(case).key


def test_transforms_are_no_products() -> None:
    text = "T : weight f32[4,4] = [1,0,0,1,1,1,0,0,0,1,1,0,0,0,1,1]\nA : f32[4,16,8]\nB : f32[4,8,8]\n"
    scope = parse(text + "L[t<4,m<16,n<8] Σ[s<4] T[t,s]*{L[s<4,m<16,n<8] Σ[k<8] A[s,m,k]*B[s,k,n]}[s,m,n]")
    assert all(not b.temporaries or len(b.kernels) > 1 for b in builds(scope, {}, "out"))
    assert sum(1 for _ in builds(scope, {}, "out")) == 1
