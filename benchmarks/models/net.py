"""A small writer of ONNX graphs: layers by name, shapes known as they are written, weights drawn from a seed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9


class Value(NamedTuple):
    """A tensor of the graph under construction."""

    name: str
    shape: tuple[int, ...]


def each(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for every axis, or one for each."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


class Net:
    """Nodes and weights in the order in which they are added.

    Every weight is drawn from (seed, its name), so adding a layer changes no other layer's weights. Convolutions and linear layers have
    variance 2/fan-in (1/fan-in with `gain=1`): activations stay near unit scale through ReLU networks of any depth.
    """

    def __init__(self, title: str, seed: int) -> None:
        self.title = title
        self.seed = seed
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []

    # -- values --------------------------------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: tuple[int, ...]) -> Value:
        """A float32 input of the model."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return Value(name, shape)

    def constant(self, name: str, array: np.ndarray) -> Value:
        """An initializer; the same name twice is the same weight, shared."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.require(array, requirements="C"), name)
        return Value(name, array.shape)

    def normal(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Value:
        """A float32 weight with normal entries."""
        return self.constant(name, (mean + std * self.random(name).standard_normal(shape)).astype(np.float32))

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> Value:
        """A float32 weight with uniform entries."""
        return self.constant(name, self.random(name).uniform(low, high, shape).astype(np.float32))

    def random(self, name: str) -> np.random.Generator:
        """The random stream that belongs to a weight's name."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def node(self, op: str, name: str, inputs: Sequence[Value], shape: tuple[int, ...], **attributes: Any) -> Value:
        """One node with one output, named like the node."""
        self.nodes.append(helper.make_node(op, [v.name for v in inputs], [name], name=name, **attributes))
        return Value(name, shape)

    def finish(self, *outputs: Value) -> onnx.ModelProto:
        """The model, fully checked, shapes compared with ONNX's own inference.

        Raises onnx.checker.ValidationError or onnx.shape_inference.InferenceError when a generator is wrong.
        """
        results = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs]
        graph = helper.make_graph(self.nodes, self.title, self.inputs, results, initializer=list(self.weights.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="einnet-benchmarks", ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model

    # -- layers --------------------------------------------------------------------------------------------------------------------------

    def conv(
        self,
        x: Value,
        name: str,
        features: int,
        kernel: int | tuple[int, ...],
        *,
        stride: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        gain: float = 2.0,
        shared: str | None = None,
    ) -> Value:
        """Convolution of (batch, channels, spatial...); `shared` names the layer whose weights it uses."""
        batch, channels, *size = x.shape
        rank = len(size)
        taps, pads, steps = each(kernel, rank), each(pad, rank), each(stride, rank)
        layer = shared or name
        fan_in = channels // groups * prod(taps)
        operands = [x, self.normal(f"{layer}.weight", (features, channels // groups, *taps), (gain / fan_in) ** 0.5)]
        if bias:
            operands.append(self.normal(f"{layer}.bias", (features,), 0.1))
        out = tuple((n + 2 * p - dilation * (k - 1) - 1) // s + 1 for n, k, p, s in zip(size, taps, pads, steps, strict=True))
        return self.node(
            "Conv", name, operands, (batch, features, *out),
            kernel_shape=taps, strides=steps, pads=(*pads, *pads), dilations=(dilation,) * rank, group=groups,
        )  # fmt: skip

    def conv_transpose(
        self,
        x: Value,
        name: str,
        features: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        output_padding: int = 0,
        bias: bool = False,
        gain: float = 2.0,
    ) -> Value:
        """Two-dimensional transposed convolution of NCHW; weights are (channels, features, k, k)."""
        batch, channels, *size = x.shape
        out = tuple((n - 1) * stride - 2 * pad + kernel + output_padding for n in size)
        reach = min(kernel / stride, size[0])
        operands = [x, self.normal(f"{name}.weight", (channels, features, kernel, kernel), (gain / (channels * reach**2)) ** 0.5)]
        if bias:
            operands.append(self.normal(f"{name}.bias", (features,), 0.1))
        return self.node(
            "ConvTranspose", name, operands, (batch, features, *out),
            kernel_shape=(kernel, kernel), strides=(stride, stride), pads=(pad,) * 4, output_padding=(output_padding,) * 2,
        )  # fmt: skip

    def batch_norm(self, x: Value, name: str, *, gain: float = 1.0, shared: str | None = None) -> Value:
        """Inference batch normalization with running statistics, scale and shift that all matter; `gain` is the mean scale."""
        layer, size = shared or name, (x.shape[1],)
        operands = [
            x,
            self.uniform(f"{layer}.weight", size, 0.7 * gain, 1.3 * gain),
            self.normal(f"{layer}.bias", size, 0.1),
            self.normal(f"{layer}.running_mean", size, 0.1),
            self.uniform(f"{layer}.running_var", size, 0.6, 1.6),
        ]
        return self.node("BatchNormalization", name, operands, x.shape, epsilon=1e-5)

    def relu(self, x: Value, name: str) -> Value:
        """max(x, 0)"""
        return self.node("Relu", name, [x], x.shape)

    def prelu(self, x: Value, name: str) -> Value:
        """A learned slope below 0 for each channel."""
        return self.node("PRelu", name, [x, self.uniform(f"{name}.weight", (x.shape[1], 1, 1), 0.05, 0.4)], x.shape)

    def relu6(self, x: Value, name: str) -> Value:
        """min(max(x, 0), 6)"""
        bounds = [self.constant(f"bound.{v}", np.array(v, np.float32)) for v in (0.0, 6.0)]
        return self.node("Clip", name, [x, *bounds], x.shape)

    def unary(self, op: str, x: Value, name: str, **attributes: Any) -> Value:
        """Any operator that keeps the shape of its one operand."""
        return self.node(op, name, [x], x.shape, **attributes)

    def mul(self, a: Value, b: Value, name: str) -> Value:
        """Product; shapes broadcast."""
        return self.node("Mul", name, [a, b], np.broadcast_shapes(a.shape, b.shape))

    def concat(self, parts: Sequence[Value], name: str, axis: int = 1) -> Value:
        """Tensors one after the other along an axis."""
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.node("Concat", name, parts, tuple(shape), axis=axis)

    def split(self, x: Value, name: str, sizes: Sequence[int], axis: int = 1) -> list[Value]:
        """Parts of these sizes along an axis, named NAME.0, NAME.1 and so on."""
        assert sum(sizes) == x.shape[axis], (name, x.shape, sizes)
        shapes = [tuple(n if d == axis else m for d, m in enumerate(x.shape)) for n in sizes]
        parts = [Value(f"{name}.{n}", shape) for n, shape in enumerate(shapes)]
        lengths = self.constant(f"{name}.sizes", np.array(sizes, np.int64))
        self.nodes.append(helper.make_node("Split", [x.name, lengths.name], [p.name for p in parts], name=name, axis=axis))
        return parts

    def layer_norm(self, x: Value, name: str) -> Value:
        """Normalization over the last axis, with scale and shift."""
        size = (x.shape[-1],)
        operands = [x, self.uniform(f"{name}.weight", size, 0.7, 1.3), self.normal(f"{name}.bias", size, 0.1)]
        return self.node("LayerNormalization", name, operands, x.shape, axis=-1, epsilon=1e-5)

    def matmul(self, a: Value, b: Value, name: str) -> Value:
        """Batched matrix product of tensors with equal batch dimensions."""
        return self.node("MatMul", name, [a, b], (*a.shape[:-1], b.shape[-1]))

    def add(self, a: Value, b: Value, name: str) -> Value:
        """Sum of two tensors of one shape."""
        assert a.shape == b.shape, (name, a.shape, b.shape)
        return self.node("Add", name, [a, b], a.shape)

    def max_pool(self, x: Value, name: str, kernel: int, *, stride: int, pad: int = 0) -> Value:
        """Maximum over windows; padding never wins."""
        return self._pool("MaxPool", x, name, kernel, stride, pad)

    def average_pool(self, x: Value, name: str, kernel: int, *, stride: int, pad: int = 0) -> Value:
        """Mean over windows; padding does not count."""
        return self._pool("AveragePool", x, name, kernel, stride, pad)

    def _pool(self, op: str, x: Value, name: str, kernel: int, stride: int, pad: int) -> Value:
        batch, channels, *size = x.shape
        rank, out = len(size), tuple((n + 2 * pad - kernel) // stride + 1 for n in size)
        window = {"kernel_shape": (kernel,) * rank, "strides": (stride,) * rank, "pads": (pad,) * (2 * rank)}
        return self.node(op, name, [x], (batch, channels, *out), **window)

    def pooled_features(self, x: Value, name: str) -> Value:
        """Global average over space, flattened to (batch, channels)."""
        batch, channels, *_ = x.shape
        mean = self.node("GlobalAveragePool", f"{name}.pool", [x], (batch, channels, *(1 for _ in x.shape[2:])))
        return self.node("Flatten", f"{name}.flatten", [mean], (batch, channels), axis=1)

    def gemm(self, x: Value, name: str, features: int, *, gain: float = 1.0) -> Value:
        """Linear layer on (batch, channels), weights (features, channels)."""
        batch, channels = x.shape
        operands = [x, self.normal(f"{name}.weight", (features, channels), (gain / channels) ** 0.5), self.normal(f"{name}.bias", (features,), 0.1)]
        return self.node("Gemm", name, operands, (batch, features), alpha=1.0, beta=1.0, transB=1)

    def linear(self, x: Value, name: str, features: int, *, gain: float = 1.0) -> Value:
        """Linear layer on (..., channels), as a MatMul and an Add."""
        channels = x.shape[-1]
        weight = self.normal(f"{name}.weight", (channels, features), (gain / channels) ** 0.5)
        product = self.node("MatMul", f"{name}.matmul", [x, weight], (*x.shape[:-1], features))
        return self.node("Add", name, [product, self.normal(f"{name}.bias", (features,), 0.1)], product.shape)

    def reshape(self, x: Value, name: str, shape: tuple[int, ...]) -> Value:
        """The same elements in the same order under another shape."""
        assert np.prod(shape) == np.prod(x.shape), (name, x.shape, shape)
        return self.node("Reshape", name, [x, self.constant(f"{name}.shape", np.array(shape, np.int64))], shape)

    def transpose(self, x: Value, name: str, order: tuple[int, ...]) -> Value:
        """Dimension i of the result is dimension order[i] of x."""
        return self.node("Transpose", name, [x], tuple(x.shape[i] for i in order), perm=order)

    def upsample(self, x: Value, name: str, size: tuple[int, ...]) -> Value:
        """Bilinear interpolation to `size` with aligned corners."""
        shape = (*x.shape[:2], *size)
        absent = Value("", ())
        sizes = self.constant(f"{name}.sizes", np.array(shape, np.int64))
        return self.node("Resize", name, [x, absent, absent, sizes], shape, mode="linear", coordinate_transformation_mode="align_corners")
