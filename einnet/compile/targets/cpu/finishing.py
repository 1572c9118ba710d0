"""From what was chosen to the program that is kept: compiled, proven, verified, rounded as a budget of error allows, and timed beside the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf

from einnet.compile.garbage import large, let_all_go
from einnet.compile.history import Memory
from einnet.compile.run import Run
from einnet.compile.targets.cpu.chosen_again import Made, better_within
from einnet.compile.targets.cpu.contest import DERIVED, NARROWER, OWN, Contest, Decision
from einnet.compile.targets.cpu.incumbent import Decided, digest, made_again
from einnet.compile.targets.cpu.programs import built, compiled, peak_bytes
from einnet.compile.targets.cpu.rounded_products import Rounding
from einnet.compile.targets.processor import Timed
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.errors import BackendError
from einnet.evidence.assured import assured, with_evidence
from einnet.evidence.comparison.saturation import saturated, told
from einnet.evidence.comparison.verify import WHOLE, roundings
from einnet.evidence.report.kernel_times import kernel_profile
from einnet.evidence.report.schema import Verification
from einnet.evidence.sound import agreeing
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.program import Executable
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from einnet.search.time_shares import PROVING_SHARE
from einnet.stages import stage

ROUNDS = "round"
"""What a model has that rounds to integers."""

HEAVY = 1.5
"""Times what ONNX Runtime takes: a program of more memory has a note that says what for."""


class Finishing:
    """One run's last stage. `programs` are those that may be kept, by their names in the contest, and `verified` what verification says of them."""

    def __init__(self, run: Run, settings: Settings, cost: CpuCost, history: Callable[[], Memory | None]) -> None:
        self._run, self._settings, self._cost, self._history = run, settings, cost, history
        self._rounding = Rounding(settings, run.trial, cost)
        self._made: dict[str, Executable] = {}
        """What was compiled."""
        self._programs: dict[str, Executable] = {}
        self._verified: dict[str, Verification] = {}
        self._refuted: Verification | None = None
        """What verification said last of a program that does not agree with ONNX Runtime."""

    def of(self, outcome: Outcome) -> Timed:
        """What is kept of an outcome, with the times of all programs."""
        outcome = self._compiled(outcome.noting(*self._cost.notes()))
        self._run.tell("verify and time")
        outcome = self._agreeing(outcome)
        outcome = self._within_the_budget(outcome)
        if not self._programs:
            outcome, self._programs = fallen_back(self._run, outcome, self._made, self._cost, self._refuted)
        let_all_go(self._run.program.weights.values())
        return self._timed(self._decided(outcome))

    def _compiled(self, outcome: Outcome) -> Outcome:
        """The outcome with notes of what could not be compiled."""
        self._run.tell("compile")
        with stage("building programs"):
            hurry = partial(self._run.schedule.hurry, "compile its kernels")
            until = self._run.schedule.stitched(time.monotonic())
            outcome, self._made = compiled(outcome, self._cost, until, self._settings.memory_limit, hurry)
        return outcome

    def _agreeing(self, outcome: Outcome) -> Outcome:
        """The outcome of which every part agrees with ONNX Runtime."""
        if self._settings.force is not None:  # what is wrong is to be seen
            self._programs = self._made
            return outcome

        def rebuilt(outcome: Outcome) -> Executable:
            return built(outcome.plan(), self._cost, strict=True, program=outcome.program)

        outcome, self._programs, self._verified = agreeing(outcome, self._made, self._verify, rebuilt, self._run.schedule.end)
        return outcome

    def _verify(self, outcome: Outcome, one: Executable) -> Verification:
        """What verification says of a program, with proofs where it is the one that would be kept."""
        with stage("verifying"):
            found = self._run.trial.verify(one, self._settings.tolerance)
        if not found.passed:
            self._refuted = found
        if outcome.whole:  # ONNX Runtime runs the model itself: there is nothing of ours to be lifted
            return found
        found = self._rounding.with_room(one, found)
        if one is self._made.get(OWN) and len(self._made) > 1:  # stands beside another
            return found
        with stage("proving"):
            return with_evidence(found, assured(outcome, one, seconds_for_proofs(self._run)))

    def _rounded(self, program: Executable, known: Verification) -> tuple[Executable, Verification]:
        """The program with as many products rounded as the budget of error allows, where that is faster."""
        with stage("choosing what rounds"):
            return self._rounding.of(program, known, self._run.schedule.rounded(time.monotonic()))

    def _within_the_budget(self, outcome: Outcome) -> Outcome:
        """The programs rounded, and what was derived chosen again where not all of its products may be."""
        for name, known in self._verified.items():
            self._programs[name], self._verified[name] = self._rounded(self._programs[name], known)
        for name in [name for name in (DERIVED, OWN) if name in self._verified][:1]:
            made = Made(outcome, self._programs[name], self._verified[name])
            better = better_within(self._run, made, self._rounding, self._cost, self._verify)
            if better is not None:
                self._programs[DERIVED], self._verified[DERIVED] = better.program, better.verification
                return better.outcome
        return outcome

    def _decided(self, outcome: Outcome) -> Decision:
        """What is kept after all were timed, and remembered for runs that are allowed more."""
        run, cost = self._run, self._cost
        decided = Decided(self._settings, cost)
        incumbent, narrower, more = self._kept_before(outcome, decided)
        if large(run.program.weights.values()):
            codegen.rest()  # programs are compared where there is most in memory
        programs, tolerance = {**self._programs, **more}, self._settings.tolerance
        contest = Contest(run.model, self._settings, cost, run.trial, programs, tolerance, self._rounded, incumbent, narrower)
        with stage("timing programs"):
            decision = contest.decide(outcome, run.schedule.timing_s(inf if outcome.interrupted else time.monotonic()))
        decided.remember(decision.outcome)
        return decision

    def _kept_before(self, outcome: Outcome, decided: Decided) -> tuple[str | None, Outcome | None, dict[str, Executable]]:
        """What a run that was allowed less has kept for this model: its name, its outcome and itself where it is none of these programs."""
        kept = decided.narrower(outcome) if OWN in self._programs else None
        found = made_again(outcome, kept, self._history(), self._cost) if kept else None
        if kept is None or found is None:
            return None, None, {}
        for name in (OWN, DERIVED):
            if name in self._programs and digest(outcome.plan(original=name == OWN)) == kept.plan:
                return name, None, {}
        with suppress(BackendError), stage("building programs"):
            program = built(found.plan(), self._cost, self._run.schedule.end, strict=True, program=found.program)
            if self._rounding.with_room(program, self._run.trial.verify(program, self._settings.tolerance)).passed:
                return NARROWER, found.noting("what a run that was allowed less has kept is no slower than what was found"), {NARROWER: program}
        return None, None, {}

    def _timed(self, decision: Decision) -> Timed:
        """What is told of the program that is kept."""
        run, programs = self._run, self._programs
        outcome, executable, times = decision.outcome, decision.executable, decision.times
        peaks = peak_bytes(programs, run.trial.peak)
        if times["runs"] not in programs or outcome.whole:
            peaks["optimized"] = run.trial.peak if outcome.whole else executable.nbytes
        verification = self._verified.get(times["runs"]) or self._verify(outcome, executable)
        notes = [*executable.notes, *saturating(run), *rounding(run), *([] if outcome.whole else heavy(executable, programs, run.trial.peak))]
        own = OWN in programs and OWN in times
        with stage("profiling"):
            kernels = kernel_profile(outcome, executable, self._cost, times["optimized"].median)
            beside = tuple(kernel_profile(outcome, programs[OWN], self._cost, times[OWN].median)) if outcome.whole and own else None
        rounded = self._rounding.told.get(executable)
        return Timed(outcome.noting(*notes), executable, verification, times, peaks, tuple(kernels), beside, rounded)


