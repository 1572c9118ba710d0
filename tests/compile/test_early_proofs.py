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


def choice(name: str, original: bool = False, gain: float = 1.0) -> Any:
    best = SimpleNamespace(original=original, form=SimpleNamespace(derivation=name), cost=10.0 - gain)
    return SimpleNamespace(best=best, original=SimpleNamespace(cost=10.0))


def test_proofs_take_their_share_of_the_search(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    proofs, before = EarlyProofs(Settings(), True), choice("before")
    for n in range(100):
        proofs.found("key", choice(str(n)), before)
        proofs.look_for(1e3)
        at(monkeypatch, early_proofs.time.monotonic() + 1.0)
    share = TAKES * len(asked) / early_proofs.time.monotonic()
    assert share == pytest.approx(PROVEN_AT_ONCE_SHARE, abs=0.1)


def test_only_what_is_new_and_derived_is_proven(asked: list[str]) -> None:
    proofs, before = EarlyProofs(Settings(), True), choice("before")
    off = EarlyProofs(Settings(), False)
    off.found("off", choice("off"), before)
    off.look_for(1e3)
    proofs.found("same", before, before)
    proofs.found("own", choice("own", original=True), before)
    proofs.look_for(1e3)
    proofs.found("late", choice("late"), before)
    proofs.look_for(0.0)
    assert asked == []
    proofs.look_for(1e3)
    proofs.look_for(1e3)
    assert asked == ["late"]


def test_what_gains_most_is_proven_first_and_of_each_what_was_found_last(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    proofs, before = EarlyProofs(Settings(), True), choice("before")
    for key, name, gain in (("a", "little", 1.0), ("b", "more", 2.0), ("c", "most", 3.0), ("b", "much", 2.5)):
        proofs.found(key, choice(name, gain=gain), before)
    for n in range(4):
        at(monkeypatch, 1e3 * (n + 1))
        proofs.look_for(1e6)
    assert asked == ["most", "much", "little"]
