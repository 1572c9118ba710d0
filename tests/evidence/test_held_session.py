"""A session of ONNX Runtime that took long to make is kept for the comparison, where there is room for it."""

from __future__ import annotations

import numpy as np
import pytest

import einnet
from einnet.compile.targets.cpu import contest
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.evidence.comparison import verify
from einnet.evidence.comparison.verify import WHOLE, Trial
from einnet.graph.onnx.importer import load
from einnet.runtime.cpu.program import Executable
from einnet.search.settings import Settings
from tests.compile.test_contest import BEHIND
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


@pytest.fixture
def too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session takes too long to be loaded again, and no room is left to keep it."""
    monkeypatch.setattr(verify, "TIMING_SHARE", 0.0)
    monkeypatch.setattr(verify, "HELD_S", 0.0)
    monkeypatch.setattr(verify, "HELD_SHARE", 0.0)
    monkeypatch.setattr(verify, "fits", lambda _: False)


def test_what_takes_too_long_to_load_again_is_timed_before(sessions: list[object], too_long: None) -> None:
    model = two_outputs()
    program = einnet.optimize(model, derive=False, time_budget=2, threads=1, force=0).executable
    sessions.clear()
    trial = Trial(model, load(model), Settings(threads=1), random_inputs(model, 0))
    assert len(trial.before) == verify.TIMED_BEFORE and min(trial.before) > 0
    assert trial.again_s == 0.0 < trial.seconds and trial.stands and trial.session is None
    found = trial.compare({"original": program, "optimized": program}, 0.05)
    assert len(sessions) == 1, "it is not loaded again"
    assert found["before"] == trial.seconds and not found["once"]
    assert set(found["rounds"].samples["onnxruntime"]) == {min(trial.before)} == {found["onnxruntime"].median}, "the fastest run stands for it"
    assert {"original", "optimized", "onnxruntime"} <= found["rounds"].samples.keys() and found["original"].median > 0
    whole = Executable(whole_model(model, program.plan, trial.order), 1)
    assert not trial.compare({WHOLE: whole}, 0.05)["before"], "where it runs all it is timed as it is"


def test_a_session_that_is_held_or_soon_loaded_is_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_outputs()
    monkeypatch.setattr(verify, "TIMING_SHARE", 1.0)
    assert Trial(model, load(model), Settings(threads=1), random_inputs(model, 0)).before == ()
    monkeypatch.setattr(verify, "TIMING_SHARE", 0.0)
    assert Trial(model, load(model), Settings(threads=1), random_inputs(model, 0)).before == (), "it did not take long"
    monkeypatch.setattr(verify, "HELD_S", 0.0)
    monkeypatch.setattr(verify, "HELD_SHARE", 0.0)
    monkeypatch.setattr(verify, "fits", lambda _: True)
    trial = Trial(model, load(model), Settings(threads=1), random_inputs(model, 0))
    assert trial.before == () and trial.stands


@pytest.mark.parametrize("ours", ["original", "whole model"])
def test_a_report_says_that_it_was_timed_before(ours: str, sessions: list[object], too_long: None, monkeypatch: pytest.MonkeyPatch) -> None:
    scale, timed = 1e3 if ours == "original" else 1e-6, verify.timed
    monkeypatch.setattr(verify, "timed", lambda session, inputs: tuple(scale * s for s in timed(session, inputs)))
    monkeypatch.setattr(contest, "behind", BEHIND)
    result = einnet.optimize(two_outputs(), time_budget=10, threads=1, max_depth=1, fresh=True)
    assert any("timed alone, before the search" in note for note in result.report["notes"])
    assert (result.report["runs"] == "whole model") == (ours == "whole model")
    assert len(sessions) == (2 if ours == "whole model" else 1), "only what is kept is loaded"
    assert result(random_inputs(two_outputs(), 0)).keys()
