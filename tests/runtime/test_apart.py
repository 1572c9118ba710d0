"""The pool's threads are kept off the processor of their caller, and left alone where somebody else has placed them."""

from __future__ import annotations

import os
import threading
import time

import pytest

from einnet.runtime.cpu import affinity as apart
from einnet.runtime.cpu.forked import end_pool
from einnet.runtime.cpu.threads import find_symbol

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or not find_symbol("GOMP_parallel"), reason="no OpenMP pool, or no affinity")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch):
    """A system of four processors in which threads 1 (the caller) and 71 to 73 run; what is set is kept here."""
    placed = {0: {0, 1, 2, 3}, **{t: {0, 1, 2, 3} for t in (71, 72, 73)}}
    monkeypatch.setattr(apart.os, "sched_getaffinity", lambda t: set(placed[t]))
    monkeypatch.setattr(apart.os, "sched_setaffinity", lambda t, cpus: placed.__setitem__(t, set(cpus)))
    monkeypatch.setattr(apart, "_workers", lambda threads: (71, 72, 73)[: threads - 1])
    monkeypatch.setattr(apart, "_pool", apart._Pool())
    processor = {"now": 2}
    monkeypatch.setattr(apart, "_current_processor", lambda: lambda: processor["now"])
    return placed, processor


def test_workers_go_where_the_caller_is_not(system) -> None:
    placed, processor = system
    apart.keep_apart(3)
    assert placed == {0: {0, 1, 2, 3}, 71: {0, 1, 3}, 72: {0, 1, 3}, 73: {0, 1, 2, 3}}
    processor["now"] = 0
    apart.keep_apart(4)
    assert all(placed[t] == {1, 2, 3} for t in (71, 72, 73))
    assert placed[0] == {0, 1, 2, 3}, "the caller is not bound"


def test_limits_of_the_process_hold_and_one_thread_needs_nothing(system) -> None:
    placed, _ = system
    for t in placed:
        placed[t] = {1, 2}
    apart.keep_apart(1)
    assert placed[71] == {1, 2}
    apart.keep_apart(2)
    assert placed[71] == {1}
    apart.keep_apart(4)
    assert placed[72] == {1, 2}, "fewer processors than threads"


def test_threads_that_the_user_has_placed_stay(system, monkeypatch: pytest.MonkeyPatch) -> None:
    placed, _ = system
    placed[71] = {2}
    apart.keep_apart(3)
    assert (placed[71], placed[72]) == ({2}, {0, 1, 3})


@pytest.mark.parametrize("name", apart.BINDINGS)
def test_bindings_of_openmp_are_respected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "true")
    monkeypatch.setattr(apart, "_pool", apart._Pool())
    monkeypatch.setattr(apart.os, "sched_setaffinity", lambda *_: pytest.fail("moved"))
    apart._current_processor.cache_clear()
    try:
        apart.keep_apart(2)
    finally:
        apart._current_processor.cache_clear()


def test_the_pool_of_a_thread_is_found() -> None:
    found: list[tuple[int, ...]] = []
    thread = threading.Thread(target=lambda: found.append(apart._workers(2)))
    thread.start()
    thread.join()
    ((worker,),) = found
    assert worker not in (thread.native_id, threading.get_native_id())


def test_a_pool_that_has_ended_begins_again_and_is_placed_anew() -> None:
    """Of a thread that waits for another one nothing waits; its threads are there again, and kept apart, with its next call."""
    done: list[int] = []

    def call() -> None:
        (first,) = apart._workers(2)
        apart.keep_apart(2)
        assert not gone(first, seconds=0.0)
        assert end_pool()
        assert gone(first) and apart._pool.size == 0
        assert end_pool(), "there is none"
        apart.keep_apart(2)
        (second,) = apart._workers(2)
        assert apart._pool.size == 2
        done.append(second)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert done


def gone(thread: int, seconds: float = 10.0) -> bool:
    """The thread of the system's number has ended, or does within so many seconds."""
    until = time.monotonic() + seconds
    while os.path.exists(f"/proc/self/task/{thread}"):
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True
