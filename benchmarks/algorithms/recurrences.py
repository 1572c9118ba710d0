"""Recurrences: prefix sums and what decays along a sequence, as exporters and papers write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx

from benchmarks.algorithms.case import Case
from benchmarks.models.net import Net, Value


def causal(net: Net, length: int, decay: float = 1.0) -> Value:
    """The mask L[t,s] = decay^(t-s) for s <= t, 0 above the diagonal, as a weight."""
    t, s = np.arange(length)[:, None], np.arange(length)[None, :]
    return net.constant("mask", np.where(s <= t, decay ** np.maximum(t - s, 0), 0.0).astype(np.float32))


def masked_attention(length: int, heads: int, width: int, decay: float) -> onnx.ModelProto:
    """((q k') * L) v, of quadratic cost in the length: linear attention, and with a decay that of RetNet."""
    net = Net("masked_attention", 0)
    q, v = net.input("q", (heads, length, width)), net.input("v", (heads, length, width))
    k = net.input("k", (heads, width, length))
    scores = net.mul(net.matmul(q, k, "scores"), causal(net, length, decay), "masked")
    return net.finish(net.matmul(scores, v, "y"))


def state_space(length: int, heads: int, width: int, state: int) -> onnx.ModelProto:
    """Mamba-2's square form: (c b' * exp(the sums of a between s and t)) x, where the decays a are data."""
    net = Net("state_space", 0)
    x, a = net.input("x", (heads, length, width)), net.input("a", (heads, length))
    b, c = net.input("b", (heads, state, length)), net.input("c", (heads, length, state))
    log = net.node("Neg", "log", [net.node("Softplus", "positive", [a], a.shape)], a.shape)
    sums = net.node("CumSum", "sums", [log, net.constant("axis", np.array(1, np.int64))], log.shape)
    rows, columns = net.reshape(sums, "rows", (heads, length, 1)), net.reshape(sums, "columns", (heads, 1, length))
    apart = net.node("Sub", "apart", [rows, columns], (heads, length, length))
    held = net.constant("held", np.tril(np.ones((length, length), bool)))
    least = net.constant("least", np.array(-np.inf, np.float32))
    decay = net.node("Exp", "decay", [net.node("Where", "causal", [held, apart, least], apart.shape)], apart.shape)
    return net.finish(net.matmul(net.mul(net.matmul(c, b, "scores"), decay, "decayed"), x, "y"))


def running_sums(rows: int, length: int) -> onnx.ModelProto:
    """The operator for them, along the rows of a matrix."""
    net = Net("running_sums", 0)
    x = net.input("x", (rows, length))
    return net.finish(net.node("CumSum", "y", [x, net.constant("axis", np.array(1, np.int64))], x.shape))


def prefix_sums(rows: int, length: int) -> onnx.ModelProto:
    """Sums of the beginnings of every row, as a product with a triangle of ones."""
    net = Net("prefix_sums", 0)
    x = net.input("x", (rows, length))
    mask = net.constant("mask", np.triu(np.ones((length, length), np.float32)))
    return net.finish(net.matmul(x, mask, "y"))


def case(name: str, algorithm: str, make: Callable[..., onnx.ModelProto], *sizes: float) -> Case:
    """A case of a model of these sizes."""
    return Case(name, algorithm, partial(make, *sizes))


RECURRENCES: tuple[Case, ...] = (
    case("prefix sums 64 x 512", "one addition for each element", prefix_sums, 64, 512),
    case("running sums 64 x 4096", "a walk along each row", running_sums, 64, 4096),
    case("linear attention 512", "chunks, and a state between them", masked_attention, 512, 4, 64, 1.0),
    case("retention 512", "chunks, and a state that decays between them", masked_attention, 512, 4, 64, 0.97),
    case("retention 2048", "the same, at four times the length", masked_attention, 2048, 4, 64, 0.97),
    case("state space 512", "chunks, and a state between them, by decays that are data", state_space, 512, 4, 64, 32),
    case("state space 2048", "the same, at four times the length", state_space, 2048, 4, 64, 32),
)
