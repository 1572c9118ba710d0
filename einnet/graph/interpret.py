"""The meaning of a program: every node evaluated in order with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.values.evaluate import evaluate
from einnet.graph.dtypes import NUMPY
from einnet.graph.program import Node, Opaque, Program

Array = NDArray[Any]
RunOpaque = Callable[[Opaque, Sequence[Array]], Sequence[Array]]


def interpret(program: Program, inputs: Mapping[str, Array], opaque: RunOpaque | None = None, dtype: str = "float64") -> dict[str, Array]:
    """Outputs by ONNX name from inputs by ONNX name; expressions in the number system `dtype`, opaque nodes through the callback.

    Opaque nodes get and give arrays of the element types that the program states.

    Raises UsageError for a missing input, and for an opaque node without a callback.
    """
    held: dict[str, Array] = dict(program.weights)
    types = {name: t.dtype for name, t in program.tensors().items()}
    for tensor in program.inputs:
        name = program.names.get(tensor.name, tensor.name)
        if name not in inputs:
            raise UsageError(f"no value for input {name!r}")
        held[tensor.name] = np.asarray(inputs[name])
    for node in program.nodes:
        if isinstance(node, Node):
            held[node.output.name] = evaluate(node.scope, {name: held[name] for name in node.inputs}, dtype)
            continue
        if opaque is None:
            raise UsageError(f"{', '.join(node.origin)} needs ONNX Runtime")
        results = opaque(node, [held[name].astype(NUMPY[types[name]]) for name in node.inputs])
        held.update({t.name: np.asarray(r) for t, r in zip(node.outputs, results, strict=True)})
    return {name: held[tensor] for name, tensor in program.outputs}
