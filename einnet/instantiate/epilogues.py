"""Epilogues: a pointwise scope around a vendor operator, as operations that the vendor kernel applies to its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from einnet.expr.index import in_range, var
from einnet.expr.nodes import Add, Body, Call, Const, Div, Mul, Number, Read, Scope, Tensor, indices, is_weight, reads, used_names
from einnet.instantiate.address import address_of, flat_index, single
from einnet.instantiate.fused_functions import fused
from einnet.instantiate.kernels import Post, View, dense_strides
from einnet.instantiate.kernels.posts import U8

ELEMENT_FUNCTIONS = ("relu", "tanh", "sigmoid")
NONE = Fraction(0)
"""A number that an operation does not have."""
BufferOf = Callable[[Tensor | Scope], str]


def absorb(scope: Scope, vendor: Scope, result: View, buffer_of: BufferOf, whole: bool = False) -> tuple[Post, ...] | None:
    """The posts that turn the vendor scope's result into `scope`, or None where the vendor cannot.

    With `whole` the last of them may round to bytes. `result` is the vendor kernel's result view over the dense box of its scope; `buffer_of` names
    the buffer of a post's operand.
    """
    found = {r for r in reads(scope.body) if r.base == vendor}
    if scope.sums or len(found) != 1:
        return None
    (read,) = found
    if not _in_place(scope, vendor, read):
        return None
    steps = (_quantised(scope.body, read) if whole else None) or _chain(scope.body, read)
    if steps is None:
        return None
    windows: list[tuple[Read, View] | None] = []
    for _, operand, _, _ in steps:
        view = operand_view(scope, operand, result, "") if operand else None
        if operand and not view:
            operand = repeated(scope, operand, vendor, result)
            view = operand_view(scope, operand, result, "") if operand else None
            if not view:
                return None
        windows.append((operand, view) if operand and view else None)
    bound = [replace(w[1], buffer=buffer_of(w[0].base)) if w else None for w in windows]
    return tuple(Post(kind, view, alpha, beta) for (kind, _, alpha, beta), view in zip(steps, bound))


def _in_place(scope: Scope, vendor: Scope, read: Read) -> bool:
    """Each element of the vendor's dense box is read where it stands."""
    here = flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges)
    inside = all(in_range(ix, box, scope.ranges) for ix, box in zip(read.index, vendor.box))
    return inside and _size(scope) == _size(vendor) and flat_index(read.index, vendor.box, scope.ranges) == here


def _size(scope: Scope) -> int:
    size = 1
    for i in scope.loops:
        size *= i.extent
    return size


_Step = tuple[str, "Read | None", Number, Number]


def _quantised(body: Body, read: Read) -> list[_Step] | None:
    """The operations where the last one rounds to integers from 0 to 255: min(max(round(y/scale) + zero, 0), 255)."""
    match body:
        case Call("min", (Call("max", (Add((Call("round", (y,)), Const(zero))), Const(low))), Const(high))):
            pass
        case Call("min", (Call("max", (Call("round", (y,)), Const(low))), Const(high))):
            zero = Fraction(0)
        case _:
            return None
    inner, scale = (y.num, y.den.value) if isinstance(y, Div) and isinstance(y.den, Const) else (y, Fraction(1))
    steps = _chain(inner, read)
    told = (low, high) == (0, 255) and scale > 0 and float(zero).is_integer()
    return [*steps, (U8, None, scale, zero)] if told and steps is not None else None


