"""Candidates: the forms of one subprogram as kernels with a cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from random import Random

from einnet.derivation.steps import worst_kind
from einnet.expr.integers import BYTES, holds
from einnet.expr.nodes import Scope
from einnet.instantiate.build import Build, Builds
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.instantiate.kernels.posts import QUANTISED
from einnet.instantiate.row_fusion import in_one_kernel
from einnet.search.forms import Form, effort
from einnet.search.time_shares import MAKING_SHARE
from einnet.search.work import flops
from einnet.stages import stage

Estimate = Callable[[Sequence[Kernel]], Sequence[float]]
"""Seconds of one run of each kernel, at least."""
Measure = Callable[[Sequence[Kernel], float], Sequence[float | None]]
"""Measured seconds, inf for a kernel that cannot run well, None where measuring would not be done when time.monotonic() is the second argument
or memory does not suffice. The search knows no device beyond these two functions."""

COUNTED_DOUBT = 2.5
"""Those that follow from what is written: compilers and caches still make more or less of it."""

MOST_COUNTED = 128
"""Kernels of a subprogram that are predicted from what is written for them: it takes longer than to count an expression's operations."""

Learned = Callable[["Candidate"], tuple[Sequence[float], Sequence[float]] | None]
"""Seconds of each kernel of a candidate as the same candidate at other sizes lets one expect them, and at least; None where they tell nothing."""

OUT = "out"

MOST_FORMS = 400
"""Derived forms that are made into kernels; of more, those that cost least."""

AT_ONCE = 32
"""Forms that are made one after the other: where none of so many is among the fastest, those that promise less are not made."""

FIRST_AT_ONCE = 8
"""The same of the model's own operators where only these are wanted: every subprogram waits until all have been looked at."""

MOST_DIVIDED = 32
"""Candidates of a subprogram that are tried part by part, beside the originals."""

GAIN = 0.03
"""Share of its time by which another has to be faster than the original."""

DOUBT = 1.2
"""Predictions may be this much too high."""

GENERATED_DOUBT = 4.0
"""Those of generated code: loops over what a cache holds take a fraction of what the same loops take over memory, and no roofline says which."""

MOSTLY = 0.5
"""Share of a candidate's time that has to be measured, where there was no time for all of it."""


