"""Recurrences as loops over time that carry their state: one step for each time, where the sum as it is written has one for each two.

y[t] = Σ[s <= t] q(t)*D(t,s)*k(s) is state = D(t,t-1)*state + k(t), y[t] = q(t)*state, for each other loop; a state over what is summed besides is an
array of registers, or of the stack. Loops over everything but time are nests like others, vectors, borders and threads included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from math import prod

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.derivation.rules.transitions import Recurrence
from einnet.expr.functions import FUNCTIONS
from einnet.expr.index import Index, Range, combine, simplify, var
from einnet.expr.nodes import Body, Iter, Scope
from einnet.instantiate.codegen import vectors
from einnet.instantiate.codegen.blocking.blocks import Blocking
from einnet.instantiate.codegen.blocking.steps import Fill
from einnet.instantiate.codegen.blocking.times import across, at_place, lane_of_walk, row, substituted, turning
from einnet.instantiate.codegen.canonicalise import split
from einnet.instantiate.codegen.context import Value
from einnet.instantiate.codegen.ir import Apply, Expr, Load, Nest, Ranges, children, names, pruned, rebuild, simplified, substitute_expr, walk
from einnet.instantiate.codegen.nests import Store, parallel_loops
from einnet.instantiate.codegen.pieces import located, pieces
from einnet.instantiate.codegen.resolve import OUT, resolve
from einnet.instantiate.codegen.schedule import LANES, UNROLL, Plan, width
from einnet.instantiate.codegen.values import NEUTRAL, Point
from einnet.instantiate.kernels import EOperator, dense_strides, dense_view

REGISTERS = 16
"""Elements of a state that are written one by one; larger ones are loops over an array."""

SUMS = 4
"""Sums side by side of what is asked of a large state: as many as a processor begins while one addition is under way."""

GATES, ROWS, MOST_KEPT = "all gates", "rows in order", 1 << 20
"""The arrays of gates, and of what a state reads at a time, that are computed before a walk, called as no tensor is; the elements of one at most."""

SHARED, PASSES = 8, 2
"""How many of a state share a gate that is computed before, at least; how often rows are read that are."""

STEPS = "steps"
"""The operation that stands for a recurrence in a nest: of what is left of the state, what comes in, and what is asked of it."""


@dataclass(frozen=True, slots=True)
class Running:
    """A recurrence resolved: the nest over all loops but time, of which the expression is STEPS; time and the state's dimensions as named there."""

    nest: Nest
    time: Iter
    state: tuple[Iter, ...]
    forward: bool
    late: bool
    reduce: str


def resolved(op: EOperator, r: Recurrence, tables: Collection[str]) -> tuple[tuple[Fill, ...], Running]:
    """The recurrence as expressions over flat addresses, and what is to be computed before it."""
    others = tuple(i for i in op.scope.loops if i.name != r.t.name)
    loops = (*others, r.t, *r.sums)

    def expression(body: Body) -> Nest:
        scope = Scope(loops, (), body)
        return resolve(EOperator(scope, op.operands, dense_view(OUT, scope.shape)), tables)

    nests = [expression(b) for b in (r.gate(), r.entering(), r.asking())]
    named = {i.name: j for i, j in zip(loops, nests[0].loops, strict=True)}
    address = combine(*((var(named[i.name].name), s) for i, s in zip(op.scope.loops, op.out.strides)), (Index((), op.out.offset), 1))
    inner = tuple(named[i.name] for i in (r.t, *r.sums))
    fill = gates(nests[0])
    gate = nests[0].expr if fill is None else Load(fill.array, fill.nest.address)
    again = {e: found for n in nests[1:] for e in walk(n.expr) if isinstance(e, Load) and (found := rows_of_state(e, n, inner[1:]))}
    fills = [Fill(f"{ROWS} {n}", f.size, replace(f.nest, array=f"{ROWS} {n}")) for n, f in enumerate(again.values())]
    placed: dict[Expr, Expr] = {e: Load(f.array, f.nest.address) for e, f in zip(again, fills)}
    nest = Nest(
        tuple(named[i.name] for i in others), OUT, address, Apply(STEPS, (gate, *(exchanged(n.expr, placed) for n in nests[1:]))),
        outer=tuple((i.name, i.range) for i in inner), tables=frozenset(tables),
    )  # fmt: skip
    return (*(() if fill is None else (fill,)), *fills), Running(nest, inner[0], inner[1:], r.forward > 0, bool(r.late), r.reduce)