def _chain(body: Body, read: Read) -> list[_Step] | None:
    """The operations between the read and the whole body, innermost first."""
    if body == read:
        return []
    match body:
        case Add(args) | Mul(args):
            inner = [a for a in args if read in reads(a)]
            if len(inner) != 1:
                return _function(body, read)
            steps = _chain(inner[0], read)
            if steps is None:
                return None
            for a in args:
                if a is inner[0]:
                    continue
                if isinstance(a, Read) and a.fill == 0:
                    steps.append(("add" if isinstance(body, Add) else "mul", a, NONE, NONE))
                elif isinstance(a, Const):
                    steps.append(("linear", None, Fraction(1), a.value) if isinstance(body, Add) else ("linear", None, a.value, NONE))
                else:
                    return None
            return steps
        case Call(name, (arg,)) if name in ELEMENT_FUNCTIONS:
            steps = _chain(arg, read)
            return None if steps is None else [*steps, (name, None, NONE, NONE)]
        case Call("min", (Call("max", (arg, Const(lo))), Const(hi))) if read in reads(arg):
            steps = _chain(arg, read)
            return None if steps is None else [*steps, ("clip", None, lo, hi)]
    return _function(body, read)


def _function(body: Body, read: Read) -> list[_Step] | None:
    """A function of what is made of the read, such as x·sigmoid(x), as the last operation."""
    found = fused(body, read)
    if found is None:
        return None
    part, (kind, alpha, beta) = found
    steps = _chain(part, read)
    return None if steps is None else [*steps, (kind, None, alpha.value, beta.value)]


def operand_view(scope: Scope, operand: Read, result: View, buffer: str) -> View | None:
    """The operand's window over the dimensions of the result view, extent 1 where it does not vary; None if there is no such window.

    Both are walked by the loops of `scope`. A result dimension is made of the loops whose digits of the address it covers; the
    operand has a stride there if its own strides are in one proportion to the result's over all of them.
    """
    found = address_of(operand, scope.ranges)
    if isinstance(found, str) or not single(operand.base):
        return None
    loops = [i for i in scope.loops if i.extent > 1]
    own = dense_strides(scope.shape)
    stride = {i.name: s for i, s in zip(scope.loops, own)}
    shape: list[int] = []
    strides: list[int] = []
    for extent, step in zip(result.shape, result.strides):
        if extent == 1:
            shape.append(1)
            strides.append(1)
            continue
        covering = [i for i in loops if stride[i.name] < step * extent and step < stride[i.name] * i.extent]
        if not _nested([(stride[i.name], i.extent) for i in covering], (step, extent)):
            return None
        ratios = {Fraction(found.strides.get(i.name, 0), stride[i.name]) for i in covering}
        if len(ratios) != 1:
            return None
        q = ratios.pop() * step
        if q.denominator != 1:
            return None
        shape.append(extent if q else 1)
        strides.append(int(q) if q else 1)
    return View(buffer, tuple(shape), tuple(strides), found.offset)


def repeated(scope: Scope, operand: Read, vendor: Scope, result: View) -> Read | None:
    """A constant operand, repeated along the dimensions of the result in which it varies with a part of the loops alone.

    That is worth a constant as large as what the vendor kernel has of weights, and no larger one. None where that would not do.
    """
    if not is_weight(operand) or operand.fill or not single(operand.base):
        return None
    stride = dict(zip((i.name for i in scope.loops), dense_strides(scope.shape)))
    used: set[str] = set()
    for extent, step in zip(result.shape, result.strides):
        covering = {i.name for i in scope.loops if i.extent > 1 and step <= stride[i.name] and stride[i.name] * i.extent <= step * extent}
        used |= covering if covering & used_names(operand) else set()
    kept = tuple(i for i in scope.loops if i.name in used | used_names(operand))
    weights = sum(prod(r.base.shape) for r in reads(vendor.body) if is_weight(r))
    return Read(Scope(kept, (), operand), indices(kept)) if prod(i.extent for i in kept) <= weights else None


def _nested(loops: Sequence[tuple[int, int]], dimension: tuple[int, int]) -> bool:
    """Every loop lies within the dimension's digits, or the dimension lies within the only loop."""
    step, extent = dimension
    if all(step <= s and s * n <= step * extent for s, n in loops):
        return bool(loops)
    return len(loops) == 1 and loops[0][0] <= step and step * extent <= loops[0][0] * loops[0][1]
