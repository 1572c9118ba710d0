"""A random ONNX graph under construction: values that nodes may read, and nodes that ONNX takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

OPSETS = (9, 13, 18, 18, 20, 23, 24)
MOST_ELEMENTS = 4096
RENAMED = {"constant_value": "value"}
"""Inputs whose name was another one when they were attributes."""

LIKE_OPERAND = ("GroupNormalization",)
"""Operators whose results have the shape of the first operand, about which inference is silent."""

Shape = tuple[int, ...]


class Drawn(NamedTuple):
    """A node to be: operator, inputs (names, or arrays that become initialisers), attributes, number of outputs."""

    op: str
    inputs: list[str | np.ndarray | None]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1


class Graph:
    """A graph under construction; `live` are its float values, `truths` its conditions."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice(OPSETS)
        self.live: dict[str, Shape] = {}
        self.truths: dict[str, Shape] = {}
        self.inputs: list[str] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> np.ndarray:
        return self.numbers.standard_normal(shape).astype(np.float32)

    def pick(self, rank: int | None = None, least: int = 0) -> str | None:
        """A value of a rank, or of that rank at least; recent ones are likelier."""
        fit = [n for n, s in self.live.items() if (rank is None or len(s) == rank) and len(s) >= least]
        return self.rng.choice(fit[-4:] if self.rng.random() < 0.7 else fit) if fit else None

    def positive(self) -> str | None:
        """A value between 1/4 and 4: what logarithms, roots and divisors can read without magnifying what was rounded."""
        low, high = np.array(0.25, np.float32), np.array(4, np.float32)
        return self.last() if self.add(Drawn("Clip", [self.pick(), low, high])) else None

    def last(self) -> str:
        """The first result of the node that was added last."""
        return str(self.nodes[-1].output[0])

    def add(self, drawn: Drawn) -> bool:
        """Append the node if ONNX takes it and nothing gets large."""
        fitted = of_opset(drawn, self.opset)
        if fitted is None:
            return False
        number = len(self.nodes)
        names, weights = [], []
        for n, given in enumerate(fitted.inputs):
            if isinstance(given, (np.ndarray, np.generic)):
                weights.append(numpy_helper.from_array(np.asarray(given), f"w{number}_{n}"))
                names.append(weights[-1].name)
            else:
                names.append(given or "")
        results = [f"v{number}_{n}" for n in range(fitted.outputs)]
        node = helper.make_node(fitted.op, names, results, name=f"n{number}", **fitted.attributes)
        infos = [self.info(n) for n in dict.fromkeys(names) if n in self.live or n in self.truths]
        graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(r) for r in results], weights)
        try:
            inferred = shape_inference.infer_shapes(wrapped(graph, self.opset), check_type=True, strict_mode=True, data_prop=True)
            if fitted.op in LIKE_OPERAND:
                inferred.graph.output[0].CopyFrom(helper.make_tensor_value_info(results[0], TensorProto.FLOAT, self.live[names[0]]))
            onnx.checker.check_model(inferred, full_check=True)
        except Exception:  # the checker's word for "no such node"
            return False
        shapes = {o.name: tuple(d.dim_value for d in o.type.tensor_type.shape.dim) for o in inferred.graph.output}
        kind = kind_of(inferred.graph)
        if kind is None or any(min(s, default=1) < 1 or prod(s) > MOST_ELEMENTS for s in shapes.values()):
            return False
        self.nodes.append(node)
        self.weights += weights
        (self.live if kind == TensorProto.FLOAT else self.truths).update(shapes)
        return True

    def info(self, name: str) -> onnx.ValueInfoProto:
        """Type and shape of a value."""
        kind, known = (TensorProto.FLOAT, self.live) if name in self.live else (TensorProto.BOOL, self.truths)
        return helper.make_tensor_value_info(name, kind, known[name])


def kind_of(graph: onnx.GraphProto) -> int | None:
    """The type of all outputs, where it is one that graphs may have and their shapes are known."""
    types = {o.type.tensor_type.elem_type for o in graph.output}
    known = all(o.type.tensor_type.HasField("shape") for o in graph.output)
    return next(iter(types)) if known and len(types) == 1 and types <= {TensorProto.FLOAT, TensorProto.BOOL} else None


Draw = Callable[[Graph], Drawn | None]


def wrapped(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def of_opset(drawn: Drawn, opset: int) -> Drawn | None:
    """The node as an older opset writes it: constants that are inputs today were attributes; None where it has no such node."""
    try:
        newest, then = defs.get_schema(drawn.op), defs.get_schema(drawn.op, opset)
    except defs.SchemaError:
        return None
    if then.deprecated:
        return None
    attributes, inputs = dict(drawn.attributes), list(drawn.inputs)
    if len(inputs) > then.max_input:
        for info, value in zip(list(newest.inputs)[then.max_input :], inputs[then.max_input :]):
            if value is not None:
                attributes[RENAMED.get(info.name, info.name)] = value.tolist() if isinstance(value, np.ndarray) else value
        del inputs[then.max_input :]
    unknown = [name for name in attributes if name not in then.attributes]
    if any(name not in newest.attributes or attributes[name] != default(newest.attributes[name]) for name in unknown):
        return None
    return Drawn(drawn.op, inputs, {name: value for name, value in attributes.items() if name not in unknown}, drawn.outputs)


def default(attribute: defs.OpSchema.Attribute) -> Any:
    """What an attribute is where it is not written."""
    return helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
