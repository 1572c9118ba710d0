"""Parts of tensors and their opposite: Slice, Split, Concat, Pad, Trilu."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isnan

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Cond, Const, Number, Read, Scope, Select, Tensor
from einnet.graph.operators.builders import IN_ROW, loops_of, variables
from einnet.graph.operators.op import Function, Inexpressible, Op, Result, Unsupported, number


def slices(op: Op) -> Result:
    """Y[i] = X[start + step·i]."""
    x = op.input(0).tensor
    starts = op.integers_of(1, "starts") or ()
    ends = op.integers_of(2, "ends") or ()
    axes = op.integers_of(3, "axes") or tuple(range(len(starts)))
    steps = op.integers_of(4, "steps") or (1,) * len(starts)
    loops = loops_of(op.out.shape)
    index = list(variables(loops))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= len(x.shape)
        first = slice(start, end, step).indices(x.shape[axis])[0]
        index[axis] = var(loops[axis].name) * step + first
    return Scope(loops, (), Read(x, tuple(index)))


def split(op: Op) -> Result:
    """Each output is a part along the axis, one after the other."""
    x = op.input(0).tensor
    axis = op.integer("axis", 0) % len(x.shape)
    results: list[Scope] = []
    offset = 0
    for shape in op.shapes:
        if shape is None:
            return Unsupported("a part of unknown size")
        loops = loops_of(shape)
        index = list(variables(loops))
        index[axis] = index[axis] + offset
        offset += shape[axis]
        results.append(Scope(loops, (), Read(x, tuple(index))))
    return tuple(results)


def at_place(place: Index, parts: Sequence[tuple[int, Body]]) -> Body:
    """The part in which a place is, of parts with the places where they begin."""
    if len(parts) > IN_ROW:
        middle = len(parts) // 2
        return Select((Cond(place - parts[middle][0]),), at_place(place, parts[middle:]), at_place(place, parts[:middle]))
    body = parts[0][1]
    for start, read in parts[1:]:
        body = Select((Cond(place - start),), read, body)
    return body


def concat(op: Op) -> Result:
    """The operands one after the other along the axis: conditions on the loop choose the operand."""
    loops = loops_of(op.out.shape)
    axis = op.integer("axis", 1) % len(loops)
    parts: list[tuple[int, Body]] = []
    offset = 0
    for n in range(len(op.inputs)):
        extent = op.input(n).shape[axis]
        if extent:
            index = list(variables(loops))
            index[axis] = index[axis] - offset
            parts.append((offset, op.read(n, index)))
        offset += extent
    return Scope(loops, (), at_place(var(loops[axis].name), parts))


def pads_of(op: Op, rank: int) -> tuple[list[int], list[int]]:
    """Padding before and after, per dimension."""
    pads = op.integers_of(1, "pads") or op.integers("paddings") or (0,) * (2 * rank)
    axes = tuple(a % rank for a in op.integers_of(3, "axes") or range(rank))
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def pad_value(op: Op) -> Number:
    """The constant of a padding; infinities are fills too, nan is not."""
    value = float(op.constant(2).reshape(-1)[0]) if op.given(2) else op.attributes.get("value", 0.0)
    assert isinstance(value, float)
    if isnan(value):
        raise Inexpressible("padding with nan")
    return number(value)


def pad(op: Op) -> Result:
    """Y[i] = X[i - before]; outside the operand there is the constant, the nearest element, the mirror image or the next period."""
    x = op.input(0).tensor
    mode = op.string("mode", "constant")
    before, after = pads_of(op, len(x.shape))
    if mode == "constant":
        loops = loops_of(op.out.shape)
        return Scope(loops, (), Read(x, tuple(e - b for e, b in zip(variables(loops), before)), pad_value(op)))
    if mode not in ("edge", "reflect", "wrap"):
        return Unsupported(f"mode {mode!r}")
    moved = [axis for axis in range(len(x.shape)) if before[axis] or after[axis]]
    if not moved:
        loops = loops_of(x.shape)
        return Scope(loops, (), Read(x, variables(loops)))
    tensor = x
    for axis in moved[:-1]:
        tensor = op.step(pad_axis(tensor, axis, before[axis], after[axis], mode), f"pad{axis}")
    return pad_axis(tensor, moved[-1], before[moved[-1]], after[moved[-1]], mode)


def pad_axis(x: Tensor, axis: int, before: int, after: int, mode: str) -> Scope:
    """One dimension padded with elements of the operand, of what is left of it where a side is cut."""
    n = x.shape[axis]
    cut = max(-before, 0)
    left = n - cut - max(-after, 0)
    if left < 1:
        raise Inexpressible("padding of nothing")
    if mode == "reflect" and max(before, after) >= left:
        raise Inexpressible("a reflection reaches beyond the whole operand")
    shape = tuple(m + before + after if k == axis else m for k, m in enumerate(x.shape))
    loops = loops_of(shape)
    place = variables(loops)[axis] - before

    def at_place(e: Index) -> Body:
        return Read(x, tuple(e if k == axis else v for k, v in enumerate(variables(loops))))

    if mode == "wrap":
        return Scope(loops, (), at_place((place - cut) % left + cut))
    low, high = (Index(), Index((), n - 1)) if mode == "edge" else (-place, 2 * (n - 1) - place)
    body = at_place(place)
    if before > 0:
        body = Select((Cond(place),), body, at_place(low))
    if after > 0:
        body = Select((Cond(place - n),), at_place(high), body)
    return Scope(loops, (), body)


def trilu(op: Op) -> Result:
    """The upper or lower triangle of the last two dimensions, 0 elsewhere."""
    x = op.input(0).tensor
    offset = int(op.constant(1).reshape(-1)[0]) if op.given(1) else 0
    loops = loops_of(x.shape)
    above = var(loops[-1].name) - var(loops[-2].name) - offset
    keep = Cond(above if op.integer("upper", 1) else -above)
    return Scope(loops, (), Select((keep,), Read(x, variables(loops)), Const(Fraction(0))))


SLICING: dict[str, Function] = {
    "Slice": slices,
    "Split": split,
    "Concat": concat,
    "Pad": pad,
    "Trilu": trilu,
}
