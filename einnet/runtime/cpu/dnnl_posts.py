"""Operations behind a vendor kernel's result as oneDNN's post-operations, and the operands that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from einnet.instantiate.kernels import Post, View
from einnet.instantiate.kernels.posts import QUANTISED, U8
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Desc, Refused
from einnet.runtime.cpu.layouts import agree, broadcast, permuted_strides

PostOperations = tuple[tuple[dnnl.PostOp, View | None], ...]
"""Each with the view that it reads, None where it reads nothing."""


def described(view: View, dtype: str = dnnl.F32) -> Desc:
    if any(s == 0 and n > 1 for s, n in zip(view.strides, view.shape, strict=True)):
        raise Refused(f"stride 0 in a dimension that does not broadcast: shape {view.shape} strides {view.strides}")
    return Desc.strided(view.shape, view.strides, dtype)


def post_operations(posts: Sequence[Post], result: View, arrange: Callable[[View], View]) -> PostOperations:
    """Post-ops for a result view; operands (views with the kernel's result dimensions) go through `arrange`."""
    found: list[tuple[dnnl.PostOp, View | None]] = []
    for n, post in enumerate(posts, 1):
        if post.kind in QUANTISED:
            found += [(one, None) for one in _quantised(post, stored=post.kind == U8 and n == len(posts))]
            continue
        if post.operand is None:
            found.append((dnnl.Eltwise(post.kind, float(post.alpha), float(post.beta)), None))
            continue
        view = arrange(broadcast(post.operand))
        if len(view.shape) != len(result.shape) or any(n not in (1, m) for n, m in zip(view.shape, result.shape, strict=True)):
            raise Refused(f"operand of shape {view.shape} does not broadcast to the result {result.shape}")
        same = view.buffer == result.buffer and view.offset == result.offset and view.shape == result.shape
        if post.kind == "add" and same and agree(view.shape, view.strides, result.strides):
            found.append((dnnl.Sum(), None))
        else:
            found.append((dnnl.Binary(post.kind, described(view)), view))
    return tuple(found)


def _quantised(post: Post, stored: bool) -> Iterator[dnnl.Eltwise]:
    """Rounding to integers from 0 to 255: the scale by its inverse, which may move what is next to the middle of two integers to the other one.

    Where bytes are `stored`, that rounds to the nearest integer, half to even, and saturates: what is rounded before is what is added to.
    """
    if post.alpha != 1:
        yield dnnl.Eltwise("linear", 1 / float(np.float32(post.alpha)))
    if post.beta or not stored:
        yield dnnl.Eltwise("round")
    if post.beta:
        yield dnnl.Eltwise("linear", 1.0, float(post.beta))
    if not stored:
        yield dnnl.Eltwise("clip", 0.0, 255.0)


def split_bias(posts: tuple[Post, ...], channel: int) -> tuple[View | None, tuple[Post, ...]]:
    """A first `add` whose operand varies along the dimension `channel` only, with stride 1, as a bias (that dimension alone); and the rest."""
    if posts and posts[0].kind == "add" and posts[0].operand:
        view = broadcast(posts[0].operand)
        n = view.shape[channel]
        if n > 1 and n == max(view.shape) and sum(m > 1 for m in view.shape) == 1 and view.strides[channel] == 1:
            return View(view.buffer, (n,), (1,), view.offset), posts[1:]
    return None, posts


def like(view: View, result: View) -> View:
    """An operand of a convolution's post-op, with the memory order of the result where extent-1 dimensions leave the choice."""
    order = sorted(range(len(result.shape)), key=lambda d: -result.strides[d])
    strides = permuted_strides(view.shape, order)
    return replace(view, strides=strides) if agree(view.shape, view.strides, strides) else view
