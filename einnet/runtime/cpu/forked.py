"""Calls of the OpenMP pool after a fork.

Threads do not survive a fork. The thread that forked remembers its pool in the child, and its first parallel region there would wait for threads that
are gone. A thread that starts in the child gets a pool of its own: what the forking thread wants done on the pool is done by such a thread, at the
price of some 30 us a call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
R = TypeVar("R")


class Locked(Protocol):
    """Something with a lock that a thread of the parent may have held when the child began."""

    def unlock(self) -> None: ...


class _State:
    """Of this process: the thread whose pool is gone, None where nobody forked, and the thread that stands in for it."""

    stale: int | None = None
    stand_in: ThreadPoolExecutor | None = None


_state = _State()
_locked: WeakSet[Locked] = WeakSet()


def unlock_in_children(thing: Locked) -> None:
    """Have `unlock` called in every child that is forked."""
    _locked.add(thing)


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


def _after_fork() -> None:
    _state.stale, _state.stand_in = threading.get_ident(), None
    for thing in list(_locked):
        thing.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
