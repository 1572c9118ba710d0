"""The graph as a flat list of nodes over facts: aliases resolved, constants evaluated, every type inferred.

What depends on constants and static shapes only is evaluated here, node by node; a conditional with a constant condition is replaced by
its branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from einnet.errors import ModelError
from einnet.graph.dtypes import dtype_name
from einnet.graph.onnx_read import first_line

_FOLD_ELEMENTS = 1 << 24
"""Elements of the largest array that evaluation of constants may create, where it is larger than its operands."""

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_STANDARD = ("", "ai.onnx")


@dataclass(eq=False)
class Fact:
    """What is known of one value: its ONNX name, element type, static shape, its contents if it is constant, and its type as inferred."""

    name: str
    elem: ir.DataType | None
    shape: tuple[int, ...] | None
    value: np.ndarray | None = None
    type: onnx.TypeProto | None = None

    @property
    def dtype(self) -> str | None:
        """The short type name if such a tensor may cross between kernels."""
        try:
            return None if self.elem is None else dtype_name(self.elem.numpy())
        except TypeError:
            return None

    @property
    def crosses(self) -> bool:
        """A tensor of a plain type and a static shape."""
        return self.dtype is not None and self.shape is not None


@dataclass(eq=False)
class FlatNode:
    """A node that remains. `reads` maps every ONNX name that it or its subgraphs read to the fact; outputs that nobody names are None."""

    node: ir.Node
    reads: dict[str, Fact]
    outputs: tuple[Fact | None, ...]
    proto: onnx.NodeProto = field(repr=False)

    @property
    def label(self) -> str:
        return f"{self.node.op_type} {self.node.name or ''!r}"

    @property
    def standard(self) -> bool:
        return self.node.domain in _STANDARD


def captured(node: ir.Node) -> dict[str, ir.Value]:
    """Values of the surrounding graph that the node's subgraphs read."""
    inner: set[ir.Value] = set()
    used: list[ir.Value] = []
    for graph in subgraphs(node):
        inner.update(graph.inputs, graph.initializers.values())
        used.extend(graph.outputs)
        for child in graph:
            inner.update(child.outputs)
            used.extend(v for v in child.inputs if v is not None)
    return {str(v.name): v for v in used if v not in inner}


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of a node, nested ones too."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graphs = [attribute.as_graph()]
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs = list(attribute.as_graphs())
        else:
            continue
        for graph in graphs:
            yield graph
            for child in graph:
                yield from subgraphs(child)


def refine(fact: Fact, inferred: onnx.TypeProto | None) -> None:
    """Take over what inference found."""
    if inferred is None or inferred.WhichOneof("value") is None:
        return
    fact.type = inferred
    if not inferred.HasField("tensor_type"):
        fact.elem = fact.shape = None
        return
    tensor = inferred.tensor_type
    if tensor.elem_type:
        fact.elem = ir.DataType(tensor.elem_type)
    if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
        fact.shape = tuple(d.dim_value for d in tensor.shape.dim)


def build_model(
    model: ir.Model,
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[tuple[str, Fact]],
    held: Iterable[tuple[str, Fact]],
    outputs: Iterable[tuple[str, Fact | None]],
) -> onnx.ModelProto:
    """A model of a few nodes: typed inputs, constants as initialisers, outputs typed where that is known."""

    def info(name: str, fact: Fact | None) -> onnx.ValueInfoProto:
        if fact is not None and fact.elem is not None and fact.shape is not None:
            return onnx.helper.make_tensor_value_info(name, int(fact.elem), fact.shape)
        if fact is not None and fact.type is not None:
            return onnx.helper.make_value_info(name, fact.type)
        return onnx.helper.make_empty_tensor_value_info(name)

    graph = onnx.helper.make_graph(
        list(nodes),
        "opaque",
        [info(name, fact) for name, fact in inputs],
        [info(name, fact) for name, fact in outputs],
        [onnx.numpy_helper.from_array(fact.value, name) for name, fact in held if fact.value is not None],
    )
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.graph.opset_imports.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=min(model.ir_version, 10))


