"""A nest as blocks of threads that share memory: turned tiles, and long reductions by all threads of a block together.

A turned tile is read along the direction in which a load walks memory and written along that of the store. A long reduction is split over the
threads of a block, whose parts are exchanged within warps and then between them. Exponentials under their maximum are `rescaling`. Other nests
around one reduction are `tiles`, or `contracting` for products of two arrays where the model of the device says so. All else is `threads`: one
element for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen import mathfunctions
from einnet.instantiate.codegen.cuda.contracted_sizes import Stages, faster
from einnet.instantiate.codegen.cuda.contracting import Contracting
from einnet.instantiate.codegen.cuda.per_thread import THREADS, bound, ordered, unrolled
from einnet.instantiate.codegen.cuda.rescaled_sizes import walked
from einnet.instantiate.codegen.cuda.rescaling import Rescaling
from einnet.instantiate.codegen.cuda.rowwise import Row, row
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import block_cycles
from einnet.instantiate.codegen.ir import Expr, Load, Nest, Ranges, Reduce, Use, children, expand, simplified, walk, weights
from einnet.instantiate.codegen.nests import sequence
from einnet.instantiate.codegen.schedule import accesses
from einnet.instantiate.codegen.values import NEUTRAL

TILE = 32
"""Rows and columns of a turned tile: the threads of a warp. A column more keeps them apart in shared memory's banks."""

LONG, FEW = 64, 1 << 15
"""A reduction of so many terms is shared by a block where there are at most so many elements, ..."""

LONG_ROW, MANY = 128, 1 << 22
"""... or where its terms are neighbours in memory and those of neighbouring elements are not."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A load whose neighbours in memory are neighbours along `rows`, where those of the store are neighbours along `columns`."""

    load: Load
    rows: Iter
    columns: Iter


def turned(nest: Nest) -> Turn | None:
    """The one load of an elementwise nest that would be scattered; None where there is none or are several, or tiles would be mostly empty."""
    expr = simplified(nest.expr, nest.ranges)
    if any(isinstance(e, (Reduce, Use)) for e in walk(expr)) or nest.outer:
        return None
    columns = next((i for i in nest.loops if abs(nest.address.coefficient(i.name)) == 1), None)
    if columns is None or columns.extent < TILE // 2:
        return None
    scattered = [e for e in dict.fromkeys(walk(expr)) if isinstance(e, Load) and abs(e.address.coefficient(columns.name)) > 1]
    if len(scattered) != 1:
        return None
    (load,) = scattered
    rows = next((i for i in nest.loops if abs(load.address.coefficient(i.name)) == 1), None)
    return Turn(load, rows, columns) if rows is not None and rows.extent >= TILE // 2 else None


def outer_reductions(e: Expr, ranges: Ranges) -> Iterator[Reduce]:
    """Reductions that stand in no other one."""
    if isinstance(e, Reduce):
        yield e
    elif isinstance(e, Use):
        yield from outer_reductions(simplified(expand(e), ranges), ranges)
    else:
        for a in children(e):
            yield from outer_reductions(a, ranges)


