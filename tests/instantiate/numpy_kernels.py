"""What kernels mean, in numpy on flat float64 buffers; with small integers in them every sum of products is exact."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import erf, prod

import numpy as np

from einnet.expr.nodes import Scope, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, Post, VendorKernel, View
from einnet.instantiate.kernels.generated import expressed
from einnet.instantiate.matching.types import Match

Buffers = dict[str, np.ndarray]


def window(view: View, buffers: Mapping[str, np.ndarray]) -> np.ndarray:
    """The view as a writable array; it must lie inside its buffer."""
    flat = buffers[view.buffer]
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    first, last = view.offset + sum(min(r, 0) for r in reach), view.offset + sum(max(r, 0) for r in reach)
    assert first >= 0 and last < flat.size, f"{view} leaves its buffer of {flat.size} elements"
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, [s * flat.itemsize for s in view.strides])


def writes_once(view: View) -> bool:
    """No element is covered twice: a result that overlaps itself depends on the order of writing."""
    address = np.zeros((), dtype=np.int64)
    for n, s in zip(view.shape, view.strides, strict=True):
        address = np.add.outer(address, np.arange(n) * s)
    return np.unique(address).size == address.size


def execute(kernel: Kernel, buffers: Buffers) -> None:
    """Run one kernel."""
    (out,) = kernel.result_views
    assert writes_once(out)
    assert out.buffer not in {v.buffer for v in kernel.operand_views}, "a kernel reads what it writes"
    match kernel:
        case Matmul():
            result = matmul(kernel, buffers)
        case Conv():
            result = convolution(kernel, buffers)
        case VendorKernel() if type(kernel) not in (Matmul, Conv):
            execute(expressed(kernel), buffers)
            return
        case EOperator():
            given = {name: window(v, buffers) for name, v in kernel.operands}
            assert {n: t.shape for n, t in tensors(kernel.scope).items()} == {n: v.shape for n, v in kernel.operands}
            result = evaluate(kernel.scope, given)
        case _:
            raise TypeError(kernel)
    target = window(out, buffers)
    assert result.shape == target.shape
    target[...] = result


def matmul(kernel: Matmul, buffers: Buffers) -> np.ndarray:
    a, b = window(kernel.a, buffers), window(kernel.b, buffers)
    assert a.shape[-1] == b.shape[-2] and a.ndim == b.ndim == len(kernel.c.shape)
    return posts(np.matmul(a, b), kernel.post, buffers)


def convolution(kernel: Conv, buffers: Buffers) -> np.ndarray:
    x, w = window(kernel.x, buffers), window(kernel.w, buffers)
    groups, filters, channels, *taps = w.shape
    batch, spatial = x.shape[0], kernel.y.shape[2:]
    assert x.shape[1] == groups * channels and kernel.y.shape[:2] == (batch, groups * filters)
    assert spatial == extents(kernel, x.shape[2:], taps), "the result's extents do not follow from the attributes"
    grouped = x.reshape(batch, groups, channels, *x.shape[2:])
    y = np.zeros((batch, groups, filters, *spatial))
    inner, outer = (x.shape[2:], spatial) if kernel.transposed else (spatial, x.shape[2:])
    for tap in product(*map(range, taps)):
        for at in product(*map(range, inner)):
            to = tuple(i * s + r * d - p for i, s, r, d, p in zip(at, kernel.strides, tap, kernel.dilations, kernel.pads_begin, strict=True))
            if all(0 <= t < n for t, n in zip(to, outer, strict=True)):
                source, target = (at, to) if kernel.transposed else (to, at)
                y[(..., *target)] += np.einsum("ngc,gfc->ngf", grouped[(..., *source)], w[(..., *tap)])
    return posts(y.reshape(batch, groups * filters, *spatial), kernel.post, buffers)


def extents(kernel: Conv, given: tuple[int, ...], taps: list[int]) -> tuple[int, ...]:
    """The spatial extents of the result as vendor libraries compute them."""
    assert all(p >= 0 for p in kernel.pads_begin)
    found = []
    for n, r, s, d, p, q in zip(given, taps, kernel.strides, kernel.dilations, kernel.pads_begin, kernel.pads_end, strict=True):
        span = (r - 1) * d + 1
        found.append((n - 1) * s + span - p - q if kernel.transposed else (n + p + q - span) // s + 1)
    return tuple(found)


def posts(y: np.ndarray, steps: tuple[Post, ...], buffers: Buffers) -> np.ndarray:
    for p in steps:
        operand = window(p.operand, buffers) if p.operand else None
        match p.kind:
            case "add" | "mul":
                assert operand is not None and all(m in (1, n) for m, n in zip(operand.shape, y.shape, strict=True))
                y = y + operand if p.kind == "add" else y * operand
            case "relu":
                y = np.where(y > 0, y, float(p.alpha) * y)
            case "tanh":
                y = np.tanh(y)
            case "sigmoid":
                y = 1 / (1 + np.exp(-y))
            case "clip":
                y = np.clip(y, float(p.alpha), float(p.beta))
            case "linear":
                y = float(p.alpha) * y + float(p.beta)
            case "gelu" | "gelu_divided":
                y = y / 2 * (1 + np.vectorize(erf)(y * float(p.alpha) if p.kind == "gelu" else y / float(p.alpha)))
            case _:
                raise ValueError(p.kind)
    return y


def run(tree: Scope, matches: Mapping[Scope, Match], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Build kernels for an expression and run them; buffers start as NaN, so that a read of what nobody wrote shows."""
    made = build(tree, matches, "out")
    stored = {name: np.array([float(v) for v in t.values]) for name, t in tensors(tree).items() if t.values is not None}
    buffers: Buffers = {**stored, **{name: np.array(v, dtype=np.float64).reshape(-1) for name, v in values.items()}}
    for name, scope in made.weights.items():
        buffers[name] = evaluate(scope, {t: values[t] for t in tensors(scope) if t in values}).astype(np.float64).reshape(-1)
    buffers |= {name: np.full(b.size, np.nan) for name, b in made.temporaries.items()}
    buffers["out"] = np.full(prod(tree.shape), np.nan)
    for kernel in made.kernels:
        execute(kernel, buffers)
    return buffers["out"].reshape(tree.shape)


def integers(scope: Scope, seed: int = 0) -> dict[str, np.ndarray]:
    """Small integer values for the tensors of a scope, as float64."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(-3, 4, t.shape).astype(np.float64) for name, t in tensors(scope).items() if t.values is None}
