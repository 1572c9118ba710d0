"""Models that are kept whole: valid ones whose values are not all tensors of a plain type and a static shape."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.api.certificate import Certificate
from einnet.api.compared import failed, model_digest, not_compared
from einnet.api.optimize import TOLERANCE, Optimization
from einnet.api.pipeline import Outcome
from einnet.api.profile import cost_model
from einnet.api.report import head
from einnet.api.settings import Settings
from einnet.api.verify import random_values
from einnet.errors import BackendError, ModelError, UsageError
from einnet.graph.onnx_read import serialised
from einnet.graph.program import Program

if TYPE_CHECKING:
    from einnet.runtime.whole import Whole


def keep_whole(model: Any, settings: Settings, reason: str, started: float) -> Optimization:
    """The model as ONNX Runtime runs it, in the form of a result; `reason` says why nothing was derived.

    Raises ModelError for a model that ONNX Runtime does not take or cannot run either, or one that has more than 2 GB.
    """
    from einnet.runtime.whole import Whole

    assert settings.threads is not None
    title = Path(model).stem if isinstance(model, (str, Path)) else model.graph.name or "model"
    data = serialised(model)
    if data is None:
        raise ModelError(f"{reason}; such a model has to be kept whole, and it has more than 2 GB")
    try:
        executable = Whole(data, settings.threads, title)
        unknown = run_once(executable, settings)
    except (BackendError, UsageError) as error:
        raise ModelError(f"{reason}; {str(error).splitlines()[0]}") from error
    program = Program((), (), (), title=title)
    seconds = time.monotonic() - started
    outcome = Outcome(program, [], seconds=seconds, notes=[f"kept whole, ONNX Runtime runs it: {reason}"])
    if unknown:
        outcome.notes.append(f"it was not run: input {unknown!r} is no tensor of a fixed shape, so that nothing can be drawn for it")
    name = str(model) if isinstance(model, (str, Path)) else title
    return Optimization(program, outcome, executable, Certificate(()), report(name, settings, outcome, reason, model_digest(model)), settings)


def kept_instead(result: Optimization, model: Any, settings: Settings, started: float) -> Optimization:
    """The result, or the model kept whole where the result does not give what the model gives, as far as that can be."""
    v = result.report["verification"]
    if not failed(v):
        return result
    differs = v.get("not_compared") or f"their error is {v['max_rel']:.2g} of max|y|"
    try:
        return keep_whole(model, settings, f"the model's own operators do not give its results: {differs}", started)
    except ModelError:
        return result


def run_once(executable: Whole, settings: Settings) -> str | None:
    """Run the model on random inputs; the name of an input that none can be drawn for, with which it is not run.

    Raises UsageError for a model that ONNX Runtime takes and cannot run.
    """
    given = executable.signature
    for argument in executable.session.inputs:
        shape = settings.shapes.get(argument.name) or given.get(argument.name, ("", (-1,)))[1]
        if argument.name not in given or not given[argument.name][0] or min(shape, default=0) < 0:
            return argument.name
        given[argument.name] = given[argument.name][0], tuple(shape)
    executable(random_values([(name, shape, dtype) for name, (dtype, shape) in given.items()], settings.seed))
    return None


def report(name: str, settings: Settings, outcome: Outcome, reason: str, digest: str | None) -> dict[str, Any]:
    """The report of a model that was kept: nothing was measured, and nothing compared, as ONNX Runtime runs it here and there."""
    times = dict.fromkeys(("original_ms", "onnxruntime_ms", "optimized_ms"))
    return {
        **head(name, settings),
        "digest": digest,
        "runs": "whole model",
        "kept_whole": reason,
        "subprograms": [],
        "totals": {**times, "speedup": None, "speedup_over_original": None, "noise": 0.0, "search_s": 0.0, "total_s": outcome.seconds, "states": 0},
        "spread_ms": times,
        "certificate": {"derivations": 0, "steps": 0, "methods": {}},
        "verification": {**not_compared(TOLERANCE[settings.allow], "ONNX Runtime runs the model itself"), "bound": 0.0},
        "kernels": [],
        "cost_model": cost_model(()),
        "notes": outcome.notes,
    }
