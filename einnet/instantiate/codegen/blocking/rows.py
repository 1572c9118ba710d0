"""Blocks of rows: nested reductions along the loops of a nest, each computed for a block of rows before the next one reads it.

Of softmax(QK')V a block of rows of Q makes a block of scores, which stays in cache until it was multiplied with V: what all rows share (K, V) is
loaded once for a block. The steps are nests of their own, so that each has lanes and accumulators as it needs. Of log(Σ exp x) a block of rows makes
a vector of sums, of which one vector of logarithms is taken: number by number that would take as long as the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import substitute, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.kept import Block, direct_uses, fill, filled, loaded, moves, ranges_of
from einnet.instantiate.codegen.blocking.levels import Level, inside_of, levels
from einnet.instantiate.codegen.blocking.steps import Fill, Inner, Step, arrays_read, fills, mapped, rooms
from einnet.instantiate.codegen.blocking.turned import Turning, effort, written_across
from einnet.instantiate.codegen.buffering import Kept
from einnet.instantiate.codegen.canonicalise import uses_within
from einnet.instantiate.codegen.ir import (
    Apply,
    Expr,
    Function,
    Load,
    Nest,
    Ranges,
    Reduce,
    Use,
    children,
    expanded,
    names,
    picks,
    rebuild,
    simplified,
    substitute_expr,
    walk,
)  # fmt: skip
from einnet.instantiate.codegen.resolve import EXPENSIVE
from einnet.instantiate.codegen.schedule import LANES, SMALL, lane_of

ROWS = 8
"""Rows of a block: what all rows share is loaded once for as many accumulators as fit the registers."""

RESULT = "all results"
"""The array of what a block computes where it is turned before it is stored; no tensor has a name of two words."""


@dataclass(frozen=True, slots=True)
class Rows:
    """For all `around` iterators what all blocks read, packed; for all `blocks` each function of the block into its array, then the last nest."""

    around: tuple[Iter, ...]
    packs: tuple[Fill, ...]
    blocks: tuple[Iter, ...]
    steps: tuple[Step, ...]
    last: Nest

    @property
    def fills(self) -> list[tuple[int, Fill]]:
        """Every array of a block, and how often it is filled."""
        return list(fills(self.steps))

    @property
    def rooms(self) -> list[list[Fill]]:
        """The arrays of a block by their memory: one takes that of another that was read for the last time before it is filled."""
        return rooms(self.steps, arrays_read(self.last))


def rows(nest: Nest, across: bool = False, lanes: int = LANES) -> list[Rows] | None:
    """A normalised nest in blocks of rows, whole blocks and the rest; None where its functions share no loop that some operand lacks.

    The rows of a block stand in vector lanes if `across`, as many as a vector of the processor has; None where they cannot.
    """
    row, size = row_loop(nest), LANES
    if row is not None:
        size = block(row, lanes if across else ROWS)
    elif not across:
        nest = with_functions(nest)
        row = row_of_results(nest)
    if row is None:
        return None
    whole = row.extent // size
    found = [blocked(nest, row, size, 0, whole, across)] if whole else []
    if row.extent % size:
        found.append(blocked(nest, row, row.extent % size, whole * size, 1, across))
    return None if None in found else [f for f in found if f is not None]


def all_effort(found: Sequence[Rows]) -> float:
    """What all blocks take, in contiguous loads."""
    return sum(prod(i.extent for i in (*f.around, *f.blocks)) * (sum(times * effort(s.nest) for times, s in f.fills) + effort(f.last)) for f in found)


def row_loop(nest: Nest) -> Iter | None:
    """The longest loop that all functions depend on, and that an operand of a product inside a reduced function lacks."""
    uses = [frozenset(n for i in u.index for n in i.names()) for u in direct_uses(nest.expr)]
    shared = frozenset.intersection(*uses) if uses else frozenset[str]()
    reduced = [u for r in walk(nest.expr) if isinstance(r, Reduce) for u in direct_uses(r.body)]
    free = shared - {n for c in nest.guards for n in c.index.names()}
    fitting = [i for i in nest.loops if i.name in free and i.extent >= ROWS and any(multiplies(u, i.name) for u in reduced)]
    return max(fitting, key=lambda i: i.extent, default=None)


def with_functions(nest: Nest) -> Nest:
    """The nest with each reduction of its expression as a function of those loops that it depends on."""
    made: dict[Reduce, Use] = {}

    def exchanged(e: Expr) -> Expr:
        if not isinstance(e, Reduce) or picks(e):
            return rebuild(e, tuple(map(exchanged, children(e))))
        if e not in made:
            name = f"sum {len(made)}"
            own = tuple(i for i in nest.loops if i.name in names(e))
            loops = tuple(Iter(f"{i.name} of {name}", i.lo, i.hi) for i in own)
            inside = substitute_expr(e, {i.name: var(j.name) for i, j in zip(own, loops)})
            made[e] = Use(Function(name, loops, inside), tuple(var(i.name) for i in own))
        return made[e]

    return replace(nest, expr=exchanged(nest.expr))


def row_of_results(nest: Nest) -> Iter | None:
    """The longest loop of which each step has few elements, which are dear functions of sums along what is contiguous in memory."""
    uses = list(direct_uses(nest.expr))
    shared = shared_names(nest) - {n for c in nest.guards for n in c.index.names()}
    dear = any(isinstance(x, Apply) and x.op in EXPENSIVE for x in walk(nest.expr))
    few = prod(i.extent for i in nest.loops if i.name not in shared) < SMALL
    if not (dear and few and all(isinstance(u.function.expr, Reduce) and lane_of(u.function.expr) is not None for u in uses)):
        return None
    return max((i for i in nest.loops if i.name in shared and i.extent >= ROWS), key=lambda i: i.extent, default=None)


def multiplies(use: Use, row: str) -> bool:
    """A function that is used inside is a longer sum of products, of which one factor depends on the row and another does not."""
    return any(isinstance(r, Reduce) and shares(r, u, row) for u in uses_within(use) for r in walk(u.function.expr))


def shares(r: Reduce, use: Use, row: str) -> bool:
    """Some factors of the summed product move with the row, others do not."""
    if r.op != "sum" or prod(i.extent for i in r.sums) < SMALL:
        return False
    moving = {i.name for i, ix in zip(use.function.loops, use.index) if row in ix.names()}
    used = [names(x) for x in walk(r.body) if isinstance(x, (Load, Use))]
    summed = [u for u in used if any(i.name in u for i in r.sums)]
    return any(moving & u for u in summed) and any(not moving & u for u in summed)


def block(row: Iter, most: int = ROWS) -> int:
    """Rows of a block: so many, or a divisor of all rows that is little smaller."""
    most = min(row.extent, most)
    return next((n for n in range(most, most * 2 // 3, -1) if row.extent % n == 0), most)


def shared_names(nest: Nest, row: Iter | None = None) -> frozenset[str]:
    """Loops that all functions depend on, those included that others use: none is computed again for each step of such a loop.

    If a `row` is given, these are loops on which all depends that moves with it.
    """
    uses = [frozenset(n for i in u.index for n in i.names()) for u in uses_within(nest.expr)]
    if row is not None:
        every = (x for x, _ in expanded(nest.expr, nest.ranges) if isinstance(x, Load))
        uses += [names for names in (x.address.names() for x in every) if row.name in names]
    return frozenset.intersection(*uses) if uses else frozenset()


def blocked(nest: Nest, row: Iter, size: int, first: int, count: int, across: bool = False) -> Rows | None:
    """Blocks of `size` rows from the row `first` on; None where functions are not read in windows, or if `across` rows cannot stand in lanes."""
    outer, inner = Iter(row.name + ".b", 0, count), Iter(row.name + ".i", 0, size)
    place = size * var(outer.name) + var(inner.name) + first if count > 1 else var(inner.name) + first
    shared = shared_names(nest, row if across else None)
    around = [i for i in nest.loops if i != row and i.name in shared]
    around.sort(key=lambda i: -abs(nest.address.coefficient(i.name)))
    blocks = (outer,) if count > 1 else ()
    bound = (*around, *blocks)
    inside = (inner, *(i for i in nest.loops if i != row and i not in around))
    ranges: Ranges = {**dict(nest.outer), **{i.name: i.range for i in (*bound, *inside)}}
    block = Block(nest, simplified(substitute_expr(nest.expr, {row.name: place}), ranges), bound, ranges, inner if across else None)
    arrays = filled(block)
    if arrays is None:
        return None
    address = substitute(nest.address, {row.name: place})
    last = replace(nest, loops=inside, address=address, outer=(*nest.outer, *ranges_of(bound)))
    if across and abs(address.coefficient(inner.name)) != 1:
        made = turned_out(block, arrays, blocks, around, last)
    else:
        kept = {k.function: (k, name) for k, name in arrays}
        made = assembled(block, [Level(None, arrays)], (), blocks, around, replace(last, expr=loaded(block.expr, kept)))
    return in_lanes(made, inner, rows_of(arrays, inner)) if across else made


def turned_out(block: Block, arrays: list[tuple[Kept, str]], blocks: tuple[Iter, ...], around: Sequence[Iter], last: Nest) -> Rows:
    """A block whose results are written with rows side by side, and turned into where they belong at last."""
    assert block.row is not None
    parts = levels(block, arrays, blocks)
    kept = {k.function: (k, name) for part in parts for k, name in part.arrays}
    result, elements, last = written_across(replace(last, expr=loaded(block.expr, kept)), block.row, RESULT)
    walked = [part.loop for part in parts if part.loop is not None]
    return assembled(block, parts, (Fill(RESULT, elements, inside_of(walked, result)),), blocks, around, last)


def assembled(block: Block, parts: Sequence[Level], made: tuple[Step, ...], blocks: tuple[Iter, ...], around: Sequence[Iter], last: Nest) -> Rows:
    """The arrays of a block level by level, within the innermost what is `made` of them; those that do not move with the blocks are filled before."""
    arrays = {kept.function: (kept, name) for part in parts for kept, name in part.arrays}
    walked = tuple(part.loop for part in parts if part.loop is not None)
    for depth, part in reversed(list(enumerate(parts))):
        bound = (*block.bound, *walked[:depth])
        made = (*(fill(kept, name, arrays, bound, block.nest) for kept, name in part.arrays if not blocks or moves(kept, blocks)), *made)
        if part.loop is not None:
            made = (Inner(part.loop, made),)
    early = tuple(fill(kept, name, arrays, around, block.nest) for kept, name in parts[0].arrays if blocks and not moves(kept, blocks))
    return Rows(tuple(around), early, blocks, made, last)


def rows_of(arrays: Sequence[tuple[Kept, str]], row: Iter) -> dict[str, str]:
    """The loops along which arrays have the rows of a block side by side, by their arrays; none of a block of one row."""
    found = {name: kept.loop(name, kept.near).name for kept, name in arrays if kept.near is not None}
    return {**found, RESULT: row.name} if row.extent > 1 else {}


def in_lanes(rows: Rows, row: Iter, along: Mapping[str, str]) -> Rows:
    """The same where all that is read across rows is turned: `along` which loop they are in what fills an array."""
    turning = Turning(row.extent, frozenset(i.name for i in (*rows.around, *rows.blocks)), along)
    for _, step in rows.fills:
        turning.note(step.nest)
    names = turning.worth()
    turned = tuple(Fill(name, turning.elements(key), turning.fill(key, name, rows.last)) for key, name in names.items())
    return replace(rows, steps=(*turned, *mapped(rows.steps, lambda nest: turning.loaded(nest, names))))
