"""A sum of products of two arrays as one kernel whose copies of the operands are on their way while it multiplies.

The sum is walked in stages. A stage's copies are asked for some stages before they are used, each thread asks for its own, waits for them, and
meets the others; so that there is one barrier for a stage, and what is overwritten was used before it. Where blocks of a cluster share a tile
each walks its own part of the sum; they add their parts, each for a share of the tile, through each other's memory. On tensor cores operands are
rounded to 10 bits behind the point, to the nearest and ties away from zero, and sums are of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.cuda.contracted import Contracted
from einnet.instantiate.codegen.cuda.contracted_sizes import DEEP, PIECE, Stages, apart, copied
from einnet.instantiate.codegen.cuda.per_thread import bound
from einnet.instantiate.codegen.cuda.reduction_nest import SUM
from einnet.instantiate.codegen.cuda.tiles import Tiles
from einnet.instantiate.codegen.cuda.tiling import TOGETHER, WARP
from einnet.instantiate.codegen.ir import Load
from einnet.instantiate.codegen.nests import sequence

ROW, COLUMN, PART = "first row", "first column", "part"
"""Where the block's tile begins, and its number in the cluster."""


@dataclass(frozen=True)
class Side:
    """One operand's copies: in a stage they begin at `start`, `width` elements are copied at once, and `terms` of a line lie side by side or
    `lines` of a term do. The tile's lines begin where the variable `first` says, and are the loops `walked`."""

    load: Load
    walked: tuple[Iter, ...]
    first: str
    lines: int
    start: int
    terms: bool
    width: int


@dataclass(frozen=True)
class Element:
    """A sum in a register, and its place in the tile."""

    value: Tir
    row: Tir
    column: Tir


