"""CUDA programs of test models: their own operators, lowered."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime

from einnet.api.optimize import prepare
from einnet.api.pipeline import search
from einnet.api.schedule import Schedule
from einnet.api.settings import Settings
from einnet.graph.onnx import load
from einnet.instantiate.kernels import Kernel, Plan


class Even:
    """Every kernel costs the same, and nothing is measured."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0] * len(kernels)

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [None] * len(kernels)


def own_plan(model: onnx.ModelProto) -> Plan:
    """The model's own operators as kernels."""
    return search(prepare(load(model)), Settings(derive=False), Even(), Schedule(time.monotonic(), 60)).plan()


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True))


def worst(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """Greatest error over all outputs, relative to the greatest value of each."""
    assert got.keys() == wanted.keys()
    assert all(got[n].shape == y.shape and got[n].dtype == y.dtype for n, y in wanted.items())
    return max(float(np.abs(got[n] - y).max() / np.abs(y).max()) for n, y in wanted.items())
