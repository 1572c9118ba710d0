"""Proofs while a search goes on: what it has found is not to be lost because it took the time for the proof of it."""

from __future__ import annotations

import time

from einnet.evidence.sound import unproven
from einnet.expr.normal.limits import until as ending_at
from einnet.search.choosing.candidate import Choice
from einnet.search.outcome import gained
from einnet.search.settings import Settings
from einnet.search.time_shares import PROVEN_AT_ONCE_SHARE
from einnet.stages import stage


class EarlyProofs:
    """Proofs that the checker remembers, made in a share of the time since this was made: a later turn may find something else. None unless `on`."""

    def __init__(self, settings: Settings, on: bool) -> None:
        self._settings, self._on, self._begin, self._spent = settings, on, time.monotonic(), 0.0
        self._waiting: dict[str, Choice] = {}
        """What was found and not looked at, by subprogram."""

    def found(self, key: str, choice: Choice, earlier: Choice) -> None:
        """Note what a turn has found for a subprogram, if that is new."""
        if choice.best is not earlier.best and not choice.best.original:
            self._waiting[key] = choice

    def look_for(self, until: float) -> None:
        """Let the checker look until time.monotonic() is a moment for the proof of what gains most; when the search is over it is asked for that."""
        begin = time.monotonic()
        if not self._on or not self._waiting or begin >= until or self._spent > PROVEN_AT_ONCE_SHARE * (begin - self._begin):
            return
        key = max(self._waiting, key=lambda k: gained(self._waiting[k]))
        with stage("proving"), ending_at(until):
            unproven(self._waiting.pop(key).best.form.derivation, self._settings, {})
        self._spent += time.monotonic() - begin
