"""How long the call of a graph waits for programs: one budget for all of its parts, however large they are.

Export and the reading of a model cannot be cut short from within. So a program is made in a thread of its own, and who waits for it goes on in
eager mode when the time is over. The thread is told to stop, and does so where it next says how far it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from typing import TypeVar

from einnet.errors import EinNetError
from einnet.search.settings import Progress
from einnet.search.time_shares import SEARCHED_SHARE

T = TypeVar("T")

LEAST_S = 1.0
"""Seconds of a search for a part that has less of the time by its size: many parts are small, and done sooner."""


def now() -> float:
    """The clock of all moments here."""
    return time.monotonic()


class NotReady(EinNetError):
    """A program that was not there in time, or that nobody waits for any more."""


class Stop:
    """Whether what is made is still waited for: passed to `einnet.optimize` as its progress."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """Nobody waits any more."""
        self._asked.set()

    def __call__(self, progress: Progress | None = None) -> None:
        """Raises NotReady when nobody waits."""
        if self._asked.is_set():
            raise NotReady("nobody waits for the program any more")


@dataclass(frozen=True)
class Turn:
    """What one part has of the time of a call: `end` is a moment of the clock, `share` how much of what is left until then is this part's."""

    end: float
    share: float = 1.0

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - now()

    def searched(self, asked: float) -> float:
        """Seconds for the search of a part that has asked for so many."""
        return min(asked, max(SEARCHED_SHARE * self.share * self.left, LEAST_S))


@dataclass
class _Call(threading.local):
    """A call of the graph in this thread: when its time is over, None until a part wants some of it, and the operators that had no turn yet."""

    end: float | None = None
    operators: int = 0


@dataclass
class Allowance:
    """Seconds for which one call of a graph waits for programs, shared by its parts after their operators."""

    seconds: float
    operators: int = 0
    """Of all parts."""
    _call: _Call = field(default_factory=_Call)

    def begin(self) -> None:
        """A call of the graph begins."""
        self._call.end = None

    def turn(self, operators: int) -> Turn:
        """For a part of so many operators. The time begins with the first part that needs a program."""
        call = self._call
        if call.end is None:
            call.end, call.operators = now() + self.seconds, self.operators
        share = operators / max(call.operators, operators, 1)
        call.operators -= operators
        return Turn(call.end, share)


def within(make: Callable[[Stop], T], turn: Turn) -> T:
    """What is made, if it is there in time. Raises NotReady where it is not, and what `make` raises.

    The thread that waits has no others waiting for it meanwhile: beside these, what is made would be timed with threads that do not wait actively.
    """
    from einnet.runtime.cpu.forked import end_pool

    if turn.left <= 0:
        raise NotReady("the time of this call is over")
    end_pool()
    stop, made = Stop(), Future[T]()

    def work() -> None:
        try:
            made.set_result(make(stop))
        except BaseException as error:  # who waits raises it
            made.set_exception(error)

    threading.Thread(target=work, name="einnet-making").start()
    try:
        return made.result(min(turn.left, threading.TIMEOUT_MAX))
    except TimeoutError:
        raise NotReady("it was not ready in the time of this call") from None
    finally:
        stop.ask()
