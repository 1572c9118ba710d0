"""Turns of a search: the cheap gains of every subprogram come before the deep ones of any, and a longer budget has the same turns and more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import pytest

from einnet.compile import program_search
from einnet.compile.budget import Schedule
from einnet.compile.program_search import search
from einnet.compile.turns import LEVELS, UNKNOWN, Turns, keeping, saving
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.program import Program
from einnet.instantiate.kernels import Conv, Kernel, Matmul
from einnet.search.choosing.candidate import Choice
from einnet.search.choosing.choose import choose
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from einnet.search.space import Options, Space
from tests.models import tiny

CONV = parse("A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]")
STATE_S, KERNEL_S = 0.04, 0.2


@dataclass
class Machine:
    """A clock on which a state and a measurement take a time of their own, and kernels the time that their content says."""

    patch: pytest.MonkeyPatch
    now: float = 0.0
    known: set[Kernel] = field(default_factory=set)
    turns: list[tuple[str, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.patch.setattr(time, "monotonic", lambda: self.now)
        add, turn = Space._add, program_search._Search.turn

        def slow(space: Space, *rest: object) -> bool:
            self.now += STATE_S
            return add(space, *rest)  # type: ignore[arg-type]

        def told(of: program_search._Search, key: str, *rest: object) -> Choice:
            found = turn(of, key, *rest)  # type: ignore[arg-type]
            self.turns.append((key, found.states, found.best.cost))
            return found

        self.patch.setattr(Space, "_add", slow)
        self.patch.setattr(program_search._Search, "turn", told)

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1e-9 * (1000 + sum(sum(v.shape) for v in (*k.operand_views, *k.result_views))) for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        found: list[float | None] = []
        for k in kernels:
            if k not in self.known and self.now + KERNEL_S <= until:
                self.known.add(k)
                self.now += KERNEL_S
            found.append(self.taking(k) if k in self.known else None)
        return found

    def taking(self, kernel: Kernel) -> float:
        """Up to half again as long as is expected, as the shapes have it."""
        rough = sum(n * side for v in (*kernel.operand_views, *kernel.result_views) for n, side in enumerate(v.shape, 3)) % 7 / 12
        return self.estimates([kernel])[0] * (1 + rough)


def run(budget: float, program: Program) -> tuple[Outcome, Machine]:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(patch)
        outcome = search(program, Settings(max_depth=4, time_budget=budget, allow="precision"), machine, Schedule(0.0, budget))
        return outcome, machine


@pytest.fixture(scope="module")
def runs() -> dict[int, tuple[Outcome, Machine]]:
    program = load(tiny("small", size=8))
    return {budget: run(budget, program) for budget in (10, 20, 40, 80)}


def test_all_have_a_first_turn_before_any_has_a_second(runs: dict[int, tuple[Outcome, Machine]]) -> None:
    for budget, (outcome, machine) in runs.items():
        keys = [key for key, *_ in machine.turns]
        distinct = {r.key for r in outcome.results}
        assert machine.now <= budget
        if budget >= 40:
            assert len(set(keys[: len(distinct)])) == len(distinct), "every subprogram has had a turn, and none a second"
        if budget == 80:
            assert len(keys) > len(distinct), "the time that is left goes into more turns"
        assert all(machine.turns[keys.index(key)][1] <= LEVELS[0].states + 40 for key in set(keys)), "a first turn is a short one"


def test_a_longer_budget_has_the_same_turns_and_more(runs: dict[int, tuple[Outcome, Machine]]) -> None:
    shorter, longer = ([(key, states) for key, states, _ in runs[budget][1].turns] for budget in (40, 80))
    assert longer[: len(shorter) // 2] == shorter[: len(shorter) // 2] and len(longer) > len(shorter)


def test_what_a_budget_finds_twice_the_budget_finds_too(runs: dict[int, tuple[Outcome, Machine]]) -> None:
    def taking(budget: int) -> dict[str, float]:
        outcome, machine = runs[budget]
        results = outcome.apart[1] if outcome.apart else outcome.results
        return {r.key: sum(map(machine.taking, r.choice.best.kernels)) for r in results if r.choice.best.measured < inf}

    for budget in (10, 20, 40):
        shorter, longer = taking(budget), taking(2 * budget)
        assert all(longer[key] <= cost for key, cost in shorter.items())
    assert len(taking(80)) == len({r.key for r in runs[80][0].results}), "all were measured"


def test_more_turns_lose_nothing(runs: dict[int, tuple[Outcome, Machine]]) -> None:
    for _, machine in runs.values():
        best: dict[str, float] = {}
        for key, _, cost in machine.turns:
            assert cost <= best.get(key, inf)
            best[key] = cost


def test_the_next_turn_is_where_a_second_gains_most() -> None:
    turns = Turns({"a": 8.0, "b": 1.0, "c": 4.0}, first_until=10.0)
    assert turns.due(0.0, 100.0) == ["a", "c", "b"]
    for key, seconds in (("a", 4.0), ("c", 1.0)):
        turns.took(key, seconds, finished=False)
        assert turns.due(0.0, 100.0)[0] != "a", "first turns come first"
    assert turns.due(0.0, 100.0) == ["b"]
    assert turns.due(10.0, 100.0) == ["c", "a", "b"], "unless that takes too long"
    assert turns.due(10.0, 13.0) == ["c", "b"], "what could not even do again what it did has no turn"
    assert turns.level("a") == LEVELS[1] and turns.level("b") == LEVELS[0]
    turns.took("b", 0.1, finished=True)
    assert turns.due(0.0, 100.0) == ["c", "a"] and turns.finished == 1
    for _ in LEVELS[1:]:
        turns.took("c", 0.0, finished=False)
    assert turns.due(0.0, 100.0) == ["a"], "the last level ends it"


def test_what_could_save_next_to_nothing_has_no_first_turn_before_others() -> None:
    turns = Turns({"a": 8.0, "b": 0.05, "c": 4.0}, first_until=10.0)
    assert turns.due(0.0, 100.0) == ["a", "c"]
    for key in ("a", "c"):
        turns.took(key, 1.0, finished=False)
    assert turns.due(0.0, 100.0) == ["a", "c", "b"]
    for key in ("a", "c"):
        turns.took(key, 1.0, finished=True)
    assert turns.due(0.0, 100.0) == ["b"], "but a turn when the others are done"


def test_what_could_be_saved_is_what_the_machine_could_do_without() -> None:
    operations, read_and_written = 2 * 57 * 43 * 8 * 5 * 9, 4 * (57 * 43 * 5 + 9 * 40 + 57 * 43 * 8)

    def least(work: float, nbytes: float) -> float:
        assert (work, nbytes) == (pytest.approx(0.9 * operations), read_and_written)
        return 3.0

    assert saving(CONV, 10.0, least) == 7.0
    assert saving(CONV, 3.01, least) == pytest.approx(UNKNOWN * 3.01), "nobody knows, but somebody else comes first"


def test_the_faster_of_two_turns_is_kept_with_its_place() -> None:
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(CONV)

    def choice(others: float, own: float = 1.0) -> Choice:
        """The convolution takes a second, products so long, and generated code nothing."""
        return choose(CONV, forms, lambda ks: [1e-9] * len(ks), lambda ks, _: [seconds(k, others, own) for k in ks])

    def seconds(kernel: Kernel, others: float, own: float) -> float:
        return others if isinstance(kernel, Matmul) else own if isinstance(kernel, Conv) else 0.0 if len(kernel.operand_views) < 2 else 9.0

    fast, slow = choice(0.01), choice(3.0)
    assert fast.best is not fast.original and slow.best is slow.original
    slow.states, fast.states = 10, 12
    kept = keeping(slow, fast)
    assert kept.best is fast.best and kept.candidates[0] is kept.best and kept.states == 12
    assert len({(c.form.key, c.way) for c in kept.candidates}) == len(kept.candidates)
    assert keeping(fast, choice(3.0)).best is fast.best

    earlier = choice(30.0)
    for others, derived in ((30.0, False), (1.5, False), (0.99, False), (0.01, True)):
        found = choice(others, own=2.0)
        best = found.best
        kept = keeping(found, earlier)
        assert kept.original is earlier.original and kept.best is (best if derived else earlier.original)
        assert {id(kept.original), id(kept.best)} <= set(map(id, kept.candidates))
    assert keeping(choice(30.0, own=0.5), earlier).original.measured == 0.5
