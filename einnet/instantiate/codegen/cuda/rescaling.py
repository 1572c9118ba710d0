"""A nest of exponentials under their maximum as one kernel that stores no scores: tile by tile of the keys, under the maximum of what was seen.

Where a tile raises a row's maximum from m to M, the row's sums are multiplied by exp(m-M): the rule *rescale*, tile after tile. Nothing is
subtracted while the maximum is -∞; a row in which it stays so has no value, as the nest has none there. Tiles in which every score is
-∞ by its conditions are not walked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import ceil, inf

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen.cuda.per_thread import bound
from einnet.instantiate.codegen.cuda.rescaled import GREATEST, MEAN, SCORE, TOTAL, Rescaled
from einnet.instantiate.codegen.cuda.rescaled_sizes import Sizes, borders
from einnet.instantiate.codegen.cuda.tiles import Tiles
from einnet.instantiate.codegen.cuda.tiling import TOGETHER, pitch
from einnet.instantiate.codegen.ir import Expr, Load, Ranges, simplified, walk
from einnet.instantiate.codegen.nests import sequence

ROW, COLUMN, KEY, LANE, LINE = "first row", "first column", "first key", "lane", "line"
"""Where a block and a tile begin, and the thread's place along keys and along rows."""

Place = Callable[[Tir], Tir | None]
"""Gives iterators their values at a place of a copy; what is outside of the nest stands at its last element, and the condition is not to."""