@dataclass
class Candidate:
    """One way to run a subprogram. `predicted` and `measured` are seconds of all its kernels; measured is inf unless all were measured.

    `expected` and `seconds` are those of each kernel, predicted and measured; `least` is what it takes in any case, `refused` are its kernels
    that cannot run well, and `assumed` those that time did not suffice to measure: their seconds are predicted, and doubted. `way` says which of the
    ways to run its form it is, whatever the sizes.
    """

    form: Form
    build: Build
    way: tuple[bool, int] = (True, 0)
    expected: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    predicted: float = inf
    measured: float = inf
    seconds: tuple[float, ...] = ()
    refused: frozenset[Kernel] = frozenset()
    assumed: frozenset[Kernel] = frozenset()
    tried: bool = False

    @property
    def cost(self) -> float:
        """Seconds as far as they are known: measured, else predicted."""
        return self.measured if self.measured < inf or (self.tried and self.seconds) else self.predicted

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels as far as their cost depends on them: parts of a batch are equal."""
        return self.build.priced

    @property
    def original(self) -> bool:
        """No derivation step but normalisation and the numbering of loops: the operators as the model has them."""
        return self.form.unchanged

    @property
    def rules(self) -> list[str]:
        """The rules of the derivation, in order."""
        return [s.rule for s in self.form.steps]


@dataclass
class Choice:
    """What was found for one subprogram: the candidates by cost, best first, the original among them.

    `hurried`: more time would have found more, or measured more of it; `unmeasured`: more would have been made or measured of what may be faster,
    had not enough been measured. `depth` is how far was searched, `stopped_at` the number of states at which
    a budget ended that.
    """

    expression: Scope
    candidates: list[Candidate]
    original: Candidate
    best: Candidate
    states: int = 0
    forms: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    hurried: bool = False
    unmeasured: bool = False
    depth: int = 0
    stopped_at: int | None = None


def candidates(forms: Sequence[Form], estimate: Estimate, learned: Learned | None = None) -> list[Candidate]:
    """Every form as kernels, by predicted cost; two forms with the same kernels are one candidate, known as an original or by the shorter derivation.

    The originals, and those `MOST_DIVIDED` that are predicted to be fastest, are also run part by part. What is `learned` elsewhere goes before
    what is estimated.
    """
    return _made(forms, estimate, learned, inf)[0]


def _made(
    forms: Sequence[Form], estimate: Estimate, learned: Learned | None, until: float, most: float = inf, known: Builds | None = None,
    at_least: Estimate | None = None,
) -> tuple[list[Candidate], bool, bool]:  # fmt: skip
    """The candidates; whether there was time for all, which there is not when time.monotonic() reaches `until`; and whether all were wanted.

    Forms that promise less than others of which none is among the `most` fastest are not.
    """
    making = _Making(estimate, learned, known or Builds(OUT), at_least)
    complete, wanted, at_once = True, True, AT_ONCE if most else FIRST_AT_ONCE
    for kind in (_own(forms), _promising(forms)[:MOST_FORMS]):
        before: list[float] = []
        for n, form in enumerate(kind):
            if time.monotonic() >= until and not form.unchanged:
                complete = False
                break
            making.add(form)
            if most < inf and n % at_once == at_once - 1:
                fastest = making.fastest(int(most))
                if fastest == before:
                    wanted = wanted and n == len(kind) - 1
                    break
                before = fastest
    making.divide()
    return sorted(filter(_shown_whole, making.found.values()), key=lambda c: c.predicted), complete, wanted


@dataclass
class _Making:
    """Candidates by their kernels and weights, and of the forms that they are of what gives more ways to run them."""

    estimate: Estimate
    learned: Learned | None
    builds: Builds
    at_least: Estimate | None = None
    found: dict[tuple[object, ...], Candidate] = field(default_factory=dict)
    whole: dict[tuple[object, ...], tuple[Form, bool, Iterator[tuple[int, Build]]]] = field(default_factory=dict)

    def add(self, form: Form) -> None:
        """The first way to run a form, with and without epilogues; and the one in one kernel, which says nothing of the first."""
        for epilogues in (True, False) if form.matches else (True,):
            ways = self.builds.of(form.tree, form.matches, epilogues)
            key = self.note(form, next(ways)[1], (epilogues, 0))
            if self.found[key].form is form:
                self.whole[key] = form, epilogues, ways
                if in_one_kernel(form.tree, bool(form.matches)):
                    number, made = next(ways)
                    self.note(form, made, (epilogues, number))

    def note(self, form: Form, made: Build, way: tuple[bool, int]) -> tuple[object, ...]:
        """A candidate, if none has the same kernels that is an original or derived in fewer steps."""
        key = (*made.kernels, *sorted(made.weights))
        if key not in self.found or _rank(self.found[key].form) > _rank(form):
            self.found[key] = Candidate(form, made, way)
        return key

    def predict(self) -> None:
        """Say what those take of which that was not said yet."""
        _predict((c for c in self.found.values() if not c.expected), self.estimate, self.learned)

    def fastest(self, most: int) -> list[float]:
        """What the fastest are predicted to take: of the originals and of the others, as one is measured in any case."""
        self.predict()
        return [c for own in (True, False) for c in nsmallest(max(most, 1), (f.predicted for f in self.found.values() if f.original == own))]

    def divide(self) -> None:
        """The originals, and those that are predicted to be fastest, part by part."""
        self.predict()
        ranked = sorted(self.whole, key=lambda key: (not self.found[key].original, self.found[key].predicted))
        originals = sum(c.original for c in self.found.values())
        for form, epilogues, ways in [self.whole[key] for key in ranked[: originals + MOST_DIVIDED]]:
            for n, made in ways:
                self.note(form, made, (epilogues, n))
        self.drop()
        self.predict()

    def drop(self) -> None:
        """Forget what was not predicted yet and surely takes longer than an original, or for others than any, is predicted to: most ways part by part
        read and write more than the fastest candidate takes, and how long their kernels compute takes long to say."""
        waiting = {key: c for key, c in self.found.items() if not c.expected}
        if self.at_least is None or self.learned or not waiting:
            return
        fastest = {own: min((c.predicted for c in self.found.values() if c.expected and c.original >= own), default=inf) for own in (True, False)}
        kernels = list(dict.fromkeys(k for c in waiting.values() for k in c.kernels))
        least = dict(zip(kernels, self.at_least(kernels)))
        for key, c in waiting.items():
            if sum(least[k] for k in c.kernels) >= DOUBT * fastest[c.original]:
                del self.found[key]


def _shown_whole(c: Candidate) -> bool:
    """What may be stored as bytes is shown to be by the kernels that write it, each by itself: of what others left, none knows that it is whole."""
    dtype = next((name for name in BYTES if holds(name, c.form.start)), None)
    last = (k for k in c.build.kernels if any(v.buffer == OUT for v in k.result_views))
    return c.original or dtype is None or all(_writes_whole(k, dtype) for k in last)


def _writes_whole(kernel: Kernel, dtype: str) -> bool:
    """The kernel's own expression shows that it writes numbers of a type of integers."""
    return holds(dtype, kernel.scope) if isinstance(kernel, EOperator) else any(p.kind in QUANTISED for p in kernel.posts[-1:])


