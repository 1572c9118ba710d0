"""How the time budget is spent: what ends when, so that the whole of it ends in time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf

from einnet.errors import OutOfTimeError
from einnet.graph.program import Program
from einnet.search.settings import Settings
from einnet.search.time_shares import (
    COMPARED_SHARE,
    COSTING_SHARE,
    EXPLORING_SHARE,
    FINISHING_BYTES_PER_S,
    FINISHING_NODE_S,
    FINISHING_PART_S,
    FINISHING_RUNS,
    FINISHING_S,
    KEEPING_SHARE,
    LATE,
    LEAST_RACE_S,
    LEAST_SEARCH_SHARE,
    LEAST_TIMING_S,
    MOST_TIMING_S,
    PROFILE_S,
    PROVING_SHARE,
    RELOADED,
    ROUNDING_SHARE,
    STATES_PER_S,
    STITCHING_SHARE,
    TIMING_SHARE,
    WORKED_S,
)


class Clock:
    """Seconds as the machine counts them: what a search finds in them depends on the machine and on what else it does."""

    exploring: float = EXPLORING_SHARE
    """Share of a subprogram's time in which forms are looked for; in the rest they are measured."""
    stops = "time"
    """The budget that ends an exploration when its time is over."""
    certain = -1
    """Layers of every search that are completed whatever the time."""

    def now(self) -> float:
        return time.monotonic()

    def spend(self, states: float) -> None:
        """So many scopes were visited."""

    def limits(self, seconds: float) -> tuple[float, float]:
        """The deadline, a time.monotonic() value, and the number of states of an exploration that begins now."""
        return time.monotonic() + seconds, inf

    def until(self, moment: float) -> float:
        """A moment of this clock as a time.monotonic() value, infinite where that is not known."""
        return moment


class CountedClock(Clock):
    """Seconds as visited scopes count them: the same model and settings give the same search on every machine, however busy it is."""

    exploring = 1.0
    stops = "states"
    certain = 1
    """Nothing is measured, and the first steps are few: every subprogram has them, however many there are."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> float:
        return self._seconds

    def spend(self, states: float) -> None:
        self._seconds += states / STATES_PER_S

    def limits(self, seconds: float) -> tuple[float, float]:
        return inf, max(seconds * STATES_PER_S, 1.0)

    def until(self, moment: float) -> float:
        return inf


@dataclass(frozen=True)
class Schedule:
    """Moments of the clock: the whole started at `started` and is to end `budget` seconds later.

    `reference_s` is how long ONNX Runtime took to load and run the model once, `again_s` how long that takes for the comparison: less, where what it
    loaded is kept for that.
    """

    started: float
    budget: float
    reference_s: float = 0.0
    clock: Clock = field(default_factory=Clock)
    worked: float = inf
    """A time.process_time() value: when the run began, where it may be given up for want of time."""
    again_s: float = 0.0

    @property
    def end(self) -> float:
        return self.started + self.budget

    @property
    def costed(self) -> float:
        """When the model's own operators are to be measured."""
        return self.started + COSTING_SHARE * self.budget

    def searched(self, program: Program, parts: int, run_s: float) -> float:
        """When the search is to end for a program of so many distinct subprograms, one run of which takes `run_s` seconds."""
        weights = sum(value.nbytes for value in program.weights.values())
        finishing = FINISHING_S + FINISHING_PART_S * parts + FINISHING_NODE_S * len(program.nodes)
        finishing += weights / FINISHING_BYTES_PER_S + FINISHING_RUNS * run_s + RELOADED * self.again_s
        timing = min(TIMING_SHARE * self.budget, MOST_TIMING_S)
        return max(self.end - finishing - timing, self.started + LEAST_SEARCH_SHARE * self.budget)

    @property
    def latest(self) -> float:
        """When a program has to be there that is verified, timed and told of by the end."""
        after = PROVING_SHARE * self.budget + LEAST_TIMING_S + PROFILE_S + 2 * self.again_s
        return max(self.started + LATE * self.budget - after, self.started + LEAST_SEARCH_SHARE * self.budget)

    def hurry(self, what: str) -> None:
        """Called again and again by what nothing can cut short. Raises OutOfTimeError where it is too late for that.

        On a busy machine the processor has worked little when time is over: then it goes on, beyond the budget.
        """
        if self.clock.now() >= self.latest and time.process_time() - self.worked >= WORKED_S:
            raise OutOfTimeError(f"no time was left to {what}: give a longer --time-budget")

    def kept(self, now: float) -> float:
        """When what is not proven by then is given up: a share of what is left goes into proofs."""
        return now + KEEPING_SHARE * max(self.end - now, 0.0)

    def stitched(self, now: float) -> float:
        """When copies are to be left out: a share of what is left may go into measuring whether that gains."""
        return now + STITCHING_SHARE * max(self.end - now, 0.0)

    def rounded(self, now: float) -> float:
        """When is to be known which products of a program round their factors."""
        return now + ROUNDING_SHARE * max(self.end - now, 0.0)

    @property
    def race_s(self) -> float:
        """Seconds that comparing two models in ONNX Runtime takes at least: both loaded, warmed up and run."""
        return LEAST_RACE_S + 2 * RELOADED * self.reference_s

    def timing_s(self, now: float) -> float:
        """Seconds for comparing the programs, from what is left."""
        return min(max(COMPARED_SHARE * (self.end - now), LEAST_TIMING_S), MOST_TIMING_S)


def exceeded(used: float, settings: Settings) -> list[str]:
    """A note where it took longer than was allowed."""
    late = used > LATE * settings.time_budget
    return [f"the time budget of {settings.time_budget:g} s was exceeded: {used:.1f} s"] if late else []
