"""Times as medians with their spread, and interleaved comparisons with a noise floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from einnet.runtime.contention import CORES, waited

SAMPLE_S = 0.001
"""Seconds of calls in one sample."""

SLOW_S = 0.25
"""Seconds of a call that needs no other call to be warm, where it was called before."""

WARMING, MOST_WARMING = 0.8, 4
"""The first calls, by which memory is taken from the system: they are repeated while each takes less than so much of the one before, so often."""

PAUSE_S = 0.002
"""Longer than the threads of an idle pool spin."""

TOLERATED = 0.02
"""Share of a sample's time for which threads may have waited for a core."""

SURE = 2.0
"""Standard errors that a difference has to have."""

LEAST_SIGNS = 6
"""Rounds that are enough to count those that are below a limit."""

STANDARD_ERROR = 1.86
"""Of a median of n samples whose quartiles are 2 apart, times sqrt(n), for normal samples: 1.2533 / 0.6745."""


class AtLeast(float):
    """Seconds that something takes at least, where no more was worth knowing."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: the median of `n` samples and half the distance between their quartiles. An estimate has n = 0.

    `clean` is False where other programs disturbed every sample; the median is then the fastest one, an upper bound.
    """

    median: float
    spread: float
    n: int
    clean: bool = True

    @property
    def estimated(self) -> bool:
        return self.n == 0


def summarize(samples: Sequence[float]) -> Timing:
    """Median and quartiles of at least one sample."""
    if len(samples) < 2:
        return Timing(float(samples[0]), 0.0, 1)
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(float(middle), float(high - low) / 2, len(samples))


@dataclass(frozen=True)
class Comparison:
    """Samples of several callables taken in turns. `again` are those of the first one, run a second time in every round.

    `clean` is False where other programs disturbed the rounds.
    """

    samples: Mapping[str, tuple[float, ...]]
    again: tuple[float, ...]
    clean: bool = True

    @property
    def timings(self) -> dict[str, Timing]:
        """By name; of disturbed rounds the fastest sample, since what others do only adds to a time."""
        found = {name: summarize(s) for name, s in self.samples.items()}
        return found if self.clean else {name: replace(t, median=min(self.samples[name]), clean=False) for name, t in found.items()}

    def ratio(self, name: str, base: str) -> Timing:
        """time(name) / time(base), round by round."""
        return summarize([a / b for a, b in zip(self.samples[name], self.samples[base], strict=True)])

    def faster(self, name: str, base: str, gain: float = 0.0) -> bool:
        """`name` takes less than 1 - gain of `base`'s time, and that is no chance.

        The median ratio has to be below the limit by `SURE` standard errors, which are as small as rounds are many and alike. On a busy machine a
        few rounds are many times longer than others, and no spread is small: there so many rounds have to be below the limit that, were their
        median above it, it would be as rare a chance. Where others disturbed the rounds, the fastest samples have to agree. One or two rounds
        have no spread: there the noise stands for it.
        """
        ratio, times, limit = self.ratio(name, base), self.timings, 1 - gain
        doubt = SURE * STANDARD_ERROR * ratio.spread / sqrt(ratio.n) if ratio.n > 2 else self.noise
        below = sum(a < limit * b for a, b in zip(self.samples[name], self.samples[base], strict=True))
        sure = ratio.median + doubt < limit or (ratio.n >= LEAST_SIGNS and below >= ratio.n / 2 + SURE * sqrt(ratio.n) / 2)
        return sure and times[name].median < limit * times[base].median

    def merged(self, names: Sequence[str], name: str) -> Comparison:
        """The comparison with some of its callables, which are one thing, as one of this name: of every round the faster sample counts."""
        rows = zip(*(self.samples[n] for n in names), strict=True)
        others = {n: s for n, s in self.samples.items() if n not in names}
        return replace(self, samples={**others, name: tuple(map(min, rows))})

    def after(self, earlier: Comparison) -> Comparison:
        """The rounds of an earlier comparison and these, of what both have."""
        both = {name: (*earlier.samples[name], *s) for name, s in self.samples.items() if name in earlier.samples}
        return Comparison(both, (*earlier.again, *self.again), self.clean and earlier.clean)

    @property
    def noise(self) -> float:
        """How far a ratio may be from 1 and mean nothing: what the first callable shows against itself, median plus spread.

        At least 1 %; at least 5 % of one or two rounds, which have no spread to speak of.
        """
        first = next(iter(self.samples.values()))
        same = summarize([a / b for a, b in zip(self.again, first, strict=True)])
        return max(abs(same.median - 1) + same.spread, 0.01 if same.n > 2 else 0.05)