def _rank(form: Form) -> tuple[bool, int]:
    return not form.unchanged, len(form.steps)


def _own(forms: Iterable[Form]) -> list[Form]:
    """The forms that nothing was derived for, generated code first, which can always run, then those that cost least."""
    return sorted((f for f in forms if f.unchanged), key=lambda f: (bool(f.matches), effort(f)))


def _promising(forms: Iterable[Form]) -> list[Form]:
    """The forms that some derivation led to: by turns that which costs least and that which does so where starting kernels takes no time, of which
    nobody knows how many there will be."""
    derived = [f for f in forms if not f.unchanged]
    orders = (sorted(derived, key=effort), sorted(derived, key=lambda f: effort(f, launches=False)))
    return list({id(f): f for pair in zip(*orders, strict=True) for f in pair}.values())


def _predict(unknown: Iterable[Candidate], estimate: Estimate, learned: Learned | None) -> None:
    """Fill in what is predicted; predictions may be `DOUBT` times too high, those of generated code `GENERATED_DOUBT` times."""
    wanted = list(unknown)
    kernels = list(dict.fromkeys(k for c in wanted for k in c.kernels))
    cost = dict(zip(kernels, estimate(kernels)))
    for c in wanted:
        c.expected = tuple(cost[k] for k in c.kernels)
        c.least = tuple(s / (GENERATED_DOUBT if isinstance(k, EOperator) else DOUBT) for k, s in zip(c.kernels, c.expected))
        told = learned(c) if learned else None
        if told:
            c.expected, c.least = tuple(told[0]), tuple(told[1])
        c.predicted = sum(c.expected)


