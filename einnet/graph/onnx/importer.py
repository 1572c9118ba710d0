"""ONNX in: a model as a program of scoped expressions, with opaque nodes for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from einnet.errors import ModelError, NotStaticError
from einnet.expr.nodes import Read, Scope, Tensor, exchange_in, indices, is_weight, tensors
from einnet.graph.contiguous import contiguous
from einnet.graph.dtypes import HALVES, dtype_name
from einnet.graph.folds.as_one import as_one
from einnet.graph.folds.fold import Fold
from einnet.graph.folds.recursive import Recursive, recursive, told
from einnet.graph.folds.unfold import unfolded
from einnet.graph.onnx.contributed.call import Undefined
from einnet.graph.onnx.flat import FlatNode, Flattener
from einnet.graph.onnx.function_bodies import with_body
from einnet.graph.onnx.infer import Fact, build_model
from einnet.graph.onnx.loops import step_of
from einnet.graph.onnx.naming import Namer
from einnet.graph.onnx.opaque_groups import Groups, live
from einnet.graph.onnx.read import Source, read
from einnet.graph.onnx.shapes import Shapes
from einnet.graph.operators.builders import loops_of
from einnet.graph.operators.op import Attribute, Inexpressible, Op, Operand, Unsupported
from einnet.graph.operators.registry import lower
from einnet.graph.program import Header, Held, Node, Opaque, Program, ProgramNode

_EMBEDDED_BYTES = 1 << 16
"""Constants up to this size stay inside an opaque node's model; larger ones are weights of the program."""

GIVEN_OUT = "values of another type than float32 are given out"
"""Why a program ends in a cast that the model has not: expressions give numbers, 0 and 1 for truth values, and the model's output is of its type."""


def load(model: Source, shapes: Shapes | None = None, doubles: bool = False) -> Program:
    """Read a model and lower every node.

    `shapes` gives static shapes to inputs by ONNX name; a symbolic dimension bound through one input is bound wherever the symbol occurs.
    Initialisers that are also inputs are constants. Every node on floats with a form in the language becomes expressions, of numbers: floats
    of a shorter type are rounded to it where the model casts, and where they leave the program. Everything else is kept as it is in opaque nodes.
    With `doubles` nodes on float64 become expressions, too: float32 computes them.

    Raises ModelError, on one line, for a file that cannot be read, an invalid graph, or a shape that nothing fixes.
    """
    if not isinstance(model, (str, Path, onnx.ModelProto, ir.Model)):
        raise ModelError(f"expected a path, an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")
    title = str(model) if isinstance(model, (str, Path)) else model.graph.name or "model"
    graph = read(model, shapes)
    return _Lowering(graph, Flattener(graph, title), title, (*HALVES, *(["f64"] if doubles else []))).program()


