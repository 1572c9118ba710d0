"""Probes of masks, bands and blocks, as inputs and as weights, and of chains around them."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import FOLD, ORDER, product
from benchmarks.reach.planes import UP, conv
from benchmarks.reach.probes import Array, Probe

BLOCKS = "blocks that are masked left out"
SQUARE = 512


def identity(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.eye(*shape)


def blocks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Eight blocks along the diagonal."""
    return np.kron(np.eye(8), np.ones([n // 8 for n in shape])) * rng.standard_normal(shape)


def lower(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.tri(*shape)


def band(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Sixteen diagonals on each side of the main one."""
    return (abs(np.subtract.outer(*map(np.arange, shape))) <= 16).astype(float)


def triple(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.array([1.0, 1.0, 3.0, 3.0])


SCORES = f"a:{SQUARE}x64 b:64x{SQUARE}"
VALUES = f"{SCORES} v:{SQUARE}x64"
DENSE = product(SQUARE, SQUARE, 64)
MASK = f"M:{SQUARE}x{SQUARE}"

GROUPED = "".join(
    f" {a} = Unsqueeze({x}, i_2) {b} = Expand({a}, i_1_2_4_512_16) {c} = Reshape({b}, i_1_8_512_16)" for x, a, b, c in ("kdef", "vghw")
)

MASKS = (
    Probe("outer_product_times", "u:512x1 v:1x512 b:512x512", "o = MatMul(u, v) y = MatMul(o, b)", product(512, 512) + 512 * 512, ORDER),
    Probe(
        "diagonals_on_both_sides",
        "v:512 b:512x512 w:512",
        "d = Mul(I, v) e = MatMul(d, b) f = Mul(I, w) y = MatMul(e, f)",
        2 * 512 * 512,
        "a multiplication for each diagonal",
        "I:512x512",
        {"I": identity},
    ),
    Probe(
        "product_of_triangles",
        "a:512x512 b:512x512",
        "l = Trilu<upper=0>(a) m = Trilu<upper=0>(b) y = MatMul(l, m)",
        0.2344 * product(512, 512, 512),
        "eight blocks of rows, columns and terms",
    ),
    Probe("lower_scores", SCORES, "s = MatMul(a, b) y = Trilu<upper=0>(s)", 0.5625 * DENSE, BLOCKS),
    Probe("masked_scores", SCORES, "s = MatMul(a, b) y = Mul(s, M)", 0.5625 * DENSE, BLOCKS, MASK, {"M": lower}),
    Probe("scores_of_a_band", SCORES, "s = MatMul(a, b) y = Mul(s, M)", 0.1875 * DENSE, BLOCKS, MASK, {"M": band}),
    Probe("values_of_a_band", VALUES, "s = MatMul(a, b) m = Mul(s, M) y = MatMul(m, v)", 0.1875 * 2 * DENSE, BLOCKS, MASK, {"M": band}),
    Probe("values_of_what_follows", VALUES, "s = MatMul(a, b) m = Trilu<upper=1>(s) y = MatMul(m, v)", 0.5625 * 2 * DENSE, BLOCKS),
    Probe("block_diagonal_layer", "x:64x512", "h = Gemm(x, W, b) y = Relu(h)", product(64, 512, 512) / 8, BLOCKS, "W:512x512 b:512", {"W": blocks}),
    Probe(
        "blocks_twice",
        "x:64x512",
        "h = MatMul(x, W) y = MatMul(h, V)",
        product(64, 512, 512) / 8,
        FOLD,
        "W:512x512 V:512x512",
        {"W": blocks, "V": blocks},
    ),
    Probe(
        "two_adapters",
        "x:64x512",
        "a = MatMul(x, W) u = MatMul(x, U) v = MatMul(u, V) r = MatMul(x, R) t = MatMul(r, T) b = Add(a, v) y = Add(b, t)",
        product(64, 512, 512),
        FOLD,
        "W:512x512 U:512x8 V:8x512 R:512x8 T:8x512",
    ),
    Probe(
        "grouped_linear_attention",
        "q:1x8x512x16 k:1x2x512x16 v:1x2x512x16",
        f"{GROUPED} t = Transpose<perm=[0,1,3,2]>(f) s = MatMul(q, t) y = MatMul(s, w)",
        product(2, 512, 16, 16) + product(8, 512, 16, 16),
        "keys times values once for each group",
    ),
    Probe(
        "tripled_then_conv",
        "x:1x32x20x20",
        f"h = {UP}(x, , s) y = Conv<pads=[1,1,1,1]>(h, W)",
        conv(32, 32, 9, 20, 20) + 9 * 32 * 60 * 60,
        "every tap once before the plane grows",
        "s:4 W:32x32x3x3",
        {"s": triple},
    ),
)  # fmt: skip
