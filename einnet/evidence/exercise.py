"""Kernels run alone and compared with their expressions: on small integers, where single precision is exact, bit for bit.

Where an expression holds more than sums, products, maxima and comparisons of integers (a quotient, exp, tanh), each element must lie within what a
running error analysis allows (`evidence.limits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isinf, prod
from typing import Any, Protocol

import numpy as np

from einnet.evidence.buffers.contents import part
from einnet.evidence.error_limits import bounded_at, some_points
from einnet.evidence.meaning import meaning
from einnet.evidence.report.told import Tell, each, silent
from einnet.expr.functions import FUNCTIONS
from einnet.expr.index import bounds
from einnet.expr.nodes import Add, Body, Call, Const, Mul, Number, Read, Scope, Select, Tensor, Val, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import work
from einnet.instantiate.kernels import LINE, EOperator, Kernel, NotLifted, OpaqueCall, Plan, Shown, VendorKernel, View, numbered
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.runtime.arena import storage_dtype

Array = np.ndarray[Any, np.dtype[Any]]

EXACT = 1 << 24
"""Integers up to here, and what is added up to them, single precision has exactly."""

DENSE = 1 << 31
"""Multiplications up to which all elements of an exact kernel are compared; beyond, some."""

POINTS, BUDGET = 1 << 16, 1 << 24
"""Elements compared, and evaluations of the body, at most, where elements are evaluated one by one."""

DRAWS = ((-3, 3), (1, 4))
"""Ranges of the integers: of both signs, and positive ones for what has no value elsewhere. They are drawn in 16 bits, six times as fast as in 64."""


class Runner(Protocol):
    """Runs a kernel of a program alone."""

    def run(self, place: int, given: Mapping[str, Array]) -> dict[str, Array]:
        """Flat buffers after the kernel at a place of the plan has run on flat buffers."""


@dataclass(frozen=True)
class Exercised:
    """A kernel that was run alone: its place in the plan, `exact` where every bit was compared, or the problem."""

    place: int
    kind: str
    exact: bool = False
    elements: int = 0
    problem: str = ""


def exercise(plan: Plan, runner: Runner, places: Sequence[int] | None = None, seed: int = 0, tell: Tell = silent) -> list[Exercised]:
    """Every kernel that has an expression, run alone and compared; `places` in the plan if not all."""
    chosen = range(len(plan.kernels)) if places is None else places
    return [exercise_one(plan, n, runner, seed) for n in each(chosen, "kernel", tell) if not isinstance(plan.kernels[n], OpaqueCall)]


def exercise_one(plan: Plan, place: int, runner: Runner, seed: int) -> Exercised:
    """One kernel on all draws."""
    kernel, kind = plan.kernels[place], "generated" if isinstance(plan.kernels[place], EOperator) else "vendor"
    named: dict[View, Tensor] = {}

    def shown(view: View) -> Tensor:
        return named.setdefault(view, Tensor(f"x{len(named)}", view.shape))

    try:
        scope = meaning(kernel, Shown(shown), lambda x: x if isinf(x) else fraction(x))
    except NotLifted as reason:
        return Exercised(place, kind, problem=str(reason))
    exact, elements = True, 0
    for number, draw in enumerate(DRAWS):
        given = buffers(plan, kernel, draw, seed + number)
        arrays = {t.name: np.array(part(given[view.buffer], view)) for view, t in named.items()}
        (view,) = kernel.result_views
        got = np.asarray(part(runner.run(place, given)[view.buffer], view))
        problem, whole, count = compared(scope, arrays, got, max(abs(n) for n in draw), seed, arithmetic_of(kernel))
        if problem:
            return Exercised(place, kind, problem=problem)
        exact, elements = exact and whole, elements + count
    return Exercised(place, kind, exact, elements)


def fraction(x: Number) -> Fraction:
    """The exact value of a number."""
    return Fraction(x)


def buffers(plan: Plan, kernel: Kernel, draw: tuple[int, int], seed: int) -> dict[str, Array]:
    """Flat buffers of integers for all that a kernel touches; what an expression says that a constant is, is just that."""
    sizes = {b.name: b for b in plan.buffers}
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for view in (*kernel.operand_views, *kernel.result_views):
        if view.buffer not in found:
            buffer = sizes[view.buffer]
            dtype = storage_dtype(buffer.dtype)
            least = max(draw[0], 0) if dtype.kind == "u" else draw[0]
            found[view.buffer] = generator.integers(least, draw[1] + 1, buffer.size, np.int16).astype(dtype)
    if isinstance(kernel, EOperator):
        views = dict(kernel.operands)
        for name, tensor in tensors(kernel.scope).items():
            if tensor.values is not None:
                part(found[views[name].buffer], views[name])[...] = np.array([float(v) for v in tensor.values], np.float32).reshape(tensor.shape)
    return found


def compared(
    scope: Scope, arrays: Mapping[str, Array], got: Array, largest: int, seed: int, arithmetic: Arithmetic = F32
) -> tuple[str, bool, int]:  # fmt: skip
    """The problem of a result, whether all was exact, and how many elements were compared. Factors are numbers of the `arithmetic`."""
    reach = Reach(largest)
    if largest <= arithmetic.integers and reach.exact(scope) and work(scope, prod(scope.shape)) <= DENSE:
        wanted = evaluate(scope, arrays, "float32")
        differ = np.argwhere(~((got == wanted) | (np.isnan(got) & np.isnan(wanted))))
        if len(differ):
            at = tuple(int(n) for n in differ[0])
            return f"gives {float(got[at])!r} at {list(at)} for integers where its expression is {float(wanted[at])!r}", True, got.size
        return "", True, got.size
    points = some_points(scope, BUDGET, POINTS, seed)
    value, error = bounded_at(scope, points, arrays, {}, arithmetic=arithmetic)
    at_points = got.astype(np.float64)[tuple((points - np.array([lo for lo, _ in scope.box])).T)] if scope.shape else got.reshape(1)
    wrong = np.flatnonzero(~within(at_points, value, error))
    if wrong.size:
        k = int(wrong[0])
        where = [int(x) for x in points[k]]
        wanted_there = f"{float(value[k])!r} within {float(error[k]):.3g}"
        return f"gives {float(at_points[k])!r} at {where} where its expression is {wanted_there}", False, len(points)
    return "", False, len(points)


def within(got: Array, value: Array, error: Array) -> Array:
    """Where results lie within a bound of their errors, or beyond all numbers as the value is; NaN only where the value is. Where that is NaN, a
    kernel that leaves out products with 0 gives anything."""
    with np.errstate(all="ignore"):
        largest = float(np.finfo(np.float32).max)
        far = np.isinf(got) & (np.abs(value) + error >= largest) & ((np.sign(got) == np.sign(value)) | (error >= np.abs(value)))
        untold = np.isnan(error) | (error == np.inf)
        unknown = np.isnan(got) & (np.isnan(value) | untold | (np.abs(value) + error >= largest))
        anything = (np.isfinite(got) & untold) | (np.isinf(got) & np.isnan(value))
        return np.asarray((got == value) | (np.abs(got - value) <= error) | far | unknown | anything)


class Reach:
    """How far values and what is added up to them can reach, in multiples of what all of them are multiples of."""

    def __init__(self, largest: int) -> None:
        self.largest = float(largest)
        self.known: dict[Scope, tuple[float, float] | None] = {}

    def exact(self, scope: Scope) -> bool:
        """Single precision computes the scope without rounding, in any order, for integers no larger than `largest`."""
        return self.scope(scope) is not None

    def scope(self, scope: Scope) -> tuple[float, float] | None:
        """The greatest absolute value and the unit, None where rounding cannot be excluded."""
        if scope not in self.known:
            found = self.body(scope.body, scope)
            terms = prod(i.extent for i in scope.sums) if scope.reduce == "sum" else 1
            self.known[scope] = self.checked((found[0] * max(terms, 1), found[1])) if found else None
        return self.known[scope]

    def checked(self, found: tuple[float, float]) -> tuple[float, float] | None:
        return found if found[0] <= EXACT * found[1] else None

    def body(self, body: Body, scope: Scope) -> tuple[float, float] | None:
        match body:
            case Const(v):
                return self.number(float(v), body)
            case Val(index):
                low, high = bounds(index, scope.ranges)
                return self.checked((float(max(abs(low), abs(high))), 1.0)) if index.den == 1 else None
            case Read(Tensor(values=None), _, fill):
                return self.joined(Call("max", (body, body)), [(self.largest, 1.0), self.number(float(fill), Const(fill))])
            case Read(Tensor()):
                return self.table(body)
            case Read(base):
                return self.scope(base) if isinstance(base, Scope) else None
            case Add(args) | Mul(args):
                return self.joined(body, [self.body(a, scope) for a in args])
            case Select(_, then, other):
                return self.joined(Call("max", (then, other)), [self.body(then, scope), self.body(other, scope)])
            case Call(name, args) if FUNCTIONS[name].within:
                return self.joined(Call("max", args), [self.body(a, scope) for a in args])
            case Call(name, args) if FUNCTIONS[name].whole:
                inner = [self.body(a, scope) for a in args]
                return None if None in inner else (max(1.0, *(x[0] for x in inner if x)), 1.0)
        return None

    def number(self, v: float, body: Const) -> tuple[float, float] | None:
        if isinf(v):
            return 0.0, 1.0
        numerator, denominator = fraction(v).as_integer_ratio()
        same = fraction(v) == body.value and denominator <= EXACT
        return (abs(v), 1.0 / denominator) if same and abs(numerator) <= EXACT else None

    def table(self, read: Read) -> tuple[float, float] | None:
        assert isinstance(read.base, Tensor)
        found = [self.number(float(v), Const(v)) for v in read.base.values or ()]
        if None in found:
            return None
        return max((x[0] for x in found if x), default=0.0), min((x[1] for x in found if x), default=1.0)

    def joined(self, body: Body, parts: list[tuple[float, float] | None]) -> tuple[float, float] | None:
        if None in parts:
            return None
        sizes, units = [p[0] for p in parts if p], [p[1] for p in parts if p]
        match body:
            case Add():
                return self.checked((sum(sizes), min(units)))
            case Mul():
                return self.checked((float(prod(max(s, u) for s, u in zip(sizes, units))), float(prod(units))))
        return max(sizes), min(units)


def alone(plan: Plan, place: int) -> Plan:
    """A plan of one kernel of a plan, over the same buffers, each given and handed out flat; constants stay constants."""
    kernel = plan.kernels[place]
    used = dict.fromkeys(v.buffer for v in (*kernel.operand_views, *kernel.result_views))
    buffers = {b.name: b for b in plan.buffers if b.name in used}
    written = {v.buffer for v in kernel.result_views}
    flat = {name: View(name, (b.size,), (1,)) for name, b in buffers.items()}
    roles = {n: b.role if b.role == "constant" else "output" if n in written else "input" for n, b in buffers.items()}
    inputs = tuple((n, flat[n]) for n, role in roles.items() if role != "constant")
    outputs = tuple((n, flat[n]) for n in written)
    made = tuple(replace(b, role=roles[n]) for n, b in buffers.items())
    return Plan(made, (kernel,), inputs, outputs, {n: plan.constants[n] for n, role in roles.items() if role == "constant"})


def distinct(plan: Plan) -> Iterator[int]:
    """The place of the first kernel of each kind: those that differ by the names of buffers only are alike, and those of a library where their
    operands, each in a buffer of its own, start elsewhere, at the same place of a cache line: they are called with pointers."""
    seen: set[object] = set()
    types = {b.name: (b.role == "constant", b.size, b.dtype) for b in plan.buffers}
    for n, kernel in enumerate(plan.kernels):
        key = alike(kernel, types)
        if key not in seen:
            seen.add(key)
            yield n


def alike(kernel: Kernel, types: Mapping[str, object]) -> object:
    """The kernel with its buffers named by occurrence, and what they are."""
    views = (*kernel.operand_views, *kernel.result_views)
    apart = isinstance(kernel, VendorKernel) and len({v.buffer for v in views}) == len(views)
    names: dict[str, str] = {}

    moved = kernel.map_views(lambda v: numbered(v, names, v.offset % LINE if apart else v.offset))
    return moved, tuple(types[name] for name in names)
