"""What was derived, chosen again where the budget of error has no room for rounding all of its products.

A search within a budget reckons with each product in the arithmetic in which it is fastest. Where that errs too much, another form may be the fastest
one: one that computes less, in float32, or one whose products err less when they round. So once it is known what products err, each part is chosen
again by that and by its time.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from einnet.compile.targets.cpu.error_choices import options, picked
from einnet.compile.targets.cpu.programs import built
from einnet.compile.targets.cpu.rounded_products import SPENT, Rounding, surely_faster
from einnet.errors import BackendError, OutOfTimeError
from einnet.evidence.report.kernel_times import owners
from einnet.evidence.sound import Verify, keep_proven, verified
from einnet.expr.values.mean_squares import growth
from einnet.runtime.capacity import fits
from einnet.runtime.cpu.program import Executable
from einnet.search.choosing.candidate import Candidate, Choice
from einnet.stages import stage

if TYPE_CHECKING:
    from einnet.compile.run import Run
    from einnet.evidence.report.schema import PrecisionRow, Verification
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.costs import CpuCost
    from einnet.search.outcome import Outcome

TOGETHER = 1.4
"""Times as much errors may be together as their squares say: those of the largest outputs are not quite by chance."""


@dataclass(frozen=True)
class Made:
    """A program, the outcome of which it is, and what verification says of it."""

    outcome: Outcome
    program: Executable
    verification: Verification


def better_within(run: Run, of: Made, rounding: Rounding, cost: CpuCost, verify: Verify) -> Made | None:
    """The program with what is chosen again, its products rounded as the budget allows, where it is proven, passes and is surely faster as a whole.

    None where there is none, or no time or memory to make it.
    """
    told = rounding.told.get(of.program)
    if told is None or time.monotonic() >= run.schedule.latest or not fits(2 * of.program.nbytes):
        return None
    outcome = chosen_again(of.outcome, of.program.plan, told, cost, rounded_until(run))
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
    """The outcome with what takes least within the budget, by what products were found to err; None where that is what was chosen, and where all of
    them round. Nothing is measured after time.monotonic() is `until`."""
    squares = squares_of(outcome, plan, told)
    if not squares:
        return None
    alike = {r.key: r for r in outcome.results}
    uses = Counter(r.key for r in outcome.results)
    with stage("choosing"):
        ways = {key: options(alike[key].choice, uses[key], square, cost, until) for key, square in squares.items()}
    ways = {key: some for key, some in ways.items() if some}
    limit = max(SPENT * told.max_error - told.float32_error, 0.0) / TOGETHER
    best = dict(zip(ways, picked(list(ways.values()), limit), strict=True))
    found = {key: taking(alike[key].choice, o.candidate) for key, o in best.items() if o.candidate.form.key != alike[key].candidate.form.key}
    if not found:
        return None
    why = f"{len(found)} distinct subprograms were chosen again by what their products err: not all of them can round within the budget"
    return outcome.choosing(found).keeping(outcome.kept - found.keys()).noting(why)


def taking(choice: Choice, candidate: Candidate) -> Choice:
    """The choice of a candidate that was priced again."""
    others = [c for c in choice.candidates if not (candidate.original and c is choice.original)]
    return replace(choice, candidates=[candidate, *others], original=candidate if candidate.original else choice.original, best=candidate)


def squares_of(outcome: Outcome, plan: Plan, told: PrecisionRow) -> dict[str, float]:
    """By key, the square of what all equal subprograms were found to err whose products round, were these the products of the expression as it is
    written; infinite where that is not known. Empty where all products round that are faster so."""
    made_for = owners(outcome, plan)
    found: dict[str, float] = {}
    offered = [row for row in told.products if row.float32_ms and row.ms and row.ms < row.float32_ms]
    for row in offered if not all(row.runs for row in offered) else ():
        key = made_for[row.place].key
        if key is not None:
            found[key] = found.get(key, 0.0) + (inf if row.error is None else row.error**2)
    forms = {r.key: r.candidate.form for r in outcome.results}
    grown = {key: growth(forms[key].start, forms[key].tree) for key in found}
    return {key: square / grown[key] ** 2 if grown[key] < inf else inf for key, square in found.items()}
