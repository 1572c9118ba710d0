"""What a model rounds to few integers: the tensors that it does so with, and between which numbers it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from einnet.graph.onnx.mapped import LARGEST
from einnet.graph.onnx.read import Source, bytes_of, in_memory

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rounded:
    """A tensor of floats of which round(x/scale) + zero is kept, between the ends of a type of integers; one scale along `axis`, or for all."""

    name: str
    scale: Array
    zero: Array
    axis: int

    def beyond(self, x: Array) -> int:
        """How many numbers are not between the ends. An end that stands for 0 is meant to cut off what is on its other side: relu does."""
        ends, shape = np.iinfo(self.zero.dtype), [1] * x.ndim
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        scale, zero = (v.astype(np.float64).reshape(shape if v.size > 1 else ()) for v in (self.scale, self.zero))
        with np.errstate(all="ignore"):
            y = np.rint(x / scale) + zero
        inside = ((y >= ends.min) | (zero == ends.min)) & ((y <= ends.max) | (zero == ends.max))
        return int(np.count_nonzero(~inside))


def exposed(source: Source) -> tuple[bytes, list[Rounded]] | None:
    """The model with those tensors as outputs, all others left out, and what they are rounded to; None where there are none, or it is too large for
    one text."""
    whole = in_memory(source)
    if bytes_of(whole) >= LARGEST:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(whole)
    known = constants(model.graph)
    found = {r.name: r for node in model.graph.node if (r := rounded(node, known))}
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found)
    return (model.SerializeToString(), list(found.values())) if found else None


def rounded(node: onnx.NodeProto, known: Mapping[str, Array]) -> Rounded | None:
    """What a node rounds with a scale that is known; None for weights and for every other node."""
    data, *parameters = node.input or [""]
    if node.op_type != "QuantizeLinear" or node.domain not in ("", "ai.onnx") or data in known or any(p not in known for p in parameters):
        return None
    attributes = {a.name: a.i for a in node.attribute}
    zero = known[parameters[1]] if len(parameters) > 1 else np.zeros((), np.uint8)
    if zero.dtype.kind not in "ui" or attributes.keys() & {"output_dtype", "block_size"} or known[parameters[0]].ndim > 1:
        return None
    return Rounded(data, known[parameters[0]], zero, attributes.get("axis", 1))


def constants(graph: onnx.GraphProto) -> dict[str, Array]:
    """What is known of a graph's values without running it."""
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer if len(t.dims) <= 1}
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None:
            found[node.output[0]] = numpy_helper.to_array(value)
    return found | {t.name: np.empty((0, 0)) for t in graph.initializer if t.name not in found}
