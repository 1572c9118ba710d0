"""The whole model in ONNX Runtime as a program of one kernel: the candidate that no other may be slower than."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from einnet.graph.onnx.read import kept
from einnet.instantiate.kernels import Buffer, OpaqueCall, Plan, dense_view


def whole_model(model: Any, plan: Plan, inputs: Sequence[str]) -> Plan | None:
    """A plan with the inputs and outputs of `plan` that hands them to ONNX Runtime, which takes `inputs` in this order.

    None where the model is too large to be part of a program.
    """
    data = kept(model)
    if data is None:
        return None
    given = {name: dense_view(f"in{n}", view.shape) for n, (name, view) in enumerate(plan.inputs)}
    results = {name: dense_view(f"out{n}", view.shape) for n, (name, view) in enumerate(plan.outputs)}
    types = {b.name: b.dtype for b in plan.buffers}
    buffers = [Buffer(given[name].buffer, prod(v.shape), types[v.buffer], "input") for name, v in plan.inputs]
    buffers += [Buffer(results[name].buffer, prod(v.shape), types[v.buffer], "output") for name, v in plan.outputs]
    kernel = OpaqueCall(data, tuple(given[name] for name in inputs), tuple(results.values()), "the whole model")
    return Plan(tuple(buffers), (kernel,), tuple(given.items()), tuple(results.items()))