class _Lowering:
    """A model on its way to expressions; floats of some types are `numbers` in float32."""

    def __init__(self, model: ir.Model, flat: Flattener, title: str, numbers: Sequence[str]) -> None:
        self.model, self.flat, self.title, self.numbers = model, flat, title, numbers
        self.namer = Namer()
        self.tensors: dict[Fact, Tensor] = {}
        self.widened: dict[Fact, Tensor] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.done: list[ProgramNode] = []
        self.recursion: Recursive | None = None
        """What the node that is looked at computes, where that is equations along time."""

    def program(self, given: bool = True) -> Program:
        """The whole; outputs that are not `given` out are left as the numbers that expressions give."""
        graph = self.model.graph
        self.check_ends()
        inputs = tuple(self.tensor(self.flat.facts[value]) for value in graph.inputs)
        results = [(str(value.name), self.flat.facts[value]) for value in graph.outputs]
        for _, fact in results:
            self.tensor(fact)  # the outputs get their names before all that is computed on the way
        self.parts([fact for _, fact in results])
        outputs = tuple((name, (self.given_out(name, fact) if given else self.tensor(fact)).name) for name, fact in results)
        names = {t.name: str(value.name) for t, value in zip(inputs, graph.inputs)}
        names |= {tensor: name for name, tensor in reversed(outputs)} | names
        used = {name for node in self.done for name in node.inputs} | {name for _, name in outputs}
        weights = {name: value for name, value in self.weights.items() if name in used}
        values = ((fact, t) for fact, t in self.tensors.items() if fact.value is None and fact.dtype == t.dtype)
        holds = {t.name: Held(fact.name, tuple(range(len(t.shape)))) for fact, t in values}
        return Program(inputs, tuple(self.done), outputs, weights, names, Path(self.title).stem, self.header(), holds)

    def check_ends(self) -> None:
        """Raise NotStaticError unless inputs and outputs are tensors of static shapes."""
        for value in self.model.graph.inputs:
            if not self.flat.facts[value].crosses:
                raise NotStaticError(f"{self.title}: input {value.name!r} has elements of type {value.dtype}")
        for value in self.model.graph.outputs:
            fact = self.flat.facts[value]
            if not fact.crosses:
                what = "its shape depends on data" if fact.dtype else "it is no tensor of a plain type"
                raise NotStaticError(f"{self.title}: output {str(value.name)!r} is no static tensor: {what}")

    def parts(self, results: Sequence[Fact]) -> None:
        """Append every node that the results need; what one part computes and another reads, or is a result, is a tensor of the program."""
        parts = Groups(live(self.flat.nodes, results)).ordered()
        readers: dict[Fact, set[int]] = {fact: {-1} for fact in results}
        for n, part in enumerate(parts):
            for node in part:
                for fact in node.reads.values():
                    readers.setdefault(fact, set()).add(n)
        for n, part in enumerate(parts):
            self.part(part, {f for node in part for f in node.results if f.value is None and readers.get(f, {n}) != {n}})

    def header(self) -> Header:
        """What the model says of itself."""
        imports, name = self.model.graph.opset_imports, self.model.graph.name
        opset = imports.get("", 0) or imports.get("ai.onnx", 1)
        return Header(opset, name or "model", self.model.doc_string or "", tuple(self.model.metadata_props.items()))

    def tensor(self, fact: Fact) -> Tensor:
        """The program's tensor for a value; a constant becomes a weight."""
        if fact not in self.tensors:
            assert fact.dtype is not None
            assert fact.shape is not None
            wide = fact.value is not None and fact.dtype in self.numbers
            tensor = Tensor(self.namer(fact.name), fact.shape, "f32" if wide else fact.dtype, fact.value is not None)
            self.tensors[fact] = tensor
            if fact.value is not None:
                self.weights[tensor.name] = contiguous(np.asarray(fact.value, np.float32 if wide else None))
        return self.tensors[fact]

    def number(self, fact: Fact) -> Tensor:
        """The tensor in which expressions find a value: floats of another type stand in one of float32."""
        tensor = self.tensor(fact)
        if tensor.dtype not in self.numbers:
            return tensor
        if fact not in self.widened:
            self.widened[fact] = Tensor(self.namer(f"{fact.name}_wide"), tensor.shape)
        return self.widened[fact]

    def operand(self, fact: Fact) -> Operand:
        """A value as expressions read it."""
        return Operand(self.number(fact), fact.value, "f32" if fact.dtype in self.numbers else fact.dtype or "")

    def element(self, results: Sequence[Fact]) -> str:
        """The element type that expressions give to the first of some results; of float64 it is float32, where they stand for that."""
        found = next((f.dtype for f in results if f.dtype), "f32")
        return "f32" if found == "f64" and found in self.numbers else found

    def widen(self, node: FlatNode, read: set[str]) -> None:
        """Append the copies of floats of another type as float32 that the expressions of a node read, each once."""
        for fact in node.reads.values():
            wide, loops = self.widened.get(fact), loops_of(fact.shape or ())
            if wide is not None and wide.name in read and all(wide not in n.outputs for n in self.done):
                self.done.append(Node(wide, Scope(loops, (), Read(self.tensor(fact), indices(loops))), (f"Cast {fact.name!r}",)))

    def part(self, nodes: Sequence[FlatNode], outside: set[Fact]) -> None:
        """One node as expressions if it has any, else the nodes as one opaque node."""
        reason = Unsupported("a value between these nodes is no tensor of static shape")
        self.recursion = None
        if len(nodes) == 1:
            attempt = self.expressions(nodes[0], outside)
            if attempt is None:
                return
            reason = attempt
        self.opaque(nodes, outside, reason, self.recursion)

    def expressions(self, node: FlatNode, used: set[Fact]) -> Unsupported | None:
        """Append the node's expressions, or say why there are none."""
        if any(not f.crosses for f in node.reads.values()):
            return Unsupported("it reads a value that is no plain tensor")
        lowered = self.directly(node, used) if node.standard else Unsupported(f"{node.node.op_type} of domain {node.node.domain}")
        if isinstance(lowered, Unsupported):
            return self.through_body(node, used, lowered)
        return None

    def directly(self, node: FlatNode, used: set[Fact]) -> Unsupported | None:
        """Append what the function of the node's operator gives, or say why it gives nothing."""
        values = [node.reads.get(str(v.name)) if v is not None else None for v in node.node.inputs]
        inputs = tuple(None if f is None else self.operand(f) for f in values)
        outside = [f for f in node.results if f in used]
        made = {f: replace(self.tensor(f), dtype="f32") for f in outside}
        outputs = tuple(None if f is None else made.get(f) for f in node.outputs)
        element = self.element(outside)
        shapes = tuple(None if f is None else f.shape for f in node.outputs)
        op = Op(node.node.op_type, self.version(node.node), inputs, outputs, attributes(node.node), self.namer, shapes, element)
        lowered = lower(op)
        if isinstance(lowered, Unsupported):
            return lowered
        self.weights.update(lowered.weights)
        self.widen(node, {name for _, scope in lowered.chain for name in tensors(scope)})
        own = {tensor.name: tensor for tensor, _ in lowered.chain}
        self.tensors.update({f: own[t.name] for f, t in made.items()})
        self.done.extend(Node(tensor, scope, (node.label,)) for tensor, scope in lowered.chain)
        return None

    def through_body(self, node: FlatNode, used: set[Fact], why: Unsupported) -> Unsupported | None:
        """Append the expressions of the function body that defines the node's operator, where all of it has some; else why the node has none."""
        small = {name for name, f in node.reads.items() if f.value is not None and f.value.nbytes <= _EMBEDDED_BYTES}
        given = [(name, f) for name, f in node.reads.items() if name not in small]
        held = [(name, node.reads[name]) for name in sorted(small)]
        wanted = [f for f in node.results if f in used]
        model = build_model(self.model, [node.proto], given, held, [(f.name, f) for f in wanted])
        inner = self.unfolded(model, node) or self.body(model, len(wanted), why)
        if isinstance(inner, Unsupported):
            return inner
        opaque = [n for n in inner.nodes if isinstance(n, Opaque)]
        if not opaque:
            self.splice(inner, node, {f.name: f for f in wanted})
            return None
        if all(n.recursion is not None for n in opaque):
            self.recursion = self.as_recursion(node, [(name, f) for name, f in held if f.dtype != "f32"], wanted)
        return Unsupported(f"{why.why}; in its function body, {', '.join(opaque[0].origin)}: {reason_of(opaque[0])}")

    def as_recursion(self, node: FlatNode, held: Sequence[tuple[str, Fact]], wanted: Sequence[Fact]) -> Recursive | None:
        """The node's function body as equations along time over all floats that it reads; None where it is none."""
        given = [(name, f) for name, f in node.reads.items() if name not in dict(held)]
        model = build_model(self.model, [node.proto], given, held, [(f.name, f) for f in wanted])
        body = self.body(model, len(wanted), Unsupported(""))
        with suppress(Inexpressible):
            return None if isinstance(body, Unsupported) else as_one(body)
        return None

    def body(self, model: onnx.ModelProto, wanted: int, why: Unsupported) -> Program | Unsupported:
        """The program of a node's function body."""
        try:
            body = with_body(model)
            return why if body is None or len(body.graph.output) < wanted else self.inner(body)
        except Undefined as reason:
            return Unsupported(f"{why.why}; {reason}")
        except ModelError as error:
            return Unsupported(f"{why.why}; its function body: {error}")

    def inner(self, body: onnx.ModelProto) -> Program:
        """A model that stands for a node, with its results as its expressions give them."""
        graph = read(body)
        return _Lowering(graph, Flattener(graph, self.title), self.title, self.numbers).program(given=False)

    def unfolded(self, model: onnx.ModelProto, node: FlatNode) -> Program | Unsupported | None:
        """The program of a node that is a fold; None where it is none."""
        constants = {name: np.asarray(f.value) for name, f in node.reads.items() if f.value is not None}
        try:
            step = step_of(model, constants)
            if step is None:
                return None
            outer = {name: self.tensor(f) for name, f in node.reads.items()}
            scopes = {n.output.name: n.scope for n in self.done if isinstance(n, Node)}
            body = self.inner(step.body)
            self.recursion = recursion_of(step.fold, body, outer)
            return unfolded(step.fold, body, outer, scopes)
        except Inexpressible as reason:
            return Unsupported(str(reason))
        except ModelError as error:
            return Unsupported(f"its body: {error}")

    def splice(self, inner: Program, node: FlatNode, wanted: Mapping[str, Fact]) -> None:
        """Append the nodes of a program that computes some results of a node of what the node reads."""
        here: dict[str, Tensor] = {t.name: self.tensor(node.reads[inner.names[t.name]]) for t in inner.inputs}
        results = {tensor: name for name, tensor in inner.outputs}
        for name, value in inner.weights.items():
            here[name] = Tensor(self.namer(name), value.shape, dtype_name(value.dtype) or str(value.dtype), True)
            self.weights[here[name].name] = value
        for n in inner.nodes:
            assert isinstance(n, Node)
            scope = exchange_in(n.scope, here)
            fact = wanted.get(results.get(n.output.name, ""))
            name = self.tensor(fact).name if fact else self.namer(n.output.name)
            here[n.output.name] = made = replace(n.output, name=name, weight=is_weight(scope))
            self.done.append(Node(made, scope, (node.label,)))
        for name, tensor in inner.outputs:
            source = here[tensor]
            if results[tensor] != name or tensor in inner.weights or any(t.name == tensor for t in inner.inputs):
                loops = loops_of(source.shape)
                made = replace(self.tensor(wanted[name]), dtype=source.dtype)
                self.done.append(Node(made, Scope(loops, (), Read(source, indices(loops))), (node.label,)))
                self.tensors[wanted[name]] = made
            else:
                self.tensors[wanted[name]] = source

    def typed(self, name: str, fact: Fact) -> tuple[tuple[str, Fact], onnx.NodeProto | None]:
        """An input of an opaque node: as it is, or as the numbers that an expression gives, 0 and 1 for truth values, with their cast."""
        if self.tensor(fact).dtype == fact.dtype:
            return (name, fact), None
        assert fact.elem is not None
        number = f"{name}/number"
        return (number, Fact(number, ir.DataType.FLOAT, fact.shape)), onnx.helper.make_node("Cast", [number], [name], to=int(fact.elem))

    def given_out(self, name: str, fact: Fact) -> Tensor:
        """The tensor of an output, of its own element type."""
        tensor = self.tensor(fact)
        if tensor.dtype == fact.dtype:
            return tensor
        given, cast = self.typed(name, fact)
        assert cast is not None
        result = Fact(name, fact.elem, fact.shape)
        model = build_model(self.model, [cast], [given], [], [(name, result)])
        self.done.append(Opaque((self.tensor(result),), (tensor.name,), model.SerializeToString(), (f"Cast {name!r}",), GIVEN_OUT))
        return self.tensor(result)

    def version(self, node: ir.Node) -> int:
        imports = self.model.graph.opset_imports
        return node.version or imports.get("", 0) or imports.get("ai.onnx", 1)

    def opaque(self, nodes: Sequence[FlatNode], outside: set[Fact], reason: Unsupported, recursive: Recursive | None) -> None:
        """Keep the nodes as a model of their own, of which all is an input that its equations read."""
        reads, protos = joined(nodes)
        held = embedded(reads, recursive.inputs if recursive is not None else ())
        inputs = [(name, f) for name, f in reads.items() if name not in held]
        outputs = [f for node in nodes for f in node.results if f in outside and f.value is None]
        typed = [self.typed(name, f) for name, f in inputs]
        casts = [cast for _, cast in typed if cast]
        model = build_model(self.model, [*casts, *protos], [given for given, _ in typed], held.items(), [(f.name, f) for f in outputs])
        results, origin = tuple(self.tensor(f) for f in outputs), tuple(node.label for node in nodes)
        given = tuple(self.tensor(f) for _, f in inputs)
        node = Opaque(results, tuple(t.name for t in given), model.SerializeToString(), origin, reason.why)
        self.done.append(node if recursive is None else recursive.of(node, [name for name, _ in inputs], given, [f.name for f in outputs]))


