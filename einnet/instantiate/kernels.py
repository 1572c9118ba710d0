"""What an optimized program consists of: kernels over strided views of named buffers. Plain data, no device, no library.

Derivation and matching produce these; a runtime builds and runs them; the artifact stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Union

import numpy as np

from einnet.expr.nodes import Scope

LINE = 16
"""Floats of a cache line, to which buffers are aligned."""


@dataclass(frozen=True, slots=True)
class View:
    """A strided window on a buffer: element (i0, i1, ...) lies `offset + Σ strides·i` elements after the buffer's start."""

    buffer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Post:
    """One operation on a vendor kernel's result, applied in order.

    `add` and `mul` take an operand that broadcasts to the result (extent 1 where it does not vary); the rest are element functions:
    relu (alpha = slope below 0), tanh, sigmoid, clip(alpha, beta), linear (alpha·y + beta).
    """

    kind: str
    operand: View | None = None
    alpha: float = 0.0
    beta: float = 0.0


POSTS = ("add", "mul", "relu", "tanh", "sigmoid", "clip", "linear")


@dataclass(frozen=True, slots=True)
class Matmul:
    """c[..., m, n] = Σ_k a[..., m, k] b[..., k, n]; leading batch dimensions, extent 1 broadcasts."""

    a: View
    b: View
    c: View
    post: tuple[Post, ...] = ()


@dataclass(frozen=True, slots=True)
class Conv:
    """y[n, g·f, o...] = Σ_{c, r...} x[n, g·c, o·stride + r·dilation - pad_begin ...] w[g, f, c, r...], reads outside x are 0.

    `transposed`: y[n, g·f, i·stride + r·dilation - pad_begin ...] += x[n, g·c, i...] w[g, f, c, r...].
    Views: x (n, groups·c, spatial...), w (groups, f, c, taps...), y (n, groups·f, spatial...).
    """

    x: View
    w: View
    y: View
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    transposed: bool = False
    post: tuple[Post, ...] = ()


@dataclass(frozen=True, slots=True)
class EOperator:
    """A generated kernel: `out[loops] = scope`. Operand views follow the dimensions of the scope's tensors, out those of its loops.

    Scopes nested in `scope` are computed inside the kernel, not stored in a buffer of the program.
    """

    scope: Scope
    operands: tuple[tuple[str, View], ...]
    out: View


@dataclass(frozen=True, slots=True)
class OpaqueCall:
    """A serialised ONNX model run by ONNX Runtime; views are dense and row-major, in the order of the model's inputs and outputs."""

    model: bytes
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    origin: str


Kernel = Union[Matmul, Conv, EOperator, OpaqueCall]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage: `size` elements of `dtype`. Role: "input", "output", "constant" or "temporary"."""

    name: str
    size: int
    dtype: str
    role: str


@dataclass(frozen=True, eq=False)
class Plan:
    """A program to run: kernels in order over buffers.

    `inputs` and `outputs` give, for each name of the model in its order, the dense row-major view that holds it (an output may view an
    input or a constant); `constants` the values of constant buffers (flat arrays of `size` elements).

    `expressions` say of constants what they were computed from: expressions over the program's weights. `places` say of tensors that have no
    buffer of their own where they stand in others. Nobody has to believe either: `einnet.evidence` computes and proves them again.
    """

    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    inputs: tuple[tuple[str, View], ...]
    outputs: tuple[tuple[str, View], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    expressions: Mapping[str, Scope] = field(default_factory=dict)
    places: Mapping[str, View] = field(default_factory=dict)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for n in range(len(shape) - 2, -1, -1):
        strides[n] = strides[n + 1] * max(shape[n + 1], 1)
    return tuple(strides)


def dense_view(buffer: str, shape: tuple[int, ...]) -> View:
    """The whole buffer, row-major."""
    return View(buffer, shape, dense_strides(shape))


def strided_view(buffer: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> View:
    """A view whose dimensions of extent 1, which never move, get the stride that vendor libraries expect there: 1 in the last, else the reach."""
    reach = max((n * abs(s) for n, s in zip(shape, strides) if n > 1), default=1)
    last = len(shape) - 1
    return View(buffer, shape, tuple(s if n > 1 else (1 if d == last else reach) for d, (n, s) in enumerate(zip(shape, strides))), offset)


def operand_views(kernel: Kernel) -> tuple[View, ...]:
    """Everything the kernel reads, post operands included."""
    match kernel:
        case Matmul(a, b, _, post):
            return (a, b, *(p.operand for p in post if p.operand))
        case Conv(x=x, w=w, post=post):
            return (x, w, *(p.operand for p in post if p.operand))
        case EOperator(operands=operands):
            return tuple(v for _, v in operands)
        case OpaqueCall(inputs=inputs):
            return inputs
    raise TypeError(kernel)


def map_views(kernel: Kernel, change: Callable[[View], View]) -> Kernel:
    """The kernel over changed views."""
    match kernel:
        case Matmul() | Conv():
            post = tuple(replace(p, operand=change(p.operand)) if p.operand else p for p in kernel.post)
            if isinstance(kernel, Matmul):
                return replace(kernel, a=change(kernel.a), b=change(kernel.b), c=change(kernel.c), post=post)
            return replace(kernel, x=change(kernel.x), w=change(kernel.w), y=change(kernel.y), post=post)
        case EOperator():
            return replace(kernel, operands=tuple((n, change(v)) for n, v in kernel.operands), out=change(kernel.out))
        case OpaqueCall():
            return replace(kernel, inputs=tuple(map(change, kernel.inputs)), outputs=tuple(map(change, kernel.outputs)))
    raise TypeError(kernel)


def anchored(kernel: Kernel) -> Kernel:
    """The kernel with all views moved to the first line of their buffers: it does the same work, at addresses aligned in the same way."""
    return map_views(kernel, lambda v: replace(v, offset=v.offset % LINE))


def result_views(kernel: Kernel) -> tuple[View, ...]:
    """Everything the kernel writes."""
    match kernel:
        case Matmul(c=c):
            return (c,)
        case Conv(y=y):
            return (y,)
        case EOperator(out=out):
            return (out,)
        case OpaqueCall(outputs=outputs):
            return outputs
    raise TypeError(kernel)
