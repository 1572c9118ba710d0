"""The last decision: which program runs. Derived, derived in parts, the model's own operators, or ONNX Runtime with the whole model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from einnet.compile.targets.cpu.acceptance import InPlace, weighed
from einnet.compile.targets.cpu.programs import built
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.errors import BackendError
from einnet.evidence.comparison.verify import NOISE, WHOLE
from einnet.search.settings import KEPT, NEVER
from einnet.search.time_shares import CONTEST_RUNS, FIRST_SHARE, PARTS_SHARE

if TYPE_CHECKING:
    from einnet.evidence.comparison.verify import Trial
    from einnet.evidence.report.schema import Verification
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.timing import Comparison, Timing
    from einnet.search.outcome import Outcome
    from einnet.search.settings import Settings

NOISY = 0.10
"""The noise beyond which no comparison tells anything."""

BESIDE = 0.1
"""Share of our program's time by which ONNX Runtime with the whole model has to be faster where the user does not have it already: there it runs
beside another library, between whose operators its calls take up to a fifth longer than one after the other (GPT-2: 22 ms for 18; ours 18 for 18)."""

OWN, DERIVED, MIXED, NARROWER = "original", "optimized", "mixed", "narrower"
"""The model's own operators, what was chosen, that without the parts that lose in their places, and what a run that was allowed less has kept."""


@dataclass(frozen=True)
class Decision:
    """What runs, of which outcome, and times in seconds of what was compared; "optimized" among them is what runs."""

    outcome: Outcome
    executable: Executable
    times: dict[str, Any]


