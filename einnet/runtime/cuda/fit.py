"""A plan as CUDA's libraries can run it: posts that they do not fuse and operands that they cannot address become generated kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from einnet.expr.index import as_index, var
from einnet.expr.nodes import Const, Iter, Read, Scope, Tensor
from einnet.instantiate.epilogue_kernels import posted
from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, Plan, Post, VendorKernel, View, dense_view
from einnet.instantiate.kernels.generated import expressed
from einnet.runtime.cuda.gemm import addressable, bias_of
from einnet.runtime.cuda.vendor import window


def fitted(plan: Plan, channels_last: bool = False) -> Plan:
    """The same program: every matrix has a stride of 1, every post is one that the library fuses.

    With `channels_last` the filters of forward convolutions are stored with their channels in the last dimension, as kernels for tensor cores want.
    """
    more = _Storage(plan.constants, channels_last)
    kernels = [k for kernel in plan.kernels for k in _parts(kernel, more)]
    return replace(
        plan, buffers=(*plan.buffers, *more.buffers), kernels=tuple(kernels), constants={**plan.constants, **more.constants},
        expressions={**plan.expressions, **more.expressions},
    )  # fmt: skip


def fitted_one_by_one(plan: Plan, channels_last: bool = False) -> list[list[Kernel]]:
    """What each kernel of the plan becomes; all together the kernels of `fitted`."""
    more = _Storage(plan.constants, channels_last)
    return [_parts(kernel, more) for kernel in plan.kernels]


def filters_last(kernel: Conv) -> Conv:
    """The convolution with its filters, which have one layout where they are read, dense with channels innermost; a transposed one as it is."""
    if kernel.transposed:
        return kernel
    order = [0, 1, *range(3, len(kernel.w.shape)), 2]
    return replace(kernel, w=_dense_in(kernel.w, kernel.w.buffer, order))


def _dense_in(like: View, buffer: str, order: Sequence[int]) -> View:
    """The shape of a view, dense in a buffer with its dimensions in that order."""
    stored = dense_view(buffer, tuple(like.shape[d] for d in order))
    return replace(stored, shape=like.shape, strides=tuple(stored.strides[order.index(d)] for d in range(len(order))))


def parts(kernel: Kernel) -> list[Kernel]:
    """What one kernel becomes where no operand is a constant."""
    return _parts(kernel, _Storage({}))


def _parts(kernel: Kernel, more: _Storage) -> list[Kernel]:
    if isinstance(kernel, (Matmul, Conv)):
        return list(_fit(kernel, more))
    return [expressed(kernel)] if isinstance(kernel, VendorKernel) else [kernel]


class _Storage:
    """Buffers that are added to a plan."""

    def __init__(self, constants: Mapping[str, np.ndarray[Any, np.dtype[Any]]], channels_last: bool = False) -> None:
        self.known, self.channels_last = constants, channels_last
        self.buffers: list[Buffer] = []
        self.constants: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
        self.expressions: dict[str, Scope] = {}

    def dense(self, like: View, role: str = "temporary", swap: bool = False) -> View:
        """A new buffer in the shape of a view, row-major; with `swap`, dimension 2 outside dimension 1."""
        order = [0, 2, 1, *range(3, len(like.shape))] if swap else list(range(len(like.shape)))
        return self.stored(like, role, order)

    def stored(self, like: View, role: str, order: Sequence[int]) -> View:
        """A new buffer in the shape of a view, dense with its dimensions in that order."""
        self.buffers.append(Buffer(f"cuda:{len(self.buffers)}", prod(like.shape), "f32", role))
        return _dense_in(like, self.buffers[-1].name, order)

    def zeros(self, shape: tuple[int, ...]) -> View:
        """Constants of 0."""
        self.buffers.append(Buffer(f"cuda:{len(self.buffers)}", prod(shape), "f32", "constant"))
        self.constants[self.buffers[-1].name] = np.zeros(prod(shape), np.float32)
        self.expressions[self.buffers[-1].name] = Scope((Iter("i", 0, prod(shape)),), (), Const(Fraction(0)))
        return dense_view(self.buffers[-1].name, shape)

    def copied(self, view: View, swap: bool) -> View | None:
        """A dense copy of constants, made now; None for what changes."""
        if view.buffer not in self.known:
            return None
        return self._copied(view, self.dense(view, "constant", swap))

    def filters(self, kernel: Conv) -> Conv:
        """The convolution with constant filters in the layout that is wanted of them."""
        if not self.channels_last or kernel.transposed or kernel.w.buffer not in self.known or filters_last(kernel).w.strides == kernel.w.strides:
            return kernel
        order = [0, 1, *range(3, len(kernel.w.shape)), 2]
        return replace(kernel, w=self._copied(kernel.w, self.stored(kernel.w, "constant", order)))

    def _copied(self, view: View, target: View) -> View:
        values = self.constants[target.buffer] = np.empty(prod(view.shape), np.float32)
        window(target, values)[...] = window(view, self.known[view.buffer].reshape(-1))
        self.expressions[target.buffer] = _copy(view, target, self.known[view.buffer].size)
        return target


def _copy(view: View, target: View, size: int) -> Scope:
    """What a dense copy holds, dimension by dimension as it lies in memory, of the buffer of `size` elements that it was made of."""
    order = sorted(range(len(view.shape)), key=lambda d: (-target.strides[d], d))
    loops = tuple(Iter(f"i{d}", 0, view.shape[d]) for d in order)
    at = sum((var(f"i{d}") * s for d, s in enumerate(view.strides) if view.shape[d] > 1), start=as_index(view.offset))
    return Scope(loops, (), Read(Tensor(view.buffer, (size,), "f32", True), (at,)))


def _fit(kernel: Matmul | Conv, more: _Storage) -> Iterator[Kernel]:
    if isinstance(kernel, Conv):
        kernel = more.filters(kernel)
    names = ("a", "b") if isinstance(kernel, Matmul) else ("x", "w")
    for name in names:
        view: View = getattr(kernel, name)
        if not _taken(kernel, name, view):
            swap = name == "w" and isinstance(kernel, Conv) and kernel.transposed
            dense = more.copied(view, swap)
            if dense is None:
                dense = more.dense(view, swap=swap)
                yield posted(view, (), dense)
            change: dict[str, Any] = {name: dense}
            kernel = replace(kernel, **change)
    fused = fusible(kernel)
    rest, out = kernel.post[fused:], kernel.result
    kernel = replace(kernel, post=kernel.post[:fused])
    if isinstance(kernel, Conv) and kernel.post and not _adds(kernel.post[0], per_channel(kernel)):
        kernel = replace(kernel, post=(Post("add", more.zeros(per_channel(kernel))), *kernel.post))
    if not _written(kernel, out):
        dense = more.dense(out)
        yield kernel.with_result(dense)
        yield posted(dense, (*kernel.post, *rest), out)
        return
    yield kernel
    if rest:
        yield posted(out, rest, out)


def _taken(kernel: Matmul | Conv, name: str, view: View) -> bool:
    """The library reads the view as it is."""
    if isinstance(kernel, Matmul):
        return addressable(view)
    if not _starts_well(view):
        return False
    return packed(view, kernel.transposed) if name == "w" else _batch_outside(view)


def packed(view: View, transposed: bool) -> bool:
    """Filters (groups, f, c, taps...) lie dense, with taps inside or with what is summed inside: cuDNN takes others, and computes something else.

    Of a transposed convolution f is summed by the library, and c is not.
    """
    outer, inner = (2, 1) if transposed else (1, 2)
    taps = range(3, len(view.shape))
    return any(_dense(view, order) for order in ((0, outer, inner, *taps), (0, outer, *taps, inner)))


def _dense(view: View, order: Sequence[int]) -> bool:
    """The dimensions, outermost first, lie behind each other without gaps."""
    step = 1
    for d in reversed(order):
        if view.shape[d] > 1 and view.strides[d] != step:
            return False
        step *= view.shape[d]
    return True


def _batch_outside(view: View) -> bool:
    """Images (n, channels, positions...) lie behind each other, as cuDNN's layouts have them; every dimension moves forward."""
    moving = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    return all(s > 0 for s in moving) and (view.shape[0] == 1 or view.strides[0] == max(moving))