def choose(
    expression: Scope, forms: Sequence[Form], estimate: Estimate, measure: Measure, *, most: int = 32, gain: float = GAIN, until: float = inf,
    least_s: float = 0.0, known_s: float = inf, learned: Learned | None = None, closely: Estimate | None = None, known: Builds | None = None,
    at_least: Estimate | None = None, noise: float = GAIN,
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
    prediction others must then undercut, and a candidate of which most was measured when time was over, if it is faster though what is left of it
    takes as many times more than predicted as it may. Where another way is known to take `known_s` seconds, the original is not measured, and what is
    predicted to take longer than that is not either. `learned` stands for predictions where it says something.
    What is to be measured next is first predicted `closely`, so that what the code computes again and again does not look cheap. What is `known` of
    forms as kernels need not be made. Ways part by part that take longer than the fastest by what their kernels take `at_least` are not predicted.
    """
    begin = time.monotonic()
    forms = forms if most else [f for f in forms if f.unchanged]
    with stage("making candidates"):
        end = begin + MAKING_SHARE * max(until - begin, least_s) if until < inf else inf
        made, complete, wanted = _made(forms, estimate, learned, end, most, known, at_least)
    ranked = _beside(known_s, made)
    originals = [c for c in ranked if c.original]
    assert originals, "the plain form is always a candidate"
    until = max(until, time.monotonic() + least_s) if least_s else until
    trials = _Trials(ranked, measure, until, closely)
    if known_s == inf:
        trials.originals(originals, enough=bool(most))
    trials.refuse(originals)
    enough = trials.measured + most
    best = trials.fastest(_fastest(originals), known_s, enough)
    if most and (time.monotonic() >= until or None in trials.known.values()):
        best = trials.surely_faster(best, known_s)
    unmeasured = bool(most) and (not wanted or (trials.measured >= enough and trials.next(min(best.cost, known_s)) is not None))
    trials.refuse(ranked)
    original = _fastest(originals)
    if best.refused or best.cost > original.cost * (1 - gain):
        best = original
    best = least_of_equals(best, ranked, noise, original.cost * (1 - gain)) if best is not original else best
    ordered = sorted(ranked, key=lambda c: (c.measured, c.predicted))
    hurried = not complete or time.monotonic() >= until or None in trials.known.values()
    return Choice(expression, ordered, original, best, forms=len(forms), hurried=hurried, unmeasured=unmeasured)


def draw(expression: Scope, forms: Sequence[Form], estimate: Estimate, runs: Callable[[Kernel], bool], rng: Random) -> Choice:
    """Any candidate whose kernels all `runs`, at random, a derived one where there is one; nothing is measured.

    For tests: what is fast here is chosen again and again, and what is slow here is somebody else's program.
    """
    ranked = candidates(forms, estimate)
    known: dict[Kernel, bool] = {}

    def possible(c: Candidate) -> bool:
        return all(known[k] if k in known else known.setdefault(k, runs(k)) for k in c.kernels)

    original = next((c for c in ranked if c.original and possible(c)), None) or next(c for c in ranked if c.original)
    by_form: dict[str, list[Candidate]] = {}
    for c in sorted(ranked, key=lambda c: (c.form.key, c.way)):
        if not c.original:
            by_form.setdefault(c.form.key, []).append(c)
    drawn = (c for ways in rng.sample(list(by_form.values()), len(by_form)) for c in rng.sample(ways, len(ways)))
    return Choice(expression, ranked, original, next(filter(possible, drawn), original), forms=len(forms))


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
    most, worst = min(best.measured * (1 + noise), limit), worst_kind(best.form.steps)
    equals = [c for c in ranked if c.measured <= most and not c.original and not c.refused and worst_kind(c.form.steps) <= worst]
    return min(equals, key=lambda c: (flops(c.form.tree), c.measured), default=best) if best.measured < inf else best


def _cautiously(c: Candidate) -> float:
    """Seconds that a candidate which nobody could measure is to be taken for."""
    return sum(s * (GENERATED_DOUBT if isinstance(k, EOperator) else 1.0) for k, s in zip(c.kernels, c.expected, strict=True))


class _Trials:
    """Candidates being measured kernel by kernel: what is known of one tells of all that have it in common."""

    def __init__(self, ranked: Sequence[Candidate], measure: Measure, until: float, closely: Estimate | None = None) -> None:
        self._measure, self._until, self._closely = measure, until, closely
        self._counted: set[int] = set()
        self._ranked, self._waiting = ranked, list(ranked)
        self._late: dict[int, float] = {}
        """What is predicted of kernels that there was no time to measure."""
        self.known: dict[Kernel, float | None] = {}
        self._numbers = numbers = dict[Kernel, int]()
        self._places = {id(c): Counter(numbers.setdefault(k, len(numbers)) for k in c.kernels) for c in ranked}
        self._kernels = list(numbers)
        self._most = {numbers[k]: s for c in ranked for k, s in zip(c.kernels, c.expected, strict=True)}
        self._least = {numbers[k]: s for c in ranked for k, s in zip(c.kernels, c.least, strict=True)}

    @property
    def measured(self) -> int:
        """Kernels that were measured and can run."""
        return sum(t is not None and t < inf for t in self.known.values())

    def least(self, c: Candidate) -> float:
        """Seconds that a candidate takes at least, as far as is known; inf where a kernel of it cannot be run or measured."""
        return sum(count * self._least[n] for n, count in self._places[id(c)].items())

    def next(self, limit: float) -> Candidate | None:
        """The most promising candidate of those that can take less than `limit` seconds, as it still is when it is predicted closely."""
        while True:
            self._waiting = [c for c in self._waiting if not c.tried and self.least(c) < limit]
            found = min(self._waiting, key=self.most, default=None)
            if found is None or not self.count(found):
                return found

    def most(self, c: Candidate) -> float:
        """Seconds that a candidate is known or predicted to take."""
        return sum(count * self._most[n] for n, count in self._places[id(c)].items())

    def cautiously(self, c: Candidate) -> float:
        """The same where generated code takes as many times more than predicted as it may take less."""
        return sum(count * self._most[n] * self._doubt(n) for n, count in self._places[id(c)].items())

    def _doubt(self, n: int) -> float:
        """How many times more than predicted a kernel may take."""
        if self._kernels[n] in self.known or not isinstance(self._kernels[n], EOperator):
            return 1.0
        return self._doubted(n)

    def count(self, c: Candidate) -> bool:
        """Predict the generated kernels of a candidate from what is written for them; whether there were any of which that was not done."""
        left = [n for n in self._places[id(c)] if n not in self._counted and isinstance(self._kernels[n], EOperator)]
        new = [n for n in left if self._kernels[n] not in self.known][: MOST_COUNTED - len(self._counted)]
        if not new or self._closely is None or time.monotonic() >= self._until:
            return False
        self._counted.update(new)
        for n, seconds in zip(new, self._closely([self._kernels[n] for n in new]), strict=True):
            self._most[n], self._least[n] = seconds, seconds / COUNTED_DOUBT
        told = {self._kernels[n]: self._most[n] for n in self._counted if self._kernels[n] not in self.known}
        c.expected = tuple(told.get(k, s) for k, s in zip(c.kernels, c.expected, strict=True))
        c.predicted = sum(c.expected)
        return True

    def originals(self, ways: Sequence[Candidate], enough: bool) -> None:
        """Measure the ways to run the original that can be the fastest of them; the first that can be measured is `enough`, or is not."""
        waiting = list(ways)
        while (first := min(o.measured for o in ways)) == inf or not enough:
            waiting = [c for c in waiting if not c.tried and self.least(c) < first]
            c = min(waiting, key=self.cautiously, default=None)
            if c is None:
                break
            if not self.count(c):
                self.run(c, first)

    def fastest(self, best: Candidate, known_s: float, end: int) -> Candidate:
        """Measure what can be faster than the best, and than `known_s`, until `end` kernels are measured or time is out; the fastest then."""
        while self.measured < end and time.monotonic() < self._until:
            limit = min(best.cost, known_s)
            following = self.next(limit)
            if following is None:
                break
            self.run(following, limit)
            if following.measured < best.cost:
                best = following
        return best

    def surely_faster(self, best: Candidate, known_s: float) -> Candidate:
        """The fastest of those of which most was measured and which take less than the best, and than `known_s`, though the generated kernels that
        are left of them take as many times more than predicted as they may; the best where there is none."""
        found, limit = best, min(best.cost, known_s)
        times, assumed = dict[int, float](), list[int]()
        for c in self._ranked:
            places = self._places[id(c)]
            left = [n for n in places if self.known.get(self._kernels[n]) is None]
            if not left or not all(isinstance(self._kernels[n], EOperator) for n in left):
                continue
            each = {n: self._late.get(n, self._most[n]) * self._doubted(n) if n in left else self._most[n] for n in places}
            total = sum(count * each[n] for n, count in places.items())
            if total < limit and sum(places[n] * each[n] for n in left) <= (1 - MOSTLY) * total:
                limit, found, times, assumed = total, c, each, left
        if found is not best:
            found.assumed = frozenset(self._kernels[n] for n in assumed)
            found.seconds, found.measured = tuple(times[self._numbers[k]] for k in found.kernels), limit
        return found

    def _doubted(self, n: int) -> float:
        """How many times more than predicted a generated kernel may take."""
        return COUNTED_DOUBT if n in self._counted else GENERATED_DOUBT

    def run(self, c: Candidate, limit: float) -> None:
        """Measure the candidate's kernels, until it is known to take `limit` seconds: libraries' first, as they need no compiler, and long ones."""
        places = self._places[id(c)]
        for n in sorted(places, key=lambda n: (isinstance(self._kernels[n], EOperator), -places[n] * self._most[n])):
            kernel = self._kernels[n]
            if limit < inf and self.least(c) >= limit:
                break
            if kernel not in self.known:
                (seconds,) = self._measure([kernel], self._until)
                self.known[kernel] = seconds
                if seconds is None:
                    self._late[n] = self._most[n]
                self._most[n] = self._least[n] = inf if seconds is None else seconds
        c.tried = True
        times = [t for k in c.kernels if (t := self.known.get(k)) is not None]
        if inf not in times and len(times) == len(c.kernels):
            c.seconds, c.measured = tuple(times), sum(times)

    def refuse(self, ranked: Iterable[Candidate]) -> None:
        """Note of every candidate, tried or not, which of its kernels cannot run well."""
        for c in ranked:
            c.refused = frozenset(k for k in c.kernels if self.known.get(k) == inf)
            if c.refused:
                c.seconds = (inf,) * len(c.kernels)
