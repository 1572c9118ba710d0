"""`--target onnx`: what was chosen by times in ONNX Runtime, as an ONNX model, verified and timed there; the original where it is not faster."""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from einnet.api.certificate import certify
from einnet.api.compared import not_compared
from einnet.api.decide import NOISE
from einnet.api.onnx_out import Comparison, exported, in_turn
from einnet.api.onnx_pick import pick
from einnet.api.pipeline import Outcome
from einnet.api.report import build_report
from einnet.api.restrain import restrain
from einnet.api.schedule import Schedule
from einnet.api.settings import Settings
from einnet.api.sound import keep_proven
from einnet.api.verify import Array, Trial, compare_outputs
from einnet.api.whole import whole_model
from einnet.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from einnet.api.optimize import Optimization
    from einnet.runtime.costs import CpuCost

PICKING = 0.6
"""Share of the time that is left after the search in which derived subprograms are tried in the whole model."""

NOT_DERIVED = "the original model is written: "


def finish_onnx(model: Any, outcome: Outcome, settings: Settings, cost: CpuCost, schedule: Schedule, trial: Trial) -> Optimization:
    """Write what was chosen as a model, prove it, verify and time it beside the original in ONNX Runtime; keep the faster of the two.

    Raises ModelError for a model of more than 2 GB, which no program can hold.
    """
    from einnet.api.optimize import TOLERANCE, Optimization, exceeded, tell
    from einnet.graph.onnx_read import runnable
    from einnet.runtime.cpu.program import Executable

    keep_proven(outcome, settings)
    if settings.memory_limit is not None:
        restrain(outcome, settings.memory_limit)
    tell(settings, "verify and time", schedule.started)
    plan = outcome.plan()
    inputs = trial.inputs
    tolerance = TOLERANCE[settings.allow]
    if not outcome.interrupted:
        write = partial(attempted, outcome, model, settings)

        def race(one: bytes | str, other: bytes | str, seconds: float) -> Mapping[str, Any]:
            return in_turn(one, other, inputs, trial.threads, seconds, trial.peak)

        pick(outcome, trial.model, write, race, PICKING * max(schedule.end - time.monotonic(), 0.0), schedule.race_s)
    written = attempt(outcome, model, settings)
    runs = runnable(written) if written else trial.model
    verification = not_compared(tolerance, "the original model is what runs")
    times = in_turn(trial.model, runs, inputs, trial.threads, schedule.timing_s(inf if outcome.interrupted else time.monotonic()), trial.peak)
    if written:
        found = compare_outputs(outputs(runs, inputs, trial.threads), trial.expected, tolerance)
        why = "the derived one failed verification" if not found["passed"] else "nothing that was derived gained beyond noise"
        if found["passed"] and faster(times):
            verification = found
        else:
            outcome.notes.append(NOT_DERIVED + why)
            written = None
    if written is None:
        outcome.keep_original()
        outcome.whole = True
        times = {**times, "optimized": times["onnxruntime"]}
    whole = whole_model(written or model, plan, trial.order)
    if whole is None:
        raise ModelError(f"{outcome.program.title}: --target onnx takes models of less than 2 GB; -o OUT.onnx without it writes larger ones")
    executable, certificate = Executable(whole, settings.threads), certify(outcome)
    peaks = {"original": None, "optimized": executable.nbytes, "onnxruntime": trial.peak}
    used = time.monotonic() - schedule.started
    outcome.notes += exceeded(used, settings)
    report = build_report(model, outcome.program, outcome, settings, times, verification, certificate, (), peaks, used)
    report["onnx_out"] = Comparison(verification, 1e3 * times["onnxruntime"].median, 1e3 * times["optimized"].median).as_dict()
    return Optimization(outcome.program, outcome, executable, certificate, report, settings, model)


def attempt(outcome: Outcome, model: Any, settings: Settings) -> onnx.ModelProto | None:
    """The derived program as a model; None, with a note, where nothing was derived or it cannot be written."""
    if not any(r.changed for r in outcome.results):
        outcome.notes.append(NOT_DERIVED + "nothing that was derived is faster")
        return None
    try:
        return exported(outcome, model, settings.shapes)
    except UsageError as error:
        outcome.notes.append(f"{NOT_DERIVED}{error}")
        return None


def attempted(outcome: Outcome, model: Any, settings: Settings) -> bytes | str | None:
    """The derived program as ONNX Runtime takes it; None where it cannot be written."""
    from einnet.graph.onnx_read import runnable

    written = attempt(outcome, model, settings)
    return runnable(written) if written else None


def outputs(model: bytes | str, inputs: Mapping[str, Array], threads: int) -> dict[str, Array]:
    """What ONNX Runtime computes."""
    from einnet.runtime.ort import Session

    return Session(model, threads, title="the written model")(inputs)


def faster(times: Mapping[str, Any]) -> bool:
    """The written model is faster than the original beyond noise."""
    return bool(times["rounds"].faster("optimized", "onnxruntime", NOISE))
