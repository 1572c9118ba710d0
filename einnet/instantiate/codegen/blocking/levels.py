"""Loops inside of a block: what one part of the result needs is filled before what the next part needs, so that it stays in the nearest cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.kept import Block, filled, matrix_rows, moves, ranges_of
from einnet.instantiate.codegen.buffering import Kept
from einnet.instantiate.codegen.canonicalise import uses_within
from einnet.instantiate.codegen.ir import Nest, names

NEAR = 1 << 13
"""Elements that the nearest cache of a processor holds at least (32 KiB)."""


class Level(NamedTuple):
    """Arrays that are filled for one value of a loop after the other, or once."""

    loop: Iter | None
    arrays: list[tuple[Kept, str]]

    @property
    def elements(self) -> int:
        return sum(prod(kept.extents) for kept, _ in self.arrays)


def levels(block: Block, arrays: list[tuple[Kept, str]], fixed: Sequence[Iter]) -> list[Level]:
    """The arrays of a block by the loops inside of which they are filled, until those of the innermost fit the nearest cache.

    Such a loop is one of the nest. What stands inside is read at no other of its values, so that nothing is computed twice; what does not move with
    the `fixed` iterators, those of blocks, is computed once for all of them.
    """
    found = [Level(None, arrays)]
    while found[-1].elements > NEAR:
        own = found[-1]
        within = [level for i in own_loops(block) for level in narrower(own.arrays, block.inside(i), i, fixed)]
        best = max(within, key=lambda level: level.elements * (level.loop.extent if level.loop else 1), default=None)
        if best is None or best.loop is None:
            break
        moved = {kept.function for kept, _ in best.arrays}
        found[-1] = own._replace(arrays=[pair for pair in own.arrays if pair[0].function not in moved])
        found.append(best)
        block = block.inside(best.loop)
    return found


def own_loops(block: Block) -> list[Iter]:
    """The loops of the nest that the block's expression depends on, and that are not bound."""
    return [i for i in block.nest.loops if i.name in names(block.expr) and i.name in block.ranges and i not in block.bound]


def narrower(whole: Sequence[tuple[Kept, str]], block: Block, i: Iter, fixed: Sequence[Iter]) -> Iterator[Level]:
    """The arrays inside of a loop of which every value of it needs a part of its own, whoever reads them: none that one outside reads.

    The rows of a known matrix are computed together, as they share sums.
    """
    sizes = {kept.function: prod(kept.extents) for kept, _ in whole}
    parts = [
        (kept, name) for kept, name in filled(block) or ()
        if prod(kept.extents) * i.extent == sizes.get(kept.function) and (not fixed or moves(kept, fixed))
        and rows_along(kept, i).isdisjoint(matrix_rows(kept.function, block.nest.tables))
    ]  # fmt: skip
    kept_outside = sizes.keys() - {kept.function for kept, _ in parts}
    read_there = {u.function for f in kept_outside for u in uses_within(f.expr)}
    if left := [(kept, name) for kept, name in parts if kept.function not in read_there]:
        yield Level(i, left)


def rows_along(kept: Kept, i: Iter) -> set[str]:
    """The loops of a function in which what is kept moves with an iterator."""
    return {loop.name for loop, ix in zip(kept.function.loops, kept.base) if i.name in ix.names()}


def inside_of(loops: Sequence[Iter], nest: Nest) -> Nest:
    """A nest inside of some of its loops."""
    return replace(nest, loops=tuple(i for i in nest.loops if i not in loops), outer=(*nest.outer, *ranges_of(loops)))
