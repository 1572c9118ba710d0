"""Generated kernels run on arrays with strides, offsets and guard elements, next to the meaning of their expressions."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen import LoweredKernel, build, lower
from einnet.instantiate.kernels import EOperator, View, dense_view

GUARD = np.float32(777.0)
"""What stands in memory that a kernel must not write."""


def dense(scope: Scope | str) -> EOperator:
    """The eOperator over dense row-major operands."""
    s = parse(scope) if isinstance(scope, str) else scope
    return EOperator(s, tuple((n, dense_view(n, t.shape)) for n, t in tensors(s).items()), dense_view("out", s.shape))


def scattered(scope: Scope | str, seed: int) -> EOperator:
    """The eOperator over views with permuted dimensions, gaps and offsets."""
    s = parse(scope) if isinstance(scope, str) else scope
    rng = Random(seed)
    return EOperator(s, tuple((n, random_view(rng, n, t.shape)) for n, t in tensors(s).items()), random_view(rng, "out", s.shape))


def random_view(rng: Random, name: str, shape: tuple[int, ...]) -> View:
    order = list(range(len(shape)))
    rng.shuffle(order)
    strides, step = [0] * len(shape), rng.choice((1, 1, 1, 2))
    for d in order:
        strides[d] = step
        step *= shape[d] + rng.choice((0, 0, 1))
    return View(name, shape, tuple(strides), rng.choice((0, 1, 3)))


def window(view: View, memory: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, [memory.itemsize * s for s in view.strides])


def memory_for(view: View, fill: float, room: int = 0, at_end: bool = True) -> np.ndarray:
    """Memory that ends with the view's last element, or so many elements behind it, fenced there or at its start."""
    last = view.offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True))
    memory = fenced(last + 1 + room, at_end)
    memory[...] = fill
    return memory


def fenced(count: int, at_end: bool) -> np.ndarray:
    """Floats between pages that cannot be read, directly behind the one or directly before the other: who reads outside crashes."""
    page = mmap.PAGESIZE
    inside = -(-4 * count // page) * page
    region = mmap.mmap(-1, inside + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for place in (base, base + page + inside):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), ctypes.c_size_t(page), 0) == 0
    start = page + (inside - 4 * count) if at_end else page
    return np.frombuffer(region, np.float32, count, start)


def random_values(op: EOperator, seed: int = 0, positive: bool = False) -> dict[str, np.ndarray]:
    """Normal values for all operands, or values in (0.1, 1.1); tensors that carry their values have those."""
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.uniform(0.1, 1.1, shape)) if positive else rng.standard_normal
    found = {n: np.asarray(draw(t.shape), dtype=np.float32) for n, t in tensors(op.scope).items()}
    own = {n: np.array(t.values, dtype=np.float32).reshape(t.shape) for n, t in tensors(op.scope).items() if t.values is not None}
    return {**found, **own}


def call(module: object, kernel: LoweredKernel, op: EOperator, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The kernel's result; fails if it wrote outside its output. It runs with a fence behind all memory, and with one before."""
    results = []
    for at_end in (True, False):
        held = {}
        for name, view in op.operands:
            held[name] = memory_for(view, np.nan, at_end=at_end)
            window(view, held[name])[...] = values[name]
        out = memory_for(op.out, GUARD, 19, at_end)
        addresses = [held[n].ctypes.data for n in kernel.params[:-1]] + [out.ctypes.data]
        module[kernel.name](*(ctypes.c_void_p(a) for a in addresses))  # type: ignore[index]
        results.append(window(op.out, out).copy())
        window(op.out, out)[...] = GUARD
        assert (out == GUARD).all(), "elements outside the output were written"
    np.testing.assert_array_equal(*results)
    return results[0]


def check(ops: Sequence[EOperator], threads: int = 1, positive: bool = False, tolerance: float = 2e-5) -> list[LoweredKernel]:
    """Compile in one module, run on random values, compare with the expressions' meaning."""
    kernels = [lower(op, f"kernel{n}", threads) for n, op in enumerate(ops)]
    module = build(kernels)
    for kernel, op in zip(kernels, ops, strict=True):
        values = random_values(op, positive=positive)
        expected = evaluate(op.scope, values, dtype="float64")
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max(initial=1.0))
        np.testing.assert_allclose(call(module, kernel, op, values), expected, rtol=tolerance, atol=tolerance * scale, err_msg=str(op.scope))
    return kernels
