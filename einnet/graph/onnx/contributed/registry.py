"""The operators that are defined here, and the function body of a node of theirs."""

from __future__ import annotations

from collections.abc import Sequence
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


def contributed(node: onnx.NodeProto, operands: Sequence[onnx.TypeProto | None]) -> onnx.FunctionProto | None:
    """The body of a node of an operator that is defined here; None for any other.

    Raises Undefined for forms that the definition does not cover.
    """
    found = (CONTRIBUTED if node.domain == DOMAIN else RECURRENT if node.domain in ("", "ai.onnx") else {}).get(node.op_type)
    if found is None or len(operands) > len(found.inputs) or len(node.output) > len(found.outputs):
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    plain = {name: text_of(v) for name, v in attributes.items()}
    shapes = {name: shape_of(kind) for name, kind in zip(found.inputs, operands) if kind is not None}
    call = Call(plain, shapes, frozenset(formal for formal, name in zip(found.outputs, node.output) if name))
    lines = found.body(call)
    names = ", ".join(found.inputs[: len(operands)]), ", ".join(found.outputs)
    text = f'<domain: "{DOMAIN}", opset_import: ["": {OPSET}]> {node.op_type} ({names[0]}) => ({names[1]}) {{ {" ".join(lines)} }}'
    return parser.parse_function(text)


def text_of(value: Any) -> Value:
    """An attribute with its bytes as text."""
    if isinstance(value, list):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value.decode() if isinstance(value, bytes) else value


def shape_of(kind: onnx.TypeProto) -> tuple[int, ...] | None:
    """A static shape."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tuple(d.dim_value for d in tensor.shape.dim)
