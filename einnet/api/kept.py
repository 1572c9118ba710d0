"""Models that are kept whole: valid ones whose values are not all tensors of a plain type and a static shape."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from einnet.api.certificate import Certificate
from einnet.api.optimize import TOLERANCE, Optimization
from einnet.api.pipeline import Outcome
from einnet.api.profile import cost_model
from einnet.api.report import head
from einnet.api.settings import Settings
from einnet.errors import BackendError, ModelError
from einnet.graph.onnx_read import serialised
from einnet.graph.program import Program


def keep_whole(model: Any, settings: Settings, reason: str, started: float) -> Optimization:
    """The model as ONNX Runtime runs it, in the form of a result; `reason` says why nothing was derived.

    Raises ModelError for a model that ONNX Runtime does not take either, or one that has more than 2 GB.
    """
    from einnet.runtime.whole import Whole

    assert settings.threads is not None
    title = Path(model).stem if isinstance(model, (str, Path)) else model.graph.name or "model"
    data = serialised(model)
    if data is None:
        raise ModelError(f"{reason}; such a model has to be kept whole, and it has more than 2 GB")
    try:
        executable = Whole(data, settings.threads, title)
    except BackendError as error:
        raise ModelError(f"{reason}; {str(error).splitlines()[0]}") from error
    program = Program((), (), (), title=title)
    seconds = time.monotonic() - started
    outcome = Outcome(program, [], seconds=seconds, notes=[f"kept whole, ONNX Runtime runs it: {reason}"])
    name = str(model) if isinstance(model, (str, Path)) else title
    return Optimization(program, outcome, executable, Certificate(()), report(name, settings, outcome, reason), settings)


def report(name: str, settings: Settings, outcome: Outcome, reason: str) -> dict[str, Any]:
    """The report of a model that was kept: nothing was measured, nothing can differ."""
    times = dict.fromkeys(("original_ms", "onnxruntime_ms", "optimized_ms"))
    return {
        **head(name, settings),
        "runs": "whole model",
        "kept_whole": reason,
        "subprograms": [],
        "totals": {**times, "speedup": 1.0, "speedup_over_original": 1.0, "noise": 0.0, "search_s": 0.0, "total_s": outcome.seconds, "states": 0},
        "spread_ms": times,
        "certificate": {"derivations": 0, "steps": 0, "methods": {}},
        "verification": {"max_abs": 0.0, "max_rel": 0.0, "tolerance": TOLERANCE[settings.allow], "outputs": {}, "passed": True, "bound": 0.0},
        "kernels": [],
        "cost_model": cost_model(()),
        "notes": outcome.notes,
    }
