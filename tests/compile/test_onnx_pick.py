"""Which derived subprograms stay in a model for ONNX Runtime: those that make the whole faster, by a clock that we set."""

from __future__ import annotations

from random import Random

import pytest

from einnet.compile.targets.onnx import pick as onnx_pick
from einnet.compile.targets.onnx.pick import pick
from einnet.runtime.timing import summarize
from einnet.search.outcome import Outcome
from tests.compile.test_onnx_part import outcome_of
from tests.models import tiny


@pytest.fixture
def outcome() -> Outcome:
    found = outcome_of(tiny("small"), Random(2), 1.0)
    assert sum(r.changed for r in found.results) > 3
    return found


def chosen(outcome: Outcome) -> bytes:
    return " ".join(sorted({r.subprogram.key for r in outcome.results if r.changed})).encode()


def picked(outcome: Outcome, worth: dict[str, float], seconds: float = 60.0) -> set[str]:
    """What is left with times of 1 plus what every subprogram is worth."""

    def time_of(model: bytes) -> float:
        return 1 + sum(worth[key] for key in model.decode().split())

    def race(one: bytes, other: bytes, _: float) -> dict[str, object]:
        return {"onnxruntime": summarize([time_of(one)]), "optimized": summarize([time_of(other)])}

    return set(chosen(pick(outcome, b"", chosen, race, seconds)).decode().split())


def test_what_makes_the_whole_faster_stays(outcome: Outcome) -> None:
    keys = sorted({r.subprogram.key for r in outcome.results if r.changed})
    worth = {key: (-0.2 if n % 2 else 0.1) for n, key in enumerate(keys)}
    assert picked(outcome, worth) == set(keys[1::2])


def test_where_all_lose_the_model_stays_as_it_is(outcome: Outcome) -> None:
    assert picked(outcome, dict.fromkeys([r.subprogram.key for r in outcome.results], 0.01)) == set()


def test_what_cannot_be_written_is_not_taken(outcome: Outcome) -> None:
    def race(*_: object) -> dict[str, object]:
        raise AssertionError("there is nothing to time")

    assert not pick(outcome, b"", lambda _: None, race, 60.0).changed


class Clock:
    """Time passes in races only: what they are given, and 3 s at least."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(onnx_pick.time, "monotonic", lambda: self.now)

    def race(self, one: bytes, other: bytes, seconds: float) -> dict[str, object]:
        self.now += max(seconds, 3.0)
        return {"onnxruntime": summarize([1.0 - len(one) * 1e-6]), "optimized": summarize([0.9 - len(other) * 1e-6])}


@pytest.mark.parametrize(("seconds", "tried"), [(0.0, 0), (2.9, 0), (3.0, 1), (8.9, 2), (9.1, 3)])
def test_no_race_is_begun_that_would_not_end_in_time(outcome: Outcome, monkeypatch: pytest.MonkeyPatch, seconds: float, tried: int) -> None:
    clock = Clock(monkeypatch)
    outcome = pick(outcome, b"", chosen, clock.race, seconds, least=3.0)
    assert len(chosen(outcome).split()) == tried
    assert clock.now <= 100 + seconds
    assert "the model's own nodes stay" in outcome.notes[-1]


def test_what_a_race_takes_is_learned_from_the_first(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    outcome = pick(outcome, b"", chosen, clock.race, seconds=5.0)
    assert len(chosen(outcome).split()) == 1
    assert clock.now == 103


def test_writing_is_no_part_of_a_race(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model takes 1 s to write; races take what they are given, which stays enough for all."""
    clock, groups = Clock(monkeypatch), len({r.subprogram.key for r in outcome.results if r.changed})

    def write(tried: Outcome) -> bytes:
        clock.now += 1.0
        return chosen(tried)

    outcome = pick(outcome, b"", write, clock.race, seconds=6.0 * groups, least=0.8)
    assert len(chosen(outcome).split()) == groups
    assert clock.now <= 100 + 6 * groups
