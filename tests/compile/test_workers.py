"""Subprograms searched by other processes: the same choices as in one, and a worker that dies costs nothing but time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from einnet.compile.budget import Schedule
from einnet.compile.program_search import search
from einnet.compile.workers import Crew, crew, solve_all
from einnet.errors import BackendError, UsageError
from einnet.graph.onnx.importer import load
from einnet.instantiate.kernels import Kernel
from einnet.search.outcome import Outcome
from einnet.search.remote import solution, solve, task
from einnet.search.settings import Settings
from einnet.search.space import Options
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


def searched(**changes: Any) -> Outcome:
    settings = Settings(max_depth=2, time_budget=600.0, **changes)
    return search(load(tiny("small", size=8)), settings, Bytes(), Schedule(time.monotonic(), 600.0))


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
        results = solve_all(found, TASKS, time.monotonic() + 100, kill_one(pids))
    assert keys(results).items() <= expected().items() and len(results) < len(TASKS)


def test_a_search_goes_on_without_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einnet.compile.program_search.solve_all", lambda *_: {})
    assert chosen(searched(workers=2)) == chosen(searched())


def test_whoever_waits_may_stop() -> None:
    with crew(2, None) as found:
        assert found
        assert solve_all(found, TASKS, time.monotonic() + 100, lambda done: False) == {}


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