def gates(nest: Nest) -> Fill | None:
    """All gates as an array, where they are functions of few of the loops: in the walk each would be computed again for all others."""
    calls = any(isinstance(e, Apply) and e.op in FUNCTIONS for e in walk(nest.expr))
    own = tuple(i for i in nest.loops if i.name in names(nest.expr))
    size = prod(i.extent for i in own)
    if not calls or not own or size * SHARED > prod(i.extent for i in nest.loops) or size > MOST_KEPT:
        return None
    return kept(nest, nest.expr, GATES, own)


def rows_of_state(load: Load, nest: Nest, state: tuple[Iter, ...]) -> Fill | None:
    """What a large state reads at a time, as an array in which it lies side by side, where it is read for many other loops and lies far apart:
    so many lines would displace one another in a near cache.
    """
    own = tuple(i for i in nest.loops if i.name in names(load))
    far = bool(state) and abs(load.address.coefficient(state[-1].name)) >= LANES and prod(i.extent for i in state) > REGISTERS
    size = prod(i.extent for i in own)
    again = prod(i.extent for i in nest.loops) >= PASSES * LANES * size
    return kept(nest, load, ROWS, own) if far and again and size <= MOST_KEPT else None


def kept(nest: Nest, e: Expr, array: str, own: tuple[Iter, ...]) -> Fill:
    """An expression at all places of its own loops, as a dense array."""
    strides = dense_strides(tuple(i.extent for i in own))
    address = combine(*((var(i.name) - i.lo, s) for i, s in zip(own, strides, strict=True)))
    return Fill(array, prod(i.extent for i in own), replace(nest, loops=own, array=array, address=address, expr=e))


def exchanged(e: Expr, others: Mapping[Expr, Expr]) -> Expr:
    """The expression with others in the place of some of its parts."""
    return others[e] if e in others else rebuild(e, tuple(exchanged(a, others) for a in children(e)))


