"""Programs for a CUDA device, made without one: costs from a recorded profile or a data sheet, results checked on the host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from einnet.compile.budget import CountedClock, Schedule
from einnet.compile.pipeline import optimize
from einnet.compile.program_search import search
from einnet.compile.run import Made, Run
from einnet.compile.subprogram_search import Cost
from einnet.compile.target import Optimization
from einnet.compile.targets.cpu.reach import HEADROOM, leaves, narrow
from einnet.compile.targets.cuda.cuda_report import build_report, stored_report
from einnet.compile.targets.cuda.launches import steps
from einnet.compile.targets.cuda.layout import in_order
from einnet.compile.targets.cuda.lowering import Lowered, lowered
from einnet.errors import UsageError
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.pages.card import program_html
from einnet.evidence.pages.report_page import fragment, whole_page
from einnet.evidence.pages.story import card_story
from einnet.evidence.pages.story_schema import CardStory
from einnet.evidence.report.card_schema import CudaReport
from einnet.evidence.stored_proofs import metadata_json
from einnet.graph.onnx.importer import load
from einnet.graph.program import Program
from einnet.instantiate.kernels import Matmul
from einnet.instantiate.kernels.arithmetics import MATHS
from einnet.records import changed
from einnet.runtime.cpu.threads import asked_threads
from einnet.runtime.cuda.archive import Kept, write
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.profile import Profile, shipped
from einnet.runtime.cuda.profiling.profile import load as load_profile
from einnet.runtime.cuda.program import CudaProgram, Rounded
from einnet.search.outcome import Outcome, is_constant
from einnet.search.settings import Settings, rounded

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class OnCard:
    """A program for a card, which is bound to it when it is first called."""

    made: Lowered
    math: str

    @property
    def program(self) -> CudaProgram:
        """What runs."""
        return self.made.program

    @property
    def input_names(self) -> list[str]:
        """The model's inputs, in its order."""
        return [name for name, _ in self.program.inputs]

    @cached_property
    def _device(self) -> Device:
        return Device(self.program, self.math)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for wrong inputs, BackendError without a card."""
        return self._device(dict(inputs))


class CudaOptimization(Optimization):
    """What was found for a CUDA device. Times in the report are predictions, marked as what they are; nothing ran on a device."""

    record: CudaReport

    @property
    def program(self) -> CudaProgram:
        """What runs."""
        assert isinstance(self.executable, OnCard)
        return self.executable.program

    def __repr__(self) -> str:
        return f"<{self.record.model}: a program for a CUDA device, {self.program.launches} launches>"

    def html(self) -> str:
        """The report as one HTML page: its steps, and the derivations."""
        return whole_page(self.record.model, program_html(self._story()))

    def _repr_html_(self) -> str:
        return fragment(program_html(self._story()))

    def _story(self) -> CardStory:
        return card_story(self.record, steps(self.program, (), self.record.kernels), self.certificate.entries)

    def on_host(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the program on the CPU, as a test of it."""
        return Host(self.program)(inputs)


