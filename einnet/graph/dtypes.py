"""Element types that may cross the boundary between kernels, by the short names of the notation."""

from __future__ import annotations

import numpy as np

NUMPY: dict[str, type[np.generic]] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bool": np.bool_,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip
"""numpy type by name. Values of any other type (strings, bfloat16, 4-bit integers, sequences) stay inside an opaque node."""

HALVES = ("f16", "bf16")
"""Types of floats all of which float32 has: what carries them is an expression of numbers, and its values are rounded where they leave it."""

_NAMES = {np.dtype(t): name for name, t in NUMPY.items()}


def dtype_name(dtype: np.dtype[np.generic] | type[np.generic]) -> str | None:
    """The short name of a numpy type, or None if such values may not cross."""
    return _NAMES.get(np.dtype(dtype))
