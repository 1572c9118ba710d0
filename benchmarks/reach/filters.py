"""Probes of filters whose values show that they are less than they look, and of reductions of convolutions in other dimensions than two."""

from __future__ import annotations

from functools import reduce

import numpy as np

from benchmarks.reach.linear import ORDER, PULL, ZEROS, product
from benchmarks.reach.planes import SEPARABLE, X, conv
from benchmarks.reach.probes import Array, Probe, scaled

TAP = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])


def small_rank(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of rank 8 as a matrix of features by the rest."""
    return (rng.standard_normal((shape[0], 8)) @ rng.standard_normal((8, int(np.prod(shape[1:]))))).reshape(shape) / 30


def same(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Every channel copied."""
    return np.multiply(np.eye(*shape[:2])[:, :, None, None], TAP)


def one_tap(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return scaled(rng, shape) * TAP


def ring(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Zeros around the middle."""
    return np.pad(scaled(rng, (*shape[:2], shape[2] - 2, shape[3] - 2)), ((0, 0), (0, 0), (1, 1), (1, 1)))


def dilated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    found = np.zeros(shape)
    found[..., ::2, ::2] = scaled(rng, found[..., ::2, ::2].shape)
    return found


def groups(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Four groups of channels."""
    block = np.kron(np.eye(4), np.ones([n // 4 for n in shape[:2]]))
    return scaled(rng, shape) * block[:, :, None, None]


def smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(reduce(np.multiply.outer, [np.array([0.25, 0.5, 0.25])] * 3), shape)


def toeplitz(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Seven diagonals, each of one number."""
    taps = rng.standard_normal(7)
    place = np.subtract.outer(*map(np.arange, shape)) + 3
    return np.where((place >= 0) & (place < 7), taps[place.clip(0, 6)], 0.0)


DENSE = "y = Conv<pads=[1,1,1,1]>(x, W)"

FILTERS = (
    Probe("filters_of_small_rank", X, DENSE, conv(8, 64, 9, 32, 32) + conv(64, 8, 1, 32, 32), ORDER, "W:64x64x3x3", {"W": small_rank}),
    Probe("filters_that_copy", X, DENSE, 0, "a copy", "W:64x64x3x3", {"W": same}),
    Probe("filters_of_one_tap", X, DENSE, conv(64, 64, 1, 32, 32), ZEROS, "W:64x64x3x3", {"W": one_tap}),
    Probe("filters_in_a_ring_of_zeros", "x:1x32x32x32", "y = Conv<pads=[2,2,2,2]>(x, W)", conv(32, 32, 9, 32, 32), ZEROS, "W:32x32x5x5", {"W": ring}),
    Probe("dilated_filters_written_out", X, "y = Conv<pads=[2,2,2,2]>(x, W)", conv(64, 64, 9, 32, 32), ZEROS, "W:64x64x5x5", {"W": dilated}),
    Probe("groups_written_out", X, DENSE, conv(64, 16, 9, 32, 32), ZEROS, "W:64x64x3x3", {"W": groups}),
    Probe("separable_in_space", "x:1x1x32x32x32", "y = Conv<pads=[1,1,1,1,1,1]>(x, W)", 2 * 9 * 32**3, SEPARABLE, "W:1x1x3x3x3", {"W": smooth}),
    Probe("filter_as_a_matrix", "x:64x512", "y = MatMul(x, W)", 2 * 64 * 512 * 7, "a filter of seven taps", "W:512x512", {"W": toeplitz}),
    Probe("conv_of_a_line_then_mean", "x:4x64x256", "h = Conv<pads=[1,1]>(x, W, b) y = ReduceMean<keepdims=0>(h, i_2)",
          4 * 64 * 256 * 3 + 2 * 4 * 64 * 64 * 3, PULL, "W:64x64x3 b:64"),
    Probe("pool_of_a_conv_of_a_line", "x:4x32x256", "h = Conv<pads=[1,1]>(x, W) y = AveragePool<kernel_shape=[4], strides=[4]>(h)",
          product(4, 32, 32, 3, 64) + 10 * 4 * 32 * 64, PULL, "W:32x32x3"),
    Probe("full_conv_of_a_line_then_mean", "x:4x32x256", "h = Conv<pads=[4,4]>(x, W) y = ReduceMean<keepdims=0>(h, i_2)",
          4 * 32 * 256 + product(4, 32, 32), "data and weights summed once each", "W:32x32x5"),
    Probe("transposed_conv_then_mean", "x:1x32x16x16", "h = ConvTranspose(x, W) y = GlobalAveragePool(h)", 32 * 256 + product(32, 32),
          "data and weights summed once each (KernelBench 2.42)", "W:32x32x3x3"),
    Probe("strided_transposed_conv_then_mean", "x:1x32x16x16", "h = ConvTranspose<strides=[2,2]>(x, W, b) y = GlobalAveragePool(h)",
          32 * 256 + product(32, 32), "data and weights summed once each", "W:32x32x3x3 b:32"),
    Probe("transposed_conv_then_its_stride_pooled", "x:1x32x16x16",
          "h = ConvTranspose<strides=[2,2]>(x, W) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(h)", conv(32, 32, 1, 16, 16), PULL,
          "W:32x32x2x2"),
    Probe("transposed_conv_then_point_conv", "x:1x32x16x16", "h = ConvTranspose<strides=[2,2]>(x, W) y = Conv(h, V)", conv(16, 32, 4, 16, 16),
          "weights folded into weights", "W:32x64x2x2 V:16x64x1x1"),
    Probe("sum_of_filters_in_space", "x:2x8x8x16x16", "h = Conv(x, W, b) d = Div(h, q) s = ReduceSum<keepdims=0>(d, i_1) y = Relu(s)",
          conv(2, 8, 27, 6 * 14, 14), PULL, "W:16x8x3x3x3 b:16 q:1"),
)  # fmt: skip
