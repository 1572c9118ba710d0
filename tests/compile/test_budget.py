"""The time budget: what is given to what, and a search that keeps to it however slow the machine is."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest

import einnet
from einnet.compile import program_search as pipeline
from einnet.compile import subprogram_search
from einnet.compile.budget import Clock, CountedClock, Schedule
from einnet.compile.program_search import search
from einnet.compile.subprogram_search import SubprogramSearch
from einnet.compile.targets.cpu import programs
from einnet.compile.targets.cpu.programs import compiled
from einnet.compile.targets.whole.target import WholeTarget
from einnet.compile.turns import Turns
from einnet.derivation.steps import Derivation
from einnet.errors import OutOfTimeError
from einnet.evidence.sound import keep_proven
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.compile import operator_names
from einnet.runtime.cpu.program import Executable
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.ort import Session
from einnet.search import space
from einnet.search.choosing import choose as choosing
from einnet.search.choosing import making, trials
from einnet.search.choosing.candidate import Choice
from einnet.search.choosing.choose import choose
from einnet.search.forms import plain
from einnet.search.groups import Member
from einnet.search.outcome import Outcome, canonical
from einnet.search.settings import Settings
from einnet.search.space import Options, Space, Statistics, deepen
from einnet.search.time_shares import PROMISED_SHARE
from tests.models import random_inputs, tiny

CONV = parse("A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]")


class SlowMachine:
    """A cost that takes as long to measure as it says: `seconds` for each new kernel, of which a hundredth was expected."""

    def __init__(self, patch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds, self.known = 0.0, seconds, set[Kernel]()
        for module in (pipeline.time, making.time, trials.time, choosing.time, space.time):
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
    many = replace(program, nodes=program.nodes * 3000)
    assert schedule.searched(many, 3, 0.001) < quick - 5, "layers that are alike are one kind of part, and are proven and told of, too"
    assert schedule.searched(program, 3, 1e6) == 130, "half of the time is for the search in any case"
    assert (schedule.kept(110.0), schedule.kept(170.0)) == (140, 170)
    assert schedule.timing_s(115.0) == 20
    assert schedule.timing_s(150.0) == pytest.approx(7)
    assert schedule.timing_s(170.0) == 2.5
    assert Schedule(100.0, 60.0, reference_s=2.0).race_s > 16 > schedule.race_s > 0.5
    loaded, held = Schedule(100.0, 60.0, reference_s=3.0, again_s=3.0), Schedule(100.0, 60.0, reference_s=3.0)
    assert loaded.searched(program, 3, 0.001) == pytest.approx(quick - 12) and held.searched(program, 3, 0.001) == quick
    assert loaded.latest == schedule.latest - 6 and held.latest == schedule.latest


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

    originals = {k for c in making.candidates(forms, lambda ks: [1.0] * len(ks)) if c.original for k in c.build.kernels}

    def choice(slow: float, others: float | None) -> Choice:
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


@pytest.mark.parametrize("ended", [0.3, 0.6, 0.9])
def test_a_search_that_time_has_ended_goes_on_from_there(monkeypatch: pytest.MonkeyPatch, ended: float) -> None:
    """Each look at the clock takes a second: the second turn repeats nothing of the first, and finds what one turn without an end finds."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    wanted, _ = deepen(CONV, Options(max_depth=2, deadline=1e9))
    until, seconds = ended * next(seconds), itertools.count()
    expanded: list[str] = []
    expand = Space._expand

    def counted(self: Space, root: object, group: object, member: Member) -> None:
        expanded.append(member.scope.key)
        expand(self, root, group, member)  # type: ignore[arg-type]

    monkeypatch.setattr(Space, "_expand", counted)
    turns = SubprogramSearch(Settings(), Mock(), Schedule(0.0, 60.0), Mock())
    first, statistics = turns.deepened(CONV, Options(max_depth=2, deadline=until), lambda found: None)
    before = len(expanded)
    assert statistics.stopped == "time" and first
    found, statistics = turns.deepened(CONV, Options(max_depth=2), lambda found: None)
    assert not statistics.stopped and len(expanded) > before > 0
    assert len(set(expanded)) == len(expanded)
    assert {f.key for f in found} == {f.key for f in wanted}
    assert not turns.spaces, "what is complete is not kept"