class Flattener:
    """Walks the nodes in order and keeps a fact for every value."""

    def __init__(self, model: ir.Model, title: str) -> None:
        self.model = model
        self.title = title
        self.facts: dict[ir.Value, Fact] = {}
        self.nodes: list[FlatNode] = []
        self.symbols: dict[str, int] = model.graph.meta["symbols"]
        for value in model.graph.inputs:
            assert value.shape is not None
            self.facts[value] = Fact(str(value.name), value.dtype, tuple(int(n) for n in value.shape.numpy()))
        self.constants(model.graph)
        self.visit(model.graph)

    def constants(self, graph: ir.Graph) -> None:
        """Facts of a graph's initialisers."""
        for name, value in graph.initializers.items():
            assert value.const_value is not None
            try:
                array = np.array(value.const_value.numpy())
            except (OSError, ValueError) as error:
                raise ModelError(f"{self.title}: the values of {name!r} cannot be read: {first_line(error)}") from error
            self.facts[value] = Fact(name, value.const_value.dtype, array.shape, array)

    def visit(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if not (self.alias(node) or self.branch(node) or self.shape_of(node)):
                self.keep(node)

    def fact(self, node: ir.Node, position: int) -> Fact | None:
        value = node.inputs[position] if position < len(node.inputs) else None
        return None if value is None else self.facts[value]

    def alias(self, node: ir.Node) -> bool:
        """Identity, Dropout at inference and casts to the same type are other names of their operand."""
        if node.domain not in _STANDARD or node.op_type not in ("Identity", "Dropout", "Cast"):
            return False
        source = self.fact(node, 0)
        if source is None or any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:]):
            return False
        if node.op_type == "Cast" and (source.elem is None or node.attributes["to"].as_int() != int(source.elem)):
            return False
        training = self.fact(node, 2) if node.op_type == "Dropout" else None
        if training is not None and (training.value is None or bool(training.value.any())):
            return False
        self.facts[node.outputs[0]] = source
        return True

    def branch(self, node: ir.Node) -> bool:
        """A conditional with a constant condition is the branch taken."""
        condition = self.fact(node, 0)
        if node.op_type != "If" or node.domain not in _STANDARD or condition is None or condition.value is None:
            return False
        graph = node.attributes["then_branch" if bool(condition.value.reshape(-1)[0]) else "else_branch"].as_graph()
        self.constants(graph)
        self.visit(graph)
        for output, inner in zip(node.outputs, graph.outputs):
            self.facts[output] = self.facts[inner]
        return True

    def shape_of(self, node: ir.Node) -> bool:
        """Shape and Size of a tensor of static shape are constants."""
        source = self.fact(node, 0)
        if node.domain not in _STANDARD or node.op_type not in ("Shape", "Size") or source is None or source.shape is None:
            return False
        if node.op_type == "Size":
            value = np.array(prod(source.shape), dtype=np.int64)
        else:
            bounds = [node.attributes[k].as_int() if k in node.attributes else None for k in ("start", "end")]
            value = np.array(source.shape[slice(*bounds)], dtype=np.int64)
        self.facts[node.outputs[0]] = Fact(str(node.outputs[0].name), ir.DataType.INT64, value.shape, value)
        return True

    def keep(self, node: ir.Node) -> None:
        """Infer the types of a node's outputs; evaluate it if all that it reads is constant."""
        reads = {str(v.name): self.facts[v] for v in node.inputs if v is not None}
        reads |= {name: self.facts[v] for name, v in captured(node).items()}
        proto = ir.serde.serialize_node(node)
        outputs = tuple(v if v.name else None for v in node.outputs)
        facts = self.infer(node, proto, reads, outputs)
        if all(f.value is not None for f in reads.values()) and node.op_type not in _RANDOM:
            self.evaluate(proto, reads, facts)
        for value, fact in zip(outputs, facts):
            if value is not None and fact is not None:
                self.facts[value] = fact
        if not all(f is None or f.value is not None for f in facts):
            self.nodes.append(FlatNode(node, reads, facts, proto))

    def infer(self, node: ir.Node, proto: onnx.NodeProto, reads: dict[str, Fact], outputs: Sequence[ir.Value | None]) -> tuple[Fact | None, ...]:
        """Types by ONNX shape inference on the one node, else as the model declares them."""
        small = {name for name, f in reads.items() if f.value is not None and f.value.size <= 4096 and f.crosses}
        given = [(n, f) for n, f in reads.items() if n not in small]
        held = [(n, f) for n, f in reads.items() if n in small]
        model = build_model(self.model, [proto], given, held, [(str(v.name), None) for v in outputs if v is not None])
        failure = ""
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
            types = {o.name: o.type for o in inferred.graph.output}
        except Exception as error:  # inference raises its own and checker types
            failure, types = first_line(error), {}
        facts = []
        for value in outputs:
            if value is None:
                facts.append(None)
                continue
            fact = self.declared(value)
            refine(fact, types.get(str(value.name)))
            if failure and not fact.crosses and node.domain in _STANDARD and all(f.crosses for f in reads.values()):
                raise ModelError(f"{self.title}: {node.op_type} {node.name or ''!r}: {failure}")
            facts.append(fact)
        return tuple(facts)

    def declared(self, value: ir.Value) -> Fact:
        """What the model itself says of a value."""
        shape: tuple[int, ...] | None = None
        if value.shape is not None and not isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
            dims = [d if isinstance(d, int) else self.symbols.get(d.value or "") for d in value.shape]
            shape = None if None in dims else tuple(d for d in dims if d is not None)
        plain = value.type is None or isinstance(value.type, ir.TensorType)
        return Fact(str(value.name), value.dtype if plain else None, shape if plain else None)

    def evaluate(self, proto: onnx.NodeProto, reads: dict[str, Fact], facts: Sequence[Fact | None]) -> None:
        """Fill in the values of a node that reads constants only; leaves it alone if it is too large or cannot be evaluated."""
        allowed = max([_FOLD_ELEMENTS, *(f.value.size for f in reads.values() if f.value is not None)])
        if any(f is not None and f.shape is not None and prod(f.shape) > allowed for f in facts):
            return
        named = [f for f in facts if f is not None]
        model = build_model(self.model, [proto], reads.items(), (), [(f.name, None) for f in named])
        try:
            results = ReferenceEvaluator(model).run(None, {name: f.value for name, f in reads.items()})
        except Exception:  # whatever the reference implementation lacks stays a node
            return
        if len(results) == len(named) and all(isinstance(r, (np.ndarray, np.generic)) for r in results):
            for fact, result in zip(named, results):
                fact.value = np.asarray(result)
                fact.shape = fact.value.shape
