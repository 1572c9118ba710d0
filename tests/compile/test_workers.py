"""Subprograms searched by other processes: the same choices as in one, and a worker that dies costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from math import inf
from multiprocessing import get_context
from typing import Any

import pytest

from einnet.compile.budget import Schedule
from einnet.compile.far import FarSights
from einnet.compile.program_search import search
from einnet.compile.workers import Crew, crew, solve_all
from einnet.errors import BackendError, UsageError
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.instantiate.kernels import Kernel
from einnet.search.ahead.answers import Answer
from einnet.search.ahead.letters import DIGITS, Known, answer, question
from einnet.search.ahead.sights import Sights
from einnet.search.outcome import Outcome
from einnet.search.remote import solution, solve, task
from einnet.search.settings import Settings
from einnet.search.space import Options, Space, Statistics
from tests.models import tiny
from tests.search.catalogue import expression

NAMES = ("convolutions: conv3x3", "convolutions: stride 2", "matmuls: three factors", "transposed: transposed 4x4")
OPTIONS = Options(max_depth=2, intensity=0.0)
TASKS = {name: task(expression(name), OPTIONS, 100.0) for name in NAMES}


class Bytes:
    """A cost that counts what is moved: the same on every machine."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1e-9 * sum(sum(v.shape) for v in (*k.operand_views, *k.result_views)) for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return list(self.estimates(kernels))


def searched(model: str = "small", **changes: Any) -> Outcome:
    settings = Settings(max_depth=2, time_budget=600.0, **changes)
    return search(load(tiny(model, **({"size": 8} if model == "small" else {}))), settings, Bytes(), Schedule(time.monotonic(), 600.0))


def chosen(outcome: Outcome) -> list[tuple[str, list[str], int]]:
    return [(r.subprogram.key, [c.form.key for c in r.choice.candidates], r.choice.states) for r in outcome.results]


def keys(found: dict[str, Any]) -> dict[str, list[str]]:
    return {name: [f.key for f in forms] for name, (forms, _) in found.items()}


@cache
def expected() -> dict[str, list[str]]:
    return keys({name: solution(solve(text)) for name, text in TASKS.items()})


def test_two_workers_choose_what_one_chooses() -> None:
    one, two = searched(), searched(workers=2)
    assert chosen(one) == chosen(two)
    assert [r.candidate.form.derivation for r in one.results] == [r.candidate.form.derivation for r in two.results]


def kill_one(pids: Sequence[int]) -> Any:
    """A report that kills a process of ours as soon as something was submitted."""
    left = list(pids)

    def report(done: int) -> bool:
        if left:
            os.kill(left.pop(), signal.SIGKILL)
            left.clear()
        return True

    return report


def test_a_pool_that_breaks_leaves_the_rest_to_the_caller() -> None:
    with crew(2, None) as found:
        assert found
        found.executor.submit(os.getpid).result()
        pids = list(found.executor._processes)  # type: ignore[attr-defined]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # it does nothing more, however long this process waits for its turn before it kills it
        results = solve_all(found, TASKS, time.monotonic() + 100, kill_one(pids))
    assert keys(results).items() <= expected().items() and len(results) < len(TASKS)


def test_a_search_goes_on_without_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einnet.compile.program_search.solve_all", lambda *_: {})
    assert chosen(searched(workers=2)) == chosen(searched())


def test_whoever_waits_may_stop() -> None:
    with crew(2, None) as found:
        assert found
        assert solve_all(found, TASKS, time.monotonic() + 100, lambda done: False) == {}


def leave_one_at_work() -> None:
    with crew(2, None) as found:
        assert found
        found.executor.submit(os.getpid).result()
        found.executor.submit(time.sleep, 1.0)


def test_a_process_that_another_one_started_ends_though_its_workers_did_not() -> None:
    started = get_context("spawn").Process(target=leave_one_at_work)
    started.start()
    started.join(60.0)
    code = started.exitcode
    started.kill()
    assert code == 0


