"""A child that is forked from a process that has run programs on several threads: its own calls run, and end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from einnet.runtime.cpu import dnnl, forked
from einnet.runtime.cpu.forked import end_pool
from einnet.runtime.cpu.program import Executable
from tests.runtime.plans import two_layers, with_opaque_nodes

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available())),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

SECONDS = 60
"""After so long a child that hangs is ended by the alarm."""


def in_child(work: Callable[[], bool]) -> bool:
    """What a forked child says of its work; False where it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            good = work()
        except BaseException:
            good = False
        os._exit(0 if good else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture(autouse=True, params=["ended", "left"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pool of the thread that forks ends before, or cannot be ended."""
    if request.param == "left":
        monkeypatch.setattr(forked, "end_pool", lambda: False)
    return request.param


@pytest.fixture(scope="module")
def plan():
    return two_layers(256, 128, 128, 64)


@pytest.fixture(scope="module")
def program(plan):
    return Executable(plan, 2)


@pytest.fixture
def x():
    return np.random.default_rng(0).uniform(-1, 1, (256, 128)).astype(np.float32)


def test_a_program_that_the_parent_has_run(program: Executable, x: np.ndarray) -> None:
    (y,) = program.run(x)

    def again() -> bool:
        return all(np.array_equal(program.run(x)[0], y) for _ in range(3)) and len(program.profile(2)) == 2

    assert in_child(again)
    assert in_child(lambda: again() and in_child(again)), "a child of a child, too"
    assert np.array_equal(program.run(x)[0], y)


def test_a_pool_that_ended_needs_no_other_thread(program: Executable, x: np.ndarray, pool: str) -> None:
    program.run(x)
    assert in_child(lambda: forked.on_live_threads() == (pool == "ended"))
    assert in_child(lambda: in_child(forked.on_live_threads) == (pool == "ended")), "a child of a child, too"
    assert forked.on_live_threads()


def test_a_child_does_not_wait_for_its_parents_threads(program: Executable, x: np.ndarray, pool: str) -> None:
    """They are gone there: to end them would never end."""
    program.run(x)
    assert in_child(lambda: end_pool() == (pool == "ended"))


def test_a_program_that_is_made_in_the_child(plan, program: Executable, x: np.ndarray) -> None:
    (y,) = program.run(x)
    assert in_child(lambda: np.array_equal(Executable(plan, 2).run(x)[0], y))


def test_threads_of_the_child(program: Executable, x: np.ndarray) -> None:
    (y,) = program.run(x)

    def work() -> bool:
        found: list[bool] = []
        threads = [threading.Thread(target=lambda: found.append(np.array_equal(program.run(x)[0], y))) for _ in range(2)]
        for thread in threads:
            thread.start()
        good = np.array_equal(program.run(x)[0], y)
        for thread in threads:
            thread.join()
        return good and found == [True, True]

    assert in_child(work)


def test_a_program_that_another_thread_was_running(program: Executable, x: np.ndarray) -> None:
    """The child has no thread that would ever give the program free."""
    (y,) = program.run(x)
    with program._lock:
        assert in_child(lambda: np.array_equal(program.run(x)[0], y))


def test_nodes_that_onnx_runtime_runs() -> None:
    program = Executable(with_opaque_nodes(), 2)
    given = [np.ones(view.shape, np.float32) for _, view in program.plan.inputs]
    expected = program.run(*given)
    assert in_child(lambda: all(np.array_equal(a, b) for a, b in zip(program.run(*given), expected, strict=True)))
