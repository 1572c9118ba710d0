"""Values of scalar expressions at several points of a nest at once, as TVM expressions.

A point fixes the unrolled iterators. What does not depend on a point is computed once; loads of neighbouring points that are strided along
the vector lanes become one transposed block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

import numpy as np
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import Buffer, Stmt
from tvm.tirx import Expr as Tir

from einnet.expr.index import Floor, Index, simplify, substitute, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen import mathfunctions, vectors
from einnet.instantiate.codegen.ir import (
    Apply,
    Choose,
    Expr,
    Known,
    Lit,
    Load,
    Number,
    Ranges,
    Reduce,
    Use,
    expand,
    names,
    pruned,
    simplified,
    substitute_expr,
)  # fmt: skip

Point = Mapping[str, int]
Value = Union[float, Tir]
"""A number known now, or a scalar or vector of float32."""

STACK = 1 << 14
"""Elements up to which a local array lies on the stack."""

NEUTRAL = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}


SLOT = 16
"""Elements of a slot, room for the widest vector."""


@dataclass
class Slots:
    """The values of one type that a function body holds in registers."""

    pointer: Tir
    buffer: Buffer
    size: int = 0


class Context:
    """What is being written: statements, variables, arrays, and the values that exist already."""

    def __init__(self, arrays: Mapping[str, Buffer], tables: Mapping[str, Mapping[int, float]], index_type: str) -> None:
        self.arrays = dict(arrays)
        self.tables = tables
        self.index_type = index_type
        self.variables: dict[str, Tir] = {}
        self.lane: Iter | None = None
        self.statements: list[Stmt] = []
        self.memo: list[dict[Expr, Value]] = [{}]
        self.owned: list[list[Tir]] = [[]]
        self.slots: dict[str, Slots] = {}
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Statements of an inner block; values computed in it are forgotten after it."""
        outer, self.statements = self.statements, []
        self.memo.append({})
        self.owned.append([])
        try:
            yield self.statements
            self.release()
        finally:
            self.statements = outer
            self.memo.pop()
            self.owned.pop()

    @contextmanager
    def lanes(self, lane: Iter | None) -> Iterator[None]:
        """Another lane iterator for a while."""
        outer, self.lane = self.lane, lane
        try:
            yield
        finally:
            self.lane = outer

    @contextmanager
    def frame(self) -> Iterator[None]:
        """A function body: the slots that it uses are allocated at its start."""
        outer, self.slots = self.slots, {}
        start = len(self.statements)
        try:
            yield
            head: list[Stmt] = []
            for kind, slots in self.slots.items():
                pointer = PointerType(PrimType(kind))
                head.append(tirx.Bind(slots.pointer, tirx.call_intrin(pointer, "tirx.tvm_stack_alloca", "shape", slots.size // 2)))
                head.append(tirx.DeclBuffer(slots.buffer, data=slots.pointer))
            self.statements[start:start] = head
        finally:
            self.slots = outer

    def bind(self, value: Tir) -> Tir:
        """A value that is computed once and may be used often: stored in a slot, which LLVM turns into a register.

        A `Bind` would be shorter, but TVM's code generator substitutes bound values into each other to reason about them, at exponential length.
        """
        if isinstance(value, (tirx.Var, tirx.FloatImm)):
            return value
        dtype = value.ty.dtype
        kind = "float32" if dtype.is_float else "int32"
        if kind not in self.slots:
            pointer = tirx.Var(self.fresh("slots") + "_data", PointerType(PrimType(kind)))
            buffer = tirx.decl_buffer((1 << 20,), kind, self.fresh("slots"), data=pointer, data_alignment=4)
            self.slots[kind] = Slots(pointer, buffer)
        slots = self.slots[kind]
        if getattr(value, "buffer", None) is not None and value.buffer.same_as(slots.buffer):
            return value
        at = tirx.const(slots.size, "int32")
        place = [tirx.Ramp(at, 1, dtype.lanes) if dtype.lanes > 1 else at]
        slots.size += SLOT
        self.statements.append(tirx.BufferStore(slots.buffer, value, place))
        return tirx.BufferLoad(slots.buffer, place)

    def hold(self, loaded: Tir) -> Tir:
        """A variable for a value from memory."""
        v = tirx.Var(self.fresh("v"), loaded.ty)
        self.statements.append(tirx.Bind(v, loaded))
        return v

    def offset(self, value: Tir) -> Tir:
        """A variable with the value of an index; TVM may reason about it."""
        v = tirx.Var(self.fresh("i"), value.ty)
        self.statements.append(tirx.Bind(v, value))
        return v

    def local(self, size: int, stem: str) -> Buffer:
        """A local array, allocated here: on the stack (in registers, where all its indices are constant), or if large on the heap."""
        name = self.fresh(stem)
        kind = PointerType(PrimType("float32"))
        pointer = tirx.Var(name + "_data", kind)
        if size <= STACK:
            place = tirx.call_intrin(kind, "tirx.tvm_stack_alloca", "shape", -(-size // 2))
        else:
            place = tirx.call_extern(kind, "malloc", tirx.const(4 * size, "int64"))
            self.owned[-1].append(pointer)
        buffer = tirx.decl_buffer((size,), "float32", name, data=pointer, data_alignment=4)
        self.statements += [tirx.Bind(pointer, place), tirx.DeclBuffer(buffer, data=pointer)]
        return buffer

    def release(self) -> None:
        """Free the heap arrays of this block."""
        self.statements += [tirx.Evaluate(tirx.call_extern("int32", "free", p)) for p in self.owned[-1]]

    def remembered(self, e: Expr) -> Value | None:
        for layer in reversed(self.memo):
            if e in layer:
                return layer[e]
        return None

    # ------------------------------------------------------------------------------------------------------- index functions

    def constant(self, value: int) -> Tir:
        return tirx.const(value, self.index_type)

    def scalar(self, e: Index, lane: Tir | None = None) -> Tir:
        """An index function (den 1) as an expression; `lane` stands for the lane iterator."""
        result: Tir | None = None
        width = mathfunctions.lanes(lane) if lane is not None else 1
        for atom, c in e.terms:
            if isinstance(atom, Floor):
                inner = self.scalar(atom.num, lane)
                term = tirx.floordiv(inner, vectors.broadcast(self.constant(atom.den), mathfunctions.lanes(inner)))
            elif self.lane is not None and atom == self.lane.name:
                assert lane is not None
                term = lane
            else:
                term = self.variables[atom]
            if c != 1:
                term = term * vectors.broadcast(self.constant(c), mathfunctions.lanes(term))
            if result is not None:
                both = max(mathfunctions.lanes(result), mathfunctions.lanes(term))
                result, term = vectors.broadcast(result, both), vectors.broadcast(term, both)
            result = term if result is None else result + term
        if result is None:
            return self.constant(e.const)
        return result + vectors.broadcast(self.constant(e.const), min(width, mathfunctions.lanes(result))) if e.const else result

    def in_lanes(self, e: Index) -> Tir:
        """An index function as a vector where it depends on the lane, else as a scalar."""
        if self.lane is None or self.lane.name not in e.names():
            return self.scalar(e)
        c = e.coefficient(self.lane.name)
        rest = Index(tuple(t for t in e.terms if t[0] != self.lane.name), e.const)
        if self.lane.name in rest.names():
            return self.scalar(e, tirx.Ramp(self.constant(0), self.constant(1), self.lane.extent))
        return tirx.Ramp(self.scalar(rest), self.constant(c), self.lane.extent)

    def condition(self, c: Cond, lanes: Tir | None = None) -> Tir:
        """A condition; `lanes` are other values of the lane iterator than 0, 1, 2..."""
        value = self.in_lanes(c.index) if lanes is None else self.scalar(c.index, lanes)
        zero = vectors.broadcast(self.constant(0), mathfunctions.lanes(value))
        return tirx.EQ(value, zero) if c.equal else value >= zero

    # ------------------------------------------------------------------------------------------------------- scalar bodies

    def tir(self, value: Value, width: int = 1) -> Tir:
        """A value as an expression of the given vector length."""
        return vectors.broadcast(tirx.const(value, "float32") if isinstance(value, float) else value, width)

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """A binary operation, with the units of sum and product folded."""
        for x, y in ((a, b), (b, a)):
            if isinstance(x, float):
                if op in ("add", "sum") and x == 0.0 or op == "mul" and x == 1.0 or op in NEUTRAL and x == NEUTRAL[op]:
                    return y
                if op == "mul" and x == 0.0:
                    return 0.0
        if isinstance(a, float) and isinstance(b, float) and op in ("add", "sum", "mul", "max", "min"):
            with np.errstate(all="ignore"):
                return float({"mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(op, np.add)(np.float32(a), np.float32(b)))
        width = max(mathfunctions.lanes(x) for x in (a, b) if not isinstance(x, float)) if not (isinstance(a, float) and isinstance(b, float)) else 1
        left, right = self.tir(a, width), self.tir(b, width)
        if op == "pow":
            left = self.bind(left)
        if op == "div" and not isinstance(b, float) and mathfunctions.lanes(b) < width:
            return left * self.tir(self.bind(tirx.const(1.0, "float32") / b), width)
        return mathfunctions.BINARY[op](left, right, self.bind)

    def values(self, e: Expr, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """The value at each point."""
        used = names(e)
        keys = [tuple((n, p[n]) for n in sorted(used & p.keys())) for p in points]
        distinct = dict(zip(keys, points))
        if len(distinct) == len(points):
            return self._values(e, points, ranges)
        found = dict(zip(distinct, self._values(e, [dict(k) for k in distinct], ranges)))
        kept = {k: v if isinstance(v, float) else self.bind(v) for k, v in found.items()}
        return [kept[k] for k in keys]

    def _values(self, e: Expr, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        match e:
            case Lit(value):
                return [value] * len(points)
            case Known():
                known = self.remembered(e)
                assert known is not None
                return [known] * len(points)
            case Number(index):
                return [self.number(simplify(at(index, p), ranges)) for p in points]
            case Load():
                return self.loads(e, points, ranges)
            case Apply("mul", args):
                return self.product(args, points, ranges)
            case Apply("add", args):
                return self.folded("add", args, points, ranges)
            case Apply(op, args):
                columns = [self.values(a, points, ranges) for a in args]
                return [self.apply(op, row) for row in zip(*columns)]
            case Choose():
                return self.choose(e, points, ranges)
            case Use():
                return self.use(e, points, ranges)
            case Reduce():
                return self.reduce(e, points, ranges)
        raise TypeError(e)

    def reduce(self, e: Reduce, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """The reductions at each point (see `reductions`)."""
        raise NotImplementedError

    def number(self, index: Index) -> Value:
        if index.is_const:
            return index.const / index.den
        value = self.in_lanes(Index(index.terms, index.const))
        width = mathfunctions.lanes(value)
        real = self.bind(value).astype(f"float32x{width}" if width > 1 else "float32")
        return real / mathfunctions.number(float(index.den), real) if index.den != 1 else real

    def apply(self, op: str, args: Sequence[Value]) -> Value:
        if len(args) == 2:
            return self.combine(op, *args)
        return mathfunctions.UNARY[op](self.bind(self.tir(args[0])), self.bind)

    def folded(self, op: str, args: Sequence[Expr], points: Sequence[Point], ranges: Ranges) -> list[Value]:
        result = self.values(args[0], points, ranges)
        for a in args[1:]:
            result = [self.combine(op, x, y) for x, y in zip(result, self.values(a, points, ranges))]
        return result

    def product(self, args: Sequence[Expr], points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """Products; factors are not computed where an earlier one is 0."""
        result: list[Value] = [1.0] * len(points)
        for a in args:
            live = [n for n, v in enumerate(result) if v != 0.0 or not isinstance(v, float)]
            for n, v in zip(live, self.values(a, [points[n] for n in live], ranges) if live else ()):
                result[n] = self.combine("mul", result[n], v)
        return result

    def choose(self, e: Choose, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """Selections; where the conditions are decided at a point only one side is computed."""
        left = [pruned((Cond(at(c.index, p), c.equal) for c in e.conds), ranges) for p in points]
        result: list[Value] = [0.0] * len(points)
        sides = {True: [n for n, c in enumerate(left) if c is not None], False: [n for n, c in enumerate(left) if c != ()]}
        then = dict(zip(sides[True], self.values(e.then, [points[n] for n in sides[True]], ranges) if sides[True] else ()))
        other = dict(zip(sides[False], self.values(e.other, [points[n] for n in sides[False]], ranges) if sides[False] else ()))
        for n, conds in enumerate(left):
            if not conds:
                result[n] = other[n] if conds is None else then[n]
                continue
            where = vectors.conjunction([self.condition(c) for c in conds])
            x, y = self.tir(then[n]), self.tir(other[n])
            width = max(mathfunctions.lanes(v) for v in (where, x, y))
            result[n] = tirx.Select(vectors.broadcast(where, width), vectors.broadcast(x, width), vectors.broadcast(y, width))
        return result

    def use(self, e: Use, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """Values of a nested scope, each distinct one computed once."""
        keys = [simplified(substitute_expr(e, {k: Index((), v) for k, v in p.items()}), ranges) for p in points]
        missing = {k: p for k, p in zip(keys, points) if self.remembered(k) is None}
        if missing:
            for k, v in zip(missing, self.values(expand(e), list(missing.values()), ranges)):
                self.memo[-1][k] = v if isinstance(v, float) else self.bind(v)
        return [v for k in keys for v in (self.remembered(k),) if v is not None]

    # ------------------------------------------------------------------------------------------------------- loads

    def loads(self, e: Load, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        keys = [simplified(substitute_expr(e, {k: Index((), v) for k, v in p.items()}), ranges) for p in points]
        self.transposed(e, points, keys, ranges)
        result: list[Value] = []
        for k in keys:
            known = self.remembered(k)
            if known is None:
                assert isinstance(k, (Load, Lit))
                value = k.value if isinstance(k, Lit) else self.load(k)
                known = self.memo[-1][k] = value if isinstance(value, float) else self.hold(value)
            result.append(known)
        return result

    def transposed(self, e: Load, points: Sequence[Point], keys: Sequence[Expr], ranges: Ranges) -> None:
        """Load square blocks along the unrolled iterator in which e is contiguous, and remember their columns."""
        if self.lane is None or abs(e.address.coefficient(self.lane.name)) <= 4:
            return
        width = self.lane.extent
        for u in sorted(e.address.names()):
            groups: dict[tuple[tuple[str, int], ...], dict[int, Expr]] = {}
            for p, k in zip(points, keys):
                if u in p and isinstance(k, Load) and p[u] < width and e.address.coefficient(u) == 1:
                    groups.setdefault(tuple((n, v) for n, v in p.items() if n != u), {})[p[u]] = k
            for rest, columns in groups.items():
                if len(columns) > width // 4 and any(self.remembered(k) is None for k in columns.values()):
                    self.block_of(e, u, dict(rest), columns, ranges)

    def block_of(self, e: Load, u: str, rest: Point, columns: Mapping[int, Expr], ranges: Ranges) -> None:
        assert self.lane is not None
        rows: list[Tir] = []
        for j in range(self.lane.extent):
            mapping = {**{n: Index((), v) for n, v in rest.items()}, self.lane.name: Index((), j), u: var(self.lane.name)}
            row = simplified(substitute_expr(e, mapping), ranges)
            assert isinstance(row, (Load, Lit))
            value = row.value if isinstance(row, Lit) else self.load(row)
            rows.append(self.tir(value, self.lane.extent) if isinstance(value, float) else self.hold(value))
        for n, column in enumerate(vectors.transpose(rows, self.bind)):
            if n in columns:
                self.memo[-1][columns[n]] = column

    def load(self, e: Load) -> Value:
        """One load: scalar, contiguous, shuffled from contiguous pieces, or gathered; masked where guards remain."""
        buffer = self.arrays[e.array]
        if e.address.is_const and e.array in self.tables and not e.guards:
            return self.tables[e.array][e.address.const]
        lane = self.lane.name if self.lane is not None else ""
        if lane not in e.address.names() and all(lane not in c.index.names() for c in e.guards):
            plain = tirx.BufferLoad(buffer, [self.scalar(e.address)])
            if not e.guards:
                return plain
            return tirx.if_then_else(vectors.conjunction([self.condition(c) for c in e.guards]), plain, self.tir(e.fill))
        scalar = [c for c in e.guards if lane not in c.index.names()]
        vector = self.vector_load(buffer, Load(e.array, e.address, tuple(c for c in e.guards if c not in scalar), e.fill))
        if not scalar:
            return vector
        assert self.lane is not None
        return tirx.if_then_else(vectors.conjunction([self.condition(c) for c in scalar]), vector, self.tir(e.fill, self.lane.extent))

    def vector_load(self, buffer: Buffer, e: Load) -> Tir:
        """A load that varies over the lanes; its guards do so too, and become masks (masked lanes at wild addresses are slow, not wrong)."""
        assert self.lane is not None
        lane, width = self.lane.name, self.lane.extent
        stride = e.address.coefficient(lane)
        rest = Index(tuple(t for t in e.address.terms if t[0] != lane), e.address.const)
        affine = lane not in rest.names()
        mask = vectors.conjunction([self.condition(c) for c in e.guards]) if e.guards else None
        if affine and stride == 1:
            base = self.scalar(rest)
            return vectors.contiguous(buffer, base, width) if mask is None else vectors.masked_load(buffer, base, mask, self.tir(e.fill, width))
        if affine and stride == -1 and mask is None:
            return vectors.reverse(vectors.contiguous(buffer, self.scalar(rest - (width - 1)), width))
        if affine and 2 <= stride <= 4 and mask is None:
            starts = [self.scalar(rest + k) for k in vectors.piece_offsets(stride, width)]
            return vectors.strided([vectors.contiguous(buffer, s, width) for s in starts], stride)
        where = vectors.broadcast(self.in_lanes(e.address), width)
        if mask is None:
            return tirx.BufferLoad(buffer, [where])
        safe = tirx.Select(mask, where, vectors.broadcast(self.constant(0), width))
        return tirx.Select(mask, tirx.BufferLoad(buffer, [safe]), self.tir(e.fill, width))


def at(e: Index, point: Point) -> Index:
    """The index function with the point's iterators fixed."""
    return substitute(e, {k: Index((), v) for k, v in point.items()})

