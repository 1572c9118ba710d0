"""A plan run by numpy: every kernel, of whatever vendor operator, as the expression that it says it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from einnet.expr.nodes import Tensor
from einnet.expr.values.evaluate import evaluate
from einnet.graph.dtypes import NUMPY
from einnet.instantiate.kernels import Kernel, OpaqueCall, Plan, Post, View
from einnet.instantiate.kernels.kernel import Shown
from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class NumpyProgram:
    """A plan with memory of its own in every call."""

    plan: Plan
    threads: int = 1

    @property
    def input_names(self) -> list[str]:
        """The model's inputs, in its order."""
        return [name for name, _ in self.plan.inputs]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        memory = {b.name: np.zeros(b.size, NUMPY[b.dtype]) for b in self.plan.buffers}
        memory |= {name: np.array(values).reshape(-1) for name, values in self.plan.constants.items()}
        for name, view in self.plan.inputs:
            window(view, memory)[...] = inputs[name]
        for kernel in self.plan.kernels:
            self.run(kernel, memory)
        return {name: window(view, memory).copy() for name, view in self.plan.outputs}

    def run(self, kernel: Kernel, memory: Mapping[str, Array]) -> None:
        """Run one kernel."""
        if isinstance(kernel, OpaqueCall):
            session = Session(kernel.model, self.threads, title=kernel.origin)
            given = {a.name: window(v, memory).copy() for a, v in zip(session.inputs, kernel.inputs, strict=True)}
            results = session(given)
            for argument, view in zip(session.outputs, kernel.outputs, strict=True):
                window(view, memory)[...] = results[argument.name]
            return
        names = {view: f"v{n}" for n, view in enumerate(dict.fromkeys(kernel.operand_views))}
        meaning = kernel.meaning(Shown(lambda view: Tensor(names[view], view.shape)))
        values = evaluate(meaning, {name: window(view, memory) for view, name in names.items()}, "float32")
        for post in kernel.posts:
            values = applied(post, values, memory)
        (result,) = kernel.result_views
        window(result, memory)[...] = values


def window(view: View, memory: Mapping[str, Array]) -> Array:
    """The elements that a view shows, for reading and writing."""
    flat = memory[view.buffer]
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, [s * flat.itemsize for s in view.strides])


def applied(post: Post, y: Array, memory: Mapping[str, Array]) -> Array:
    """One operation on a kernel's result."""
    match post.kind:
        case "add" | "mul":
            assert post.operand is not None
            other = window(post.operand, memory)
            return np.asarray(y + other if post.kind == "add" else y * other)
        case "relu":
            return np.where(y > 0, y, post.alpha * y)
        case "tanh":
            return np.tanh(y)
        case "sigmoid":
            return np.asarray(1 / (1 + np.exp(-y)))
        case "clip":
            return np.clip(y, post.alpha, post.beta)
    assert post.kind == "linear", post.kind
    return np.asarray(post.alpha * y + post.beta)
