"""Lower precision within a budget of error: which products of a program round their factors, by measured times and measured errors.

What is wanted is the fastest program whose outputs err by no more than the budget. Products are offered in the arithmetic in which each is fastest,
as many of them are taken as the budget has room for (`rounding_trials`), and the program that they make has to be faster as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from einnet.compile.targets.cpu.reach import HEADROOM, leaves, narrow, reaches
from einnet.compile.targets.cpu.rounding_trials import Offer, Tried, Values, beyond, counted
from einnet.compile.targets.cpu.roundoff import bounds
from einnet.evidence.comparison.draws import Draws
from einnet.evidence.comparison.verify import MORE_DRAWS, NOISE, WARM_S, caller
from einnet.evidence.numbers import drawn
from einnet.evidence.report.schema import PrecisionRow, RoundedRow
from einnet.instantiate.implementations import best_of
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.records import changed
from einnet.runtime.capacity import fits
from einnet.runtime.cpu.levels import features
from einnet.runtime.cpu.program import Executable
from einnet.runtime.serial import canonical
from einnet.runtime.timing import compare
from einnet.search.time_shares import ARITHMETICS_SHARE, SELECTING_SHARE

if TYPE_CHECKING:
    from einnet.evidence.comparison.verify import Trial
    from einnet.evidence.report.schema import Verification
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.costs import CpuCost
    from einnet.search.settings import Limits, Settings

SPENT = 0.8
"""Share of the budget that is spent on the inputs that are drawn: on others the error may be larger."""

FLOAT32_SHARE, ALONE_SHARE = 0.7, 0.5
"""Share of the budget that float32 alone may take on all draws that verify a program, or on one where there is no time for more: on twenty others it
errs up to 1.4 times as much, or twice. Where it takes more, ONNX Runtime is left."""

SEEDS = 4
"""Draws of inputs by which is chosen what rounds."""

FURTHER = 16
"""Further such draws, which have no say in what rounds, that confirm it."""

CONFIRMED = 4
"""Choices that are confirmed or not; after them nothing rounds."""

LESS = 0.95
"""How much smaller the error of the next choice is to be than what these draws leave room for."""

SPECIAL_DRAWS = ("negative", "zero")
"""Other draws that a program is compared on by `einnet verify`."""

GAIN = 0.03
"""Share of its time that a product has to gain by itself."""

LEAST_S, MOST_S = 0.5, 3.0
"""Seconds in which the whole program is compared with the one in float32."""

LEAST_RUNS = 20
"""Runs of the program in float32 that this takes at least: a few rounds of slow ones."""

NO_ARITHMETIC = "the processor has no instructions for another arithmetic"
NOT_MEASURED = "it was not measured in another arithmetic"
NO_FASTER = "no faster in another arithmetic"


def inputs_like(draws: Draws) -> list[Values]:
    """The inputs, others of their kind, and what else programs are compared on."""
    first = draws.of(0)
    return [first, *(draws.of(n) for n in range(1, SEEDS)), *(drawn(first, kind) for kind in SPECIAL_DRAWS)]


def further_inputs(draws: Draws) -> list[Values]:
    """Other inputs of their kind than those by which is chosen what rounds."""
    return [draws.of(n) for n in range(SEEDS, SEEDS + FURTHER)]


@dataclass
class Rounding:
    """What a budget of error, where there is one, makes of programs: `told` says it of each that was looked at, by the program that runs."""

    settings: Settings
    trial: Trial
    cost: CpuCost
    told: dict[Executable, PrecisionRow] = field(default_factory=dict)

    def of(self, executable: Executable, known: Verification, until: float) -> tuple[Executable, Verification]:
        """The fastest program within the budget, of one in float32 that was verified, and its verification; done at about `until`."""
        if self.settings.max_error is None or self.settings.force is not None:
            return executable, known
        limits = self.settings.limits
        own = counted(known.outputs, limits)
        limit = SPENT * limits.error - own
        rows = self.rows(executable.plan, until)
        draws = inputs_like(self.trial.draws)
        room = fits(2 * executable.nbytes)
        rows |= self.refused(executable, rows, draws) if room else {}
        offers = [Offer(r.place, ARITHMETICS[r.arithmetic], r.float32_ms, r.ms, r.by) for r in rows.values() if not r.why and r.float32_ms and r.ms]
        tried = Tried(executable, draws, until, limits.error if self.settings.certified else None, limits)
        room = bool(offers) and room
        taken, apart, further = self.lasting(tried, offers, limit, limits.error - own) if room else ([], 0.0, 0)
        found, verification = self.accepted(executable, tried, taken, known)
        runs = taken if found is not executable else []
        certain = bounds(executable, {o.place: o.arithmetic for o in offers}, self.trial.inputs) if room and not tried.late else {}
        for o in offers:
            alone, why = told(tried, o, reason(o in runs, o in taken, tried.alone.get(o), limit))
            rows[o.place] = changed(rows[o.place], runs=o in runs, why=why, error=alone, bound=certain.get(o.place))
        self.told[found] = PrecisionRow(
            max_error=limits.error, error=own + (apart if runs else 0.0), float32_error=own,
            draws=len(tried.draws) + further, products=[rows[n] for n in sorted(rows)], certified=tried.certain(runs),
        )  # fmt: skip
        return found, verification

    def lasting(self, tried: Tried, offers: Sequence[Offer], limit: float, most: float) -> tuple[list[Offer], float, int]:
        """The offers that are taken within a limit of their error, with the greatest error on all draws, and how many further draws there were.

        They were chosen because they err little on the draws that were tried. Others tell whether that was chance: where inputs like these may err
        by more than `most`, fewer are taken, without trials on the first draws where time is over.
        """
        until = tried.until
        further = Tried(tried.executable, further_inputs(self.trial.draws), until, limits=tried.limits, whole=tried.whole)
        tried.until = in_share(SELECTING_SHARE, until)
        taken, apart = tried.within(offers, limit)
        tried.until = until
        for _ in range(CONFIRMED):
            if not taken:
                break
            errors = further.each(taken)
            far = beyond(errors)
            if far <= most:
                return taken, max(apart, *errors), len(errors)
            less = LESS * most / far if far < inf else 0.0
            limit *= less
            taken, apart = (tried.fewer(taken, less), 0.0) if tried.late else tried.within(offers, limit)
        return [], 0.0, len(further.given)

    def with_room(self, program: Executable, found: Verification) -> Verification:
        """What verification says of a program: of one that rounds nothing, failed where it leaves too little room. How much of the budget those take
        that round is known from their trials."""
        told = self.told.get(program)
        rounds = told is not None and any(p.runs for p in told.products)
        return found if rounds or self.settings.max_error is None else with_room(found, self.settings.limits)

    def refused(self, executable: Executable, rows: Mapping[int, RoundedRow], draws: Sequence[Values]) -> dict[int, RoundedRow]:
        """The products that could round to an arithmetic with fewer large numbers than float32: how far their factors reach, and a reason against it
        where that is too far."""
        near = {n: a for n, r in rows.items() if not r.why and narrow(a := ARITHMETICS[r.arithmetic])}
        far = reaches(executable, near, draws) if near else {}
        return {n: changed(rows[n], reach=finite(far[n]), why=overflowing(a, far[n]) if leaves(a, far[n]) else "") for n, a in near.items()}

    def accepted(self, executable: Executable, tried: Tried, taken: Sequence[Offer], known: Verification) -> tuple[Executable, Verification]:
        """The program with these products rounded, if it passes and is surely faster as a whole; else the one in float32."""
        if not taken:
            return executable, known
        found = tried.program(taken)
        verification = self.trial.verify(found, self.settings.tolerance)
        if verification.passed and surely_faster(found, executable, self.trial.inputs, tried.until):
            return found, changed(verification, lifting=known.lifting)
        found.release()
        return executable, known

    def rows(self, plan: Plan, until: float) -> dict[int, RoundedRow]:
        """Every product with its times, by its place in the plan; those that are faster in another arithmetic have no reason yet.

        Those that take longest are measured first, and what the library takes first before other implementations. Trials have the rest of the time.
        """
        until = in_share(ARITHMETICS_SHARE, until)
        products = {n: k for n, k in enumerate(plan.kernels) if isinstance(k, Contraction) and not k.arithmetic.whole}
        known, own = available(self.settings), self.seconds(plan, list(products.values()), until)
        longest = sorted(((k, s) for k, s in own.items() if s is not None), key=lambda timed: -timed[1])
        tried = {k: self.cost.rounded(k, known, s) for k, s in longest}
        rounded = [k for some in tried.values() for k in some]
        self.seconds(plan, rounded, until)
        made = best_of(rounded, partial(self._in_turn, plan, until), self.cost.like(plan).implementations)
        times = self.seconds(plan, [*rounded, *made.values()], until)
        hopeless = {k: [(k.in_arithmetic(a), inf) for a in known] for k in own}
        found = {k: [(m, times[m]) for m in (made.get(r, r) for r in tried.get(k, ()))] for k in own}
        return {n: row(n, k, own[k], dict([*hopeless[k], *found[k]])) for n, k in products.items()}

    def _in_turn(self, plan: Plan, until: float, kernels: Sequence[Contraction]) -> list[float | None]:
        """Seconds of products, in their order."""
        times = self.seconds(plan, kernels, until)
        return [times[k] for k in kernels]

    def seconds(self, plan: Plan, kernels: Sequence[Contraction], until: float) -> dict[Contraction, float | None]:
        """Seconds of products of a plan, those that differ by the names of buffers measured once; None for what there is no time for."""
        cost = self.cost.like(plan, measure=True)
        keys = {k: canonical(cost.describe(k)) for k in kernels}
        first = {key: k for k, key in reversed(keys.items())}
        times = dict(zip(first, cost.measured(list(first.values()), until), strict=True))
        return {k: times[key] for k, key in keys.items()}


def told(tried: Tried, offer: Offer, why: str) -> tuple[float | None, str]:
    """What a product errs by alone, and why it rounds or not: `why`, or that it was refused for its certified bound."""
    alone = tried.alone.get(offer)
    return (None, uncertified(tried.bounds.get((offer,)), tried.budget)) if tried.budget is not None and alone == inf else (alone, why)


def available(settings: Settings) -> list[Arithmetic]:
    """The arithmetics of the processors that a program is for, that round."""
    return [a for a in ARITHMETICS.values() if a.rounds and not a.missing(features(settings.cpu))]


def with_room(found: Verification, limits: Limits) -> Verification:
    """What verification says of a program in float32: failed where it leaves too little of a budget for inputs on which it errs more.

    Where more than the budget passes, because the model itself rounds, that is no matter of float32.
    """
    steps = any((found.tolerance if e.allowed is None else e.allowed) > limits.of(name) for name, e in found.outputs.items())
    share = ALONE_SHARE + (FLOAT32_SHARE - ALONE_SHARE) * min(found.compared_on - 1, MORE_DRAWS) / MORE_DRAWS
    if not found.passed or steps or counted(found.outputs, limits) <= share * limits.error:
        return found
    return changed(found, passed=False)


def likely(settings: Settings) -> list[Arithmetic]:
    """Those whose roundoff is within the budget: a search reckons with products in them."""
    return [a for a in available(settings) if settings.max_error is not None and a.roundoff <= settings.limits.most]


def row(place: int, product: Contraction, own: float | None, others: Mapping[Contraction, float | None]) -> RoundedRow:
    """A product with its seconds in float32, those of the fastest of the others, which round its factors, and why it stays in float32 where that is
    known."""
    known = {k: s for k, s in others.items() if s is not None}
    best = min(known, key=lambda k: known[k], default=product)
    seconds = known.get(best, inf)
    measured = own is not None and bool(known)
    why = "" if measured and seconds < (1 - GAIN) * (own or 0.0) else NO_FASTER if measured else NOT_MEASURED if others else NO_ARITHMETIC
    return RoundedRow(
        place=place, kernel=product.describe(), arithmetic=best.arithmetic.name, float32_ms=milliseconds(own), ms=milliseconds(seconds), runs=False,
        why=why, by=best.by,
    )  # fmt: skip


def in_share(share: float, until: float) -> float:
    """When a share of the time that is left until then is over."""
    now = time.monotonic()
    return now + share * (until - now) if until < inf else inf


def surely_faster(rounded: Executable, executable: Executable, inputs: Values, until: float) -> bool:
    """The whole program is faster with rounded factors, and that is no chance."""
    calls = {"float32": caller(executable, inputs), "rounded": caller(rounded, inputs)}
    begin = time.perf_counter()
    calls["float32"]()
    rounds_s = LEAST_RUNS * (time.perf_counter() - begin)
    seconds = min(max(until - time.monotonic(), LEAST_S, rounds_s), MOST_S)
    return compare(calls, seconds, least=3, warm_s=WARM_S, sample_s=0.01).faster("rounded", "float32", NOISE)


def finite(x: float) -> float | None:
    """None for what is not known."""
    return x if x < inf else None


def milliseconds(seconds: float | None) -> float | None:
    """None for what was not measured or does not run."""
    return None if seconds is None or seconds == inf else 1e3 * seconds


def reason(runs: bool, taken: bool, alone: float | None, limit: float) -> str:
    """Why a product that is faster with rounded factors rounds them or not."""
    if runs:
        return "faster, and within the budget"
    if taken:
        return "the whole program is not surely faster"
    if alone is None:
        return "there was no time or memory to try it"
    if alone > limit:
        return f"alone it errs by about {alone:.2g}, and {max(limit, 0.0):.2g} are left by the budget"
    return "others gain more time for their error"


def overflowing(arithmetic: Arithmetic, reach: float) -> str:
    """Why a product was refused whose factors come near the largest number of an arithmetic."""
    how_far = f"reach {reach:.3g} on the draws" if reach < inf else "may be anything"
    return f"refused: its factors {how_far}, {arithmetic.name} ends at {arithmetic.largest:.5g}, and other inputs may go {HEADROOM:g} times as far"


def uncertified(bound: float | None, budget: float) -> str:
    """Why a product was refused whose rounding alone has no certified bound within the budget."""
    if bound is None:
        return f"refused: a certified bound of {budget:g} was asked for, and none was found in time"
    return f"refused: alone its certified bound is {bound:.2g}, and {budget:g} is allowed"