ONE = {
    "strides": "A : f32[29,29,8]\nK : weight f32[3,3,8,8]\nL[h<15,w<15,f<8] Σ[c<8,r<3,s<3] A[2*h+r-1,2*w+s-1,c]*K[r,s,c,f]",
    "a chain": "A : f32[40,30]\nB : f32[30,50]\nC : f32[50,20]\nL[m<40,n<20] Σ[k<30,l<50] A[m,k]*B[k,l]*C[l,n]",
    "a tail": "A : f32[57,43]\nK : weight f32[43,3,8]\nb : f32[8]\nL[m<57,n<8] relu({L[m<57,n<8] Σ[k<41,r<3] A[m,k+r]*K[k,r,n]}[m,n] + b[n])",
    "attention": "Q : f32[12,16,8]\nK : f32[12,16,8]\nV : f32[12,16,8]\n"
    "L[b<12,m<16,d<8] Σ[n<16] {L[b<12,m<16,n<16] Σ[d<8] Q[b,m,d]*K[b,n,d]}[b,m,n]*V[b,n,d]",
}
"""Single pieces: what several workers do for one search has to be the same for each."""

WIDE = Options(max_depth=3, intensity=0.0, states=150)


class Here:
    """A crew of one that answers at once."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
        self.asked += 1
        done: Future[str] = Future()
        done.set_result(work(text))
        return done


class Dead(Here):
    """A crew that dies after its first answer: asking it more raises this, or it gives no answer."""

    def __init__(self, told: Exception | None) -> None:
        super().__init__()
        self.told = told

    def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
        if self.asked:
            self.asked += 1
            if self.told:
                raise self.told
            lost: Future[str] = Future()
            lost.set_exception(BrokenProcessPool())
            return lost
        return super().submit(work, text)


def walked(text: str, options: Options = WIDE, executor: Any = None, size: int = 1) -> tuple[list[str], Statistics]:
    """The forms of a search in order, with their derivations, and its counts."""
    space = Space(options, sights=executor and FarSights(options, Crew(executor, size)))
    forms = space.forms(parse(text))
    return [f"{f.key} {f.operators()}\n{f.derivation}" for f in forms], space.statistics


@cache
def alone(name: str) -> tuple[list[str], Statistics]:
    return walked(ONE[name])


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_one_search_is_the_same_whoever_looks_ahead(name: str, size: int) -> None:
    """Questions go on ahead of the search by the size of the crew; what was found for them is taken in the search's own order."""
    crew = Here()
    assert walked(ONE[name], executor=crew, size=size) == alone(name) and crew.asked > 1


@pytest.mark.parametrize("states", [1, 30, 31, 64])
def test_a_budget_of_states_ends_a_shared_search_where_it_ends_one_alone(states: int) -> None:
    budget = replace(WIDE, states=states)
    assert walked(ONE["strides"], budget, Here(), 2) == walked(ONE["strides"], budget)


@pytest.mark.parametrize("told", [BrokenProcessPool(), OSError("handle is closed"), ValueError("bad value(s) in fds_to_keep"), None])
def test_a_search_whose_workers_die_goes_on_alone(told: Exception | None) -> None:
    crew = Dead(told)
    assert walked(ONE["strides"], executor=crew, size=2) == alone("strides") and crew.asked > 1


def test_what_a_search_knows_is_not_told_again() -> None:
    asked = [(parse(ONE["strides"]), inf)]
    first = Answer(answer(question(WIDE, asked, Known())))
    digits = "".join(sorted(key[:DIGITS] for key in first.keys))
    again = Answer(answer(question(WIDE, asked, Known(digits, digits))))
    assert len(first.keys) > 10 and not again.keys
    assert list(first.successors(0)) == list(again.successors(0)) != []


def test_a_search_tells_what_it_knows() -> None:
    """Later questions name the scopes that the search has looked at and the groups that it has started."""
    told: list[list[str]] = []

    class Noting(Here):
        def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
            told.append(json.loads(text)["known"])
            return super().submit(work, text)

    walked(ONE["strides"], executor=Noting())
    (looked, started), (more, others) = told[0], told[-1]
    assert 0 < len(looked) < len(more) and 0 < len(started) < len(others)