@dataclass(frozen=True)
class Contest:
    """What competes for a model: `programs` that have passed verification, by name; or ONNX Runtime with the whole model alone, where none has."""

    model: Any
    settings: Settings
    cost: CpuCost
    trial: Trial
    programs: Mapping[str, Executable]
    tolerance: float
    rounded: Callable[[Executable, Verification], tuple[Executable, Verification]]
    """A verified program as fast as a budget of error allows, verified."""
    incumbent: str | None = None
    """Of the programs what a run that was allowed less has kept; only what is surely faster runs in its place."""
    narrower: Outcome | None = None
    """The outcome of that one, where it is neither of this run's own."""

    def decide(self, outcome: Outcome, seconds: float) -> Decision:
        """Choose by interleaved timing, in about so many seconds; the outcome that was chosen has a note.

        Where ours is not surely faster than ONNX Runtime, that is a candidate with the whole model; where there is no time to try it, the
        times of ONNX Runtime as the reference stand for it.
        """
        end = time.monotonic() + seconds
        if self.settings.force is not None and DERIVED in self.programs:
            times = self.trial.compare(self.programs, 0.0)
            return Decision(outcome, self.programs[DERIVED], {**times, "runs": DERIVED, "optimized": times[DERIVED]})
        times = self.trial.compare(self.programs, FIRST_SHARE * seconds)
        outcome = outcome.noting(*not_in_turns(times))
        both = {OWN, DERIVED} <= self.programs.keys()
        in_place = weighed(outcome, self.cost.objects, time.monotonic() + PARTS_SHARE * seconds) if both else InPlace()
        runs = next(iter(self.programs)) if not both else OWN if slower(times) and not gaining(in_place, times) else DERIVED
        times = {**times, "runs": runs, "optimized": slower_of(times[runs], times["onnxruntime"]) if runs == WHOLE else times[runs]}
        candidates: dict[str, Executable | None] = {runs: self.programs[runs]}
        without = outcome.keeping(outcome.kept | in_place.losers)
        mixed = self.mixed(without, end) if in_place.losers else None
        if mixed:
            candidates[MIXED] = mixed
        whole = self.whole(self.programs[runs].plan) if runs != WHOLE and self.settings.derive and behind(times) else None
        if whole:
            candidates[WHOLE] = None if self.trial.stands else built(whole, self.cost)
        if len(candidates) > 1:
            times = self.again(candidates, times, end, in_place.gains)
        times = defended(times, self.incumbent)
        decided = self.narrower if times["runs"] == NARROWER and self.narrower else settled(outcome, times["runs"], without)
        return Decision(decided, {**self.programs, **candidates}[times["runs"]] or self.loaded(whole), times)

    def mixed(self, outcome: Outcome, until: float) -> Executable | None:
        """The program without the parts that lose; None if nothing derived is left, or it is wrong."""
        if not outcome.changed:
            return None
        with suppress(BackendError):
            program = built(outcome.plan(), self.cost, until, strict=True, program=outcome.program)
            verification = self.trial.verify(program, self.tolerance)
            return self.rounded(program, verification)[0] if verification.passed else None
        return None

    def whole(self, ours: Plan) -> Plan | None:
        """ONNX Runtime with the whole model; None where it is not wanted, takes more memory than it may, or is too large to be part of a program."""
        limited = self.settings.whole == NEVER or (self.trial.peak or 0) > (self.settings.memory_limit or inf)
        return None if limited else whole_model(self.model, ours, self.trial.order)

    def loaded(self, whole: Plan | None) -> Executable:
        """The program of the whole model, in place of the session that stood for it: both may be more than there is room for."""
        assert whole is not None
        self.trial.session = None
        return built(whole, self.cost)

    def again(self, candidates: Mapping[str, Executable | None], times: Mapping[str, Any], end: float, gains: bool = False) -> dict[str, Any]:
        """All candidates compared where time suffices: what surely beats what led before runs; where all parts but the losers `gains` in their
        places, the program without these unless it is surely slower. ONNX Runtime with the whole model is None where it took long to load: what was
        loaded as the reference stands for it.

        ONNX Runtime with the whole model runs in any case where what leads is not surely faster than it and its median is no better, or the times are
        too noisy to tell: the user has it already. Where it is a mere candidate it has to be surely faster.
        """
        led, left = str(times["runs"]), end - time.monotonic()
        if left < CONTEST_RUNS * (times["optimized"].median + times["onnxruntime"].median) + 2 * self.trial.again_s:
            ahead = 1.0 if self.settings.whole == KEPT else 1 - BESIDE
            takes = WHOLE in candidates and times["onnxruntime"].median < ahead * times[led].median
            return {**times, "runs": WHOLE, "optimized": times["onnxruntime"]} if takes else dict(times)
        own = {name: self.programs[name] for name in (OWN, self.incumbent) if name and name in self.programs}
        found = self.trial.compare({**own, **{name: program for name, program in candidates.items() if program is not None}}, left)
        if WHOLE in candidates and candidates[WHOLE] is None:
            rounds: Comparison = found["rounds"]
            samples = {**rounds.samples, WHOLE: rounds.samples["onnxruntime"]}
            found = {**found, WHOLE: found["onnxruntime"], "rounds": replace(rounds, samples=samples)}
        held = self.settings.whole == KEPT
        name = best_of(list(candidates), led, found, gains, times["rounds"], held)
        if name == DERIVED and OWN in own and not gains and not found["rounds"].after(times["rounds"]).faster(DERIVED, OWN, NOISE):
            own_first = [OWN, *(c for c in candidates if c == WHOLE)]
            name = best_of(own_first, OWN, found, earlier=times["rounds"], held=held)  # what was sure by chance is not
        return {**found, "runs": name, "optimized": slower_of(found[WHOLE], found["onnxruntime"]) if name == WHOLE else found[name]}


def not_in_turns(times: Mapping[str, Any]) -> list[str]:
    """A note where ONNX Runtime was not timed in turns with the programs: why."""
    if times["once"]:
        return [f"ONNX Runtime was timed once, with its session, which is no ratio: beside the programs, {times['once']}"]
    if times.get("before"):
        seconds = f"{times['before']:.3g} s"
        return [f"ONNX Runtime was timed alone, before the search: it takes {seconds} to load and run, too long for a comparison in turns"]
    return []


