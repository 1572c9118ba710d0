"""Operators of torch by simpler ones, where torch's exporter has no ONNX for them and torch's own decompositions go on to operators without ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_map

from einnet.api.torch.halves import HALVES

Tensor = Any
aten = torch.ops.aten


def places(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """Dimensions counted from the first; all of them where none are given."""
    given = [dims] if isinstance(dims, int) else dims
    return [d % rank for d in given] if given else list(range(rank))


def var_mean(x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """sum((x - mean)^2) / max(0, n - correction), and the mean."""
    over = places(dim, x.dim())
    mean = aten.mean.dim(x, over, True)
    deviation = x - mean
    left = max(0, prod(x.shape[d] for d in over) - (1 if correction is None else correction))
    found = aten.sum.dim_IntList(deviation * deviation, over, keepdim) / left
    return found, mean if keepdim else squeezed(mean, over)


def var(x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """The variance alone."""
    return var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def squeezed(x: Tensor, dim: Sequence[int]) -> Tensor:
    """Without those of the dimensions that have one element."""
    for d in sorted(places(dim, x.dim()), reverse=True) if dim else ():
        x = aten.squeeze.dim(x, d)
    return x


def pooled(x: Tensor, size: Sequence[int]) -> Tensor:
    """Means of windows of the last dimensions, as many as `size` says.

    The o-th of s windows of n elements is [floor(o n / s), ceil((o + 1) n / s)): all are n / s elements where s divides n. A box of windows has the
    product of their lengths as its number of elements, so that dimensions are averaged one after the other.
    """
    sizes = x.shape[x.dim() - len(size) :]
    if all(n % s == 0 for n, s in zip(sizes, size)):
        window = [n // s for n, s in zip(sizes, size)]
        return (aten.avg_pool2d if len(size) == 2 else aten.avg_pool3d).default(x, window, window)
    order = torch._prims_common.suggest_memory_format(x)
    for d, (n, s) in enumerate(zip(sizes, size), x.dim() - len(size)):
        x = x if n == s else averaged(x, d, n, s)
    return x.contiguous(memory_format=order)


def averaged(x: Tensor, dim: int, n: int, s: int) -> Tensor:
    """Means of s windows of a dimension of n elements: a product with a matrix that has 1 / length in a window's row."""
    window, element = torch.arange(s, device=x.device).unsqueeze(1), torch.arange(n, device=x.device).unsqueeze(0)
    first, after = (window * n) // s, ((window + 1) * n + s - 1) // s
    rows = ((element >= first) & (element < after)).to(x.dtype) / (after - first).to(x.dtype)
    return torch.movedim(torch.movedim(x, dim, -1) @ rows.T, -1, dim)


def rounded_once(body: Callable[..., Any]) -> Callable[..., Any]:
    """A body for numbers of float32, which those of half precision are on the way, as torch computes them; other numbers stay as they are."""

    def decomposition(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dtype in HALVES:
            return tree_map(lambda y: y.to(x.dtype), body(x.float(), *args, **kwargs))
        return body(x, *args, **kwargs) if x.dtype is torch.float32 else NotImplemented

    return decomposition


def simpler() -> Mapping[Any, Callable[..., Any]]:
    """What stands for each operator."""
    return {
        aten.var.correction: rounded_once(var),
        aten.var_mean.correction: rounded_once(var_mean),
        aten.squeeze.dims: squeezed,
        aten._adaptive_avg_pool2d.default: rounded_once(pooled),
        aten._adaptive_avg_pool3d.default: rounded_once(pooled),
    }
