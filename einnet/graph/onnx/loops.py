"""Scan and Loop as folds: the body as a model of one step, and how its inputs and results hang together from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from einnet.graph.folds.fold import Fold, Gathered, State
from einnet.graph.folds.fold import Sequence as Slices
from einnet.graph.onnx.function_bodies import STANDARD, opset
from einnet.graph.onnx.timetable import Timetable, timetable
from einnet.graph.operators.op import Inexpressible

MOST_STEPS = 1 << 16
"""Of a fold that is looked at."""

OLDEST_SCAN = 9
"""Before, Scan had batches and lengths of its own."""

Types = Mapping[str, onnx.TypeProto]
Constants = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Step:
    """A fold, and its step as a model: the inputs are states, slices, values of tables, and outer values under their own names."""

    fold: Fold
    body: onnx.ModelProto

    def shape(self, output: str) -> tuple[int, ...] | None:
        """The shape of a result of the whole, where inference knows that of a step's."""
        types = {v.name: v.type for v in (*self.body.graph.input, *self.body.graph.output)}
        try:
            final = next((shape_of(types[r]) for name, r in self.fold.finals if name == output), None)
            found = next(((g.axis, shape_of(types[g.result])) for g in self.fold.gathered if g.output == output), None)
        except Inexpressible:
            return None
        if found is None:
            return final
        axis, shape = found
        axis %= len(shape) + 1
        return (*shape[:axis], self.fold.count, *shape[axis:])


def step_of(model: onnx.ModelProto, constants: Constants) -> Step | None:
    """The node of a one-node model as a fold; None where it is no Scan or Loop. `constants` are operands that are known.

    Raises Inexpressible for a number of steps that data decides, and for what else no fold is.
    """
    (node,) = model.graph.node
    if node.domain not in STANDARD or node.op_type not in ("Scan", "Loop"):
        return None
    types = {v.name: v.type for v in model.graph.input} | {n: typed(a) for n, a in constants.items()}
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    wanted = {v.name for v in model.graph.output}
    taken = scan(node, given, types, opset(model)) if node.op_type == "Scan" else loop(node, given, types, constants)
    if not 1 <= taken.fold.count <= MOST_STEPS:
        raise Inexpressible(f"it has {taken.fold.count} steps")
    return finished(model, given["body"], taken, constants, wanted)


@dataclass(frozen=True)
class Taken:
    """A fold as the node says it: types of the body's inputs that it feeds, inputs that are known at each step, and a result that must be true."""

    fold: Fold
    inputs: Types
    known: Mapping[str, np.ndarray]
    condition: str | None = None


def scan(node: onnx.NodeProto, given: Mapping[str, Any], types: Types, version: int) -> Taken:
    """States first, then slices, in operands, in the body's inputs and in its results."""
    if version < OLDEST_SCAN:
        raise Inexpressible(f"a Scan of opset {version}")
    body, sliced = given["body"], int(given["num_scan_inputs"])
    count = len(node.input) - sliced
    made = len(body.output) - count
    axes = axes_of(given, "scan_input_axes", [len(shape_of(types[n])) for n in node.input[count:]])
    backward = given.get("scan_input_directions", [0] * sliced)
    outer = [Slices(n, a, bool(b)) for n, a, b in zip(node.input[count:], axes, backward, strict=True)]
    lengths = {shape_of(types[s.value])[s.axis] for s in outer}
    if len(lengths) != 1:
        raise Inexpressible("what it scans has no one length")
    states = tuple(State(i.name, o.name, n) for i, o, n in zip(body.input, body.output, node.input[:count]))
    sequences = {i.name: s for i, s in zip(body.input[count:], outer, strict=True)}
    inputs = {s.name: types[s.initial] for s in states} | {n: sliced_type(types[s.value], s.axis) for n, s in sequences.items()}
    ends = given.get("scan_output_axes", [0] * made), given.get("scan_output_directions", [0] * made)
    results = zip(node.output[count:], body.output[count:], *ends, strict=True)
    gathered = tuple(Gathered(n, r.name, a, bool(b)) for n, r, a, b in results)
    finals = tuple((n, r.name) for n, r in zip(node.output, body.output[:count]))
    return Taken(Fold(lengths.pop(), states, sequences, {}, gathered, finals), inputs, {})


