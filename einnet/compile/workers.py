"""Searching subprograms in other processes: a pool on this machine, or the workers of a Dask cluster. Measuring stays here."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process

from einnet.errors import BackendError
from einnet.search.forms import Form
from einnet.search.remote import solution, solve
from einnet.search.space import Statistics

POLL_S = 0.2
SILENCE_S = 2.0
"""After which a worker that owes an answer is asked whether it is there."""
RETRIES = 3
"""Workers that may die under a task before it is given up."""

BROKEN = (BrokenProcessPool, OSError, ValueError)
"""What submitting to a pool raises whose worker died. While the pool is being taken down, its pipes are closed: writing to one of them is an OSError,
and starting another process with them a ValueError. What the work itself raises is not raised by submitting it."""

Found = tuple[list[Form], Statistics]


@dataclass(frozen=True)
class Crew:
    """Who searches, and how many at a time."""

    executor: Executor
    size: int

    def submit(self, work: Callable[[str], str], text: str) -> Future[str] | None:
        """Let a worker do it; None where there are none any more."""
        try:
            return self.executor.submit(work, text)
        except BROKEN:
            return None

    def result(self, future: Future[str], until: float) -> str | None:
        """What a worker gives before `until`, a time.monotonic() value; None where it died or is late. What it raises is raised here.

        A pool that breaks while it is asked may forget the question: so it is asked for a sign of life from time to time.
        """
        while not future.done() and time.monotonic() < until:
            wait([future], timeout=min(SILENCE_S, max(until - time.monotonic(), 0.0)))
            if not future.done() and self.submit(str, "") is None:
                return None
        return result(future)


@contextmanager
def crew(workers: int, scheduler: str | None) -> Iterator[Crew | None]:
    """A pool of `workers` processes, or the cluster at the address `scheduler`; None where one process is wanted.

    Raises BackendError where Dask distributed is not installed or no scheduler answers.
    """
    if scheduler is not None:
        with _cluster(scheduler) as found:
            yield found
    elif workers > 1:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
        try:
            yield Crew(pool, workers)
        finally:
            # A process that multiprocessing started closes the pool's queues before it joins the pool: workers that are not told by then that they
            # may go are waited for, and wait themselves, for ever.
            pool.shutdown(wait=parent_process() is not None, cancel_futures=True)
    else:
        yield None


@contextmanager
def _cluster(address: str) -> Iterator[Crew]:
    try:
        from distributed import Client
    except ImportError as error:
        raise BackendError("--scheduler needs Dask distributed: pip install 'einnet[distributed]'") from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise BackendError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        yield Crew(client.get_executor(pure=False, retries=RETRIES), max(1, sum(client.nthreads().values())))


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def solve_all(crew: Crew, tasks: Mapping[str, str], until: float, report: Callable[[int], bool]) -> dict[str, Found]:
    """What the crew finds for the tasks before `until`, a time.monotonic() value; `report` is told how many are done, and may say to stop.

    A task whose worker died and that nobody else took over is missing from the result.
    """
    futures = {future: key for key, text in tasks.items() if (future := crew.submit(solve, text)) is not None}
    waiting = set(futures)
    while waiting and time.monotonic() < until and report(len(futures) - len(waiting)):
        waiting = wait(waiting, timeout=POLL_S).not_done
    found = {key: _found(future) for future, key in futures.items() if future.done()}
    for future in futures:
        future.cancel()
    return {key: f for key, f in found.items() if f is not None}


def _found(future: Future[str]) -> Found | None:
    """None where the worker died; what the search itself raises is raised here."""
    text = result(future)
    return None if text is None else solution(text)


def result(future: Future[str]) -> str | None:
    """What a worker has given; None where it died, or has not given anything yet. What it raises is raised here."""
    try:
        return future.result(0.0)
    except (BrokenProcessPool, CancelledError, TimeoutError):
        return None
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            return None
        raise
