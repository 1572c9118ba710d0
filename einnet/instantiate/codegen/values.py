"""Values of scalar expressions at several points of a nest at once, as TVM expressions.

A point fixes the unrolled iterators. What does not depend on a point is computed once; loads of neighbouring points that are strided along
the vector lanes become one transposed block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.index import Index, bounds, simplify, substitute, var
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen import mathfunctions, vectors
from einnet.instantiate.codegen.context import Context, Value
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
)

Point = Mapping[str, int]

NEUTRAL = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}
UNITS = {**NEUTRAL, "add": 0.0, "mul": 1.0}
FOLDED = {"add": np.add, "sum": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""Operations that are computed here where both operands are known."""


class Evaluating(Context, ABC):
    """Writes scalar expressions."""

    masking = False
    """Straight-line code is being written: borders are masks."""

    def tir(self, value: Value, width: int = 1) -> Tir:
        """A value as an expression of the given vector length."""
        return vectors.broadcast(tirx.const(value, "float32") if isinstance(value, float) else value, width)

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """A binary operation, with the units of sum and product folded."""
        for x, y in ((a, b), (b, a)):
            if isinstance(x, float):
                if x == UNITS.get(op):
                    return y
                if op == "mul" and x == 0.0:
                    return 0.0
        if isinstance(a, float) and isinstance(b, float) and op in FOLDED:
            with np.errstate(all="ignore"):
                return float(FOLDED[op](np.float32(a), np.float32(b)))
        width = max(1 if isinstance(x, float) else mathfunctions.lanes(x) for x in (a, b))
        left, right = self.tir(a, width), self.tir(b, width)
        if op == "pow":
            left = self.bind(left)
        if op == "div" and not isinstance(b, float) and mathfunctions.lanes(b) < width:
            return left * self.tir(self.bind(tirx.const(1.0, "float32") / b), width)
        return mathfunctions.called(op, (left, right), self.bind)

    def values(self, e: Expr, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """The value at each point."""
        if not points:
            return []
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

    @abstractmethod
    def reduce(self, e: Reduce, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """The reductions at each point (see `reductions`)."""

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
        width = max((mathfunctions.lanes(a) for a in args if not isinstance(a, float)), default=1)
        return mathfunctions.called(op, [self.bind(self.tir(a, width)) for a in args], self.bind)

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
        """Values of a nested scope, each distinct one computed once. One that needs no guards is many points' own: their guards say nothing of it."""
        keys = [simplified(substitute_expr(e, {k: Index((), v) for k, v in p.items()}), ranges) for p in points]
        missing = {k: p for k, p in zip(keys, points) if self.remembered(k) is None}
        free = {k: p for k, p in missing.items() if isinstance(k, Use) and not k.guards}
        for use, those in ((e, {k: p for k, p in missing.items() if k not in free}), (Use(e.function, e.index), free)):
            for k, v in zip(those, self.values(expand(use), list(those.values()), ranges)):
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
            row = self.within(simplified(substitute_expr(e, mapping), ranges), columns, ranges)
            value = row.value if isinstance(row, Lit) else self.load(row)
            rows.append(self.tir(value, self.lane.extent) if isinstance(value, float) else self.hold(value))
        for n, column in enumerate(vectors.transpose(rows, self.bind)):
            if n in columns:
                self.memo[-1][columns[n]] = column

    def within(self, row: Expr, columns: Collection[int], ranges: Ranges) -> Load | Lit:
        """A row of a block whose other columns are not read where they may lie outside of the array: behind its end nobody may read."""
        assert self.lane is not None and isinstance(row, (Load, Lit))
        if isinstance(row, Lit):
            return row
        name = self.lane.name
        first, last = bounds(row.address, {**ranges, name: (0, self.lane.extent)})
        if first >= 0 and last < int(self.arrays[row.array].shape[0]):
            return row
        lane = var(name)
        return Load(row.array, row.address, (*row.guards, Cond(lane - min(columns)), Cond(-lane + max(columns))), row.fill)

    def load(self, e: Load) -> Value:
        """One load: scalar, contiguous, shuffled from contiguous pieces, or gathered; masked where guards remain."""
        buffer = self.arrays[e.array]
        if e.address.is_const and e.array in self.tables and not e.guards:
            return self.tables[e.array][e.address.const]
        if buffer.dtype != "float32":
            return self.converted(buffer, e)
        lane = self.lane.name if self.lane is not None else ""
        if lane not in e.address.names() and all(lane not in c.index.names() for c in e.guards):
            return self.under(e.guards, tirx.BufferLoad(buffer, [self.scalar(e.address)]), e.fill)
        scalar = [c for c in e.guards if lane not in c.index.names()]
        if scalar and self.masking and self.contiguous(e.address):
            return self.bordered_load(buffer, e)
        if len(scalar) < len(e.guards) and not self.contiguous(e.address):
            return self.gathered(buffer, e)
        vector = self.vector_load(buffer, Load(e.array, e.address, tuple(c for c in e.guards if c not in scalar), e.fill))
        return self.under(scalar, vector, e.fill, self.lane.extent if self.lane is not None else 1)

    def under(self, guards: Sequence[Cond], value: Tir, fill: float, width: int = 1) -> Tir:
        """The value where all of the conditions hold, which are no vectors."""
        if not guards:
            return value
        return tirx.if_then_else(vectors.conjunction([self.condition(c) for c in guards]), value, self.tir(fill, width))

    def converted(self, buffer: Buffer, e: Load) -> Tir:
        """Elements of another type as float32; where guards fail, the buffer's first element is read instead and not used."""
        lanes = self.lane is not None and any(self.lane.name in i.names() for i in (e.address, *(c.index for c in e.guards)))
        width = self.lane.extent if self.lane is not None and lanes else 1
        where = vectors.broadcast(self.in_lanes(e.address), width)
        mask = vectors.broadcast(vectors.conjunction([self.condition(c) for c in e.guards]), width) if e.guards else None
        if mask is not None:
            where = tirx.Select(mask, where, vectors.broadcast(self.constant(0), width))
        loaded = self.bind(self.single(e.array, tirx.BufferLoad(buffer, [where])))
        return loaded if mask is None else tirx.Select(mask, loaded, self.tir(e.fill, width))

    def bordered_load(self, buffer: Buffer, e: Load) -> Tir:
        """A contiguous load without a branch: where a condition fails that holds for all lanes or none, no lane is read, at a valid address."""
        assert self.lane is not None
        width, name = self.lane.extent, self.lane.name
        whole = vectors.conjunction([self.condition(c) for c in e.guards if name not in c.index.names()])
        mask = vectors.broadcast(vectors.conjunction([whole, *(self.condition(c) for c in e.guards if name in c.index.names())]), width)
        base = self.scalar(self.without_lane(e.address))
        return vectors.masked_load(buffer, tirx.Select(whole, base, self.constant(0)), mask, self.tir(e.fill, width), self.widest)

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
            if mask is None:
                return vectors.contiguous(buffer, base, width)
            return vectors.masked_load(buffer, base, mask, self.tir(e.fill, width), self.widest)
        if affine and stride == -1 and mask is None:
            return vectors.reverse(vectors.contiguous(buffer, self.scalar(rest - (width - 1)), width))
        if affine and 2 <= stride <= 4 and mask is None:
            starts = [self.scalar(rest + k) for k in vectors.piece_offsets(stride, width)]
            return vectors.strided([vectors.contiguous(buffer, s, width) for s in starts], stride)
        assert mask is None
        return tirx.BufferLoad(buffer, [vectors.broadcast(self.in_lanes(e.address), width)])

    def gathered(self, buffer: Buffer, e: Load) -> Tir:
        """A masked load from scattered addresses: masked lanes read the buffer's first element.

        The loaded vector is bound to a name: as an operand of the selection, TVM would simplify its address under the selection's condition,
        and the code would read outside the buffer.
        """
        assert self.lane is not None
        width = self.lane.extent
        mask = vectors.broadcast(vectors.conjunction([self.condition(c) for c in e.guards]), width)
        where = vectors.broadcast(self.in_lanes(e.address), width)
        loaded = self.bind(tirx.BufferLoad(buffer, [tirx.Select(mask, where, vectors.broadcast(self.constant(0), width))]))
        return tirx.Select(mask, loaded, self.tir(e.fill, width))


def at(e: Index, point: Point) -> Index:
    """The index function with the point's iterators fixed."""
    return substitute(e, {k: Index((), v) for k, v in point.items()})

