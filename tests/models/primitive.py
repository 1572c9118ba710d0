"""Blocks of networks as exporters write them without the operators that the standard has for them: norms, ConvNeXt, windows of attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.models.net import Net, Value


def scalar(net: Net, name: str, value: float) -> Value:
    return net.constant(name, np.array(value, np.float32))


def ints(net: Net, name: str, *values: int) -> Value:
    return net.constant(name, np.array(values, np.int64))


def mean(net: Net, x: Value, name: str, axis: int) -> Value:
    shape = tuple(1 if k == axis % len(x.shape) else n for k, n in enumerate(x.shape))
    return net.node("ReduceMean", name, [x, ints(net, f"{name}.axes", axis)], shape, keepdims=1)


def binary(net: Net, op: str, name: str, a: Value, b: Value) -> Value:
    return net.node(op, name, [a, b], np.broadcast_shapes(a.shape, b.shape))


def transpose(net: Net, x: Value, name: str, *order: int) -> Value:
    return net.node("Transpose", name, [x], tuple(x.shape[k] for k in order), perm=order)


def reshape(net: Net, x: Value, name: str, *shape: int) -> Value:
    return net.node("Reshape", name, [x, ints(net, f"{name}.shape", *shape)], shape)


def linear(net: Net, x: Value, name: str, features: int) -> Value:
    product = binary_matmul(net, x, f"{name}.product", net.normal(f"{name}.weight", (x.shape[-1], features), x.shape[-1] ** -0.5))
    return binary(net, "Add", name, product, net.normal(f"{name}.bias", (features,), 0.1))


def binary_matmul(net: Net, a: Value, name: str, b: Value) -> Value:
    return net.node("MatMul", name, [a, b], (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def inverse_root(net: Net, power: Value, name: str) -> Value:
    shifted = binary(net, "Add", f"{name}.shifted", power, scalar(net, f"{name}.epsilon", 1e-5))
    return net.node("Sqrt", f"{name}.root", [shifted], shifted.shape)


def layer_norm(net: Net, x: Value, name: str, axis: int) -> Value:
    """Over one dimension, with scale and shift along it."""
    centred = binary(net, "Sub", f"{name}.centred", x, mean(net, x, f"{name}.mean", axis))
    square = binary(net, "Pow", f"{name}.square", centred, scalar(net, f"{name}.two", 2.0))
    normal = binary(net, "Div", f"{name}.normal", centred, inverse_root(net, mean(net, square, f"{name}.power", axis), name))
    shape = (x.shape[axis], *(1,) * (len(x.shape) - axis % len(x.shape) - 1))
    scaled = binary(net, "Mul", f"{name}.scaled", normal, net.uniform(f"{name}.weight", shape, 0.7, 1.3))
    return binary(net, "Add", name, scaled, net.normal(f"{name}.bias", shape, 0.1))


def gelu(net: Net, x: Value, name: str) -> Value:
    ratio = binary(net, "Div", f"{name}.ratio", x, scalar(net, f"{name}.root2", 2**0.5))
    bell = binary(net, "Add", f"{name}.bell", net.node("Erf", f"{name}.erf", [ratio], x.shape), scalar(net, f"{name}.one", 1.0))
    return binary(net, "Mul", name, binary(net, "Mul", f"{name}.twice", x, bell), scalar(net, f"{name}.half", 0.5))


def rms_norm() -> onnx.ModelProto:
    """x / √(mean x² + ε) · w, then a linear layer."""
    net = Net("rms_norm", 0)
    x = net.input("x", (4, 48))
    power = mean(net, binary(net, "Mul", "square", x, x), "power", -1)
    normal = binary(net, "Div", "normal", x, inverse_root(net, power, "norm"))
    return net.finish(linear(net, binary(net, "Mul", "scaled", normal, net.uniform("weight", (48,), 0.7, 1.3)), "out", 16))


def convnext(channels_last: bool) -> onnx.ModelProto:
    """A block of ConvNeXt: depthwise 7x7, layer norm over channels, two linear layers with Gelu, a scale for each channel, residual."""
    net = Net("convnext", 0)
    size = 12
    x = net.input("x", (1, size, 6, 6))
    y = net.conv(x, "depthwise", size, 7, pad=3, groups=size)
    if channels_last:
        y = layer_norm(net, transpose(net, y, "to_last", 0, 2, 3, 1), "norm", -1)
        y = linear(net, gelu(net, linear(net, y, "up", 4 * size), "gelu"), "down", size)
        y = transpose(net, binary(net, "Mul", "gamma", y, net.uniform("gamma.weight", (size,), 0.5, 1.5)), "to_first", 0, 3, 1, 2)
    else:
        y = layer_norm(net, y, "norm", 1)
        y = net.conv(gelu(net, net.conv(y, "up", 4 * size, 1), "gelu"), "down", size, 1)
        y = binary(net, "Mul", "gamma", y, net.uniform("gamma.weight", (size, 1, 1), 0.5, 1.5))
    return net.finish(binary(net, "Add", "sum", x, y))


def window_attention() -> onnx.ModelProto:
    """Attention within 2x2 windows of a 4x4 map that is shifted by one, with a bias for each pair of places and the mean of all at the end."""
    net = Net("window_attention", 0)
    heads, depth, channels = 2, 4, 8
    x = layer_norm(net, net.input("x", (1, 4, 4, channels)), "norm", -1)
    first = net.node("Slice", "first", [x, *(ints(net, f"first.{k}", n) for k, n in (("a", 0), ("b", 1), ("axis", 1)))], (1, 1, 4, channels))
    rest = net.node("Slice", "rest", [x, *(ints(net, f"rest.{k}", n) for k, n in (("a", 1), ("b", 4), ("axis", 1)))], (1, 3, 4, channels))
    rolled = net.node("Concat", "rolled", [rest, first], x.shape, axis=1)
    gathered = transpose(net, reshape(net, rolled, "cut", 1, 2, 2, 2, 2, channels), "gathered", 0, 1, 3, 2, 4, 5)
    windows = reshape(net, gathered, "windows", 4, 4, channels)
    parts = []
    for name in ("query", "key", "value"):
        part = reshape(net, linear(net, windows, name, channels), f"{name}.heads", 4, 4, heads, depth)
        parts.append(transpose(net, part, f"{name}.apart", 0, 2, *((3, 1) if name == "key" else (1, 3))))
    query = binary(net, "Mul", "query.scaled", parts[0], scalar(net, "scale", depth**-0.5))
    scores = binary(net, "Add", "scores", binary_matmul(net, query, "products", parts[1]), net.normal("places", (1, heads, 4, 4), 0.2))
    weights = net.node("Softmax", "weights", [scores], scores.shape, axis=-1)
    joined = reshape(net, transpose(net, binary_matmul(net, weights, "taken", parts[2]), "back", 0, 2, 1, 3), "joined", 4, 4, channels)
    out = linear(net, joined, "out", channels)
    spread = transpose(net, reshape(net, out, "pieces", 1, 2, 2, 2, 2, channels), "spread", 0, 1, 3, 2, 4, 5)
    return net.finish(mean(net, reshape(net, spread, "map", 1, 16, channels), "pooled", 1))


PRIMITIVE: dict[str, Callable[[], onnx.ModelProto]] = {
    "rms_norm": rms_norm,
    "convnext_last": lambda: convnext(True),
    "convnext_first": lambda: convnext(False),
    "window_attention": window_attention,
}
