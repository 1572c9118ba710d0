"""A nest as a grid of threads: one output element (or one small tile of a transform) for each thread, reductions serial in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from tvm import tirx
from tvm.ir import Range
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.functions import FUNCTIONS
from einnet.expr.index import Index, simplify, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen import mathfunctions
from einnet.instantiate.codegen.canonicalise import split
from einnet.instantiate.codegen.context import Context
from einnet.instantiate.codegen.cuda.lanes import touched
from einnet.instantiate.codegen.ir import (
    PICK,
    Apply,
    Choose,
    Expr,
    Known,
    Lit,
    Load,
    Nest,
    Number,
    Ranges,
    Reduce,
    Use,
    conditions,
    expand,
    expanded,
    fold,
    picked,
    simplified,
    substitute_expr,
    weights,
)  # fmt: skip
from einnet.instantiate.codegen.nests import sequence
from einnet.instantiate.codegen.schedule import SMALL, UNROLL, accesses
from einnet.instantiate.codegen.values import NEUTRAL, at

THREADS = 256
"""Threads of a block."""

WIDE, MANY = 4, 1 << 18
"""Elements of one access at most, and of a nest from which on a thread computes so many."""

OWN, FAR = ".own", 1 << 40
"""The end of the name of a loop whose elements a thread has for itself, and the stride of one that an access does not depend on."""


def _library(name: str) -> Callable[..., Tir]:
    return lambda *args: tirx.call_pure_extern("float32", name, *args)


def _sigmoid(x: Tir) -> Tir:
    one = tirx.const(1.0, "float32")
    return one / (one + _library("expf")(mathfunctions.negative(x)))


def _softplus(x: Tir) -> Tir:
    """max(x,0) + ln(1+e^{-|x|})."""
    rest = _library("log1pf")(_library("expf")(mathfunctions.negative(tirx.abs(x))))
    return mathfunctions.at_least(x, tirx.const(0.0, "float32")) + rest


_ACCURATE: dict[str, Callable[..., Tir]] = {
    **{f.name: _library(f"{f.library}f") for f in FUNCTIONS.values() if f.costly and f.library and f.arity == 1},
    "sigmoid": _sigmoid, "softplus": _softplus,
}  # fmt: skip
"""Functions of the device's mathematical library at full accuracy; TVM's own names give its fast and coarse ones."""


class Threads(Context):
    """Writes the body of one thread."""

    def __init__(self, arrays: Mapping[str, Buffer], tables: Mapping[str, Mapping[int, float]], index_type: str) -> None:
        super().__init__(arrays, tables, index_type)
        self.registers: set[str] = set()

    def bind(self, value: Tir) -> Tir:
        """The value in a register of its own: TVM's analysis of integer variables fails on `Bind`s of chosen floats."""
        buffer = getattr(value, "buffer", None)
        if isinstance(value, tirx.FloatImm) or buffer is not None and buffer.name in self.registers:
            return value
        return tirx.BufferLoad(self.register(value), [0])

    def grid(self, nest: Nest, exact: bool = False) -> tirx.Stmt:
        """The kernel of a normalised nest; its loops are numbered, the one first in which neighbours touch neighbouring memory."""
        nest, points = vectors(nest)
        together = WIDE if any(i.name.endswith(OWN) for i in points) else 1
        loops = ordered(nest, [i for i in nest.loops if i not in points], together)
        total = prod(i.extent for i in loops)
        threads = min(THREADS, -(-total // 32) * 32)
        block, thread = (tirx.Var(tag.replace(".", "_"), "int32") for tag in ("blockIdx.x", "threadIdx.x"))
        with self.block() as body:
            number = self.offset(block.astype(self.index_type) * self.constant(threads) + thread.astype(self.index_type))
            with self.block() as inner:
                self.spread(number, loops)
                for at_point in product(*(range(p.extent) for p in points)):
                    self.store(nest, dict(zip((p.name for p in points), at_point)))
            whole = sequence(inner)
            body.append(whole if total % threads == 0 else tirx.IfThenElse(number < self.constant(total), whole, None))
        return bound(thread, threads, "threadIdx.x", sequence(body), outer=(block, -(-total // threads)))

    def spread(self, number: Tir, loops: Sequence[Iter]) -> None:
        """Give each loop its value in the thread of that number; the last loop varies fastest."""
        after = prod(i.extent for i in loops)
        for i in loops:
            after //= i.extent
            quotient = tirx.floordiv(number, self.constant(after)) if after > 1 else number
            first = i is loops[0]
            self.variables[i.name] = self.offset(quotient if first else tirx.floormod(quotient, self.constant(i.extent)))

    def store(self, nest: Nest, point: Mapping[str, int]) -> None:
        """One element, where the nest's guards hold."""
        fixed = {n: Index((), v) for n, v in point.items()}
        value = self.value(simplified(substitute_expr(nest.expr, fixed), nest.ranges), nest.ranges)
        statement: tirx.Stmt = tirx.BufferStore(self.arrays[nest.array], value, [self.scalar(simplify(at(nest.address, point), nest.ranges))])
        for guard in nest.guards:
            statement = tirx.IfThenElse(self.condition(Cond(at(guard.index, point), guard.equal)), statement, None)
        self.statements.append(statement)

    # --------------------------------------------------------------------------------------------------------------- values

    def value(self, e: Expr, ranges: Ranges) -> Tir:
        """The value of an expression in this thread."""
        known = self.remembered(e)
        if known is not None:
            return known
        match e:
            case Lit(value):
                return tirx.const(value, "float32")
            case Number(index):
                whole = self.scalar(Index(index.terms, index.const)).astype("float32")
                return whole / tirx.const(float(index.den), "float32") if index.den != 1 else whole
            case Apply(op, args):
                return self.applied(op, [self.value(a, ranges) for a in args])
            case Choose(conds, then, other):
                where = tirx.all(*(self.condition(c) for c in conds))
                return tirx.Select(where, self.value(then, ranges), self.value(other, ranges))
            case Load():
                found = self.load(e)
            case Use():
                found = self.value(simplified(expand(e), ranges), ranges)
            case Reduce():
                found = self.reduction(e, ranges)
            case Known():
                raise AssertionError("a thread knows no values of others")
        self.memo[-1][e] = found = self.bind(found)
        return found

    def applied(self, op: str, args: Sequence[Tir]) -> Tir:
        if op in _ACCURATE:
            return _ACCURATE[op](*(self.bind(a) for a in args))
        if len(args) in (1, 3) and op in FUNCTIONS:
            return mathfunctions.called(op, [self.bind(a) for a in args], self.bind)
        result = args[0]
        for a in args[1:]:
            if op == "pow" and not isinstance(a, tirx.FloatImm):
                result = _library("powf")(result, a)
            else:
                result = mathfunctions.BINARY[op](self.bind(result) if op == "pow" else result, a, self.bind)
        return result

    def load(self, e: Load) -> Tir:
        """A load; nothing is read where a guard fails."""
        if e.array in self.tables and e.address.is_const and not e.guards:
            return tirx.const(self.tables[e.array][e.address.const], "float32")
        plain = tirx.BufferLoad(self.arrays[e.array], [self.scalar(e.address)])
        if self.arrays[e.array].dtype != "float32":
            plain = self.single(e.array, plain)
        if not e.guards:
            return plain
        return tirx.if_then_else(tirx.all(*(self.condition(c) for c in e.guards)), plain, tirx.const(e.fill, "float32"))

    def reduction(self, e: Reduce, ranges: Ranges) -> Tir:
        """A loop over an accumulator; sums by known matrices as straight-line code, and what takes one of its terms without a loop."""
        if e.op == PICK:
            return self.picked(e, ranges)
        inside = {**ranges, **{i.name: i.range for i in e.sums}}
        if weights(e, self.tables.keys()) and prod(i.extent for i in e.sums) <= UNROLL:
            return self.straight(e, inside)
        kept = self.register(tirx.const(NEUTRAL[e.op], "float32"))
        with self.block() as body:
            for i in e.sums:
                self.variables[i.name] = tirx.Var(self.fresh("k"), self.index_type)
            value = self.value(simplified(e.body, inside), inside)
            now = mathfunctions.BINARY[e.op](tirx.BufferLoad(kept, [0]), value, self.bind)
            body.append(tirx.BufferStore(kept, now, [0]))
        loop = sequence(body)
        for i in reversed(e.sums):
            loop = tirx.For(self.variables[i.name], self.constant(i.lo), self.constant(i.extent), tirx.ForKind.SERIAL, loop)
        self.statements.append(loop)
        return tirx.BufferLoad(kept, [0])

    def picked(self, e: Reduce, ranges: Ranges) -> Tir:
        """The term that a number says, 0 where it says none: the iterator is a variable."""
        place, term = picked(e)
        (over,) = e.sums
        at_place = self.bind(self.value(place, ranges))
        inside = tirx.all(at_place >= tirx.const(float(over.lo), "float32"), at_place <= tirx.const(float(over.hi - 1), "float32"))
        name = self.fresh(over.name)
        self.variables[name] = self.offset(tirx.Select(inside, at_place, tirx.const(float(over.lo), "float32")).astype(self.index_type))
        value = self.value(substitute_expr(term, {over.name: var(name)}), {**ranges, name: over.range})
        same = tirx.all(inside, tirx.EQ(self.variables[name].astype("float32"), at_place))
        return tirx.Select(same, value, tirx.const(0.0, "float32"))

    def register(self, value: Tir) -> Buffer:
        """A register that holds the value."""
        kept = tirx.decl_buffer((1,), "float32", self.fresh("v"), scope="local")
        self.registers.add(kept.name)
        self.statements += [tirx.AllocBuffer(kept), tirx.BufferStore(kept, value, [0])]
        return kept

    def straight(self, e: Reduce, ranges: Ranges) -> Tir:
        """Σ of known weights times values, term by term; weights 0 cost nothing, ±1 no multiplication, and equal terms are computed once."""
        total: Tir | None = None
        for values in product(*(range(i.lo, i.hi) for i in e.sums)):
            fixed = {i.name: Index((), v) for i, v in zip(e.sums, values)}
            term = self.weighted(simplified(substitute_expr(e.body, fixed), ranges), ranges)
            if term is not None:
                total = term if total is None else total + term
        return tirx.const(0.0, "float32") if total is None else self.bind(total)

    def weighted(self, e: Expr, ranges: Ranges) -> Tir | None:
        """A term with its known weights as one number; None for 0."""
        number, rest = 1.0, []
        for a in e.args if isinstance(e, Apply) and e.op == "mul" else (e,):
            known = isinstance(a, Load) and a.array in self.tables and a.address.is_const and not a.guards
            if isinstance(a, Load) and known:
                number *= self.tables[a.array][a.address.const]
            elif isinstance(a, Lit):
                number *= a.value
            else:
                rest.append(a)
        if number == 0.0:
            return None
        if not rest:
            return tirx.const(number, "float32")
        value = self.value(fold("mul", tuple(rest)), ranges)
        return value if number == 1.0 else value * tirx.const(number, "float32")


def bound(thread: tirx.Var, threads: int, tag: str, body: tirx.Stmt, outer: tuple[tirx.Var, int]) -> tirx.Stmt:
    """The body for every thread of every block."""
    block, blocks = outer
    for v, extent, name in ((thread, threads, tag), (block, blocks, "blockIdx.x")):
        iterator = tirx.IterVar(Range(0, extent), v, 1, name)
        body = tirx.AttrStmt(iterator, "thread_extent", tirx.const(extent, "int32"), body)
    return body


def vectors(nest: Nest) -> tuple[Nest, tuple[Iter, ...]]:
    """The nest with the loops of which a thread computes all elements: rows of known matrices, or four neighbours in memory.

    Neighbours belong to one thread where every load and the store takes four at a multiple of 16 bytes, or one for all, and threads abound. What is
    read under a condition is not taken at once by a compiler, and neither is what is written after it: a card took four times as long so.
    """
    points = unrolled(nest)
    if points or prod(i.extent for i in nest.loops) < MANY:
        return nest, points
    if nest.guards or any(isinstance(e, Reduce) or any(conditions(e)) for e, _ in expanded(nest.expr, nest.ranges)):
        return nest, points
    lane = ordered(nest, nest.loops)[-1]
    addresses = [nest.address, *(e.address for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Load))]
    if lane.extent % WIDE or not all(wide(e, lane.name) for e in addresses):
        return nest, points
    nest = split(nest, lane, WIDE, ".four", OWN)
    return nest, tuple(i for i in nest.loops if i.name == lane.name + OWN)


def wide(e: Index, lane: str) -> bool:
    """Four neighbours along the lane are one number, or lie together at a multiple of 16 bytes."""
    if e.coefficient(lane) == 0:
        return lane not in e.names()
    return e.coefficient(lane) == 1 and e.const % WIDE == 0 and all(isinstance(a, str) and (a == lane or c % WIDE == 0) for a, c in e.terms)


def unrolled(nest: Nest) -> tuple[Iter, ...]:
    """Small loops that number the rows of known matrices: a thread computes all of them, from the same loads."""
    named = {
        n for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Reduce) for w in weights(e, nest.tables) for n in w.address.names()
    }  # fmt: skip
    found: list[Iter] = []
    for i in sorted(nest.loops, key=lambda i: i.extent):
        if i.name in named and i.extent <= SMALL and i.extent * prod(f.extent for f in found) <= UNROLL:
            found.append(i)
    return tuple(found)


def ordered(nest: Nest, loops: Sequence[Iter], together: int = 1) -> list[Iter]:
    """Loops, outermost first, the last one that in which neighbouring threads differ first, so that a warp touches the fewest sectors of memory.

    Those are the orders in which the store or one of the loads walks memory, and those with one loop moved to the end; of equal ones the first.
    A thread takes so many neighbours `together`.
    """
    addresses = [nest.address, *dict.fromkeys(a.address for a in accesses(nest.expr))]
    stored = sorted(loops, key=lambda i: -abs(nest.address.coefficient(i.name)))
    orders = [stored, *([*(j for j in stored if j is not i), i] for i in reversed(stored))]
    orders += [sorted(stored, key=lambda i: -(abs(e.coefficient(i.name)) or FAR)) for e in addresses[1:]]
    return min(orders, key=lambda order: touched(addresses, order, together))
