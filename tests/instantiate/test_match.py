"""Matching by the iterator mapping tables: which operator, which roles, which attributes; and what differs where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einnet.derivation.normalise import normalise
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.kernels import Conv, Matmul
from einnet.instantiate.matching.tables import BATCHED_MATMUL, CONV, MATMUL
from einnet.instantiate.matching.types import Match, Table
from einnet.instantiate.registry import TABLES
from tests.derivation.generators import correlations, scopes
from tests.instantiate.numpy_kernels import integers, run
from tests.search.catalogue import CATALOGUE, expression

C, M, B = CONV, MATMUL, BATCHED_MATMUL

FOUND = {
    ("convolutions: conv1d", C): "Conv(n=1, o=w, f=f, c=c, r=s, g=1)",
    ("convolutions: conv3x3 nchw", C): "Conv(n=n, o=h*w, f=f, c=c, r=r*s, g=1)",
    ("convolutions: conv3x3 nhwc", C): "Conv(n=n, o=h*w, f=f, c=c, r=r*s, g=1)",
    ("convolutions: conv3d", C): "Conv(n=1, o=d*h*w, f=f, c=c, r=q*r*s, g=1)",
    ("convolutions: groups split", C): "Conv(n=1, o=h*w, f=f, c=c, r=r*s, g=g)",
    ("convolutions: groups nchw", C): "Conv(n=1, o=h*w, f=f, c=c, r=r*s, g=g)",
    ("convolutions: depthwise", C): "Conv(n=1, o=h*w, f=1, c=1, r=r*s, g=c)",
    ("convolutions: k x 1", C): "Conv(n=1, o=h*w, f=f, c=c, r=r, g=1)",
    ("convolutions: 1x1", M): "Matmul(m=h*w, n=f, k=c)",
    ("convolutions: 1x1 stride 2", C): "Conv(n=1, o=h*w, f=f, c=c, r=1, g=1)",
    ("convolutions: 1x1 stride 2", B): "BatchedMatmul(m=w, n=f, k=c, b=h)",
    ("matmuls: matmul", M): "Matmul(m=m, n=n, k=k)",
    ("matmuls: matmul tn", M): "Matmul(m=m, n=n, k=k)",
    ("matmuls: matmul nt", M): "Matmul(m=m, n=n, k=k)",
    ("matmuls: matmul tt", M): "Matmul(m=m, n=n, k=k)",
    ("matmuls: matmul transposed result", M): "Matmul(m=n, n=m, k=k)",
    ("matmuls: matmul swapped", M): "Matmul(m=m, n=n, k=k)",
    ("matmuls: batched", B): "BatchedMatmul(m=m, n=n, k=k, b=b)",
    ("matmuls: batched heads", B): "BatchedMatmul(m=m, n=n, k=k, b=h)",
    ("matmuls: broadcast batch", M): "Matmul(m=b*m, n=n, k=k)",
    ("matmuls: matrix vector", M): "Matmul(m=1, n=m, k=k)",
    ("matmuls: dot", M): "Matmul(m=1, n=1, k=k)",
    ("matmuls: two sums", M): "Matmul(m=m, n=n, k=k*l)",
    ("transposed: transposed 4x4", C): "ConvTranspose(n=1, o=h*w, f=f, c=c, r=r*s, g=1)",
    ("transposed: transposed dilated", C): "ConvTranspose(n=1, o=h, f=f, c=c, r=r, g=1)",
    ("transposed: transposed groups", C): "ConvTranspose(n=1, o=h, f=f, c=c, r=r, g=g)",
}

DIFFERS = (
    ("convolutions: conv3x3", M, "read outside its box [0,5)"),
    ("convolutions: groups", C, "loop f is divided by 3"),
    ("convolutions: groups split", M, "iterator g stands in both operands and in the result"),
    ("convolutions: 1x1", C, "no dimension is a window"),
    ("convolutions: 1x1", B, "it is a plain Matmul"),
    ("convolutions: 1x1 nchw", M, "the rows or columns of the result are not adjacent"),
    ("matmuls: two sums crossed", M, "do not nest alike in both operands (B would be copied)"),
    ("matmuls: batched inner", B, "innermost loop b is a batch loop"),
    ("matmuls: outer sum", M, "no product of two reads"),
    ("matmuls: two batches, one broadcast", B, "the rows or columns of the result are not adjacent"),
    ("matmuls: three factors", M, "no product of two reads"),
    ("matmuls: matmul", C, "0 spatial dimensions"),
    ("tails: pool", C, "it is no sum (max)"),
    ("tails: elementwise", M, "it is no sum (no summation iterator)"),
)

BACK_TO_FRONT = """
A : f32[7,4,4]
S : f32[9,9,2]
L1 : f32[9,3]
V : f32[12]
J : weight f32[3,4,2]
K : weight f32[3,3,2,2]
H : weight f32[3,2]
M : f32[5,6]
N : f32[6,4]
"""

CLOSE = (
    ("L[h<7,f<2] Σ[r<3,c<4] A[h+r-1,c,c]*J[r,c,f]", C, "iterator c stands in two dimensions of A"),
    ("L[h<7,f<2] Σ[r<3,s<3,c<2] S[h+r,h+s,c]*K[r,s,c,f]", C, "iterator h stands in two dimensions of S"),
    ("L[h<7,w<7,f<2] Σ[r<3,c<2] S[h+r,w+r,c]*K[r,r,c,f]", C, "iterator r stands in two dimensions of S"),
    ("L[h<7,f<2] Σ[r<3] L1[h+r,r]*H[r,f]", C, "iterator r stands in two dimensions of L1"),
    ("L[h<6,f<2] Σ[r<3] V[11-h-r]*H[r,f]", C, "the window runs backwards"),
    ("L[h<6,f<2] Σ[r<3,s<3] V[h+r+s]*K[r,s,0,f]", C, "no window of one loop and one tap"),
    ("L[h<6,f<2] Σ[r<3] V[(h+r)//2]*H[r,f]", C, "floor division"),
    ("L[m<5,n<4] Σ[k<6] M[4-m,k]*N[k,n]", M, "read backwards along m"),
    ("L[m<5,n<4] Σ[k<6] M[m,k]|1*N[k,n]", M, "another fill than 0"),
    ("L[m<5,n<4] Σ[k<6] M[m,k]", M, "no product of two reads"),
    ("L[m<5,n<4] Σ[k<6,l<5] M[m,k]*N[k,l]", M, "summation iterator l does not stand in both operands"),
    ("L[m<5,n<4,x<3] Σ[k<6] M[m,k]*N[k,n]", M, "loop x stands in no operand"),
    ("L[m<5] max[k<6] M[m,k]*N[k,0]", M, "it is no sum (max)"),
)


@pytest.mark.parametrize(("name", "table"), FOUND, ids=[f"{t.name}, {n}" for n, t in FOUND])
def test_operator_and_roles(name: str, table: Table) -> None:
    result = table.match(normalise(expression(name))[0])
    assert isinstance(result, Match), result
    assert str(result) == FOUND[name, table]


@pytest.mark.parametrize(("name", "table", "why"), DIFFERS, ids=[f"{t.name}, {n}" for n, t, _ in DIFFERS])
def test_what_differs(name: str, table: Table, why: str) -> None:
    result = table.match(normalise(expression(name))[0])
    assert isinstance(result, list) and result
    assert any(why in m.why for m in result), [m.why for m in result]


@pytest.mark.parametrize(("text", "table", "why"), CLOSE, ids=[why for _, _, why in CLOSE])
def test_expressions_that_only_look_like_an_operator(text: str, table: Table, why: str) -> None:
    result = table.match(parse(BACK_TO_FRONT + text))
    assert isinstance(result, list) and any(why in m.why for m in result), result


ATTRIBUTES = (
    ("A[2*h+3*r-1,c]", "A : f32[12,2]", (2,), (3,), (1,), False),
    ("A[h+r-2,c]", "A : f32[7,2]", (1,), (1,), (2,), False),
    ("A[h+r+1,c]", "A : f32[12,2]", (1,), (1,), (0,), False),
    ("A[(h-r+1)/2,c]", "A : f32[4,2]", (2,), (1,), (1,), True),
    ("A[(h-2*r+3)/3,c]", "A : f32[4,2]", (3,), (2,), (3,), True),
)


@pytest.mark.parametrize(("read", "declared", "strides", "dilations", "begins", "transposed"), ATTRIBUTES, ids=[a[0] for a in ATTRIBUTES])
def test_attributes_are_read_off_the_coefficients(
    read: str, declared: str, strides: tuple[int, ...], dilations: tuple[int, ...], begins: tuple[int, ...], transposed: bool
) -> None:
    result = CONV.match(parse(f"{declared}\nK : weight f32[3,2,3]\nL[h<7,f<3] Σ[r<3,c<2] {read}*K[r,c,f]"))
    assert isinstance(result, Match) and isinstance(result.kernel, Conv)
    assert (result.kernel.strides, result.kernel.dilations, result.kernel.pads_begin) == (strides, dilations, begins)
    assert result.kernel.transposed is transposed


@pytest.mark.parametrize("orders", ["mk,kn", "km,kn", "mk,nk", "km,nk"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_transpose_is_a_pair_of_strides(orders: str, swapped: bool) -> None:
    left, right = orders.split(",")
    sizes = {"m": 5, "k": 7, "n": 6}
    a, b = (f"{name} : f32[{','.join(str(sizes[d]) for d in dims)}]" for name, dims in (("A", left), ("B", right)))
    product = [f"A[{','.join(left)}]", f"B[{','.join(right)}]"]
    result = MATMUL.match(parse(f"{a}\n{b}\nL[m<5,n<6] Σ[k<7] {'*'.join(product[::-1] if swapped else product)}"))
    assert isinstance(result, Match) and isinstance(result.kernel, Matmul)
    assert result.kernel.a.shape == (5, 7) and result.kernel.a.strides == ((7, 1) if left == "mk" else (1, 5))
    assert result.kernel.b.shape == (7, 6) and result.kernel.b.strides == ((6, 1) if right == "kn" else (1, 7))


def test_strides_of_a_matched_kernel_never_run_backwards() -> None:
    for name in CATALOGUE:
        source = normalise(expression(name))[0]
        for table in TABLES:
            result = table.match(source)
            if isinstance(result, Match):
                views = result.kernel.operand_views
                assert all(s >= 0 for v in views for s in v.strides), (name, views)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.one_of(correlations(), correlations(), scopes(depth=0)), st.sampled_from(TABLES))
def test_a_match_computes_the_expression(source: Scope, table: Table) -> None:
    source = normalise(source)[0]
    result = table.match(source)
    if isinstance(result, Match):
        values = integers(source)
        np.testing.assert_array_equal(run(source, {source: result}, values), evaluate(source, values))
    else:
        assert result and all(m.why for m in result)
