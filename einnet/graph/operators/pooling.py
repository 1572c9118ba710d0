"""Pooling over windows and over all positions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

from einnet.expr.index import Index, var
from einnet.expr.nodes import INF, Body, Call, Const, Iter, Read, Scope, make_div, make_mul
from einnet.graph.operators.builders import at, divided, spatial_names, tap_names
from einnet.graph.operators.op import Function, Op, Result, Unsupported
from einnet.graph.operators.reduction import over, reducer
from einnet.graph.operators.window import Window, window


def pool_window(op: Op) -> Window:
    kernel = op.integers("kernel_shape") or ()
    return window(op, kernel, op.input(0).shape[2:], op.out.shape[2:])


def places(win: Window) -> tuple[Index, ...]:
    rank = len(win.kernel)
    return tuple(win.position(k, spatial_names(rank)[k], tap_names(rank)[k]) for k in range(rank))


def windows(op: Op, win: Window) -> tuple[tuple[Iter, ...], tuple[Iter, ...]]:
    """Loops n, c, space and sums over the taps."""
    rank = len(win.kernel)
    loops = tuple(Iter(name, 0, n) for name, n in zip(("n", "c", *spatial_names(rank)), op.out.shape))
    return loops, tuple(Iter(name, 0, n) for name, n in zip(tap_names(rank), win.kernel))


def max_pool(op: Op) -> Result:
    """max over the taps; outside the input there is -inf."""
    win = pool_window(op)
    loops, taps = windows(op, win)
    return Scope(loops, taps, Read(op.input(0).tensor, (var("n"), var("c"), *places(win)), -INF), "max")


def tap_counts(win: Window, padded: bool) -> list[list[int]]:
    """Per dimension and output position: how many taps fall on the input, or on the padded input."""
    counts = []
    for k, n in enumerate(win.source):
        low, high = (-win.before[k], n + win.after[k]) if padded else (0, n)
        starts = (o * win.strides[k] - win.before[k] for o in range(win.target[k]))
        counts.append([taps_below(win, k, high - s) - taps_below(win, k, low - s) for s in starts])
    return counts


def taps_below(win: Window, axis: int, distance: int) -> int:
    """How many taps lie less than so far behind the first."""
    return min(max(-(-distance // win.dilations[axis]), 0), win.kernel[axis])


def average_pool(op: Op) -> Result:
    """Σ over the taps, divided by how many of them fall on the input (with count_include_pad: on the padded input)."""
    win = pool_window(op)
    loops, taps = windows(op, win)
    total = op.step(Scope(loops, taps, Read(op.input(0).tensor, (var("n"), var("c"), *places(win)))), "sum")
    padded = bool(op.integer("count_include_pad", 0))
    sizes = set(map(prod, product(*map(set, tap_counts(win, padded)))))
    if len(sizes) == 1:
        return Scope(loops, (), divided(at(total, loops), sizes.pop()))
    low = win.before if padded else (0,) * len(win.kernel)
    high = win.after if padded else (0,) * len(win.kernel)
    box = tuple(Iter(i.name, -a, n + b) for i, n, a, b in zip(loops[2:], win.source, low, high))
    ones = Scope(box, (), Const(Fraction(1)))
    counts = op.step(Scope(loops[2:], taps, Read(ones, places(win))), "count")
    return Scope(loops, (), make_div(at(total, loops), at(counts, loops[2:])))


def lp_pool(op: Op) -> Result:
    """(Σ |x|**p) ** (1/p) over the taps."""
    win = pool_window(op)
    loops, taps = windows(op, win)
    order = op.integer("p", 2)
    x: Body = Read(op.input(0).tensor, (var("n"), var("c"), *places(win)))
    total = op.step(Scope(loops, taps, power(x, order)), "sum")
    return Scope(loops, (), inverse_power(at(total, loops), order))


def power(x: Body, order: int) -> Body:
    """|x| ** order."""
    if order == 2:
        return make_mul((x, x))
    size = Call("abs", (x,))
    return size if order == 1 else Call("pow", (size, Const(Fraction(order))))


def inverse_power(x: Body, order: int) -> Body:
    if order == 1:
        return x
    return Call("sqrt", (x,)) if order == 2 else Call("pow", (x, Const(Fraction(1, order))))


def global_lp_pool(op: Op) -> Result:
    shape = op.input(0).shape
    red = over(shape, range(2, len(shape)))
    order = op.integer("p", 2)
    total = op.step(red.scope(power(at(op.input(0).tensor, red.full), order)), "sum")
    return Scope(red.loops, (), inverse_power(at(total, red.loops), order))


def over_space(function: Function) -> Function:
    """A reduction over all dimensions from the third on."""

    def pool(op: Op) -> Result:
        rank = len(op.input(0).shape)
        if rank < 3:
            return Unsupported("pooling without spatial dimensions")
        return function(replace(op, attributes={"axes": tuple(range(2, rank))}))

    return pool


POOLING: dict[str, Function] = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "GlobalMaxPool": over_space(reducer("max")),
    "GlobalAveragePool": over_space(reducer(after=divided)),
    "GlobalLpPool": global_lp_pool,
}
