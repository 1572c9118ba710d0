"""Programs for this processor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Any

from einnet.compile.export.onnx_file import SUFFIX, write
from einnet.compile.garbage import large, let_all_go
from einnet.compile.history import Memory, Places
from einnet.compile.run import Run
from einnet.compile.target import Optimization
from einnet.compile.targets.cpu.chosen_again import Made, better_within
from einnet.compile.targets.cpu.contest import DERIVED, NARROWER, OWN, Contest
from einnet.compile.targets.cpu.incumbent import Decided, digest, made_again
from einnet.compile.targets.cpu.left import left
from einnet.compile.targets.cpu.programs import built, compiled, peak_bytes
from einnet.compile.targets.cpu.rounded_products import Rounding, available, likely
from einnet.compile.targets.processor import Timed, resolved, store, timed_report
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.compile.targets.whole.target import WholeTarget
from einnet.derivation.steps import KINDS
from einnet.errors import BackendError
from einnet.evidence.assured import assured, with_evidence
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.saturation import saturated, told
from einnet.evidence.comparison.verify import WHOLE, roundings
from einnet.evidence.report.kernel_times import kernel_profile
from einnet.evidence.report.schema import Report, Verification
from einnet.evidence.sound import agreeing
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.levels import features, require
from einnet.runtime.cpu.program import Executable
from einnet.search.outcome import Outcome, is_constant
from einnet.search.settings import Settings
from einnet.search.time_shares import PROVING_SHARE
from einnet.stages import stage

ROUNDS = "round"
"""What a model has that rounds to integers."""

HEAVY = 1.5
"""Times what ONNX Runtime takes: a program of more memory has a note that says what for."""


@dataclass
class CpuTarget:
    """oneDNN and generated code on this processor; ONNX Runtime with the whole model where that is as fast."""

    settings: Settings
    result = Optimization

    @property
    def counted(self) -> bool:
        """What is forced is the same on every machine."""
        return self.settings.force is not None

    def read(self, model: Any) -> Program:
        """The model, its data in the order that oneDNN's convolutions want; integers as bytes where the processor has products of these, and float64
        in float32 where an error is named."""
        require(self.settings.cpu)
        codegen.begin()
        program = load(model, shapes=self.settings.shapes or None, doubles=self.settings.max_error is not None)
        prepared = prepare(program, tables=self.settings.tables, in_bytes=self.in_bytes)
        return prepared if self.counted else left(prepared, self.cost)

    @property
    def in_bytes(self) -> bool:
        """Products of bytes are for programs that may add up in another order, on processors that have them, and where no NaN is to be kept."""
        missing = U8I8.missing(features(self.settings.cpu)) or dnnl.available() or dnnl.limit()
        return not missing and self.settings.allow != KINDS[0] and not self.settings.strict_nan

    def otherwise(self, reason: str) -> WholeTarget:
        """The model as it is."""
        return WholeTarget(self.settings, reason)

    @cached_property
    def cost(self) -> CpuCost:
        """Seconds of kernels here, measured or by the roofline."""
        assert self.settings.threads is not None
        return CpuCost(self.settings.threads, constant=is_constant, cpu=self.settings.cpu, arithmetics=likely(self.settings))

    def like(self, settings: Settings) -> CpuTarget:
        """Another target with this one's costs."""
        other = CpuTarget(settings)
        other.cost = self.cost
        return other

    def history(self) -> Memory | None:
        """The profile database; what is forced is neither recalled nor remembered."""
        return Memory(self.cost.database, self.settings, self.places) if self.settings.force is None else None

    @property
    def places(self) -> Places:
        """Where is measured here, and where with narrower and wider budgets of error."""
        own, every = set(likely(self.settings)), available(self.settings)
        chosen = [tuple(a for a in every if a.roundoff <= most) for most in sorted({0.0, *(a.roundoff for a in every)})]
        fewer = [self.cost.place_with(c) for c in chosen if set(c) < own]
        more = [self.cost.place_with(c) for c in chosen if set(c) > own]
        return Places(self.cost.place(), fewer, more, self.cost.stored)

    def finish(self, run: Run, outcome: Outcome) -> Timed:
        """Compile what was chosen, prove, verify and time it; keep the model's own operators, or ONNX Runtime, where they are faster."""
        run.tell("compile")
        outcome = outcome.noting(*self.cost.notes())
        with stage("building programs"):
            hurry, until = partial(run.schedule.hurry, "compile its kernels"), run.schedule.stitched(time.monotonic())
            outcome, made = compiled(outcome, self.cost, until, self.settings.memory_limit, hurry)
        run.tell("verify and time")
        tolerance = self.settings.tolerance
        rounding = Rounding(self.settings, run.trial, self.cost)

        def verify(outcome: Outcome, one: Executable) -> Verification:
            with stage("verifying"):
                found = run.trial.verify(one, tolerance)
            if outcome.whole:  # ONNX Runtime runs the model itself: there is nothing of ours to be lifted
                return found
            found = rounding.with_room(one, found)
            beside = one is made.get("original") and len(made) > 1
            if beside:
                return found
            with stage("proving"):
                return with_evidence(found, assured(outcome, one, seconds_for_proofs(run)))

        def rebuilt(outcome: Outcome) -> Executable:
            return built(outcome.plan(), self.cost, strict=True, program=outcome.program)

        if self.settings.force is None:
            outcome, programs, verified = agreeing(outcome, made, verify, rebuilt, run.schedule.end)
        else:  # what is wrong is to be seen
            programs, verified = made, {}

        def rounded(program: Executable, known: Verification) -> tuple[Executable, Verification]:
            return rounding.of(program, known, run.schedule.rounded(time.monotonic()))

        for name, known in verified.items():
            programs[name], verified[name] = rounded(programs[name], known)
        for name in [name for name in (DERIVED, OWN) if name in verified][:1]:
            better = better_within(run, Made(outcome, programs[name], verified[name]), rounding, self.cost, verify)
            if better is not None:
                outcome, programs[DERIVED], verified[DERIVED] = better.outcome, better.program, better.verification
        if not programs:
            outcome, programs = fallen_back(run, outcome, made, self.cost)
        let_all_go(run.program.weights.values())
        decided = Decided(self.settings, self.cost)
        incumbent, narrower, more = self.kept_before(run, outcome, programs, decided)
        if large(run.program.weights.values()):
            codegen.rest()  # programs are compared where there is most in memory
        contest = Contest(run.model, self.settings, self.cost, run.trial, {**programs, **more}, tolerance, rounded, incumbent, narrower)
        with stage("timing programs"):
            decision = contest.decide(outcome, run.schedule.timing_s(inf if outcome.interrupted else time.monotonic()))
        decided.remember(decision.outcome)
        outcome, executable, times = decision.outcome, decision.executable, decision.times
        peaks = peak_bytes(programs, run.trial.peak)
        if times["runs"] not in programs or outcome.whole:
            peaks["optimized"] = run.trial.peak if outcome.whole else executable.nbytes
        verification = verified.get(times["runs"]) or verify(outcome, executable)
        notes = [*executable.notes, *saturating(run), *([] if outcome.whole else heavy(executable, programs, run.trial.peak))]
        own = OWN in programs and OWN in times
        with stage("profiling"):
            kernels = kernel_profile(outcome, executable, self.cost, times["optimized"].median)
            beside = tuple(kernel_profile(outcome, programs[OWN], self.cost, times[OWN].median)) if outcome.whole and own else None
        return Timed(outcome.noting(*notes), executable, verification, times, peaks, tuple(kernels), beside, rounding.told.get(executable))

    def kept_before(
        self, run: Run, outcome: Outcome, programs: Mapping[str, Executable], decided: Decided
    ) -> tuple[str | None, Outcome | None, dict[str, Executable]]:  # fmt: skip
        """What a run that was allowed less has kept for this model: its name, its outcome and itself where it is none of these programs."""
        kept = decided.narrower(outcome) if OWN in programs else None
        found = made_again(outcome, kept, self.history(), self.cost) if kept else None
        if kept is None or found is None:
            return None, None, {}
        for name in (OWN, DERIVED):
            if name in programs and digest(outcome.plan(original=name == OWN)) == kept.plan:
                return name, None, {}
        with suppress(BackendError), stage("building programs"):
            program = built(found.plan(), self.cost, run.schedule.end, strict=True, program=found.program)
            if run.trial.verify(program, self.settings.tolerance).passed:
                return NARROWER, found.noting("what a run that was allowed less has kept is no slower than what was found"), {NARROWER: program}
        return None, None, {}

    def report(self, run: Run, made: Timed, certificate: Certificate) -> Report:
        """What was decided and measured."""
        return timed_report(run, made, certificate)

    def store(self, optimization: Optimization, path: Path) -> None:
        """A program of ours, or by its suffix an ONNX model. Raises ArtifactError."""
        (write if path.suffix == SUFFIX else store)(optimization, path)


