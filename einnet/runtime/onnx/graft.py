"""Parts of a model written anew among its own nodes: a plan computes some of its values, and what nobody reads any more is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from einnet.errors import UsageError
from einnet.graph.onnx.read import normalised
from einnet.graph.onnx.shapes import Shapes
from einnet.graph.program import Header
from einnet.graph.toposort import order
from einnet.instantiate.kernels import Plan
from einnet.runtime.onnx.model import DOMAIN, Writer, export, format_version, names_read
from einnet.runtime.onnx.node_writer import LEAST_OPSET

PREFIX = "einnet_"


def values(model: onnx.ModelProto) -> set[str]:
    """Names of what the graph itself is given or computes (not the graphs inside of its nodes)."""
    return {v.name for v in model.graph.input} | {name for node in model.graph.node for name in node.output if name}


def rewritten(
    model: Any, header: Header, plan: Plan, shapes: Shapes | None, metadata: Mapping[str, str], shown: Sequence[str] = ()
) -> onnx.ModelProto:
    """The model with a plan's kernels in place of its own nodes, or written of these alone where it is too old; values that are `shown` are outputs.

    Raises UsageError as `graft` does.
    """
    if header.opset >= LEAST_OPSET:
        own = normalised(model, shapes)
        own.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown)
        return graft(own, plan, metadata)
    made = export(plan, LEAST_OPSET, {**dict(header.metadata), **metadata}, header.graph)
    made.doc_string = header.doc
    return made


def _import(model: onnx.ModelProto, writer: Writer) -> None:
    """Let the model name the operator sets and hold the functions that its new nodes use."""
    known = {o.domain for o in model.opset_import} | {""}
    model.opset_import.extend(helper.make_opsetid(d, v) for d, v in writer.imports.items() if d not in known)
    called = {node.op_type for node in model.graph.node if node.domain == DOMAIN}
    model.functions.extend(f for f in writer.functions.values() if f.name in called)


def graft(model: onnx.ModelProto, plan: Plan, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """The model, changed so that the plan computes the values that its outputs name, from those that its inputs name.

    Raises UsageError where the model's opset is too old to write the plan's kernels in, or the plan reads what depends on its own results.
    """
    graph = model.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    prefix = unused_prefix(model)
    writer = Writer(plan, opset, prefix)
    results = [o.name for o in graph.output]
    own = [replaced(node, {name for name, _ in plan.outputs}, prefix) for node in graph.node]
    nodes = in_order(live([*own, *writer.e.nodes], results))
    used = {name for node in nodes for name in names_read(node)} | {*results}
    weights = [i for i in (*graph.initializer, *writer.weights()) if i.name in used]
    for field, kept in ((graph.node, nodes), (graph.initializer, weights), (graph.value_info, [v for v in graph.value_info if v.name in used])):
        del field[:]
        field.extend(kept)
    _import(model, writer)
    model.ir_version = max(model.ir_version, format_version(opset))
    helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, **metadata})
    return model


def replaced(node: onnx.NodeProto, names: set[str], prefix: str) -> onnx.NodeProto:
    """The node, with other names for those of its outputs that the plan computes."""
    if names.isdisjoint(node.output):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.output[:] = [f"{prefix}was_{name}" if name in names else name for name in node.output]
    return made


def live(nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the results depend on, in the given order."""
    producer = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    waiting, found = [*results], set[int]()
    while waiting:
        n = producer.get(waiting.pop())
        if n is not None and n not in found:
            found.add(n)
            waiting += names_read(nodes[n])
    return [node for n, node in enumerate(nodes) if n in found]


def in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Producers first, otherwise in the given order. Raises UsageError where there is a cycle."""
    producer = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    before = [{producer[name] for name in names_read(node) if name in producer} for node in nodes]
    found = order(before)
    if found is None:
        raise UsageError("what was derived reads values that depend on its own results among the model's nodes")
    return [nodes[n] for n in found]


def unused_prefix(model: onnx.ModelProto) -> str:
    """A beginning that no name of the model has."""
    names = values(model) | {i.name for i in model.graph.initializer} | {node.name for node in model.graph.node}
    prefix, count = PREFIX, 1
    while any(name.startswith(prefix) for name in names):
        count += 1
        prefix = f"{PREFIX}{count}_"
    return prefix