def test_what_workers_raise_is_raised() -> None:
    class Wrong(Here):
        def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
            raised: Future[str] = Future()
            raised.set_exception(ArithmeticError("wrong"))
            return raised

    with pytest.raises(ArithmeticError, match="wrong"):
        walked(ONE["strides"], executor=Wrong())


def test_an_answer_that_is_late_is_not_waited_for() -> None:
    """The time is over while a worker is still at it: what the search was about to do it does here, and ends."""

    class Silent(Here):
        def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
            return Future()

    space = Space(WIDE, sights=FarSights(WIDE, Crew(Silent(), 1)))  # type: ignore[arg-type]
    space.sights.expect([(parse(ONE["strides"]), inf)], time.monotonic())
    assert list(space.sights.successors(parse(ONE["strides"]), inf)) == list(Sights(WIDE).successors(parse(ONE["strides"]), inf))


def test_a_pool_that_forgets_a_question_while_it_breaks_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer never comes, whatever the time; asked again, the pool says that it is broken."""
    monkeypatch.setattr("einnet.compile.workers.SILENCE_S", 0.01)

    class Forgetful(Here):
        def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
            self.asked += 1
            if self.asked > 5:
                raise BrokenProcessPool
            return Future()

    assert walked(ONE["strides"], executor=Forgetful(), size=1) == alone("strides")


def test_what_is_not_asked_for_any_more_is_taken_back() -> None:
    class Slow(Here):
        def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
            self.last: Future[str] = Future()
            return self.last

    crew = Slow()
    sights = FarSights(WIDE, Crew(crew, 1))  # type: ignore[arg-type]
    sights.expect([(parse(ONE["strides"]), inf)], inf)
    sights.expect((), inf)
    assert crew.last.cancelled()


def test_a_process_that_is_killed_in_the_middle_of_one_search_loses_nothing() -> None:
    with crew(2, None) as found:
        assert found
        found.executor.submit(os.getpid).result()

        class Killing(Here):
            def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
                self.asked += 1
                if self.asked == 3:
                    os.kill(next(iter(found.executor._processes)), signal.SIGKILL)  # type: ignore[union-attr]
                return found.executor.submit(work, text)  # type: ignore[union-attr]

        assert walked(ONE["strides"], executor=Killing(), size=2) == alone("strides")


def test_a_program_of_one_piece_is_searched_by_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer pieces than workers are not given away whole; the choice is what one process chooses."""
    asked: list[str] = []

    def submit(self: Crew, work: Callable[[str], str], text: str) -> Future[str]:
        asked.append(text)
        return self.executor.submit(work, text)

    monkeypatch.setattr(Crew, "submit", submit)
    monkeypatch.setattr("einnet.compile.program_search.solve_all", lambda *_: pytest.fail("a piece was given away"))
    assert chosen(searched("conv3x3", workers=2)) == chosen(searched("conv3x3")) and asked


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(UsageError, match="workers must be 1 or more"):
        Settings(workers=0)
    with pytest.raises(BackendError), crew(1, "tcp://127.0.0.1:1"):
        pass


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_finds_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="Dask distributed is not installed: pip install 'einnet[distributed]'")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with crew(1, cluster.scheduler_address) as found:
            assert isinstance(found, Crew) and found.size == 2
            pids = list(found.executor._client.run(os.getpid).values())  # type: ignore[attr-defined]
            assert keys(solve_all(found, TASKS, time.monotonic() + 100, kill_one(pids))) == expected()
        assert chosen(searched(scheduler=cluster.scheduler_address)) == chosen(searched())


def test_a_cluster_shares_one_search_and_loses_a_worker() -> None:
    distributed = pytest.importorskip("distributed", reason="Dask distributed is not installed: pip install 'einnet[distributed]'")
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with local as cluster, crew(1, cluster.scheduler_address) as found:
        assert found and walked(ONE["strides"], executor=found.executor, size=found.size) == alone("strides")
        os.kill(next(iter(found.executor._client.run(os.getpid).values())), signal.SIGKILL)  # type: ignore[attr-defined]
        assert walked(ONE["a tail"], executor=found.executor, size=found.size) == alone("a tail")
