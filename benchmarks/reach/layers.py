"""Probes of whole layers: what several parts of a model leave out together, and what one query or a few pairs cost."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.again import REPEATED, first_columns, first_rows
from benchmarks.reach.linear import EINSUM, FOLD, ORDER, PULL, ZEROS, product
from benchmarks.reach.parts import ASKED, FACTORS
from benchmarks.reach.planes import SEPARABLE, conv
from benchmarks.reach.probes import Array, Probe


def sobel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Differences along each of two dimensions, smoothed along the other."""
    across = np.outer([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0])
    return np.stack([across[None], across.T[None]])


def haar(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    pair = np.array([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
    return np.stack([np.outer(a, b)[None] for a in pair for b in pair])


def cosines(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    k, n = np.indices(shape)
    return np.cos(np.pi * (2 * n + 1) * k / (2 * shape[0]))


def half_of_the_filters(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Filters of which every other one, drawn at random, is 0: what pruning leaves."""
    return rng.standard_normal(shape) * (rng.permutation(shape[0]) < shape[0] // 2)[:, None, None, None] / 17.0


SCORES = "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) o = MatMul(p, v)"
PROJECTED = f"q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, V) {SCORES}"
FIRST = "y = Slice(o, i_0, i_1, i_1)"

LAYERS = (
    Probe("first_token_of_attention", "q:8x64x32 k:8x64x32 v:8x64x32", f"{SCORES} {FIRST}", 8 * (2 * product(64, 32) + 5 * 64), ASKED),
    Probe("first_token_of_projected_attention", "x:8x64x128", f"{PROJECTED} {FIRST}", 8 * (3 * product(128, 128) + 2 * product(64, 128) + 5 * 64),
          ASKED, "Q:128x128 K:128x128 V:128x128"),
    Probe("last_token_of_a_block", "x:4x64x128",
          "n = LayerNormalization<axis=-1>(x, g, b) h = MatMul(n, W) r = Relu(h) o = MatMul(r, V) a = Add(o, x) s = Slice(a, i_63, i_64, i_1) "
          "y = MatMul(s, U)", 4 * (2 * product(128, 256) + product(128, 100)), ASKED, "g:128 b:128 W:128x256 V:256x128 U:128x100"),
    Probe("pooled_by_a_learned_query", "x:8x64x128",
          "k = MatMul(x, K) s = MatMul(k, q) p = Softmax<axis=1>(s) t = Transpose<perm=[0,2,1]>(p) v = MatMul(x, V) y = MatMul(t, v)",
          8 * (2 * product(64, 128) + product(128, 128) + 5 * 64), ORDER, "K:128x128 q:128x1 V:128x128"),
    Probe("attention_over_constants", "x:64x128",
          "k = MatMul(m, K) v = MatMul(m, V) q = MatMul(x, Q) t = Transpose<perm=[1,0]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) "
          "o = MatMul(p, v) y = MatMul(o, O)", 2 * product(64, 128, 16) + 64 * 16 * 5, FOLD,
          "m:16x128 K:128x128 V:128x128 Q:128x128 O:128x128"),
    Probe("one_row_through_two_layers", "x:1x64", "e = Expand(x, i_256_64) s = Softmax<axis=1>(e) h = MatMul(s, W) r = Relu(h) y = MatMul(r, V)",
          2 * product(64, 64), REPEATED, "W:64x64 V:64x64"),
    Probe("queries_of_a_batch", "q:1x16x64 k:8x64x64 v:8x64x64",
          "e = Expand(q, i_8_16_64) n = LayerNormalization<axis=-1>(e, g, b) p = MatMul(n, Q) t = Transpose<perm=[0,2,1]>(k) s = MatMul(p, t) "
          "w = Softmax<axis=-1>(s) y = MatMul(w, v)", product(16, 64, 64) + 8 * 2 * product(16, 64, 64), REPEATED, "g:64 b:64 Q:64x64"),
    Probe("condition_at_every_place", "x:1x64x32x32 c:1x16",
          "h = MatMul(c, W) r = Relu(h) u = Unsqueeze(r, i_2_3) e = Expand(u, i_1_64_32_32) a = Concat<axis=1>(x, e) "
          "y = Conv<pads=[1,1,1,1]>(a, V)", conv(64, 64, 9, 32, 32), REPEATED, "W:16x64 V:64x128x3x3"),
    Probe("every_second_of_two_convs", "x:1x16x64x64",
          "a = Conv<pads=[1,1,1,1]>(x, W) r = Relu(a) b = Conv(r, V) y = MaxPool<kernel_shape=[1,1], strides=[2,2]>(b)",
          conv(16, 16, 10, 32, 32), ASKED, "W:16x16x3x3 V:16x16x1x1"),
    Probe("crop_of_two_convs", "x:1x8x64x64",
          "a = Conv<pads=[1,1,1,1]>(x, W) r = Relu(a) b = Conv<pads=[1,1,1,1]>(r, V) s = Slice(b, i_16_16, i_48_48, i_2_3) y = Relu(s)",
          conv(8, 8, 9, 34, 34) + conv(8, 8, 9, 32, 32), ASKED, "W:8x8x3x3 V:8x8x3x3"),
    Probe("half_of_a_layer_for_the_next", "x:64x128", "h = MatMul(x, W) r = Relu(h) a, b = Split<axis=1, num_outputs=2>(r) y = MatMul(a, V)",
          product(64, 128, 64) + product(64, 64, 32), ASKED, "W:128x128 V:64x32"),
    Probe("part_of_what_was_joined", "x:64x128",
          "h = MatMul(x, W) g = MatMul(x, V) c = Concat<axis=1>(h, g) s = Slice(c, i_64, i_128, i_1) y = Relu(s)", product(64, 128, 64), ASKED,
          "W:128x64 V:128x64"),
    Probe("one_head_of_a_softmax", "x:64x128",
          "h = MatMul(x, W) r = Reshape(h, i_64_8_16) t = Transpose<perm=[1,0,2]>(r) e = Softmax<axis=2>(t) s = Slice(e, i_2, i_3, i_0) "
          "y = MatMul(s, V)", product(64, 128, 16) + product(64, 16, 16) + 64 * 16 * 4, ASKED, "W:128x128 V:16x16"),
    Probe("layers_chosen_by_a_mask", "x:64x128 z:64x128",
          "h = MatMul(x, W) g = MatMul(z, V) b = Cast<to=9>(m) w = Where(b, h, g) y = Relu(w)", product(64, 128, 64), ASKED,
          "W:128x64 V:128x64 m:1x64", {"m": lambda rng, shape: np.arange(shape[1])[None] < shape[1] // 2}),
    Probe("thirds_of_a_layer_added", "x:64x96", "h = MatMul(x, W) a, b, c = Split<axis=1, num_outputs=3>(h) y = Add(a, c)", product(64, 96, 64),
          FACTORS, "W:96x192"),
    Probe("features_that_the_next_layer_drops", "x:64x128", "h = MatMul(x, W) r = Relu(h) y = MatMul(r, V)",
          product(64, 128, 32) + product(64, 32, 64), ZEROS, "W:128x128 V:128x64", {"V": first_rows}),
    Probe("features_that_are_zero", "x:64x128", "h = MatMul(x, W) r = Relu(h) y = MatMul(r, V)", product(64, 128, 32) + product(64, 32, 64), ZEROS,
          "W:128x128 V:128x64", {"W": first_columns}),
    Probe("pruned_filters", "x:1x32x32x32", "h = Conv<pads=[1,1,1,1]>(x, W) r = Relu(h) y = Conv<pads=[1,1,1,1]>(r, V)",
          2 * conv(32, 16, 9, 32, 32), ZEROS, "W:32x32x3x3 V:32x32x3x3", {"W": half_of_the_filters}),
    Probe("residuals_to_centres", "a:8x64x16 x:8x64x32",
          "u = Unsqueeze(x, i_2) d = Sub(u, c) w = Unsqueeze(a, i_3) m = Mul(d, w) y = ReduceSum<keepdims=0>(m, i_1)",
          8 * (product(64, 16, 32) + 64 * 16 + 2 * 16 * 32), FACTORS, "c:16x32"),
    Probe("layer_of_all_pairs", "x:64x32",
          "a = Unsqueeze(x, i_1) b = Unsqueeze(x, i_0) e = Expand(a, i_64_64_32) f = Expand(b, i_64_64_32) c = Concat<axis=2>(e, f) "
          "h = MatMul(c, W) y = Relu(h)", 2 * product(64, 32, 32) + 64 * 64 * 32 * 2, REPEATED, "W:64x32"),
    Probe("layer_of_all_differences", "x:64x32", "a = Unsqueeze(x, i_1) b = Unsqueeze(x, i_0) d = Sub(a, b) h = MatMul(d, W) y = Relu(h)",
          product(64, 32, 32) + 64 * 64 * 32 * 2, FACTORS, "W:32x32"),
    Probe("factors_of_all_pairs", "x:256x64", "g = MatMul(V, T) h = MatMul(x, g) p = Mul(h, x) y = ReduceSum(p, i_1)",
          2 * product(256, 64, 8) + 256 * 64 * 2, ORDER, "V:64x8 T:8x64"),
    Probe("experts_added_then_a_layer", "x:64x128 g:64x2",
          "a = MatMul(x, A) b = MatMul(x, B) i, j = Split<axis=1, num_outputs=2>(g) p = Mul(a, i) q = Mul(b, j) s = Add(p, q) y = MatMul(s, C)",
          product(64, 128, 64) + 64 * 32 * 3, EINSUM, "A:128x128 B:128x128 C:128x32"),
    Probe("features_added_by_heads", "x:64x128", "h = MatMul(x, W) r = Reshape(h, i_64_8_16) m = ReduceSum<keepdims=0>(r, i_1) y = Mul(m, g)",
          product(64, 128, 16), PULL, "W:128x128 g:16"),
    Probe("mean_of_projected_values", "k:8x64x32 v:8x64x32 q:8x16x32",
          "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) o = MatMul(s, v) h = MatMul(o, W) y = ReduceMean<keepdims=0>(h, i_1)",
          8 * (2 * product(64, 32) + product(32, 8) + 16 * 32), PULL, "W:32x8"),
    Probe("sobel_both_ways", "x:1x1x128x128", "y = Conv<pads=[1,1,1,1]>(x, W)", 128 * 128 * 2 * 6, SEPARABLE, "W:2x1x3x3", {"W": sobel}),
    Probe("haar_of_a_plane", "x:1x1x128x128", "y = Conv<strides=[2,2]>(x, W)", 64 * 64 * 8, SEPARABLE, "W:4x1x2x2", {"W": haar}),
    Probe("cosines_of_blocks", "x:64x8x8", "a = MatMul(D, x) t = Transpose<perm=[1,0]>(D) y = MatMul(a, t)", 64 * 2 * 8 * 40,
          "a plane of flow graphs: sums and differences first", "D:8x8", {"D": cosines}),
)  # fmt: skip
