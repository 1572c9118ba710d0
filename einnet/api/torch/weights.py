"""Parameters and buffers that a program has as constants: whether they still are what they were when it was made."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import torch

Tensor = Any

SAMPLE = 64
"""Bytes in the middle of each weight that every call compares."""

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcmp.restype = ctypes.c_int


class Watch:
    """The weights of one program.

    torch counts the writes to a tensor; a write through `.data`, or through memory that is shared with numpy, is not counted. So some bytes are
    compared as well, which every step of an optimizer changes, but which a write to single elements may miss. What torch does not count at all
    (tensors of inference mode) is compared whole.
    """

    def __init__(self, weights: Sequence[tuple[int, Tensor]]) -> None:
        self._held = [(n, weakref.ref(t), t.data_ptr(), version(t)) for n, t in weights]
        self._whole = [(n, t.clone()) for n, t in weights if version(t) is None]
        self._samples = [sample for _, t in weights if version(t) is not None and (sample := sampled(t)) is not None]

    def current(self, args: Sequence[Any]) -> bool:
        """The weights among these arguments are the same tensors, unwritten since."""
        for n, reference, pointer, written in self._held:
            tensor = reference()
            if tensor is None or tensor is not args[n] or tensor.data_ptr() != pointer or (written is not None and tensor._version != written):
                return False
        if any(_memcmp(pointer, kept, count) for pointer, kept, count in self._samples):
            return False
        return all(bool((args[n] == kept).all()) for n, kept in self._whole)

    def replaced(self, args: Sequence[Any]) -> bool:
        """These arguments have the same tensors, one of which at least has been written: the program will not be asked for again."""
        return all(reference() is args[n] or reference() is None for n, reference, _, _ in self._held)


def version(tensor: Tensor) -> int | None:
    """How often torch has seen the tensor written; None where it does not count."""
    return None if tensor.is_inference() else int(tensor._version)


def sampled(tensor: Tensor) -> tuple[int, ctypes.Array[ctypes.c_char], int] | None:
    """Where the bytes lie that are compared, a copy of them, and how many; None for an empty tensor and for one with holes."""
    count = tensor.numel() * tensor.element_size()
    if not count or not torch.ops.aten.is_non_overlapping_and_dense.default(tensor):
        return None
    width = min(SAMPLE, count)
    pointer = tensor.data_ptr() + (count - width) // 2
    return pointer, ctypes.create_string_buffer(ctypes.string_at(pointer, width), width), width
