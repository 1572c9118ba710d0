"""Proofs while a search goes on: what it has found is not to be lost because it took the time for the proof of it."""

from __future__ import annotations

import time

from einnet.evidence.sound import unproven
from einnet.expr.normal.limits import until as ending_at
from einnet.search.choosing.candidate import Candidate
from einnet.search.settings import Settings
from einnet.search.time_shares import PROVEN_AT_ONCE_SHARE
from einnet.stages import stage


class EarlyProofs:
    """Proofs that the checker remembers, made in a share of the time since this was made: a later turn may find something else. None unless `on`."""

    def __init__(self, settings: Settings, on: bool) -> None:
        self._settings, self._on, self._begin, self._spent = settings, on, time.monotonic(), 0.0

    def look_for(self, found: Candidate, earlier: Candidate, until: float) -> None:
        """Let the checker look until time.monotonic() is a moment for the proof of what a turn has found, if that is new; what the checker says is
        asked for when the search is over."""
        begin = time.monotonic()
        if not self._on or found is earlier or found.original or begin >= until or self._spent > PROVEN_AT_ONCE_SHARE * (begin - self._begin):
            return
        with stage("proving"), ending_at(until):
            unproven(found.form.derivation, self._settings, {})
        self._spent += time.monotonic() - begin
