"""A case: a model as one would write it down, for which an algorithm of fewer operations is to be found and proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """`model` makes the ONNX model, weights included, the same each time. `algorithm` says in words what is to be found.

    `others` names, by column of the table, an engine that cannot run the ONNX model but computes the same: "module:function", where the
    function takes the model's path and a number of threads and gives a function from inputs to outputs (see `benchmarks.contest.engines`).
    """

    name: str
    algorithm: str
    model: Callable[[], onnx.ModelProto]
    allow: str = "reassociation"
    others: Mapping[str, str] = field(default_factory=dict)

    def inputs(self, seed: int = 0) -> Arrays:
        """Normal numbers for every input that is no weight."""
        model = self.model()
        held = {i.name for i in model.graph.initializer}
        rng = np.random.default_rng(seed)
        given = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input if i.name not in held}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
