"""The operators that are defined here, and the function body of a node of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import parser

from einnet.graph.onnx.contributed.activations import ACTIVATIONS
from einnet.graph.onnx.contributed.attention import ATTENTION
from einnet.graph.onnx.contributed.call import Call, Definition, Value
from einnet.graph.onnx.contributed.normalizations import NORMALIZATIONS
from einnet.graph.onnx.contributed.products import PRODUCTS
from einnet.graph.onnx.contributed.quantised import QUANTISED
from einnet.graph.onnx.contributed.recurrent import RECURRENT

DOMAIN = "com.microsoft"

OPSET = 23
"""Of the standard operators in the bodies."""

CONTRIBUTED: dict[str, Definition] = {**ACTIVATIONS, **PRODUCTS, **NORMALIZATIONS, **ATTENTION, **QUANTISED}
"""By the operator's name."""


def contributed(
    node: onnx.NodeProto, operands: Sequence[onnx.TypeProto | None], constants: Mapping[str, onnx.TensorProto]
) -> onnx.FunctionProto | None:  # fmt: skip
    """The body of a node of an operator that is defined here; None for any other. `constants` are values by name.

    Raises Undefined for forms that the definition does not cover.
    """
    found = (CONTRIBUTED if node.domain == DOMAIN else RECURRENT if node.domain in ("", "ai.onnx") else {}).get(node.op_type)
    if found is None or len(operands) > len(found.inputs) or len(node.output) > len(found.outputs):
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    plain = {name: text_of(v) for name, v in attributes.items()}
    shapes = {name: shape_of(kind) for name, kind in zip(found.inputs, operands) if kind is not None}
    known = {formal: integers(constants[name]) for formal, name in zip(found.inputs, node.input) if name in constants}
    wanted = frozenset(formal for formal, name in zip(found.outputs, node.output) if name)
    call = Call(plain, shapes, wanted, {name: value for name, value in known.items() if value is not None})
    lines = found.body(call)
    names = ", ".join(found.inputs[: len(operands)]), ", ".join(found.outputs)
    text = f'<domain: "{DOMAIN}", opset_import: ["": {OPSET}]> {node.op_type} ({names[0]}) => ({names[1]}) {{ {" ".join(lines)} }}'
    return parser.parse_function(text)


def text_of(value: Any) -> Value:
    """An attribute with its bytes as text."""
    if isinstance(value, list):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value.decode() if isinstance(value, bytes) else value


def integers(tensor: onnx.TensorProto) -> tuple[int, ...] | None:
    """The numbers of a vector of integers; None for anything else."""
    if tensor.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64) or len(tensor.dims) != 1:
        return None
    return tuple(int(v) for v in onnx.numpy_helper.to_array(tensor))


def shape_of(kind: onnx.TypeProto) -> tuple[int, ...] | None:
    """A static shape."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tuple(d.dim_value for d in tensor.shape.dim)
