"""A nest around one reduction by blocks of threads (`tiling`): copies of operands that a block shares, and a thread's elements in registers.

The last block of a loop begins earlier instead of ending outside: elements that two blocks compute are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.index import Index, simplify, substitute, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen import mathfunctions
from einnet.instantiate.codegen.cuda.footprint import Footprint
from einnet.instantiate.codegen.cuda.per_thread import Threads, bound
from einnet.instantiate.codegen.cuda.reduction_nest import SUM
from einnet.instantiate.codegen.cuda.tiling import Tile, sums_of
from einnet.instantiate.codegen.ir import Expr, Lit, Load, Ranges, children, rebuild, simplified, substitute_expr
from einnet.instantiate.codegen.nests import sequence
from einnet.instantiate.codegen.values import NEUTRAL

WHOLE_WARP = -1
"""The mask of a warp's lanes, all of which take part."""


@dataclass(frozen=True)
class Copies:
    """A tile's copies: the footprints by the loads that they replace, the names of the arrays, and where iterators stand within the block."""

    footprints: Mapping[Load, Footprint]
    arrays: Mapping[Load, str]
    extents: Mapping[str, int]

    def read(self, e: Expr) -> Expr:
        """The expression with its loads from the copies."""
        if isinstance(e, Load) and e in self.footprints:
            return Load(self.arrays[e], self.footprints[e].position(self.extents, {n: local(n) for n in self.extents}))
        args = children(e)
        return rebuild(e, tuple(self.read(a) for a in args)) if args else e


def local(name: str) -> str:
    """The iterator's distance from the block's or chunk's first value."""
    return f"{name} within"