class Hand:
    """A clock that is set by hand, for the clock and the processor at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for name in ("monotonic", "process_time"):
            patch.setattr(time, name, lambda: self.now)


def test_what_nothing_can_cut_short_is_given_up_in_time_and_after_some_work(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = 50.0
    hand = Hand(monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: worked)
    some, patient = Schedule(0.0, 60.0, again_s=0.5, worked=50.0), Schedule(0.0, 60.0, again_s=0.5)
    assert 60 * 0.5 <= some.latest < 60 - 2 * 0.5, "ONNX Runtime has to load and run the model after it"
    assert Schedule(0.0, 10.0, again_s=1e3).latest == 5.0, "half of the time is there for the work in any case"
    hand.now, worked = some.latest - 1e-3, 1e3
    some.hurry("compile")
    hand.now, worked = some.latest, 59.0
    some.hurry("compile")
    worked = 60.0
    patient.hurry("compile")
    with pytest.raises(OutOfTimeError, match="no time was left to compile"):
        some.hurry("compile")
    counted = Schedule(0.0, 60.0, clock=CountedClock(), worked=50.0)
    counted.hurry("compile")


@pytest.mark.parametrize(("share", "most", "left", "least"), [
    (40.0, 10.0, 10.0, 5.0), (4.0, 10.0, 4.0, 2.0), (0.0, 10.0, 24.0, 0.0), (-5.0, 1.0, -5.0, 0.0),
])  # fmt: skip
def test_what_making_candidates_takes_is_not_taken_from_measuring_them(
    monkeypatch: pytest.MonkeyPatch, share: float, most: float, left: float, least: float
) -> None:  # fmt: skip
    hand = Hand(monkeypatch)
    turns = SubprogramSearch(Settings(), Mock(), Schedule(0.0, 60.0), Mock(requested=False))
    assert turns.measuring(hand.now, share, most) == (left, least)


def test_each_part_is_promised_its_share_of_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what could be saved of it: one of three parts of the time, and of the rest of it one half."""
    hand, promised = Hand(monkeypatch), list[float]()

    def chosen(expression: Scope, forms: object, *args: object, promised_s: float, **named: object) -> Choice:
        promised.append(promised_s)
        return choose(CONV, [plain(CONV)], lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks))

    monkeypatch.setattr(subprogram_search, "choose", chosen)
    monkeypatch.setattr(SubprogramSearch, "deepened", lambda *args: ([plain(CONV)], Statistics()))
    search = pipeline._Search(Mock(), Settings(), Mock(spec=["estimates", "measured"]), Schedule(hand.now, 60.0), Mock(requested=False))
    turns = Turns({CONV.key: 1.0, "other": 2.0}, inf)
    search.turn(CONV.key, CONV, turns, 30.0, None, search.single.chosen(CONV, 0.0, (0, 1)))
    assert promised == [0.0, pytest.approx(PROMISED_SHARE * 30.0 / 3)]


