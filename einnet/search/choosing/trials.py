"""Candidates being measured."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from einnet.derivation.matrix_steps import has_matrix
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.search.choosing.candidate import COUNTED_DOUBT, GENERATED_DOUBT, Candidate, Estimate, Measure, Within

MOST_COUNTED = 128
"""Kernels of a subprogram that are predicted from what is written for them: it takes longer than to count an expression's operations."""

MOSTLY = 0.5
"""Share of a candidate's time that has to be measured, where there was no time for all of it."""


def counted_doubt(kernel: Kernel) -> float:
    """How many times too high a prediction from what is written may be.

    Of straight-line code for small matrices the compiler makes more than of loops, as sums stay in registers.
    """
    straight = isinstance(kernel, EOperator) and any(map(has_matrix, kernel.scope.parts))
    return GENERATED_DOUBT if straight else COUNTED_DOUBT


class Trials:
    """Candidates being measured kernel by kernel: what is known of one tells of all that have it in common."""

    def __init__(
        self, ranked: Sequence[Candidate], measure: Measure, until: float, closely: Estimate | None = None, within: Within | None = None
    ) -> None:  # fmt: skip
        self._measure, self.until, self._closely, self._within = measure, until, closely, within
        self._counted: set[int] = set()
        self._ranked, self._waiting = ranked, list(ranked)
        self.known: dict[Kernel, float | None] = {}
        self._longer: set[Kernel] = set()
        self.postponed = False
        """Something that can be faster was not measured, as it takes long and promises little."""
        numbers: dict[Kernel, int] = {}
        self._places = {id(c): {numbers.setdefault(k, len(numbers)): n for k, n in c.build.counts.items()} for c in ranked}
        self._kernels = list(numbers)
        self._most = {numbers[k]: s for c in ranked for k, s in zip(c.kernels, c.expected, strict=True)}
        self._least = {numbers[k]: s for c in ranked for k, s in zip(c.kernels, c.least, strict=True)}

    @property
    def measured(self) -> int:
        """Kernels that were measured and can run, if only to see that they take too long."""
        return sum(t is not None and t < inf for t in self.known.values()) + len(self._longer - self.known.keys())

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
        if self.known.get(self._kernels[n]) is not None or not isinstance(self._kernels[n], EOperator):
            return 1.0
        return counted_doubt(self._kernels[n]) if n in self._counted else GENERATED_DOUBT

    def count(self, c: Candidate) -> bool:
        """Predict the generated kernels of a candidate from what is written for them; whether there were any of which that was not done."""
        left = [n for n in self._places[id(c)] if n not in self._counted and isinstance(self._kernels[n], EOperator)]
        new = [n for n in left if self._kernels[n] not in self.known][: MOST_COUNTED - len(self._counted)]
        if not new or self._closely is None or time.monotonic() >= self.until:
            return False
        self._counted.update(new)
        for n, seconds in zip(new, self._closely([self._kernels[n] for n in new]), strict=True):
            self._most[n], self._least[n] = seconds, seconds / counted_doubt(self._kernels[n])
        told = {self._kernels[n]: self._most[n] for n in self._counted if self._kernels[n] not in self.known}
        c.expected = tuple(told.get(k, s) for k, s in zip(c.kernels, c.expected, strict=True))
        c.predicted = sum(c.expected)
        return True

    def promises(self, limit: float) -> bool:
        """Something that was not measured is predicted to take less than `limit` seconds."""
        found = self.next(limit)
        return found is not None and self.most(found) < limit

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

    def fastest(self, best: Candidate, known_s: float, end: int, long_s: float = inf, promised: float = 1.0) -> Candidate:
        """Measure what can be faster than the best, and than `known_s`, until `end` kernels are measured or time is out; the fastest then.

        What is predicted to take longer than `long_s`, and than its share `promised` of the best, is postponed, and all that promises less.
        """
        while self.measured < end and time.monotonic() < self.until:
            limit = min(best.cost, known_s)
            following = self.next(limit)
            if following is None:
                break
            self.postponed = self.most(following) > max(long_s, promised * limit)
            if self.postponed:
                break
            self.run(following, limit)
            if following.measured < best.cost:
                best = following
        return best

    def left_out(self, end: int, limit: float) -> bool:
        """Something may take less than `limit` seconds that was not measured: it was postponed, or there were to be no more kernels than `end`."""
        return self.postponed or (self.measured >= end and self.next(limit) is not None)

    def surely_faster(self, best: Candidate, known_s: float) -> Candidate:
        """The fastest of those of which most was measured and which take less than the best, and than `known_s`, though the generated kernels that
        are left of them take as many times more than predicted as they may; the best where there is none."""
        found, limit = best, min(best.cost, known_s)
        for c in self._ranked:
            left = self._left(c)
            total = self.cautiously(c)
            shown = sum(s for k, s in self._doubted(c) if k not in left)
            if left and all(isinstance(k, EOperator) for k in left) and total < limit and shown >= MOSTLY * total:
                found, limit = c, total
        if found is not best:
            found.assumed, found.seconds, found.measured = self._left(found), tuple(s for _, s in self._doubted(found)), limit
        return found

    def _left(self, c: Candidate) -> frozenset[Kernel]:
        """The kernels of a candidate that were not measured."""
        return frozenset(k for k in c.kernels if self.known.get(k) is None)

    def _doubted(self, c: Candidate) -> Iterator[tuple[Kernel, float]]:
        """The kernels of a candidate with what they are known to take, or may, each as often as it runs."""
        numbers = {self._kernels[n]: n for n in self._places[id(c)]}
        return ((k, self._most[numbers[k]] * self._doubt(numbers[k])) for k in c.kernels)

    def run(self, c: Candidate, limit: float) -> None:
        """Measure the candidate's kernels, until it is known to take `limit` seconds: libraries' first, as they need no compiler, and long ones."""
        places = self._places[id(c)]
        for n in sorted(places, key=lambda n: (isinstance(self._kernels[n], EOperator), -places[n] * self._most[n])):
            kernel = self._kernels[n]
            if limit < inf and self.least(c) >= limit:
                break
            if kernel not in self.known:
                self._time(n, (limit - self.least(c)) / places[n] + self._least[n] if limit < inf else inf)
        c.tried = True
        self._tell(c)

    def _time(self, n: int, limit: float) -> None:
        """Measure a kernel, whose time is of no interest where it is longer than a limit."""
        kernel = self._kernels[n]
        seconds, told = self._within(kernel, self.until, limit) if self._within else (self._measure([kernel], self.until)[0], True)
        if told:
            self.known[kernel] = seconds
            self._least[n] = inf if seconds is None else seconds
        else:
            assert seconds is not None, "what is not known takes longer than something"
            self._longer.add(kernel)
            self._least[n] = seconds
        self._most[n] = self._most[n] if seconds is None else max(seconds, self._least[n])

    def _tell(self, c: Candidate) -> None:
        """Say what a candidate takes whose kernels were all measured."""
        times = [t for k in c.kernels if (t := self.known.get(k)) is not None]
        if inf not in times and len(times) == len(c.kernels):
            c.seconds, c.measured = tuple(times), sum(times)

    def settle(self, ranked: Iterable[Candidate]) -> None:
        """Note of every candidate, tried or not, which of its kernels cannot run well, and what it takes where all of them were measured."""
        for c in ranked:
            self._tell(c)
            c.refused = frozenset(k for k in c.kernels if self.known.get(k) == inf)
            if c.refused:
                c.seconds = (inf,) * len(c.kernels)
