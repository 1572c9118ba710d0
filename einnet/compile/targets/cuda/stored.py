"""Programs for a CUDA device on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.inputs import gather_inputs
from einnet.compile.targets.cuda.launches import steps
from einnet.evidence.pages.card import program_html
from einnet.evidence.pages.report_page import fragment
from einnet.evidence.pages.story import Proven, Reasons, card_story
from einnet.evidence.pages.story_schema import CardStory
from einnet.evidence.report.card_schema import CudaReport
from einnet.evidence.running import OnHost, overlaps, plan_of
from einnet.evidence.stored_proofs import Considered, considered_of, metadata_of, recorded_certificate
from einnet.records import read
from einnet.runtime.cpu.threads import resolve_threads
from einnet.runtime.cuda.archive import read as read_program
from einnet.runtime.cuda.archive import write
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.driver import on_card
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.parts import missing
from einnet.runtime.sealed import reading

if TYPE_CHECKING:
    from einnet.evidence.certificate import Certificate
    from einnet.evidence.lift import Lifting
    from einnet.evidence.numbers import Observed
    from einnet.evidence.running import OnHost
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.cuda.device import Device

Array = np.ndarray[Any, np.dtype[Any]]

ON_HOST = "the processor, by the host driver: not on a card"


class StoredCuda:
    """A program for a CUDA device from disk. Call it as an `Optimization` is called; it is bound to the device on the first call.

    `math` is that of products which the program was not made in an arithmetic for: fp32, which uses no tensor cores, or tf32.
    """

    def __init__(self, path: Path, math: str = "fp32") -> None:
        self.path, self.math = path, math
        self.kept = read_program(path)
        self.told = metadata_of(path, self.kept.metadata)
        self.program, self.tunings = self.kept.program, self.kept.tunings

    def __repr__(self) -> str:
        return f"<{self.path}: a program for a CUDA device, {self.program.launches} launches>"

    def _repr_html_(self) -> str:
        """Its steps and derivations, for a notebook; without a report of its making, its name alone."""
        from html import escape


        if not self.report:
            return escape(repr(self))
        return fragment(program_html(self.story()))

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order."""
        return {name: (self.program.places[view.buffer].dtype, view.shape) for name, view in self.program.inputs}

    @property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it; empty for a program that was stored without."""
        return dict(self.told.report or {})

    @cached_property
    def record(self) -> CudaReport:
        """The same with its types. Raises ArtifactError for a program that was stored without."""
        with reading(self.path):
            return read(CudaReport, self.report)

    def story(self, considered: Iterable[tuple[int, Proven]] = (), reasons: Reasons | None = None) -> CardStory:
        """The report with the program's steps (see `launches`), joined with the derivations."""
        with reading(self.path):
            table = steps(self.program, self.tunings, self.record.kernels)
        return card_story(self.record, table, self.certificate.entries, considered, reasons)

    @cached_property
    def certificate(self) -> Certificate:
        """The derivations, and how each step was proven when the program was made. `einnet.evidence.audit` proves them again."""
        return recorded_certificate(self.path, self.kept.derivations, self.told.certificate or ())

    @cached_property
    def considered(self) -> list[Considered]:
        """The derivations of the candidates that the report tells of and that do not run. They have not been checked."""
        return considered_of(self.path, self.kept.derivations, self.told)

    written = None
    """No model is written for a card."""

    @cached_property
    def plan(self) -> Plan:
        """What runs, without where in memory it lies."""
        return plan_of(self.program)

    @property
    def vendor(self) -> str:
        """What is trusted to compute what it says."""
        text = "" if self.runner.runs_text else "; all generated CUDA text, which no C++ compiler is here to run"
        return f"cuBLASLt and cuDNN, for which numpy stood in{text}"

    @cached_property
    def runner(self) -> OnHost:
        """Runs its kernels one by one, by the host driver."""
        return OnHost(self.program)

    def observing(self, lifting: Lifting) -> Observed:
        """Runs it by the host driver and tells what it held of the tensors of the model that were lifted."""
        places = {name: (lifted.place, lifted.last) for name, lifted in lifting.found.items() if lifted.place is not None}
        return lambda inputs: self.runner.observed(inputs, places)

    def overlaps(self) -> list[str]:
        """What lies in one place of the device's memory while both are needed."""
        return overlaps(self.program)

    @property
    def threads(self) -> int:
        """What ONNX Runtime uses beside it."""
        return resolve_threads(None)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""
        return tuple(name for name, _ in self.program.outputs)

    @cached_property
    def device(self) -> Device:
        """The program on the current device. Raises BackendError that says what is missing."""
        return Device(self.program, self.math, next((t for t in self.tunings if t.math == self.math), None))

    def keep_tuning(self) -> None:
        """Write the algorithms that were chosen on this device into the file, for the next run. Raises ArtifactError."""
        others = tuple(t for t in self.tunings if t.math != self.math)
        write(self.path, replace(self.kept, tunings=(*others, self.device.tuning)))

    def tried(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
        """Outputs by name, and in words what ran the program: the card, or where there is none this machine's processor."""
        if missing():
            return self.on_host(inputs), ON_HOST
        return self(inputs), f"{self.device.driver.properties()['name']} ({self.math})"

    def execute(self, plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run another plan once, where `tried` runs this program."""
        program = lower(plan)
        return (Host(program) if missing() else Device(program, self.math))(dict(inputs))

    def on_host(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """The same on the CPU, slowly: a test of the program."""
        return Host(self.program)(gather_inputs(list(self.inputs), args, inputs))

    def tensors(self) -> dict[str, Any]:
        """Inputs and outputs by name as arrays of CuPy in the program's memory on the card, for callers that write and read them there."""
        return self.device.tensors()

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """Outputs by name: numpy arrays for numpy arrays; for tensors on the card, of CuPy, torch or any library with DLPack, tensors of the same
        library on the card, which hold until the next call (see `Device.on_card`).

        Raises UsageError for wrong names, shapes or types, BackendError without a device.
        """
        given = gather_inputs(list(self.inputs), args, inputs)
        return self.device.on_card(given) if any(map(on_card, given.values())) else self.device(given)


def load(path: Path) -> StoredCuda:
    """Read a program for a CUDA device. Raises ArtifactError for a file that is missing, damaged or no program."""
    return StoredCuda(path)
