"""Matrices of a batch get another row so that they start in different cache sets; everything that views them follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Post, View, dense_view
from einnet.instantiate.padding import Stack, padded, restrided
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


def test_crowding() -> None:
    """36 matrices a page apart share one set; an odd number of lines apart, none shares one with more than its neighbours."""
    assert Stack("t", 36, 16, 64).crowded and Stack("t", 36, 16, 64).overlap == 64
    assert not Stack("t", 36, 17, 16).crowded and Stack("t", 36, 17, 16).overlap == 1
    assert not Stack("t", 8, 16, 64).crowded
    assert not Stack("t", 36, 16, 21).crowded


def chain(batch: int, rows: int, columns: int) -> tuple[list[Kernel], dict[str, Buffer]]:
    """A copy into t, the product u = t·w, a copy out of u."""
    shape = (batch, rows, columns)
    scope = parse(f"X : f32[{batch},{rows},{columns}]\nL[b<{batch},m<{rows},k<{columns}] X[b,m,k]")
    first = EOperator(scope, (("X", dense_view("x", shape)),), dense_view("t", shape))
    last = EOperator(scope, (("X", dense_view("u", shape)),), dense_view("y", shape))
    product = Matmul(dense_view("t", shape), dense_view("w", (batch, columns, columns)), dense_view("u", shape))
    return [first, product, last], {n: Buffer(n, batch * rows * columns, "f32", "temporary") for n in "tu"}


def test_a_row_is_added_to_both_sides() -> None:
    kernels, buffers = padded(*chain(36, 16, 64))
    first, product, last = kernels
    assert isinstance(first, EOperator) and isinstance(product, Matmul) and isinstance(last, EOperator)
    assert product.a == dense_view("t", (36, 17, 64)) and product.c == dense_view("u", (36, 17, 64))
    assert first.out == View("t", (36, 16, 64), (17 * 64, 64, 1)) and dict(last.operands)["X"] == View("u", (36, 16, 64), (17 * 64, 64, 1))
    assert {b.size for b in buffers.values()} == {36 * 17 * 64}


@pytest.mark.parametrize("shape", [(8, 16, 64), (36, 17, 64), (36, 16, 21), (36, 17, 512)], ids=["few", "odd", "no whole lines", "no gain"])
def test_what_is_not_crowded_or_gains_nothing_stays(shape: tuple[int, int, int]) -> None:
    assert padded(*chain(*shape)) == chain(*shape)


def test_what_somebody_else_views_otherwise_stays() -> None:
    kernels, buffers = chain(36, 16, 64)
    flat = (36 * 16 * 64,)
    across = EOperator(parse(f"T : f32[{flat[0]}]\nL[i<{flat[0]}] T[i]"), (("T", dense_view("t", flat)),), dense_view("z", flat))
    _, product, _ = kernels
    assert isinstance(product, Matmul)
    biased = replace(product, post=(Post("add", View("r", (36, 16, 64), (1024, 64, 1))),))
    second = replace(product, a=dense_view("u", (36, 16, 64)), c=dense_view("y", (36, 16, 64)))
    for more in ([*kernels, across], [kernels[0], biased, kernels[2]], [*kernels, second]):
        assert padded(more, buffers) == (more, buffers)
    assert padded(kernels, {"t": buffers["t"]}) == (kernels, {"t": buffers["t"]}), "a result that is given out is no temporary"


def test_a_product_of_matrices_with_themselves_stays() -> None:
    """Another row of the one operand would be another column of the other."""
    (first, product, last), buffers = chain(36, 64, 64)
    assert padded([first, product, last], buffers)[0] != [first, product, last]
    assert isinstance(product, Matmul)
    squared = [first, replace(product, b=View("t", (36, 64, 64), (4096, 1, 64))), last]
    assert padded(squared, buffers) == (squared, buffers)


def test_padded_kernels_compute_the_expression() -> None:
    source = parse("A : f32[1,8,8,64]\nK : weight f32[3,3,64,64]\nL[n<1,h<8,w<8,f<64] Σ[c<64,r<3,s<3] A[n,h+r-1,w+s-1,c]*K[r,s,c,f]")
    values = integers(source)
    seen = 0
    for form in Space(Options(max_depth=1, rules=("bilinear",))).forms(source):
        products = [k for k in build(form.tree, dict(form.matches), "out").kernels if isinstance(k, Matmul)]
        if any(k.a.shape[-2] in (5, 17) for k in products):
            seen += 1
            assert abs(run(form.tree, dict(form.matches), values) - evaluate(source, values)).max() < 1e-6
    assert seen
