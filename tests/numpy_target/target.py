"""What the pipeline asks of a target: reading, costs, finishing, a report, storing."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from einnet.compile.run import Made, Run
from einnet.compile.target import Optimization
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.report.assemble import unmeasured
from einnet.evidence.report.plain import plain
from einnet.evidence.report.schema import Report
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels import Kernel
from einnet.runtime.cpu.roofline import flops, moved
from einnet.runtime.cpu.threads import resolve_threads
from einnet.runtime.sealed import write_sealed
from einnet.runtime.serial import plan_json
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from tests.numpy_target.program import NumpyProgram

CALL_S, OPERATION_S, BYTE_S = 1e-5, 1e-9, 1e-9
"""Seconds of a call of numpy, of an operation, and of a byte that moves: guesses, as good as any for an example."""


class Counted:
    """Seconds of kernels by what they compute and move; nothing is measured."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [CALL_S + OPERATION_S * flops(k) + BYTE_S * moved(k) for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return list(self.estimates(kernels))


@dataclass
class NumpyTarget:
    """numpy on this processor."""

    settings: Settings
    result = Optimization
    counted = True
    cost = Counted()

    def read(self, model: Any) -> Program:
        return prepare(load(model, shapes=self.settings.shapes or None), permuted=False)

    def otherwise(self, reason: str) -> None:
        """A model that is no program is an error."""

    def history(self) -> None:
        """Nothing is remembered."""

    def finish(self, run: Run, outcome: Outcome) -> Made:
        program = NumpyProgram(outcome.plan())
        found = compare_outputs(program(run.trial.inputs), run.trial.expected, self.settings.tolerance)
        return Made(outcome, program, found)

    def report(self, run: Run, made: Made, certificate: Certificate) -> Report:
        return unmeasured(run.model, run.program, made.outcome, self.settings, made.verification, certificate, run.used)

    def store(self, optimization: Optimization, path: Path) -> None:
        program = optimization.executable
        assert isinstance(program, NumpyProgram)
        models: list[bytes] = []

        def blob(model: bytes) -> int:
            models.append(model)
            return len(models) - 1

        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            manifest = {"numpy": 1, "plan": plan_json(program.plan, blob), "report": plain(optimization.report)}
            archive.writestr("manifest.json", json.dumps(manifest))
            for n, model in enumerate(models):
                archive.writestr(f"models/{n}", model)
            with archive.open("constants.npz", "w") as file:
                np.savez(file, **{name: np.asarray(values) for name, values in program.plan.constants.items()})
        write_sealed(path, buffer.getbuffer())


def target(settings: Settings, profile: object = None, math: object = None) -> NumpyTarget:
    """The target of these settings."""
    assert profile is None and math is None
    return NumpyTarget(replace(settings, threads=resolve_threads(settings.threads)))
