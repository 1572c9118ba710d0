"""How much memory there is, and how much something takes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
MEMORY_SHARE = 0.8
"""Share of the memory there is that may be held at once."""

_NONE = 1 << 60
"""Bytes that no machine has: what limits are called that do not limit."""


def available_bytes() -> float:
    """Memory that this process may still use: what the system has, and what its control groups leave; infinite where neither tells."""
    left = [float(n) for n in (_system(), *_control_groups()) if n is not None]
    return max(min(left, default=float("inf")), 0.0)


def fits(nbytes: float) -> bool:
    """So many bytes may be held at once, beside what this process holds already."""
    return nbytes <= MEMORY_SHARE * available_bytes()


APART, USUAL = 1 << 17, 1 << 25
"""Bytes of a block from which on the C library takes it from the system and gives it back alone: while much is to be given back, so that weights of
320 by 320 numbers do, and otherwise, which is as far as the library itself goes once such blocks were freed."""

BLOCKS, NEVER = 1 << 16, (1 << 31) - 1
"""How many blocks the C library takes from the system alone, at most; and the bytes at the end of what is free from which on it gives them back,
where it never should."""

_MMAP_THRESHOLD, _MMAP_MAX, _TRIM_THRESHOLD = -3, -4, -1
"""What the C library calls these numbers."""


@contextmanager
def _allocating(within: Mapping[int, int], afterwards: Mapping[int, int]) -> Iterator[None]:
    """The C library's allocator with these numbers within, and with those afterwards; as it is where it has none."""
    mallopt = _c_library("mallopt")
    if mallopt is None:
        yield
        return
    for name, number in within.items():
        mallopt(name, number)
    try:
        yield
    finally:
        for name, number in afterwards.items():
            mallopt(name, number)


@contextmanager
def given_back_at_once(wanted: bool) -> Iterator[None]:
    """Where `wanted`, large blocks go back to the system as soon as they are freed, whatever stands around them."""
    if not wanted:
        yield
        return
    with _allocating({_MMAP_THRESHOLD: APART}, {_MMAP_THRESHOLD: USUAL, _TRIM_THRESHOLD: 2 * USUAL}):
        yield


@contextmanager
def kept_for_more() -> Iterator[None]:
    """What is freed stays with the process until the end. Arrays that are made anew again and again would come from the system page by page each
    time, each page filled with zeros first."""
    try:
        with _allocating({_MMAP_MAX: 0, _TRIM_THRESHOLD: NEVER}, {_MMAP_MAX: BLOCKS, _TRIM_THRESHOLD: 2 * USUAL}):
            yield
    finally:
        give_back()


def give_back() -> None:
    """Hand what was freed back to the system: the allocator keeps what stands below anything that is still held, as large as the weights of a model
    where a session of ONNX Runtime was."""
    trim = _c_library("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _c_library(name: str) -> Callable[..., object] | None:
    """A function of the C library's allocator, where it has it."""
    try:
        found: Callable[..., object] = getattr(ctypes.CDLL(None), name)
        return found
    except (OSError, AttributeError, TypeError):
        return None


def _system() -> int | None:
    return _field(_PROC / "meminfo", "MemAvailable")


def _field(path: Path, name: str) -> int | None:
    """`name: n kB` of a file of the system, in bytes."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
        return next((int(row[1]) * 1024 for row in rows if row and row[0] == f"{name}:"), None)
    except (OSError, ValueError, IndexError):
        return None


def _control_groups() -> Iterator[int]:
    """What is left in every memory group that this process is in, caches of files counted as free."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            root, limit, usage, cached = _GROUPS, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, limit, usage, cached = _GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        folder = root / name.lstrip("/")
        for group in (folder, *folder.parents):
            left = _left(group, limit, usage, cached)
            if left is not None:
                yield left
            if group == root:
                break


def _left(group: Path, limit: str, usage: str, cached: str) -> int | None:
    try:
        most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return None if most == "max" or int(most) >= _NONE else int(most) - used + int(statistics.get(cached, 0))
    except (OSError, ValueError):
        return None


@dataclass
class Peak:
    """By how many bytes the process grew at most, and by how many at the end; None where the system does not tell."""

    nbytes: int | None = None
    left: int | None = None


@contextmanager
def growth() -> Iterator[Peak]:
    """Watch the resident memory of this process during the block; the answer is there after it.

    Memory that the process already held and has given back to its own allocator counts as free, so small figures are too small.
    """
    found = Peak()
    status = _PROC / "self/status"
    try:
        (_PROC / "self/clear_refs").write_text("5")
    except OSError:
        yield found
        return
    before = _field(status, "VmRSS")
    yield found
    most, after = _field(status, "VmHWM"), _field(status, "VmRSS")
    if before is not None and most is not None and after is not None:
        found.nbytes, found.left = max(most - before, 0), max(after - before, 0)