class Tiles(Threads):
    """Writes the body of one thread of a block that computes a tile together."""

    def shared(self, size: int) -> Buffer:
        """An array of the block."""
        kept = tirx.decl_buffer((size,), "float32", self.fresh("shared"), scope="shared")
        self.statements.append(tirx.AllocBuffer(kept))
        return kept

    def meet(self) -> None:
        """All threads of the block wait for each other."""
        self.statements.append(tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared")))

    def tile(self, t: Tile) -> tirx.Stmt:
        """The kernel of a tiled nest."""
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        points = [dict(zip(t.points, at)) for at in product(*(range(p) for p in t.points.values()))]
        with self.block() as body:
            here = self.offset(thread.astype(self.index_type))
            self.begin(t, self.offset(block.astype(self.index_type)), here)
            kept = [self.register(tirx.const(NEUTRAL[t.reduce.op], "float32")) for _ in points]
            self.walk(t, here, self.copied(t), points, kept)
            for accumulator in kept:
                self.among_lanes(t.reduce.op, accumulator, t.team[1])
            with self.block() as closing:
                for point, accumulator in zip(points, kept):
                    self.close(t, point, accumulator)
            leads = tirx.EQ(self.variables[f"thread {t.team[0]}"], self.constant(0))
            body.append(tirx.IfThenElse(leads, sequence(closing), None) if t.team[1] > 1 else sequence(closing))
        return bound(thread, t.block, "threadIdx.x", sequence(body), outer=(block, t.blocks))

    def begin(self, t: Tile, block: Tir, here: Tir) -> None:
        """Where the thread's elements begin, in the nest and in the block."""
        boxes = [Iter(f"block {i.name}", 0, -(-i.extent // t.box[i.name])) for i in t.nest.loops]
        self.spread(block, boxes)
        lanes = [*(Iter(f"thread {n}", 0, t.threads[n]) for n in t.order), Iter(f"thread {t.team[0]}", 0, t.team[1])]
        self.spread(here, lanes)
        for i in t.nest.loops:
            own = t.box[i.name]
            start = self.variables[f"block {i.name}"] * self.constant(own)
            if i.extent % own:
                start = tirx.min(start, self.constant(i.extent - own))
            self.variables[first(i.name)] = self.offset(start)
            self.variables[local(i.name)] = self.offset(self.variables[f"thread {i.name}"] * self.constant(t.points[i.name]))
            self.variables[i.name] = self.offset(self.variables[first(i.name)] + self.variables[local(i.name)])

    def copied(self, t: Tile) -> Copies:
        """The arrays of the copies."""
        names = {}
        for f in t.staged:
            kept = self.shared(f.size)
            self.arrays[kept.name] = kept
            names[f.load] = kept.name
        whole = {i.name: i.extent for i in t.reduce.sums}
        return Copies({f.load: f for f in t.staged}, names, {**t.box, **whole, **(t.chunks or {})})

    # ------------------------------------------------------------------------------------------------------- the reduction

    def walk(self, t: Tile, here: Tir, copies: Copies, points: Sequence[Mapping[str, int]], kept: Sequence[Buffer]) -> None:
        """All terms of the sum, chunk by chunk where there are copies."""
        walked = sums_of(t, written=False)
        sizes = {i.name: (t.chunks or {}).get(i.name, i.extent) if t.staged else i.extent for i in walked}
        around = [Iter(f"chunk {i.name}", 0, i.extent // sizes[i.name]) for i in walked if sizes[i.name] < i.extent]
        with self.block() as body:
            for i in around:
                self.variables[i.name] = tirx.Var(self.fresh("chunk"), self.index_type)
            for i in t.reduce.sums:
                self.variables[first(i.name)] = self.constant(i.lo)
            for i, chunk in zip((i for i in walked if sizes[i.name] < i.extent), around):
                self.variables[first(i.name)] = self.offset(self.constant(i.lo) + self.variables[chunk.name] * self.constant(sizes[i.name]))
            if t.staged:
                if around:
                    self.meet()
                for f in t.staged:
                    self.fill(t, f, copies, here)
                self.meet()
            inner = [Iter(i.name, 0, sizes[i.name]) for i in walked]
            body += self.steps(t, inner, copies, points, kept)
        self.statements.append(self.nested(around, sequence(body)))

    def nested(self, loops: Sequence[Iter], body: tirx.Stmt) -> tirx.Stmt:
        for i in reversed(loops):
            body = tirx.For(self.variables[i.name], self.constant(0), self.constant(i.extent), tirx.ForKind.SERIAL, body)
        return body

    def fill(self, t: Tile, f: Footprint, copies: Copies, here: Tir) -> None:
        """Copy the box together: neighbouring threads take neighbours in memory."""
        axes = sorted(f.axes, key=lambda a: -abs(a.stride))
        load, ranges = f.at(), {a.name: self.span(t, a.members) for a in f.axes}
        turn = tirx.Var(self.fresh("turn"), self.index_type)
        with self.block() as body:
            number = self.offset(turn * self.constant(t.block) + here)
            with self.block() as inner:
                self.spread(number, [Iter(f"at {a.name}", 0, a.extent) for a in axes])
                for a in f.axes:
                    self.variables[a.name] = self.offset(self.start(a.members, copies) + self.variables[f"at {a.name}"])
                place = sum((self.variables[f"at {a.name}"] * self.constant(p) for a, p in zip(f.axes, f.pitches, strict=True)), self.constant(0))
                value = self.value(simplified(load, ranges), ranges)
                inner.append(tirx.BufferStore(self.arrays[copies.arrays[f.load]], value, [place]))
            whole = sequence(inner)
            body.append(tirx.IfThenElse(number < self.constant(f.elements), whole, None) if f.elements % t.block else whole)
        self.variables[turn.name] = turn
        self.statements.append(self.nested([Iter(turn.name, 0, -(-f.elements // t.block))], sequence(body)))

    def span(self, t: Tile, members: Sequence[tuple[str, int]]) -> tuple[int, int]:
        """The values of a coordinate over the whole nest."""
        ranges = {**t.nest.ranges, **{i.name: i.range for i in t.reduce.sums}}
        ends = [(k * ranges[n][0], k * (ranges[n][1] - 1)) for n, k in members]
        return sum(min(e) for e in ends), sum(max(e) for e in ends) + 1

    def start(self, members: Sequence[tuple[str, int]], copies: Copies) -> Tir:
        """The least value of a coordinate in this block and chunk."""
        result = self.constant(0)
        for n, k in members:
            least = self.variables[first(n)] if k > 0 else self.variables[first(n)] + self.constant(copies.extents[n] - 1)
            result = result + least * self.constant(k)
        return result

    def steps(
        self, t: Tile, walked: Sequence[Iter], copies: Copies, points: Sequence[Mapping[str, int]], kept: Sequence[Buffer]
    ) -> list[tirx.Stmt]:
        """The loops over a chunk's terms, in each step the terms that are written out, for each of the thread's elements."""
        turns = [Iter(f"turn {i.name}", 0, -(-i.extent // lanes_along(t, i.name))) for i in walked]
        for turn in turns:
            self.variables[turn.name] = tirx.Var(self.fresh("k"), self.index_type)
        guard: Tir | None = None
        with self.block() as body:
            for i, turn in zip(walked, turns):
                lanes, own = lanes_along(t, i.name), self.variables[turn.name]
                if lanes > 1:
                    own = self.offset(own * self.constant(lanes) + self.variables[f"thread {i.name}"])
                    guard = own < self.constant(i.extent) if i.extent % lanes else None
                self.variables[local(i.name)] = own
                self.variables[i.name] = self.offset(self.variables[first(i.name)] + own)
            with self.block() as terms:
                self.terms(t, copies, points, kept)
            body.append(tirx.IfThenElse(guard, sequence(terms), None) if guard is not None else sequence(terms))
        return [self.nested(turns, sequence(body))]

    def terms(self, t: Tile, copies: Copies, points: Sequence[Mapping[str, int]], kept: Sequence[Buffer]) -> None:
        """The written-out terms; a load that several elements share is made once."""
        body = copies.read(t.reduce.body)
        written = sums_of(t, written=True)
        ranges = self.ranges(t)
        for values in product(*(range(i.lo, i.hi) for i in written)):
            fixed: dict[str, Index] = {}
            for i, v in zip(written, values):
                fixed |= {i.name: Index((), v), local(i.name): Index((), v - i.lo)}
            for point, accumulator in zip(points, kept):
                e = simplified(substitute_expr(body, {**fixed, **moved(t, point)}), ranges)
                if e == Lit(0.0) and t.reduce.op == "sum":
                    continue
                now = mathfunctions.BINARY[t.reduce.op](tirx.BufferLoad(accumulator, [0]), self.value(e, ranges), self.bind)
                self.statements.append(tirx.BufferStore(accumulator, now, [0]))

    def ranges(self, t: Tile) -> Ranges:
        """Of the iterators where a thread begins; places in copies need none."""
        loops = {i.name: (0, i.extent - t.points[i.name] + 1) for i in t.nest.loops}
        extents = {**t.box, **{i.name: i.extent for i in t.reduce.sums}}
        return {**loops, **{i.name: i.range for i in t.reduce.sums}, **{local(n): (0, e) for n, e in extents.items()}}

    # ----------------------------------------------------------------------------------------------------------- the results

    def among_lanes(self, op: str, accumulator: Buffer, lanes: int) -> None:
        """Reduce the values of neighbouring lanes; each gets the result."""
        step = lanes // 2
        while step:
            own = tirx.BufferLoad(accumulator, [0])
            now = mathfunctions.BINARY[op](own, self.exchanged(accumulator, step), self.bind)
            self.statements.append(tirx.BufferStore(accumulator, now, [0]))
            step //= 2

    def exchanged(self, accumulator: Buffer, step: int) -> Tir:
        """The value of the lane whose number differs in that bit."""
        own = tirx.BufferLoad(accumulator, [0])
        other = self.register(tirx.call_extern("float32", "__shfl_xor_sync", tirx.const(WHOLE_WARP, "int32"), own, tirx.const(step, "int32")))
        return tirx.BufferLoad(other, [0])

    def close(self, t: Tile, point: Mapping[str, int], accumulator: Buffer) -> None:
        """What is done with a sum, and the store."""
        ranges = self.ranges(t)
        with self.block() as inner:
            self.memo[-1][SUM] = tirx.BufferLoad(accumulator, [0])
            value = self.value(simplified(substitute_expr(t.rest, moved(t, point)), ranges), ranges)
            place = simplify(substitute(t.nest.address, moved(t, point)), ranges)
            inner.append(tirx.BufferStore(self.arrays[t.nest.array], value, [self.scalar(place)]))
        statement = sequence(inner)
        for guard in t.nest.guards:
            statement = tirx.IfThenElse(self.condition(Cond(substitute(guard.index, moved(t, point)), guard.equal)), statement, None)
        self.statements.append(statement)


def lanes_along(t: Tile, name: str) -> int:
    """Neighbouring lanes that share the sum over an iterator."""
    return t.team[1] if t.team[0] == name else 1


def first(name: str) -> str:
    """The iterator's first value in the block or chunk."""
    return f"{name} from"


def moved(t: Tile, point: Mapping[str, int]) -> dict[str, Index]:
    """A thread's element by its first one; a loop with all of its elements in each thread has their numbers."""
    found = {}
    for i in t.nest.loops:
        whole = t.points[i.name] == i.extent
        found[i.name] = Index((), point[i.name]) if whole else var(i.name) + point[i.name]
        found[local(i.name)] = Index((), point[i.name]) if whole else var(local(i.name)) + point[i.name]
    return found
