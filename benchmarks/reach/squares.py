"""Probes of squares of products and of differences, and of means taken away by a product.

Differences of all pairs are element functions, of which none is left where distances are products.
"""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import ORDER, PULL, product
from benchmarks.reach.probes import Array, Probe

TRACE = "the trace of a product of small ones"
PAIRS = "|a|^2 + |b|^2 - 2ab"


def centring(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.eye(shape[0]) - 1.0 / shape[0]


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 1.0 + rng.random(shape)


def beside(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A diagonal beside one number."""
    return 0.01 + np.diag(rng.standard_normal(shape[0]))


SQUARES = (
    Probe(
        "norms_of_rows_of_a_layer", "x:512x64", "h = MatMul(x, W) m = Mul(h, h) y = ReduceSum<keepdims=0>(m, i_1)",
        product(512, 64, 64) + product(512, 64), "x (W W') x'", "W:64x512",
    ),
    Probe(
        "norm_of_small_rank", "A:256x16 B:16x256", "h = MatMul(A, B) m = Mul(h, h) y = ReduceSum<keepdims=0>(m, i_0_1)",
        2 * product(16, 16, 256) + product(16, 16), TRACE,
    ),
    Probe(
        "products_of_small_rank_compared", "A:256x32 B:32x256 C:256x32 D:32x256",
        "h = MatMul(A, B) g = MatMul(C, D) m = Mul(h, g) y = ReduceSum<keepdims=0>(m, i_0_1)", 2 * product(32, 32, 256) + product(32, 32), TRACE,
    ),
    Probe(
        "squared_scores", "q:512x8 k:512x8 v:512x8", "t = Transpose<perm=[1,0]>(k) s = MatMul(q, t) p = Mul(s, s) y = MatMul(p, v)",
        2 * product(512, 64, 8) + 2 * 512 * 64, "linear attention by products of two features",
    ),
    Probe(
        "cosines_times_values", "q:512x16 k:512x16 v:512x16",
        "a = ReduceL2<keepdims=1>(q, i_1) b = ReduceL2<keepdims=1>(k, i_1) c = Div(q, a) d = Div(k, b) t = Transpose<perm=[1,0]>(d) "
        "s = MatMul(c, t) y = MatMul(s, v)", 2 * product(512, 16, 16) + 4 * 512 * 16, ORDER,
    ),
    Probe(
        "distances", "a:256x64 b:256x64",
        "u = Unsqueeze(a, i_1) v = Unsqueeze(b, i_0) d = Sub(u, v) m = Mul(d, d) y = ReduceSum<keepdims=0>(m, i_2)",
        product(256, 256, 64) + 3 * 256 * 256, PAIRS, allow="precision", left=2 * 512 * 64,
    ),
    Probe(
        "distances_to_a_codebook", "x:256x64", "u = Unsqueeze(x, i_1) d = Sub(u, C) m = Mul(d, d) y = ReduceSum<keepdims=0>(m, i_2)",
        product(256, 128, 64) + 3 * 256 * 128, PAIRS, "C:128x64", allow="precision", left=2 * 256 * 64,
    ),
    Probe(
        "scaled_distances_to_a_codebook", "x:256x64",
        "u = Unsqueeze(x, i_1) d = Sub(u, C) e = Div(d, V) m = Mul(e, e) y = ReduceSum<keepdims=0>(m, i_2)",
        product(256, 128, 64) + 3 * 256 * 128, PAIRS, "C:128x64 V:64", {"V": positive}, "precision", left=4 * 256 * 64,
    ),
    Probe(
        "likelihoods_of_a_mixture", "x:256x64",
        "u = Unsqueeze(x, i_1) d = Sub(u, C) e = Div(d, V) m = Mul(e, e) s = ReduceSum<keepdims=0>(m, i_2) n = Neg(s) y = Softmax<axis=1>(n)",
        2 * product(256, 128, 64) + 8 * 256 * 128, PAIRS, "C:128x64 V:128x64", {"V": positive}, "precision", left=2 * 256 * 64,
    ),
    Probe(
        "nearest_code", "x:256x64",
        "u = Unsqueeze(x, i_1) d = Sub(u, C) m = Mul(d, d) s = ReduceSum<keepdims=0>(m, i_2) y = ReduceMin<keepdims=0>(s, i_1)",
        product(256, 128, 64) + 4 * 256 * 128, PAIRS, "C:128x64", allow="precision", left=2 * 256 * 64,
    ),
    Probe(
        "kernel_of_distances", "a:256x16 b:256x16 w:256x1",
        "u = Unsqueeze(a, i_1) v = Unsqueeze(b, i_0) d = Sub(u, v) m = Mul(d, d) s = ReduceSum<keepdims=0>(m, i_2) "
        "n = Neg(s) e = Exp(n) y = MatMul(e, w)",
        product(256, 256, 16) + product(256, 256), PAIRS, allow="precision", left=6 * 256 * 256,
    ),
    Probe("means_taken_away", "x:64x512", "y = MatMul(x, H)", 3 * 64 * 512, "a mean subtracted", "H:512x512", {"H": centring}),
    Probe(
        "means_taken_away_on_both_sides", "K:256x256", "a = MatMul(H, K) y = MatMul(a, H)", 6 * 256 * 256, "two means subtracted", "H:256x256",
        {"H": centring},
    ),
    Probe("diagonal_beside_a_number", "x:64x512", "y = MatMul(x, H)", 4 * 64 * 512, "a sum beside a scale", "H:512x512", {"H": beside}),
    Probe("all_of_a_product", "A:256x512 B:512x256", "h = MatMul(A, B) y = ReduceSum<keepdims=0>(h, i_0_1)", 2 * 256 * 512 + product(512), PULL),
)  # fmt: skip