def compare(
    callables: Mapping[str, Callable[[], object]], budget_s: float = 2.0, *, least: int = 5, most: int = 1000,
    pause_s: float = PAUSE_S, warm_s: float = 0.0, sample_s: float = SAMPLE_S, rest: Mapping[str, Callable[[], None]] | None = None,
    awake_s: Mapping[str, float] | None = None,
) -> Comparison:  # fmt: skip
    """Time callables in turns, A B C A', A B C A'..., for as many rounds as `budget_s` seconds hold, at least one and at most `most`.

    Short calls are repeated inside a sample, so that a sample takes about `sample_s` at least; it is made of parts of `SAMPLE_S`, of which
    those that other programs disturbed do not count if there are others. Before each sample the waiting threads of the callable before it get
    `pause_s` to fall asleep, or what `awake_s` says, and the callable gets one call and `warm_s` to warm up: threads that slept may first
    share one core. A call of more than `SLOW_S` seconds warms itself. Rounds that were disturbed do not count if there are `least` others.
    `rest` names what each gives its memory back with after a sample, where all together would not fit.
    """
    start = time.perf_counter()
    turns = {name: _Turn(call, sample_s, warm_s, (rest or {}).get(name)) for name, call in callables.items()}
    names = (*callables, next(iter(callables)))
    pauses = [pause_s, *((awake_s or {}).get(before, pause_s) for before in callables)]  # before its own turn nothing stands in its way
    clean: list[list[float]] = []
    disturbed: list[list[float]] = []
    longest = 0.0
    while True:
        began = time.perf_counter()
        row = [turns[name].sample(pause) for name, pause in zip(names, pauses)]
        now = time.perf_counter()
        longest = max(longest, now - began)
        (clean if all(calm for _, calm in row) else disturbed).append([seconds for seconds, _ in row])
        if len(clean) >= most or now + longest > start + budget_s:
            break
    enough = len(clean) >= min(least, len(clean) + len(disturbed))
    columns = [tuple(column) for column in zip(*(clean if enough else clean + disturbed), strict=True)]
    return Comparison(dict(zip(callables, columns[:-1], strict=True)), columns[-1], enough)


class _Turn:
    """One callable of a comparison, called until its calls get no faster, to see how long they take."""

    def __init__(self, call: Callable[[], object], sample_s: float, warm_s: float, rest: Callable[[], None] | None) -> None:
        self.call, self.warm_s, self.rest = call, warm_s, rest
        seconds = self._once()
        for _ in range(MOST_WARMING):
            before, seconds = seconds, self._once()
            if seconds > WARMING * before:
                break
        self.repeats = max(1, min(10_000, round(SAMPLE_S / max(seconds, 1e-7))))
        self.parts = max(1, round(sample_s / max(self.repeats * seconds, 1e-7)))
        self.warms_itself = seconds > SLOW_S and rest is None
        if rest:
            rest()

    def _once(self) -> float:
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def sample(self, pause_s: float) -> tuple[float, bool]:
        """Seconds of a call, and whether other programs let the threads of this one run during some part of the sample, on cores that are near each
        other. Threads that told that sleep, too, before the sample."""
        time.sleep(pause_s)
        apart = CORES.apart()
        if CORES.probe is not None:
            time.sleep(PAUSE_S)
        if not self.warms_itself:
            end = time.perf_counter() + self.warm_s
            self.call()
            while time.perf_counter() < end:
                self.call()
        calm: list[float] = []
        disturbed: list[float] = []
        for _ in range(self.parts):
            seconds, lost = self._part()
            (calm if lost <= TOLERATED else disturbed).append(seconds)
        if self.rest:
            self.rest()
        return (statistics.median(calm), not apart) if calm else (min(disturbed), False)

    def _part(self) -> tuple[float, float]:
        """Seconds of a call, and the share of the time that threads waited for a core."""
        before, start = waited(), time.perf_counter()
        for _ in range(self.repeats):
            self.call()
        seconds = time.perf_counter() - start
        return seconds / self.repeats, (waited() - before) / max(seconds, 1e-9)
