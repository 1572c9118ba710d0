"""Work shared out to forked processes: each does its part and ends, and what it did is seen on the disk alone."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

MOST = 4
"""Processes that share work, this one among them."""

POLL_S = 0.01
"""Seconds between two looks at whether a process has ended."""


def processors() -> int:
    """How many may share work: one for each processor that this process may run on, and one alone where it cannot fork."""
    if not hasattr(os, "fork") or not hasattr(os, "sched_getaffinity"):
        return 1
    return min(len(os.sched_getaffinity(0)), MOST)


@contextmanager
def helping(shares: Sequence[Sequence[T]], work: Callable[[T], object]) -> Iterator[list[int]]:
    """Processes that do `work`, each for one of the shares, by their numbers. At the end those that have not ended are killed."""
    helpers = [_forked(share, work) for share in shares]
    try:
        yield helpers
    finally:
        for helper in helpers:
            with suppress(OSError):
                os.kill(helper, signal.SIGKILL)
                os.waitpid(helper, 0)


def _forked(share: Sequence[T], work: Callable[[T], object]) -> int:
    """The number of a process that works on one share. What goes wrong there ends it: its work is found undone."""
    with warnings.catch_warnings():  # threads of libraries, asleep while nothing runs: what is done there takes none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        helper = os.fork()
    if helper:
        return helper
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for one in share:
            work(one)
    finally:
        os._exit(0)


def awaited(helpers: list[int], seconds: float, look: Callable[[], None]) -> None:
    """Wait until all have ended, for so many seconds at most; `look` is called again and again, and may raise. Those that ended leave the list."""
    until = time.monotonic() + seconds
    while helpers and time.monotonic() < until:
        look()
        helpers[:] = [h for h in helpers if not _ended(h)]
        time.sleep(POLL_S if helpers else 0.0)


def _ended(helper: int) -> bool:
    """The process has ended, by itself or otherwise."""
    try:
        return os.waitpid(helper, os.WNOHANG)[0] == helper
    except ChildProcessError:
        return True
