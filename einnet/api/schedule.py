"""How the time budget is spent: what ends when, so that the whole of it ends in time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf

from einnet.graph.program import Program

COSTING_SHARE = 0.4
"""Share of the budget until whose end the model's own operators are measured."""
LEAST_SEARCH_SHARE = 0.5
"""Share of the budget until whose end is searched in any case."""
TIMING_SHARE, TIMING_S = 0.15, 20.0
"""Share of the budget, and seconds, that comparing the programs takes at most."""
STITCHING = 0.2
"""Share of what is left after the search in which is measured which copies can be left out."""
COMPARED = 0.7
"""Share of what is left in the end that the first comparison takes; another may follow, and the profile of kernels."""
LEAST_TIMING_S = 2.5
"""A few rounds of quick programs."""

LEAST_RACE_S = 0.8
"""One round of two models that take no time: pauses in which threads fall asleep, and warming up."""

TURNS = 4
"""Times that ONNX Runtime loads and runs the model in one round of a comparison, where not all programs fit into memory at once."""

START_S, PART_S, BYTES_PER_S, RUNS = 2.0, 0.05, 1e8, 12
"""What compiling, proving, verifying and the profile of kernels take: seconds, seconds for each subprogram, bytes of weights in a second, runs."""


STATES_PER_S = 250
"""Visited scopes that a second of the time budget stands for where states are counted, not seconds: about what one core visits."""


class Clock:
    """Seconds as the machine counts them: what a search finds in them depends on the machine and on what else it does."""

    exploring = 1 / 3
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

    `reference_s` is how long ONNX Runtime took to load and run the model once.
    """

    started: float
    budget: float
    reference_s: float = 0.0
    clock: Clock = field(default_factory=Clock)

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
        finishing = START_S + PART_S * parts + weights / BYTES_PER_S + RUNS * run_s + TURNS * self.reference_s
        timing = min(TIMING_SHARE * self.budget, TIMING_S)
        return max(self.end - finishing - timing, self.started + LEAST_SEARCH_SHARE * self.budget)

    def stitched(self, now: float) -> float:
        """When copies are to be left out: a share of what is left may go into measuring whether that gains."""
        return now + STITCHING * max(self.end - now, 0.0)

    @property
    def race_s(self) -> float:
        """Seconds that comparing two models in ONNX Runtime takes at least: both loaded, warmed up and run."""
        return LEAST_RACE_S + 2 * TURNS * self.reference_s

    def timing_s(self, now: float) -> float:
        """Seconds for comparing the programs, from what is left."""
        return min(max(COMPARED * (self.end - now), LEAST_TIMING_S), TIMING_S)
