"""What of a fold's step depends on constants and on the step's number alone: counters, places, conditions. It is evaluated for every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from einnet.graph.folds.fold import Fold, State

Values = Mapping[str, np.ndarray]

RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})


@dataclass(frozen=True)
class Timetable:
    """Values of the body by name, one for each step along the first axis; and the nodes of the body that are left."""

    LARGEST: ClassVar[int] = 1 << 14
    """Elements of a constant, or of a value at one step, with which this is done."""

    values: Values
    nodes: tuple[onnx.NodeProto, ...]


def timetable(model: onnx.ModelProto, body: onnx.GraphProto, fold: Fold, known: Values, constants: Values, also: str | None) -> Timetable:
    """The table of a body: `known` are inputs whose values at every step are known, `constants` outer values that are the same at each.

    `also` is a value that the table has even where it is the same at each step, if it is known.
    """
    held = {**constants, **{t.name: numpy_helper.to_array(t) for t in body.initializer}}
    still = nodes_of(body.node, set(held))  # what is the same at each step is for the importer to evaluate
    fixed = set(held) | {n for node in still for n in node.output}
    states = counted(body, fixed | set(known), [s for s in fold.states if s.initial in constants])
    moving = [n for n in nodes_of(body.node, fixed | set(known) | {s.name for s in states}) if n not in still]
    made = {n for node in moving for n in node.output if n}
    kept = made | {s.name for s in states} | ({str(also)} & (made | fixed))
    begun = {s: constants[s.initial] for s in states}
    found = evaluated(model, [*still, *moving], kept, fold.count, held, known, begun) if fold.count > 0 else None
    if found is None:
        return Timetable(dict(known), tuple(body.node))
    return Timetable({**known, **found}, tuple(n for n in body.node if n not in moving))


def counted(body: onnx.GraphProto, names: set[str], states: list[State]) -> list[State]:
    """Those of the states that nothing but values of these names, and each other, makes."""
    while True:
        known = names | {s.name for s in states}
        made = known.union(*(node.output for node in nodes_of(body.node, known)))
        fewer = [s for s in states if s.result in made]
        if len(fewer) == len(states):
            return states
        states = fewer


def nodes_of(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """The nodes that need nothing but values of these names, and each other."""
    known, found = set(names), []
    for node in nodes:
        plain = node.op_type not in RANDOM and not any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute)
        if plain and all(not n or n in known for n in node.input):
            found.append(node)
            known.update(node.output)
    return found


def evaluated(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    kept: Set[str],
    count: int,
    held: Values,
    known: Values,
    states: Mapping[State, np.ndarray],
) -> Values | None:
    """The values that are kept at every step; None where something of it cannot be evaluated, or is large."""
    inputs = [*known, *(s.name for s in states)]
    given = sorted({*kept, *(s.result for s in states)} - {*inputs, *held})
    graph = helper.make_graph(list(nodes), "known", infos(inputs), infos(given), [numpy_helper.from_array(a, n) for n, a in held.items()])
    rows: list[dict[str, np.ndarray]] = []
    now = {s.name: value for s, value in states.items()}
    try:
        run = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import))
        for step in range(count):
            here = {**held, **{n: v[step] for n, v in known.items()}, **now}
            here |= dict(zip(given, run.run(None, {n: here[n] for n in inputs}), strict=True)) if given else {}
            rows.append({n: np.asarray(here[n]) for n in kept})
            now = {s.name: np.asarray(here[s.result]) for s in states}
    except Exception:  # whatever the reference implementation lacks is left to the importer
        return None
    return {n: np.stack([row[n] for row in rows]) for n in kept} if all(alike(rows, n) for n in kept) else None


def infos(names: Iterable[str]) -> list[onnx.ValueInfoProto]:
    """Inputs or results of which nothing but the names is said."""
    return [helper.make_empty_tensor_value_info(n) for n in names]


def alike(rows: Sequence[Values], name: str) -> bool:
    """The value has one shape at every step, and is not large."""
    return len({row[name].shape for row in rows}) == 1 and rows[0][name].size <= Timetable.LARGEST
