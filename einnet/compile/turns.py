"""Whose turn it is: a little for every subprogram first, then more for those whose time is worth it.

A turn searches so many states and measures so many kernels, whatever the budget is, and what is worth another one is told by the seconds that the
others took: a longer budget has the same turns and then more of them. So the cheap gains of all come before the deep ones of any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from einnet.expr.nodes import Scope
from einnet.search.choosing.candidate import GAIN, Candidate, Choice
from einnet.search.choosing.choose import least_of_equals
from einnet.search.space import Options
from einnet.search.time_shares import LEAST_SHARE_S
from einnet.search.work import BYTES, elements, flops


@dataclass(frozen=True)
class Level:
    """How far a turn goes: the states that are visited, those of the turns before among them, and the kernels that are measured."""

    states: int
    kernels: int


MEASURED = 32
"""Candidates of a subprogram that are measured beside the original; none where time is over."""

LEVELS = (Level(48, 6), Level(192, 12), Level(768, 24), Level(3072, MEASURED), Level(12288, MEASURED), Level(Options.states, MEASURED))
"""The turns of one subprogram, each about four times the one before. A search goes on from where the last turn ended; in another process, or where
too many states would be kept, it begins anew, which costs a third more."""


PROMISING = 0.01
"""A subprogram whose whole saving would be a smaller share of what all could save waits for no first turn of its own."""

UNSAVED = 0.9
"""Share of an expression's operations that a derivation is not expected to save. Some save more: this says who is tried first, and bounds nothing."""

UNKNOWN = 0.05
"""Share of its seconds that any subprogram counts as able to save, however near it is to what the machine can do."""


@dataclass
class Turns:
    """The turns of subprograms, each of which could save about so many seconds of the program as it is.

    Every subprogram that could save something to speak of has its first turn before any has its second, unless the clock reaches `first_until` before
    that.
    """

    seconds: Mapping[str, float]
    first_until: float = inf
    _levels: dict[str, int] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    @property
    def finished(self) -> int:
        """Subprograms that no turn is left for."""
        return len(self._finished)

    def due(self, now: float, end: float) -> list[str]:
        """The subprograms that wait for a turn, the most promising first; none whose last turn took longer than is left: it would find no more."""
        waiting = [key for key in self.seconds if key not in self._finished and self._last.get(key, 0.0) < max(end - now, 1e-9)]
        enough = PROMISING * sum(self.seconds.values())
        new = [key for key in waiting if self.new(key) and self.seconds[key] >= enough] if now < self.first_until else []
        return sorted(new or waiting, key=self._rank)

    def level(self, key: str) -> Level:
        """How far the next turn goes."""
        return LEVELS[self._levels.get(key, -1) + 1]

    def took(self, key: str, seconds: float, finished: bool) -> None:
        """A subprogram had its turn."""
        self._levels[key] = self._levels.get(key, -1) + 1
        self._spent[key] = self._spent.get(key, 0.0) + seconds
        self._last[key] = seconds
        if finished or self._levels[key] == len(LEVELS) - 1:
            self._finished.add(key)

    def new(self, key: str) -> bool:
        """It had no turn yet."""
        return key not in self._levels

    def _rank(self, key: str) -> tuple[float, float, str]:
        """Least where most can be gained in a second of searching, as far as what a subprogram took tells of its next turn."""
        return -self.seconds[key] / max(self._spent.get(key, 0.0), LEAST_SHARE_S), -self.seconds[key], key


def saving(expression: Scope, seconds: float, least: Callable[[float, float], float]) -> float:
    """What could be saved of the seconds of a subprogram that reads its tensors and writes its result once; `least` tells how long so many operations
    and bytes take at least."""
    possible = least(UNSAVED * flops(expression), BYTES * elements(expression))
    return max(seconds - possible, UNKNOWN * seconds)


def keeping(found: Choice, earlier: Choice, noise: float = GAIN) -> Choice:
    """What a turn found, with what the turns before it chose where that is faster: more searching loses nothing.

    Neither does measuring: where an earlier turn has measured a faster way to run the original, that is the original.
    """
    own = earlier.original
    if own.measured < found.original.measured:
        if found.best is found.original or found.best.cost > own.measured * (1 - GAIN):
            found.best = own
        found.candidates, found.original = beside(found.candidates, own), own
    return taking_over(found, earlier, noise)


def taking_over(found: Choice, earlier: Choice, noise: float = GAIN) -> Choice:
    """The choice, or what was derived earlier where that is faster: by more than the share `noise` where it computes more."""
    best = earlier.best
    faster = best is not earlier.original and best.measured < min(found.best.measured, found.original.cost)
    if faster and (found.best is found.original or least_of_equals(best, [best, found.best], noise) is best):
        found.candidates, found.best = beside(found.candidates, best), best
    found.seconds, found.states = found.seconds + earlier.seconds, max(found.states, earlier.states)
    return found


def beside(candidates: Sequence[Candidate], one: Candidate) -> list[Candidate]:
    """The candidates and one that was measured, which may be among them otherwise known."""
    others = [c for c in candidates if (c.form.key, c.way) != (one.form.key, one.way)]
    return sorted([one, *others], key=lambda c: (c.measured, c.predicted))


def beginning(own: Choice, narrower: Choice | None) -> Choice:
    """The model's own operators, or what was derived for a narrower class where that is faster: nothing of it was visited for this one."""
    if narrower is None:
        return own
    seconds, states = own.seconds, own.states
    found = taking_over(own, narrower)
    found.seconds, found.states = seconds, states
    return found
