"""Quantised tensors: integers with a scale and a zero point. Rounding is half to even, what is beyond the type's ends is its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import ZERO, Index, var
from einnet.expr.nodes import Body, Call, Const, Iter, Read, Scope, Tensor, make_add, make_div, make_mul, negate
from einnet.graph.operators.builders import at, constant, loops_of, subtract, variables
from einnet.graph.operators.contraction import matmul
from einnet.graph.operators.convolution import conv
from einnet.graph.operators.op import ENDS, EXACT_INTEGERS, Function, Inexpressible, Op, Operand, Result, Unsupported

Integers = NDArray[np.int64]


def parameter(op: Op, position: int, loops: Sequence[Iter], axis: int) -> Body:
    """A scale or zero point at the loops of the tensor that it belongs to: one for all, for each place along an axis, or for each block of these."""
    given = op.input(position)
    if given.tensor.shape in ((), (1,)):
        return op.read(position, (ZERO,) * len(given.shape))
    if len(given.shape) == 1:
        return op.read(position, (var(loops[axis].name),))
    block = op.integer("block_size", 0)
    if not block or len(given.shape) != len(loops):
        raise Inexpressible(f"a scale of shape {list(given.shape)}")
    index: list[Index] = list(variables(loops))
    index[axis] = index[axis] // block
    return op.read(position, index)


def without(op: Op, x: Body, position: int, loops: Sequence[Iter], axis: int) -> Body:
    """x less its zero point."""
    zero = parameter(op, position, loops, axis) if op.given(position) else constant(0)
    return x if zero == constant(0) else subtract(x, zero)


def saturated(x: Body, zero: Body, ends: tuple[int, int]) -> Body:
    """The integer nearest to x, moved by the zero point, between the ends of the type."""
    whole: Body = Call("round", (x,))
    moved = whole if zero == constant(0) else make_add((whole, zero))
    return Call("min", (Call("max", (moved, constant(ends[0]))), constant(ends[1])))


def ends_of(op: Op) -> tuple[int, int]:
    """The least and the greatest number of the result's type."""
    if op.element not in ENDS:
        raise Inexpressible(f"integers of type {op.element}")
    return ENDS[op.element]


def quantize(op: Op) -> Result:
    """round(x/scale) + zero, saturated."""
    loops, axis = loops_of(op.out.shape), op.integer("axis", 1)
    if op.input(0).element not in ("f32", *ENDS):
        return Unsupported(f"it reads a tensor of type {op.input(0).element}")
    zero = parameter(op, 2, loops, axis) if op.given(2) else constant(0)
    x = make_div(op.read(0, variables(loops)), parameter(op, 1, loops, axis))
    return Scope(loops, (), saturated(x, zero, ends_of(op)))


def dequantize(op: Op) -> Result:
    """(x - zero)·scale."""
    loops, axis = loops_of(op.out.shape), op.integer("axis", 1)
    if not op.input(0).small:
        return Unsupported(f"it reads a tensor of type {op.input(0).element}")
    return Scope(loops, (), make_mul((without(op, op.read(0, variables(loops)), 2, loops, axis), parameter(op, 1, loops, axis))))


def dynamic(op: Op) -> Result:
    """Scale and zero point by the least and the greatest element and 0, for integers from 0 to 255; a scale of 1 where all is 0."""
    x = op.input(0).tensor
    places, ends = loops_of(x.shape), ENDS["u8"]
    element = Read(x, variables(places))
    low, high = (
        Call(name, (at(op.step(Scope((), places, element, name), name), ()), constant(0))) if places else Call(name, (element, constant(0)))
        for name in ("min", "max")
    )
    reach = op.step(Scope((), (), subtract(high, low)), "range")
    scale = op.step(Scope((), (), Call("choose", (at(reach, ()), make_div(at(reach, ()), constant(ends[1])), constant(1)))), "scale")
    zero = op.step(Scope((), (), saturated(make_div(negate(low), at(scale, ())), constant(0), ends)), "zero")
    y = Scope(places, (), saturated(make_div(element, at(scale, ())), at(zero, ()), ends))
    return y, Scope((), (), at(scale, ())), Scope((), (), at(zero, ()))


# sums of products of integers


def known(op: Op, position: int, zero: int, axis: int) -> Integers | None:
    """An operand less its zero point where both are known: per tensor, or along an axis."""
    value = op.input(position).value
    moved = op.input(zero).value if op.given(zero) else np.zeros((), np.int64)
    if value is None or moved is None:
        return None
    shape = [1] * value.ndim
    if moved.size > 1:
        shape[axis] = moved.size
    return np.asarray(value.astype(np.int64) - moved.astype(np.int64).reshape(shape if value.ndim else ()))


def spans(op: Op, position: int, zero: int) -> tuple[tuple[int, int], ...]:
    """How far an operand that is computed may be below and above its zero point: the two extremes where that is another one each run."""
    low, high = ENDS[op.input(position).element]
    value = op.input(zero).value if op.given(zero) else np.zeros(1, np.int64)
    if value is None or value.size != 1:
        return (0, high - low), (high - low, 0)
    return ((int(value.reshape(-1)[0]) - low, high - int(value.reshape(-1)[0])),)


