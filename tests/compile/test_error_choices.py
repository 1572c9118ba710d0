"""What takes least, of what errs no more than a limit together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from math import inf, sqrt
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.compile.targets.cpu import error_choices
from einnet.compile.targets.cpu.error_choices import Option, front, options, picked
from einnet.search.choosing.candidate import Candidate, Choice

NONE = SimpleNamespace()


def option(seconds: float, square: float) -> Option:
    return Option(NONE, square > 0, seconds, square)  # type: ignore[arg-type]


PARTS = st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4), min_size=1, max_size=4)


@given(PARTS, st.floats(0, 5))
def test_what_is_picked_stays_within_the_limit_where_anything_does(parts: list[list[tuple[int, int]]], limit: float) -> None:
    fronts = [front(option(*one) for one in part) for part in parts]
    found = picked(fronts, limit)
    squares = sum(o.square for o in found)
    assert all(o in part for o, part in zip(found, fronts, strict=True))
    least = sum(min(o.square for o in part) for part in fronts)
    assert squares <= max(limit * limit, least)
    every = [sum(o.seconds for o in some) for some in product(*fronts) if sum(o.square for o in some) <= limit * limit]
    if len(parts) == 1 and every:
        assert found[0].seconds == min(every), "of one part the fastest that is within the limit"
    if sum(part[0].square for part in fronts) <= limit * limit:
        assert found == [part[0] for part in fronts]


def test_what_gains_most_for_its_time_is_exchanged_first() -> None:
    """The first part errs nine less for one second, the second eight less for four."""
    one, other = [option(1, 9), option(2, 0)], [option(1, 8), option(5, 0)]
    assert [o.square for o in picked([one, other], 3.0)] == [0, 8]
    assert [o.square for o in picked([one, other], 2.0)] == [0, 0]
    assert [o.square for o in picked([one, other], sqrt(17))] == [9, 8]
    assert [o.square for o in picked([[option(1, inf), option(3, 0)], other], 3.0)] == [0, 8]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=6))
def test_a_front_has_what_is_better_than_all_that_is_faster(some: list[tuple[int, int]]) -> None:
    found = front(option(*one) for one in some)
    assert [o.seconds for o in found] == sorted({o.seconds for o in found})
    assert [o.square for o in found] == sorted({o.square for o in found}, reverse=True)
    assert all(any(o.seconds <= s and o.square <= e for o in found) for s, e in some)


class Costs:
    """Seconds of candidates' kernels when they round and when they do not, as predicted and as measured."""

    def __init__(self, rounded: dict[str, float], plain: dict[str, float], measured: dict[str, float | None] | None = None) -> None:
        self.known, self.other, self.measures = rounded, plain, measured or {}
        self.asked: list[str] = []

    def in_float32(self) -> Costs:
        found = Costs(self.other, self.other, self.measures)
        found.asked = self.asked
        return found

    def estimates(self, kernels: Sequence[str]) -> list[float]:
        return [self.known[k] for k in kernels]

    def measured(self, kernels: Sequence[str], until: float) -> list[float | None]:
        self.asked += kernels
        return [self.measures.get(k, self.known[k]) for k in kernels]


class One(Candidate):
    @property
    def kernels(self):
        return (self.build,)


def choice(grown: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Choice:
    monkeypatch.setattr(error_choices, "growth", lambda start, tree: grown[tree])
    made = [One(form=SimpleNamespace(start=None, tree=name, unchanged=name == "plain"), build=name) for name in grown]  # type: ignore[arg-type]
    return Choice(None, list(made), made[0], made[0])  # type: ignore[arg-type]


def test_the_ways_of_a_part_by_time_and_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = choice({"plain": 1.0, "fast": 8.0, "middle": 2.0, "worse": 9.0}, monkeypatch)
    costs = Costs({"plain": 5.0, "fast": 2.0, "middle": 3.0, "worse": 2.5}, {"plain": 9.0, "fast": 4.0, "middle": 7.0, "worse": 8.0})
    found = options(one, 10, 0.5, costs, inf)  # type: ignore[arg-type]
    told = [(o.candidate.build, o.rounds, o.seconds, o.square) for o in found]
    assert told == [("fast", True, 20.0, 32.0), ("middle", True, 30.0, 2.0), ("fast", False, 40.0, 0.0)], "the plain one that rounds is slower"
    assert found[0].candidate.measured == 2.0
    assert "worse" not in costs.asked and "plain" not in costs.asked
    assert options(one, 10, 0.5, costs, time.monotonic() - 1) == []  # type: ignore[arg-type]


def test_what_is_not_measured_or_refused_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    one = choice({"plain": 1.0, "fast": 8.0, "middle": 2.0}, monkeypatch)
    costs = Costs({"plain": 5.0, "fast": 2.0, "middle": 3.0}, {"plain": 9.0, "fast": 4.0, "middle": 7.0}, {"fast": None, "middle": inf})
    assert [(o.candidate.build, o.rounds) for o in options(one, 1, 1.0, costs, inf)] == [("plain", True), ("plain", False)]  # type: ignore[arg-type]
    unknown = options(one, 1, inf, Costs({"plain": 5.0, "fast": 2.0, "middle": 3.0}, {"plain": 9.0, "fast": 4.0, "middle": 7.0}), inf)  # type: ignore[arg-type]
    assert [(o.candidate.build, o.rounds) for o in unknown] == [("fast", True), ("fast", False)], "all err by no one knows how much"