def _written(kernel: Matmul | Conv, out: View) -> bool:
    """The library writes the view as it is."""
    return addressable(out) if isinstance(kernel, Matmul) else _starts_well(out) and _batch_outside(out)


def _starts_well(view: View) -> bool:
    """cuDNN takes every tensor to start at a multiple of 16 bytes."""
    return view.offset % 4 == 0


def fusible(kernel: Matmul | Conv) -> int:
    """How many of the posts, from the first on, the library's kernel applies itself."""
    patterns: Sequence[Callable[[Post], bool]]
    if isinstance(kernel, Matmul):
        patterns = (lambda p: bias_of(kernel, p) is not None, _plain_relu)
    elif kernel.transposed:
        patterns = ()
    else:
        channels = per_channel(kernel)
        patterns = (lambda p: _adds(p, channels), lambda p: _adds(p, kernel.y.shape), _plain_relu)
    count = 0
    for fits in patterns:
        if count < len(kernel.post) and fits(kernel.post[count]):
            count += 1
    return count


def per_channel(kernel: Conv) -> tuple[int, ...]:
    """The shape of a bias. cuDNN fuses nothing to a convolution without one: zeros stand in."""
    return (1, kernel.y.shape[1], *(1 for _ in kernel.y.shape[2:]))


def _plain_relu(p: Post) -> bool:
    return p.kind == "relu" and p.alpha == 0.0


def _adds(p: Post, shape: tuple[int, ...]) -> bool:
    return p.kind == "add" and p.operand is not None and p.operand.shape == shape and _starts_well(p.operand)