def reason_of(node: Opaque) -> str:
    """Why a node has no expression, without that it is a recursion."""
    return node.why if node.recursion is None else node.why.removesuffix(told(node.recursion))


def embedded(reads: Mapping[str, Fact], equations: Sequence[str]) -> dict[str, Fact]:
    """Small constants, and those that are no tensors, which a model holds itself: not what equations read."""
    small = {n: f for n, f in reads.items() if f.value is not None and (f.value.nbytes <= _EMBEDDED_BYTES or not f.crosses)}
    return {n: f for n, f in small.items() if n not in equations}


def recursion_of(fold: Fold, body: Program, outer: Mapping[str, Tensor]) -> Recursive | None:
    """The fold as equations along time; None where it is none."""
    try:
        return recursive(fold, body, outer)
    except Inexpressible:
        return None


def joined(nodes: Sequence[FlatNode]) -> tuple[dict[str, Fact], list[onnx.NodeProto]]:
    """What nodes read of others, by name; and they, behind each one copies of its results under the other names by which they are read."""
    made = {f for node in nodes for f in node.results}
    every = {name: fact for node in nodes for name, fact in node.reads.items()}
    aliases = [(name, fact.name) for name, fact in every.items() if fact in made and name != fact.name]
    protos = []
    for node in nodes:
        own = {f.name for f in node.results}
        protos.append(node.proto)
        protos += [onnx.helper.make_node("Identity", [source], [name]) for name, source in aliases if source in own]
    return {name: fact for name, fact in every.items() if fact not in made}, protos


def attributes(node: ir.Node) -> dict[str, Attribute]:
    """The attributes of a node that operators read, as plain values."""
    found: dict[str, Attribute] = {}
    for name, attribute in node.attributes.items():
        match attribute.type:
            case ir.AttributeType.INT:
                found[name] = attribute.as_int()
            case ir.AttributeType.FLOAT:
                found[name] = float(attribute.as_float())
            case ir.AttributeType.STRING:
                found[name] = attribute.value.decode(errors="replace") if isinstance(attribute.value, bytes) else attribute.as_string()
            case ir.AttributeType.INTS:
                found[name] = tuple(attribute.as_ints())
            case ir.AttributeType.FLOATS:
                found[name] = tuple(map(float, attribute.as_floats()))
            case ir.AttributeType.TENSOR:
                found[name] = np.asarray(attribute.as_tensor().numpy())
    return found