@dataclass
class CudaTarget:
    """cuBLASLt, cuDNN and generated code on the device of a profile, by default the H100 that was recorded, with products in `math`.

    The same model, settings and profile give the same program: a second of the time budget is a number of visited states (`CountedClock`), so
    that the search ends at the same place on any machine, however busy.
    """

    settings: Settings
    profile: str | Path | None = None
    math: str = "fp32"
    result = CudaOptimization
    counted = True
    channels_last: bool = field(default=False, init=False)
    """The order in which the data of the model that was read is searched."""
    notes: list[str] = field(default_factory=list, init=False)
    """What is told of the program beside its report."""

    def __post_init__(self) -> None:
        if self.settings.backend != "cuda":
            raise UsageError(f"this optimizes for cuda, not for {self.settings.backend}")
        if self.settings.target != "native" or self.settings.cpu != "native" or self.settings.memory_limit is not None:
            raise UsageError("target, cpu and memory_limit are about programs for this processor: they do not go with backend cuda")
        if self.math not in MATHS:
            raise UsageError(f"math {self.math!r} is not one of {', '.join(MATHS)}")

    @cached_property
    def known(self) -> Profile:
        """The times that are known."""
        return load_profile(Path(self.profile), self.math) if self.profile is not None else shipped(self.math)

    @cached_property
    def cost(self) -> CudaCost:
        """Seconds of kernels: recorded, or by the laws of the card."""
        return CudaCost(self.known, is_constant)

    def read(self, model: Any) -> Program:
        """The model, its data in the order that the card's convolutions want, or its own where that is predicted to be faster."""
        program, self.channels_last = in_order(load(model, shapes=self.settings.shapes or None), self.settings, self.cost, self.cost.channels_last)
        return program

    def otherwise(self, reason: str) -> None:
        """Nothing: ONNX Runtime is no program for a card."""

    def history(self) -> None:
        """Nothing: each search begins anew, so that its result depends on nothing else."""

    def finish(self, run: Run, outcome: Outcome) -> Made:
        """Lower and compile what was chosen, and compare it on the host with ONNX Runtime."""
        expected, first = run.trial.expected, lowered(outcome, self.cost)
        run.tell("verify")
        begin = time.monotonic()
        made, host, outputs = on_host(outcome, self.cost, run.trial.inputs, first)
        self.notes = reaching(made.program, host)
        limit = rounded(run.trial.stepped(self.settings.tolerance), MATHS[self.math])
        compared = compare_outputs(outputs, expected, limit)
        verification = changed(compared, on="host", generated=host.generated, seconds=time.monotonic() - begin)
        return Made(made.outcome, OnCard(made, self.math), verification)

    def report(self, run: Run, made: Made, certificate: Certificate) -> CudaReport:
        """What was decided, with the times that were reckoned with."""
        assert isinstance(made.executable, OnCard)
        found = made.executable.made
        return build_report(run.model, self.settings, found, self.cost, certificate, made.verification, run.used, self.channels_last, self.notes)

    def store(self, optimization: Optimization, path: Path) -> None:
        """The program with its derivations and the report, without the times that its making took. Raises ArtifactError."""
        assert isinstance(optimization, CudaOptimization)
        metadata, texts = metadata_json(stored_report(optimization.record), optimization.outcome, optimization.certificate)
        write(path, Kept(optimization.program, (), metadata, tuple(texts)))


def on_host(outcome: Outcome, cost: CudaCost, inputs: Mapping[str, Array], first: Lowered) -> tuple[Lowered, Host, dict[str, Array]]:
    """The program of an outcome, which was lowered before, as the host runs it on inputs, and its outputs; products whose factors come near the
    largest number of their arithmetic there are put back to TF32."""
    made = first
    while True:
        host = Host(made.program)
        outputs = host(inputs)
        far = leaving(made.program, host)
        if not far:
            return made, host, outputs
        cost.refuse(far)
        made = lowered(outcome, cost)


def leaving(program: CudaProgram, host: Host) -> list[Matmul]:
    """The products whose factors reached so far, when the host ran, that for other inputs they may be beyond the largest number of 16 bits."""
    steps = {n: s for n, s in enumerate(program.steps) if isinstance(s, Rounded)}
    return [s.kernel for n, s in steps.items() if leaves(s.product.factors, host.reach.get(n, 0.0))]


def reaching(program: CudaProgram, host: Host) -> list[str]:
    """How far factors reached that were rounded to an arithmetic with fewer large numbers than float32."""
    short = {n: s.product.factors for n, s in enumerate(program.steps) if isinstance(s, Rounded) and narrow(s.product.factors)}
    if not short:
        return []
    (arithmetic,), most = set(short.values()), max(host.reach.get(n, 0.0) for n in short)
    return [
        f"{len(short)} products round their factors to {arithmetic.name}, which ends at {arithmetic.largest:g}: on the inputs tried these reached "
        f"{most:.3g}, and inputs that lead {HEADROOM:g} times as far may give infinities"
    ]


def target(settings: Settings, profile: str | Path | None = None, math: str | None = None) -> CudaTarget:
    """The target of these settings, of a profile and in an arithmetic (see `MATHS`). Raises UsageError for what it does not have."""
    return CudaTarget(replace(settings, threads=asked_threads(settings.threads)), profile, math or "fp32")


def optimize_cuda(model: Any, settings: Settings, profile: str | Path | None = None, math: str | None = None) -> CudaOptimization:
    """What `einnet.optimize` gives with these settings. Raises ModelError, UsageError and BackendError as it does."""
    found = optimize(model, target(settings, profile, math))
    assert isinstance(found, CudaOptimization)
    return found


def search_counted(program: Program, settings: Settings, cost: Cost) -> Outcome:
    """The search for a card: the same on every machine."""
    return search(program, settings, cost, Schedule(0.0, settings.time_budget, clock=CountedClock()))


def searched(program: Program, settings: Settings, known: Profile) -> tuple[Lowered, CudaCost]:
    """What a search finds that can be lowered, and the costs that it went by. Raises Refusal as `lowered` does."""
    cost = CudaCost(known, is_constant)
    return lowered(search_counted(program, settings, cost), cost), cost
