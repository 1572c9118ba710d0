"""The time budget: what is given to what, and a search that keeps to it however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from unittest.mock import Mock

import pytest

from einnet.compile import program_search as pipeline
from einnet.compile.budget import Clock, CountedClock, Schedule
from einnet.compile.program_search import search
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.instantiate.kernels import Kernel
from einnet.search import candidates, space
from einnet.search.candidates import choose
from einnet.search.settings import Settings
from einnet.search.space import Options, Space
from tests.models import tiny

CONV = parse("A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]")


class SlowMachine:
    """A cost that takes as long to measure as it says: `seconds` for each new kernel, of which a hundredth was expected."""

    def __init__(self, patch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds, self.known = 0.0, seconds, set[Kernel]()
        for module in (pipeline.time, candidates.time, space.time):
            patch.setattr(module, "monotonic", lambda: self.now)

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [self.seconds / 100 for _ in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        found: list[float | None] = []
        for kernel in kernels:
            if kernel not in self.known and self.now + self.seconds <= until:
                self.known.add(kernel)
                self.now += self.seconds
            found.append(self.seconds if kernel in self.known else None)
        return found


@pytest.mark.parametrize("seconds", [1e-4, 0.2, 3.0, 100.0])
def test_the_search_ends_in_time_however_slow_measuring_is(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    machine, schedule = SlowMachine(monkeypatch, seconds), Schedule(0.0, 20.0)
    program = load(tiny("small", size=8))
    outcome = search(program, Settings(max_depth=1, time_budget=20.0), machine, schedule)
    assert machine.now <= schedule.searched(program, 1, 0.0)
    assert {r.choice.original.measured for r in outcome.results} == {inf} if seconds > 20 else machine.known
    if seconds > 20:
        assert not any(r.changed for r in outcome.results), "what was not measured is not chosen"


def test_the_end_takes_longer_for_more_parts_weights_and_slower_models() -> None:
    program, schedule = load(tiny("small", size=8)), Schedule(100.0, 60.0)
    quick = schedule.searched(program, 3, 0.001)
    assert schedule.costed < quick < schedule.end
    assert schedule.searched(program, 100, 0.001) < quick
    assert schedule.searched(program, 3, 1.0) < quick
    assert schedule.searched(program, 3, 1e6) == 130, "half of the time is for the search in any case"
    assert (schedule.kept(110.0), schedule.kept(170.0)) == (140, 170)
    assert schedule.timing_s(115.0) == 20
    assert schedule.timing_s(150.0) == pytest.approx(7)
    assert schedule.timing_s(170.0) == 2.5
    assert Schedule(100.0, 60.0, reference_s=2.0).race_s > 16 > schedule.race_s > 0.5


def test_proofs_end_by_the_clock_and_after_some_work_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the processor has worked little when time is over; states that are counted are no time, and what is forced has no end."""
    passed, worked = 100.0, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    monkeypatch.setattr(time, "process_time", lambda: worked)

    def end(settings: Settings, clock: Clock) -> Callable[[], bool]:
        return pipeline._Search(Mock(), settings, Mock(), Schedule(clock.now() - 90.0, 100.0, clock=clock), Mock()).proofs_end()

    late, counted, forced = end(Settings(), Clock()), end(Settings(), CountedClock()), end(Settings(force=0), Clock())
    assert not late()
    passed, worked = 106.5, 1.0
    assert not late()
    worked = 6.0
    assert late() and not counted() and not forced()
    passed = 105.0
    assert not late()


def test_an_original_that_was_not_measured_is_beaten_only_by_what_was() -> None:
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(CONV)

    originals = {k for c in candidates.candidates(forms, lambda ks: [1.0] * len(ks)) if c.original for k in c.build.kernels}

    def choice(slow: float, others: float | None) -> candidates.Choice:
        def estimates(kernels: Sequence[Kernel]) -> list[float]:
            return [slow if k in originals else slow / 100 for k in kernels]

        return choose(CONV, forms, estimates, lambda kernels, _: [None if k in originals else others for k in kernels])

    faster = choice(1.0, 0.1)
    assert faster.best is not faster.original
    assert faster.original.measured == inf
    assert faster.best.measured < 1.0
    slower, unknown = choice(1.0, 1.5), choice(1.0, None)
    assert slower.best is slower.original
    assert unknown.best is unknown.original


def test_what_cannot_run_as_the_model_has_it_is_explored_too() -> None:
    class Refusing:
        """The kernels that were asked for in a first run get no memory in the second."""

        def __init__(self) -> None:
            self.asked, self.refused = set[Kernel](), set[Kernel]()

        def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
            return [1e-3] * len(kernels)

        def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
            self.asked |= set(kernels)
            return [inf if k in self.refused else 1e-3 for k in kernels]

    program, cost = load(tiny("small", size=8)), Refusing()
    search(program, Settings(derive=False), cost, Schedule(time.monotonic(), 20.0))
    cost.refused = set(cost.asked)
    outcome = search(program, Settings(max_depth=1, time_budget=20.0), cost, Schedule(time.monotonic(), 20.0))
    assert {r.choice.depth for r in outcome.results} == {1}
    assert any(r.choice.best.cost < inf for r in outcome.results)
