"""Models of float32 as models of the same numbers in another type of floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

KINDS: dict[int, np.dtype] = {
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16), TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.DOUBLE: np.dtype(np.float64),
}  # fmt: skip


def in_type(model: onnx.ModelProto, kind: int, opset: int = 22) -> onnx.ModelProto:
    """The model with all its floats of another type: inputs, outputs, weights, and what nodes make."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    graph = made.graph
    for tensor in [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))]:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(KINDS[kind]), tensor.name))
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = kind
    for attribute in (a for n in graph.node for a in n.attribute if a.name in ("to", "dtype") and a.i == TensorProto.FLOAT):
        attribute.i = kind
    del graph.value_info[:]
    for domain in (d for d in made.opset_import if not d.domain):
        domain.version = max(domain.version, opset)
    made.ir_version = 10
    return made


def rounded(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """The model with weights that are numbers of another type."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            numbers = numpy_helper.to_array(tensor).astype(KINDS[kind]).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    return made