def best_of(
    candidates: Sequence[str], led: str, found: Mapping[str, Any], gains: bool = False, earlier: Comparison | None = None, held: bool = True
) -> str:  # fmt: skip
    """The candidate that runs, by interleaved times; `led` stays where nothing is surely faster by `NOISE`, but for the model's own operators where
    the parts that were kept of a derived program are known to gain: there that is surely slower, or runs. What an `earlier` comparison of the same
    programs has seen of ONNX Runtime counts, too. Where the user has that already it is `held` unless ours is surely faster, else the other way."""
    rounds = found["rounds"]
    surely = [name for name in candidates if name not in (led, WHOLE) and rounds.faster(name, led, NOISE)]
    if led == OWN and gains and MIXED in candidates and not surely and not rounds.faster(OWN, MIXED):
        led = MIXED
    ours = min([led, *surely], key=lambda name: found[name].median)
    theirs = (WHOLE, "onnxruntime")  # one thing, of which a program that is kept has to beat the faster samples
    if WHOLE not in candidates or all(rounds.faster(ours, name) for name in theirs):
        return ours
    if not held:
        return WHOLE if all(rounds.faster(name, ours, BESIDE) for name in theirs) else ours
    if surely_ahead(ours, led, rounds.merged(theirs, theirs[1]), earlier):
        return ours
    return WHOLE if found["noise"] > NOISY or min(found[name].median for name in theirs) <= found[ours].median else ours


def defended(times: Mapping[str, Any], incumbent: str | None) -> dict[str, Any]:
    """The times with what runs: the `incumbent` where it was timed, unless what was chosen is surely faster than it; ONNX Runtime alone or inside
    of a program, which are one thing."""
    runs = times["runs"]
    if incumbent in (None, runs) or incumbent not in times["rounds"].samples:
        return dict(times)
    rounds = times["rounds"]
    chosen = [name for name in (WHOLE, "onnxruntime") if name in rounds.samples] if runs == WHOLE else [runs]
    if any(rounds.faster(name, incumbent) for name in chosen):  # of the faster sample of each round noise would make a faster program
        return dict(times)
    return {**times, "runs": incumbent, "optimized": rounds.timings[incumbent]}


def surely_ahead(ours: str, led: str, rounds: Comparison, earlier: Comparison | None) -> bool:
    """A program is surely faster than ONNX Runtime in the rounds of both comparisons together: one alone may have too few to tell. In earlier rounds
    what `led` stands for a program that was not there and is surely faster."""
    if earlier is None or not {led, "onnxruntime"} <= earlier.samples.keys():
        return False
    before = replace(earlier, samples={ours: earlier.samples[led], **earlier.samples})
    return rounds.after(before).faster(ours, "onnxruntime")


def slower_of(one: Timing, other: Timing) -> Timing:
    """What ONNX Runtime takes inside a program is no less than what it takes: samples of both are of one thing."""
    return one if one.median > other.median else other


def settled(outcome: Outcome, runs: str, without: Outcome) -> Outcome:
    """The outcome of what runs, with a note of what was given up; `without` is the one without the parts that lose."""
    if runs == OWN:
        gave_up = ["the derived program gained nothing beyond noise: the model's own operators are kept"] if outcome.changed else []
        return outcome.original(*gave_up)
    if runs == MIXED:
        gave_up = [f"what was derived for {len(without.kept - outcome.kept)} distinct subprograms gained nothing in its place"]
        return without.noting(f"{gave_up[0]}: there the model's own operators are kept")
    if runs == WHOLE and not outcome.whole:
        return outcome.as_whole("ONNX Runtime runs the whole model: nothing that was found is surely faster")
    return outcome


def slower(times: Mapping[str, Any]) -> bool:
    """The derived program is not surely faster than the model's own operators."""
    return not times["rounds"].faster(DERIVED, OWN, NOISE)


def gaining(in_place: InPlace, times: Mapping[str, Any]) -> bool:
    """All that was derived surely gains in its places, and nothing says that the whole program is slower: only its noise hides that it is faster."""
    return in_place.gains and not in_place.losers and not times["rounds"].faster(OWN, DERIVED)


def behind(times: Mapping[str, Any]) -> bool:
    """What leads is not surely faster than ONNX Runtime: then that has to be a candidate."""
    return not times["rounds"].faster(times["runs"], "onnxruntime")
