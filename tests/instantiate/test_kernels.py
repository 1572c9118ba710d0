"""What kernels are as generated ones, and which operators a library has."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.epilogue_kernels import posted
from einnet.instantiate.kernels import Conv, Post, View, dense_view
from einnet.instantiate.kernels.generated import expressed, from_zero
from einnet.instantiate.registry import tables_for
from tests.instantiate.numpy_kernels import execute, posts, window
from tests.instantiate.numpy_kernels import extents as extents_of

OPERANDS = [View("r", (4, 6), (1, 4)), View("b", (1, 6), (1, 1)), View("c", (4, 1), (2, 1), 1), View("s", (1, 1), (1, 1))]
STEPS: list[tuple[Post, ...]] = [(), (Post("relu"),), (Post("relu", None, 0.5), Post("linear", None, 1.0, 3.0))]
STEPS += [(Post("linear", None, 2.0, -1.0), Post("clip", None, -3.0, 4.0))]
STEPS += [(Post(kind, view), Post("relu"), Post("add", OPERANDS[1])) for kind in ("add", "mul") for view in OPERANDS]


@pytest.mark.parametrize("steps", STEPS, ids=lambda s: " ".join(f"{p.kind}{p.operand.shape if p.operand else ''}" for p in s) or "none")
def test_posts_as_a_kernel_of_their_own(steps: tuple[Post, ...]) -> None:
    rng = np.random.default_rng(len(steps))
    buffers = {n: rng.integers(-6, 7, 24).astype(np.float64) for n in ("y", "r", "b", "c", "s")} | {"out": np.full(29, np.nan)}
    kernel = posted(dense_view("y", (4, 6)), steps, View("out", (4, 6), (7, 1), 1))
    execute(kernel, buffers)
    np.testing.assert_array_equal(window(kernel.out, buffers), posts(buffers["y"].reshape(4, 6), steps, buffers))


@pytest.mark.parametrize("text", ["L[i<9,j<7] A[i,j]", "L[2<=i<5,j<7] A[i,j]", "L[2<=i<5,-1<=j<3] A[i,j]*2", "L[2<=i<5] Σ[1<=k<4] A[i,k]"])
def test_loops_that_begin_elsewhere_are_read_from_0(text: str) -> None:
    scope = parse(f"A : f32[9,7]\n{text}")
    found, given = from_zero(scope), {"A": np.arange(63.0).reshape(9, 7)}
    assert all(i.lo == 0 for i in found.loops)
    np.testing.assert_array_equal(evaluate(found, given), evaluate(scope, given))


def convolution(rng: Random) -> Conv:
    """A convolution of one or two dimensions, transposed or not, over dense operands."""
    rank, transposed = rng.choice((1, 2)), rng.random() < 0.4
    groups, f, c, n = (rng.randint(1, 3) for _ in range(4))
    taps, strides, dilations, begins = (tuple(rng.randint(lo, 3 + lo) for _ in range(rank)) for lo in (1, 1, 1, 0))
    ends, extents = (tuple(rng.randint(lo, lo + 4) for _ in range(rank)) for lo in (0, 9))
    x, w = dense_view("x", (n, groups * c, *extents)), dense_view("w", (groups, f, c, *taps))
    made = Conv(x, w, dense_view("y", (n, groups * f, *extents)), strides, dilations, begins, ends, transposed)
    shape = extents_of(made, extents, list(taps))
    return replace(made, y=dense_view("y", (n, groups * f, *shape)))


@pytest.mark.parametrize("seed", range(24))
def test_what_a_convolution_means_is_what_it_computes(seed: int) -> None:
    rng = Random(seed)
    kernel = convolution(rng)
    while min(kernel.y.shape) < 1:
        kernel = convolution(rng)
    draws = np.random.default_rng(seed)
    buffers = {v.buffer: draws.integers(-4, 5, prod(v.shape)).astype(np.float64) for v in kernel.inputs}
    results = []
    for one in (kernel, expressed(kernel)):
        results.append(np.full(prod(kernel.y.shape), np.nan))
        execute(one, buffers | {"y": results[-1]})
    np.testing.assert_array_equal(*results)


def test_operators_of_libraries() -> None:
    """A card's library is asked for contractions alone; and those that lose NaN are none where NaN counts."""
    contractions = ["Matmul", "BatchedMatmul", "Conv", "Conv of 3 taps"]
    names = {(backend, finite): [t.name for t in tables_for(backend, finite)] for backend in ("cpu", "cuda") for finite in (True, False)}
    assert names == {
        ("cpu", True): [*contractions, "MaxPool", "Softmax"], ("cpu", False): contractions, ("cuda", True): contractions,
        ("cuda", False): contractions,
    }  # fmt: skip
