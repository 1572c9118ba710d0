"""Probes of attention, with and without softmax."""

from __future__ import annotations

import numpy as np

from benchmarks.reach.linear import ORDER, product
from benchmarks.reach.probes import Array, Probe

LINEAR = "linear attention: the product of keys and values first"


def causal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.where(np.tri(*shape[-2:]) > 0, 0.0, -np.inf)


def exported_causal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """As exporters write minus infinity."""
    return np.where(np.tri(*shape[-2:]) > 0, 0.0, np.finfo(np.float32).min)


QKV = "q:512x16 k:512x16 v:512x16"
SOFT = "q:8x256x32 k:8x256x32 v:8x256x32"
HEADS = 2 * product(8, 256, 256, 32)

PLAIN = "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) y = MatMul(p, v)"
ADDED = "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) m = Add(s, c) p = Softmax<axis=-1>(m) y = MatMul(p, v)"


def heads(count: int, length: int, size: int) -> tuple[str, float]:
    """Queries, keys and values, and the operations of both products."""
    shape = f"{count}x{length}x{size}"
    return f"q:{shape} k:{shape} v:{shape}", 2 * product(count, length, length, size)


def attention(name: str, count: int, length: int, size: int) -> Probe:
    """Products and a softmax between them: nothing is saved but what would be stored."""
    inputs, best = heads(count, length, size)
    return Probe(name, inputs, PLAIN, best, "as it stands, in one kernel")

ATTENTION = (
    Probe("attention_without_softmax", QKV, "t = Transpose<perm=[1,0]>(k) s = MatMul(q, t) y = MatMul(s, v)", 2 * product(512, 16, 16), ORDER),
    Probe(
        "scaled_without_softmax",
        QKV,
        "t = Transpose<perm=[1,0]>(k) s = MatMul(q, t) u = Mul(s, c) y = MatMul(u, v)",
        2 * product(512, 16, 16),
        ORDER,
        "c:1",
    ),
    Probe(
        "heads_without_softmax",
        "q:8x256x32 k:8x256x32 v:8x256x32",
        "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) u = Div(s, c) y = MatMul(u, v)",
        2 * product(8, 256, 32, 32),
        ORDER,
        "c:1",
    ),
    Probe(
        "features_without_normaliser",
        QKV,
        "p = Relu(q) r = Relu(k) t = Transpose<perm=[1,0]>(r) s = MatMul(p, t) y = MatMul(s, v)",
        2 * product(512, 16, 16),
        LINEAR,
    ),
    Probe(
        "features_with_normaliser",
        QKV,
        "p = Relu(q) r = Relu(k) t = Transpose<perm=[1,0]>(r) s = MatMul(p, t) n = ReduceSum<keepdims=1>(s, i_1) w = Div(s, n) y = MatMul(w, v)",
        2 * product(512, 16, 16) + product(512, 16) + 512 * 16,
        LINEAR,
    ),
    Probe(
        "softmax_attention", SOFT, "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) y = MatMul(p, v)", HEADS, "as it stands"
    ),
    Probe(
        "causal_attention",
        SOFT,
        "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) m = Add(s, c) p = Softmax<axis=-1>(m) y = MatMul(p, v)",
        0.5625 * HEADS,
        "blocks that are masked left out",
        "c:256x256",
        {"c": causal},
    ),
    Probe(
        "causal_attention_as_exported",
        SOFT,
        "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) m = Add(s, c) p = Softmax<axis=-1>(m) y = MatMul(p, v)",
        0.5625 * HEADS,
        "blocks that are masked left out",
        "c:256x256",
        {"c": exported_causal},
    ),
    Probe(
        "causal_scores",
        QKV,
        "t = Transpose<perm=[1,0]>(k) s = MatMul(q, t) m = Trilu<upper=0>(s) y = MatMul(m, v)",
        0.5625 * 2 * product(512, 512, 16),
        "blocks that are masked left out",
    ),
    Probe(
        "grouped_queries",
        "q:1x8x128x32 k:1x2x128x32",
        "a = Unsqueeze(k, i_2) e = Expand(a, i_1_2_4_128_32) r = Reshape(e, i_1_8_128_32) t = Transpose<perm=[0,1,3,2]>(r) y = MatMul(q, t)",
        product(8, 128, 128, 32),
        "keys read where they are",
    ),
    Probe(
        "values_and_projection",
        "p:8x128x128 v:8x128x32",
        'h = MatMul(p, v) y = Einsum<equation="hqd,hdo->qo">(h, W)',
        product(8, 128, 128, 32) + product(128, 256, 256),
        ORDER,
        "W:8x32x256",
    ),
    attention("attention_of_12_heads", 12, 128, 64),
    attention("attention_of_512", 12, 512, 64),
    attention("long_attention", 4, 2048, 32),
    Probe("attention_with_bias", heads(8, 256, 32)[0] + " c:8x256x256", ADDED, HEADS, "as it stands, in one kernel"),
    Probe(
        "long_causal_attention",
        heads(4, 1024, 64)[0],
        ADDED,
        0.53125 * heads(4, 1024, 64)[1],
        "blocks that are masked left out",
        "c:1024x1024",
        {"c": causal},
    ),
)
