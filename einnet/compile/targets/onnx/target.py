"""ONNX models: what was chosen by times in ONNX Runtime, verified and timed there; the original where it is not faster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import onnx

from einnet.compile.export.onnx_file import SUFFIX, comparison, exported, in_turn, kernels_told, write
from einnet.compile.export.region import not_written
from einnet.compile.history import Memory
from einnet.compile.memory_limit import restrain
from einnet.compile.run import Run
from einnet.compile.target import Optimization
from einnet.compile.targets.onnx.pick import pick
from einnet.compile.targets.processor import Timed, resolved, store, timed_report
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.compile.targets.whole.target import WholeTarget
from einnet.errors import ModelError, UsageError
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.verdicts import not_compared
from einnet.evidence.comparison.verify import NOISE, Array, compare_outputs
from einnet.evidence.report.schema import Report, Verification
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.read import runnable
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.runtime.cpu.program import Executable
from einnet.runtime.onnx.costs import OnnxCost
from einnet.runtime.ort import Session
from einnet.search.outcome import Outcome, is_constant
from einnet.search.settings import Settings
from einnet.search.time_shares import PICKING_SHARE

NOT_DERIVED = "the original model is written: "


@dataclass
class OnnxTarget:
    """ONNX Runtime on this processor, by a model that is written for it."""

    settings: Settings
    result = Optimization
    counted = False

    def read(self, model: Any) -> Program:
        """The model, its data in its own order."""
        return prepare(load(model, shapes=self.settings.shapes or None), permuted=False, finite=self.settings.settles)

    def otherwise(self, reason: str) -> WholeTarget:
        """The model as it is."""
        return WholeTarget(self.settings, reason)

    @cached_property
    def cost(self) -> OnnxCost:
        """Seconds of nodes in ONNX Runtime."""
        assert self.settings.threads is not None
        return OnnxCost(self.settings.threads, constant=is_constant, cpu=self.settings.cpu)

    def history(self) -> Memory:
        """The profile database."""
        return Memory(self.cost.database, self.settings, self.cost.place())

    def finish(self, run: Run, outcome: Outcome) -> Timed:
        """Write what was chosen as a model, verify and time it beside the original in ONNX Runtime; keep the faster of the two.

        Raises ModelError for a model of more than 2 GB, which no program can hold.
        """
        outcome = outcome.noting(*self.cost.notes())
        if self.settings.memory_limit is not None:
            outcome = restrain(outcome, self.settings.memory_limit)
        run.tell("verify and time")
        plan = outcome.plan()
        outcome = outcome if outcome.interrupted else self.picked(run, outcome)
        outcome, written = self.written(run, outcome)
        outcome, written, times, verification = self.faster(run, outcome, written)
        whole = whole_model(written or run.model, plan, run.trial.order)
        if whole is None:
            raise ModelError(f"{outcome.program.title}: --target onnx takes models of less than 2 GB; -o OUT.onnx without it writes larger ones")
        executable = Executable(whole, run.trial.threads)
        peaks = {"original": None, "optimized": executable.nbytes, "onnxruntime": run.trial.peak}
        return Timed(outcome, executable, verification, times, peaks, onnx_out=comparison(verification, times))

    def picked(self, run: Run, outcome: Outcome) -> Outcome:
        """The outcome with those subprograms alone that make the whole model faster."""

        def write(tried: Outcome) -> bytes | str | None:
            _, written = self.written(run, tried)
            return runnable(written) if written else None

        def race(one: bytes | str, other: bytes | str, seconds: float) -> Mapping[str, Any]:
            return in_turn(one, other, run.trial.inputs, run.trial.threads, seconds, run.trial.peak)

        seconds = PICKING_SHARE * max(run.schedule.end - time.monotonic(), 0.0)
        return pick(outcome, run.trial.model, write, race, seconds, run.schedule.race_s)

    def written(self, run: Run, outcome: Outcome) -> tuple[Outcome, onnx.ModelProto | None]:
        """The derived program as a model; None, with a note, where nothing was derived or it cannot be written."""
        if not outcome.changed:
            return outcome.noting(NOT_DERIVED + "nothing that was derived is faster"), None
        try:
            return outcome.noting(*not_written(outcome)), exported(outcome, run.model, self.settings.shapes)
        except UsageError as error:
            return outcome.noting(f"{NOT_DERIVED}{error}"), None

    def faster(
        self, run: Run, outcome: Outcome, written: onnx.ModelProto | None
    ) -> tuple[Outcome, onnx.ModelProto | None, Mapping[str, Any], Verification]:
        """The written model where it is right and faster, else None; times and verification of what runs."""
        trial, tolerance = run.trial, run.trial.stepped(self.settings.tolerance)
        runs = runnable(written) if written else trial.model
        seconds = run.schedule.timing_s(inf if outcome.interrupted else time.monotonic())
        times = in_turn(trial.model, runs, trial.inputs, trial.threads, seconds, trial.peak)
        if written:
            found = compare_outputs(outputs(runs, trial.inputs, trial.threads), trial.expected, tolerance)
            if found.passed and gains(times):
                return outcome, written, times, found
            why = "the derived one failed verification" if not found.passed else "nothing that was derived gained beyond noise"
            outcome = outcome.noting(NOT_DERIVED + why)
        verification = not_compared(tolerance, "the original model is what runs")
        return outcome.original().as_whole(), None, {**times, "optimized": times["onnxruntime"]}, verification

    def report(self, run: Run, made: Timed, certificate: Certificate) -> Report:
        """What was decided and measured."""
        return timed_report(run, made, certificate)

    def store(self, optimization: Optimization, path: Path) -> None:
        """An ONNX model, or by another suffix a program that holds it. Raises ArtifactError."""
        if path.suffix == SUFFIX:
            write(optimization, path)
        else:
            store(optimization, path, kernels_told(optimization))


def target(settings: Settings, profile: object = None, math: object = None) -> OnnxTarget:
    """The target of these settings. Raises UsageError for what describes a card."""
    return OnnxTarget(resolved(settings, profile, math))


def outputs(model: bytes | str, inputs: Mapping[str, Array], threads: int) -> dict[str, Array]:
    """What ONNX Runtime computes."""
    return Session(model, threads, title="the written model")(inputs)


def gains(times: Mapping[str, Any]) -> bool:
    """The written model is faster than the original beyond noise."""
    return bool(times["rounds"].faster("optimized", "onnxruntime", NOISE))
