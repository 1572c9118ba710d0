"""Probes of what is computed again and of what nobody reads: repeated features, halves that are added, rows that are taken, means taken late."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import EINSUM, FOLD, ORDER, PULL, ZEROS, eye, product
from benchmarks.reach.parts import ASKED, FACTORS
from benchmarks.reach.planes import conv
from benchmarks.reach.probes import Array, Probe

REPEATED = "what is repeated is computed once"


def permutation(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.eye(shape[0])[rng.permutation(shape[0])]


def tridiagonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    i, j = np.indices(shape)
    return np.where(abs(i - j) <= 1, rng.standard_normal(shape), 0.0)


def first_columns(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random in the first quarter of the columns, 0 elsewhere."""
    return rng.standard_normal(shape) * (np.arange(shape[1]) < shape[1] // 4)


def first_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random in the first quarter of the rows, 0 elsewhere."""
    return rng.standard_normal(shape) * (np.arange(shape[0]) < shape[0] // 4)[:, None]


def columns_four_times(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.tile(rng.standard_normal((shape[0], shape[1] // 4)), (1, 4))


def same_blocks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.kron(np.eye(8), rng.standard_normal((shape[0] // 8, shape[1] // 8)))


def blocks_of_diagonals(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.kron(rng.standard_normal((shape[0] // 8, shape[1] // 8)), np.eye(8))


def diagonal_and_thin(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A diagonal and a matrix of rank 4."""
    return np.diag(rng.standard_normal(shape[0])) + rng.standard_normal((shape[0], 4)) @ rng.standard_normal((4, shape[1]))


X = "x:1x32x32x32"
LAYER = "x:256x128"
HALF = "x:256x64"

AGAIN = (
    Probe("concat_with_itself", HALF, "c = Concat<axis=1>(x, x) y = MatMul(c, W)", product(256, 64, 128), REPEATED, "W:128x128"),
    Probe("concat_with_twice", HALF, "d = Add(x, x) c = Concat<axis=1>(x, d) y = MatMul(c, W)", product(256, 64, 128), REPEATED, "W:128x128"),
    Probe("concat_with_constant_features", HALF, "e = Expand(c, i_256_64) t = Concat<axis=1>(x, e) y = MatMul(t, W)", product(256, 64, 128), FOLD,
          "c:1x64 W:128x128"),
    Probe("tiled_features", HALF, "c = Tile(x, i_1_4) y = MatMul(c, W)", product(256, 64, 128), REPEATED, "W:256x128"),
    Probe("expanded_batch", "x:1x64x128", "e = Expand(x, i_16_64_128) h = MatMul(e, W) y = Mul(h, g)", product(64, 128, 128), REPEATED,
          "W:128x128 g:16x64x128"),
    Probe("expanded_then_conv", "x:1x16x32x32", "e = Expand(x, i_8_16_32_32) h = Conv<pads=[1,1,1,1]>(e, W) y = Mul(h, g)",
          conv(16, 16, 9, 32, 32), REPEATED, "W:16x16x3x3 g:8x16x1x1"),
    Probe("twice_less_once", LAYER, "h = MatMul(x, W) t = Add(h, h) y = Sub(t, h)", product(256, 128, 128), FOLD, "W:128x128"),
    Probe("layers_subtracted", LAYER, "h = MatMul(x, W) g = MatMul(x, V) y = Sub(h, g)", product(256, 128, 128), FOLD, "W:128x128 V:128x128"),
    Probe("layer_on_both_sides", "x:64x128 z:64x128", "s = Add(x, z) h = MatMul(s, W) g = MatMul(z, W) y = Sub(h, g)", product(64, 128, 128),
          FACTORS, "W:128x128"),
    Probe("difference_of_products", "A:128x128 B:128x128 C:128x128", "h = MatMul(A, B) g = MatMul(A, C) y = Sub(h, g)", product(128, 128, 128),
          FACTORS),
    Probe("two_layers_added_then_a_layer", "x:64x256", "h = MatMul(x, W) g = MatMul(x, V) m = Add(h, g) y = MatMul(m, U)", product(64, 256, 32),
          FOLD, "W:256x128 V:256x128 U:128x32"),
    Probe("layer_then_batch_norm", "x:64x128", "h = MatMul(x, W) y = BatchNormalization(h, s, b, m, v)", product(64, 128, 128), FOLD,
          "W:128x128 s:128 b:128 m:128 v:128", {"v": lambda rng, shape: 1 + np.abs(rng.standard_normal(shape))}),
    Probe("grouped_point_then_point", X, "h = Conv<group=4>(x, W) y = Conv(h, V)", conv(32, 32, 1, 32, 32), FOLD, "W:64x8x1x1 V:32x64x1x1"),
    Probe("up_then_down", "x:1x32x16x16", "h = ConvTranspose<strides=[2,2]>(x, W) y = Conv<strides=[2,2]>(h, V)", conv(32, 32, 1, 16, 16), FOLD,
          "W:32x32x2x2 V:32x32x2x2"),
    Probe("point_conv_then_strided_point_conv", X, "h = Conv(x, W) y = Conv<strides=[2,2]>(h, V)", conv(32, 32, 1, 16, 16), FOLD,
          "W:64x32x1x1 V:32x64x1x1"),
    Probe("conv_then_strided_point_conv", X, "h = Conv<pads=[1,1,1,1]>(x, W) y = Conv<strides=[2,2]>(h, V)", conv(32, 32, 9, 16, 16), FOLD,
          "W:64x32x3x3 V:32x64x1x1"),
    Probe("conv_padded_then_point_conv", X, "h = Conv(x, W) p = Pad(h, i_0_0_1_1_0_0_1_1) y = Conv(p, V)", conv(32, 32, 9, 30, 30), FOLD,
          "W:64x32x3x3 V:32x64x1x1"),
    Probe("conv_halves_added", X, "h = Conv<pads=[1,1,1,1]>(x, W) a, b = Split<axis=1, num_outputs=2>(h) y = Add(a, b)",
          conv(32, 16, 9, 32, 32), FOLD, "W:32x32x3x3"),
    Probe("conv_channels_summed", X, "h = Conv<pads=[1,1,1,1]>(x, W) y = ReduceSum(h, i_1)", conv(32, 1, 9, 32, 32), PULL, "W:32x32x3x3"),
    Probe("conv_channels_sliced", X, "h = Conv<pads=[1,1,1,1]>(x, W) y = Slice(h, i_0, i_8, i_1)", conv(32, 8, 9, 32, 32), ASKED, "W:32x32x3x3"),
    Probe("conv_then_every_second", X, "h = Conv<pads=[1,1,1,1]>(x, W) y = Slice(h, i_0_0, i_32_32, i_2_3, i_2_2)", conv(32, 32, 9, 16, 16), ASKED,
          "W:32x32x3x3"),
    Probe("every_fourth_row", "x:512x128", "h = MatMul(x, W) y = Slice(h, i_0, i_512, i_0, i_4)", product(128, 128, 256), ASKED, "W:128x256"),
    Probe("rows_at_given_places", "x:512x128", "h = MatMul(x, W) y = Gather(h, i_3_77_200_5)", product(4, 128, 256), ASKED, "W:128x256"),
)  # fmt: skip

LATE = (
    Probe("row_dots", "A:256x128 B:128x256", "h = MatMul(A, B) m = Mul(h, I) y = ReduceSum<keepdims=0>(m, i_1)", product(256, 128), PULL, "I:256x256",
          {"I": eye}),
    Probe("subpixel_pooled", "x:1x32x16x16",
          "h = Conv<pads=[1,1,1,1]>(x, W) d = DepthToSpace<blocksize=2>(h) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d)",
          conv(32, 16, 9, 16, 16), PULL, "W:64x32x3x3"),
    Probe("subpixel_mean", "x:1x32x16x16", "h = Conv(x, W) d = DepthToSpace<blocksize=2>(h) y = GlobalAveragePool(d)", 32 * 256 + product(32, 16),
          PULL, "W:64x32x1x1"),
    Probe("enlarged_pooled", X,
          "r = Unsqueeze(x, i_3_5) e = Expand(r, i_1_32_32_2_32_2) u = Reshape(e, i_1_32_64_64) "
          "p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(u) y = Conv(p, W)", conv(32, 32, 1, 32, 32), PULL, "W:32x32x1x1"),
    Probe("layer_then_pool_of_features", LAYER,
          "h = MatMul(x, W) u = Unsqueeze(h, i_1) p = AveragePool<kernel_shape=[4], strides=[4]>(u) y = Squeeze(p, i_1)",
          product(256, 128, 64), PULL, "W:128x256"),
    Probe("layer_of_mean_layer", "x:32x64x128", "h = MatMul(x, W) m = ReduceMean<keepdims=0>(h, i_1) y = MatMul(m, V)",
          32 * 64 * 128 + product(32, 128, 128), PULL, "W:128x256 V:256x128"),
    Probe("layer_plus_position_mean", "x:32x64x128", "h = MatMul(x, W) a = Add(h, p) y = ReduceMean<keepdims=0>(a, i_1)",
          32 * 64 * 128 + product(32, 128, 128), PULL, "p:64x128 W:128x128"),
    Probe("scaled_rows_layer_summed", "x:64x128 s:64x1", "m = Mul(x, s) h = MatMul(m, W) y = ReduceSum<keepdims=0>(h, i_0)",
          2 * 64 * 128 + product(128, 128), PULL, "W:128x128"),
    Probe("two_means", "x:32x64x64",
          "h = ReduceMean<keepdims=0>(x, i_1) g = MatMul(x, W) m = ReduceMean<keepdims=0>(g, i_1) y = Add(h, m)",
          32 * 64 * 64 + product(32, 64, 64), PULL, "W:64x64"),
    Probe("gate_of_mean", X,
          "p = GlobalAveragePool(x) g = Conv(p, V) h = Conv(x, W) m = Mul(h, g) y = GlobalAveragePool(m)", 32 * 1024 + 2 * product(32, 32), PULL,
          "W:32x32x1x1 V:32x32x1x1"),
    Probe("depthwise_then_global_pool", X, "h = Conv<pads=[1,1,1,1], group=32>(x, W) y = GlobalAveragePool(h)", 32 * (1024 + 4 * 32 + 2 * 9), PULL,
          "W:32x1x3x3"),
    Probe("conv_of_mean_over_batch", "x:16x8x32x32", "h = Conv<pads=[1,1,1,1]>(x, W) y = ReduceMean(h, i_0)",
          16 * 8 * 32 * 32 + conv(8, 8, 9, 32, 32), PULL, "W:8x8x3x3"),
    Probe("mean_of_attention", "q:8x128x32 k:8x128x32 v:8x128x32",
          "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) o = MatMul(p, v) y = ReduceMean<keepdims=0>(o, i_1)",
          8 * (product(128, 128, 32) + 3 * 128 * 128 + product(128, 32)), PULL),
    Probe("sum_of_weighted_values", "p:8x128x128 v:8x128x32", "o = MatMul(p, v) y = ReduceSum<keepdims=0>(o, i_1)",
          8 * (128 * 128 + product(128, 32)), PULL),
    Probe("row_sums_of_scores", "q:8x128x32 k:8x128x32", "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) y = ReduceSum<keepdims=0>(s, i_2)",
          8 * (128 * 32 + product(128, 32)), PULL),
    Probe("outer_then_outer", "u:256x1 v:1x128 w:128x1 z:1x256", "a = MatMul(u, v) b = MatMul(w, z) y = MatMul(a, b)", 256 * 256, ORDER),
    Probe("outer_then_a_product", "u:256x1 v:1x256 X:256x256", "a = MatMul(u, v) y = MatMul(a, X)", product(256, 256) + 256 * 256, ORDER),
    Probe("transposed_product_then_a_product", "A:64x512 B:512x64 C:64x8", "h = MatMul(A, B) t = Transpose<perm=[1,0]>(h) y = MatMul(t, C)",
          2 * product(64, 512, 8), ORDER),
    Probe("einsum_to_a_row", "a:64x128 b:128x64 c:64x128", 'y = Einsum<equation="ij,jk,kl->l">(a, b, c)',
          64 * 128 + product(128, 64) + product(64, 128), EINSUM),
    Probe("einsum_of_two_batches", "a:4x64x32 b:4x64x32 c:4x64x32", 'y = Einsum<equation="bik,bjk,bjl->bil">(a, b, c)', 8 * product(64, 32, 32),
          EINSUM),
)  # fmt: skip

PATTERNS = (
    Probe("zero_columns", LAYER, "y = MatMul(x, W)", product(256, 128, 64), ZEROS, "W:128x256", {"W": first_columns}),
    Probe("zero_rows", LAYER, "y = MatMul(x, W)", product(256, 32, 256), ZEROS, "W:128x256", {"W": first_rows}),
    Probe("tridiagonal_weights", LAYER, "y = MatMul(x, W)", product(256, 128, 3), ZEROS, "W:128x128", {"W": tridiagonal}),
    Probe("equal_blocks", LAYER, "y = MatMul(x, W)", product(256, 128, 16), ZEROS, "W:128x128", {"W": same_blocks}),
    Probe("blocks_of_diagonals", LAYER, "y = MatMul(x, W)", product(256, 128, 16), ZEROS, "W:128x128", {"W": blocks_of_diagonals}),
    Probe("repeated_columns", LAYER, "y = MatMul(x, W)", product(256, 128, 64), REPEATED, "W:128x256", {"W": columns_four_times}),
    Probe("small_rank_and_diagonal", LAYER, "y = MatMul(x, W)", product(256, 128, 8) + 2 * 256 * 128, FOLD, "W:128x128", {"W": diagonal_and_thin}),
    Probe("permutation_weights", LAYER, "y = MatMul(x, W)", 0, ZEROS, "W:128x128", {"W": permutation}),
)
