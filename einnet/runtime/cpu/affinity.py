"""The pool's waiting threads and the caller on different processors.

A thread that has slept is often woken on the processor of the one that wakes it. Where that one is busy, it waits there for a time slice of
milliseconds while another processor is idle, and the first call after a pause takes ten times as long as the others. So the pool's threads are
kept off the processor on which their caller runs, whenever that has changed. Nothing is done where the user has bound threads
(OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY, or an affinity of their own), or where there are fewer processors than threads.
"""

from __future__ import annotations

import ctypes as C
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from einnet.runtime.cpu.forked import tell_of_its_end
from einnet.runtime.cpu.threads import find_symbol

BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")

_WORK = C.CFUNCTYPE(None, C.c_void_p)


class _Pool(threading.local):
    """What was arranged for the pool of the calling thread: OpenMP has one for each thread that starts regions."""

    processor = -1
    size = 0
    process = 0
    workers: tuple[int, ...] = ()
    masks: dict[int, frozenset[int]] = {}  # noqa: RUF012 (replaced, never changed)


_pool = _Pool()


def keep_apart(threads: int) -> None:
    """Before a call that uses `threads` threads of the caller's pool. Costs less than a microsecond unless the caller has moved."""
    if threads < 2:
        return
    processor = _current_processor()()
    if processor != _pool.processor or threads > _pool.size:
        _arrange(processor, threads)


def _forget() -> None:
    """The caller's pool has no threads any more."""
    _pool.size, _pool.processor, _pool.workers = 0, -1, ()


tell_of_its_end(_forget)


@cache
def _current_processor() -> Callable[[], int]:
    """The number of the processor that runs the caller; always -1 where nothing is to be done."""
    if any(name in os.environ for name in BINDINGS) or not hasattr(os, "sched_setaffinity") or not find_symbol("GOMP_parallel"):
        return lambda: -1
    address = find_symbol("sched_getcpu")
    return C.CFUNCTYPE(C.c_int)(address) if address else lambda: -1


def _arrange(processor: int, threads: int) -> None:
    if processor < 0:
        _pool.size = max(_pool.size, threads)
        return
    if threads > _pool.size or _pool.process != os.getpid():
        _pool.masks = _pool.masks if _pool.process == os.getpid() else {}
        _pool.workers, _pool.size, _pool.process = _workers(threads), threads, os.getpid()
    _pool.processor = processor
    allowed = frozenset(os.sched_getaffinity(0))
    others = allowed - {processor}
    if len(others) < len(_pool.workers):
        others = allowed
    for worker in _pool.workers:
        with suppress(OSError):  # it has ended
            if frozenset(os.sched_getaffinity(worker)) in (allowed, _pool.masks.get(worker)):
                os.sched_setaffinity(worker, others)
                _pool.masks = {**_pool.masks, worker: others}


def _workers(threads: int) -> tuple[int, ...]:
    """The system's numbers of the pool's threads without the caller."""
    found: list[int] = []
    address = find_symbol("GOMP_parallel")
    assert address
    tell = _WORK(lambda _: found.append(threading.get_native_id()))
    C.CFUNCTYPE(None, _WORK, C.c_void_p, C.c_uint, C.c_uint)(address)(tell, None, threads, 0)
    return tuple(sorted(set(found) - {threading.get_native_id()}))
