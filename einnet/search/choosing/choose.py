"""The candidate that a subprogram runs: the fastest, the original unless another gains enough; or any, where one is drawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from random import Random

from einnet.derivation.steps import kinds_of, worst
from einnet.expr.nodes import Scope
from einnet.instantiate.build import Builds
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.search.choosing.candidate import GAIN, GENERATED_DOUBT, Candidate, Choice, Estimate, Learned, Measure, Within
from einnet.search.choosing.counted_work import A_SECOND, counted_work
from einnet.search.choosing.making import candidates, made, predict
from einnet.search.choosing.trials import Trials
from einnet.search.forms import Form
from einnet.search.time_shares import MAKING_SHARE
from einnet.search.work import flops
from einnet.stages import stage

MOST_TIMES = 8
"""Times the work of the model's own operators that what is drawn may take, where that is much: most of what is derived takes less than five."""


PROMISED = 0.85
"""What is predicted to take no more of the best known time than this is worth the time that is promised."""

LONG_S = 0.05
"""What is predicted to take longer is measured before the last turn only where it is promised to be faster: it takes seconds, for a doubt."""


def choose(
    expression: Scope, forms: Sequence[Form], estimate: Estimate, measure: Measure, *, most: int = 32, gain: float = GAIN, until: float = inf,
    least_s: float = 0.0, known_s: float = inf, learned: Learned | None = None, closely: Estimate | None = None, known: Builds | None = None,
    at_least: Estimate | None = None, noise: float = GAIN, assuming: bool = True, within: Within | None = None, beaten_s: float = inf,
    promised_s: float = 0.0, long_s: float = inf,
) -> Choice:  # fmt: skip
    """Measure an original, then the most promising candidates; take the fastest, an original unless another gains more than `gain`.

    Of the ways to run the original the first that can be measured is enough, where that comes first which takes least if generated code takes as many
    times more than predicted as it may take less; the others come where they are promising, or where nothing else
    is to be measured. Of those that are as fast, but for the share `noise`, and round no more, the one that computes least is taken: what a
    clock tells apart so little another day turns round.

    Candidates are measured in the order of what is known and predicted of their kernels, as long as they can take less than the best known
    time, predictions being at most `DOUBT` or `GENERATED_DOUBT` times too high, and fewer than `most` kernels have been measured and time.monotonic()
    is before `until`, which is at least `least_s` seconds after the candidates were made. Making them has a share of the time, too: forms that
    promise least may be left out, and with `most` 0 all but the originals are. What was not measured is not chosen, except the original, whose
    prediction others must then undercut, and, `assuming`, a candidate of which most was measured when time was over, if it is faster though what is
    left of it takes as many times more than predicted as it may. Where another way is known to take `known_s` seconds, the original is not measured,
    and what is predicted to take longer than that is not either. `learned` stands for predictions where it says something.
    What is to be measured next is first predicted `closely`, so that what the code computes again and again does not look cheap. What is `known` of
    forms as kernels need not be made. Ways part by part that take longer than the fastest by what their kernels take `at_least` are not predicted.
    What cannot take less than `beaten_s` seconds, in which an earlier choice does it, is not measured, and `within` runs a kernel no more often than
    it takes to see that it is of no use. Where something is predicted to take less than `PROMISED` of all that is known, measuring has `promised_s`
    seconds at least: to look for more before that is measured would be to look again and again. What takes more, and longer than `long_s` seconds, is
    not measured: looking for more comes before what takes seconds and may be no gain.
    """
    begin = time.monotonic()
    forms = forms if most else [f for f in forms if f.unchanged]
    with stage("making candidates"):
        end = begin + MAKING_SHARE * max(until - begin, least_s) if until < inf else inf
        ranked, complete, wanted = made(forms, estimate, learned, end, most, known, at_least)
    ranked = _beside(known_s, ranked)
    originals = [c for c in ranked if c.original]
    assert originals, "the plain form is always a candidate"
    until = max(until, time.monotonic() + least_s) if least_s else until
    trials = Trials(ranked, measure, until, closely, within)
    if known_s == inf:
        trials.originals(originals, enough=bool(most))
    trials.settle(originals)
    enough = trials.measured + most
    others_s = min(known_s, beaten_s)
    best = _fastest(originals)
    if promised_s and trials.promises(PROMISED * min(best.cost, others_s)):
        trials.until = max(trials.until, time.monotonic() + promised_s)
    best = trials.fastest(best, others_s, enough, long_s, PROMISED)
    if most and assuming and (time.monotonic() >= trials.until or None in trials.known.values()):
        best = trials.surely_faster(best, others_s)
    unmeasured = bool(most) and (not wanted or trials.left_out(enough, min(best.cost, others_s)))
    trials.settle(ranked)
    original = _fastest(originals)
    best = _decided(best, original, ranked, original.cost * (1 - gain), noise)
    ordered = sorted(ranked, key=lambda c: (c.measured, c.predicted))
    hurried = not complete or time.monotonic() >= trials.until or None in trials.known.values()
    return Choice(expression, ordered, original, best, forms=len(forms), hurried=hurried, unmeasured=unmeasured)


