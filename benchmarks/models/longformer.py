"""One Longformer block (Beltagy et al. 2020): every position attends to a dilated window around it.

Position i sees the keys i + dilation·w for -window <= w <= window that exist. Two exports of the same function: `longformer` gathers the
band, `longformer_masked` computes all scores and masks those outside it. Equal seeds give equal weights, hence equal results.
"""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.models.net import Net, Value


def band_rows(sequence: int, window: int, dilation: int) -> np.ndarray:
    """int64[sequence, 2·window+1]: where entry (i, w) of the band lies in a sequence padded by window·dilation on both sides."""
    return np.arange(sequence)[:, None] + dilation * np.arange(2 * window + 1)[None, :]


def band_mask(sequence: int, window: int, dilation: int) -> np.ndarray:
    """float32[sequence, 2·window+1]: 0 where the key exists, -inf where it would lie outside the sequence."""
    key = band_rows(sequence, window, dilation) - window * dilation
    return np.where((key >= 0) & (key < sequence), 0, -np.inf).astype(np.float32)


def dense_mask(sequence: int, window: int, dilation: int) -> np.ndarray:
    """float32[sequence, sequence]: 0 where the key is in the query's window, -inf elsewhere."""
    distance = np.arange(sequence)[None, :] - np.arange(sequence)[:, None]
    return np.where((abs(distance) <= window * dilation) & (distance % dilation == 0), 0, -np.inf).astype(np.float32)


def gather_band(net: Net, x: Value, name: str, window: int, dilation: int) -> Value:
    """(b, sequence, d) to (b, sequence, 2·window+1, d): pad the sequence with zeros, gather every window."""
    batch, sequence, depth = x.shape
    reach = window * dilation
    widths = net.constant("band.pads", np.array([0, reach, 0, 0, reach, 0], np.int64))
    padded = net.node("Pad", f"{name}.pad", [x, widths], (batch, sequence + 2 * reach, depth), mode="constant")
    rows = net.constant("band.rows", band_rows(sequence, window, dilation))
    return net.node("Gather", f"{name}.band", [padded, rows], (batch, *rows.shape, depth), axis=1)


def band_scores(net: Net, query: Value, key: Value, window: int, dilation: int) -> Value:
    """(b, sequence, 2·window+1): each query times the keys of its window."""
    band = gather_band(net, key, "key", window, dilation)
    batch, sequence, depth = query.shape
    column = net.reshape(query, "query.column", (batch, sequence, depth, 1))
    product = net.node("MatMul", "scores.product", [band, column], (*band.shape[:3], 1))
    return net.reshape(product, "scores.band", band.shape[:3])


def _heads(net: Net, x: Value, name: str, heads: int) -> Value:
    """Linear projection of (batch, sequence, hidden), then (batch·heads, sequence, depth)."""
    batch, sequence, hidden = x.shape
    y = net.reshape(net.linear(x, name, hidden), f"{name}.split", (batch, sequence, heads, hidden // heads))
    y = net.transpose(y, f"{name}.heads", (0, 2, 1, 3))
    return net.reshape(y, f"{name}.rows", (batch * heads, sequence, hidden // heads))


def _softmax(net: Net, scores: Value, mask: np.ndarray) -> Value:
    """Attention weights along the last axis, masked."""
    masked = net.node("Add", "scores.masked", [scores, net.constant("scores.mask", mask)], scores.shape)
    return net.node("Softmax", "attention", [masked], scores.shape, axis=-1)


def _attend_band(net: Net, query: Value, key: Value, value: Value, window: int, dilation: int) -> Value:
    scores = band_scores(net, query, key, window, dilation)
    attention = _softmax(net, scores, band_mask(query.shape[1], window, dilation))
    row = net.reshape(attention, "attention.row", (*attention.shape[:2], 1, attention.shape[2]))
    band = gather_band(net, value, "value", window, dilation)
    product = net.node("MatMul", "context.product", [row, band], (*band.shape[:2], 1, band.shape[3]))
    return net.reshape(product, "context", value.shape)


def _attend_dense(net: Net, query: Value, key: Value, value: Value, window: int, dilation: int) -> Value:
    batch, sequence, _ = query.shape
    scores = net.node("MatMul", "scores", [query, net.transpose(key, "key.transposed", (0, 2, 1))], (batch, sequence, sequence))
    attention = _softmax(net, scores, dense_mask(sequence, window, dilation))
    return net.node("MatMul", "context", [attention, value], value.shape)


def _block(title: str, dense: bool, batch: int, seed: int, sequence: int, window: int, dilation: int, heads: int, hidden: int) -> onnx.ModelProto:
    net = Net(title, seed)
    x = net.input("hidden_states", (batch, sequence, hidden))
    query, key, value = (_heads(net, x, name, heads) for name in ("query", "key", "value"))
    scale = net.constant("query.scale", np.array((hidden // heads) ** -0.5, np.float32))
    query = net.node("Mul", "query.scaled", [query, scale], query.shape)
    attend = _attend_dense if dense else _attend_band
    context = net.reshape(attend(net, query, key, value, window, dilation), "context.heads", (batch, heads, sequence, hidden // heads))
    y = net.reshape(net.transpose(context, "context.rows", (0, 2, 1, 3)), "context.merged", x.shape)
    y = net.relu(net.linear(y, "intermediate", hidden, gain=2.0), "intermediate.relu")
    return net.finish(net.add(net.linear(y, "output", hidden), x, "output.residual"))


def longformer(
    batch: int = 1, seed: int = 0, sequence: int = 4096, window: int = 256, dilation: int = 4, heads: int = 8, hidden: int = 512
) -> onnx.ModelProto:
    """(batch, sequence, hidden) to the same, the band gathered: batch·sequence·(2·window+1)·hidden floats of it, for keys and for values."""
    return _block("longformer", False, batch, seed, sequence, window, dilation, heads, hidden)


def longformer_masked(
    batch: int = 1, seed: int = 0, sequence: int = 4096, window: int = 256, dilation: int = 4, heads: int = 8, hidden: int = 512
) -> onnx.ModelProto:
    """(batch, sequence, hidden) to the same, through all sequence² scores and a mask of that size."""
    return _block("longformer_masked", True, batch, seed, sequence, window, dilation, heads, hidden)
