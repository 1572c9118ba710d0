"""Probes of pairs of rows, powers of a matrix, and layers before and behind a softmax, a mean, an enlarged and a mirrored plane."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import FOLD, ORDER, product
from benchmarks.reach.planes import conv
from benchmarks.reach.probes import Array, Probe

APART = "each summand once"


def kronecker(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.kron(rng.standard_normal((8, 8)), rng.standard_normal((8, 8)))


PAIRS = (
    Probe("product_of_kronecker", "x:64x64", "y = MatMul(x, W)", 2 * product(64, 8, 64), "Van Loan", "W:64x64", {"W": kronecker}, "precision"),
    Probe("pairs_of_rows_then_a_layer", "a:1x48x64 b:48x1x64", "s = Add(a, b) y = MatMul(s, W)", product(96, 64, 64) + 48 * 48 * 64, APART,
          "W:64x64"),
    Probe(
        "pairs_side_by_side_then_a_layer", "a:48x1x64 b:1x48x64",
        "c = Expand(a, i_48_48_64) d = Expand(b, i_48_48_64) e = Concat<axis=2>(c, d) h = MatMul(e, W) y = Relu(h)",
        product(96, 64, 64) + 2 * 48 * 48 * 64, APART, "W:128x64",
    ),
    Probe(
        "mean_of_the_image_beside_it_then_a_conv", "x:1x64x16x16",
        "g = GlobalAveragePool(x) e = Expand(g, i_1_64_16_16) c = Concat<axis=1>(x, e) h = Conv(c, W) y = Relu(h)", product(256, 64, 64),
        "once for the image", "W:64x128x1x1",
    ),
    Probe("powers_of_weights_on_a_vector", "x:128x1", "a = MatMul(W, W) b = MatMul(a, W) y = MatMul(b, x)", product(128, 128), FOLD, "W:128x128"),
    Probe("powers_of_a_matrix_on_a_vector", "A:128x128 x:128x1", "a = MatMul(A, A) b = MatMul(a, A) y = MatMul(b, x)", 3 * product(128, 128), ORDER),
    Probe(
        "keys_shifted_before_a_softmax", "q:64x128 k:256x128 c:1x128",
        "s = Add(k, c) t = Transpose<perm=[1,0]>(s) m = MatMul(q, t) y = Softmax<axis=1>(m)", product(64, 128, 256), "a shift of rows is none",
    ),
    Probe(
        "mean_of_four_rows_of_a_layer", "x:1x128x64",
        "h = MatMul(x, W) t = Transpose<perm=[0,2,1]>(h) y = AveragePool<kernel_shape=[4],strides=[4]>(t)",
        product(32, 64, 64) + 128 * 64, "the mean first", "W:64x64",
    ),
    Probe("centred_rows_then_a_layer", "x:64x128", "m = ReduceMean(x, i_1) c = Sub(x, m) y = MatMul(c, W)", product(64, 128, 64), FOLD, "W:128x64"),
    Probe(
        "attention_to_constant_keys_and_values", "x:64x128",
        "q = MatMul(x, W) s = MatMul(q, K) p = Softmax<axis=1>(s) v = MatMul(p, V) y = MatMul(v, O)",
        product(64, 128, 32) + product(64, 32, 128) + 64 * 32 * 6, FOLD, "W:128x64 K:64x32 V:32x64 O:64x128",
    ),
    Probe(
        "enlarged_beside_a_plane_then_a_conv", "x:1x16x16x16 z:1x16x32x32",
        'u = Resize<mode="nearest">(x, , f) c = Concat<axis=1>(u, z) h = Conv(c, W) y = Relu(h)', conv(32, 16, 1, 16, 16) + conv(32, 16, 1, 32, 32),
        "before it is enlarged", "f:4 W:32x32x1x1", {"f": lambda rng, shape: np.array([1.0, 1.0, 2.0, 2.0])},
    ),
    Probe("one_layer_of_a_difference", "x:64x128 z:64x128", "a = MatMul(x, W) b = MatMul(z, W) y = Sub(a, b)", product(64, 128, 128) + 64 * 128,
          "distributivity", "W:128x128"),
    Probe(
        "one_conv_of_a_plane_and_its_mirror", "x:1x16x32x32",
        "a = Slice(x, i_m1, i_m1000, i_3, i_m1) h = Conv(x, W) g = Conv(a, W) b = Slice(g, i_m1, i_m1000, i_3, i_m1) y = Add(h, b)",
        conv(16, 16, 9, 30, 30), "the kernel and its mirror", "W:16x16x3x3",
    ),
)  # fmt: skip
