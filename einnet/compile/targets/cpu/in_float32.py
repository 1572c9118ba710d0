"""What was derived, chosen again where its products do not round after all.

A search within a budget of error reckons with each product in the arithmetic in which it is fastest. Where the budget turns out to have no room for
that, a form that computes less may be faster than what was chosen for its products: there is chosen again, by what kernels take in float32.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from einnet.compile.targets.cpu.programs import built
from einnet.compile.targets.cpu.rounded_products import Rounding, surely_faster
from einnet.errors import BackendError, OutOfTimeError
from einnet.evidence.report.kernel_times import owners
from einnet.evidence.sound import Verify, keep_proven, verified
from einnet.runtime.capacity import fits
from einnet.runtime.cpu.program import Executable
from einnet.search.choosing.candidate import GAIN, Candidate, Choice
from einnet.stages import stage

if TYPE_CHECKING:
    from einnet.compile.run import Run
    from einnet.evidence.report.schema import PrecisionRow, Verification
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.costs import CpuCost
    from einnet.search.outcome import Outcome

MOST = 16
"""Candidates that are tried at most for a subprogram; kernels of most of them were measured by the search."""


@dataclass(frozen=True)
class Made:
    """A program, the outcome of which it is, and what verification says of it."""

    outcome: Outcome
    program: Executable
    verification: Verification


def better_in_float32(run: Run, of: Made, rounding: Rounding, cost: CpuCost, verify: Verify) -> Made | None:
    """The program with what is chosen again, its products rounded as the budget allows, where it is proven, passes and is surely faster as a whole.

    None where there is none, or no time or memory to make it.
    """
    told = rounding.told.get(of.program)
    if told is None or time.monotonic() >= run.schedule.latest or not fits(2 * of.program.nbytes):
        return None
    outcome = chosen_again(of.outcome, of.program.plan, told, cost.in_float32(), rounded_until(run))
    if outcome is None:
        return None
    with stage("proving"):
        outcome = keep_proven(outcome, run.settings, late=partial(late, run))
    if not outcome.changed:
        return None
    found = compiled(run, outcome, cost, verify)
    if found is None:
        return None
    program, verification = rounding.of(found.program, found.verification, rounded_until(run))
    if surely_faster(program, of.program, run.trial.inputs, rounded_until(run)):
        return Made(outcome, program, verification)
    program.release()
    return None


def compiled(run: Run, outcome: Outcome, cost: CpuCost, verify: Verify) -> Made | None:
    """The program of an outcome, where there is time to compile it and it passes."""
    hurry = partial(run.schedule.hurry, "compile its kernels")
    try:
        with stage("building programs"):
            program = built(outcome.plan(), cost, run.schedule.stitched(time.monotonic()), strict=True, program=outcome.program, hurry=hurry)
    except (BackendError, OutOfTimeError):
        return None
    verification = verified(outcome, program, verify)
    if verification is None:
        program.release()
        return None
    return Made(outcome, program, verification)


def rounded_until(run: Run) -> float:
    """When a step of this is to be over."""
    return run.schedule.rounded(time.monotonic())


def late(run: Run) -> bool:
    """There is no time left for more than what is there."""
    return time.monotonic() >= run.schedule.latest


def chosen_again(outcome: Outcome, plan: Plan, told: PrecisionRow, cost: CpuCost, until: float) -> Outcome | None:
    """The outcome with what is fastest in float32, as a `cost` tells, for the subprograms whose products stay in float32; None where that is what was
    chosen. Those that lose most by it come first: nothing is measured after time.monotonic() is `until`."""
    choices = {r.key: r.choice for r in outcome.results}
    found: dict[str, Choice] = {}
    for key in staying(outcome, plan, told):
        with stage("choosing"):
            choice = again(choices[key], cost, until)
        if choice.best.form.key != choices[key].best.form.key:
            found[key] = choice
    if not found:
        return None
    why = f"{len(found)} distinct subprograms were chosen again by times in float32: the budget of error has no room for rounding their products"
    return outcome.choosing(found).keeping(outcome.kept - found.keys()).noting(why)


def again(choice: Choice, cost: CpuCost, until: float) -> Choice:
    """What is fastest by other costs among the candidates that were made: measured as long as one is predicted to be faster than the best, after the
    model's own operators."""
    expected = {id(c): sum(cost.estimates(c.kernels)) for c in choice.candidates}
    original = best = costing(choice.original, cost.measured(choice.original.kernels, until))
    tried = [original]
    for c in sorted(choice.candidates, key=lambda c: expected[id(c)])[:MOST]:
        if expected[id(c)] >= best.measured or time.monotonic() >= until:
            break
        if c is not choice.original:
            tried.append(costing(c, cost.measured(c.kernels, until)))
            best = min(best, tried[-1], key=lambda c: c.measured)
    best = best if best.measured < (1 - GAIN) * original.cost else original
    return replace(choice, candidates=sorted(tried, key=lambda c: c.measured), original=original, best=best)


def costing(candidate: Candidate, seconds: Sequence[float | None]) -> Candidate:
    """A candidate whose kernels take so many seconds, as far as that is known."""
    known = tuple(s for s in seconds if s is not None)
    measured = sum(known) if len(known) == len(seconds) else inf
    return replace(candidate, seconds=known if measured < inf else (), measured=measured, tried=True, assumed=frozenset())


def staying(outcome: Outcome, plan: Plan, told: PrecisionRow) -> list[str]:
    """Keys of the subprograms most of whose products, by what rounding would gain, stay in float32; those that lose most by it first."""
    made_for = owners(outcome, plan)
    lost: dict[str, float] = {}
    for row in told.products:
        key = made_for[row.place].key
        if key is not None and row.float32_ms and row.ms and row.ms < row.float32_ms:
            gain = row.float32_ms - row.ms
            lost[key] = lost.get(key, 0.0) + (-gain if row.runs else gain)
    return sorted((key for key, gain in lost.items() if gain > 0), key=lambda key: -lost[key])
