"""Products, convolutions and posts in the terms of CUDA's libraries, against what the kernels mean."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, Plan, Post, View, dense_view
from einnet.runtime.arena import span
from einnet.runtime.cuda.gemm import addressable
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import Gemm, Generated
from tests.instantiate.numpy_kernels import execute


def run(kernel: Kernel, seed: int = 0) -> tuple[np.ndarray, np.ndarray, tuple[object, ...]]:
    """The program's result and that of the kernel's meaning, on integers: both are exact. And the program's steps."""
    rng = np.random.default_rng(seed)
    views, (out,) = kernel.operand_views, kernel.result_views
    sizes: dict[str, int] = {}
    for v in (*views, out):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), span(v))
    values = {b: rng.integers(-3, 4, n).astype(np.float32) for b, n in sizes.items() if b != out.buffer}
    buffers = [Buffer(b, n, "f32", "output" if b == out.buffer else "input") for b, n in sizes.items()]
    flat = {b: dense_view(b, (n,)) for b, n in sizes.items()}
    plan = Plan(tuple(buffers), (kernel,), tuple((b, flat[b]) for b in values), ((out.buffer, out),))
    program = lower(plan)
    expected = {**{b: v.astype(np.float64) for b, v in values.items()}, out.buffer: np.zeros(sizes[out.buffer])}
    execute(kernel, expected)
    wanted = np.lib.stride_tricks.as_strided(expected[out.buffer][out.offset :], out.shape, [8 * s for s in out.strides])
    return Host(program, "expression")(values)[out.buffer], wanted, program.steps


@st.composite
def products(draw: st.DrawFn) -> Matmul:
    """Random products: every order of dimensions, padding, broadcast and overlapping batches."""
    size = st.integers(1, 5)
    m, n, k = draw(size), draw(size), draw(size)
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))

    def view(name: str, rows: int, columns: int, free: bool) -> View:
        shape = (*(b if name != "b" or draw(st.booleans()) else 1 for b in batch), rows, columns)
        order = draw(st.permutations(range(len(shape))))
        strides, step = [0] * len(shape), 1
        for d in order:
            strides[d] = step
            step *= shape[d] + draw(st.integers(0, 2)) * (d >= len(batch))
        if free and batch and draw(st.booleans()):
            strides[0] = draw(st.integers(0, 3))
        return View(name, shape, tuple(strides), draw(st.integers(0, 20)))

    return Matmul(view("a", m, k, True), view("b", k, n, True), view("c", m, n, False))


@settings(max_examples=25)
@given(products())
def test_products_with_all_strides(kernel):
    got, wanted, steps = run(kernel)
    np.testing.assert_array_equal(got, wanted)
    assert sum(isinstance(s, Gemm) for s in steps) == 1
    assert len(steps) == 1 + sum(not addressable(v) for v in (kernel.a, kernel.b, kernel.c))


def test_neighbouring_batch_dimensions_become_one():
    a, b, c = dense_view("a", (2, 3, 4, 5)), dense_view("b", (2, 3, 5, 6)), dense_view("c", (2, 3, 4, 6))
    (step,) = run(Matmul(a, b, c))[2]
    assert [x.count for x in step.batches] == [6]
    (step,) = run(Matmul(a, replace(b, shape=(1, 3, 5, 6)), c))[2]
    assert [(x.count, x.b) for x in step.batches] == [(2, 0), (3, 30)]


BIAS, SCALE = dense_view("p", (1, 6)), dense_view("p", (4, 1))


@pytest.mark.parametrize(
    ("post", "generated"),
    [
        ((Post("add", BIAS), Post("relu")), 0), ((Post("relu"),), 0), ((Post("add", SCALE),), 1), ((Post("mul", BIAS),), 1),
        ((Post("relu", alpha=0.5),), 1), ((Post("relu"), Post("add", BIAS)), 1), ((Post("clip", None, -1.0, 2.0), Post("linear", None, 2.0, 1.0)), 1),
        ((Post("clip", None, float("-inf"), 2.0),), 1),
    ],
)  # fmt: skip
def test_posts_of_products(post, generated):
    got, wanted, steps = run(Matmul(dense_view("a", (4, 5)), dense_view("b", (5, 6)), dense_view("c", (4, 6)), post))
    np.testing.assert_array_equal(got, wanted)
    assert sum(isinstance(s, Generated) for s in steps) == generated


def test_posts_of_a_result_that_has_to_be_copied():
    c = View("c", (4, 6), (12, 2))
    got, wanted, steps = run(Matmul(dense_view("a", (4, 5)), dense_view("b", (5, 6)), c, (Post("add", BIAS), Post("relu"))))
    np.testing.assert_array_equal(got, wanted)
    assert [type(s) for s in steps] == [Gemm, Generated]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "dilation", "pads"), [(1, 1, (1, 1)), (2, 1, (0, 1)), (3, 2, (2, 0)), (1, 2, (0, 0))])
def test_convolutions(transposed, groups, stride, dilation, pads):
    taps, given_, channels, filters = 3, 7, 2, 3
    reach = (taps - 1) * dilation + 1
    made = (given_ - 1) * stride + reach - sum(pads) if transposed else (given_ + sum(pads) - reach) // stride + 1
    x, y = dense_view("x", (2, groups * channels, given_, given_)), dense_view("y", (2, groups * filters, made, made))
    w = dense_view("w", (groups, filters, channels, taps, taps))
    post = (Post("add", dense_view("b", (1, groups * filters, 1, 1))), Post("add", dense_view("r", y.shape)), Post("relu"))
    kernel = Conv(x, w, y, (stride,) * 2, (dilation,) * 2, (pads[0],) * 2, (pads[1],) * 2, transposed, post)
    got, wanted, steps = run(kernel)
    np.testing.assert_array_equal(got, wanted)
    assert len(steps) == (3 if transposed else 1), "the filters of a transposed convolution lie otherwise in a model"


def test_weights_that_cudnn_cannot_take_are_copied_when_lowering():
    w = View("w", (2, 3, 2, 1, 1), (1, 2, 6, 12, 12))
    kernel = Conv(dense_view("x", (1, 4, 2, 2)), w, dense_view("y", (1, 6, 2, 2)), (1, 1), (1, 1), (0, 0), (0, 0))
    values = np.arange(12, dtype=np.float32)
    buffers = (Buffer("x", 16, "f32", "input"), Buffer("y", 24, "f32", "output"), Buffer("w", 12, "f32", "constant"))
    program = lower(Plan(buffers, (kernel,), (("x", kernel.x),), (("y", kernel.y),), {"w": values}))
    assert len(program.steps) == 1
    expected = {"x": np.arange(16.0), "w": values.astype(np.float64), "y": np.zeros(24)}
    execute(kernel, expected)
    got = Host(program, "expression")({"x": np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)})["y"]
    np.testing.assert_array_equal(got.reshape(-1), expected["y"])


def test_products_beyond_the_largest_number_are_infinite_without_a_word() -> None:
    kernel = Matmul(dense_view("a", (2, 3)), dense_view("b", (3, 2)), dense_view("c", (2, 2)))
    buffers = (Buffer("a", 6, "f32", "input"), Buffer("b", 6, "f32", "input"), Buffer("c", 4, "f32", "output"))
    program = lower(Plan(buffers, (kernel,), (("a", kernel.operand_views[0]), ("b", kernel.operand_views[1])), (("c", kernel.result_views[0]),)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = Host(program, "expression")({"a": np.full((2, 3), 1e30, np.float32), "b": np.full((3, 2), 1e30, np.float32)})["c"]
    assert np.isposinf(got).all()