def target(settings: Settings, profile: object = None, math: object = None) -> CpuTarget:
    """The target of these settings. Raises UsageError for what describes a card."""
    return CpuTarget(resolved(settings, profile, math))


def seconds_for_proofs(run: Run) -> float:
    """Seconds that the proofs and the kernels of one program may take now."""
    return min(PROVING_SHARE * run.settings.time_budget, max(run.schedule.end - time.monotonic(), 0.0))


def fallen_back(run: Run, outcome: Outcome, made: Mapping[str, Executable], cost: CpuCost) -> tuple[Outcome, dict[str, Executable]]:
    """ONNX Runtime with the whole model, where no program of ours can be compiled and agrees with it; the outcome has a note.

    What was compiled is kept, for want of anything better, where the model is too large to be part of a program. Raises BackendError where nothing
    was compiled either.
    """
    plan = whole_model(run.model, outcome.plan(original=True), run.trial.order)
    if plan is None:
        if not made:
            raise BackendError(f"{outcome.program.title}: {outcome.notes[-1]}")
        return outcome, {"original": list(made.values())[-1]}
    why = "no program of ours agrees with it" if made else "no program of ours can be compiled"
    return outcome.original().as_whole(f"ONNX Runtime runs the whole model: {why}"), {WHOLE: built(plan, cost)}


def saturating(run: Run) -> list[str]:
    """A note where the inputs that verify a model are beyond the ranges of tensors that it rounds: they are not of the kind that it was made for."""
    if ROUNDS not in roundings(run.program) or time.monotonic() >= run.schedule.end:
        return []
    with stage("verifying"), suppress(BackendError):
        return told(saturated(run.model, [run.trial.inputs], run.trial.threads), "the random inputs that verify it")
    return []


def heavy(executable: Executable, programs: Mapping[str, Executable], theirs: int | None) -> list[str]:
    """A note where a program takes much more memory than ONNX Runtime (bytes `theirs`): what for, and what restrains it."""
    if theirs is None or executable.nbytes <= HEAVY * theirs:
        return []
    own = programs.get("original", executable)
    ours, before = executable.constant_bytes / 1e6, own.constant_bytes / 1e6
    weights = f"{ours:.4g} MB are weights as its kernels read them ({before:.4g} MB in the model's own operators)"
    takes = f"the program takes {executable.nbytes / 1e6:.4g} MB, ONNX Runtime {theirs / 1e6:.4g} MB"
    return [f"{takes}: {weights}, {executable.arena_bytes / 1e6:.4g} MB intermediate tensors; --memory-limit restrains it"]