class Contracting(Tiles):
    """Writes the body of one thread."""

    def contract(self, form: Contracted, s: Stages) -> tirx.Stmt:
        """The kernel. Its blocks are numbered with those of a cluster side by side."""
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        down, across = ceil(form.height / s.rows), ceil(form.width / s.columns)
        with self.block() as body:
            here = self.offset(thread.astype(self.index_type))
            grid = [*form.outer, Iter(ROW, 0, down), Iter(COLUMN, 0, across), Iter(PART, 0, s.cluster)]
            self.spread(self.offset(block.astype(self.index_type)), grid)
            for name, size in ((ROW, s.rows), (COLUMN, s.columns)):
                self.variables[name] = self.offset(self.variables[name] * self.constant(size))
            memory, sides = self.shared(s.size), sides_of(form, s)
            sums = self.sums(s)
            self.walk_stages(form, s, memory, sides, here, sums)
            self.finish(form, s, memory, here, self.elements(s, here, sums))
        blocks = form.batches * down * across * s.cluster
        return bound(thread, s.threads, "threadIdx.x", sequence(body), outer=(block, blocks))

    def call(self, name: str, *arguments: Tir) -> None:
        """A function of the prelude."""
        self.statements.append(tirx.Evaluate(tirx.call_extern("void", f"einnet_{name}", *arguments)))

    def held(self, value: Tir) -> Tir:
        """A whole number in a register, of which nothing else is known: TVM would put its expression, choices and all, wherever it is read, and takes
        seconds to simplify what comes out."""
        kept = tirx.decl_buffer((1,), self.index_type, self.fresh("at"), scope="local")
        self.statements += [tirx.AllocBuffer(kept), tirx.BufferStore(kept, value, [0])]
        return tirx.BufferLoad(kept, [0])

    def places(self, size: int) -> Buffer:
        """Registers of a thread that are told from each other by number, all 0."""
        kept = tirx.decl_buffer((size,), "float32", self.fresh("sums"), scope="local")
        zero = tirx.const(0.0, "float32")
        self.statements += [tirx.AllocBuffer(kept), *(tirx.BufferStore(kept, zero, [n]) for n in range(size))]
        return kept

    # ------------------------------------------------------------------------------------------------------------ the stages

    def walk_stages(self, form: Contracted, s: Stages, memory: Buffer, sides: Sequence[Side], here: Tir, sums: Buffer) -> None:
        """The block's part of the sum. What lies beyond its end is copied as zeros, whose products add nothing.

        In each turn the copies of one stage are asked for, and those that were asked for `stages - 1` turns before are multiplied.
        """
        steps, ahead = ceil(ceil(form.terms / s.step) / s.cluster), s.stages - 1
        turn = self.variables["turn"] = tirx.Var(self.fresh("turn"), self.index_type)
        works = turn >= self.constant(ahead)
        with self.block() as body:
            with self.block() as arriving:
                self.call(f"wait<{ahead - 1}>")
                self.meet()
            body.append(tirx.IfThenElse(works, sequence(arriving), None))
            with self.block() as asked:
                first = self.held((self.variables[PART] * self.constant(steps) + turn) * self.constant(s.step))
                start = self.held(tirx.floormod(turn, self.constant(s.stages)) * self.constant(sum(s.sides)))
                for side in sides:
                    self.copy_side(form, s, memory, side, here, first, start)
            body.append(tirx.IfThenElse(turn < self.constant(steps), sequence(asked), None))
            self.call("commit")
            with self.block() as work:
                begin = tirx.floormod(turn + self.constant(1), self.constant(s.stages)) * self.constant(sum(s.sides))
                self.multiply(s, memory, sides, here, self.held(begin), sums)
            body.append(tirx.IfThenElse(works, sequence(work), None))
        self.statements.append(self.nested([Iter("turn", 0, steps + ahead)], sequence(body)))

    def copy_side(self, form: Contracted, s: Stages, memory: Buffer, side: Side, here: Tir, first: Tir, start: Tir) -> None:
        """One operand's copies of the stage whose terms begin at `first`, into memory from `start` on."""
        count = side.lines * s.step // side.width
        number = self.variables["number"] = tirx.Var(self.fresh("copy"), self.index_type)
        with self.block() as body:
            at = self.held(number * self.constant(s.threads) + here)
            with self.block() as one:
                self.copy_one(form, s, memory, side, at, first, start)
            body.append(tirx.IfThenElse(at < self.constant(count), sequence(one), None) if count % s.threads else sequence(one))
        self.statements.append(self.nested([Iter("number", 0, ceil(count / s.threads))], sequence(body)))

    def copy_one(self, form: Contracted, s: Stages, memory: Buffer, side: Side, at: Tir, first: Tir, start: Tir) -> None:
        """One copy of one or four elements, that of the number `at`; zeros where the nest has none."""
        down, along = (side.lines, s.step) if side.terms else (s.step, side.lines)
        self.spread(at, [Iter("outside", 0, down), Iter("inside", 0, along // side.width)])
        outside, inside = self.variables["outside"], self.offset(self.variables["inside"] * self.constant(side.width))
        line, term = (outside, inside) if side.terms else (inside, outside)
        conditions = [*self.placed(self.variables[side.first] + line, prod(i.extent for i in side.walked), side.lines, side.walked)]
        conditions += self.placed(first + term, form.terms, s.step * s.cluster, form.sums)
        for i in form.sums:
            self.variables[i.name] = self.offset(self.variables[i.name] + self.constant(i.lo))
        conditions += [self.condition(c) for c in side.load.guards]
        where, given = self.scalar(side.load.address), self.constant(1)
        if conditions:
            given = self.held(tirx.Select(tirx.all(*conditions), given, self.constant(0)))
            where = where * given
        kept = start + self.constant(side.start) + outside * self.constant(apart(side.lines, s.step, side.terms)) + inside
        source = tirx.BufferLoad(self.arrays[side.load.array], [where])
        self.call(f"copy_{4 * side.width}", tirx.address_of(tirx.BufferLoad(memory, [kept])), tirx.address_of(source), given.astype("int32"))

    def placed(self, at: Tir, extent: int, size: int, walked: Sequence[Iter]) -> list[Tir]:
        """Give iterators the values of that number, those of 0 where it is beyond; the condition that it is not, where it can be."""
        if extent % size == 0:
            self.spread(self.held(at), walked)
            return []
        at = self.held(at)
        inside = at < self.constant(extent)
        self.spread(self.held(tirx.Select(inside, at, self.constant(0))), walked)
        return [inside]

    # ---------------------------------------------------------------------------------------------------------- the products

    def sums(self, s: Stages) -> Buffer:
        return self.places(s.tall * s.wide * (4 if s.tensor else 1))

    def multiply(self, s: Stages, memory: Buffer, sides: Sequence[Side], here: Tir, start: Tir, sums: Buffer) -> None:
        """The products of a stage."""
        deep = DEEP if s.tensor else TOGETHER
        group = self.variables["group"] = tirx.Var(self.fresh("k"), self.index_type)
        with self.block() as body:
            term = self.offset(group * self.constant(deep))
            if s.tensor:
                self.in_pieces(s, memory, sides, here, start, term, sums)
            else:
                self.one_by_one(s, memory, sides, here, start, term, sums)
        self.statements.append(self.nested([Iter("group", 0, s.step // deep)], sequence(body)))

    def one_by_one(self, s: Stages, memory: Buffer, sides: Sequence[Side], here: Tir, start: Tir, term: Tir, sums: Buffer) -> None:
        """By multiply-adds of float32: four terms of each of the thread's elements."""
        line, lane = self.thread(s, here)
        rows = self.fragments(s, memory, sides[0], start, term, line, s.down, s.tall)
        columns = self.fragments(s, memory, sides[1], start, term, lane, s.across, s.wide)
        for k, i, j in product(range(TOGETHER), range(s.tall), range(s.wide)):
            self.add_to(sums, i * s.wide + j, rows[i][k] * columns[j][k])

    def thread(self, s: Stages, here: Tir) -> tuple[Tir, Tir]:
        """Where a thread, or a warp, stands along rows and along columns."""
        number = tirx.floordiv(here, self.constant(WARP)) if s.tensor else here
        return self.offset(tirx.floordiv(number, self.constant(s.across))), self.offset(tirx.floormod(number, self.constant(s.across)))

    def fragments(
        self, s: Stages, memory: Buffer, side: Side, start: Tir, term: Tir, own: Tir, lanes: int, count: int
    ) -> list[list[Tir]]:
        """Four terms of each of the thread's lines, in registers."""
        step, found = self.constant(apart(side.lines, s.step, side.terms)), [[tirx.const(0.0, "float32")] * TOGETHER for _ in range(count)]
        base = self.offset(start + self.constant(side.start))
        if side.terms:
            for n in range(count):
                place = self.offset(base + self.tile_line(True, own, lanes, count, n) * step + term)
                found[n] = [self.bind(tirx.BufferLoad(memory, [place + self.constant(k)])) for k in range(TOGETHER)]
            return found
        near = neighbours(count)
        for k, group in product(range(TOGETHER), range(0, count, near)):
            place = self.offset(base + (term + self.constant(k)) * step + self.tile_line(False, own, lanes, count, group))
            for n in range(near):
                found[group + n][k] = self.bind(tirx.BufferLoad(memory, [place + self.constant(n)]))
        return found

    def tile_line(self, terms: bool, own: Tir, lanes: int, count: int, n: int) -> Tir:
        """The thread's line of that number in the tile: neighbouring threads have neighbouring lines, or neighbouring groups of them."""
        near = 1 if terms else neighbours(count)
        return own * self.constant(near) + self.constant(n // near * lanes * near + n % near)

    def add_to(self, sums: Buffer, n: int, value: Tir) -> None:
        self.statements.append(tirx.BufferStore(sums, tirx.BufferLoad(sums, [n]) + value, [n]))

    def in_pieces(self, s: Stages, memory: Buffer, sides: Sequence[Side], here: Tir, start: Tir, term: Tir, sums: Buffer) -> None:
        """On tensor cores: pieces of 16x8 sums of 8 terms, of which each lane has some elements."""
        line, lane = self.thread(s, here)
        group, place = self.own_piece(here)
        above, beside = self.places(4 * s.tall), self.places(2 * s.wide)
        for i, (n, (down, later)) in product(range(s.tall), enumerate(product((0, 4), (0, 8)))):
            at = (line * self.constant(s.tall) + self.constant(i)) * self.constant(PIECE[0]) + group + self.constant(later)
            self.round(s, memory, sides[0], start, at, term + place + self.constant(down), above, 4 * i + n)
        for j, n in product(range(s.wide), range(2)):
            at = (lane * self.constant(s.wide) + self.constant(j)) * self.constant(PIECE[1]) + group
            self.round(s, memory, sides[1], start, at, term + place + self.constant(4 * n), beside, 2 * j + n)
        for i, j in product(range(s.tall), range(s.wide)):
            places = (sums, 4 * (i * s.wide + j)), (above, 4 * i), (beside, 2 * j)
            self.call("multiply_piece", *(tirx.address_of(tirx.BufferLoad(b, [n])) for b, n in places))

    def own_piece(self, here: Tir) -> tuple[Tir, Tir]:
        """A lane's row of a piece, and its place in it."""
        own = self.offset(tirx.floormod(here, self.constant(WARP)))
        return self.offset(tirx.floordiv(own, self.constant(4))), self.offset(tirx.floormod(own, self.constant(4)))

    def round(self, s: Stages, memory: Buffer, side: Side, start: Tir, line: Tir, term: Tir, into: Buffer, n: int) -> None:
        """An operand's element as tensor cores take it."""
        step = self.constant(apart(side.lines, s.step, side.terms))
        place = start + self.constant(side.start) + (line * step + term if side.terms else term * step + line)
        value = tirx.call_pure_extern("float32", "einnet_tf32", tirx.BufferLoad(memory, [self.offset(place)]))
        self.statements.append(tirx.BufferStore(into, value, [n]))

    # ----------------------------------------------------------------------------------------------------------- the results

    def elements(self, s: Stages, here: Tir, sums: Buffer) -> list[Element]:
        """The thread's sums with their places in the tile."""
        line, lane = self.thread(s, here)
        if s.tensor:
            group, place = self.own_piece(here)
            found = []
            for i, j, n in product(range(s.tall), range(s.wide), range(4)):
                row = (line * self.constant(s.tall) + self.constant(i)) * self.constant(PIECE[0]) + group + self.constant(n // 2 * 8)
                column = (lane * self.constant(s.wide) + self.constant(j)) * self.constant(PIECE[1]) + place * self.constant(2) + self.constant(n % 2)
                found.append(Element(tirx.BufferLoad(sums, [4 * (i * s.wide + j) + n]), row, column))
            return found

        rows = [self.offset(self.tile_line(s.above, line, s.down, s.tall, i)) for i in range(s.tall)]
        columns = [self.offset(self.tile_line(s.beside, lane, s.across, s.wide, j)) for j in range(s.wide)]
        return [Element(tirx.BufferLoad(sums, [i * s.wide + j]), rows[i], columns[j]) for i, j in product(range(s.tall), range(s.wide))]

    def finish(self, form: Contracted, s: Stages, memory: Buffer, here: Tir, found: Sequence[Element]) -> None:
        """Sums go to shared memory, from where neighbouring threads take what is neighbours in the result. Blocks of a cluster leave theirs to each
        other; each adds those of its share of the tile. None goes while it is read."""
        self.call("wait<0>")
        self.meet()
        for e in found:
            place = e.row * self.constant(s.columns) + e.column
            self.statements.append(tirx.BufferStore(memory, e.value, [self.offset(place)]))
        clustered = s.cluster > 1
        self.call("meet_cluster") if clustered else self.meet()
        share = s.rows * s.columns // s.cluster
        turn = self.variables["share"] = tirx.Var(self.fresh("turn"), self.index_type)
        with self.block() as body:
            own = self.offset(self.variables[PART] * self.constant(share) + turn * self.constant(s.threads) + here)
            kept = tirx.BufferLoad(memory, [own])
            if clustered:
                parts = [tirx.call_extern("float32", "einnet_of_block", tirx.address_of(kept), tirx.const(n, "int32")) for n in range(s.cluster)]
                kept = self.bind(parts[0])
                for part in parts[1:]:
                    kept = self.bind(kept + part)
            columns = self.constant(s.columns)
            self.end(form, s, Element(kept, tirx.floordiv(own, columns), tirx.floormod(own, columns)))
            whole = sequence(body)
        self.statements.append(self.nested([Iter("share", 0, share // s.threads)], whole))
        if clustered:
            self.call("meet_cluster")

    def end(self, form: Contracted, s: Stages, e: Element) -> None:
        """What is done with a sum, and the store, where the tile's place is one of the nest."""
        with self.block() as inner:
            conditions = self.placed(self.variables[ROW] + e.row, form.height, s.rows, form.down)
            conditions += self.placed(self.variables[COLUMN] + e.column, form.width, s.columns, form.across)
            with self.block() as one:
                self.memo[-1][SUM] = e.value
                self.store(replace(form.nest, expr=form.rest), {})
            inner.append(tirx.IfThenElse(tirx.all(*conditions), sequence(one), None) if conditions else sequence(one))
        self.statements += inner


def sides_of(form: Contracted, s: Stages) -> tuple[Side, Side]:
    """The copies of both operands in a stage: rows first."""
    above = Side(form.rows, form.down, ROW, s.rows, 0, s.above, s.high)
    return above, Side(form.columns, form.across, COLUMN, s.columns, copied(s.rows, s.step, s.above), s.beside, s.broad)


def neighbours(count: int) -> int:
    """Lines of a thread that lie side by side."""
    return next(n for n in (4, 2, 1) if count % n == 0)

