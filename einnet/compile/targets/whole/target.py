"""Models that are kept whole: valid ones whose values are not all tensors of a plain type and a static shape, and those that nothing else gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einnet.compile.export.onnx_file import SUFFIX, write
from einnet.compile.run import Made, Run
from einnet.compile.target import Optimization
from einnet.compile.targets.processor import store
from einnet.errors import BackendError, ModelError, UsageError
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.draws import first_of
from einnet.evidence.comparison.verdicts import not_compared
from einnet.evidence.report.assemble import unmeasured
from einnet.evidence.report.schema import Report
from einnet.graph.onnx.read import kept
from einnet.graph.program import Program
from einnet.instantiate.kernels import Kernel
from einnet.records import changed
from einnet.runtime.whole import Whole
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings


class Nothing:
    """The costs of no kernels."""

    def estimates(self, kernels: Sequence[Kernel]) -> Sequence[float]:
        return [0.0 for _ in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> Sequence[float | None]:
        return [None for _ in kernels]


@dataclass
class WholeTarget:
    """ONNX Runtime with the model as it is; `reason` says why nothing is derived."""

    settings: Settings
    reason: str
    result = Optimization
    counted = False
    cost = Nothing()

    def read(self, model: Any) -> Program:
        """A program without nodes that has the model's name."""
        return Program((), (), (), title=Path(model).stem if isinstance(model, (str, Path)) else model.graph.name or "model")

    def otherwise(self, reason: str) -> None:
        """Nothing."""

    def history(self) -> None:
        """Nothing."""

    def finish(self, run: Run, outcome: Outcome) -> Made:
        """Run the model once.

        Raises ModelError for a model that ONNX Runtime does not take or cannot run either, or one that has more than 2 GB.
        """
        assert self.settings.threads is not None
        data = kept(run.model)
        if data is None:
            raise ModelError(f"{self.reason}; such a model has to be kept whole, and it has more than 2 GB")
        try:
            executable = Whole(data, self.settings.threads, outcome.program.title)
            unknown = run_once(executable, self.settings)
        except (BackendError, UsageError) as error:
            raise ModelError(f"{self.reason}; {str(error).splitlines()[0]}") from error
        outcome = outcome.noting(f"kept whole, ONNX Runtime runs it: {self.reason}")
        if unknown:
            outcome = outcome.noting(f"it was not run: {unknown}; --shape gives the sizes of inputs")
        return Made(outcome, executable, not_compared(self.settings.tolerance, "ONNX Runtime runs the model itself"))

    def report(self, run: Run, made: Made, certificate: Certificate) -> Report:
        """Nothing was measured, and nothing compared, as ONNX Runtime runs it here and there."""
        report = unmeasured(run.model, run.program, made.outcome, self.settings, made.verification, certificate, run.used)
        spread = dict.fromkeys(("original_ms", "onnxruntime_ms", "optimized_ms"))
        return changed(report, kept_whole=self.reason, runs="whole model", spread_ms=spread)

    def store(self, optimization: Optimization, path: Path) -> None:
        """A program that holds the model, or by its suffix the model. Raises ArtifactError."""
        (write if path.suffix == SUFFIX else store)(optimization, path)


DRAWN = (2, 1, 8, 32)
"""Sizes at which a model is run whose inputs have none, all of them alike, one after the other until one is taken."""


def run_once(executable: Whole, settings: Settings) -> str | None:
    """Run the model on random inputs, at drawn sizes where it has none of its own; why it is not run, where nothing can be drawn or no size is taken.

    Raises UsageError for a model of known sizes that ONNX Runtime takes and cannot run.
    """
    given = executable.signature
    for argument in executable.session.inputs:
        if argument.name not in given or not given[argument.name][0]:
            return f"input {argument.name!r} is no tensor of a type that can be drawn"
    shapes = {name: tuple(settings.shapes.get(name) or shape) for name, (_, shape) in given.items()}
    free = [name for name, shape in shapes.items() if min(shape, default=0) < 0]
    for size in DRAWN if free else DRAWN[:1]:
        drawn = [(name, tuple(size if n < 0 else n for n in shapes[name]), dtype) for name, (dtype, _) in given.items()]
        try:
            executable(first_of(settings.inputs, drawn, settings.seed, executable.session.title)[0])
        except (BackendError, UsageError):
            if not free:
                raise
        else:
            return None
    return f"input {free[0]!r} has no fixed shape, and ONNX Runtime takes none of those that were drawn"
