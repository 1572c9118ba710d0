"""What a generated kernel executes is counted as it is written; code that computes its parts again and again is predicted so, and refused."""

from __future__ import annotations

import pytest
from tvm import tirx

from einnet.errors import BackendError
from einnet.expr.index import var
from einnet.expr.nodes import Iter, Scope, tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen import executed, ir, lower
from einnet.instantiate.codegen.operation_counts import flops
from einnet.instantiate.kernels import EOperator, dense_view

SIDE, NARROW, WIDE = 6, 16, 32
X = f"X : f32[1,{SIDE},{SIDE},{WIDE}]\nW : f32[{NARROW},{WIDE}]\nV : f32[{WIDE},{2 * NARROW}]\n"
AT = f"L[n<1,h<{SIDE},w<{SIDE}"
SUM = f"{{{AT},f<{NARROW}] Σ[c<{WIDE}] X[n,h,w,c]*W[f,c]}}[n,h,w,c]"
GATED = f"{{{AT},c<{NARROW}] {SUM}*sigmoid({SUM})}}"


def pooled(of: str) -> str:
    return f"{{{AT},c<{NARROW}] max[r<5,s<5] {of}[n,h+r-2,w+s-2,c]|-inf}}"


TWICE = pooled(pooled(GATED))
BESIDE = f"{{L[h<{SIDE},w<{SIDE},c<{2 * NARROW}] select(c-{NARROW}>=0, {pooled(TWICE)}[0,h,w,c-{NARROW}], {TWICE}[0,h,w,c])}}"
MIXED = f"{{L[h<{SIDE},w<{SIDE},f<{WIDE}] Σ[c<{2 * NARROW}] {BESIDE}[h,w,c]*V[f,c]}}[h,w,f]"
POOLED = f"{X}L[h<{SIDE},w<{SIDE},f<{WIDE}] {MIXED}*sigmoid({MIXED})"
"""Windows of windows in a product, twice: more than a kernel keeps."""

USUAL = {
    "convolution": "A : f32[14,14,8]\nK : f32[3,3,8,8]\nL[h<14,w<14,f<8] Σ[c<8,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]",
    "softmax": "A : f32[16,32]\nL[i<16,j<32] exp(A[i,j])/{L[i<16] Σ[k<32] exp(A[i,k])}[i]",
    "two sums": "A : f32[16,16]\nB : f32[16,16]\nL[i<16,j<16] Σ[k<16] {L[i<16,k<16] Σ[l<16] A[i,l]*B[l,k]}[i,k]*B[k,j]",
    "no sum": "A : f32[16,16]\nL[i<16,j<16] A[j,i] + 1",
}


SHIFTED = """X : f32[24,24,16]
L[h<24,w<24,c<16] Σ[r<3,s<3] {L[h<24,w<24,c<16] X[h,w,c] - {L[] Σ[a<24,b<24,d<16] X[a,b,d]}[]}[h+r-1,w+s-1,c]"""
"""A pooled window of what is normalised by all of it: beside the border the sum is computed, too, but once."""


def kernel(text: str) -> EOperator:
    scope: Scope = parse(text)
    return EOperator(scope, tuple((t.name, dense_view(t.name, t.shape)) for t in tensors(scope).values()), dense_view("out", scope.shape))


def written(s: tirx.Stmt) -> int:
    """Statements of a function that are executed at most."""
    if isinstance(s, tirx.For):
        return written(s.body) * int(s.extent)
    if isinstance(s, tirx.SeqStmt):
        return sum(map(written, s.seq))
    if isinstance(s, tirx.IfThenElse):
        return max(written(s.then_case), written(s.else_case) if s.else_case is not None else 0)
    return 1


def test_code_that_computes_its_parts_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    again = kernel(POOLED)
    assert lower(again, "few_steps").flops == flops(again.scope)
    monkeypatch.setattr(executed, "MANY", 0)
    monkeypatch.setattr(executed, "AGAIN", 1)
    with pytest.raises(BackendError, match="again and again"):
        lower(again, "many_steps")


@pytest.mark.parametrize("name", USUAL)
def test_other_code_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executed, "MANY", 0)
    usual = kernel(USUAL[name])
    lower(usual, "usual")
    assert 0 < executed.executed(usual) <= 4 * max(flops(usual.scope), 256)


def test_a_sum_that_a_border_does_not_move_is_computed_once() -> None:
    assert executed.executed(kernel(SHIFTED)) < flops(kernel(SHIFTED).scope)


@pytest.mark.parametrize("text", [POOLED, SHIFTED, *USUAL.values()], ids=["pooled", "shifted", *USUAL])
def test_the_count_is_that_of_the_text(text: str) -> None:
    operator = kernel(text)
    statements = written(lower(operator, "text").primfunc.body)
    assert statements / 4 <= executed.executed(operator) <= 4 * statements


SIGNS = "H : weight f32[4,4] = [1,1,1,1, 1,-1,1,-1, 1,1,-1,-1, 1,-1,-1,1]\nX : f32[5,32]\n"


def test_rows_of_a_known_matrix_share_their_sums() -> None:
    """Eight additions for four sums of four numbers, and four loads and stores, with two vectors for 32 numbers."""
    assert executed.executed(kernel(SIGNS + "L[k<4,m<32] Σ[n<4] H[3-k,n]*X[n,m]")) == 2 * (4 + 8 + 4)


@pytest.mark.parametrize("text", ["L[k<5,m<32] Σ[n<4] H[k-1,n]*X[n,m]", "L[k<4,m<32] Σ[n<5] H[k,n-1]*X[n,m]"])
def test_beside_a_known_matrix_there_is_nothing_to_share(text: str) -> None:
    """Where it is read beside its elements, what stands there is 0 by a condition and no element: it counts as any other operand."""
    assert executed.executed(kernel(SIGNS + text)) > executed.executed(kernel(SIGNS + "L[k<4,m<32] Σ[n<4] H[k,n]*X[n,m]"))


def test_steps_are_counted_once_however_they_are_asked_for() -> None:
    """For a prediction on this processor, and for whether to write the kernel at all."""
    one = kernel(USUAL["softmax"])
    executed.executed(one)
    before = executed._executed.cache_info().misses
    assert executed.executed(one, executed.LANES) == executed.executed(one, floats=executed.LANES) == executed.executed(one)
    assert executed._executed.cache_info().misses == before


def test_what_is_used_twice_is_looked_into_once() -> None:
    """A function that is used in each of two functions, and so on, would be walked through twice as often at each level."""
    e: ir.Expr = ir.Load("a", var("i"))
    for depth in range(40):
        function = ir.Function(f"f{depth}", (Iter("i", 0, 8),), e)
        e = ir.Apply("add", (ir.Use(function, (var("i"),)), ir.Use(function, (var("i"),))))
    nodes = [x for x, _ in ir.expanded(e, {"i": (0, 8)})]
    assert len(nodes) == 1 + 40 * 3 and len({x for x in nodes if isinstance(x, ir.Use)}) == 40
    other = ir.Apply("add", (ir.Use(function, (var("i"),)), ir.Reduce("sum", (Iter("i", 0, 3),), ir.Use(function, (var("i"),)))))
    assert {ranges["i"] for x, ranges in ir.expanded(other, {"i": (0, 8)}) if isinstance(x, ir.Load)} == {(0, 8), (0, 3)}
