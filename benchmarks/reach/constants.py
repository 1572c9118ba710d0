"""Probes of models, or parts of models, that compute what depends on no input, and of numbers that stand between a product and its sum."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import PULL, ones, product
from benchmarks.reach.probes import Array, Probe

NOTHING = "the same for all numbers"


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


LAYER = "h = Gemm<transB=1>(x, W, b)"

CONSTANTS = (
    Probe(
        "greatest_less_its_mean", "x:128x512",
        f"{LAYER} m = ReduceMax<keepdims=1>(h, i_1) c = ReduceMean<keepdims=1>(m, i_1) d = Sub(m, c) y = Tanh(d)",
        0, f"{NOTHING} (KernelBench 2.80)", "W:512x512 b:512",
    ),
    Probe(
        "clips_that_meet", "x:4x3x8x16x16", "h = Conv(x, K, b) m = Min(h, zero) y = Clip(m, zero, one)",
        0, f"{NOTHING} (KernelBench 2.83)", "K:16x3x3x3x3 b:16 zero: one:", {"zero": zeros, "one": ones},
    ),
    Probe(
        "mean_of_normalised_rows", "x:128x512", f"{LAYER} n = LayerNormalization(h, s, z) y = ReduceMean<keepdims=0>(n, i_1)",
        0, f"{NOTHING} (KernelBench 2.23, rows for groups)", "W:512x512 b:512 s:512 z:512", {"s": ones, "z": zeros},
    ),
    Probe(
        "softmax_of_one", "x:4x8x16x16", "h = Conv(x, K, b) m = ReduceMean<keepdims=1>(h, i_1) s = Softmax<axis=1>(m) y = Tanh(s)",
        0, NOTHING, "K:16x8x3x3 b:16",
    ),
    Probe(
        "deviations_beside_a_product", "x:128x512",
        f"{LAYER} m = ReduceMean<keepdims=1>(h, i_1) d = Sub(h, m) s = ReduceSum<keepdims=1>(d, i_1) g = MatMul(x, V) y = Add(g, s)",
        product(128, 512, 64), NOTHING, "W:512x512 b:512 V:512x64",
    ),
    Probe(
        "layer_less_a_number_mean", "x:128x512",
        f"{LAYER} d = Sub(h, c) m = ReduceMean<keepdims=1>(d, i_1) e = ReduceLogSumExp<keepdims=1>(m, i_1) y = Add(e, x)",
        product(128, 512), f"{PULL} (KernelBench 2.51)", "W:512x512 b:512 c:1",
    ),
)  # fmt: skip
"""People who solved a benchmark by hand have called two of these a hack; here they are derived, and proven."""
