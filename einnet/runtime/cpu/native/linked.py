"""The native functions and a program's generated kernels, linked, and sequences of native steps."""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence

import numpy as np

from einnet.errors import BackendError
from einnet.runtime.cpu.native.functions import LAUNCH_FUNCTION, LAUNCH_POINTER, REPEAT_FUNCTION, VENDOR_FUNCTION
from einnet.runtime.cpu.native.link import Image
from einnet.runtime.cpu.native.nearness import asked, sharing
from einnet.runtime.cpu.threads import find_symbol

Step = tuple[int, Sequence[int] | C.Array[C.c_int64]]
"""A function's address and its argument words."""


def _find(name: str) -> int | None:
    """`find_symbol`, except that a program may be linked without oneDNN: then no step calls it."""
    return find_symbol(name) or (0 if name == "dnnl_primitive_execute" else None)


class Native:
    """Linked code: the functions above and the generated kernels of `objects`."""

    def __init__(self, support: bytes, objects: Sequence[bytes] = ()) -> None:
        self.image = Image([support, *objects], _find, {LAUNCH_POINTER: LAUNCH_FUNCTION})
        address = self.image.address
        self.vendor, self.repeat = address(VENDOR_FUNCTION), address(REPEAT_FUNCTION)
        self._run = C.CFUNCTYPE(C.c_int64, C.c_void_p, C.c_int64, C.c_int)(address("einnet_run"))
        self._profile = C.CFUNCTYPE(C.c_int64, C.c_void_p, C.c_int64, C.c_int, C.c_void_p)(address("einnet_profile"))
        self.wake = C.CFUNCTYPE(None, C.c_int)(address("einnet_wake"))
        self.flush = C.CFUNCTYPE(None, C.c_void_p, C.c_int64)(address("einnet_flush"))
        self._turns = C.CFUNCTYPE(None, C.c_void_p, C.c_int)(address("einnet_turns")) if "einnet_turns" in self.image else None

    def together(self, threads: int) -> float:
        """Seconds in which two of so many threads each do a fixed work and hand a cache line to each other some times: least where they have cores of
        their own that are near each other. 0 where one of them was kept waiting by others, there is but one, or the code is an older program's."""
        return 0.0 if self._turns is None or threads < 2 else asked(self._turns, threads)

    def sharing(self, threads: int) -> float:
        """How many times as long two of so many threads work as one alone: 1 where each has a core of its own. 0 where that is not told; an older
        program's code says 1."""
        return 0.0 if self._turns is None or threads < 2 else sharing(self._turns, threads)


class Steps:
    """A sequence of native steps; each is a function's address and its argument words. Words that are an array of C's are read where they are."""

    def __init__(self, native: Native, steps: Sequence[Step], threads: int, names: Sequence[str] = ()) -> None:
        self._native, self._names = native, tuple(names)
        self._words = [words if isinstance(words, C.Array) else (C.c_int64 * max(len(words), 1))(*words) for _, words in steps]
        flat = [word for (function, _), words in zip(steps, self._words, strict=True) for word in (function, C.addressof(words))]
        self._array = (C.c_int64 * max(len(flat), 1))(*flat)
        self._call, self._threads, self._count = native._run, threads, len(steps)
        self._arguments = (C.c_void_p(C.addressof(self._array)), C.c_int64(len(steps)), C.c_int(threads))

    def __call__(self) -> None:
        """Run all steps in one native call. Raises BackendError if a vendor kernel reports a failure."""
        failed = self._call(*self._arguments)
        if failed:
            self._fail(failed)

    def profile(self) -> np.ndarray:
        """Run all steps; seconds of each."""
        times = np.zeros(max(self._count, 1), np.int64)
        failed = self._native._profile(*self._arguments, times.ctypes.data)
        if failed:
            self._fail(failed)
        return times[: self._count] * 1e-9

    def _fail(self, number: int) -> None:
        name = self._names[number - 1] if number <= len(self._names) else f"step {number}"
        raise BackendError(f"{name} failed at run time")