def greatest(weights: Integers, axes: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> int:
    """A bound of the sums over some axes of weights times numbers within one of the spans, and of every part of such a sum."""
    positive, negative = np.maximum(weights, 0).sum(axes), np.maximum(-weights, 0).sum(axes)
    ends = [(above * p + below * n).max(initial=0) for below, above in spans for p, n in ((positive, negative), (negative, positive))]
    return int(max(ends))


def centred(op: Op, position: int, zero: int, axis: int) -> Operand:
    """An operand less its zero point as a tensor of its own: outside, where a convolution pads, it is 0."""
    value = known(op, position, zero, axis)
    if value is not None:
        return Operand(op.weight(value, f"centred{position}"), value.astype(np.float32))
    given = op.input(position)
    if not given.small:
        raise Inexpressible(f"input {position} has integers that float32 has not")
    loops = loops_of(given.shape)
    return Operand(op.step(Scope(loops, (), without(op, op.read(position, variables(loops)), zero, loops, axis)), f"centred{position}"))


def product(op: Op, function: Function, positions: tuple[int, int], zeros: tuple[int, int], bias: int | None = None) -> Tensor:
    """The sums of products of two operands without their zero points. Raises Inexpressible where one may be beyond what float32 counts."""
    (a, b), convolution = positions, function is conv
    rank = len(op.input(b).shape)
    summed = (tuple(range(1, rank)) if convolution else (max(rank - 2, 0),)), (len(op.input(a).shape) - 1,)
    left, right = known(op, a, zeros[0], 0 if convolution else -2), known(op, b, zeros[1], 0 if convolution else -1)
    if right is not None:
        most = greatest(right, summed[0], spans(op, a, zeros[0]))
    elif left is not None and not convolution:
        most = greatest(left, summed[1], spans(op, b, zeros[1]))
    else:
        count = int(np.prod([op.input(b).shape[k] for k in summed[0]], dtype=np.int64))
        most = count * max(map(max, spans(op, a, zeros[0]))) * max(map(max, spans(op, b, zeros[1])))
    operands: list[Operand | None] = [centred(op, a, zeros[0], 0 if convolution else -2), centred(op, b, zeros[1], 0 if convolution else -1)]
    if bias is not None and op.given(bias):
        added = op.constant(bias).astype(np.int64)
        most += int(np.abs(added).max(initial=0))
        operands.append(Operand(op.weight(added, "bias"), added.astype(np.float32)))
    if most > EXACT_INTEGERS:
        raise Inexpressible(f"its sums of integers may reach {most}, and float32 counts to {EXACT_INTEGERS}")
    out = Tensor(op.fresh(f"{op.out.name}_sum"), op.out.shape)
    result = function(Op(op.op_type, op.version, tuple(operands), (out,), op.attributes, op.fresh, (out.shape,), "f32", op.chain, op.weights))
    if not isinstance(result, Scope):
        raise Inexpressible(result.why if isinstance(result, Unsupported) else "it has no single result")
    op.chain.append((out, result))
    return out


def integer(function: Function) -> Function:
    """Sums of products of integers, given out as such."""

    def apply(op: Op) -> Result:
        loops = loops_of(op.out.shape)
        return Scope(loops, (), at(product(op, function, (0, 1), (2, 3)), loops))

    return apply


def scaled_back(op: Op, total: Tensor, axis: int, scales: tuple[int, int, int], zero: int) -> Scope:
    """round(sum·(scale·scale/scale)) + zero, saturated: the scales come first, in single precision where they are known."""
    loops = loops_of(op.out.shape)
    values = [op.input(n).value for n in scales]
    factor: Body
    if all(v is not None and v.dtype == np.float32 for v in values):
        single = [np.asarray(v, np.float32).reshape(-1) for v in values]
        ratio = single[0] * single[1] / single[2]
        factor = Const(Fraction(float(ratio[0]))) if ratio.size == 1 else Read(op.weight(ratio, "scale"), (var(loops[axis].name),))
    else:
        one, other, result = (parameter(op, n, loops, axis) for n in scales)
        factor = make_div(make_mul((one, other)), result)
    return Scope(loops, (), saturated(make_mul((at(total, loops), factor)), parameter(op, zero, loops, axis), ends_of(op)))


def between(function: Function, axis: int) -> Callable[[Op], Result]:
    """A product of quantised tensors, quantised."""

    def apply(op: Op) -> Result:
        total = product(op, function, (0, 3), (2, 5), bias=8)
        return scaled_back(op, total, axis, (1, 4, 6), 7)

    return apply


QUANTISED: dict[str, Function] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic,
    "MatMulInteger": integer(matmul),
    "ConvInteger": integer(conv),
    "QLinearMatMul": between(matmul, -1),
    "QLinearConv": between(conv, 1),
}
