"""Data movement: every element of the result is one element of the operand."""

from __future__ import annotations

from einnet.expr.index import Index, simplify, var
from einnet.expr.nodes import Iter, Read, Scope
from einnet.graph.operators.builders import broadcast, loops_of, reshaped, variables
from einnet.graph.operators.op import Function, Op, Result, Unsupported


def transpose(op: Op) -> Result:
    """Y[i] = X[i permuted]."""
    x = op.input(0).tensor
    order = op.integers("perm") or tuple(reversed(range(len(x.shape))))
    loops = loops_of(op.out.shape)
    index: list[Index] = [Index()] * len(order)
    for loop, source in zip(loops, order):
        index[source] = var(loop.name)
    return Scope(loops, (), Read(x, tuple(index)))


def reshape(op: Op) -> Result:
    """Another shape with the same row-major order; the shape itself was inferred."""
    return reshaped(op.input(0).tensor, op.out.shape)


def expand(op: Op) -> Result:
    """Broadcast to a larger shape."""
    loops = loops_of(op.out.shape)
    return Scope(loops, (), broadcast(op, 0, loops))


def tile(op: Op) -> Result:
    """Y[i] = X[i % n]."""
    x = op.input(0).tensor
    loops = loops_of(op.out.shape)
    return Scope(loops, (), Read(x, reduced(tuple(var(i.name) % n for i, n in zip(loops, x.shape)), loops)))


def reduced(index: tuple[Index, ...], loops: tuple[Iter, ...]) -> tuple[Index, ...]:
    """Index functions in the simplest form that holds over the loops."""
    ranges = {i.name: i.range for i in loops}
    return tuple(simplify(e, ranges) for e in index)


def depth_to_space(op: Op) -> Result:
    """Blocks of channels become blocks of pixels; the block is outside (DCR) or inside (CRD) the channel."""
    x, b = op.input(0).tensor, op.integer("blocksize", 1)
    mode = op.string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        return Unsupported(f"mode {mode!r}")
    loops = loops_of(op.out.shape)
    n, c, h, w = variables(loops)
    block = h % b * b + w % b
    channel = block * op.out.shape[1] + c if mode == "DCR" else c * (b * b) + block
    return Scope(loops, (), Read(x, reduced((n, channel, h // b, w // b), loops)))


def space_to_depth(op: Op) -> Result:
    """Blocks of pixels become blocks of channels."""
    x, b = op.input(0).tensor, op.integer("blocksize", 1)
    loops = loops_of(op.out.shape)
    n, c, h, w = variables(loops)
    block = c // x.shape[1]
    return Scope(loops, (), Read(x, reduced((n, c % x.shape[1], h * b + block // b, w * b + block % b), loops)))


MOVEMENT: dict[str, Function] = {
    "Transpose": transpose,
    "Reshape": reshape,
    "Flatten": reshape,
    "Squeeze": reshape,
    "Unsqueeze": reshape,
    "Expand": expand,
    "Tile": tile,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
