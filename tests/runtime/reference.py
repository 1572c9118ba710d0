"""What kernels mean, in plain numpy over flat buffers: the other side of every numeric test of the runtime."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from einnet.instantiate.kernels import Conv, Matmul, Post, VendorKernel, View, dense_strides
from einnet.runtime.arena import span
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import prepare


def window(view: View, buffers: Mapping[str, np.ndarray]) -> np.ndarray:
    """The view as a (writable) array on its buffer."""
    flat = buffers[view.buffer]
    assert span(view) <= flat.size
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, [s * flat.itemsize for s in view.strides])


def apply_posts(y: np.ndarray, posts: tuple[Post, ...], buffers: Mapping[str, np.ndarray]) -> np.ndarray:
    for post in posts:
        operand = window(post.operand, buffers).astype(np.float64) if post.operand else None
        alpha, beta = float(post.alpha), float(post.beta)
        y = {
            "add": lambda y=y, o=operand: y + o, "mul": lambda y=y, o=operand: y * o,
            "relu": lambda y=y, a=alpha: np.where(y > 0, y, a * y), "tanh": lambda y=y: np.tanh(y), "sigmoid": lambda y=y: 1 / (1 + np.exp(-y)),
            "clip": lambda y=y, a=alpha, b=beta: np.clip(y, a, b), "linear": lambda y=y, a=alpha, b=beta: a * y + b,
        }[post.kind]()  # fmt: skip
    return y


def convolve(kernel: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Every tap's contribution, position by position."""
    groups, f, c, *taps = w.shape
    y = np.zeros(kernel.y.shape)
    small, large = (x.shape, y.shape) if kernel.transposed else (y.shape, x.shape)
    for tap in itertools.product(*map(range, taps)):
        for at in itertools.product(*map(range, small[2:])):
            to = tuple(i * s + r * d - p for i, s, r, d, p in zip(at, kernel.strides, tap, kernel.dilations, kernel.pads_begin, strict=True))
            if all(0 <= t < n for t, n in zip(to, large[2:], strict=True)):
                source, target = (at, to) if kernel.transposed else (to, at)
                for g in range(groups):
                    y[(slice(None), slice(g * f, g * f + f), *target)] += x[(slice(None), slice(g * c, g * c + c), *source)] @ w[(g, ..., *tap)].T
    return y


def compute(kernel: VendorKernel, buffers: Mapping[str, np.ndarray]) -> np.ndarray:
    """The kernel's result in float64."""
    if isinstance(kernel, Matmul):
        y = window(kernel.a, buffers).astype(np.float64) @ window(kernel.b, buffers).astype(np.float64)
    else:
        y = convolve(kernel, window(kernel.x, buffers).astype(np.float64), window(kernel.w, buffers).astype(np.float64))
    return apply_posts(y, kernel.post, buffers)


def aligned(count: int, dtype: str = "f4") -> np.ndarray:
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][: count * np.dtype(dtype).itemsize].view(dtype)


def run_vendor(kernel: VendorKernel, buffers: Mapping[str, np.ndarray], constants: Collection[str]) -> str:
    """Run the kernel by oneDNN on the buffers; returns the implementation's name."""
    prepared, stream = prepare(kernel, constants), dnnl.new_stream()
    keep = [aligned(prepared.scratch.nbytes + 1, "u1"), aligned(prepared.packed.target.nbytes if prepared.packed else 1, "u1")]
    if prepared.packed:
        prepared.packed.fill(buffers[prepared.packed.view.buffer].ctypes.data, keep[1].ctypes.data)
    dnnl.execute(prepared.create(), stream, prepared.bind(lambda name: buffers[name].ctypes.data, keep[1].ctypes.data, keep[0].ctypes.data))
    return prepared.implementation


def layout(buffer: str, shape: tuple[int, ...], order: tuple[int, ...] | None = None, offset: int = 0) -> View:
    """A dense view whose dimensions lie in `order` in memory."""
    if order is None:
        return View(buffer, shape, dense_strides(shape), offset)
    strides = dict(zip(order, dense_strides(tuple(shape[d] for d in order)), strict=True))
    return View(buffer, shape, tuple(strides[d] for d in range(len(shape))), offset)
