"""The function body that defines a node's operator: of the standard where it has one, else of what is written here of other domains."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import onnx

from einnet.graph.onnx.contributed.registry import contributed

STANDARD = ("", "ai.onnx")
"""Names of the standard operator domain."""

_BODY = "einnet.body"


def opset(model: onnx.ModelProto) -> int:
    """The version of the standard operators."""
    return next((o.version for o in model.opset_import if o.domain in STANDARD), 1)


def with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """The one-node model with the attributes that the standard fills in written out: inference of some operators takes another default."""
    (node,) = model.graph.node
    if node.domain not in STANDARD or not onnx.defs.has(node.op_type, node.domain):
        return model
    try:
        known = onnx.defs.get_schema(node.op_type, opset(model), "").attributes
    except onnx.defs.SchemaError:
        return model
    given = {a.name for a in node.attribute}
    missing = [a.default_value for name, a in known.items() if name not in given and a.default_value.type != onnx.AttributeProto.UNDEFINED]
    if not missing:
        return model
    told = onnx.ModelProto()
    told.CopyFrom(model)
    told.graph.node[0].attribute.extend(missing)
    return told


def with_body(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The one-node model with the node's function body as a model-local function; None where nothing defines the operator by one.

    Results that the node does not want get names that nobody uses, and
    those that the body does not give are no results of the model.
    """
    model = with_defaults(model)
    (node,) = model.graph.node
    types = {v.name: v.type for v in model.graph.input} | {
        t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in model.graph.initializer
    }
    operands = [types[name] if name else None for name in node.input]
    body = standard(node, opset(model), operands) or contributed(node, operands, {t.name: t for t in model.graph.initializer})
    if body is None:
        return None
    made = {name for inner in body.node for name in inner.output}
    pairs = list(zip_longest(body.output, node.output, fillvalue=""))
    lost = {name for formal, name in pairs if formal not in made}
    pairs = [(formal, name or f"{_BODY}/{formal}") for formal, name in pairs if formal in made]  # inlining wants a name for each
    del body.output[:]
    body.output.extend(formal for formal, _ in pairs)
    body.name, body.domain = node.op_type, _BODY
    expanded = onnx.ModelProto()
    expanded.CopyFrom(model)
    call = expanded.graph.node[0]
    call.domain = _BODY
    del call.output[:]
    call.output.extend(name for _, name in pairs)
    results = [v for v in model.graph.output if v.name not in lost]
    del expanded.graph.output[:]
    expanded.graph.output.extend(results)
    expanded.functions.append(body)
    del expanded.opset_import[:]  # the body is of the opset that it says, whatever the model's
    expanded.opset_import.extend((*body.opset_import, onnx.helper.make_opsetid(_BODY, 1)))
    return expanded


def standard(node: onnx.NodeProto, version: int, operands: list[onnx.TypeProto | None]) -> onnx.FunctionProto | None:
    """The body that the standard has for an operator; None where it has none."""
    if node.domain not in STANDARD or not onnx.defs.has(node.op_type, node.domain):
        return None
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, "")  # the stubs lack half of its members
    except onnx.defs.SchemaError:
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        given = [b"" if kind is None else kind.SerializeToString() for kind in operands]
        since = max((v for v in schema.context_dependent_function_opset_versions if v <= version), default=version)
        try:
            body.ParseFromString(schema.get_context_dependent_function_with_opset_version(since, node.SerializeToString(), given))
        except RuntimeError:  # for an invalid node
            return None
    return body if body.node else None
