"""Two written models beside each other: their nodes, functions and ends, and the weights that differ."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from einnet.runtime.onnx.node_writer import Array


def parsed(data: bytes) -> onnx.ModelProto:
    """A model from its bytes."""
    return onnx.load_model_from_string(data)


def unlike(wanted: onnx.ModelProto, runs: onnx.ModelProto) -> list[str]:
    """In what a model that runs is not the wanted one, its weights' values and its notes aside."""
    problems = []
    for what in ("node", "input", "output"):
        ours, theirs = ([x.SerializeToString(deterministic=True) for x in getattr(m.graph, what)] for m in (wanted, runs))
        if ours != theirs:
            problems.append(f"the {what}s of the model that runs are not those that are written for the kernels")
    for what in ("functions", "opset_import"):
        ours, theirs = (sorted(x.SerializeToString(deterministic=True) for x in getattr(m, what)) for m in (wanted, runs))
        if ours != theirs:
            problems.append(f"the {what} of the model that runs are not those that are written for the kernels")
    known, held = ({i.name for i in m.graph.initializer} for m in (wanted, runs))
    if known != held or runs.graph.sparse_initializer:
        problems.append("the model that runs has other weights")
    return problems


def weights(wanted: onnx.ModelProto, runs: onnx.ModelProto) -> dict[str, tuple[Array, Array]]:
    """The weights that both have, by name."""
    known, held = ({i.name: numpy_helper.to_array(i) for i in m.graph.initializer} for m in (wanted, runs))
    return {name: (known[name], held[name]) for name in known if name in held}