class Rescaling(Tiles):
    """Writes the body of one thread."""

    def rescale(self, form: Rescaled, s: Sizes) -> tirx.Stmt:
        """The kernel."""
        block, thread = (tirx.Var(tag, "int32") for tag in ("blockIdx_x", "threadIdx_x"))
        down, across = ceil(form.height / s.rows), ceil(form.width / s.columns)
        with self.block() as body:
            here = self.offset(thread.astype(self.index_type))
            self.spread(self.offset(block.astype(self.index_type)), [*form.outer, Iter(ROW, 0, down), Iter(COLUMN, 0, across)])
            for name, size in ((ROW, s.rows), (COLUMN, s.columns)):
                self.variables[name] = self.offset(self.variables[name] * self.constant(size))
            self.spread(here, [Iter(LINE, 0, s.down), Iter(LANE, 0, s.across)])
            sizes = s.rows * pitch(s.inner), s.step * pitch(s.inner), s.step * s.columns, s.rows * pitch(s.step)
            rows, keys, values, raised = map(self.shared, sizes)
            self.copy(s, here, rows, form.rows, form, (s.rows, self.row_of(form, s)), (s.inner, self.term_of(form)), pitch(s.inner))
            top, total = ([self.register(tirx.const(v, "float32")) for _ in range(s.tall)] for v in (-inf, 0.0))
            means = [[self.register(tirx.const(0.0, "float32")) for _ in range(s.deep)] for _ in range(s.tall)]
            tile = self.variables["tile"] = tirx.Var(self.fresh("tile"), self.index_type)
            with self.block() as inner:
                self.variables[KEY] = self.offset(tile * self.constant(s.step))
                conditions = self.needed(form, s)
                with self.block() as one:
                    self.meet()
                    terms, width = (s.inner, self.term_of(form)), (s.columns, self.column_of(form, s))
                    self.copy(s, here, keys, form.keys, form, (s.step, self.key_of(form, s)), terms, pitch(s.inner))
                    self.copy(s, here, values, form.values, form, (s.step, self.key_of(form, s)), width, s.columns)
                    self.meet()
                    scores = self.products(s, rows, keys)
                    self.weigh(form, s, scores, top, total, means, raised)
                    self.meet()
                    self.gather(s, raised, values, means)
                inner.append(tirx.IfThenElse(tirx.all(*conditions), sequence(one), None) if conditions else sequence(one))
            body.append(self.nested([Iter("tile", 0, ceil(form.over.extent / s.step))], sequence(inner)))
            self.ending(form, s, top, total, means)
        return bound(thread, s.threads, "threadIdx.x", sequence(body), outer=(block, form.batches * down * across))

    # --------------------------------------------------------------------------------------------------- places in the nest

    def clamped(self, at: Tir, extent: int, size: int) -> tuple[Tir, Tir | None]:
        """The place, or the last one where it is beyond, and that it is none of these; tiles of that size may leave nothing to ask."""
        if extent % size == 0:
            return self.offset(at), None
        return self.offset(tirx.min(at, self.constant(extent - 1))), at < self.constant(extent)

    def set(self, place: Place, at: Tir) -> tuple[dict[str, Tir], Tir | None]:
        """The iterators that a place gives values to, with these, and its condition."""
        before = dict(self.variables)
        inside = place(at)
        return {n: v for n, v in self.variables.items() if before.get(n) is not v}, inside

    def row_of(self, form: Rescaled, s: Sizes) -> Place:
        def at(line: Tir) -> Tir | None:
            number, inside = self.clamped(self.variables[ROW] + line, form.height, s.rows)
            self.spread(number, form.queries)
            return inside

        return at

    def column_of(self, form: Rescaled, s: Sizes) -> Place:
        def at(line: Tir) -> Tir | None:
            number, inside = self.clamped(self.variables[COLUMN] + line, form.width, s.columns)
            self.spread(number, form.columns)
            return inside

        return at

    def key_of(self, form: Rescaled, s: Sizes) -> Place:
        def at(line: Tir) -> Tir | None:
            number, inside = self.clamped(self.variables[KEY] + line, form.over.extent, s.step)
            self.variables[form.over.name] = self.offset(number + self.constant(form.over.lo))
            return inside

        return at

    def term_of(self, form: Rescaled) -> Place:
        def at(line: Tir) -> Tir | None:
            number, inside = self.clamped(line, form.terms, TOGETHER)
            self.spread(number, form.inner)
            for i in form.inner:
                self.variables[i.name] = self.offset(self.variables[i.name] + self.constant(i.lo))
            return inside

        return at

    def spans(self, form: Rescaled) -> Ranges:
        """Of all iterators."""
        return {**form.nest.ranges, form.over.name: form.over.range, **{i.name: i.range for i in form.inner}}

    # ------------------------------------------------------------------------------------------------------------- the tiles

    def copy(
        self, s: Sizes, here: Tir, into: Buffer, e: Expr, form: Rescaled, down: tuple[int, Place], across: tuple[int, Place], apart: int
    ) -> None:
        """Copy the values of an expression into rows, 0 where the nest has none: neighbouring threads take what lies together in memory."""
        (lines, line), (width, place) = down, across
        along = {*(i.name for i in form.inner[-1:]), *(i.name for i in form.columns[-1:])}
        near = any(abs(x.address.coefficient(n)) == 1 for x in walk(e) if isinstance(x, Load) for n in along)
        order = [Iter("down", 0, lines), Iter("across", 0, width)]
        turn = self.variables["turn"] = tirx.Var(self.fresh("turn"), self.index_type)
        with self.block() as body:
            number = self.offset(turn * self.constant(s.threads) + here)
            with self.block() as inner:
                self.spread(number, order if near else order[::-1])
                at = self.variables["down"], self.variables["across"]
                inside = [c for c in (line(at[0]), place(at[1])) if c is not None]
                found = self.value(simplified(e, self.spans(form)), self.spans(form))
                found = tirx.Select(tirx.all(*inside), found, tirx.const(0.0, "float32")) if inside else found
                inner.append(tirx.BufferStore(into, found, [at[0] * self.constant(apart) + at[1]]))
            whole, elements = sequence(inner), lines * width
            body.append(tirx.IfThenElse(number < self.constant(elements), whole, None) if elements % s.threads else whole)
        self.statements.append(self.nested([Iter("turn", 0, -(-elements // s.threads))], sequence(body)))

    def neighbours(self, kept: Buffer, at: Tir, count: int) -> list[Tir]:
        """Neighbours of a copy."""
        return [self.bind(tirx.BufferLoad(kept, [at + self.constant(n)])) for n in range(count)]

    def line(self, s: Sizes, n: int) -> Tir:
        """The thread's row of that number, in the block."""
        return self.variables[LINE] + self.constant(n * s.down)

    def products(self, s: Sizes, rows: Buffer, keys: Buffer) -> list[list[Buffer]]:
        """The inner sums of a thread's scores."""
        kept = [[self.register(tirx.const(0.0, "float32")) for _ in range(s.wide)] for _ in range(s.tall)]
        term = self.variables["term"] = tirx.Var(self.fresh("k"), self.index_type)
        with self.block() as body:
            first = self.offset(term * self.constant(TOGETHER))
            above = [self.neighbours(rows, self.line(s, i) * self.constant(pitch(s.inner)) + first, TOGETHER) for i in range(s.tall)]
            for j in range(s.wide):
                place = (self.variables[LANE] + self.constant(j * s.across)) * self.constant(pitch(s.inner)) + first
                beside = self.neighbours(keys, place, TOGETHER)
                for i, n in product(range(s.tall), range(TOGETHER)):
                    self.add(kept[i][j], above[i][n] * beside[n])
        self.statements.append(self.nested([Iter("term", 0, s.inner // TOGETHER)], sequence(body)))
        return kept

    def add(self, kept: Buffer, value: Tir) -> None:
        self.statements.append(tirx.BufferStore(kept, tirx.BufferLoad(kept, [0]) + value, [0]))

    def weigh(
        self, form: Rescaled, s: Sizes, scores: Sequence[Sequence[Buffer]], top: Sequence[Buffer], total: Sequence[Buffer],
        means: Sequence[Sequence[Buffer]], raised: Buffer,
    ) -> None:  # fmt: skip
        """Scores become exponentials under the new maximum, and what was summed under the old one is multiplied by what that is less."""
        lines = [self.set(self.row_of(form, s), self.line(s, i)) for i in range(s.tall)]
        keys = [self.set(self.key_of(form, s), self.variables[LANE] + self.constant(j * s.across)) for j in range(s.wide)]
        for i in range(s.tall):
            most = self.register(tirx.const(-inf, "float32"))
            for (place, inside), score in zip(keys, scores[i], strict=True):
                self.scored(form, {**lines[i][0], **place}, inside, score)
                self.raise_to(most, tirx.BufferLoad(score, [0]))
            for bit in range(s.across.bit_length() - 1):
                self.raise_to(most, self.exchanged(most, 1 << bit))
            old, low = tirx.BufferLoad(top[i], [0]), tirx.const(-inf, "float32")
            self.raise_to(most, old)
            level = tirx.BufferLoad(most, [0])
            under = self.bind(tirx.Select(tirx.EQ(level, low), tirx.const(0.0, "float32"), level))
            less = self.bind(self.applied("exp", [old - under]))
            self.statements.append(tirx.BufferStore(top[i], level, [0]))
            for kept in (total[i], *means[i]):
                self.statements.append(tirx.BufferStore(kept, tirx.BufferLoad(kept, [0]) * less, [0]))
            for j, score in enumerate(scores[i]):
                weight = self.bind(self.applied("exp", [tirx.BufferLoad(score, [0]) - under]))
                self.add(total[i], weight)
                place = self.line(s, i) * self.constant(pitch(s.step)) + self.variables[LANE] + self.constant(j * s.across)
                self.statements.append(tirx.BufferStore(raised, weight, [place]))

    def raise_to(self, most: Buffer, value: Tir) -> None:
        """The greater of both; what is no number is left out, for its exponential is none either, and so is each sum of the row."""
        now = tirx.call_pure_extern("float32", "fmaxf", tirx.BufferLoad(most, [0]), value)
        self.statements.append(tirx.BufferStore(most, now, [0]))

    def scored(self, form: Rescaled, at: Mapping[str, Tir], inside: Tir | None, score: Buffer) -> None:
        """The score of an inner sum; -∞ beyond the last key."""
        with self.block() as inner:
            self.variables.update(at)
            self.memo[-1][SCORE] = tirx.BufferLoad(score, [0])
            found = self.value(simplified(form.score, self.spans(form)), self.spans(form))
            if inside is not None:
                found = tirx.Select(inside, found, tirx.const(-inf, "float32"))
            inner.append(tirx.BufferStore(score, found, [0]))
        self.statements += inner

    def gather(self, s: Sizes, raised: Buffer, values: Buffer, means: Sequence[Sequence[Buffer]]) -> None:
        """The tile's part of the weighted sums."""
        step = self.variables["step"] = tirx.Var(self.fresh("k"), self.index_type)
        with self.block() as body:
            first = self.offset(step * self.constant(TOGETHER))
            weights = [self.neighbours(raised, self.line(s, i) * self.constant(pitch(s.step)) + first, TOGETHER) for i in range(s.tall)]
            for n, group in product(range(TOGETHER), range(0, s.deep, s.near)):
                place = (first + self.constant(n)) * self.constant(s.columns) + self.column(s, group)
                for k, v in enumerate(self.neighbours(values, place, s.near)):
                    for i in range(s.tall):
                        self.add(means[i][group + k], weights[i][n] * v)
        self.statements.append(self.nested([Iter("step", 0, s.step // TOGETHER)], sequence(body)))

    def column(self, s: Sizes, k: int) -> Tir:
        """The thread's column of that number, in the block: groups of neighbours lie side by side."""
        return self.variables[LANE] * self.constant(s.near) + self.constant(k // s.near * s.across * s.near + k % s.near)

    # ----------------------------------------------------------------------------------------------------------- the results

    def ending(
        self, form: Rescaled, s: Sizes, top: Sequence[Buffer], total: Sequence[Buffer], means: Sequence[Sequence[Buffer]]
    ) -> None:
        """What is done with the sums, and the store. A row whose maximum is infinite has no value: 0 times it is 0 for all others."""
        columns = [self.set(self.column_of(form, s), self.column(s, k)) for k in range(s.deep)]
        for i in range(s.tall):
            self.among_lanes("sum", total[i], s.across)
            level = tirx.BufferLoad(top[i], [0])
            zero = tirx.const(0.0, "float32")
            whole, *sums = (
                self.bind(tirx.call_pure_extern("float32", "fmaf", level, zero, tirx.BufferLoad(kept, [0]))) for kept in (total[i], *means[i])
            )
            below = self.row_of(form, s)(self.line(s, i))
            for (place, beside), mean in zip(columns, sums, strict=True):
                with self.block() as inner:
                    self.variables.update(place)
                    self.memo[-1] |= {GREATEST: level, TOTAL: whole, MEAN: mean}
                    found = self.value(simplified(form.rest, self.spans(form)), self.spans(form))
                    store: tirx.Stmt = tirx.BufferStore(self.arrays[form.nest.array], found, [self.scalar(form.nest.address)])
                    for guard in form.nest.guards:
                        store = tirx.IfThenElse(self.condition(guard), store, None)
                    checked = [c for c in (below, beside) if c is not None]
                    inner.append(tirx.IfThenElse(tirx.all(*checked), store, None) if checked else store)
                self.statements += inner

    # ------------------------------------------------------------------------------------------------ tiles that add nothing

    def needed(self, form: Rescaled, s: Sizes) -> list[Tir]:
        """The tile may have a score that is not -∞: each condition may hold in one of its corners, on one side of the border or at it."""
        limits = borders(form)
        if not limits:
            return []
        extent = self.constant(form.queries[-1].extent if form.queries else 1)
        least = self.variables[ROW]
        most, _ = self.clamped(least + self.constant(s.rows - 1), form.height, s.rows)
        same = tirx.EQ(tirx.floordiv(least, extent), tirx.floordiv(most, extent))
        rows = (
            self.offset(tirx.Select(same, tirx.floormod(least, extent), self.constant(0))),
            self.offset(tirx.Select(same, tirx.floormod(most, extent), extent - self.constant(1))),
        )
        last, _ = self.clamped(self.variables[KEY] + self.constant(s.step - 1), form.over.extent, s.step)
        keys = [self.offset(k + self.constant(form.over.lo)) for k in (self.variables[KEY], last)]
        found: list[Tir] = []
        for b in limits:
            corners = [self.corner(b.condition, {b.row: r, b.key: k}) for r, k in product(rows, keys)]
            found.append(tirx.any(*(c >= self.constant(0) for c in corners)))
            if b.condition.equal:
                found.append(tirx.any(*(c <= self.constant(0) for c in corners)))
        return found

    def corner(self, condition: Cond, at: Mapping[str, Tir]) -> Tir:
        """The value of a condition's index there."""
        self.variables.update(at)
        return self.scalar(condition.index)
