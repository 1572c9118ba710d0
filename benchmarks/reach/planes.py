"""Probes of convolutions, pooling and resizing."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import FOLD, PULL, ones
from benchmarks.reach.probes import Array, Probe

SEPARABLE = "one dimension after the other"


def separable(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The same product of two vectors in every channel."""
    return np.broadcast_to(np.outer(rng.standard_normal(shape[-2]), rng.standard_normal(shape[-1])), shape)


def binomial(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    row = np.array([1.0])
    for _ in range(shape[-1] - 1):
        row = np.convolve(row, [0.5, 0.5])
    return np.broadcast_to(np.outer(row, row), shape)


def difference_of_gaussians(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A band of frequencies: a filter of rank two."""
    near, far = (np.exp(-((np.arange(shape[-1]) - shape[-1] // 2) ** 2) / (2 * width**2)) for width in (2, 4))
    return np.broadcast_to(np.outer(near, near) / near.sum() ** 2 - np.outer(far, far) / far.sum() ** 2, shape)


def conv(features: int, channels: int, taps: int, height: int, width: int) -> int:
    return 2 * features * channels * taps * height * width


X = "x:1x64x32x32"
UP = 'Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">'

PLANES = (
    Probe(
        "point_conv_then_global_pool", "x:1x64x56x56", "h = Conv(x, W) y = GlobalAveragePool(h)", 64 * 56 * 56 + 2 * 64 * 128, PULL, "W:128x64x1x1"
    ),
    Probe(
        "point_conv_bias_then_global_pool",
        "x:1x64x56x56",
        "h = Conv(x, W, b) y = GlobalAveragePool(h)",
        64 * 56 * 56 + 2 * 64 * 128,
        PULL,
        "W:128x64x1x1 b:128",
    ),
    Probe(
        "point_conv_then_pool",
        "x:1x64x56x56",
        "h = Conv(x, W) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(h)",
        64 * 56 * 56 + conv(128, 64, 1, 28, 28),
        PULL,
        "W:128x64x1x1",
    ),
    Probe(
        "conv_then_pool",
        X,
        "h = Conv<pads=[1,1,1,1]>(x, W) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(h)",
        conv(64, 64, 9, 16, 16) + 4 * 64 * 33 * 33,
        PULL,
        "W:64x64x3x3",
    ),
    Probe(
        "conv_then_global_pool",
        X,
        "h = Conv<pads=[1,1,1,1]>(x, W) y = GlobalAveragePool(h)",
        9 * 64 * 32 * 32 + conv(64, 64, 9, 1, 1),
        PULL,
        "W:64x64x3x3",
    ),
    Probe(
        "pool_then_point_conv",
        "x:1x64x56x56",
        "h = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x) y = Conv(h, W)",
        64 * 56 * 56 + conv(128, 64, 1, 28, 28),
        "as it stands",
        "W:128x64x1x1",
    ),
    Probe(
        "transposed_conv_then_global_pool",
        "x:1x32x16x16",
        "h = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(x, W) y = GlobalAveragePool(h)",
        16 * 32 * 16 * 16 + conv(32, 32, 16, 1, 1),
        "KernelBench 2.42",
        "W:32x32x4x4",
    ),
    Probe(
        "nearest_then_point_conv",
        X,
        f"h = {UP}(x, , s) y = Conv(h, W)",
        conv(64, 64, 1, 32, 32),
        "computed before it is repeated",
        "s:4 W:64x64x1x1",
        {"s": lambda r, s: np.array([1.0, 1.0, 2.0, 2.0])},
    ),
    Probe(
        "nearest_then_conv",
        X,
        f"h = {UP}(x, , s) y = Conv<pads=[1,1,1,1]>(h, W)",
        conv(64, 64, 9, 32, 32) + 9 * 64 * 64 * 64,
        "every tap once before the plane grows",
        "s:4 W:64x64x3x3",
        {"s": lambda r, s: np.array([1.0, 1.0, 2.0, 2.0])},
    ),
    Probe(
        "repvgg_block",
        X,
        "a = Conv<pads=[1,1,1,1]>(x, W) b = Conv(x, V) c = Add(a, b) d = Mul(x, s) y = Add(c, d)",
        conv(64, 64, 9, 32, 32),
        FOLD,
        "W:64x64x3x3 V:64x64x1x1 s:1x64x1x1",
    ),
    Probe(
        "conv_beside_point_conv",
        X,
        "a = Conv<pads=[1,1,1,1]>(x, W) b = Conv(x, V) y = Add(a, b)",
        conv(64, 64, 9, 32, 32),
        FOLD,
        "W:64x64x3x3 V:64x64x1x1",
    ),
    Probe(
        "conv_beside_wider_conv",
        X,
        "a = Conv<pads=[2,2,2,2]>(x, W) b = Conv<pads=[1,1,1,1]>(x, V) y = Add(a, b)",
        conv(64, 64, 25, 32, 32),
        FOLD,
        "W:64x64x5x5 V:64x64x3x3",
    ),
    Probe(
        "two_convs_of_one_plane",
        X,
        "a = Conv<pads=[1,1,1,1]>(x, W) b = Conv<pads=[1,1,1,1]>(x, V) y = Add(a, b)",
        conv(64, 64, 9, 32, 32),
        FOLD,
        "W:64x64x3x3 V:64x64x3x3",
    ),
    Probe("two_point_convs", X, "h = Conv(x, W) y = Conv(h, V)", conv(64, 64, 1, 32, 32), FOLD, "W:256x64x1x1 V:64x256x1x1"),
    Probe("conv_then_point_conv", X, "h = Conv<pads=[1,1,1,1]>(x, W) y = Conv(h, V)", conv(16, 64, 9, 32, 32), FOLD, "W:128x64x3x3 V:16x128x1x1"),
    Probe("point_conv_then_conv", X, "h = Conv(x, W) y = Conv<pads=[1,1,1,1]>(h, V)", conv(16, 64, 9, 32, 32), FOLD, "W:256x64x1x1 V:16x256x3x3"),
    Probe(
        "depthwise_then_point_conv",
        X,
        "h = Conv<group=64, pads=[1,1,1,1]>(x, W) y = Conv(h, V)",
        2 * 64 * 9 * 1024 + conv(64, 64, 1, 32, 32),
        "as it stands",
        "W:64x1x3x3 V:64x64x1x1",
    ),
    Probe(
        "conv_batch_norm",
        X,
        "h = Conv<pads=[1,1,1,1]>(x, W) y = BatchNormalization(h, g, b, m, v)",
        conv(64, 64, 9, 32, 32),
        FOLD,
        "W:64x64x3x3 g:64 b:64 m:64 v:64",
        {"v": lambda r, s: r.uniform(0.5, 1.5, s)},
    ),
    Probe(
        "separable_blur", "x:1x3x128x128", "y = Conv<group=3, pads=[3,3,3,3]>(x, W)", 2 * 3 * 14 * 128 * 128, SEPARABLE, "W:3x1x7x7", {"W": binomial}
    ),
    Probe(
        "separable_kernel",
        "x:1x3x128x128",
        "y = Conv<group=3, pads=[5,5,5,5]>(x, W)",
        2 * 3 * 22 * 128 * 128,
        SEPARABLE,
        "W:3x1x11x11",
        {"W": separable},
    ),
    Probe(
        "separable_as_two_vectors",
        "x:1x1x128x128 u:7 v:7",
        'W = Einsum<equation="r,s->rs">(u, v) K = Unsqueeze(W, i_0_1) y = Conv<pads=[3,3,3,3]>(x, K)',
        2 * 14 * 128 * 128,
        SEPARABLE,
        "",
        {},
    ),
    Probe(
        "filter_of_rank_two",
        "x:1x3x128x128",
        "y = Conv<group=3, pads=[7,7,7,7]>(x, W)",
        2 * 3 * 60 * 128 * 128,
        SEPARABLE,
        "W:3x1x15x15",
        {"W": difference_of_gaussians},
    ),
    Probe(
        "box_filter", "x:1x3x128x128", "y = AveragePool<kernel_shape=[15,15], pads=[7,7,7,7], count_include_pad=1>(x)", 3 * 30 * 128 * 128, SEPARABLE
    ),
    Probe(
        "box_filter_as_conv", "x:1x3x128x128", "y = Conv<group=3, pads=[7,7,7,7]>(x, W)", 3 * 30 * 128 * 128, SEPARABLE, "W:3x1x15x15", {"W": ones}
    ),
    Probe(
        "blur_of_blur",
        "x:1x3x128x128",
        "h = Conv<group=3>(x, W) y = Conv<group=3>(h, V)",
        2 * 3 * 20 * 128 * 128,
        SEPARABLE,
        "W:3x1x5x5 V:3x1x5x5",
        {"W": binomial, "V": binomial},
    ),
    Probe(
        "pool_of_pool",
        "x:1x32x64x64",
        "h = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(h)",
        32 * 64 * 64 * 1.1,
        "as it stands",
    ),
    Probe(
        "sum_over_space_of_product",
        "x:1x64x32x32 g:1x1x32x32",
        "h = Conv(x, W) m = Mul(h, g) y = ReduceSum<keepdims=0>(m, i_2_3)",
        2 * 64 * 1024 + 2 * 64 * 128,
        PULL,
        "W:128x64x1x1",
    ),
    Probe("plain_product", "A:8x128x64 B:8x64x96", "y = MatMul(A, B)", 2 * 8 * 128 * 64 * 96, "as it stands"),
)
