"""The probes: ONNX models of one to eight nodes, each with the operations of the best form that is known, and where that form is from.

A probe is written as ONNX text: tensors by shape, then nodes. Operations are counted as everywhere (`search.work.flops`): a multiplication and
an addition are two. `best` is what the contractions and reductions of the best known form take, as a formula over its sizes; element functions
that remain in any form are allowed for by the runner's tolerance.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

Array = np.ndarray
Make = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Probe:
    """`inputs` and `weights` are "name:2x3 other:4"; `nodes` is the body of a graph in ONNX's text form, whose last value `y` is the output.

    `made` gives weights that are no random numbers; `best` is a count of operations, `source` says whose form that is. Element functions may remain
    as many as the model has, unless it is told how many operations are `left` of them, which are then counted beside `best`.
    """

    name: str
    inputs: str
    nodes: str
    best: float
    source: str
    weights: str = ""
    made: dict[str, Make] = field(default_factory=dict)
    allow: str = "reassociation"
    left: int | None = None

    def model(self) -> onnx.ModelProto:
        """The probe as an ONNX model, shapes inferred, weights drawn from the probe's and their own name."""
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in sizes(self.inputs).items()]
        header = ", ".join(f"float[{','.join(map(str, shape))}] {n}" for n, shape in sizes(self.inputs).items())
        graph = parser.parse_graph(f"{self.name} ({header}) => (float y) {{ {self.nodes} }}")
        stored = [self._weight(n, shape) for n, shape in sizes(self.weights).items()]
        shapes = [numpy_helper.from_array(np.array(v, dtype=np.int64), n) for n, v in integers(self.nodes).items()]
        graph = helper.make_graph(list(graph.node), self.name, given, [helper.make_empty_tensor_value_info("y")], initializer=[*stored, *shapes])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="einnet-reach", ir_version=9)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)

    def _weight(self, name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {name}".encode()))
        make = self.made.get(name, scaled)
        return numpy_helper.from_array(np.ascontiguousarray(make(rng, shape), dtype=np.float32), name)


def sizes(text: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of "a:2x3 b:4"."""
    pairs = (word.split(":") for word in text.split())
    return {name: tuple(int(n) for n in shape.split("x")) if shape else () for name, shape in pairs}


def integers(nodes: str) -> dict[str, list[int]]:
    """Constants that nodes name by their value: `i_2_m1_8` is [2, -1, 8]."""
    names = {w for part in nodes.replace(")", ",").replace("(", ",").split(",") for w in [part.strip()] if w.startswith("i_")}
    return {w: [int(v.replace("m", "-")) for v in w[2:].split("_")] for w in sorted(names)}


def scaled(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers, of a variance that keeps products near unit scale."""
    return rng.standard_normal(shape) / max(prod(shape[:-1]), 1) ** 0.5