class RunningNests(Blocking):
    """Statements of nests, recurrences among them."""

    carried: Running

    def fill(self, fills: Sequence[Fill]) -> None:
        """Compute arrays that are read afterwards."""
        for fill in fills:
            self.arrays[fill.array] = self.local(fill.size, fill.array)
            self.nest(fill.nest)

    def run(self, running: Running) -> None:
        """Write the recurrence."""
        self.carried = running
        nest = running.nest
        with self.lanes(None):
            lane = lane_of_walk(nest, running.time) if nest.loops else None
            own: Iter | None = None
            if lane is not None:
                nest = split(nest, lane, width(lane.extent), ".o", ".l")
                own = next(i for i in nest.loops if i.name == lane.name + ".l")
            rest = sorted((i for i in nest.loops if i != own), key=lambda i: -abs(nest.address.coefficient(i.name)))
            plan = Plan(nest, tuple(rest), own, ())
            ranges = nest.ranges
            bound = frozenset[str]()
            steps = running.time.extent * prod(i.extent for i in running.state)
            work = replace(plan, nest=replace(nest, expr=Apply("add", (nest.expr,) * max(1, min(steps, 1 << 12)))))
            fused = parallel_loops(work, self.threads)
            if not fused:
                self.level(plan, 0, nest.expr, bound, ranges)
                return
            self.parallel = True
            self.threaded(plan, fused, nest.expr, bound, ranges)

    def leaf(self, plan: Plan, expr: Expr, ranges: Ranges) -> None:
        """The loop over time."""
        if not (isinstance(expr, Apply) and expr.op == STEPS):
            super().leaf(plan, expr, ranges)
            return
        time, lanes = self.carried.time, plan.lane.extent if plan.lane is not None else 1
        size = prod(i.extent for i in self.carried.state)
        with self.block() as inner:
            state = self.local(size * lanes, "state", looped=size > REGISTERS)
            start = self.tir(NEUTRAL[self.carried.reduce], lanes)
            first = self.fresh("k")
            self.for_each(first, (0, size), partial(self.begin, first, state, start, lanes))
            parts = pieces(time.name, time.range, located(expr, ranges), 3)
            turn = size * lanes <= UNROLL and turning(replace(plan.nest, expr=expr), time, plan.lane)
            for own in parts if self.carried.forward else reversed(parts):
                self.walked(own, turn, partial(self.part, plan, expr, ranges, state, lanes), lanes)
        self.statements += inner

    def walked(self, own: Range, turn: bool, part: Callable[[Range, bool], None], lanes: int) -> None:
        """A part of time: in square blocks, where something is turned, and what is left of it one by one."""
        whole = (own[1] - own[0]) // lanes * lanes if turn else 0
        middle = own[0] + whole
        halves = [h for h in (((own[0], middle), True), ((middle, own[1]), False)) if h[0][0] < h[0][1]]
        for times, blocks in halves if self.carried.forward else reversed(halves):
            part(times, blocks)

    def part(self, plan: Plan, expr: Expr, ranges: Ranges, state: Buffer, lanes: int, own: Range, blocks: bool) -> None:
        """A loop over some of the times, or over square blocks of them."""
        inside = {**ranges, self.carried.time.name: own}
        name = self.fresh("step")
        if blocks:
            count = (own[1] - own[0]) // lanes
            self.for_each(name, (0, count), partial(self.square, name, count, own[0], plan, simplified(expr, inside), inside, state, lanes))
        else:
            self.for_each(name, own, partial(self.step, name, own, plan, simplified(expr, inside), inside, state, lanes))

    def square(self, name: str, count: int, first: int, plan: Plan, expr: Expr, ranges: Ranges, state: Buffer, lanes: int) -> None:
        """As many times as there are lanes: all is read before, and stored afterwards, with times in lanes where they lie side by side."""
        assert isinstance(expr, Apply) and plan.lane is not None
        time, block, lane, forward = self.carried.time, self.fresh("block"), plan.lane, self.carried.forward
        now = self.variables[name]
        self.variables[block] = now if forward else self.offset(self.constant(count - 1) - now)
        mapping = at_place(time.name, block, lanes, first)
        inside = {**ranges, block: (0, count), time.name + ".u": (0, lanes)}
        points = [{**p, time.name + ".u": n} for n in range(lanes) for p in self.places()]
        gates, coming, asked = (self.values(simplified(substitute_expr(a, mapping), inside), points, inside) for a in expr.args)
        size = len(points) // lanes
        found: list[Value] = [0.0] * lanes
        for n in range(lanes) if forward else reversed(range(lanes)):
            group = slice(n * size, (n + 1) * size)
            found[n] = self.total(self.advanced(gates[group], coming[group], asked[group], [self.constant(k) for k in range(size)], state, lanes))
        out = substituted(Load("", plan.nest.address, plan.nest.guards), mapping)
        place = time.name + ".u"
        turn = across(plan.nest.address, time, lane)
        columns = vectors.transpose([self.bind(self.tir(v, lanes)) for v in found], self.bind) if turn else [self.tir(v) for v in found]
        for n, value in enumerate(columns):
            target = row(out, place, lane.name, n) if turn else substituted(out, {place: Index((), n)})
            guards = pruned(target.guards, inside)
            if guards is not None:
                self.store(plan.nest.array, Store(simplify(target.address, inside), guards, value))

    def places(self) -> list[Point]:
        """Every element of a small state."""
        return [dict(zip((i.name for i in self.carried.state), values)) for values in product(*(range(*i.range) for i in self.carried.state))]

    def begin(self, name: str, state: Buffer, value: Tir, lanes: int) -> None:
        """Nothing has come in."""
        self.statements.append(tirx.BufferStore(state, value, [self.place(self.variables[name], lanes)]))

    def place(self, element: Tir, lanes: int) -> Tir:
        """Where an element of the state stands."""
        return tirx.Ramp(element * self.constant(lanes), self.constant(1), lanes) if lanes > 1 else element

    def step(self, name: str, own: Range, plan: Plan, expr: Expr, ranges: Ranges, state: Buffer, lanes: int) -> None:
        """One time: the state moves on, and what is asked of it is stored."""
        time = self.carried.time.name
        now = self.variables[name]
        self.variables[time] = now if self.carried.forward else self.offset(self.constant(own[0] + own[1] - 1) - now)
        size = prod(i.extent for i in self.carried.state)
        if size <= REGISTERS:
            found = self.total(self.moved(expr, self.places(), [self.constant(n) for n in range(size)], ranges, state, lanes))
        else:
            found = self.summed(expr, ranges, state, lanes)
        guards = pruned(plan.nest.guards, ranges)
        if guards is not None:
            self.store(plan.nest.array, Store(simplify(plan.nest.address, ranges), guards, found))

    def moved(self, expr: Expr, points: Sequence[Point], places: Sequence[Tir], ranges: Ranges, state: Buffer, lanes: int) -> list[Value]:
        """Some elements of the state one step on; what is asked of each."""
        assert isinstance(expr, Apply)
        gates, coming, asked = (self.values(a, points, ranges) for a in expr.args)
        return self.advanced(gates, coming, asked, places, state, lanes)

    def advanced(
        self, gates: Sequence[Value], coming: Sequence[Value], asked: Sequence[Value], places: Sequence[Tir], state: Buffer, lanes: int
    ) -> list[Value]:
        """The elements of the state at these places one step on, by what is known of each; what is asked of each."""
        found: list[Value] = []
        for gate, new, ask, number in zip(gates, coming, asked, places, strict=True):
            place = [self.place(number, lanes)]
            value: Value = tirx.BufferLoad(state, place)
            if self.carried.late:
                value = self.combine("mul", gate, self.combine(self.carried.reduce, value, new))
            else:
                value = self.combine(self.carried.reduce, self.combine("mul", gate, value), new)
            value = self.bind(self.tir(value, lanes))
            self.statements.append(tirx.BufferStore(state, value, place))
            found.append(self.combine("mul", ask, value))
        return found

    def total(self, values: Sequence[Value]) -> Value:
        """The sum, in order."""
        return reduce(partial(self.combine, "add"), values, 0.0)

    def summed(self, expr: Expr, ranges: Ranges, state: Buffer, lanes: int) -> Value:
        """All elements of a large state one step on, in loops. Neighbours go to sums of their own, none of which waits for another's addition."""
        *around, last = self.carried.state
        blocks, rest = divmod(last.extent, SUMS)
        totals = self.local(SUMS * lanes, "totals")
        slots = [[self.place(self.constant(n), lanes)] for n in range(SUMS)]
        self.statements += [tirx.BufferStore(totals, self.tir(0.0, lanes), slot) for slot in slots]
        block, side = self.fresh("block"), last.name + ".u"
        mapped = substitute_expr(expr, at_place(last.name, block, SUMS, last.lo))

        def neighbours(own: Range, count: int, row: Tir) -> None:
            inside = {**ranges, block: own, side: (0, count)}
            first = row * self.constant(last.extent) + self.variables[block] * self.constant(SUMS)
            places = [first + self.constant(n) for n in range(count)]
            asked = self.moved(simplified(mapped, inside), [{side: n} for n in range(count)], places, inside, state, lanes)
            for slot, value in zip(slots, asked):
                self.statements.append(tirx.BufferStore(totals, self.tir(self.combine("add", tirx.BufferLoad(totals, slot), value), lanes), slot))

        def rows(left: Sequence[Iter], row: Tir) -> None:
            if left:
                i = left[0]
                self.for_each(i.name, i.range, lambda: rows(left[1:], row * self.constant(i.extent) + self.variables[i.name] - self.constant(i.lo)))
                return
            for own, count in (((0, blocks), SUMS), ((blocks, blocks + 1), rest)):
                if own[0] < own[1] and count:
                    self.for_each(block, own, partial(neighbours, own, count, row))

        rows(around, self.constant(0))
        return self.bind(self.tir(self.total([tirx.BufferLoad(totals, slot) for slot in slots]), lanes))
