"""Forms that many operators share: iterators of a shape, broadcasting, contractions, reshapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

from einnet.expr.index import ZERO, Index, simplify, var
from einnet.expr.nodes import Body, Const, Iter, Read, Scope, Tensor, make_add, make_div, make_mul, negate, read
from einnet.graph.operators.op import Op, Operand

IN_ROW = 16
"""Operands that are told one inside the other; more are halved, so that an expression of very many is not nested as deep."""

_NAMES = {0: "", 1: "n", 2: "mn", 3: "bmn", 4: "nchw", 5: "ncdhw"}
SPATIAL = {1: "w", 2: "hw", 3: "dhw"}
TAPS = {1: "s", 2: "rs", 3: "qrs"}


def spatial_names(rank: int) -> tuple[str, ...]:
    """Names of spatial loops, outermost first."""
    return tuple(SPATIAL.get(rank, "")) or tuple(f"x{k}" for k in range(rank))


def tap_names(rank: int) -> tuple[str, ...]:
    """Names of window iterators, outermost first."""
    return tuple(TAPS.get(rank, "")) or tuple(f"r{k}" for k in range(rank))


def loops_of(shape: Sequence[int]) -> tuple[Iter, ...]:
    """Iterators over the box of a shape, with the usual letters of its rank."""
    names = _NAMES.get(len(shape)) or tuple(f"i{k}" for k in range(len(shape)))
    return tuple(Iter(name, 0, n) for name, n in zip(names, shape))


def variables(iters: Sequence[Iter]) -> tuple[Index, ...]:
    return tuple(var(i.name) for i in iters)


def broadcast_index(shape: Sequence[int], loops: Sequence[Iter]) -> tuple[Index, ...]:
    """Where a tensor of this shape is read at the loops of the result: aligned at the last dimension, extent 1 does not vary."""
    tail = loops[len(loops) - len(shape) :]
    return tuple(ZERO if n != i.extent else var(i.name) for n, i in zip(shape, tail))


def broadcast(op: Op, position: int, loops: Sequence[Iter]) -> Body:
    """An operand under multidirectional broadcasting."""
    return op.read(position, broadcast_index(op.input(position).shape, loops))


def pointwise(op: Op, build: Callable[..., Body], count: int | None = None) -> Scope:
    """Apply `build` to the broadcast operands (the first `count`, or all), point by point."""
    loops = loops_of(op.out.shape)
    count = len(op.inputs) if count is None else count
    return Scope(loops, (), build(*(broadcast(op, n, loops) for n in range(count))))


def at(tensor: Tensor, loops: Sequence[Iter]) -> Read:
    """The tensor read at the loops themselves."""
    return Read(tensor, variables(loops))


def constant(value: int | float | Fraction) -> Const:
    return Const(Fraction(value))


def subtract(left: Body, right: Body) -> Body:
    return make_add((left, negate(right)))


def scaled(body: Body, factor: Fraction) -> Body:
    """factor * body."""
    return body if factor == 1 else make_mul((Const(factor), body))


def divided(body: Body, count: int) -> Body:
    return body if count == 1 else make_div(body, constant(count))


def channel_read(tensor: Tensor, loops: Sequence[Iter], position: int) -> Read:
    """A one-dimensional tensor read at one of the loops."""
    return read(tensor, loops[position].name)


def with_channel_bias(op: Op, scope: Scope, bias: Operand | None, hint: str) -> Scope:
    """scope, plus a bias along dimension 1 in a scope of its own."""
    if bias is None:
        return scope
    base = op.step(scope, hint)
    return Scope(scope.loops, (), make_add((at(base, scope.loops), channel_read(bias.tensor, scope.loops, 1))))


def flat_index(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major address of an index."""
    total = ZERO
    for e, n in zip(index, shape):
        total = total * n + e
    return total


def unflatten(flat: Index, shape: Sequence[int], loops: Sequence[Iter]) -> tuple[Index, ...]:
    """The index of a row-major address, in the simplest form that holds over the loops."""
    ranges = {i.name: (i.lo, i.hi) for i in loops}
    found = []
    for k, n in enumerate(shape):
        part = flat // prod(shape[k + 1 :])
        found.append(simplify(part % n if k else part, ranges))
    return tuple(found)


def reshape_index(source: Sequence[int], loops: Sequence[Iter]) -> tuple[Index, ...]:
    """Where a tensor of shape `source` is read by its reshape to the loops: dimension groups of equal size are treated apart."""
    target = tuple(i.extent for i in loops)
    index: list[Index] = []
    a = b = 0
    while a < len(source) or b < len(target):
        first_a, first_b = a, b
        have, want = 1, 1
        while True:
            if a < len(source) and (have < want or a == first_a):
                have *= source[a]
                a += 1
            elif b < len(target) and (want < have or b == first_b):
                want *= target[b]
                b += 1
            else:
                break
        if have != want:
            raise ValueError(f"{list(source)} does not reshape to {list(target)}")
        group = loops[first_b:b]
        flat = flat_index(variables(group), target[first_b:b])
        index.extend(unflatten(flat, source[first_a:a], group))
    return tuple(index)


def reshaped(tensor: Tensor, shape: Sequence[int]) -> Scope:
    """The tensor in another shape, same row-major order."""
    loops = loops_of(shape)
    return Scope(loops, (), Read(tensor, reshape_index(tensor.shape, loops)))
