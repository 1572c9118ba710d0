"""What a program can be made for, as the pipeline sees it, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from einnet.compile.inputs import gather_inputs
from einnet.compile.program_search import Known
from einnet.compile.run import Made, Run, Runnable
from einnet.compile.subprogram_search import Cost
from einnet.derivation.steps import Derivation
from einnet.errors import UsageError
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.verdicts import refuse_failed
from einnet.evidence.pages.report_page import program_fragment, report_page
from einnet.evidence.pages.story import story
from einnet.evidence.pages.verdict import verdict
from einnet.evidence.report.card_schema import AnyReport
from einnet.evidence.report.schema import Report
from einnet.graph.program import Program
from einnet.records import as_json
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings

Array = np.ndarray[Any, np.dtype[Any]]

M = TypeVar("M", bound=Made)


class Target(Protocol[M]):
    """What a program is made for. The pipeline asks for these in their order; `load`, which needs no settings, is a function of its package."""

    @property
    def settings(self) -> Settings:
        """What was asked for, the number of threads included."""

    @property
    def result(self) -> type[Optimization]:
        """The class of what `einnet.optimize` returns."""

    @property
    def counted(self) -> bool:
        """Seconds of the search are counted in states."""

    def read(self, model: Any) -> Program:
        """The model as a program, prepared for the search. Raises ModelError; NotStaticError where it can be run, but not as expressions."""

    def otherwise(self, reason: str) -> Target[Any] | None:
        """What a model is made for instead where that cannot be done, for this reason; None where that is an error."""

    @property
    def cost(self) -> Cost:
        """Seconds of kernels."""

    def history(self) -> Known | None:
        """What earlier runs have found, and where is kept what this one finds; None where each run begins anew."""

    def finish(self, run: Run, outcome: Outcome) -> M:
        """Compile what was chosen, verify it, and choose among whole programs. Raises BackendError where nothing can be made."""

    def report(self, run: Run, made: M, certificate: Certificate) -> AnyReport:
        """What was decided and measured."""

    def store(self, optimization: Optimization, path: Path) -> None:
        """Write a program with its report and derivations, whole or not at all. Raises ArtifactError."""


@dataclass
class Optimization:
    """What `optimize` found.

    Call it with a mapping of input names to arrays, or with the arrays in the model's order, to run the optimized program; `save` writes it as
    an artifact that `einnet.load` and `einnet run` take.
    """

    outcome: Outcome
    executable: Runnable
    certificate: Certificate
    record: AnyReport
    """What was decided and measured; `report` is the same as JSON."""
    target: Target[Any]
    model: Any = None
    """What was optimized, as it was given."""

    @property
    def settings(self) -> Settings:
        """What was asked for."""
        return self.target.settings

    @property
    def derivations(self) -> list[Derivation]:
        """The derivation of every distinct subprogram that was changed."""
        return [alike[0].candidate.form.derivation for alike in self.outcome.changed.values()]

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Run the optimized program: outputs by name. Raises UsageError for wrong names, shapes or types."""
        return self.executable(gather_inputs(self.executable.input_names, args, inputs))

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was decided and measured, as `--json` writes it."""
        found: dict[str, Any] = as_json(self.record)
        return found

    @property
    def timed(self) -> Report:
        """The report of a program that can be timed here. Raises UsageError for one for a card."""
        if not isinstance(self.record, Report):
            raise UsageError("a program for a card has no measured times: save it, and einnet.load shows what it is made of")
        return self.record

    def html(self) -> str:
        """The report as one HTML page: what changed, times, kernels under the roofline, errors, derivations."""
        return report_page(self.timed, story(self.timed, self.certificate.entries))

    def __repr__(self) -> str:
        time = self.timed.totals.optimized_ms
        return f"<{self.timed.model}:{'' if time is None else f' {time:.3g} ms,'} {verdict(self.timed)}>"

    def _repr_html_(self) -> str:
        return program_fragment(self.timed, story(self.timed, self.certificate.entries))

    def save(self, path: str | Path) -> Path:
        """Write the artifact, or for a name that ends in .onnx a standard ONNX model, whole or not at all.

        Raises ArtifactError where the path cannot be written, and for a program that failed its verification or a model that ONNX Runtime cannot run.
        """
        refuse_failed(path, self.record.verification)
        self.target.store(self, Path(path))
        return Path(path)
