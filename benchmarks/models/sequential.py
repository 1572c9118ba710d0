"""Networks on vectors, sequences and volumes beside the seven: perceptrons, a transformer, one- and three-dimensional convolutions."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.models.net import Net, Value

GELU = {"root": np.array(2**0.5, np.float32), "one": np.array(1.0, np.float32), "half": np.array(0.5, np.float32)}


def mlp(batch: int = 1, seed: int = 0, size: int = 512, classes: int = 10) -> onnx.ModelProto:
    """Four linear layers with ReLU between."""
    net = Net("mlp", seed)
    x = net.input("x", (batch, size))
    for n, features in enumerate((4 * size, 2 * size, size), start=1):
        x = net.relu(net.gemm(x, f"fc{n}", features, gain=2.0), f"relu{n}")
    return net.finish(net.gemm(x, "fc4", classes))


def gelu(net: Net, x: Value, name: str) -> Value:
    """x (1 + erf(x / √2)) / 2, as exporters write it."""
    root, one, half = (net.constant(f"gelu.{key}", v) for key, v in GELU.items())
    y = net.unary("Erf", net.node("Div", f"{name}.div", [x, root], x.shape), f"{name}.erf")
    y = net.mul(x, net.node("Add", f"{name}.shift", [y, one], x.shape), f"{name}.mul")
    return net.mul(y, half, name)


def feed_forward(net: Net, x: Value, name: str, hidden: int) -> Value:
    """Two linear layers with GELU between."""
    return net.linear(gelu(net, net.linear(x, f"{name}.up", hidden), f"{name}.gelu"), f"{name}.down", x.shape[-1], gain=0.5)


def self_attention(net: Net, x: Value, name: str, heads: int) -> Value:
    """Softmax attention of every position to every position."""
    batch, sequence, hidden = x.shape
    depth = hidden // heads

    def split_heads(part: str, order: tuple[int, ...]) -> Value:
        y = net.reshape(net.linear(x, f"{name}.{part}", hidden), f"{name}.{part}.heads", (batch, sequence, heads, depth))
        return net.transpose(y, f"{name}.{part}.order", order)

    query, key, value = split_heads("query", (0, 2, 1, 3)), split_heads("key", (0, 2, 3, 1)), split_heads("value", (0, 2, 1, 3))
    scale = net.constant(f"{name}.scale", np.array(depth**-0.5, np.float32))
    scores = net.mul(net.matmul(query, key, f"{name}.scores"), scale, f"{name}.scaled")
    context = net.matmul(net.unary("Softmax", scores, f"{name}.softmax", axis=-1), value, f"{name}.context")
    merged = net.reshape(net.transpose(context, f"{name}.merge", (0, 2, 1, 3)), f"{name}.merged", (batch, sequence, hidden))
    return net.linear(merged, f"{name}.output", hidden, gain=0.5)


def transformer(batch: int = 1, seed: int = 0, sequence: int = 128, hidden: int = 256, heads: int = 4, layers: int = 2) -> onnx.ModelProto:
    """Encoder layers: attention, then a feed-forward pair, each with residual and layer norm after it (BERT)."""
    net = Net("transformer", seed)
    x = net.input("embeddings", (batch, sequence, hidden))
    for n in range(layers):
        x = net.layer_norm(net.add(x, self_attention(net, x, f"layer{n}.attention", heads), f"layer{n}.add1"), f"layer{n}.norm1")
        x = net.layer_norm(net.add(x, feed_forward(net, x, f"layer{n}.ffn", 4 * hidden), f"layer{n}.add2"), f"layer{n}.norm2")
    return net.finish(x)


def mixer(batch: int = 1, seed: int = 0, tokens: int = 64, hidden: int = 128, layers: int = 3) -> onnx.ModelProto:
    """Linear layers over tokens and over channels in turn, through transposes (MLP-Mixer)."""
    net = Net("mixer", seed)
    x = net.input("patches", (batch, tokens, hidden))
    for n in range(layers):
        y = net.transpose(net.layer_norm(x, f"layer{n}.norm1"), f"layer{n}.tokens", (0, 2, 1))
        y = net.transpose(feed_forward(net, y, f"layer{n}.mix", 2 * tokens), f"layer{n}.channels", (0, 2, 1))
        x = net.add(x, y, f"layer{n}.add1")
        y = feed_forward(net, net.layer_norm(x, f"layer{n}.norm2"), f"layer{n}.ffn", 2 * hidden)
        x = net.add(x, y, f"layer{n}.add2")
    return net.finish(x)


def audio(batch: int = 1, seed: int = 0, samples: int = 4096, channels: int = 32, classes: int = 10) -> onnx.ModelProto:
    """One-dimensional: a strided convolution over samples, gated dilated residual layers (WaveNet), a pooled classifier."""
    net = Net("audio", seed)
    x = net.relu(net.conv(net.input("samples", (batch, 1, samples)), "stem", channels, 16, stride=4, pad=6), "stem.relu")
    for n in range(6):
        reach = 1 << n % 3
        tanh, gate = (net.conv(x, f"layer{n}.{part}", channels, 3, pad=reach, dilation=reach, gain=1.0) for part in ("filter", "gate"))
        y = net.mul(net.unary("Tanh", tanh, f"layer{n}.tanh"), net.unary("Sigmoid", gate, f"layer{n}.sigmoid"), f"layer{n}.gated")
        x = net.add(x, net.conv(y, f"layer{n}.out", channels, 1, gain=1.0), f"layer{n}.add")
    return net.finish(net.gemm(net.pooled_features(net.relu(x, "relu"), "head"), "fc", classes))


def volume(batch: int = 1, seed: int = 0, size: int = 24, classes: int = 10) -> onnx.ModelProto:
    """Three-dimensional 3x3x3 convolutions and pooling (C3D)."""
    net = Net("volume", seed)
    x = net.input("clip", (batch, 3, size // 2, size, size))
    for n, features in enumerate((16, 32, 64)):
        x = net.relu(net.batch_norm(net.conv(x, f"conv{n}", features, 3, pad=1, bias=False), f"bn{n}"), f"relu{n}")
        x = net.max_pool(x, f"pool{n}", 2, stride=2) if min(x.shape[2:]) > 1 else x
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))
