"""An ONNX graph as a torch.fx module, for the operators of the benchmark models. Eager runs it as written, torch.compile traces through it."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from torch import fx

Attributes = dict[str, Any]
Build = Callable[[fx.Graph, list[Any], Attributes], fx.Node | list[fx.Node]]
"""From operands, fx nodes or the numpy value of a constant that is an argument in torch, and attributes to the node's translation, one for each
output."""


def _symmetric(pads: list[int]) -> list[int]:
    half = len(pads) // 2
    if pads[:half] != pads[half:]:
        raise ValueError(f"asymmetric pads {pads}: torch has symmetric ones only")
    return pads[:half]


def _conv(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    """Padding that is not symmetric, as of a causal filter, is torch's own padding before it."""
    x, weight, bias = (*operands, None)[:3]
    rank = len(a.get("kernel_shape") or a.get("strides") or a["pads"][::2])
    function, ones = (F.conv1d, F.conv2d, F.conv3d)[rank - 1], [1] * rank
    pads = a.get("pads", [0] * 2 * rank)
    if pads[:rank] != pads[rank:]:
        x, pads = graph.call_function(F.pad, (x, _by_axis(pads))), [0] * 2 * rank
    return graph.call_function(function, (x, weight, bias, a.get("strides", ones), pads[:rank], a.get("dilations", ones), a.get("group", 1)))


def _by_axis(pads: list[int]) -> list[int]:
    """ONNX lists all begins, then all ends, first axis first; torch pairs them, last axis first."""
    half = len(pads) // 2
    return [p for pair in reversed(list(zip(pads[:half], pads[half:], strict=True))) for p in pair]


def _conv_transpose(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    x, weight, bias = (*operands, None)[:3]
    return graph.call_function(F.conv_transpose2d, (x, weight, bias, a["strides"], _symmetric(a["pads"]), a["output_padding"]))


def _max_pool(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(a["strides"]) - 1]
    return graph.call_function(function, (operands[0], a["kernel_shape"], a["strides"], _symmetric(a["pads"])))


def _average_pool(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    """Padding does not count."""
    return graph.call_function(F.avg_pool2d, (operands[0], a["kernel_shape"], a["strides"], _symmetric(a["pads"]), False, False))


def _layer_norm(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    x, scale, shift = operands
    return graph.call_function(F.layer_norm, (x, graph.call_function(getattr, (scale, "shape")), scale, shift, a["epsilon"]))


def _split(graph: fx.Graph, operands: list[Any], a: Attributes) -> list[fx.Node]:
    """A node for each part."""
    x, sizes = operands
    parts = graph.call_function(torch.split, (x, sizes.tolist(), a["axis"]))
    return [graph.call_function(getitem, (parts, n)) for n in range(sizes.size)]


def _global_mean(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    return graph.call_function(_spatial_mean, (operands[0],))


def _spatial_mean(x: torch.Tensor) -> torch.Tensor:
    """The mean over all but the first two axes, which stay with extent 1."""
    return torch.mean(x, tuple(range(2, x.dim())), True)


def _gemm(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    if (a["alpha"], a["beta"], a.get("transA", 0), a["transB"]) != (1.0, 1.0, 0, 1):
        raise ValueError(f"Gemm with {a}: torch's linear layer is alpha = beta = 1, transB = 1")
    return graph.call_function(F.linear, tuple(operands))


def _batch_norm(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    x, scale, shift, mean, variance = operands
    return graph.call_function(F.batch_norm, (x, mean, variance, scale, shift, False, 0.0, a["epsilon"]))


def _prelu(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    x, slope = operands
    return graph.call_function(F.prelu, (x, graph.call_method("flatten", (slope,))))


def _gather(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    """Entries of one axis, which becomes the axes of the index."""
    x, rows = operands
    flat = graph.call_function(torch.index_select, (x, a["axis"], graph.call_method("flatten", (rows,))))
    return graph.call_method("unflatten", (flat, a["axis"], graph.call_function(getattr, (rows, "shape"))))


def _pad(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    x, values = operands
    return graph.call_function(F.pad, (x, _by_axis(values.tolist())))


def _resize(graph: fx.Graph, operands: list[Any], a: Attributes) -> fx.Node:
    return graph.call_function(F.interpolate, (operands[0], operands[-1].tolist()[2:]), {"mode": "bilinear", "align_corners": True})


def _call(function: Callable[..., torch.Tensor], *keys: str) -> Build:
    """A function of the operands and of these attributes, in order."""
    return lambda graph, operands, a: graph.call_function(function, (*operands, *(a[key] for key in keys)))


BUILDERS: dict[str, Build] = {
    "Add": _call(torch.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _call(torch.clamp),
    "Concat": lambda graph, operands, a: graph.call_function(torch.cat, (operands, a["axis"])),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _call(torch.div),
    "Erf": _call(torch.erf),
    "Flatten": _call(torch.flatten, "axis"),
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_mean,
    "LayerNormalization": _layer_norm,
    "MatMul": _call(torch.matmul),
    "MaxPool": _max_pool,
    "Mul": _call(torch.mul),
    "PRelu": _prelu,
    "Pad": _pad,
    "Relu": _call(torch.relu),
    "Reshape": lambda graph, operands, a: graph.call_function(torch.reshape, (operands[0], operands[1].tolist())),
    "Resize": _resize,
    "Sigmoid": _call(torch.sigmoid),
    "Softmax": _call(torch.softmax, "axis"),
    "Split": _split,
    "Tanh": _call(torch.tanh),
    "Transpose": _call(torch.permute, "perm"),
}

STATIC = ("Reshape", "Pad", "Resize", "Split")
"""Operators whose constants are arguments in torch, not tensors."""


def to_torch(model: onnx.ModelProto, layout: torch.memory_format = torch.contiguous_format) -> fx.GraphModule:
    """The model as a module with its inputs as positional arguments and a tuple as result; four-dimensional weights in `layout`.

    ValueError, with the node's name, for an operator or attribute that the benchmark models do not have.
    """
    root, graph = torch.nn.Module(), fx.Graph()
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values: dict[str, fx.Node] = {i.name: graph.placeholder(f"input{n}") for n, i in enumerate(model.graph.input)}

    def tensor(name: str) -> fx.Node:
        if name not in values:
            value = torch.from_numpy(constants[name].copy())
            root.register_buffer(f"weight{len(values)}", value.to(memory_format=layout) if value.dim() == 4 else value)
            values[name] = graph.get_attr(f"weight{len(values)}")
        return values[name]

    for node in model.graph.node:
        if node.op_type not in BUILDERS:
            raise ValueError(f"{node.op_type} '{node.name}': no torch translation")
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        static: dict[str, np.ndarray] = constants if node.op_type in STATIC else {}
        operands = [static[name] if name in static else tensor(name) for name in node.input if name]
        try:
            made = BUILDERS[node.op_type](graph, operands, attributes)
            values.update(zip(node.output, made if isinstance(made, list) else [made], strict=True))
        except ValueError as error:
            raise ValueError(f"{node.op_type} '{node.name}': {error}") from error
    graph.output(tuple(values[o.name] for o in model.graph.output))
    return fx.GraphModule(root, graph)
