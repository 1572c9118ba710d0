"""A session of ONNX Runtime that took long to make is kept for the comparison, where there is room for it."""

from __future__ import annotations

import numpy as np
import pytest

import einnet
from einnet.evidence.comparison import verify
from einnet.evidence.comparison.verify import Trial
from einnet.graph.onnx.importer import load
from einnet.search.settings import Settings
from tests.models import random_inputs, two_outputs


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Those that are made."""
    made: list[object] = []

    class Noted(verify.Session):
        def __init__(self, *args: object, **options: object) -> None:
            made.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(verify, "Session", Noted)
    monkeypatch.setattr("einnet.runtime.ort.Session", Noted)
    return made


@pytest.mark.parametrize(
    ("held_s", "room", "later", "count"), [(0.0, True, True, 1), (1e9, True, True, 2), (0.0, False, False, 2), (0.0, True, False, 2)]
)
def test_one_session_serves_both_where_it_took_long_and_there_is_room(
    held_s: float, room: bool, later: bool, count: int, sessions: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_outputs()
    program = einnet.optimize(model, derive=False, time_budget=2, threads=1, force=0).executable
    sessions.clear()
    monkeypatch.setattr(verify, "HELD_S", held_s)
    monkeypatch.setattr(verify, "HELD_SHARE", 0.0)
    monkeypatch.setattr(verify, "fits", lambda _: room)
    trial = Trial(model, load(model), Settings(threads=1), random_inputs(model, 0))
    assert (trial.session is not None) == (held_s == 0.0 and room)
    assert trial.again_s < trial.seconds if trial.session is not None else trial.again_s == trial.seconds
    monkeypatch.setattr(verify, "fits", lambda _: later)
    assert trial.verify(program, 1e-4).passed
    found = trial.compare({"original": program}, 0.05)
    assert found["resident"] == later and found["onnxruntime"].median > 0
    assert (len(sessions) == 1) == (count == 1)
    if not later:
        assert trial.session is None
    assert all(np.isfinite(y).all() for y in trial.own.values())


@pytest.mark.parametrize("budget", [1e-6, 1e6])
def test_a_session_is_kept_where_it_took_a_share_of_the_budget(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is memory that buys time."""
    model = two_outputs()
    monkeypatch.setattr(verify, "HELD_S", 0.0)
    monkeypatch.setattr(verify, "fits", lambda _: True)
    trial = Trial(model, load(model), Settings(threads=1, time_budget=budget), random_inputs(model, 0))
    assert (trial.session is not None) is (budget < 1)
