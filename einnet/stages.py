"""Where the time of a run goes: seconds of the clock and of the processor by stage, each moment in the innermost stage alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

REST = "the rest"
"""What no stage is named for."""

Seconds = tuple[float, float]
"""Of the clock, and of the processor in all threads of this process."""


class Ledger:
    """Seconds by stage, in the order in which stages were first entered."""

    def __init__(self) -> None:
        self._spent: dict[str, Seconds] = {}
        self._within = [REST]
        self._since = _now()

    def enter(self, stage: str) -> None:
        """A stage begins; the one around it stands still until it is left."""
        self._charge()
        self._within.append(stage)

    def leave(self) -> None:
        """The innermost stage ends."""
        self._charge()
        self._within.pop()

    def spent(self) -> dict[str, Seconds]:
        """What every stage has taken until now; what is no stage's comes last."""
        self._charge()
        return {name: s for name, s in self._spent.items() if name != REST} | {REST: self._spent[REST]}

    def _charge(self) -> None:
        now, name = _now(), self._within[-1]
        clock, processor = self._spent.get(name, (0.0, 0.0))
        self._spent[name] = clock + now[0] - self._since[0], processor + now[1] - self._since[1]
        self._since = now


def _now() -> Seconds:
    return time.monotonic(), time.process_time()


_LEDGER: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def recorded() -> Iterator[Ledger]:
    """Stages are recorded within; in a run within a run, by the inner one alone."""
    token = _LEDGER.set(ledger := Ledger())
    try:
        yield ledger
    finally:
        _LEDGER.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What is done within is this stage's; it costs nothing where nobody records."""
    ledger = _LEDGER.get()
    if ledger is None:
        yield
        return
    ledger.enter(name)
    try:
        yield
    finally:
        ledger.leave()


def spent() -> dict[str, Seconds] | None:
    """What the stages of the run at hand have taken until now; None where nobody records."""
    ledger = _LEDGER.get()
    return None if ledger is None else ledger.spent()