def loop(node: onnx.NodeProto, given: Mapping[str, Any], types: Types, constants: Constants) -> Taken:
    """The step's number and the condition first in the body's inputs, the condition first in its results."""
    body, (most, condition, *initial) = given["body"], node.input
    if most not in constants:
        raise Inexpressible("how often it goes round is data" if most else "only a condition ends it")
    if condition and not (condition in constants and bool(constants[condition].reshape(-1)[0])):
        raise Inexpressible("whether it begins is data")
    count = int(constants[most].reshape(-1)[0])
    number, going, *names = (i.name for i in body.input)
    goes_on, *results = (o.name for o in body.output)
    states = tuple(State(n, r, i) for n, r, i in zip(names, results, initial, strict=False))
    gathered = tuple(Gathered(n, r) for n, r in zip(node.output[len(states) :], results[len(states) :]))
    known = {number: np.arange(max(count, 0), dtype=np.int64), going: np.ones(max(count, 0), bool)}
    finals = tuple((n, s.result) for n, s in zip(node.output, states))
    fold = Fold(count, states, {}, {}, gathered, finals)
    return Taken(fold, {s.name: types[s.initial] for s in states}, known, goes_on)


def finished(model: onnx.ModelProto, body: onnx.GraphProto, taken: Taken, constants: Constants, wanted: set[str]) -> Step:
    """The fold with its tables, and the model of one step. Raises Inexpressible where the condition may become false."""
    small = {n: a for n, a in constants.items() if a.size <= Timetable.LARGEST}
    table = timetable(model, body, taken.fold, taken.known, small, taken.condition)
    if taken.condition is not None:
        going = table.values.get(taken.condition)
        if going is None or not going[: taken.fold.count - 1].all():
            raise Inexpressible("data may end it early")
    fold = taken.fold.known(table.values, wanted)
    names = {*fold.ends}.union(*map(used, table.nodes))
    fold = replace(fold, tables=only(table.values, names), constants=constants)
    inputs = only(taken.inputs, {*taken.inputs} - {*table.values}) | {n: typed(v[0]) for n, v in fold.tables.items()}
    made = {n for node in table.nodes for n in node.output}
    free = names - made - {*inputs, *(t.name for t in body.initializer)}
    outer = {v.name: v.type for v in model.graph.input} | {n: typed(a) for n, a in constants.items() if n not in small}
    held = [numpy_helper.from_array(a, n) for n, a in only(small, free).items()]
    ends = [helper.make_empty_tensor_value_info(n) for n in fold.ends]
    infos = [helper.make_value_info(n, t) for n, t in (inputs | only(outer, free)).items()]
    graph = helper.make_graph(list(table.nodes), body.name or "step", infos, ends, [*body.initializer, *held])
    return Step(fold, with_types(helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)))


V = TypeVar("V")


def only(values: Mapping[str, V], names: Set[str]) -> dict[str, V]:
    """Those of the values that have one of the names."""
    return {n: v for n, v in values.items() if n in names}


def with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its results as they are inferred; where nothing is, they are taken for float32."""
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # inference raises its own and checker types
        found = model
    for value in found.graph.output:
        if value.type.WhichOneof("value") is None:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return found


def used(node: onnx.NodeProto) -> set[str]:
    """The names that a node or its subgraphs read."""
    inner = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH] + [g for a in node.attribute for g in a.graphs]
    return {*node.input}.union(*(used(n) | {o.name for o in g.output} for g in inner for n in g.node))


def axes_of(given: Mapping[str, Any], name: str, ranks: Sequence[int]) -> list[int]:
    """Axes, counted from the front."""
    return [int(a) % rank for a, rank in zip(given.get(name, [0] * len(ranks)), ranks, strict=True)]


def typed(value: np.ndarray) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def shape_of(kind: onnx.TypeProto) -> tuple[int, ...]:
    """A static shape. Raises Inexpressible where there is none."""
    if not kind.tensor_type.HasField("shape") or not all(d.HasField("dim_value") for d in kind.tensor_type.shape.dim):
        raise Inexpressible("an operand has no static shape")
    return tuple(d.dim_value for d in kind.tensor_type.shape.dim)


def sliced_type(kind: onnx.TypeProto, axis: int) -> onnx.TypeProto:
    """The type of a slice along an axis."""
    shape = shape_of(kind)
    return helper.make_tensor_type_proto(kind.tensor_type.elem_type, (*shape[:axis], *shape[axis + 1 :]))
