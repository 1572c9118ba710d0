"""CUDA programs of test models: their own operators, lowered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

import numpy as np
import onnx
import onnxruntime

from einnet.compile.budget import CountedClock, Schedule
from einnet.compile.program_search import search
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.profile import H200
from einnet.search.settings import Settings


class Even:
    """Every kernel costs the same, and nothing is measured."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0] * len(kernels)

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [None] * len(kernels)


def own_plan(model: onnx.ModelProto) -> Plan:
    """The model's own operators as kernels."""
    return search(prepare(load(model)), Settings(derive=False), Even(), Schedule(time.monotonic(), 60)).plan()


def derived_kernels(model: onnx.ModelProto, seconds: float) -> list[EOperator]:
    """Generated kernels of the cheapest derived way to compute each subprogram, whether or not it is cheaper than the model's own operators.

    `seconds` of search are counted in states.
    """
    settings, clock = Settings(backend="cuda", allow="precision"), CountedClock()
    found = search(prepare(load(model)), settings, CudaCost(H200), Schedule(clock.now(), seconds, clock=clock))
    derived = [[c for c in r.choice.candidates if c.form.steps and c.cost < inf] for r in found.results]
    best = [min(forms, key=lambda c: c.cost) for forms in derived if forms]
    return list(dict.fromkeys(k for c in best for k in c.kernels if isinstance(k, EOperator)))


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True))


def worst(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """Greatest error over all outputs, relative to the greatest value of each."""
    assert got.keys() == wanted.keys()
    assert all(got[n].shape == y.shape and got[n].dtype == y.dtype for n, y in wanted.items())
    return max(float(np.abs(got[n] - y).max() / np.abs(y).max()) for n, y in wanted.items())
