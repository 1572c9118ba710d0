"""Batch norms folded into the weights before them, as every deployed model has them: engines that translate nodes as written run none for nothing."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

OUTPUTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}
"""The axis of a weight along which its results are counted; a Gemm's if it is transposed, as those of exporters are."""


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the batch norms whose input is a convolution, transposed or not, or a linear layer, that nothing else reads."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, int] = {}
    for name in [*(n for node in graph.node for n in node.input), *(o.name for o in graph.output)]:
        readers[name] = readers.get(name, 0) + 1
    kept = []
    for node in graph.node:
        before = makers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if before is None or readers[node.input[0]] > 1 or not foldable(before, [*before.input[1:], *node.input[1:]], values):
            kept.append(node)
            continue
        fold(before, node, values)
        before.output[0] = node.output[0]
        makers[node.output[0]] = before
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    del graph.initializer[:]
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in values.items() if name in used)
    return made


def foldable(layer: onnx.NodeProto, weights: list[str], values: dict[str, np.ndarray]) -> bool:
    """All weights are known, and the layer is one whose results are counted along one axis of a weight."""
    attributes = {a.name: helper.get_attribute_value(a) for a in layer.attribute}
    plain = layer.op_type != "Gemm" or attributes.get("transB", 0) == 1 and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
    grouped = layer.op_type == "ConvTranspose" and attributes.get("group", 1) != 1
    return layer.op_type in OUTPUTS and plain and not grouped and all(name in values for name in weights)


def fold(layer: onnx.NodeProto, norm: onnx.NodeProto, values: dict[str, np.ndarray]) -> None:
    """Give the layer weights and a bias of its own that do what the norm does after it."""
    scale, shift, mean, variance = (values[name].astype(np.float64) for name in norm.input[1:5])
    epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    weight = values[layer.input[1]].astype(np.float64)
    shape = [1] * weight.ndim
    shape[OUTPUTS[layer.op_type]] = -1
    bias = values[layer.input[2]].astype(np.float64) if len(layer.input) > 2 and layer.input[2] else np.zeros_like(mean)
    weight_name, bias_name = (f"{norm.output[0]}:{part}" for part in ("weight", "bias"))
    values[weight_name] = (weight * factor.reshape(shape)).astype(np.float32)
    values[bias_name] = ((bias - mean) * factor + shift).astype(np.float32)
    first = layer.input[0]
    del layer.input[:]
    layer.input.extend([first, weight_name, bias_name])
