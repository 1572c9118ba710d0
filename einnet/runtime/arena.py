"""Where buffers live: one arena for what changes during a run, by lifetime, and one region for constants."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.graph.dtypes import NUMPY
from einnet.graph.program import BYTES
from einnet.instantiate.kernels import Buffer, Kernel, Plan, View
from einnet.runtime.stored_constants import count

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

ALIGNMENT = 64
"""Bytes: a cache line, and what generated code assumes of a buffer's start."""
PAGE = 4096
PERIOD = 1 << 16
"""Random values after which a buffer that is only timed repeats itself."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`nbytes` of memory that must not change from step `first` to step `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Offsets in bytes of one block of `nbytes`; things whose lifetimes meet do not overlap."""

    offsets: Mapping[str, int]
    nbytes: int


def align_up(n: int, alignment: int = ALIGNMENT) -> int:
    return -(-n // alignment) * alignment


def place(items: Iterable[Lifetime], alignment: int = ALIGNMENT) -> Arena:
    """Offsets, aligned, largest first, each into the smallest gap that holds it among what lives at the same time."""
    placed: list[tuple[int, int, Lifetime]] = []
    top = 0
    for item in sorted(items, key=lambda i: (-i.nbytes, i.first, i.name)):
        size = align_up(max(item.nbytes, 1), alignment)
        neighbours = sorted((start, end) for start, end, other in placed if other.first <= item.last and item.first <= other.last)
        at = _best_gap(neighbours, size)
        placed.append((at, at + size, item))
        top = max(top, at + size)
    return Arena({item.name: start for start, _, item in placed}, top)


def _best_gap(occupied: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest free gap of at least `size` between sorted intervals, else the end of all."""
    best, end = None, 0
    for start, stop in occupied:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return best[1] if best else end


def stack(sizes: Mapping[str, int], alignment: int = ALIGNMENT) -> Arena:
    """Offsets one after the other."""
    offsets, top = {}, 0
    for name, nbytes in sizes.items():
        offsets[name] = top
        top += align_up(max(nbytes, 1), alignment)
    return Arena(offsets, top)


class Block:
    """Zeroed bytes that start on a page, and take memory from when they are first written on."""

    def __init__(self, nbytes: int) -> None:
        self._map = mmap.mmap(-1, align_up(max(nbytes, 1), PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8, nbytes) if nbytes else np.zeros(0, np.uint8)

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def touch(self) -> None:
        """Let the system give the memory now, not while something is timed. What is in it stays."""
        self.bytes[::PAGE] |= 0

    def release(self) -> None:
        """Give the memory back to the system. The block stays where it is and holds zeros."""
        self._map.madvise(mmap.MADV_DONTNEED)


def fill_random(target: np.ndarray[Any, np.dtype[Any]], seed: int = 0) -> None:
    """Fill a dense array in place with values between -1 and 1 that repeat after `PERIOD`: it may be most of the memory that there is."""
    flat = target.reshape(-1)
    values = np.random.default_rng(seed).uniform(-1, 1, min(flat.size, PERIOD)).astype(target.dtype)
    whole = flat.size // PERIOD * PERIOD
    flat[:whole].reshape(-1, PERIOD)[...] = values if whole else 0
    flat[whole:] = values[: flat.size - whole]


def span(view: View) -> int:
    """Elements from the buffer's start to the end of the view, 0 for an empty one."""
    return 0 if 0 in view.shape else view.offset + 1 + sum(s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True))


def storage_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a buffer's element type. Raises UsageError if it has none."""
    if name == "bf16":
        return np.dtype(np.uint16)  # the bits of numbers that numpy does not have
    if name not in NUMPY:
        raise UsageError(f"element type {name!r} has no storage; expected one of {' '.join(NUMPY)}")
    return np.dtype(NUMPY[name])


def sizes(plan: Plan) -> dict[str, int]:
    """Bytes of every buffer."""
    return {b.name: b.size * storage_dtype(b.dtype).itemsize for b in plan.buffers}


def check_plan(plan: Plan) -> None:
    """Raise UsageError unless views lie inside their buffers, bytes are taken for what they are, nothing is read before it is written, and constants
    have values.
    """
    buffers = {b.name: b for b in plan.buffers}
    if len(buffers) != len(plan.buffers):
        raise UsageError("two buffers of the plan have one name")
    for b in plan.buffers:
        if b.role == "constant" and (b.name not in plan.constants or count(plan.constants, b.name) != b.size):
            raise UsageError(f"constant buffer {b.name} needs {b.size} values")
    known = {b.name for b in plan.buffers if b.role == "constant"} | {v.buffer for _, v in plan.inputs}
    for n, kernel in enumerate(plan.kernels):
        what = f"kernel {n} ({type(kernel).__name__})"
        for view in (*kernel.operand_views, *kernel.result_views):
            _check_view(view, buffers.get(view.buffer), what)
        _check_types(kernel, buffers, what)
        for view in kernel.operand_views:
            if view.buffer not in known:
                raise UsageError(f"{what} reads buffer {view.buffer} before anything is written to it")
        for view in kernel.result_views:
            if buffers[view.buffer].role == "constant":
                raise UsageError(f"{what} writes to the constant buffer {view.buffer}")
            known.add(view.buffer)
    for name, view in (*plan.inputs, *plan.outputs):
        _check_view(view, buffers.get(view.buffer), f"input or output {name}")
    for name, view in plan.outputs:
        if view.buffer not in known:
            raise UsageError(f"output {name} is buffer {view.buffer}, to which nothing is written")


def _check_types(kernel: Kernel, buffers: Mapping[str, Buffer], what: str) -> None:
    for view, kind in kernel.elements:
        own = buffers[view.buffer].dtype
        if kind != own and not BYTES.isdisjoint((kind, own)):
            raise UsageError(f"{what} takes buffer {view.buffer} of {own} for one of {kind}")


def _check_view(view: View, buffer: Any, what: str) -> None:
    if buffer is None:
        raise UsageError(f"{what} uses buffer {view.buffer}, which the plan does not declare")
    lowest = view.offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True) if s < 0)
    if lowest < 0 or span(view) > buffer.size:
        raise UsageError(f"{what} reaches beyond buffer {view.buffer} of {buffer.size} elements: {view}")


def lifetimes(plan: Plan, scratch: Sequence[int] = ()) -> list[Lifetime]:
    """When each buffer that is no constant holds a value; `scratch[n]` bytes live during step n as `scratch:n`.

    Inputs live from before step 0, outputs to after the last step, and so do inputs that are no floats: they may be indices or counts, which a run
    on what is in memory needs as they were given. A buffer that is written in parts lives from its first writer on.
    """
    nbytes, end = sizes(plan), len(plan.kernels)
    changing = {b.name for b in plan.buffers if b.role != "constant"}
    first = {v.buffer: -1 for _, v in plan.inputs}
    last = dict(first)
    for n, kernel in enumerate(plan.kernels):
        for view in (*kernel.operand_views, *kernel.result_views):
            first.setdefault(view.buffer, n)
            last[view.buffer] = n
    last.update({v.buffer: end for _, v in plan.outputs})
    last.update({b.name: end for b in plan.buffers if b.role == "input" and b.dtype[0] != "f" and b.name in first})
    found = [Lifetime(name, nbytes[name], first[name], last[name]) for name in first if name in changing]
    return found + [Lifetime(f"scratch:{n}", size, n, n) for n, size in enumerate(scratch) if size]
