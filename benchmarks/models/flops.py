"""Floating-point operations of a model: two for each multiply-add of convolutions and matrix products, nothing else."""

from __future__ import annotations

from math import prod

import onnx
from onnx import helper

Shapes = dict[str, tuple[int, ...]]


def shapes(model: onnx.ModelProto) -> Shapes:
    """Static shape of every tensor, by ONNX's inference; initializers included."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    found = {t.name: tuple(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        found[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    return found


def node_flops(node: onnx.NodeProto, known: Shapes) -> int:
    """Two for each multiply-add of one node, border taps included; 0 for operators that are neither convolution nor product."""
    operands, result = [known[name] for name in node.input if name], known[node.output[0]]
    match node.op_type:
        case "Conv":
            return 2 * prod(result) * prod(operands[1][1:])
        case "ConvTranspose":
            return 2 * prod(operands[0]) * prod(operands[1][1:])
        case "MatMul":
            return 2 * prod(result) * operands[0][-1]
        case "Gemm":
            transposed = any(a.name == "transA" and helper.get_attribute_value(a) for a in node.attribute)
            return 2 * prod(result) * operands[0][0 if transposed else 1]
    return 0


def flops(model: onnx.ModelProto) -> int:
    """Two for each multiply-add of the model."""
    known = shapes(model)
    return sum(node_flops(node, known) for node in model.graph.node)
