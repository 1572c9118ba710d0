"""An ONNX graph as a function on jax arrays, for the operators of the benchmark models, by their definition: XLA compiles the whole of it.

Shapes are static, so that whatever follows from shapes and constants is computed in numpy while the function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import helper, numpy_helper

Attributes = dict[str, Any]
Value = Any
"""A jax array, or the numpy value of a constant."""
Apply = Callable[[list[Value], Attributes], "Value | list[Value]"]
"""From operands (None for one that is left out) and attributes to the result, or to one result for each output."""


def _window(x: Value, a: Attributes, taps: Sequence[int]) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Strides, dilations and pads for each spatial axis."""
    rank = len(taps)
    pads = a.get("pads", [0] * 2 * rank)
    if a.get("auto_pad", b"NOTSET") != b"NOTSET" or a.get("ceil_mode", 0):
        raise ValueError("pads are to be explicit, and no window partly outside of them")
    return a.get("strides", [1] * rank), a.get("dilations", [1] * rank), list(zip(pads[:rank], pads[rank:], strict=True))


def _conv(operands: list[Value], a: Attributes) -> Value:
    x, w, bias = (*operands, None)[:3]
    strides, dilations, pads = _window(x, a, w.shape[2:])
    y = lax.conv_general_dilated(x, w, strides, pads, rhs_dilation=dilations, feature_group_count=a.get("group", 1))
    return y if bias is None else y + _by_channel(bias, y)


