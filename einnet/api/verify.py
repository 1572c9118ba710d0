"""Numerical verification against ONNX Runtime, and interleaved timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.api.settings import Settings
from einnet.graph.program import Program
from einnet.instantiate.kernels import Plan

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]


SETTLE_S = 0.15
"""ONNX Runtime's threads wait actively for 0.1 s and more after a run, in the way of what is timed next: so long nothing is timed."""


def random_inputs(plan: Plan, seed: int) -> dict[str, Array]:
    """Standard normal values for float inputs, small non-negative integers for integer ones, coin flips for booleans."""
    from einnet.graph.dtypes import NUMPY

    rng = np.random.default_rng(seed)
    dtypes = {b.name: b.dtype for b in plan.buffers}
    found: dict[str, Array] = {}
    for name, view in plan.inputs:
        dtype = np.dtype(NUMPY[dtypes[view.buffer]])
        if dtype.kind == "f":
            found[name] = rng.standard_normal(view.shape).astype(dtype)
        elif dtype.kind == "b":
            found[name] = rng.integers(0, 2, view.shape).astype(dtype)
        else:
            found[name] = rng.integers(0, 4, view.shape).astype(dtype)
    return found


def errors(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """By output: greatest absolute difference, greatest |y|, and their ratio; NaN and infinities must stand in the same places."""
    table: dict[str, dict[str, float]] = {}
    for name, y in wanted.items():
        x = got[name]
        if x.shape != y.shape:
            table[name] = {"max_abs": float("inf"), "scale": 1.0, "max_rel": float("inf")}
            continue
        if y.dtype.kind != "f":
            different = float(np.count_nonzero(x != y))
            table[name] = {"max_abs": different, "scale": 1.0, "max_rel": different}
            continue
        a, b = x.astype(np.float64), y.astype(np.float64)
        same = np.isnan(a) & np.isnan(b) | (a == b)
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(a - b))
        worst = float(np.max(np.nan_to_num(difference, nan=np.inf), initial=0.0))
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
        table[name] = {"max_abs": worst, "scale": scale, "max_rel": worst / scale if scale else (0.0 if worst == 0 else float("inf"))}
    return table


def compare_outputs(got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float) -> dict[str, Any]:
    """Errors by output and overall; passed if every output's error is within tolerance of max|y|."""
    table = errors(got, wanted)
    worst = max((e["max_rel"] for e in table.values()), default=0.0)
    return {
        "max_abs": max((e["max_abs"] for e in table.values()), default=0.0),
        "max_rel": worst,
        "tolerance": tolerance,
        "outputs": table,
        "passed": worst <= tolerance,
    }


class Trial:
    """A model in ONNX Runtime beside our programs for it."""

    def __init__(self, model: Any, program: Program, settings: Settings) -> None:
        from einnet.graph.onnx_read import runnable
        from einnet.runtime.ort import Session

        assert settings.threads is not None
        self.model = runnable(model)
        self.threads = settings.threads
        self.session = Session(self.model, self.threads, title=program.title)

    def verify(self, executable: Executable, inputs: Mapping[str, Array], tolerance: float) -> dict[str, Any]:
        """Run both on the inputs and compare: passed if every output's error is within tolerance of max|y|."""
        return compare_outputs(executable(dict(inputs)), self.session(inputs), tolerance)

    def compare(self, executable: Executable, baseline: Executable, inputs: Mapping[str, Array], seconds: float) -> dict[str, Any]:
        """Interleaved timings of ONNX Runtime, the model's own operators and the optimized program; "noise" is an A-against-A ratio."""
        from einnet.runtime.ort import baseline as ort_call
        from einnet.runtime.timing import compare

        calls = {"onnxruntime": ort_call(self.model, inputs, self.threads), "original": caller(baseline, inputs)}
        if executable is not baseline:
            calls["optimized"] = caller(executable, inputs)
        found = compare(calls, seconds, least=3, pause_s=SETTLE_S, warm_s=SETTLE_S / 2, sample_s=0.01)
        times: dict[str, Any] = dict(found.timings)
        times["noise"] = found.noise
        times.setdefault("optimized", times["original"])
        return times


def caller(executable: Executable, inputs: Mapping[str, Array]) -> Any:
    """A call without arguments that runs the program on the inputs."""
    given = [np.ascontiguousarray(inputs[name]) for name, _ in executable.plan.inputs]
    return lambda: executable.run(*given)
