"""Probes of sums, concatenations and slices of products: what is read of them, and what their parts have in common."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import FOLD, ORDER, PULL, product
from benchmarks.reach.planes import X, conv
from benchmarks.reach.probes import Array, Probe

ASKED = "only what is read"
FACTORS = "distributivity"


def four(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.full(shape, 4.0)


def two(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.full(shape, 2.0)


HEADS = "a = MatMul(x, W0) b = MatMul(x, W1) c = MatMul(x, W2) d = MatMul(x, W3)"
FOUR = "W0:256x128 W1:256x128 W2:256x128 W3:256x128"

PARTS = (
    Probe(
        "mean_of_four_layers", "x:64x256", f"{HEADS} e = Add(a, b) f = Add(e, c) g = Add(f, d) y = Div(g, q)", product(64, 256, 128), FOLD,
        f"{FOUR} q:1", {"q": four},
    ),
    Probe("four_heads_projected", "x:64x256", f"{HEADS} e = Concat<axis=1>(a, b, c, d) y = MatMul(e, U)", product(64, 256, 128), FOLD,
          f"{FOUR} U:512x128"),
    Probe(
        "two_layers_side_by_side_then_a_layer", "x:64x256", "a = MatMul(x, W) b = MatMul(x, V) c = Concat<axis=1>(a, b) y = MatMul(c, U)",
        product(64, 256, 64), FOLD, "W:256x256 V:256x256 U:512x64",
    ),
    Probe(
        "products_of_two_sums", "A:128x64 B:128x64 C:64x128 D:64x128",
        "a = MatMul(A, C) b = MatMul(A, D) c = MatMul(B, C) d = MatMul(B, D) e = Add(a, b) f = Add(c, d) y = Add(e, f)",
        product(128, 64, 128) + 2 * 128 * 64, FACTORS,
    ),
    Probe(
        "one_layer_of_two_scaled", "a:64x256 b:64x256", "s = MatMul(a, W) t = MatMul(b, W) e = Add(s, t) y = Mul(e, h)",
        product(64, 256, 128) + 64 * 256, FACTORS, "W:256x128 h:1",
    ),
    Probe(
        "one_layer_of_two_compared", "a:64x256 b:64x256", "s = Gemm<transB=1>(a, W, c) t = Gemm<transB=1>(b, W, c) y = Sub(s, t)",
        product(64, 256, 128) + 64 * 256, f"{FACTORS}; the bias cancels", "W:128x256 c:128",
    ),
    Probe("residual_then_a_layer", "x:64x256", "h = MatMul(x, W) a = Add(h, x) y = MatMul(a, V)", product(64, 256, 64), FOLD,
          "W:256x256 V:256x64"),
    Probe("mean_over_heads", "x:64x256", 'h = Einsum<equation="bi,hio->bho">(x, W) y = ReduceMean<keepdims=0>(h, i_1)', product(64, 256, 64), FOLD,
          "W:8x256x64"),
    Probe("rows_of_a_product", "A:512x256 B:256x256", "h = MatMul(A, B) y = Slice(h, i_0, i_64, i_0)", product(64, 256, 256), ASKED),
    Probe("padded_then_a_layer", "x:64x128", "p = Pad(x, i_0_0_0_128) y = MatMul(p, W)", product(64, 128, 256), ASKED, "W:256x256"),
    Probe("crop_of_a_conv", "x:1x32x32x32", "h = Conv<pads=[1,1,1,1]>(x, W) y = Slice(h, i_0_0, i_16_16, i_2_3)", conv(32, 32, 9, 16, 16), ASKED,
          "W:32x32x3x3"),
    Probe("sum_of_all_pairs_then_a_layer", "a:256x1x32 b:1x256x32", "s = Add(a, b) y = MatMul(s, W)", 2 * product(256, 32, 64) + 256 * 256 * 64,
          "each summand once", "W:32x64"),
    Probe("features_repeated", "x:64x64", "u = Unsqueeze(x, i_2) e = Expand(u, i_64_64_4) r = Reshape(e, i_64_256) y = MatMul(r, W)",
          product(64, 64, 128), FOLD, "W:256x128"),
    Probe("projected_keys_and_queries", "x:512x64", "q = MatMul(x, W) k = MatMul(x, V) t = Transpose<perm=[1,0]>(k) y = MatMul(q, t)",
          product(512, 64, 64) + product(512, 64, 512), ORDER, "W:64x256 V:64x256"),
    Probe("weighted_mean_over_time", "x:8x64x128 g:8x64x1", "h = MatMul(x, W) p = Softmax<axis=1>(g) m = Mul(h, p) y = ReduceSum<keepdims=0>(m, i_1)",
          2 * 8 * 64 * 128 + product(8, 128, 128), PULL, "W:128x128"),
    Probe(
        "three_filters_of_one_plane", X,
        "a = Conv<pads=[1,0,1,0]>(x, W) b = Conv<pads=[0,1,0,1]>(x, V) c = Conv<pads=[1,1,1,1]>(x, U) d = Add(a, b) y = Add(c, d)",
        conv(64, 64, 9, 32, 32), "ACNet", "W:64x64x3x1 V:64x64x1x3 U:64x64x3x3",
    ),
    Probe(
        "conv_less_a_conv_of_twice", X, "a = Conv<pads=[1,1,1,1]>(x, W) d = Add(x, x) b = Conv<pads=[1,1,1,1]>(d, V) y = Sub(a, b)",
        conv(64, 64, 9, 32, 32), FOLD, "W:64x64x3x3 V:64x64x3x3",
    ),
    Probe(
        "conv_less_half_of_twice", X, "a = Conv<pads=[1,1,1,1]>(x, W) d = Mul(x, t) b = Conv<pads=[1,1,1,1]>(d, W) h = Div(b, t) y = Sub(a, h)",
        0, "the same for all numbers", "W:64x64x3x3 t:1", {"t": two},
    ),
)  # fmt: skip
