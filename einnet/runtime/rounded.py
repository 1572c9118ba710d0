"""Float32 as numbers of another arithmetic, and in the 16 bits that hold those of the shorter ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from einnet.instantiate.kernels.arithmetics import F32, Arithmetic

Array = np.ndarray[Any, np.dtype[Any]]


def rounded(x: Array, arithmetic: Arithmetic) -> Array:
    """The nearest number of an arithmetic, ties as hardware has them: of tf32 away from zero, else to even. What is beyond float16 is infinite."""
    if not arithmetic.rounds:
        return x
    if arithmetic.name == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(x.shape)
    cut = F32.digits - arithmetic.digits
    last = (bits >> np.uint32(cut)) & np.uint32(1) if arithmetic.short else np.uint32(1)
    moved = (bits + np.uint32((1 << cut - 1) - 1) + last) & np.uint32(-(1 << cut) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), moved.view(np.float32), x)


def encoded(x: Array, arithmetic: Arithmetic) -> Array:
    """Numbers rounded to a shorter arithmetic, as they lie in memory: of bfloat16, which numpy does not have, the bits."""
    with np.errstate(over="ignore"):
        if arithmetic.name == "f16":
            return x.astype(np.float16)
    bits = np.ascontiguousarray(rounded(x, arithmetic), np.float32).view(np.uint32) >> np.uint32(16)
    kept = np.where(np.isnan(x).reshape(bits.shape), bits | np.uint32(0x40), bits)  # what is left of a NaN is one
    return np.asarray(kept, np.uint16).reshape(x.shape)


def decoded(x: Array, arithmetic: Arithmetic) -> Array:
    """The float32 that the shorter numbers are."""
    if arithmetic.name == "f16":
        return x.astype(np.float32)
    wide: Array = (np.ascontiguousarray(x).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide.reshape(x.shape)
