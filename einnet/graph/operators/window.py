"""Sliding windows: the attributes that convolutions and pooling share, made explicit."""

from __future__ import annotations

from dataclasses import dataclass

from einnet.expr.index import Index, var
from einnet.graph.operators.op import Inexpressible, Op


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial dimension: taps, stride, dilation, padding before and after, extent of the input and of the output."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]

    def position(self, axis: int, loop: str, tap: str) -> Index:
        """Where output `loop` and `tap` read the input."""
        return var(loop) * self.strides[axis] + var(tap) * self.dilations[axis] - self.before[axis]


def per_axis(op: Op, name: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute with one integer for each spatial dimension."""
    values = op.integers(name) or (default,) * rank
    if len(values) != rank:
        raise Inexpressible(f"attribute {name} has {len(values)} values for {rank} spatial dimensions")
    return values


def window(op: Op, kernel: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]) -> Window:
    """Strides, dilations and padding of a convolution or pooling node; `auto_pad` is resolved.

    The output's extent is taken from shape inference (it depends on ceil_mode); the padding after is what the node states, also where
    the last window hangs over.
    """
    rank = len(kernel)
    strides = per_axis(op, "strides", rank, 1)
    dilations = per_axis(op, "dilations", rank, 1)
    if min((*strides, *dilations), default=1) < 1:
        raise Inexpressible(f"strides {list(strides)} and dilations {list(dilations)}")
    mode = op.string("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = op.integers("pads") or (0,) * (2 * rank)
        before, after = pads[:rank], pads[rank:]
    elif mode == "VALID":
        before = after = (0,) * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, s, k, d in zip(source, strides, kernel, dilations)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        before, after = (less, more) if mode == "SAME_UPPER" else (more, less)
    else:
        raise Inexpressible(f"auto_pad {mode!r} is not known")
    return Window(kernel, strides, dilations, before, after, source, target)
