"""Proofs while a search goes on take no more than their share of it, and only of what is new."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from einnet.compile import early_proofs
from einnet.compile.early_proofs import EarlyProofs
from einnet.search.settings import Settings
from einnet.search.time_shares import PROVEN_AT_ONCE_SHARE

TAKES = 3.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Derivations of which proofs are looked for, each for some seconds of a clock that `at` sets."""
    found: list[str] = []

    def unproven(derivation: str, settings: Settings, known: object) -> None:
        found.append(derivation)
        at(monkeypatch, early_proofs.time.monotonic() + TAKES)

    at(monkeypatch, 0.0)
    monkeypatch.setattr(early_proofs, "unproven", unproven)
    return found


def at(monkeypatch: pytest.MonkeyPatch, moment: float) -> None:
    monkeypatch.setattr(early_proofs, "time", SimpleNamespace(monotonic=lambda: moment))


def candidate(name: str, original: bool = False) -> Any:
    return SimpleNamespace(original=original, form=SimpleNamespace(derivation=name))


def test_proofs_take_their_share_of_the_search(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    proofs, before = EarlyProofs(Settings(), True), candidate("before")
    for n in range(100):
        proofs.look_for(candidate(str(n)), before, 1e3)
        at(monkeypatch, early_proofs.time.monotonic() + 1.0)
    share = TAKES * len(asked) / early_proofs.time.monotonic()
    assert share == pytest.approx(PROVEN_AT_ONCE_SHARE, abs=0.1)


def test_only_what_is_new_and_derived_is_proven(asked: list[str]) -> None:
    proofs, before = EarlyProofs(Settings(), True), candidate("before")
    proofs.look_for(before, before, 1e3)
    proofs.look_for(candidate("own", original=True), before, 1e3)
    proofs.look_for(candidate("late"), before, 0.0)
    EarlyProofs(Settings(), False).look_for(candidate("off"), before, 1e3)
    assert asked == []
    proofs.look_for(candidate("new"), before, 1e3)
    assert asked == ["new"]
