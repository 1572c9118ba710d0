"""Optimizations on disk: what `Optimization.save` writes and `einnet.load` reads.

Beside the program, the file holds the report, every derivation that the program stands on as `.ein` text, and how each step was proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.inputs import gather_inputs
from einnet.errors import ArtifactError
from einnet.evidence.pages.report_page import program_fragment
from einnet.evidence.pages.story import Proven, Reasons, story
from einnet.evidence.pages.story_schema import Story
from einnet.evidence.report.schema import Report
from einnet.evidence.running import OnProcessor
from einnet.evidence.stored_proofs import Considered, Metadata, Written, considered_of, metadata_of, recorded_certificate
from einnet.instantiate.kernels import OpaqueCall
from einnet.records import Record, read
from einnet.runtime import artifact
from einnet.runtime.cpu.program import Executable
from einnet.runtime.sealed import reading
from einnet.runtime.whole import Whole

if TYPE_CHECKING:
    from einnet.derivation.steps import Derivation
    from einnet.evidence.certificate import Certificate
    from einnet.evidence.lift import Lifting
    from einnet.evidence.numbers import Observed
    from einnet.evidence.running import OnProcessor
    from einnet.instantiate.kernels import Plan

Array = np.ndarray[Any, np.dtype[Any]]


def load(path: str | Path) -> StoredProgram:
    """Read a program for one size. Raises ArtifactError as `load` does, and for one that serves a range of sizes."""
    loaded = artifact.load(path)
    told = metadata_of(Path(path), loaded.metadata)
    if told.report is None or told.certificate is None or told.considered is None:
        raise ArtifactError(f"{path} holds a program but no report of an optimization")
    return StoredProgram(Path(path), loaded)


class ChangedRow(Record):
    """A subprogram that was changed or not."""

    key: str
    changed: bool


class Brief(Record):
    """As much of a report as running a program needs, which does not depend on the rest."""

    model: str = "a program"
    kept_whole: str | None = None
    subprograms: list[ChangedRow] | None = None


class StoredProgram:
    """An optimized program from disk. Call it as an `Optimization` is called; it is bound to memory on the first call."""

    def __init__(self, path: Path, loaded: artifact.Loaded) -> None:
        self.path, self.loaded = path, loaded

    def __repr__(self) -> str:
        return f"<{self.path}: {self.brief.model}, {len(self.loaded.plan.kernels)} kernels>"

    def _repr_html_(self) -> str:
        """The report of its making, for a notebook."""
        return program_fragment(self.record, self.story())

    @property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it."""
        return dict(self.told.report or {})

    @property
    def told(self) -> Metadata:
        """What it tells of its making."""
        return metadata_of(self.path, self.loaded.metadata)

    @cached_property
    def record(self) -> Report:
        """The report with its types. Raises ArtifactError for one that is none."""
        with reading(self.path):
            return read(Report, self.report)

    @cached_property
    def brief(self) -> Brief:
        """What of the report running it needs. Raises ArtifactError where that is none."""
        with reading(self.path):
            return read(Brief, self.report)

    def story(self, considered: Iterable[tuple[int, Proven]] = (), reasons: Reasons | None = None) -> Story:
        """The report, joined with the derivations."""
        return story(self.record, self.certificate.entries, considered, reasons)

    @cached_property
    def certificate(self) -> Certificate:
        """The derivations, and how each step was proven when the program was made. `einnet.evidence.audit` proves them again."""
        return recorded_certificate(self.path, self.loaded.derivations, self.told.certificate or ())

    @cached_property
    def considered(self) -> list[Considered]:
        """The derivations of the candidates that the report tells of and that do not run. They have not been checked."""
        return considered_of(self.path, self.loaded.derivations, self.told)

    @property
    def derivations(self) -> list[Derivation]:
        """The derivation of every distinct subprogram that was changed."""
        changed = {s.key for s in self.brief.subprograms or () if s.changed}
        return [e.derivation for e in self.certificate.entries if e.key in changed]

    @cached_property
    def executable(self) -> Executable | Whole:
        """The program bound to memory. Raises ArtifactError where neither the stored code fits this machine nor TVM can build it again."""
        if self.brief.kept_whole:
            (call, *rest) = self.loaded.plan.kernels or (None,)
            if not isinstance(call, OpaqueCall) or rest:
                raise ArtifactError(f"{self.path} holds a program that is to be run by ONNX Runtime as a whole, but no model")
            return Whole(call.model, self.loaded.threads, call.origin)
        return self.loaded.executable()

    @property
    def threads(self) -> int:
        """How many it runs on, and ONNX Runtime beside it."""
        return self.loaded.threads

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.loaded.plan

    @property
    def written(self) -> Written | None:
        """What it tells of the kernels of which the model that it hands to ONNX Runtime was written."""
        return self.told.written

    @property
    def vendor(self) -> str:
        """What is trusted to compute what it says."""
        return "oneDNN"

    @property
    def runner(self) -> OnProcessor:
        """Runs its kernels one by one."""
        assert isinstance(self.executable, Executable)
        return OnProcessor(self.executable)

    def observing(self, lifting: Lifting) -> Observed:
        """Runs it and tells what it held of the tensors of the model that were lifted."""
        places = {name: lifted.place for name, lifted in lifting.found.items() if lifted.place is not None}
        return self.runner.observing(places)

    def overlaps(self) -> list[str]:
        """What lies in one place of memory at one time: nothing, as places are made when it is loaded."""
        return []

    def tried(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
        """Outputs by name, and in words what ran the program."""
        return self(inputs), "the processor"

    def execute(self, plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run another plan once, where this program runs."""
        return Executable(plan, self.threads)(dict(inputs))

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order."""
        if self.brief.kept_whole:
            assert isinstance(self.executable, Whole)
            return self.executable.signature
        types = {b.name: b.dtype for b in self.loaded.plan.buffers}
        return {name: (types[view.buffer], view.shape) for name, view in self.loaded.plan.inputs}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""
        return tuple(self.executable.output_names)

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Outputs by name, for a mapping of input names to arrays or for the arrays in the model's order.

        Raises UsageError for wrong names, shapes or types.
        """
        return self.executable(gather_inputs(self.executable.input_names, args, inputs))