def test_a_search_that_takes_too_long_for_its_own_operators_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every subprogram takes three seconds to be looked at, whatever its share is."""
    hand, looked = Hand(monkeypatch), list[float]()
    program = prepare(load(tiny("inception")))

    def one(self: object, *args: object, **named: object) -> Choice:
        looked.append(hand.now)
        hand.now += 3.0
        return choose(CONV, [plain(CONV)], lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks))

    monkeypatch.setattr(SubprogramSearch, "chosen", one)
    schedule = Schedule(0.0, 20.0, worked=0.0)
    with pytest.raises(OutOfTimeError):
        search(program, Settings(time_budget=20.0), Mock(spec=["estimates", "measured"]), schedule)
    assert looked and looked[-1] < schedule.latest <= hand.now <= schedule.latest + 3


def hurrying(calls: int) -> tuple[list[None], Callable[[], None]]:
    """Raises when it is called once more than that."""
    called: list[None] = []

    def hurry() -> None:
        called.append(None)
        if len(called) > calls:
            raise OutOfTimeError("no time was left")

    return called, hurry


def test_proofs_that_are_needed_and_kernels_ask_whether_there_is_time(tmp_path: Path) -> None:
    def anew(name: str) -> CpuCost:
        return CpuCost(1, ProfileDatabase(tmp_path / name / "p.sqlite"), measure=False)

    program, cost = prepare(load(tiny("inception"))), anew("a")
    outcome = search(program, Settings(derive=False, time_budget=60.0), cost, Schedule(time.monotonic(), 60.0))
    called, hurry = hurrying(10**6)
    keep_proven(outcome, Settings(), hurry=hurry)
    assert len(called) == len({r.key for r in outcome.results}) > 2
    with pytest.raises(OutOfTimeError):
        keep_proven(outcome, Settings(), hurry=hurrying(2)[1])
    called, hurry = hurrying(10**6)
    _, made = compiled(outcome, anew("b"), 0.0, hurry=hurry)
    kernels = [k for k in made["original"].plan.kernels if isinstance(k, EOperator)]
    assert len(called) >= len(set(operator_names(kernels))) > 2
    with pytest.raises(OutOfTimeError):
        compiled(outcome, anew("c"), 0.0, hurry=hurrying(2)[1])
    compiled(outcome, anew("b"), 0.0, hurry=hurrying(0)[1])  # what is at hand takes no time


def test_the_models_own_operators_are_kept_when_the_time_for_what_was_derived_is_over(tmp_path: Path) -> None:
    """However much was found: what is certain is compiled first."""
    found = forced(prepare(load(tiny("small", size=8))))
    outcome, made = compiled(found, CpuCost(1, measure=False), 0.0)
    assert set(made) == {"optimized", "original"} and outcome.changed

    def over(plan: Plan, *args: object, hurry: Callable[[], None], **named: object) -> Executable:
        hurry()
        return made["original"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "built", over)
        outcome, kept = compiled(found, CpuCost(1, measure=False), 0.0, hurry=hurrying(1)[1])
        assert kept == {"original": made["original"]} and not outcome.changed
        assert any("what was derived is not compiled" in note for note in outcome.notes)
        with pytest.raises(OutOfTimeError):
            compiled(found, CpuCost(1, measure=False), 0.0, hurry=hurrying(0)[1])


def test_what_is_certain_is_finished_before_anything_is_explored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every subprogram, those too that are never explored: the code and the proof of the model's own operators."""
    cost, proven, told = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"), measure=False), list[Derivation](), list[int]()
    program = prepare(load(tiny("inception")))
    monkeypatch.setattr(pipeline, "unproven", lambda derivation, *_: proven.append(derivation))

    def explore(_: object, expressions: dict[str, Scope], chosen: dict[str, Choice], *__: object) -> None:
        kernels = [k for c in chosen.values() for k in c.original.build.kernels if isinstance(k, EOperator)]
        told.append(len(kernels))
        assert not any(cost.objects.seconds(k) for k in kernels)
        assert {c.original.form.derivation for c in chosen.values()} == set(proven)

    monkeypatch.setattr(pipeline._Search, "explore", explore)
    search(program, Settings(time_budget=60.0), cost, Schedule(time.monotonic(), 60.0))
    assert told and told[0] > 2
    late = CpuCost(1, ProfileDatabase(tmp_path / "late" / "p.sqlite"), measure=False)
    choices = own_choices(program, late)
    with pytest.raises(OutOfTimeError):
        pipeline._Search(program, Settings(), late, Late(), Mock(requested=False)).secure(choices, 30.0)