def _conv_transpose(operands: list[Value], a: Attributes) -> Value:
    """The convolution of the input, its elements a stride apart, with the mirrored window."""
    x, w, bias = (*operands, None)[:3]
    strides, dilations, pads = _window(x, a, w.shape[2:])
    group, (channels, filters, *taps) = a.get("group", 1), w.shape
    flipped = jnp.flip(w, range(2, w.ndim)).reshape(group, channels // group, filters, *taps)
    weights = jnp.swapaxes(flipped, 1, 2).reshape(group * filters, channels // group, *taps)
    more = a.get("output_padding", [0] * len(taps))
    reach = [(n - 1) * d for n, d in zip(taps, dilations, strict=True)]
    around = [(r - begin, r - end + extra) for r, (begin, end), extra in zip(reach, pads, more, strict=True)]
    one = [1] * len(taps)
    y = lax.conv_general_dilated(x, weights, one, around, lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=group)
    return y if bias is None else y + _by_channel(bias, y)


def _by_channel(values: Value, like: Value) -> Value:
    return values.reshape(1, -1, *(1,) * (like.ndim - 2))


def _batch_norm(operands: list[Value], a: Attributes) -> Value:
    x, scale, shift, mean, variance = operands
    factor = scale / jnp.sqrt(variance + a.get("epsilon", 1e-5))
    return x * _by_channel(factor, x) + _by_channel(shift - mean * factor, x)


def _layer_norm(operands: list[Value], a: Attributes) -> Value:
    x, scale, shift = (*operands, None)[:3]
    axes = tuple(range(a.get("axis", -1) % x.ndim, x.ndim))
    centred = x - jnp.mean(x, axes, keepdims=True)
    y = centred / jnp.sqrt(jnp.mean(centred * centred, axes, keepdims=True) + a.get("epsilon", 1e-5)) * scale
    return y if shift is None else y + shift


def _pooled(x: Value, a: Attributes, first: float, combine: Callable[[Value, Value], Value]) -> Value:
    strides, dilations, pads = _window(x, a, a["kernel_shape"])
    whole = ((0, 0), (0, 0), *pads)
    return lax.reduce_window(x, first, combine, (1, 1, *a["kernel_shape"]), (1, 1, *strides), whole, window_dilation=(1, 1, *dilations))


def _max_pool(operands: list[Value], a: Attributes) -> Value:
    return _pooled(operands[0], a, -jnp.inf, lax.max)


def _average_pool(operands: list[Value], a: Attributes) -> Value:
    """The sum by the number of elements in the window, padding left out unless it is asked for."""
    (x,) = operands
    count = prod(a["kernel_shape"]) if a.get("count_include_pad", 0) else _pooled(jnp.ones_like(x), a, 0.0, lax.add)
    return _pooled(x, a, 0.0, lax.add) / count


def _gemm(operands: list[Value], a: Attributes) -> Value:
    x, w, bias = (*operands, None)[:3]
    y = a.get("alpha", 1.0) * jnp.matmul(x.T if a.get("transA", 0) else x, w.T if a.get("transB", 0) else w)
    return y if bias is None else y + a.get("beta", 1.0) * bias


def _resize(operands: list[Value], a: Attributes) -> Value:
    """Linear interpolation along each axis that changes, as a product with the matrix of its weights."""
    x, _, scales, sizes = (*operands, None, None, None)[:4]
    modes = (a.get("mode", b"nearest"), a.get("coordinate_transformation_mode", b"half_pixel"))
    if modes != (b"linear", b"align_corners"):
        raise ValueError(f"Resize by {modes}: written here is linear with aligned corners")
    made = [int(n) for n in sizes] if sizes is not None else [int(n * s) for n, s in zip(x.shape, scales, strict=True)]
    for axis, (n, m) in enumerate(zip(x.shape, made, strict=True)):
        if n != m:
            x = jnp.moveaxis(jnp.tensordot(x, _aligned(n, m), (axis, 0)), -1, axis)
    return x


def _aligned(n: int, m: int) -> np.ndarray:
    """The weight of each of n samples in each of m, the first and the last of both in the same places."""
    at = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    return np.maximum(0.0, 1.0 - np.abs(at[None, :] - np.arange(n)[:, None])).astype(np.float32)


def _pad(operands: list[Value], a: Attributes) -> Value:
    x, pads, value = (*operands, None)[:3]
    if a.get("mode", b"constant") != b"constant" or (len(operands) > 3 and operands[3] is not None):
        raise ValueError("Pad by a constant on all axes is what is written here")
    begins, ends = np.asarray(pads).reshape(2, -1).tolist()
    return jnp.pad(x, list(zip(begins, ends, strict=True)), constant_values=0.0 if value is None else value)


def _reshape(operands: list[Value], a: Attributes) -> Value:
    x, wanted = operands
    return x.reshape([n or x.shape[axis] for axis, n in enumerate(np.asarray(wanted).tolist())])


def _flatten(operands: list[Value], a: Attributes) -> Value:
    (x,) = operands
    return x.reshape(prod(x.shape[: a.get("axis", 1)]), -1)


def _split(operands: list[Value], a: Attributes) -> list[Value]:
    x, sizes = operands
    return jnp.split(x, np.cumsum(np.asarray(sizes))[:-1].tolist(), a.get("axis", 0))


def _clip(operands: list[Value], a: Attributes) -> Value:
    x, low, high = (*operands, None, None)[:3]
    return jnp.clip(x, low, high)


def _by(function: Callable[..., Value]) -> Apply:
    return lambda operands, a: function(*operands)


APPLY: dict[str, Apply] = {
    "Add": _by(jnp.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda operands, a: jnp.concatenate(operands, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _by(jnp.divide),
    "Erf": _by(lax.erf),
    "Flatten": _flatten,
    "Gather": lambda operands, a: jnp.take(operands[0], operands[1], a.get("axis", 0)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda operands, a: jnp.mean(operands[0], tuple(range(2, operands[0].ndim)), keepdims=True),
    "LayerNormalization": _layer_norm,
    "MatMul": _by(jnp.matmul),
    "MaxPool": _max_pool,
    "Mul": _by(jnp.multiply),
    "PRelu": lambda operands, a: jnp.where(operands[0] < 0, operands[0] * operands[1], operands[0]),
    "Pad": _pad,
    "Relu": _by(jax.nn.relu),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": _by(jax.nn.sigmoid),
    "Softmax": lambda operands, a: jax.nn.softmax(operands[0], a.get("axis", -1)),
    "Split": _split,
    "Sub": _by(jnp.subtract),
    "Tanh": _by(jnp.tanh),
    "Transpose": lambda operands, a: jnp.transpose(operands[0], a.get("perm")),
}

STATIC = {"Reshape": (1,), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Split": (1,)}
"""Operands that decide on shapes: they stay constants, all others are arguments of what is compiled."""


def to_jax(model: onnx.ModelProto) -> tuple[Callable[..., tuple[jax.Array, ...]], dict[str, np.ndarray]]:
    """A function of weights by name and of the inputs in the model's order, to be compiled; and the weights.

    ValueError, with the node's name, for an operator or attribute that the benchmark models do not have.
    """
    nodes, constants = list(model.graph.node), {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    unknown = next((n for n in nodes if n.op_type not in APPLY or n.domain not in ("", "ai.onnx")), None)
    if unknown is not None:
        raise ValueError(f"{unknown.op_type} '{unknown.name}': no jax translation")
    static = {n.input[place] for n in nodes for place in STATIC.get(n.op_type, ()) if place < len(n.input)}
    given = [i.name for i in model.graph.input if i.name not in constants]
    attributes = [{a.name: helper.get_attribute_value(a) for a in n.attribute} for n in nodes]

    def run(weights: dict[str, jax.Array], *inputs: jax.Array) -> tuple[jax.Array, ...]:
        values: dict[str, Value] = {**{n: constants[n] for n in static if n in constants}, **weights, **dict(zip(given, inputs, strict=True))}
        for node, a in zip(nodes, attributes, strict=True):
            try:
                made = APPLY[node.op_type]([values[name] if name else None for name in node.input], a)
            except ValueError as error:
                raise ValueError(f"{node.op_type} '{node.name}': {error}") from error
            values.update(zip(node.output, made if isinstance(made, list) else [made], strict=False))
        return tuple(values[o.name] for o in model.graph.output)

    return run, {name: value for name, value in constants.items() if name not in static}
