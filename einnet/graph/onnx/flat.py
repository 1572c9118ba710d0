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

from einnet.errors import ModelError, NotStaticError
from einnet.graph.onnx.function_bodies import STANDARD
from einnet.graph.onnx.infer import Fact, build_model, infer
from einnet.graph.onnx.loops import step_of
from einnet.graph.onnx.mapped import InFile
from einnet.graph.onnx.read import first_line
from einnet.graph.onnx.shapes import SYMBOLS, dimension
from einnet.graph.operators.op import Inexpressible

_FOLD_ELEMENTS = 1 << 24
"""Elements of the largest array that evaluation of constants may create, where it is larger than its operands."""

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}


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
    def results(self) -> tuple[Fact, ...]:
        """The outputs that have names."""
        return tuple(f for f in self.outputs if f is not None)

    @property
    def standard(self) -> bool:
        return self.node.domain in STANDARD


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


def _fill_empty(fact: Fact) -> None:
    """Give a tensor without elements its value: there is none that could be anything else."""
    if fact.elem is not None and fact.shape is not None and 0 in fact.shape and fact.crosses:
        fact.value = np.zeros(fact.shape, fact.elem.numpy())


class Flattener:
    """Walks the nodes in order and keeps a fact for every value."""

    def __init__(self, model: ir.Model, title: str) -> None:
        self.model = model
        self.title = title
        self.facts: dict[ir.Value, Fact] = {}
        self.nodes: list[FlatNode] = []
        self.symbols: dict[str, int] = model.graph.meta[SYMBOLS]
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
                array = value.const_value.numpy()
                array = array if isinstance(value.const_value, InFile) else np.array(array)
            except (OSError, ValueError) as error:
                raise ModelError(f"{self.title}: the values of {name!r} cannot be read: {first_line(error)}") from error
            self.facts[value] = Fact(name, value.const_value.dtype, array.shape, array)

    def visit(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if not (self.alias(node) or self.branch(node) or self.shape_of(node)):
                self.keep(node)

    def fact(self, node: ir.Node, position: int) -> Fact | None:
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is not None and value not in self.facts:  # as an input of a branch, which has none
            raise ModelError(f"{self.title}: node {node.name!r} ({node.op_type}) reads {value.name!r}, to which nothing gives a value")
        return None if value is None else self.facts[value]

    def alias(self, node: ir.Node) -> bool:
        """Identity, Dropout at inference and casts to the same type are other names of their operand."""
        if node.domain not in STANDARD or node.op_type not in ("Identity", "Dropout", "Cast"):
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
        if node.op_type != "If" or node.domain not in STANDARD or condition is None or condition.value is None:
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
        if node.domain not in STANDARD or node.op_type not in ("Shape", "Size") or source is None or source.shape is None:
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
        proto, reads = self.read(node)
        outputs = tuple(v if v.name else None for v in node.outputs)
        facts = self.types(node, proto, reads, outputs)
        if all(f.value is not None for f in reads.values()) and node.op_type not in _RANDOM:
            self.evaluate(proto, reads, facts)
        for value, fact in zip(outputs, facts):
            if value is not None and fact is not None:
                self.facts[value] = fact
                _fill_empty(fact)
        if not all(f is None or f.value is not None for f in facts):
            self.nodes.append(FlatNode(node, reads, facts, proto))

    def read(self, node: ir.Node) -> tuple[onnx.NodeProto, dict[str, Fact]]:
        """The node with the facts that it and its subgraphs read; a cast to another one's type as the cast to that type, which reads no other."""
        reads = {str(v.name): self.facts[v] for v in node.inputs if v is not None}
        reads |= {name: self.facts[v] for name, v in captured(node).items()}
        proto = ir.serde.serialize_node(node)
        like = self.fact(node, 1) if node.op_type == "CastLike" and node.domain in STANDARD else None
        if like is None or like.elem is None:
            return proto, reads
        cast = onnx.helper.make_node("Cast", proto.input[:1], proto.output, proto.name, to=int(like.elem))
        return cast, {name: f for name, f in reads.items() if name in cast.input}

    def types(self, node: ir.Node, proto: onnx.NodeProto, reads: dict[str, Fact], outputs: Sequence[ir.Value | None]) -> tuple[Fact | None, ...]:
        """Types by ONNX shape inference on the one node, else as the model declares them."""
        small = {name for name, f in reads.items() if f.value is not None and f.value.size <= 4096 and f.crosses}
        given = [(n, f) for n, f in reads.items() if n not in small]
        held = [(n, f) for n, f in reads.items() if n in small]
        model = build_model(self.model, [proto], given, held, [(str(v.name), None) for v in outputs if v is not None])
        types, failure = infer(model)
        failure = failure if node.domain in STANDARD and all(f.crosses for f in reads.values()) else ""
        return tuple(None if v is None else self.typed(node, v, types.get(str(v.name)), failure, model, reads) for v in outputs)

    def typed(
        self, node: ir.Node, value: ir.Value, inferred: onnx.TypeProto | None, failure: str, model: onnx.ModelProto, reads: dict[str, Fact]
    ) -> Fact:
        """What is known of one output of a node. Raises NotStaticError where inference failed, or found a shape that there is not."""
        fact = self.declared(value)
        fact.refine(inferred)
        if fact.elem is not None and fact.shape is None:
            fact.shape = self.carried(node, value, model, reads)
        if fact.shape and min(fact.shape) < 0:  # inference does not survive an operator that reads this
            raise NotStaticError(f"{self.title}: {node.op_type} {node.name or ''!r}: its result would have shape {list(fact.shape)}")
        if failure:
            raise NotStaticError(f"{self.title}: {node.op_type} {node.name or ''!r}: {failure}")
        return fact

    def carried(self, node: ir.Node, value: ir.Value, model: onnx.ModelProto, reads: dict[str, Fact]) -> tuple[int, ...] | None:
        """The shape of a loop's variable, where its body declares that it gives out the shape that comes in, or of a result of known steps."""
        if node.op_type != "Loop" or node.domain not in STANDARD:
            return None
        state = list(node.outputs).index(value)
        first = self.fact(node, state + 2)
        declared = self.declared(node.attributes["body"].as_graph().outputs[state + 1]).shape
        if first is not None and declared is not None and declared == first.shape:
            return declared
        constants = {name: f.value for name, f in reads.items() if f.value is not None}
        try:
            step = step_of(model, constants)
        except Inexpressible:
            return None
        return step.shape(str(value.name)) if step else None

    def declared(self, value: ir.Value) -> Fact:
        """What the model itself says of a value."""
        shape: tuple[int, ...] | None = None
        if value.shape is not None and not isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
            named = [dimension(d) for d in value.shape]
            dims = [self.symbols.get(d) if isinstance(d, str) else d for d in named]
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
