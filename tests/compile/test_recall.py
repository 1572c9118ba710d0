"""A second run of a model recalls what the first has found: replayed and proven, never trusted."""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_draws
from hypothesis import strategies as st

import einnet
from einnet.compile import subprogram_search as searching
from einnet.compile.budget import CountedClock, Schedule
from einnet.compile.history import Memory, Places
from einnet.compile.program_search import search
from einnet.compile.turns import beginning
from einnet.evidence import sound
from einnet.evidence.comparison.verify import Trial
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.instantiate.kernels import Conv, Kernel, Matmul
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import Timing
from einnet.search.choosing.candidate import Choice
from einnet.search.choosing.choose import choose
from einnet.search.forms import Form
from einnet.search.recall import choice_from, choice_json
from einnet.search.settings import Settings
from einnet.search.space import Options, Space, Statistics
from tests.models import tiny, two_layers

EXPRESSIONS = {
    "conv": "A : f32[57,43,5]\nK : weight f32[3,3,5,8]\nL[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]",
    "tail": "A : f32[57,43]\nK : weight f32[43,8]\nb : weight f32[8]\nL[m<57,n<8] relu({L[m<57,n<8] Σ[k<43] A[m,k]*K[k,n]}[m,n] + b[n])",
}
ARGUMENTS = {"max_depth": 1, "time_budget": 2, "threads": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of its own, and no time spent on comparing programs."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    same = {name: Timing(1.0, 0.0, 3) for name in ("onnxruntime", "original", "optimized")}
    monkeypatch.setattr(Trial, "compare", lambda *_: {**same, "noise": 0.01, "once": False})
    return tmp_path


def test_a_choice_comes_back_and_damage_is_found() -> None:
    expression = parse(EXPRESSIONS["conv"])
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(expression)
    order = {k: n for n, k in enumerate(dict.fromkeys(k for c in choose(expression, forms, ones, all_of(1.0)).candidates for k in c.kernels))}
    choice = choose(expression, forms, ones, lambda kernels, _: [1.0 / (1 + order[k]) for k in kernels])
    value = json.loads(json.dumps(choice_json(choice, choice.candidates)))
    back = choice_from(value, expression, ones)
    assert back is not None
    assert back.best.kernels == choice.best.kernels
    assert (back.best.measured, back.original.measured) == (choice.best.measured, choice.original.measured)
    assert choice_from({}, expression, ones) is None
    assert choice_from({**value, "forms": []}, expression, ones) is None
    assert choice_from({**value, "scopes": value["scopes"][:-1]}, expression, ones) is None
    other = {**value, "forms": [[f[0], f[1], f[2], f[3][:-1]] if f[3] else f for f in value["forms"]]}
    cut = choice_from(other, expression, ones)
    assert cut is not None
    assert not any(c.form.steps for c in cut.candidates), "a derivation that does not lead to its tree is dropped"
    assert choice_from(value, parse(EXPRESSIONS["tail"]), ones) is None


def ones(kernels):
    return [1e-9 for _ in kernels]


def all_of(seconds):
    return lambda kernels, _: [seconds for _ in kernels]


def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are explored from now on."""
    seen: list[str] = []
    deepen = searching.deepen
    monkeypatch.setattr(searching, "deepen", lambda e, *rest: seen.append(e.text()) or deepen(e, *rest))
    return seen


def test_a_second_run_searches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = einnet.optimize(two_layers(), **ARGUMENTS)
    seen = searched(monkeypatch)
    second = einnet.optimize(two_layers(), **ARGUMENTS)
    assert not seen
    distinct = len({s["key"] for s in first.report["subprograms"]})
    assert f"{distinct} of {distinct} subprograms recalled from an earlier search" in second.report["notes"]
    assert second.report["totals"]["states"] == first.report["totals"]["states"]
    for before, after in zip(first.report["subprograms"], second.report["subprograms"], strict=True):
        assert {tuple(c["kernels"]) for c in after["candidates"]} >= {tuple(c["kernels"]) for c in before["candidates"]}
    assert second.report["verification"]["passed"]


@pytest.mark.parametrize("how", ["killed", "Ctrl-C"])
def test_an_interrupted_run_is_resumed(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """What was explored before is recalled, what was cut short or not reached is searched."""
    explored: list[str] = []
    deepen = searching.deepen

    def breaking(expression, options, *rest):
        if options.max_depth and explored:
            if how == "killed":
                raise SystemExit(137)
            signal.raise_signal(signal.SIGINT)
        elif options.max_depth:
            explored.append(expression.text())
        return deepen(expression, options, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(searching, "deepen", breaking)
        with pytest.raises(SystemExit) if how == "killed" else contextlib.nullcontext():
            einnet.optimize(two_layers(), **(ARGUMENTS | {"time_budget": 60}))
    seen = searched(monkeypatch)
    result = einnet.optimize(two_layers(), **(ARGUMENTS | {"time_budget": 60}))
    assert explored[0] not in seen and seen
    distinct = {s["key"] for s in result.report["subprograms"]}
    assert f"1 of {len(distinct)} subprograms recalled from an earlier search" in result.report["notes"]
    assert result.report["verification"]["passed"]


@pytest.mark.parametrize("change", [{"time_budget": 3}, {"fresh": True}, {"max_depth": 0}, {"rules": ("sum-split",)}])
def test_what_was_asked_otherwise_is_searched(monkeypatch: pytest.MonkeyPatch, change: dict[str, object]) -> None:
    einnet.optimize(two_layers(), **ARGUMENTS)
    seen = searched(monkeypatch)
    einnet.optimize(two_layers(), **(ARGUMENTS | change))
    assert seen


def test_a_forged_derivation_is_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    einnet.optimize(two_layers(), **ARGUMENTS)
    database = ProfileDatabase(cache / "profile.sqlite")
    connection = database._open()
    rows = connection.execute("SELECT key, value FROM results").fetchall()
    forged = [(value.replace('["h",0,', '["h",1,').replace('["m",0,', '["m",1,'), key) for key, value in rows]
    with connection:
        connection.executemany("UPDATE results SET value = ? WHERE key = ?", forged)
    assert any(a[0] != b[1] for a, b in zip(forged, rows))
    seen = searched(monkeypatch)
    result = einnet.optimize(two_layers(), **ARGUMENTS)
    assert seen
    assert result.report["verification"]["passed"]


def test_clearing_forgets(cache: Path) -> None:
    database = ProfileDatabase(cache / "profile.sqlite")
    database.remember([({"a": 1}, {"b": [1, 2]}), ("c", None)])
    assert database.recall([{"a": 1}, "other"]) == [{"b": [1, 2]}, None]
    database.clear()
    assert database.recall([{"a": 1}]) == [None]


class Counting:
    """Products take a tenth of a second, convolutions a second, generated code nothing but where it reads several tensors."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1e-9 for _ in kernels]

    def measured(self, kernels: Sequence[Kernel], _: float) -> list[float | None]:
        return [0.1 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 0.0 if len(k.operand_views) < 2 else 9.0 for k in kernels]


def convolved() -> Choice:
    """A convolution that a product is faster for."""
    expression = parse(EXPRESSIONS["conv"])
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(expression)
    choice = choose(expression, forms, ones, Counting().measured)
    assert not choice.best.original
    return choice


@pytest.mark.parametrize(
    ("change", "found"),
    [({"allow": "precision"}, True), ({"time_budget": 60}, False), ({"allow": "precision", "fresh": True}, False),
     ({"allow": "precision", "max_depth": 3}, False), ({"allow": "precision", "time_budget": 60}, True)],
)  # fmt: skip
def test_a_wider_class_is_told_what_a_narrower_one_found(cache: Path, change: dict[str, Any], found: bool) -> None:
    database, choice, settings = ProfileDatabase(cache / "profile.sqlite"), convolved(), Settings(max_depth=2, time_budget=2, threads=1)
    Memory(database, settings, "here").remember([choice])
    other = Memory(database, replace(settings, **change), "here")
    assert not other.recall({"conv": choice.expression}, ones)
    back = other.narrower({"conv": choice.expression}, ones)
    assert {key: c.best.kernels for key, c in back.items()} == ({"conv": choice.best.kernels} if found else {})
    assert not Memory(database, replace(settings, **change), "elsewhere").narrower({"conv": choice.expression}, ones)


def test_a_wider_class_begins_with_what_a_narrower_one_found(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its own search finds nothing, and what it begins with is proven as all else is."""
    program = load(tiny("fsrcnn"))

    def chosen(database: str, allow: str) -> dict[str, tuple[Kernel, ...]]:
        settings = Settings(max_depth=1, time_budget=600, threads=1, allow=allow)
        memory = Memory(ProfileDatabase(cache / database), settings, "here")
        outcome = search(program, settings, Counting(), Schedule(0.0, 600, clock=CountedClock()), memory)
        return {r.key: r.candidate.kernels for r in outcome.results if r.changed}

    first = chosen("known.sqlite", "reassociation")
    deepen = searching.deepen

    def nothing(*arguments: Any) -> tuple[list[Form], Statistics]:
        forms, statistics = deepen(*arguments)
        return [form for form in forms if form.unchanged], statistics

    monkeypatch.setattr(searching, "deepen", nothing)
    assert first and chosen("new.sqlite", "precision") == {}
    assert chosen("known.sqlite", "precision") == first
    monkeypatch.setattr(sound, "unproven", lambda *_: "it is not")
    assert chosen("known.sqlite", "precision") == {}


@pytest.mark.parametrize(
    ("change", "found"),
    [({}, True), ({"allow": "exact"}, False), ({"time_budget": 60}, False), ({"time_budget": 1}, True), ({"fresh": True}, False),
     ({"max_depth": 3}, False)],
)  # fmt: skip
def test_a_wider_class_answers_for_a_narrower_one(cache: Path, change: dict[str, Any], found: bool) -> None:
    """Where what it chose is allowed to that, and it had no less time. What is not allowed is no candidate either."""
    expression = parse(EXPRESSIONS["conv"])
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(expression)
    split = [f for f in forms if f.unchanged or {"reassociation"} <= {s.kind for s in f.steps}]
    own = {k for c in choose(expression, split, ones, all_of(1.0)).candidates if c.original for k in c.kernels}
    choice = choose(expression, split, ones, lambda kernels, _: [1.0 if k in own else 1e-3 for k in kernels])
    database = ProfileDatabase(cache / "profile.sqlite")
    assert not choice.best.original
    settings = Settings(max_depth=2, time_budget=2, threads=1, allow="precision")
    Memory(database, settings, "here").remember([choice])
    asked = replace(settings, **{"allow": "reassociation", **change})
    back = Memory(database, asked, "here").recall({"conv": choice.expression}, ones)
    assert {key: c.best.kernels for key, c in back.items()} == ({"conv": choice.best.kernels} if found else {})
    assert all(not any(s.kind == "precision" for s in c.form.steps) for c in back.values() for c in c.candidates)
    assert not Memory(database, asked, "elsewhere").recall({"conv": choice.expression}, ones)


def test_what_stays_as_it_is_in_a_wider_class_does_so_in_a_narrower_one(cache: Path) -> None:
    """The model's own operators are allowed to every class; of the other candidates those that are."""
    database, choice = ProfileDatabase(cache / "profile.sqlite"), convolved()
    choice = choose(choice.expression, [c.form for c in choice.candidates], ones, lambda kernels, _: [1.0 for _ in kernels], gain=0.999)
    assert choice.best is choice.original
    settings = Settings(max_depth=2, time_budget=2, threads=1, allow="precision")
    Memory(database, settings, "here").remember([choice])
    (back,) = Memory(database, replace(settings, allow="exact"), "here").recall({"conv": choice.expression}, ones).values()
    assert back.best is back.original and back.best.kernels == choice.original.kernels
    assert all(c.original or all(s.kind == "exact" for s in c.form.steps) for c in back.candidates)


@pytest.mark.parametrize(("slower", "known", "found"), [(1.0, True, True), (1.5, True, False), (1.0, False, False)])
def test_more_arithmetics_answer_for_fewer_where_the_choice_takes_no_longer_in_these(cache: Path, slower: float, known: bool, found: bool) -> None:
    """Nothing that could be chosen in fewer takes less there; that the choice takes as much is to be known."""
    database, choice, settings = ProfileDatabase(cache / "profile.sqlite"), convolved(), Settings(max_depth=2, time_budget=2, threads=1)
    told = {k: t for c in choice.candidates for k, t in zip(c.kernels, c.seconds)}
    Memory(database, settings, "with bf16").remember([choice])

    def seconds(kernels: Sequence[Kernel]) -> list[float | None]:
        return [slower * told[k] if known else None for k in kernels]

    memory = Memory(database, settings, Places("float32", more=["with f16", "with bf16"], seconds=seconds))
    back = memory.recall({"conv": choice.expression}, ones)
    assert {key: c.best.kernels for key, c in back.items()} == ({"conv": choice.best.kernels} if found else {})
    assert all(c.kernels in (choice.best.kernels, choice.original.kernels) for one in back.values() for c in one.candidates)
    assert not memory.narrower({"conv": choice.expression}, ones), "what may round is no beginning for what may not"
    wider = Memory(database, settings, Places("with all", fewer=["with bf16"]))
    assert wider.narrower({"conv": choice.expression}, ones) and not wider.recall({"conv": choice.expression}, ones)


def test_what_is_known_is_no_slower_than_what_less_allows(cache: Path) -> None:
    """A narrower class that was searched later, and better, is told where the wider one is recalled."""
    database, choice, settings = ProfileDatabase(cache / "profile.sqlite"), convolved(), Settings(max_depth=2, time_budget=2, threads=1)
    worse = choose(choice.expression, [c.form for c in choice.candidates if c.original], ones, Counting().measured)
    Memory(database, replace(settings, allow="precision"), "here").remember([worse])
    Memory(database, settings, "here").remember([choice])
    (back,) = Memory(database, replace(settings, allow="precision"), "here").recall({"conv": choice.expression}, ones).values()
    assert back.best.kernels == choice.best.kernels


BUDGETS = (1e-5, 1e-3, 1e-2)


class Rounding(Counting):
    """Products take less in each of so many arithmetics, by what they are."""

    def __init__(self, arithmetics: int) -> None:
        self.arithmetics = arithmetics

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [self.seconds(k, s) for k, s in zip(kernels, super().measured(kernels, until), strict=True)]

    def seconds(self, kernel: Kernel, seconds: float | None) -> float | None:
        drawn = [0.3 + Random(f"{n} {kernel!r}").random() for n in range(self.arithmetics)] if isinstance(kernel, Matmul) else []
        return None if seconds is None else min([1.0, *drawn]) * seconds

    def stored(self, kernels: Sequence[Kernel]) -> list[float | None]:
        return self.measured(kernels, inf)


@given(st.lists(st.sampled_from(range(3)), min_size=2, max_size=4), st.integers(0, 99))
@settings_of_draws(max_examples=5)
def test_a_wider_budget_is_never_slower(order: list[int], seed: int) -> None:
    """In whatever order budgets are asked for, and whatever the searches happen to find: what is chosen for a wider one takes no more time by what
    was measured, than what any search before it has chosen for a narrower one."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        luck, deepen = Random(seed), searching.deepen

        def some(*arguments: Any) -> tuple[list[Form], Statistics]:
            forms, statistics = deepen(*arguments)
            return [form for form in forms if form.unchanged or luck.random() < 0.3], statistics

        patch.setattr(searching, "deepen", some)
        database, program, least = ProfileDatabase(Path(folder) / "profile.sqlite"), load(tiny("fsrcnn")), [inf] * len(BUDGETS)
        for n in (*order, 0, 1, 2):
            cost, settings = Rounding(n), Settings(max_depth=1, time_budget=600, threads=1, max_error=BUDGETS[n])
            memory = Memory(database, settings, Places(n, range(n), range(n + 1, len(BUDGETS)), cost.stored))
            outcome = search(program, settings, cost, Schedule(0.0, 600, clock=CountedClock()), memory, proven=False)
            found = sum(r.choice.best.measured for r in outcome.results)
            assert found <= min(least[: n + 1]) * (1 + 1e-12)
            least[n] = min(least[n], found)


def test_what_a_narrower_class_found_is_no_more_than_a_beginning() -> None:
    own, narrower = convolved(), convolved()
    own.best, own.states, own.seconds, narrower.states = own.original, 1, 0.5, 99
    assert beginning(own, None) is own and own.best.original
    begun = beginning(own, narrower)
    assert (begun.best, begun.states, begun.seconds) == (narrower.best, 1, 0.5)
