"""The text of blocks of rows: their arrays, the loops around them, and the nests of each block one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from tvm import tirx

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.panels import chosen
from einnet.instantiate.codegen.blocking.rows import Rows
from einnet.instantiate.codegen.blocking.steps import Inner, Step
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Nest
from einnet.instantiate.codegen.nests import Nesting, sequence


class Blocking(Nesting):
    """Statements of nests, in blocks of rows where that shares what rows have in common."""

    def nest(self, nest: Nest) -> None:
        """Write the nest."""
        with self.lanes(None):
            found = chosen(normalise(nest), self.threads, self.widest) if all(i.extent > 0 for i in nest.loops) else None
            for blocks in found or ():
                self.blocks(blocks)
        if not found:
            super().nest(nest)

    def blocks(self, rows: Rows) -> None:
        """All blocks, shared out to threads where there are several: together with what they read packed, if it is."""
        shared = rows.around if rows.packs else (*rows.around, *rows.blocks)
        count = prod(i.extent for i in shared)
        if self.threads < 2 or count < 2:
            self.arrays_of(rows)
            self.around(rows.around, partial(self.prepared, rows, rows.blocks))
            return
        self.parallel = True
        v = tirx.Var(self.fresh("thread"), self.index_type)
        threads, self.threads = self.threads, 1
        with self.block() as inner:
            after = count
            for i in shared:
                after //= i.extent
                digit = tirx.floormod(tirx.floordiv(v, self.constant(after)), self.constant(i.extent))
                self.variables[i.name] = self.offset(digit)
            with self.frame():
                self.arrays_of(rows)
                self.prepared(rows, rows.blocks if rows.packs else ())
        self.threads = threads
        self.statements.append(tirx.For(v, self.constant(0), self.constant(count), tirx.ForKind.PARALLEL, sequence(inner)))

    def arrays_of(self, rows: Rows) -> None:
        """Memory for one block."""
        for fill in rows.packs:
            self.arrays[fill.array] = self.local(fill.size, "rows")
        for room in rows.rooms:
            place = self.local(max(fill.size for fill in room), "rows")
            self.arrays |= {fill.array: place for fill in room}

    def around(self, loops: Sequence[Iter], body: Callable[[], None]) -> None:
        if loops:
            self.for_each(loops[0].name, loops[0].range, partial(self.around, loops[1:], body))
        else:
            body()

    def prepared(self, rows: Rows, blocks: Sequence[Iter]) -> None:
        """What all blocks read, then the blocks."""
        for fill in rows.packs:
            super().nest(fill.nest)
        self.around(blocks, partial(self.steps, rows))

    def steps(self, rows: Rows) -> None:
        """One block."""
        self.filled(rows.steps)
        super().nest(rows.last)

    def filled(self, steps: Sequence[Step]) -> None:
        """The arrays of a block, one after the other."""
        for step in steps:
            if isinstance(step, Inner):
                self.around((step.loop,), partial(self.filled, step.steps))
            else:
                super().nest(step.nest)
