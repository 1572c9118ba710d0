"""Optimizing for a CUDA device without one: costs from a recorded profile or a data sheet, results checked on the host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.api.certificate import Certificate, certify
from einnet.api.cuda_report import build_report, stored_report
from einnet.api.optimize import TOLERANCE, prepare, tell
from einnet.api.pipeline import Cost, Outcome, search
from einnet.api.plain import plain
from einnet.api.schedule import CountedClock, Schedule
from einnet.api.settings import Settings
from einnet.api.verify import Trial, random_inputs
from einnet.errors import UsageError

if TYPE_CHECKING:
    from einnet.graph.program import Program
    from einnet.runtime.cuda.costs import CudaCost
    from einnet.runtime.cuda.profile import Profile
    from einnet.runtime.cuda.program import CudaProgram
    from einnet.search.candidates import Candidate

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class CudaOptimization:
    """What was found for a CUDA device. Times in the report are predictions, marked as what they are; nothing ran on a device."""

    outcome: Outcome
    program: CudaProgram
    certificate: Certificate
    report: dict[str, Any]

    def save(self, path: str | Path) -> Path:
        """Write the program with its derivations and the report, without the times that its making took.

        Raises ArtifactError where the path cannot be written, and for a program that failed its verification.
        """
        from einnet.api.compared import refuse_failed
        from einnet.api.stored import derivations_told
        from einnet.runtime.cuda.store import Kept, write

        refuse_failed(self.report, path)
        told, texts = derivations_told(self.outcome, self.certificate)
        metadata = plain({"report": stored_report(self.report), **told})
        write(path, Kept(self.program, (), metadata, tuple(texts)))
        return Path(path)

    def on_host(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the program on the CPU, as a test of it."""
        from einnet.runtime.cuda.host import Host

        return Host(self.program)(inputs)


def optimize_cuda(model: Any, settings: Settings, profile: str | Path | None = None, math: str = "fp32") -> CudaOptimization:
    """Optimize an ONNX model for the device of a profile, by default the H100 that was recorded, with products in `math`: "fp32" or "tf32".

    The same model, settings and profile give the same program: a second of the time budget is a number of visited states (`CountedClock`), so
    that the search ends at the same place on any machine, however busy.

    Raises ModelError for a model that cannot be read or has no static shapes, UsageError for a wrong argument, BackendError without TVM.
    """
    from einnet.graph.onnx import load as load_model
    from einnet.runtime.cpu.threads import resolve_threads
    from einnet.runtime.cuda.profile import MATHS, load, shipped

    if settings.backend != "cuda":
        raise UsageError(f"this optimizes for cuda, not for {settings.backend}")
    if settings.target != "native" or settings.cpu != "native" or settings.memory_limit is not None:
        raise UsageError("target, cpu and memory_limit are about programs for this processor: they do not go with backend cuda")
    if math not in MATHS:
        raise UsageError(f"math {math!r} is not one of {', '.join(MATHS)}")
    started = time.monotonic()
    tell(settings, "read the model", started)
    known = load(Path(profile), math) if profile is not None else shipped(math)
    program = prepared(load_model(model, shapes=settings.shapes or None), known)
    outcome, made, cost = searched(program, settings, known)
    tell(settings, "check the derivations", started)
    certificate = certify(outcome)
    tell(settings, "verify", started)
    inputs = random_inputs(outcome.plan(), settings.seed)
    threads = resolve_threads(settings.threads)
    verification = verify(model, outcome, made, inputs, settings, threads)
    report = build_report(model, settings, outcome, made, cost, certificate, verification, time.monotonic() - started)
    return CudaOptimization(outcome, made, certificate, report)


def prepared(program: Program, known: Profile) -> Program:
    """The program with its data in the order that the card's convolutions want in the profile's arithmetic."""
    from einnet.runtime.cuda.laws import wants_channels_last
    from einnet.runtime.cuda.profile import laws_of

    return prepare(program, permuted=wants_channels_last(laws_of(known)))


def search_counted(program: Program, settings: Settings, cost: Cost) -> Outcome:
    """The search for a card: the same on every machine."""
    clock = CountedClock()
    return search(program, settings, cost, Schedule(clock.now(), settings.time_budget, clock=clock))


def searched(program: Program, settings: Settings, known: Profile) -> tuple[Outcome, CudaProgram, CudaCost]:
    """What a search finds that can be lowered and, where there is a compiler for cards, compiled; and the costs that it went by.

    For a kernel that cannot the next best way is taken that does without it. Raises Refusal where there is none.
    """
    from einnet.runtime.cuda.costs import CudaCost
    from einnet.runtime.cuda.lower import Refusal, lower
    from einnet.runtime.cuda.profile import key

    cost = CudaCost(known)
    outcome = search_counted(program, settings, cost)
    refused: set[str] = set()
    while True:
        try:
            made = lower(outcome.plan(), cost.channels_last)
            compile_all(made)
            return outcome, made, cost
        except Refusal as e:
            refused |= {key(k) for k in e.reasons}
            if not do_without(outcome, refused):
                raise


def do_without(outcome: Outcome, refused: Set[str]) -> bool:
    """Choose the best candidates that have no kernel of these keys; False where nothing changes by that."""
    from einnet.runtime.cuda.profile import key

    def runs(candidate: Candidate) -> bool:
        return not any(key(k) in refused for k in candidate.kernels)

    changed = False
    for choice in {id(r.choice): r.choice for r in outcome.results}.values():
        left = [] if runs(choice.best) else [c for c in choice.candidates if c.cost < inf and runs(c)]
        if left:
            choice.best, changed = min(left, key=lambda c: c.cost), True
    return changed


def compile_all(made: CudaProgram) -> None:
    """Compile every text of a program, where there is a compiler for cards. Raises Refusal for those that it does not compile.

    One that takes too long is no reason for another program: how long it takes is the machine's affair, and what is chosen is not.
    """
    from einnet.runtime.cuda import nvrtc
    from einnet.runtime.cuda.lower import Refusal
    from einnet.runtime.cuda.program import Generated

    if nvrtc.available():
        return
    refused = {text: str(code) for text, code in nvrtc.compiled_or_refused(made.texts) if not isinstance(code, (bytes, nvrtc.TooSlow))}
    if refused:
        raise Refusal({s.operator: refused[s.text] for s in made.steps if isinstance(s, Generated) and s.text in refused})


def verify(model: Any, outcome: Outcome, made: CudaProgram, inputs: dict[str, Array], settings: Settings, threads: int) -> dict[str, Any]:
    """The program on the host against ONNX Runtime; "generated" says what ran the generated kernels."""
    from dataclasses import replace

    from einnet.api.verify import compare_outputs
    from einnet.runtime.cuda.host import Host

    trial = Trial(model, outcome.program, replace(settings, threads=threads), inputs)
    begin = time.monotonic()
    host = Host(made)
    compared = compare_outputs(host(inputs), trial.expected, TOLERANCE[settings.allow])
    return {**compared, "on": "host", "generated": host.generated, "seconds": time.monotonic() - begin}
