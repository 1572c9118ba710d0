"""Garbage of the search is collected between subprograms."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

from einnet.compile import subprogram_search as pipeline
from einnet.compile.budget import Schedule
from einnet.compile.garbage import LARGE, collection_on_demand, letting_go
from einnet.compile.program_search import search
from einnet.graph.onnx.importer import load
from einnet.runtime import capacity
from einnet.search.settings import Settings
from einnet.search.space import Space
from tests.compile.test_budget import SlowMachine
from tests.models import tiny


def test_no_space_outlives_its_subprogram_and_nothing_is_collected_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    spaces: WeakSet[Space] = WeakSet()
    begin, original = Space.__init__, pipeline.SubprogramSearch.tell

    def made(self: Space, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        spaces.add(self)

    def tell(self: pipeline.SubprogramSearch, progress: pipeline.Progress) -> None:
        assert not gc.isenabled()
        left.append(len(spaces))
        original(self, progress)

    monkeypatch.setattr(Space, "__init__", made)
    monkeypatch.setattr(pipeline.SubprogramSearch, "tell", tell)
    settings = Settings(max_depth=1, time_budget=20.0, rules=("sum-split",))
    search(load(tiny("small", size=8)), settings, SlowMachine(monkeypatch, 0.1), Schedule(0.0, 20.0))
    assert gc.isenabled()
    assert left[0] == left[-1] == 0
    assert max(left) == 1


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_on_demand():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class Held:
    """Holds itself, as the nodes of a model that was read do."""

    def __init__(self) -> None:
        self.own = self


def test_what_was_read_of_a_large_model_goes_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the allocator is asked for, in order: blocks that go back alone, what is free already, and at the end all as it was."""
    asked: list[tuple[str, tuple[int, ...]]] = []
    monkeypatch.setattr(capacity, "_c_library", lambda name: lambda *given: asked.append((name, given)))
    held: WeakSet[Held] = WeakSet()
    for weights in (LARGE // 4 - 1, LARGE // 4):
        held.add(Held())
        with collection_on_demand(), letting_go([np.zeros(weights, np.float32)]):
            assert len(held) == (weights < LARGE // 4)
    apart, usual = ("mallopt", (-3, capacity.APART)), [("mallopt", (-3, capacity.USUAL)), ("mallopt", (-1, 2 * capacity.USUAL))]
    assert asked == [apart, ("malloc_trim", (0,)), *usual, ("malloc_trim", (0,))]


def test_a_c_library_without_these_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_c_library", lambda name: None)
    with letting_go([np.zeros(LARGE // 4, np.float32)]):
        pass
