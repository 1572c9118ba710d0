"""The one place where threads are counted and set. Vendor kernels and generated loops share the OpenMP pool that oneDNN is linked to."""

from __future__ import annotations

import ctypes as C
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from einnet.errors import UsageError
from einnet.runtime.cpu import dnnl


def physical_cores() -> int:
    """Cores that this process may use, hardware threads of one core counted once."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    return max(len(cores), 1)


def resolve_threads(threads: int | None) -> int:
    """A positive number of threads; None stands for all physical cores."""
    if threads is None:
        return physical_cores()
    if threads < 1:
        raise UsageError(f"threads={threads}: expected a positive number")
    return threads


def asked_threads(threads: int | None) -> int:
    """The number of threads of a program that is to be made here, which is timed with as many and keeps to them.

    Raises UsageError where the machine has no processor for each: they would wait for one another, and no time of such a run holds elsewhere.
    """
    count = os.cpu_count()
    if threads is not None and count is not None and threads > count:
        raise UsageError(f"threads={threads}: this machine has {count} processors, and a program with more threads than that waits for itself")
    return resolve_threads(threads)


@cache
def libraries() -> tuple[C.CDLL, ...]:
    """Where generated code finds C functions: oneDNN with what it is linked to (its OpenMP runtime first of all), else the system's OpenMP."""
    found = []
    if dnnl.available() is None:
        found.append(dnnl.library().cdll)
    for name in ("libgomp.so.1", "libm.so.6", None):
        try:
            found.append(C.CDLL(name))
        except OSError:
            continue
    return tuple(found)


def find_symbol(name: str) -> int | None:
    """The address of a C function in `libraries()`, None if there is none."""
    for library in libraries():
        try:
            return C.cast(getattr(library, name), C.c_void_p).value
        except AttributeError:
            continue
    return None


def current_threads() -> int:
    """OpenMP's number of threads as it is set now, 1 where there is no OpenMP."""
    address = find_symbol("omp_get_max_threads")
    return C.CFUNCTYPE(C.c_int)(address)() if address else 1


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """OpenMP's number of threads for primitives created by the calling thread inside the block."""
    get_at, put_at = find_symbol("omp_get_max_threads"), find_symbol("omp_set_num_threads")
    if not get_at or not put_at:
        yield
        return
    get, put = C.CFUNCTYPE(C.c_int)(get_at), C.CFUNCTYPE(None, C.c_int)(put_at)
    before = get()
    put(threads)
    try:
        yield
    finally:
        put(before)
