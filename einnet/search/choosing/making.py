"""Forms as candidates, by what they are predicted to take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf

from einnet.expr.integers import BYTES, holds
from einnet.instantiate.build import Build, Builds
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.instantiate.kernels.posts import QUANTISED
from einnet.instantiate.row_fusion import in_one_kernel
from einnet.search.choosing.candidate import DOUBT, GENERATED_DOUBT, OUT, Candidate, Estimate, Learned
from einnet.search.forms import Form, effort

MOST_FORMS = 400
"""Derived forms that are made into kernels; of more, those that cost least."""

AT_ONCE = 32
"""Forms that are made one after the other: where none of so many is among the fastest, those that promise less are not made."""

FIRST_AT_ONCE = 8
"""The same of the model's own operators where only these are wanted: every subprogram waits until all have been looked at."""

MOST_DIVIDED = 32
"""Candidates of a subprogram that are tried part by part, beside the originals."""


def candidates(forms: Sequence[Form], estimate: Estimate, learned: Learned | None = None) -> list[Candidate]:
    """Every form as kernels, by predicted cost; two forms with the same kernels are one candidate, known as an original or by the shorter derivation.

    The originals, and those `MOST_DIVIDED` that are predicted to be fastest, are also run part by part. What is `learned` elsewhere goes before
    what is estimated.
    """
    return made(forms, estimate, learned, inf)[0]


def made(
    forms: Sequence[Form], estimate: Estimate, learned: Learned | None, until: float, most: float = inf, known: Builds | None = None,
    at_least: Estimate | None = None,
) -> tuple[list[Candidate], bool, bool]:  # fmt: skip
    """The candidates; whether there was time for all, which there is not when time.monotonic() reaches `until`; and whether all were wanted.

    Forms that promise less than others of which none is among the `most` fastest are not.
    """
    making = Making(estimate, learned, known or Builds(OUT), at_least)
    complete, wanted, at_once = True, True, AT_ONCE if most else FIRST_AT_ONCE
    for kind in (_own(forms), promising(forms)[:MOST_FORMS]):
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
class Making:
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
        predict((c for c in self.found.values() if not c.expected), self.estimate, self.learned)

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
        kernels = list(dict.fromkeys(k for c in waiting.values() for k in c.build.counts))
        least = dict(zip(kernels, self.at_least(kernels)))
        for key, c in waiting.items():
            if sum(least[k] * count for k, count in c.build.counts.items()) >= DOUBT * fastest[c.original]:
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


def promising(forms: Iterable[Form]) -> list[Form]:
    """The forms that some derivation led to: by turns that which costs least and that which does so where starting kernels takes no time, of which
    nobody knows how many there will be."""
    derived = [f for f in forms if not f.unchanged]
    orders = (sorted(derived, key=effort), sorted(derived, key=lambda f: effort(f, launches=False)))
    return list({id(f): f for pair in zip(*orders, strict=True) for f in pair}.values())


def predict(unknown: Iterable[Candidate], estimate: Estimate, learned: Learned | None = None) -> None:
    """Fill in what is predicted; predictions may be `DOUBT` times too high, those of generated code `GENERATED_DOUBT` times."""
    wanted = list(unknown)
    kernels = list(dict.fromkeys(k for c in wanted for k in c.build.counts))
    cost = dict(zip(kernels, estimate(kernels)))
    for c in wanted:
        c.expected = tuple(cost[k] for k in c.kernels)
        c.least = tuple(s / (GENERATED_DOUBT if isinstance(k, EOperator) else DOUBT) for k, s in zip(c.kernels, c.expected))
        told = learned(c) if learned else None
        if told:
            c.expected, c.least = tuple(told[0]), tuple(told[1])
        c.predicted = sum(c.expected)
