"""Reductions over axes, softmax among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from einnet.expr.index import ZERO, Index, var
from einnet.expr.nodes import Body, Call, Cond, Const, Iter, Read, Scope, Select, Tensor, Val, make_add, make_div, make_mul
from einnet.graph.operators.builders import at, divided, loops_of, subtract, variables
from einnet.graph.operators.op import EXACT_INTEGERS, Function, Inexpressible, Op, Result, Unsupported


@dataclass(frozen=True, slots=True)
class Reduction:
    """The shape of a reduction: loops of the input, those that remain, and those that are reduced."""

    full: tuple[Iter, ...]
    axes: tuple[int, ...]
    keep: bool

    @property
    def sums(self) -> tuple[Iter, ...]:
        return tuple(self.full[a] for a in self.axes)

    @property
    def loops(self) -> tuple[Iter, ...]:
        """Loops of the result; a reduced dimension that is kept has extent 1."""
        return tuple(Iter(f"{i.name}'", 0, 1) if k in self.axes else i for k, i in enumerate(self.full) if self.keep or k not in self.axes)

    @property
    def count(self) -> int:
        return prod(i.extent for i in self.sums)

    def scope(self, body: Body, reduce: str = "sum") -> Scope:
        return Scope(self.loops, self.sums, body, reduce)

    def back(self, reduced: Tensor) -> Read:
        """The result of the reduction, read at the loops of the input."""
        index: list[Index] = [ZERO if k in self.axes else var(i.name) for k, i in enumerate(self.full) if self.keep or k not in self.axes]
        return Read(reduced, tuple(index))


def normalised(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(sorted({a % rank for a in axes})) if rank else ()


def over(shape: Sequence[int], axes: Sequence[int], keep: bool = True) -> Reduction:
    return Reduction(loops_of(shape), normalised(axes, len(shape)), keep)


Element = Callable[[Body], Body]

LEAST = Fraction(-(1 << 127))
"""Finite, and below nearly all float32."""


def reducer(reduce: str = "sum", before: Element | None = None, after: Callable[[Body, int], Body] | None = None) -> Function:
    """reduce of `before(x)`; `after(y, number of summands)` is a scope of its own."""

    def function(op: Op) -> Result:
        x = op.input(0).tensor
        axes = op.integers_of(1, "axes")
        if not axes:
            if op.integer("noop_with_empty_axes", 0):
                return Unsupported("noop_with_empty_axes without axes")
            axes = tuple(range(len(x.shape)))
        red = over(x.shape, axes, bool(op.integer("keepdims", 1)))
        read = at(x, red.full)
        result = red.scope(before(read) if before else read, reduce)
        if after is None:
            return result
        base = op.step(result, "reduced")
        return Scope(result.loops, (), after(at(base, result.loops), red.count))

    return function


def square(x: Body) -> Body:
    return make_mul((x, x))


def root(x: Body, _: int) -> Body:
    return Call("sqrt", (x,))


def logarithm(x: Body, _: int) -> Body:
    return Call("log", (x,))


def softmax_axes(op: Op, rank: int) -> tuple[int, ...]:
    """One axis from opset 13 on; before, all axes from the given one."""
    if op.version >= 13:
        return (op.integer("axis", -1) % rank,)
    axis = op.integer("axis", 1)
    if not -rank <= axis <= rank:
        raise Inexpressible(f"axis {axis} of {rank} dimensions")
    return tuple(range(axis if axis >= 0 else axis + rank, rank))


def stable_exponent(op: Op, x: Tensor, red: Reduction) -> Body:
    """x - max x, the argument of a stable exponential."""
    top = op.step(red.scope(at(x, red.full), "max"), "max")
    return subtract(at(x, red.full), red.back(top))


def softmax(op: Op) -> Result:
    """exp(x - max x) / Σ exp(x - max x)."""
    x = op.input(0).tensor
    red = over(x.shape, softmax_axes(op, len(x.shape)))
    power = op.step(Scope(red.full, (), Call("exp", (stable_exponent(op, x, red),))), "exp")
    total = op.step(red.scope(at(power, red.full)), "sum")
    return Scope(red.full, (), make_div(at(power, red.full), red.back(total)))


def log_softmax(op: Op) -> Result:
    """(x - max x) - log Σ exp(x - max x)."""
    x = op.input(0).tensor
    red = over(x.shape, softmax_axes(op, len(x.shape)))
    shifted = op.step(Scope(red.full, (), stable_exponent(op, x, red)), "shifted")
    total = op.step(red.scope(Call("exp", (at(shifted, red.full),))), "sum")
    return Scope(red.full, (), subtract(at(shifted, red.full), Call("log", (red.back(total),))))


def log_sum_exp(op: Op) -> Result:
    """log Σ exp(x - m) + m, where m is max x, and finite where that is infinite."""
    x = op.input(0).tensor
    axes = op.integers_of(1, "axes")
    if not axes and op.integer("noop_with_empty_axes", 0):
        return Unsupported("noop_with_empty_axes without axes")
    red = over(x.shape, axes or tuple(range(len(x.shape))), bool(op.integer("keepdims", 1)))
    most = op.step(red.scope(at(x, red.full), "max"), "max")
    top = op.step(Scope(red.loops, (), Call("min", (Call("max", (at(most, red.loops), Const(LEAST))), Const(-LEAST)))), "finite")
    total = op.step(red.scope(Call("exp", (subtract(at(x, red.full), red.back(top)),))), "sum")
    return Scope(red.loops, (), make_add((Call("log", (Read(total, variables(red.loops)),)), Read(top, variables(red.loops)))))


def place_of_best(reduce: str) -> Function:
    """The first place along an axis at which the greatest or the least element stands, or the last such place.

    min[k] (k where x[k] = best, n - 1 elsewhere), and max[k] (k where x[k] = best, 0 elsewhere). Where there is a NaN, that is the best.
    """

    def function(op: Op) -> Result:
        red = over(op.input(0).shape, (op.integer("axis", 0),), bool(op.integer("keepdims", 1)))
        if red.count > EXACT_INTEGERS:
            return Unsupported(f"there are more than {EXACT_INTEGERS} places")
        (k,), last = red.sums, op.integer("select_last_index", 0)
        own = op.read(0, variables(red.full))
        best = op.step(red.scope(own, reduce), "best")
        elsewhere = Const(Fraction(0 if last else k.extent - 1))
        there = Call("max", (Call("equal", (own, red.back(best))), Call("isnan", (own,))))
        return red.scope(Call("choose", (there, Val(var(k.name)), elsewhere)), "max" if last else "min")

    return function


def cumulative_sum(op: Op) -> Result:
    """Σ x over the places up to one, or from it on in reverse; it is itself not among them where `exclusive`."""
    x = op.input(0).tensor
    axis = int(op.constant(1).reshape(-1)[0])
    if not -len(x.shape) <= axis < len(x.shape):
        raise Inexpressible(f"axis {axis} of {len(x.shape)} dimensions")
    loops = loops_of(x.shape)
    t = loops[axis]
    s = Iter(f"{t.name}'", t.lo, t.hi)
    apart = (var(s.name) - var(t.name)) if op.integer("reverse", 0) else (var(t.name) - var(s.name))
    index = tuple(var(s.name if i == t else i.name) for i in loops)
    return Scope(loops, (s,), Select((Cond(apart - op.integer("exclusive", 0)),), Read(x, index), Const(Fraction(0))))


REDUCTIONS: dict[str, Function] = {
    "ReduceSum": reducer(),
    "ReduceMean": reducer(after=divided),
    "ReduceMax": reducer("max"),
    "ReduceMin": reducer("min"),
    "ReduceL1": reducer(before=lambda x: Call("abs", (x,))),
    "ReduceL2": reducer(before=square, after=root),
    "ReduceSumSquare": reducer(before=square),
    "ReduceLogSum": reducer(after=logarithm),
    "ReduceLogSumExp": log_sum_exp,
    "CumSum": cumulative_sum,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
}

PLACES: dict[str, Function] = {"ArgMax": place_of_best("max"), "ArgMin": place_of_best("min")}
