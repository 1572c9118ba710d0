"""Calls of the OpenMP pool after a fork, and the end of a thread's pool.

Threads do not survive a fork. A thread that forks remembers its pool in the child, and its first parallel region there would wait for threads that
are gone. So the pool ends before the fork: parent and child start another one when they need it. Where it cannot be ended, what the forking thread
wants done on the pool is done in the child by a thread that starts there and has a pool of its own, at the price of some 30 us a call.
"""

from __future__ import annotations

import ctypes as C
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
R = TypeVar("R")


_SOFT = 1
"""OpenMP's omp_pause_soft: what is private to threads may go, what is shared stays."""


class Locked(Protocol):
    """Something with a lock that a thread of the parent may have held when the child began."""

    def unlock(self) -> None: ...


class _State:
    """Of this process: the thread whose pool is gone, None where there is none, and the thread that stands in for it; whether the pool of a thread
    that forks now has ended."""

    stale: int | None = None
    stand_in: ThreadPoolExecutor | None = None
    ended = False


_state = _State()
_locked: WeakSet[Locked] = WeakSet()
_told: list[Callable[[], None]] = []


def unlock_in_children(thing: Locked) -> None:
    """Have `unlock` called in every child that is forked."""
    _locked.add(thing)


def tell_of_its_end(function: Callable[[], None]) -> None:
    """Have a function called by every thread that ends its pool."""
    _told.append(function)


def end_pool() -> bool:
    """End the threads that wait in the caller's pool, which its next parallel region starts anew; whether none are left.

    For a thread that forks, or lets another one work and waits for it. OpenMP has a pool for each thread that starts regions, and where all of them
    together have more threads than there are processors, GNU's lets none wait actively any more: a step of 0.02 ms then takes 0.1.
    """
    if not on_live_threads():
        return False
    try:
        library = C.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # it was not loaded, so that nobody has a pool of its threads; or this system has another loader
        return hasattr(os, "RTLD_NOLOAD")
    try:
        left = int(library.omp_pause_resource(_SOFT, library.omp_get_initial_device()))
    except AttributeError:  # an OpenMP older than 5.0
        return False
    for function in _told:
        function()
    return left == 0


def on_live_threads() -> bool:
    """The thread that asks has not lost its pool."""
    return _state.stale is None or threading.get_ident() != _state.stale


def on_live_pool(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called by a thread whose OpenMP pool is alive."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if on_live_threads():
            return function(*args, **kwargs)
        if _state.stand_in is None:
            _state.stand_in = ThreadPoolExecutor(1, "einnet")
        return _state.stand_in.submit(function, *args, **kwargs).result()

    return call


def _before_fork() -> None:
    _state.ended = end_pool()


def _after_fork() -> None:
    _state.stale, _state.stand_in = None if _state.ended else threading.get_ident(), None
    for thing in list(_locked):
        thing.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