def team(nest: Nest) -> int:
    """How many threads compute an element together; 0 for one that works alone."""
    if unrolled(nest):
        return 0
    found = [e for e in outer_reductions(simplified(nest.expr, nest.ranges), nest.ranges) if not weights(e, nest.tables)]
    longest = max(found, key=length, default=None)
    if longest is None:
        return 0
    elements = prod(i.extent for i in nest.loops)
    few = length(longest) >= LONG and elements <= FEW
    rows = length(longest) >= LONG_ROW and elements <= MANY and walks(nest, longest)
    return max(TILE, min(THREADS, 1 << (length(longest) // 4).bit_length() - 1)) if few or rows else 0


def length(e: Reduce) -> int:
    return prod(i.extent for i in e.sums)


def walks(nest: Nest, e: Reduce) -> bool:
    """Every load walks memory along the reduction, or does not depend on it, and none along the loops."""
    touched = [a.address for a in accesses(e.body)]
    along = any(abs(t.coefficient(i.name)) == 1 for t in touched for i in e.sums)
    return along and not any(abs(t.coefficient(i.name)) == 1 for t in touched for i in nest.loops)


class Blocks(Rescaling, Contracting):
    """Writes the body of one thread of a block that may share memory."""

    def __init__(self, arrays: Mapping[str, Buffer], tables: Mapping[str, Mapping[int, float]], index_type: str) -> None:
        super().__init__(arrays, tables, index_type)
        self.together: tuple[Tir, int] | None = None
        self.tensor_cores = False
        """Products may be of numbers with 10 bits behind the point."""
        self.stages: Stages | None = None
        """How the kernel that was written walks its sum in stages, where it does."""

    def grid(self, nest: Nest, exact: bool = False) -> tirx.Stmt:
        """The kernel of a normalised nest; no element is written twice where that is asked for."""
        turn = turned(nest)
        if turn is not None:
            return self.tiled(nest, turn)
        summed = walked(nest) if not exact else None
        if summed is not None:
            return self.rescale(summed.form, summed.sizes)
        rows = row(nest) if not exact and any(isinstance(e, Use) for e in walk(nest.expr)) else None
        if rows is not None:
            return self.by_rows(nest, rows)
        found, threads = tile(nest, exact), team(nest)
        ahead = faster(nest, self.tensor_cores) if not exact else None
        if ahead is not None:
            self.stages = ahead.sizes
            return self.contract(ahead.form, ahead.sizes)
        if found is not None and (not threads or found.cycles <= block_cycles(found, threads)):
            return self.tile(found)
        return self.shared_out(nest, threads) if threads else super().grid(nest, exact)

    # ---------------------------------------------------------------------------------------------------------------- tiles

    def tiled(self, nest: Nest, turn: Turn) -> tirx.Stmt:
        """Each block turns one tile; a thread holds every eighth of a row's or column's elements."""
        others = [i for i in nest.loops if i not in (turn.rows, turn.columns)]
        down, across = (Iter(f"tile {i.name}", 0, -(-i.extent // TILE)) for i in (turn.rows, turn.columns))
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        with self.block() as body:
            tile = self.shared(TILE * (TILE + 1))
            here = self.offset(thread.astype(self.index_type))
            lane, line = (self.offset(f(here, self.constant(TILE))) for f in (tirx.floormod, tirx.floordiv))
            self.spread(self.offset(block.astype(self.index_type)), [*others, down, across])
            first = {i.name: self.offset(self.variables[t.name] * self.constant(TILE)) for i, t in ((turn.rows, down), (turn.columns, across))}
            lines = range(0, TILE, THREADS // TILE)
            for n in lines:
                with self.element(turn, {turn.rows.name: first[turn.rows.name] + lane, turn.columns.name: first[turn.columns.name] + line + n}):
                    value = self.value(turn.load, nest.ranges)
                    self.statements.append(tirx.BufferStore(tile, value, [(line + n) * self.constant(TILE + 1) + lane]))
            self.meet()
            for n in lines:
                with self.element(turn, {turn.rows.name: first[turn.rows.name] + line + n, turn.columns.name: first[turn.columns.name] + lane}):
                    self.memo[-1][turn.load] = self.bind(tirx.BufferLoad(tile, [lane * self.constant(TILE + 1) + line + n]))
                    self.store(nest, {})
        blocks = prod(i.extent for i in (*others, down, across))
        return bound(thread, THREADS, "threadIdx.x", sequence(body), outer=(block, blocks))

    @contextmanager
    def element(self, turn: Turn, place: Mapping[str, Tir]) -> Iterator[None]:
        """What is written inside is done where the place lies in the nest."""
        with self.block() as inner:
            for name, value in place.items():
                self.variables[name] = value
            yield
        inside = [self.variables[i.name] < self.constant(i.extent) for i in (turn.rows, turn.columns) if i.extent % TILE]
        self.statements.append(tirx.IfThenElse(tirx.all(*inside), sequence(inner), None) if inside else sequence(inner))

    # ----------------------------------------------------------------------------------------------------------- reductions

    def by_rows(self, nest: Nest, rows: Row) -> tirx.Stmt:
        """Each warp, or each block where rows are long, reduces its row as often as is needed and writes it."""
        threads = TILE if rows.length <= TILE * TILE else THREADS
        each, total = max(1, THREADS // 2 // threads), prod(i.extent for i in rows.outer)
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        with self.block() as body:
            here = self.offset(thread.astype(self.index_type))
            number = block.astype(self.index_type) * self.constant(each) + tirx.floordiv(here, self.constant(threads))
            self.spread(self.offset(tirx.min(number, self.constant(total - 1)) if total % each else number), rows.outer)
            lane = self.offset(tirx.floormod(here, self.constant(threads)))
            for key, e in rows.reductions:
                self.memo[-1][key] = self.bind(self.by_all(e, nest.ranges, lane, threads))
            self.written(replace(nest, expr=rows.rest), rows.inner, lane, threads)
        return bound(thread, threads * each, "threadIdx.x", sequence(body), outer=(block, -(-total // each)))

    def written(self, nest: Nest, loops: Sequence[Iter], here: Tir, threads: int) -> None:
        """The elements of a row, each thread every so many."""
        step, total = tirx.Var(self.fresh("k"), self.index_type), prod(i.extent for i in loops)
        with self.block() as body:
            number = self.offset(step * self.constant(threads) + here)
            with self.block() as inner:
                self.spread(number, ordered(nest, loops))
                self.store(nest, {})
            body.append(tirx.IfThenElse(number < self.constant(total), sequence(inner), None) if total % threads else sequence(inner))
        self.statements.append(tirx.For(step, self.constant(0), self.constant(-(-total // threads)), tirx.ForKind.SERIAL, sequence(body)))

    def shared_out(self, nest: Nest, threads: int) -> tirx.Stmt:
        """Each block computes one element."""
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        with self.block() as body:
            self.spread(self.offset(block.astype(self.index_type)), ordered(nest, nest.loops))
            here = self.offset(thread.astype(self.index_type))
            self.together = (here, threads)
            self.store(nest, {})
            self.statements[-1] = tirx.IfThenElse(tirx.EQ(here, self.constant(0)), self.statements[-1], None)
        return bound(thread, threads, "threadIdx.x", sequence(body), outer=(block, prod(i.extent for i in nest.loops)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What is written inside is done by each thread for itself."""
        kept, self.together = self.together, None
        try:
            yield
        finally:
            self.together = kept

    def reduction(self, e: Reduce, ranges: Ranges) -> Tir:
        """By the threads of the block together where they work together and it is long."""
        if self.together is None or length(e) < LONG or weights(e, self.tables.keys()):
            with self.alone():
                return super().reduction(e, ranges)
        return self.by_all(e, ranges, *self.together)

    def by_all(self, e: Reduce, ranges: Ranges, here: Tir, threads: int) -> Tir:
        """A reduction of which each of so many threads does its share."""
        kept = self.register(tirx.const(NEUTRAL[e.op], "float32"))
        inside = {**ranges, **{i.name: i.range for i in e.sums}}
        step = tirx.Var(self.fresh("k"), self.index_type)
        with self.block() as body, self.alone():
            number = self.offset(step * self.constant(threads) + here)
            with self.block() as inner:
                self.spread(number, self.walked(e))
                for i in e.sums:
                    self.variables[i.name] = self.offset(self.variables[i.name] + self.constant(i.lo))
                value = self.value(simplified(e.body, inside), inside)
                inner.append(tirx.BufferStore(kept, self.combined(e.op, tirx.BufferLoad(kept, [0]), value), [0]))
            whole = sequence(inner)
            body.append(tirx.IfThenElse(number < self.constant(length(e)), whole, None) if length(e) % threads else whole)
        steps = self.constant(-(-length(e) // threads))
        self.statements.append(tirx.For(step, self.constant(0), steps, tirx.ForKind.SERIAL, sequence(body)))
        return self.tree(e.op, tirx.BufferLoad(kept, [0]), here, threads)

    def walked(self, e: Reduce) -> Sequence[Iter]:
        """The iterators, the one along which loads walk memory last."""
        touched = [a.address for a in accesses(e.body)]
        return sorted(e.sums, key=lambda i: -min((abs(t.coefficient(i.name)) or 1 << 40 for t in touched), default=0))

    def tree(self, op: str, part: Tir, here: Tir, threads: int) -> Tir:
        """The parts of all threads as one value, which every thread gets: lanes of a warp by exchange, warps through shared memory."""
        kept = self.register(part)
        self.among_lanes(op, kept, TILE)
        warps = threads // TILE
        if warps > 1:
            parts = self.shared(warps)
            store = tirx.BufferStore(parts, tirx.BufferLoad(kept, [0]), [tirx.floordiv(here, self.constant(TILE))])
            self.statements.append(tirx.IfThenElse(tirx.EQ(tirx.floormod(here, self.constant(TILE)), self.constant(0)), store, None))
            self.meet()
            self.statements.append(tirx.BufferStore(kept, tirx.BufferLoad(parts, [tirx.floormod(here, self.constant(warps))]), [0]))
            self.among_lanes(op, kept, warps)
        return tirx.BufferLoad(kept, [0])

    def combined(self, op: str, a: Tir, b: Tir) -> Tir:
        return mathfunctions.BINARY[op](a, b, self.bind)