def seconds_for_proofs(run: Run) -> float:
    """Seconds that the proofs and the kernels of one program may take now."""
    return min(PROVING_SHARE * run.settings.time_budget, max(run.schedule.end - time.monotonic(), 0.0))


def fallen_back(
    run: Run, outcome: Outcome, made: Mapping[str, Executable], cost: CpuCost, refuted: Verification | None
) -> tuple[Outcome, dict[str, Executable]]:
    """ONNX Runtime with the whole model, where no program of ours can be compiled and agrees with it; the outcome has a note, with the errors of
    what was `refuted`.

    What was compiled is kept, for want of anything better, where the model is too large to be part of a program. Raises BackendError where nothing
    was compiled either.
    """
    plan = whole_model(run.model, outcome.plan(original=True), run.trial.order)
    if plan is None:
        if not made:
            raise BackendError(f"{outcome.program.title}: {outcome.notes[-1]}")
        return outcome, {"original": list(made.values())[-1]}
    why = f"no program of ours agrees with it{disagreement(refuted)}" if made else "no program of ours can be compiled"
    return outcome.original().as_whole(f"ONNX Runtime runs the whole model: {why}"), {WHOLE: built(plan, cost)}


def disagreement(found: Verification | None) -> str:
    """By how much a program does not agree with ONNX Runtime, and where; nothing where that is not told by numbers."""
    if found is None or not found.outputs or not found.max_rel > found.tolerance:
        return ""
    name = max(found.outputs, key=lambda output: found.outputs[output].max_rel / (found.outputs[output].allowed or 1.0))
    told = f"in {name} the error is {found.max_rel:.2g} of max|y|, {found.tolerance:g} is allowed"
    return f": {told}; a model whose float32 results are not sure to that needs a larger --max-error"


def saturating(run: Run) -> list[str]:
    """A note where the inputs that verify a model are beyond the ranges of tensors that it rounds: they are not of the kind that it was made for."""
    if ROUNDS not in roundings(run.program) or time.monotonic() >= run.schedule.end:
        return []
    with stage("verifying"), suppress(BackendError):
        return told(saturated(run.model, [run.trial.inputs], run.trial.threads), "the random inputs that verify it")
    return []


def rounding(run: Run) -> list[str]:
    """A note where ONNX Runtime's results, as its users have them, are not those of the model's nodes that a program is compared with."""
    if run.trial.rounding <= run.settings.tolerance:
        return []
    what = "ONNX Runtime by default rounds to bytes what it multiplies by weights of few bits"
    without = "programs are compared with it without that rounding, and timed against it as it is"
    return [f"{what}, and errs by {run.trial.rounding:.2g} of max|y| here: {without}"]


def heavy(executable: Executable, programs: Mapping[str, Executable], theirs: int | None) -> list[str]:
    """A note where a program takes much more memory than ONNX Runtime (bytes `theirs`): what for, and what restrains it."""
    if theirs is None or executable.nbytes <= HEAVY * theirs:
        return []
    own = programs.get("original", executable)
    ours, before = executable.constant_bytes / 1e6, own.constant_bytes / 1e6
    weights = f"{ours:.4g} MB are weights as its kernels read them ({before:.4g} MB in the model's own operators)"
    takes = f"the program takes {executable.nbytes / 1e6:.4g} MB, ONNX Runtime {theirs / 1e6:.4g} MB"
    return [f"{takes}: {weights}, {executable.arena_bytes / 1e6:.4g} MB intermediate tensors; --memory-limit restrains it"]
