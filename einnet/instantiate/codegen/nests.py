"""Loop nests: order, borders, values that are hoisted or kept in a local array, and the stores at the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from tvm import tirx
from tvm.tirx import Expr as Tir

from einnet.expr.index import Index, Range, simplify, value
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen import vectors
from einnet.instantiate.codegen.buffering import kept_arrays, replaced
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.context import Value
from einnet.instantiate.codegen.ir import Choose, Expr, Known, Nest, Ranges, Reduce, Use, children, decide, names, pruned, rebuild, simplified
from einnet.instantiate.codegen.operation_counts import operations
from einnet.instantiate.codegen.pieces import interior, located, pieces, unguarded
from einnet.instantiate.codegen.reductions import Reducing
from einnet.instantiate.codegen.schedule import Plan, every_use, schedule
from einnet.instantiate.codegen.values import Point, at

PARALLEL_WORK = 32768
"""Loads and operations from which on a nest is worth more than one thread (about 2 us)."""

LARGE_BODY, HUGE_BODY = 24, 96
"""Loads from which on borders with run-time conditions, and all borders, are written compactly."""


@dataclass(frozen=True, slots=True)
class Store:
    """One vector or scalar to write, and the conditions that are left."""

    address: Index
    guards: tuple[Cond, ...]
    value: Value


class Nesting(Reducing):
    """Statements of nests."""

    threads = 1
    """For how many threads nests are written now."""

    parallel = False
    """Some nest was written for more than one."""

    def nest(self, nest: Nest) -> None:
        """Write the nest."""
        if any(i.extent <= 0 for i in nest.loops):
            return
        with self.lanes(None):
            plan = schedule(normalise(nest))
            ranges = plan.nest.ranges
            bound = frozenset(n for n, _ in nest.outer)
            expr = self.hoist(plan, 0, plan.nest.expr, bound, ranges)
            fused = parallel_loops(plan, self.threads)
            if not fused:
                self.level(plan, 0, expr, bound, ranges)
                return
            self.parallel = True
            self.threaded(plan, fused, expr, bound, ranges)

    def threaded(self, plan: Plan, fused: int, expr: Expr, bound: frozenset[str], ranges: Ranges) -> None:
        """The first `fused` loops as one parallel loop."""
        loops = plan.order[:fused]
        v = tirx.Var(self.fresh("thread"), self.index_type)
        with self.block() as inner:
            after = prod(i.extent for i in loops)
            for i in loops:
                after //= i.extent
                self.variables[i.name] = self.offset(tirx.floormod(tirx.floordiv(v, self.constant(after)), self.constant(i.extent)))
            threads, self.threads = self.threads, 1
            with self.frame():
                self.branches(plan, 0, fused, expr, bound, ranges)
            self.threads = threads
        total = self.constant(prod(i.extent for i in loops))
        self.statements.append(tirx.For(v, self.constant(0), total, tirx.ForKind.PARALLEL, sequence(inner)))

    def branches(self, plan: Plan, n: int, fused: int, expr: Expr, bound: frozenset[str], ranges: Ranges) -> None:
        """Borders of the parallel loops as branches."""
        if n == fused:
            self.inner(plan, n, expr, bound, ranges)
            return
        name = plan.order[n].name
        expr = simplified(expr, ranges)
        blocks = []
        v = self.variables[name]
        for own, border in self.parts(plan, name, expr, ranges):
            with self.compacting(border), self.block() as inner:
                self.branches(plan, n + 1, fused, expr, bound | {name}, {**ranges, name: own})
            blocks.append((own, sequence(inner)))
        statement = blocks[-1][1]
        for (_, hi), block in reversed(blocks[:-1]):
            statement = tirx.IfThenElse(v < self.constant(hi), block, statement)
        self.statements.append(statement)
        self.variables[name] = v

    def level(self, plan: Plan, n: int, expr: Expr, bound: frozenset[str], ranges: Ranges) -> None:
        """The loops from the n-th on."""
        if n == len(plan.order):
            with self.lanes(plan.lane):
                self.leaf(plan, simplified(expr, ranges), ranges)
            return
        i = plan.order[n]
        expr = simplified(expr, ranges)
        for own, border in self.parts(plan, i.name, expr, ranges):
            inside = {**ranges, i.name: own}
            with self.compacting(border):
                self.for_each(i.name, own, partial(self.inner, plan, n + 1, expr, bound | {i.name}, inside))

    def inner(self, plan: Plan, n: int, expr: Expr, bound: frozenset[str], ranges: Ranges) -> None:
        if plan.lane is not None and n == plan.lane_level:
            bound = bound | {plan.lane.name}
        self.level(plan, n, self.hoist(plan, n, simplified(expr, ranges), bound, ranges), bound, ranges)

    def parts(self, plan: Plan, name: str, expr: Expr, ranges: Ranges) -> list[tuple[Range, bool]]:
        """The pieces of a loop, and which of them are borders to be written compactly: few and without pieces of their own."""
        conds = [*located(expr, ranges), *((c, ranges) for c in plan.nest.guards)]
        if plan.straight:
            lane = plan.lane.name if plan.lane is not None else ""
            return [(own, False) for own in pieces(name, ranges[name], [(c, r) for c, r in conds if lane in c.index.names()], 3)]
        large = plan.body_size > LARGE_BODY
        found = pieces(name, ranges[name], conds, 1 if self.compact else 3 if large else 5)
        open_ = (any(name in c.index.names() and decide(c, {**r, name: own}) is None for c, r in conds) for own in found)
        huge = plan.body_size > HUGE_BODY
        unit = [own[1] - own[0] == 1 for own in found]
        return [(own, large and (huge and len(found) > 1 if one else border)) for own, one, border in zip(found, unit, open_)]

    @contextmanager
    def compacting(self, border: bool) -> Iterator[None]:
        """Compact code for a while."""
        before, self.compact = self.compact, self.compact or border
        try:
            yield
        finally:
            self.compact = before

    def hoist(self, plan: Plan, n: int, expr: Expr, bound: frozenset[str], ranges: Ranges) -> Expr:
        """Compute here what depends on the loops so far only, and what is cheaper kept in an array from here on."""
        if n == len(plan.order) or not any(True for _ in every_use(expr)):
            return expr
        lane = plan.lane if plan.lane is not None and plan.lane.name in bound else None
        scalars = bound - {lane.name} if lane is not None else bound
        for kept in kept_arrays(expr, plan.order[n:], plan.points, scalars, ranges):
            name = self.fresh("what is kept")
            self.arrays[name] = self.local(prod(kept.extents), name)
            around = tuple((k, r) for k, r in ranges.items() if k in scalars)
            self.nest(replace(kept.filling(name), outer=around, tables=plan.nest.tables))
            expr = replaced(expr, kept, name)
        with self.lanes(lane):
            return self.known(expr, bound, ranges)

    def known(self, expr: Expr, bound: frozenset[str], ranges: Ranges, always: bool = True) -> Expr:
        """The expression with uses and sums that depend on bound iterators only replaced by their values: a use becomes a sum where what it adds up
        is kept in an array. A sum that is not `always` computed stays where the conditions hold that its loads rely on."""
        own = names(expr)
        if own <= bound and (isinstance(expr, Use) or (always and isinstance(expr, Reduce))):
            (value,) = self.values(expr, [{}], ranges)
            key = Known(self.fresh("known"), own)
            self.memo[-1][key] = value
            return key
        args = () if isinstance(expr, Use) else children(expr)
        always = always and not isinstance(expr, Choose)
        return rebuild(expr, tuple(self.known(a, bound, ranges, always) for a in args)) if args else expr

    # ------------------------------------------------------------------------------------------------------- stores

    def leaf(self, plan: Plan, expr: Expr, ranges: Ranges) -> None:
        """The body; a straight one is written twice where it has borders: plainly for the interior, and with masks."""
        lane = plan.lane.name if plan.lane is not None else ""
        conds = interior(plan.nest, expr, ranges, lane, [p.name for p in plan.points]) if plan.straight else ()
        with self.block() as masked:
            self.masking = plan.straight
            self.body(plan, plan.nest.guards, expr, ranges)
            self.masking = False
        if not conds:
            self.statements += masked
            return
        with self.block() as plain:
            self.body(plan, tuple(c for c in plan.nest.guards if lane in c.index.names()), unguarded(expr, lane), ranges)
        condition = vectors.conjunction([self.condition(c) for c in conds])
        self.statements.append(tirx.IfThenElse(condition, sequence(plain), sequence(masked)))

    def body(self, plan: Plan, conds: Sequence[Cond], expr: Expr, ranges: Ranges) -> None:
        """All points of the body: values first, then stores."""
        points: list[Point] = []
        places: list[tuple[Index, tuple[Cond, ...]]] = []
        for values in product(*(range(i.lo, i.hi) for i in plan.points)):
            point = dict(zip((i.name for i in plan.points), values))
            guards = pruned((Cond(at(c.index, point), c.equal) for c in conds), ranges)
            if guards is not None:
                points.append(point)
                places.append((simplify(at(plan.nest.address, point), ranges), guards))
        if not points:
            return
        found = self.values(expr, points, ranges)
        stores = [Store(address, guards, value) for (address, guards), value in zip(places, found)]
        for group in self.interleaving(stores):
            if len(group) == 1:
                self.store(plan.nest.array, group[0])
            else:
                self.store_interleaved(plan.nest.array, group)

    def interleaving(self, stores: Sequence[Store]) -> list[list[Store]]:
        """Stores that together fill memory without gaps, in address order, as groups; the rest alone."""
        if self.lane is None:
            return [[s] for s in stores]
        stride = stores[0].address.coefficient(self.lane.name) if stores else 1
        if not 2 <= stride <= 4:
            return [[s] for s in stores]
        groups: list[list[Store]] = []
        for s in sorted(stores, key=lambda s: s.address.const):
            last = groups[-1] if groups else []
            fits = last and len(last) < stride and s.guards == last[-1].guards and s.address - 1 == last[-1].address
            if fits:
                last.append(s)
            else:
                groups.append([s])
        return [part for g in groups for part in ([g] if len(g) == stride else [[s] for s in g])]

    def store_interleaved(self, array: str, group: Sequence[Store]) -> None:
        assert self.lane is not None
        width = self.lane.extent
        rest = Index(tuple(t for t in group[0].address.terms if t[0] != self.lane.name), group[0].address.const)
        vectors_in_order = [self.bind(self.tir(s.value, width)) for s in group]
        for k, v in enumerate(vectors.interleaved(vectors_in_order)):
            base = self.scalar(rest + k * width)
            if group[0].guards:
                lanes = tirx.floordiv(tirx.Ramp(k * width, 1, width), tirx.Broadcast(len(group), width))
                mask = vectors.broadcast(vectors.conjunction([self.condition(c, lanes) for c in group[0].guards]), width)
                self.statements += vectors.masked_store(self.arrays[array], base, mask, self.bind(v), self.widest)
            else:
                self.statements.append(vectors.stored(self.arrays[array], v, tirx.Ramp(base, 1, width)))

    def store(self, array: str, s: Store) -> None:
        """One store: scalar, contiguous, masked, or lane by lane."""
        buffer = self.arrays[array]
        lane = self.lane.name if self.lane is not None else ""
        plain = [c for c in s.guards if lane not in c.index.names()]
        masks = [c for c in s.guards if lane in c.index.names()]
        if plain and self.masking and self.contiguous(s.address):
            self.statements += self.bordered_store(buffer, s, plain, masks)
            return
        with self.block() as inner:
            if lane not in s.address.names():
                assert not masks
                inner.append(vectors.stored(buffer, self.tir(s.value), self.scalar(s.address)))
            else:
                self.store_vector(buffer, s, masks)
        statement = sequence(inner)
        if plain:
            statement = tirx.IfThenElse(vectors.conjunction([self.condition(c) for c in plain]), statement, None)
        self.statements.append(statement)

    def bordered_store(self, buffer: tirx.Buffer, s: Store, plain: Sequence[Cond], masks: Sequence[Cond]) -> list[tirx.Stmt]:
        """A contiguous store without a branch: where a condition fails that holds for all lanes or none, no lane is written, at a valid address."""
        assert self.lane is not None
        width = self.lane.extent
        whole = vectors.conjunction([self.condition(c) for c in plain])
        mask = vectors.broadcast(vectors.conjunction([whole, *(self.condition(c) for c in masks)]), width)
        base = tirx.Select(whole, self.scalar(self.without_lane(s.address)), self.constant(0))
        return vectors.masked_store(buffer, base, mask, self.bind(self.tir(s.value, width)), self.widest)

    def store_vector(self, buffer: tirx.Buffer, s: Store, masks: Sequence[Cond]) -> None:
        assert self.lane is not None
        width = self.lane.extent
        written = self.tir(s.value, width)
        rest, contiguous = self.without_lane(s.address), self.contiguous(s.address)
        if contiguous and not masks:
            self.statements.append(vectors.stored(buffer, written, tirx.Ramp(self.scalar(rest), 1, width)))
        elif contiguous and (only := self.only_lane(masks)) is not None:
            self.statements.append(vectors.stored(buffer, tirx.Shuffle([written], [only]), self.scalar(rest + only)))
        elif contiguous:
            mask = vectors.conjunction([self.condition(c) for c in masks])
            self.statements += vectors.masked_store(buffer, self.scalar(rest), mask, self.bind(written), self.widest)
        else:
            self.scattered(buffer, s.address, masks, written)

    def only_lane(self, masks: Sequence[Cond]) -> int | None:
        """The one lane for which conditions hold that are about lanes alone; None where they are about more, or hold for another number of lanes.

        A masked store of one byte is compiled to one of as many as the number had before it was made a byte: LLVM writes over what follows.
        """
        assert self.lane is not None
        name = self.lane.name
        if any(c.index.names() != {name} for c in masks):
            return None
        numbers = [[(value(c.index, {name: n}), c.equal) for c in masks] for n in range(self.lane.extent)]
        held = [n for n, found in enumerate(numbers) if all(v == 0 if equal else v >= 0 for v, equal in found)]
        return held[0] if len(held) == 1 else None

    def scattered(self, buffer: tirx.Buffer, address: Index, masks: Sequence[Cond], value: Tir) -> None:
        """Lane by lane, through a local array."""
        assert self.lane is not None
        lane = self.lane
        spill = self.local(lane.extent, "spill")
        self.statements.append(tirx.BufferStore(spill, value, [tirx.Ramp(self.constant(0), 1, lane.extent)]))

        def one() -> None:
            where = self.scalar(address)
            statement = vectors.stored(buffer, tirx.BufferLoad(spill, [self.variables[lane.name]]), where)
            conds = [self.condition(c) for c in masks]
            self.statements.append(tirx.IfThenElse(vectors.conjunction(conds), statement, None) if conds else statement)

        with self.lanes(None):
            self.for_each(lane.name, lane.range, one)


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements)) if statements else tirx.Evaluate(tirx.const(0, "int32"))


def parallel_loops(plan: Plan, threads: int) -> int:
    """How many leading loops to share between threads: none for little work, else enough for a few chunks each."""
    extents = [i.extent for i in plan.order]
    limit = plan.lane_level if plan.lane is not None else len(plan.order)
    if threads < 2 or prod(i.extent for i in plan.nest.loops) * operations(plan.nest.expr) < PARALLEL_WORK:
        return 0
    for n in range(1, limit + 1):
        if prod(extents[:n]) >= 4 * threads:
            return n
    return limit if prod(extents[:limit]) > 1 else 0