def first_tried(forms: Sequence[Form], estimate: Estimate, known: Builds, at_least: Estimate | None = None) -> Candidate:
    """Of the ways to run the original that which is measured first, as far as predictions tell; what is made of forms is noted in `known`."""
    with stage("making candidates"):
        ranked, *_ = made([f for f in forms if f.unchanged], estimate, None, inf, 0, known, at_least)
    return min((c for c in ranked if c.original), key=_cautiously)


def _decided(best: Candidate, original: Candidate, ranked: Sequence[Candidate], limit: float, noise: float) -> Candidate:
    """The original, or within a limit the one that computes least of those that are as fast as the best."""
    if best is original or best.refused or best.cost > limit:
        return original
    return least_of_equals(best, ranked, noise, limit)


def draw(expression: Scope, forms: Sequence[Form], estimate: Estimate, runs: Callable[[Kernel], bool], rng: Random) -> Choice:
    """Any candidate whose kernels all `runs`, at random, a derived one where there is one; nothing is measured.

    For tests: what is fast here is chosen again and again, and what is slow here is somebody else's program. Which candidates there are, and which of
    the original ones stands beside the drawn one, hangs on what is counted of them alone, as the same is drawn on every machine. What would work for
    seconds, and for `MOST_TIMES` as long as that original, is not drawn: nobody waits for it.
    """
    ranked = candidates(forms, counted_work)
    known: dict[Kernel, bool] = {}

    def possible(c: Candidate) -> bool:
        return all(known[k] if k in known else known.setdefault(k, runs(k)) for k in c.kernels)

    original = next((c for c in ranked if c.original and possible(c)), None) or next(c for c in ranked if c.original)
    limit = max(MOST_TIMES * original.predicted, A_SECOND)
    by_form: dict[str, list[Candidate]] = {}
    for c in sorted(ranked, key=lambda c: (c.form.key, c.way)):
        if not c.original:
            by_form.setdefault(c.form.key, []).append(c)
    drawn = (c for ways in rng.sample(list(by_form.values()), len(by_form)) for c in rng.sample(ways, len(ways)))
    best = next((c for c in drawn if c.predicted <= limit and possible(c)), original)
    predict(ranked, estimate)
    return Choice(expression, sorted(ranked, key=lambda c: c.predicted), original, best, forms=len(forms))


def _beside(known_s: float, made: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that may stand beside another way of so many seconds: where there is one, what does not derive anything runs as it is."""
    return [c for c in made if known_s == inf or not c.original or not c.way[1]]


def _fastest(originals: Sequence[Candidate]) -> Candidate:
    """The fastest that was measured, else that which is predicted to be, generated code being as much slower as it may be faster; none of which a
    kernel is refused, if there is another."""
    return min(originals, key=lambda c: (c.measured, bool(c.refused), _cautiously(c), c.predicted))


def least_of_equals(best: Candidate, ranked: Sequence[Candidate], noise: float, limit: float = inf) -> Candidate:
    """The derived candidate that computes least of those that were measured as fast as the best but for a share, within a limit, and whose steps are
    of no worse class."""
    most = min(best.measured * (1 + noise), limit)
    kinds = kinds_of(best.form.steps)
    fast = (c for c in ranked if c.measured <= most and not c.original and not c.refused)
    equals = [c for c in fast if worst(kinds | kinds_of(c.form.steps)) == worst(kinds)]
    return min(equals, key=lambda c: (flops(c.form.tree), c.measured), default=best) if best.measured < inf else best


def _cautiously(c: Candidate) -> float:
    """Seconds that a candidate which nobody could measure is to be taken for."""
    return sum(s * (GENERATED_DOUBT if isinstance(k, EOperator) else 1.0) for k, s in zip(c.kernels, c.expected, strict=True))
