"""Optimizations on disk: what `Optimization.save` writes and `einnet.load` reads.

Beside the program, the file holds the report, every derivation that the program stands on as `.ein` text, and how each step was proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.inputs import gather_inputs
from einnet.errors import ArtifactError
from einnet.evidence.pages.proof_text import story
from einnet.evidence.pages.report_page import program_fragment
from einnet.evidence.running import OnProcessor
from einnet.evidence.stored_proofs import Considered, considered_of, recorded_certificate
from einnet.instantiate.kernels import OpaqueCall
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
    kinds = {"report": dict, "certificate": list, "considered": list}
    if not all(isinstance(loaded.metadata.get(name), kind) for name, kind in kinds.items()):
        raise ArtifactError(f"{path} holds a program but no report of an optimization")
    return StoredProgram(Path(path), loaded)


class StoredProgram:
    """An optimized program from disk. Call it as an `Optimization` is called; it is bound to memory on the first call."""

    def __init__(self, path: Path, loaded: artifact.Loaded) -> None:
        self.path, self.loaded = path, loaded

    def __repr__(self) -> str:
        return f"<{self.path}: {self.report.get('model', 'a program')}, {len(self.loaded.plan.kernels)} kernels>"

    def _repr_html_(self) -> str:
        """The report of its making, for a notebook."""
        return program_fragment(self.report, story(self.report, self.certificate.entries))

    @property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it."""
        return dict(self.loaded.metadata["report"])

    @cached_property
    def certificate(self) -> Certificate:
        """The derivations, and how each step was proven when the program was made. `einnet.evidence.audit` proves them again."""
        return recorded_certificate(self.path, self.loaded.derivations, self.loaded.metadata["certificate"])

    @cached_property
    def considered(self) -> list[Considered]:
        """The derivations of the candidates that the report tells of and that do not run. They have not been checked."""
        return considered_of(self.path, self.loaded.derivations, self.loaded.metadata)

    @property
    def derivations(self) -> list[Derivation]:
        """The derivation of every distinct subprogram that was changed."""
        with reading(self.path):
            changed = {s["key"] for s in self.report["subprograms"] if s["changed"]}
        return [e.derivation for e in self.certificate.entries if e.key in changed]

    @cached_property
    def executable(self) -> Executable | Whole:
        """The program bound to memory. Raises ArtifactError where neither the stored code fits this machine nor TVM can build it again."""
        if self.report.get("kept_whole"):
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
    def written(self) -> dict[str, Any] | None:
        """What it tells of the kernels of which the model that it hands to ONNX Runtime was written."""
        return self.loaded.metadata.get("written")

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
    def card(self) -> dict[str, Any]:
        """Nothing: its report tells all that there is."""
        return {}

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order."""
        if self.report.get("kept_whole"):
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
