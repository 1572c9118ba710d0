"""Models that carry bfloat16 as models of float32 of the same numbers: no engine on a processor runs most of their operators as they are.

Every number of bfloat16 is one of float32, so that weights and inputs stay what they are. Casts to bfloat16 round, and nothing else does: between
them is computed in float32, as everywhere here with floats of shorter types. Inputs and outputs become tensors of float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

SHORT, SINGLE = TensorProto.BFLOAT16, TensorProto.FLOAT

NAMING = ("to", "dtype", "output_dtype", "precision", "stash_type")
"""Attributes that name the type of elements."""

Graph = onnx.GraphProto | onnx.FunctionProto


def in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself where it carries no bfloat16, else one of float32. Its weights are in it."""
    if not carries(model):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if any(node.op_type == "CastLike" for graph in graphs(made) for node in graph.node):
        made = onnx.shape_inference.infer_shapes(made)
    known = {name for graph in graphs(made) for name in named(graph)}
    for graph in reversed(list(graphs(made))):  # what stands inside first: a graph's nodes are made anew
        cast_in_three(graph, known)
    for graph in graphs(made):
        for tensor in tensors(graph):
            if tensor.data_type == SHORT:
                widen(tensor)
        for kind in types(graph):
            if kind.elem_type == SHORT:
                kind.elem_type = SINGLE
        for node in graph.node:
            for attribute in naming(node):
                attribute.i = SINGLE
    return made


def carries(model: onnx.ModelProto) -> bool:
    """Something of the model has elements of bfloat16."""
    return any(
        any(t.data_type == SHORT for t in tensors(graph)) or any(kind.elem_type == SHORT for kind in types(graph)) or any(map(short, graph.node))
        for graph in graphs(model)
    )


def short(node: NodeProto) -> bool:
    """An attribute of the node says that its elements are of bfloat16."""
    return any(True for _ in naming(node))


def naming(node: NodeProto) -> Iterator[onnx.AttributeProto]:
    """The attributes that say that; not that of a cast in a model which was made."""
    return (a for a in node.attribute if a.name in NAMING and a.type == onnx.AttributeProto.INT and a.i == SHORT and node.doc_string != ROUNDING)


ROUNDING = "rounding to bfloat16"
"""What is written on the casts that stay."""


def graphs(model: onnx.ModelProto) -> Iterator[Graph]:
    """The graph, the bodies of the model's functions, and the graphs in the attributes of their nodes."""
    waiting: list[Graph] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [g for node in graph.node for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


def tensors(graph: Graph) -> Iterator[TensorProto]:
    """The weights of a graph, and tensors in the attributes of its nodes."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else attribute.tensors


def types(graph: Graph) -> Iterator[onnx.TypeProto.Tensor]:
    """The types of tensors that stand beside the values of a graph."""
    inner = [graph.input, graph.output] if isinstance(graph, onnx.GraphProto) else []
    for info in (one for some in (*inner, graph.value_info) for one in some):
        yield from plain([info.type])


def named(graph: Graph) -> Iterator[str]:
    """The names of values that are known to be tensors of bfloat16."""
    inner = [graph.input, graph.initializer] if isinstance(graph, onnx.GraphProto) else []
    for value in (one for some in (*inner, graph.value_info) for one in some):
        if SHORT in ([value.data_type] if isinstance(value, TensorProto) else [kind.elem_type for kind in plain([value.type])]):
            yield value.name


def plain(kinds: Iterable[onnx.TypeProto]) -> Iterator[onnx.TypeProto.Tensor]:
    """The types of tensors in types of sequences and of what may be absent."""
    for kind in kinds:
        match kind.WhichOneof("value"):
            case "tensor_type":
                yield kind.tensor_type
            case "sequence_type":
                yield from plain([kind.sequence_type.elem_type])
            case "optional_type":
                yield from plain([kind.optional_type.elem_type])


def widen(tensor: TensorProto) -> None:
    """Let a tensor hold the same numbers in float32."""
    numbers = np.asarray(onnx.numpy_helper.to_array(tensor), np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(numbers, tensor.name))


def cast_in_three(graph: Graph, known: Collection[str]) -> None:
    """Let every cast to bfloat16, or to the type of a value that is known to be of it, be three: what they give is of float32, and rounded."""
    made: list[NodeProto] = []
    for node in graph.node:
        like = node.op_type == "CastLike" and node.input[1] in known
        made += rounding(node) if like or (node.op_type == "Cast" and short(node)) else [node]
    copies = [NodeProto.FromString(node.SerializeToString()) for node in made]
    del graph.node[:]
    graph.node.extend(copies)


def rounding(node: NodeProto) -> list[NodeProto]:
    """A cast to float32, to bfloat16 and back. What float32 has not, as great integers, rounds twice."""
    names = [node.input[0], f"{node.output[0]}/number", f"{node.output[0]}/rounded", node.output[0]]
    told = ("", ROUNDING, "")
    steps = zip(names, names[1:], (SINGLE, SHORT, SINGLE), told, strict=False)
    return [onnx.helper.make_node("Cast", [x], [y], name=y, doc_string=why, to=kind) for x, y, kind, why in steps]
