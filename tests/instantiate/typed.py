"""Generated kernels on arrays of any element type, dense."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np

from einnet.expr.nodes import Scope
from einnet.instantiate.codegen import build, lower
from tests.instantiate.compiled import dense


def run(scope: Scope, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """The kernel's result."""
    op = dense(scope)
    kernel = lower(op, "kernel")
    out = np.full(scope.shape, np.float32(777))
    arrays = [np.ascontiguousarray(given[n]) for n in kernel.params[:-1]]
    build([kernel])["kernel"](*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)))
    return out
