"""What times at some sizes of a dimension tell about others: where to look first, and where there is no need to look."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from einnet.compile.ranges.sizes import distance, nearest
from einnet.instantiate.kernels import Kernel
from einnet.search.choosing.candidate import DOUBT, Candidate

DISTANCE = 0.25
"""For each doubling of the size, by so much of itself a ratio between two times may be further off."""

Known = tuple[float | None, float]
"""Seconds of a kernel that were measured, and those that it takes at least by what it computes and moves."""

Factor = tuple[float, float]
"""A ratio between two times, and how many times too high it may be."""


class Times(Protocol):
    """What is asked of a backend."""

    def known(self, kernels: Sequence[Kernel]) -> Sequence[Known]: ...


def doubt(a: int, b: int) -> float:
    """How many times too high what is known at one size may be at another, sizes of the same work set aside."""
    return DOUBT * (1 + DISTANCE * distance(a, b))


@dataclass
class Neighbours:
    """Candidates at the sizes where they were looked at. A form is called by `form`, which is the same at all sizes, a way to run it by its number.

    A kernel is expected to take what it takes at least, times the factor by which it was slower than that at the nearest size; where a form is cut
    into another number of kernels, the factor of all of them counts.
    """

    times: Times
    seen: dict[tuple[Hashable, tuple[bool, int]], dict[int, tuple[Known, ...]]] = field(default_factory=dict)
    least: dict[Hashable, dict[int, float]] = field(default_factory=dict)

    def note(self, size: int, candidates: Iterable[tuple[Hashable, Candidate]], best: float) -> None:
        """Keep what is known of candidates at a size, where the best of them takes `best` seconds."""
        for form, c in candidates:
            rows = tuple(self.times.known(c.kernels))
            self.seen.setdefault((form, c.way), {})[size] = rows
            share = sum(bound if seconds is None else seconds for seconds, bound in rows) / max(best, 1e-12)
            lowest = self.least.setdefault(form, {})
            lowest[size] = min(lowest.get(size, inf), share)

    def promising(self, size: int, form: Hashable) -> bool:
        """A form may be the best at a size: at the nearest one at which it was looked at it did not lose by more than the distance explains."""
        shares = self.least.get(form, {})
        return not shares or shares[near := nearest(size, shares)] < doubt(size, near)

    def expected(self, size: int, form: Hashable, c: Candidate) -> tuple[list[float], list[float]] | None:
        """Seconds of each kernel of a candidate at a size, and those that it takes at least; None where no other size tells."""
        factors = self._factors(size, form, c)
        if not any(factors):
            return None
        found = [_one(known, factor) for known, factor in zip(self.times.known(c.kernels), factors, strict=True)]
        return [most for most, _ in found], [least for _, least in found]

    def total(self, size: int, form: Hashable, c: Candidate) -> float | None:
        """Seconds of a candidate at a size as far as they were measured, and as other sizes tell; None where neither is so of a kernel."""
        known = list(zip(self.times.known(c.kernels), self._factors(size, form, c), strict=True))
        if any(seconds is None and factor is None for (seconds, _), factor in known):
            return None
        return sum(_one(k, factor)[0] for k, factor in known)

    def _factors(self, size: int, form: Hashable, c: Candidate) -> list[Factor | None]:
        """For each kernel how many times slower it was than it might be at the nearest size where that is known, and how far off that may be."""
        count = len(c.kernels)
        found: list[Factor | None] = [None] * count
        seen = {at: rows for at, rows in self.seen.get((form, c.way), {}).items() if at != size}
        for at in sorted(seen, key=lambda other: distance(size, other)):
            for n, factor in enumerate(_slower(seen[at], count)):
                if found[n] is None and factor is not None:
                    found[n] = factor, doubt(size, at)
        return found


def _slower(rows: Sequence[Known], count: int) -> list[float | None]:
    """For so many kernels, how many times slower they were than they might be; None where that is not known."""
    if len(rows) == count:
        return [None if seconds is None or not bound else seconds / bound for seconds, bound in rows]
    seconds, least = [s for s, _ in rows if s is not None], sum(bound for _, bound in rows)
    return [sum(seconds) / least if least and len(seconds) == len(rows) else None] * count


def _one(known: Known, factor: Factor | None) -> tuple[float, float]:
    """Expected and least seconds of a kernel."""
    seconds, bound = known
    if seconds is not None:
        return seconds, seconds / DOUBT
    return (bound, bound / DOUBT) if factor is None else (factor[0] * bound, factor[0] * bound / factor[1])
