"""Probes of products of matrices: order of chains, weights that fold into weights, reductions and structure that pass through products."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.probes import Array, Probe

ORDER = "order of a chain of products"
FOLD = "weights folded into weights"
PULL = "a reduction pulled through a product"
ZEROS = "known zeros left out"
EINSUM = "contraction order, as einsum libraries choose it"


def eye(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.eye(*shape)


def blocks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Eight random blocks along the diagonal, zeros elsewhere."""
    side = shape[0] // 8
    block = np.arange(shape[0])[:, None] // side == np.arange(shape[1])[None, :] // side
    return np.where(block, rng.standard_normal(shape) / side**0.5, 0.0)


def lower(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.tril(rng.standard_normal(shape)) / shape[0] ** 0.5


def diagonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.diag(rng.standard_normal(shape[0]))


def thin(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A matrix of rank 16."""
    return rng.standard_normal((shape[0], 16)) @ rng.standard_normal((16, shape[1])) / shape[0]


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.ones(shape)


def product(*extents: int) -> int:
    """Operations of one product of two matrices."""
    return 2 * int(np.prod(extents))


CHAINS = (
    Probe("two_weights", "x:64x512", "h = MatMul(x, W1) y = MatMul(h, W2)", product(64, 512, 64), FOLD, "W1:512x512 W2:512x64"),
    Probe(
        "two_weights_bias", "x:64x512", "h = MatMul(x, W1) g = Add(h, b) y = MatMul(g, W2)", product(64, 512, 64), FOLD, "W1:512x512 b:512 W2:512x64"
    ),
    Probe(
        "three_weights",
        "x:32x256",
        "h = MatMul(x, W1) g = MatMul(h, W2) y = MatMul(g, W3)",
        product(32, 256, 32),
        FOLD,
        "W1:256x512 W2:512x512 W3:512x32",
    ),
    Probe("matrix_matrix_vector", "A:512x512 B:512x512 v:512x1", "h = MatMul(A, B) y = MatMul(h, v)", 2 * product(512, 512), ORDER),
    Probe(
        "chain_of_six",
        "A:200x20 B:20x300 C:300x10 D:10x400 E:400x30 F:30x100",
        "h = MatMul(A, B) i = MatMul(h, C) j = MatMul(i, D) k = MatMul(j, E) y = MatMul(k, F)",
        product(20, 300, 10) + product(200, 20, 10) + product(10, 400, 30) + product(10, 30, 100) + product(200, 10, 100),
        ORDER,
    ),
    Probe(
        "product_of_weights_times_relu",
        "x:64x512",
        "r = Relu(x) h = MatMul(r, W1) y = MatMul(h, W2)",
        product(64, 512, 64),
        FOLD,
        "W1:512x512 W2:512x64",
    ),
    Probe("low_rank", "U:512x16 V:16x512 x:512x64", "h = MatMul(U, V) y = MatMul(h, x)", 2 * product(16, 512, 64), ORDER),
    Probe("matrix_of_small_rank", "x:64x512", "y = MatMul(x, W)", 2 * product(64, 512, 16), ORDER, "W:512x512", {"W": thin}),
    Probe(
        "low_rank_adapter",
        "x:128x512",
        "a = MatMul(x, W) b = MatMul(x, U) c = MatMul(b, V) y = Add(a, c)",
        product(128, 512, 512),
        FOLD,
        "W:512x512 U:512x64 V:64x512",
    ),
    Probe(
        "scaled_adapter",
        "x:128x512",
        "a = MatMul(x, W) b = MatMul(x, U) c = MatMul(b, V) d = Mul(c, s) y = Add(a, d)",
        product(128, 512, 512),
        FOLD,
        "W:512x512 U:512x64 V:64x512 s:1",
    ),
    Probe(
        "two_products_of_one_left",
        "A:256x256 B:256x256 C:256x256",
        "s = MatMul(A, B) t = MatMul(A, C) y = Add(s, t)",
        product(256, 256, 256) + 256**2,
        "distributivity",
    ),
    Probe(
        "two_products_of_one_right",
        "A:256x256 B:256x256 C:256x256",
        "s = MatMul(A, C) t = MatMul(B, C) y = Sub(s, t)",
        product(256, 256, 256) + 256**2,
        "distributivity",
    ),
    Probe(
        "two_products_of_weights", "x:128x512", "s = MatMul(x, W) t = MatMul(x, V) y = Add(s, t)", product(128, 512, 512), FOLD, "W:512x512 V:512x512"
    ),
    Probe("residual_product", "x:128x512", "s = MatMul(x, W) y = Add(s, x)", product(128, 512, 512), FOLD, "W:512x512"),
    Probe("column_scale_product", "x:128x512", "g = Mul(x, s) y = MatMul(g, W)", product(128, 512, 512), FOLD, "s:512 W:512x512"),
    Probe("scale_between", "x:64x512", "h = MatMul(x, W1) g = Mul(h, s) y = MatMul(g, W2)", product(64, 512, 64), FOLD, "W1:512x512 s:512 W2:512x64"),
    Probe(
        "transposed_chain",
        "x:512x64",
        "t = Transpose<perm=[1,0]>(x) h = MatMul(t, W1) y = MatMul(h, W2)",
        product(64, 512, 64),
        FOLD,
        "W1:512x512 W2:512x64",
    ),
    Probe(
        "gemm_gemm",
        "x:64x512",
        "h = Gemm<transB=1>(x, W1, b1) y = Gemm<transB=1>(h, W2, b2)",
        product(64, 512, 64),
        FOLD,
        "W1:512x512 b1:512 W2:64x512 b2:64",
    ),
)

REDUCED = (
    Probe("product_summed", "A:256x512 B:512x512", "h = MatMul(A, B) y = ReduceSum<keepdims=0>(h, i_1)", 512 * 512 + product(256, 512), PULL),
    Probe("product_mean", "A:256x512 B:512x512", "h = MatMul(A, B) y = ReduceMean<keepdims=1>(h, i_0)", 512 * 256 + product(512, 512), PULL),
    Probe(
        "layer_mean",
        "x:256x512",
        "h = Gemm<transB=1>(x, W, b) y = ReduceMean<keepdims=0>(h, i_0)",
        512 * 256 + product(512, 512),
        PULL,
        "W:512x512 b:512",
    ),
    Probe(
        "layer_divided_summed_scaled",
        "x:256x512",
        "h = Gemm<transB=1>(x, W) d = Div(h, two) s = ReduceSum<keepdims=1>(d, i_1) y = Mul(s, c)",
        product(256, 512),
        "KernelBench 2.14",
        "W:512x512 two:1 c:1",
    ),
    Probe(
        "layer_summed_then_functions",
        "x:128x512",
        "h = Gemm<transB=1>(x, W, b) s = ReduceSum<keepdims=1>(h, i_1) m = ReduceMax<keepdims=1>(s, i_1) "
        "n = ReduceMean<keepdims=1>(m, i_1) y = ReduceLogSumExp<keepdims=1>(n, i_1)",
        product(128, 512),
        "KernelBench 2.18",
        "W:512x512 b:512",
    ),
    Probe(
        "batched_product_summed",
        "A:8x128x128 B:8x128x128",
        "h = MatMul(A, B) y = ReduceSum<keepdims=0>(h, i_2)",
        8 * (128 * 128 + product(128, 128)),
        PULL,
    ),
    Probe(
        "trace_of_product",
        "A:256x256 B:256x256",
        "h = MatMul(A, B) d = Mul(h, I) y = ReduceSum<keepdims=0>(d, i_0_1)",
        product(256, 256),
        PULL,
        "I:256x256",
        {"I": eye},
    ),
    Probe("quadratic_form", "x:128x256 A:256x256", 'y = Einsum<equation="bi,ij,bj->b">(x, A, x)', product(128, 256, 256) + product(128, 256), EINSUM),
    Probe(
        "bilinear_layer",
        "x:32x64 z:32x64",
        'y = Einsum<equation="bi,oij,bj->bo">(x, W, z)',
        product(32, 32, 64, 64) + product(32, 32, 64),
        EINSUM,
        "W:32x64x64",
    ),
    Probe(
        "einsum_chain",
        "A:64x128 B:128x256 C:256x32",
        'y = Einsum<equation="ab,bc,cd->ad">(A, B, C)',
        product(128, 256, 32) + product(64, 128, 32),
        EINSUM,
    ),
    Probe("tensor_times_matrix", "A:4x16x16x64 B:64x96", 'y = Einsum<equation="bijl,lk->bijk">(A, B)', product(4, 256, 64, 96), "KernelBench 1.11"),
    Probe("kronecker", "A:24x24 B:24x24 x:24x24", 'y = Einsum<equation="ij,kl,jl->ik">(A, B, x)', 2 * product(24, 24, 24), EINSUM),
    Probe(
        "tucker",
        "x:8x8x8 U:64x8 V:64x8 W:64x8",
        'y = Einsum<equation="abc,ia,jb,kc->ijk">(x, U, V, W)',
        product(64, 8, 8, 8) + product(64, 64, 8, 8) + product(64, 64, 64, 8),
        EINSUM,
    ),
    Probe(
        "mixture_of_layers",
        "x:32x64 g:32x8",
        'y = Einsum<equation="be,bi,eio->bo">(g, x, W)',
        product(32, 8, 64) / 2 + product(32, 8 * 64, 64),
        EINSUM,
        "W:8x64x64",
    ),
)

STRUCTURED = (
    Probe("diagonal_times_matrix", "v:512 B:512x512", "d = Mul(I, v) y = MatMul(d, B)", 512 * 512, ZEROS, "I:512x512", {"I": eye}),
    Probe("diagonal_weights", "x:64x512", "y = MatMul(x, D)", 64 * 512, ZEROS, "D:512x512", {"D": diagonal}),
    Probe("identity_weights", "x:64x512", "h = MatMul(x, I) y = Relu(h)", 64 * 512, ZEROS, "I:512x512", {"I": eye}),
    Probe("block_diagonal_weights", "x:64x512", "y = MatMul(x, W)", product(64, 512, 64), ZEROS, "W:512x512", {"W": blocks}),
    Probe("triangular_product", "A:512x512 B:512x512", "t = Trilu<upper=0>(A) y = MatMul(t, B)", 0.5625 * product(512, 512, 512), ZEROS),
    Probe("upper_triangular_product", "A:512x512 B:512x512", "t = Trilu<upper=1>(A) y = MatMul(t, B)", 0.5625 * product(512, 512, 512), ZEROS),
    Probe("triangular_weights", "x:64x512", "y = MatMul(x, W)", 0.5625 * product(64, 512, 512), ZEROS, "W:512x512", {"W": lower}),
    Probe("sum_of_prefixes", "x:64x512", "y = MatMul(x, L)", 64 * 512, "a running sum", "L:512x512", {"L": lambda r, s: np.triu(np.ones(s))}),
    Probe("all_ones_weights", "x:64x512", "y = MatMul(x, J)", 64 * 512, "a sum computed once", "J:512x512", {"J": ones}),
    Probe("repeated_rows", "x:64x512", "e = Expand(x, i_16_64_512) y = MatMul(e, W)", product(64, 512, 256), "a broadcast not computed", "W:512x256"),
)
