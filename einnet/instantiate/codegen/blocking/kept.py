"""Which functions a block of rows keeps in arrays, and the nests that fill these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import Range
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.steps import Fill
from einnet.instantiate.codegen.blocking.turned import turned
from einnet.instantiate.codegen.buffering import LARGEST, Kept, Place, places, window
from einnet.instantiate.codegen.ir import Expr, Function, Nest, Ranges, Reduce, Use, children, names, rebuild, walk, weights
from einnet.instantiate.codegen.schedule import SMALL, UNROLL, is_transform

MOST_REPEATED = 2
"""How often a function may be computed at a place, for windows that overlap."""


@dataclass(frozen=True, slots=True)
class Block:
    """What a block computes: a nest, its expression with the row as a place in the block, what is bound around it, and the ranges of all iterators.

    The rows of a block are side by side in its arrays if there is a `row`, the iterator along them.
    """

    nest: Nest
    expr: Expr
    bound: tuple[Iter, ...]
    ranges: Ranges
    row: Iter | None

    def inside(self, i: Iter) -> Block:
        """The same within one more loop."""
        return replace(self, bound=(*self.bound, i))


def direct_uses(e: Expr) -> Iterator[Use]:
    """Uses that stand in the expression itself."""
    return (x for x in walk(e) if isinstance(x, Use))


def filled(block: Block) -> list[tuple[Kept, str]] | None:
    """Every function with the window of it that a block reads and the name of its array, those first that others read.

    None where rows cannot be side by side, or a function is not read in windows.
    """
    groups: dict[Function, list[Place]] = {}
    for found in places(block.expr, block.ranges, ()):
        groups.setdefault(found.use.function, []).append(found)
    own = [i for i in block.nest.loops if i.name in names(block.expr)]
    for function in read_once([(own, block.expr), *((f.loops, f.expr) for f in groups)], block.nest.tables):
        del groups[function]
    fixed = frozenset(i.name for i in block.bound)
    around = dict((*block.nest.outer, *ranges_of(block.bound)))
    result: list[tuple[Kept, str]] = []
    for function in ordered(groups):
        group = list({p.use: p for p in groups[function]}.values())
        kept = window(function, group, fixed, block.ranges)
        if kept is not None and block.row is not None:
            kept = turned(kept, group, block.row)
        if kept is None or prod(kept.extents) > LARGEST or wasteful(kept, block.bound):
            return None
        result.append((replace(kept, ranges=around), f"rows of {function.name}"))
    return result


def read_once(readers: Sequence[tuple[Sequence[Iter], Expr]], tables: Collection[str]) -> set[Function]:
    """Functions that only one sum weighted by known matrices reads, each value once where its rows are unrolled: an array would only move them.

    What is multiplied with a stage of a transform before the next is computed on the way; not a stage itself, whose rows share sums.
    """
    fitting: dict[Function, list[bool]] = {}
    for loops, expr in readers:
        free = {u: at_rows(r, u, loops, tables) for r in walk(expr) if isinstance(r, Reduce) for u in direct_uses(r.body)}
        for use in direct_uses(expr):
            fitting.setdefault(use.function, []).append(free.get(use, False))
    return {function for function, found in fitting.items() if found == [True] and not matrix_rows(function, tables)}


def at_rows(r: Reduce, use: Use, loops: Sequence[Iter], tables: Collection[str]) -> bool:
    """A sum weighted by known matrices reads the same of a function at all of their rows, which are unrolled."""
    weighted = {n for w in weights(r, tables) for n in w.address.names()}
    rows = [i for i in loops if i.name in weighted]
    unrolled = is_transform(r, tables) and all(i.extent <= SMALL for i in rows) and prod(i.extent for i in rows) <= UNROLL
    return unrolled and names(use) & {i.name for i in loops} == {i.name for i in loops} - {i.name for i in rows}


def matrix_rows(function: Function, tables: Collection[str]) -> set[str]:
    """The loops of a function that are rows of known matrices."""
    return {n for r in walk(function.expr) if isinstance(r, Reduce) for w in weights(r, tables) for n in w.address.names()}


def wasteful(kept: Kept, bound: Sequence[Iter]) -> bool:
    """The windows of all blocks together are far more than the function has elements."""
    steps = prod(i.extent for i in bound if any(i.name in ix.names() for ix in kept.base))
    return steps * prod(kept.extents) > MOST_REPEATED * prod(i.extent for i in kept.function.loops)


def ordered(functions: Mapping[Function, object]) -> list[Function]:
    """Functions after those that they use."""
    result: dict[Function, None] = {}

    def visit(f: Function) -> None:
        if f not in result:
            for u in direct_uses(f.expr):
                visit(u.function)
            result[f] = None

    for f in functions:
        visit(f)
    return [f for f in result if f in functions]


Arrays = Mapping[Function, tuple[Kept, str]]


def fill(kept: Kept, name: str, arrays: Arrays, outer: Sequence[Iter], nest: Nest) -> Fill:
    """The nest that fills the array of a function from those of others."""
    made = kept.filling(name)
    whole = replace(made, expr=loaded(made.expr, arrays), outer=(*nest.outer, *ranges_of(outer)), tables=nest.tables)
    return Fill(name, prod(kept.extents), whole)


def ranges_of(iters: Sequence[Iter]) -> tuple[tuple[str, Range], ...]:
    return tuple((i.name, i.range) for i in iters)


def moves(kept: Kept, blocks: Sequence[Iter]) -> bool:
    """Another window is read for another block."""
    return any(i.name in ix.names() for i in blocks for ix in kept.base)


def loaded(e: Expr, arrays: Arrays) -> Expr:
    """The expression with uses as loads from the arrays that hold them."""
    if isinstance(e, Use):
        if e.function not in arrays:
            return replace(e, function=replace(e.function, expr=loaded(e.function.expr, arrays)))
        kept, name = arrays[e.function]
        return kept.load(e, name)
    args = children(e)
    return rebuild(e, tuple(loaded(a, arrays) for a in args)) if args else e
