"""Times as medians with their spread, and interleaved comparisons with a noise floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einnet.runtime.load import waited

SAMPLE_S = 0.001
"""Seconds of calls in one sample."""

PAUSE_S = 0.002
"""Longer than the threads of an idle pool spin."""
TOLERATED = 0.02
"""Share of a sample's time for which threads may have waited for a core."""


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
    """Samples of several callables taken in turns. `again` are those of the first one, run a second time in every round."""

    samples: Mapping[str, tuple[float, ...]]
    again: tuple[float, ...]

    @property
    def timings(self) -> dict[str, Timing]:
        return {name: summarize(s) for name, s in self.samples.items()}

    def ratio(self, name: str, base: str) -> Timing:
        """time(name) / time(base), round by round."""
        return summarize([a / b for a, b in zip(self.samples[name], self.samples[base], strict=True)])

    @property
    def noise(self) -> float:
        """How far a ratio may be from 1 and mean nothing: what the first callable shows against itself, median plus spread, at least 1 %."""
        first = next(iter(self.samples.values()))
        same = summarize([a / b for a, b in zip(self.again, first, strict=True)])
        return max(abs(same.median - 1) + same.spread, 0.01)


def compare(
    callables: Mapping[str, Callable[[], object]], budget_s: float = 2.0, *, least: int = 5, most: int = 1000,
    pause_s: float = PAUSE_S, warm_s: float = 0.0, sample_s: float = SAMPLE_S,
) -> Comparison:  # fmt: skip
    """Time callables in turns, A B C A', A B C A'..., for about `budget_s` seconds but at least `least` and at most `most` rounds.

    Short calls are repeated inside a sample, so that a sample takes about `sample_s` at least. Before each sample the waiting
    threads of the other callables get `pause_s` to fall asleep, and the callable one call and `warm_s` to warm up: threads that slept may
    first share one core. Rounds that other programs disturbed do not count if there are `least` others.
    """
    names = list(callables)
    order = [*callables.values(), callables[names[0]]]
    repeats = [_repeats(call, sample_s) for call in order[:-1]]
    repeats.append(repeats[0])
    clean: list[list[float]] = []
    disturbed: list[list[float]] = []
    end = time.perf_counter() + budget_s
    while len(clean) + len(disturbed) < least or (time.perf_counter() < end and len(clean) < most):
        before, began = waited(), time.perf_counter()
        row = [_sample(call, count, pause_s, warm_s) for call, count in zip(order, repeats, strict=True)]
        share = (waited() - before) / (time.perf_counter() - began)
        (disturbed if share > TOLERATED else clean).append(row)
    columns = [tuple(column) for column in zip(*(clean if len(clean) >= least else clean + disturbed), strict=True)]
    return Comparison(dict(zip(names, columns[:-1], strict=True)), columns[-1])


def _repeats(call: Callable[[], object], sample_s: float) -> int:
    """How many calls make a sample."""
    return max(1, min(10_000, round(sample_s / max(_sample(call, 1), 1e-7))))


def _sample(call: Callable[[], object], repeats: int, pause_s: float = PAUSE_S, warm_s: float = 0.0) -> float:
    time.sleep(pause_s)
    call()
    if warm_s:
        end = time.perf_counter() + warm_s
        while time.perf_counter() < end:
            call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