def test_what_is_measured_first_is_compiled_before_anything_is_measured(tmp_path: Path) -> None:
    """All processors compile then; measuring wants them for itself. When the time to measure is over, nothing is compiled for it."""
    done: list[tuple[str, frozenset[Kernel]]] = []

    class Noted(CpuCost):
        def secure(self, kernels: Sequence[Kernel], hurry: Callable[[], None]) -> None:
            done.append(("compiled", frozenset(kernels)))
            super().secure(kernels, hurry)

        def within(self, kernel: Kernel, until: float, limit: float) -> tuple[float | None, bool]:
            done.append(("measured", frozenset([kernel])))
            return 1e-3, True

    program, cost = prepare(load(tiny("inception"))), Noted(1, ProfileDatabase(tmp_path / "p.sqlite"), measure=False)
    found = pipeline._Search(program, Settings(), cost, Schedule(time.monotonic(), 60.0), Mock(requested=False)).costed(
        {p.key: canonical(p.expression) for p in subprograms(program)}
    )
    (first, compiled), *rest = done
    assert first == "compiled" and all(what == "measured" for what, _ in rest)
    assert len(compiled) > 2
    for choice in found.values():
        tried = [{k for k in c.kernels if isinstance(k, EOperator)} for c in choice.candidates if c.original and c.tried]
        assert any(kernels <= compiled for kernels in tried)
    done.clear()
    late = pipeline._Search(program, Settings(), cost, Schedule(time.monotonic() - 59.0, 60.0), Mock(requested=False))
    assert late.single.ahead({k: c.expression for k, c in found.items()}) == {} and not done


def own_choices(program: Program, cost: CpuCost) -> list[Choice]:
    """The model's own operators, not compiled."""
    outcome = search(program, Settings(derive=False), cost, Schedule(time.monotonic(), 60.0))
    return [r.choice for r in outcome.results]


def test_a_search_ends_later_by_what_is_done_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is kept for the end; a quick one has all the time that it had."""
    hand = Hand(monkeypatch)

    def end(begin: float, takes: float) -> float:
        hand.now = begin
        cost = Mock(secure=lambda *_: setattr(hand, "now", hand.now + takes))
        return pipeline._Search(Mock(), Settings(), cost, Schedule(0.0, 60.0), Mock(requested=False)).secure([], 30.0)

    assert end(10.0, 0.5) == 30.5
    assert end(10.0, 15.0) == 32.0, "what finishing a program is expected to take, and no more"
    assert end(29.0, 15.0) == 45.0
    assert end(10.0, 25.0) == 37.0
    quiet = pipeline._Search(Mock(), Settings(derive=False), Mock(), Schedule(0.0, 60.0), Mock(requested=False))
    assert quiet.secure([], 30.0) == 30.0


class Late(Schedule):
    """It is too late for anything."""

    def __init__(self) -> None:
        super().__init__(0.0, 60.0)

    def hurry(self, what: str) -> None:
        raise OutOfTimeError(what)


def forced(program: Program) -> Outcome:
    """A search whose candidates are drawn."""
    schedule = Schedule(0.0, 20.0, clock=CountedClock())
    return search(program, Settings(force=1, time_budget=20.0), CpuCost(1, measure=False), schedule)


def test_a_model_for_which_time_is_over_is_kept_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tiny("small", size=8)
    onnx.save(model, tmp_path / "m.onnx")
    monkeypatch.setattr("einnet.compile.pipeline.begun", lambda: 0.0)
    monkeypatch.setattr("einnet.compile.budget.WORKED_S", -1e9)
    monkeypatch.setattr(Schedule, "latest", property(lambda self: -inf))
    handled: list[object] = []
    read = WholeTarget.read
    monkeypatch.setattr(WholeTarget, "read", lambda self, model: (handled.append(sys.exc_info()[0]), read(self, model))[1])
    found = einnet.optimize(tmp_path / "m.onnx", threads=1, time_budget=5)
    assert found.outcome.whole or "no time was left" in " ".join(found.outcome.notes)
    assert handled == [None], "an error that is handled would keep what was read and loaded until it was raised"
    inputs = random_inputs(model)
    for name, value in Session(tmp_path / "m.onnx", 1)(inputs).items():
        np.testing.assert_array_equal(found(inputs)[name], value)
    assert einnet.optimize(tmp_path / "m.onnx", threads=1, time_budget=5, force=1).outcome.changed, "what is forced is made whatever the time"
