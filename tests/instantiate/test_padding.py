"""Matrices of a batch are moved apart so that they start in different cache sets; everything that views them follows."""

from __future__ import annotations

import pytest

from einnet.expr.evaluate import evaluate
from einnet.expr.text import parse
from einnet.instantiate.build import build
from einnet.instantiate.kernels import LINE, Buffer, EOperator, Matmul, View, dense_view
from einnet.instantiate.padding import matrix_sizes, padded, restrided
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import integers, run


def test_addresses_follow() -> None:
    """Element (i, j, k) lies where q·size + r has become q·wanted + r."""
    view = View("t", (6, 3, 4), (64, 20, 2), 129)
    moved = restrided(view, 64, 80)
    assert moved is not None
    for i in range(6):
        for j in range(3):
            for k in range(4):
                before = view.offset + i * 64 + j * 20 + k * 2
                assert moved.offset + sum(s * n for s, n in zip(moved.strides, (i, j, k))) == before // 64 * 80 + before % 64


@pytest.mark.parametrize("view", [View("t", (100,), (1,)), View("t", (6, 64), (64, 1), 1), View("t", (3, 64), (96, 1)), View("t", (4, 40), (64, 2))])
def test_a_view_that_crosses_matrices_is_refused(view: View) -> None:
    assert restrided(view, 64, 80) is None


def product(batch: int, size: int) -> list[EOperator | Matmul]:
    scope = parse(f"X : f32[{batch},4,{size // 4}]\nL[b<{batch},m<4,k<{size // 4}] X[b,m,k]")
    copy = EOperator(scope, (("X", dense_view("x", scope.shape)),), dense_view("t", scope.shape))
    k = size // 4
    return [copy, Matmul(dense_view("t", (batch, 4, k)), dense_view("w", (batch, k, 8)), dense_view("y", (batch, 4, 8)))]


def test_only_many_matrices_an_even_number_of_lines_apart_are_padded() -> None:
    for batch, size, wanted in ((16, 1024, 1024 + LINE), (16, 1024 + LINE, None), (4, 1024, None), (16, 1000, None)):
        kernels, found = padded(list(product(batch, size)), {"t": Buffer("t", batch * size, "f32", "temporary")})
        (step,) = {s for k in kernels for s in matrix_sizes(k, "t")}
        assert step == (wanted or size)
        assert found["t"].size == batch * step


def test_a_buffer_that_something_reads_across_its_matrices_stays() -> None:
    kernels = product(16, 1024)
    across = EOperator(parse("T : f32[16384]\nL[i<16384] T[i]"), (("T", dense_view("t", (16384,))),), dense_view("z", (16384,)))
    buffers = {"t": Buffer("t", 16384, "f32", "temporary")}
    assert padded([*kernels, across], buffers) == ([*kernels, across], buffers)


def test_padded_kernels_compute_the_expression() -> None:
    source = parse("A : f32[1,8,8,32]\nK : weight f32[3,3,32,32]\nL[n<1,h<8,w<8,f<32] Σ[c<32,r<3,s<3] A[n,h+r-1,w+s-1,c]*K[r,s,c,f]")
    values = integers(source)
    seen = 0
    for form in Space(Options(max_depth=1, rules=("bilinear",))).forms(source):
        made = build(form.tree, dict(form.matches), "out")
        steps = {s for name in made.temporaries for k in made.kernels for s in matrix_sizes(k, name)}
        if any(s // LINE % 2 for s in steps):
            seen += 1
            assert abs(run(form.tree, dict(form.matches), values) - evaluate(source, values)).max() < 1e-6
    assert seen
