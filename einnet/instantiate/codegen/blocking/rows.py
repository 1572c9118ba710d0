"""Blocks of rows: nested reductions along the loops of a nest, each computed for a block of rows before the next one reads it.

Of softmax(QK')V a block of rows of Q makes a block of scores, which stays in cache until it was multiplied with V: what all rows share (K, V) is
loaded once for a block. The steps are nests of their own, so that each has lanes and accumulators as it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from einnet.expr.index import Range, substitute, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.turned import Turning, effort, turned, written_across
from einnet.instantiate.codegen.buffering import LARGEST, Kept, Place, places, window
from einnet.instantiate.codegen.canonicalise import uses_within
from einnet.instantiate.codegen.ir import (
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
    rebuild,
    simplified,
    substitute_expr,
    walk,
)  # fmt: skip
from einnet.instantiate.codegen.schedule import LANES, SMALL

ROWS = 8
"""Rows of a block: what all rows share is loaded once for as many accumulators as fit the registers."""

RESULT = "all results"
"""The array of what a block computes where it is turned before it is stored; no tensor has a name of two words."""

MOST_REPEATED = 2
"""How often a function may be computed at a place, for windows that overlap."""


class Fill(NamedTuple):
    """An array, its elements, and the nest that fills it."""

    array: str
    size: int
    nest: Nest


@dataclass(frozen=True, slots=True)
class Rows:
    """For all `around` iterators what all blocks read, packed; for all `blocks` each function of the block into its array, then the last nest."""

    around: tuple[Iter, ...]
    packs: tuple[Fill, ...]
    blocks: tuple[Iter, ...]
    steps: tuple[Fill, ...]
    last: Nest


def rows(nest: Nest, across: bool = False) -> list[Rows] | None:
    """A normalised nest in blocks of rows, whole blocks and the rest; None where its functions share no loop that some operand lacks.

    The rows of a block stand in vector lanes if `across`; None where they cannot.
    """
    row = row_loop(nest)
    if row is None:
        return None
    size = block(row, LANES if across else ROWS)
    whole = row.extent // size
    found = [blocked(nest, row, size, 0, whole, across)] if whole else []
    if row.extent % size:
        found.append(blocked(nest, row, row.extent % size, whole * size, 1, across))
    return None if None in found else [f for f in found if f is not None]


def all_effort(found: Sequence[Rows]) -> float:
    """What all blocks take, in contiguous loads."""
    return sum(prod(i.extent for i in (*f.around, *f.blocks)) * sum(effort(n) for n in (*(s.nest for s in f.steps), f.last)) for f in found)


def row_loop(nest: Nest) -> Iter | None:
    """The longest loop that all functions depend on, and that an operand of a product inside a reduced function lacks."""
    uses = [frozenset(n for i in u.index for n in i.names()) for u in direct_uses(nest.expr)]
    shared = frozenset.intersection(*uses) if uses else frozenset[str]()
    reduced = [u for r in walk(nest.expr) if isinstance(r, Reduce) for u in direct_uses(r.body)]
    free = shared - {n for c in nest.guards for n in c.index.names()}
    fitting = [i for i in nest.loops if i.name in free and i.extent >= ROWS and any(multiplies(u, i.name) for u in reduced)]
    return max(fitting, key=lambda i: i.extent, default=None)


def multiplies(use: Use, row: str) -> bool:
    """A function that is used inside is a longer sum of products, of which one factor depends on the row and another does not."""
    from_here = [use, *(u for u in uses_within(use) if u != use)]
    return any(isinstance(r, Reduce) and shares(r, u, row) for u in from_here for r in walk(u.function.expr))


def shares(r: Reduce, use: Use, row: str) -> bool:
    """Some factors of the summed product move with the row, others do not."""
    if r.op != "sum" or prod(i.extent for i in r.sums) < SMALL:
        return False
    moving = {i.name for i, ix in zip(use.function.loops, use.index) if row in ix.names()}
    used = [names(x) for x in walk(r.body) if isinstance(x, (Load, Use))]
    summed = [u for u in used if any(i.name in u for i in r.sums)]
    return any(moving & u for u in summed) and any(not moving & u for u in summed)


def direct_uses(e: Expr) -> Iterator[Use]:
    """Uses that stand in the expression itself."""
    return (x for x in walk(e) if isinstance(x, Use))


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
    expr = simplified(substitute_expr(nest.expr, {row.name: place}), ranges)
    steps = filled(expr, bound, ranges, nest, inner if across else None)
    if steps is None:
        return None
    arrays = {kept.function: (kept, name) for kept, name in steps}
    early = tuple(fill(kept, name, arrays, around, nest) for kept, name in steps if not moves(kept, blocks))
    fills = tuple(fill(kept, name, arrays, bound, nest) for kept, name in steps if moves(kept, blocks))
    given = ranges_of(bound)
    address = substitute(nest.address, {row.name: place})
    last = replace(nest, loops=inside, address=address, expr=loaded(expr, arrays), outer=(*nest.outer, *given))
    made = Rows(tuple(around), early, blocks, fills, last)
    return in_lanes(made, inner) if across else made


def in_lanes(rows: Rows, row: Iter) -> Rows:
    """The same where all that is read or written across rows is turned."""
    steps, last = rows.steps, rows.last
    if abs(last.address.coefficient(row.name)) != 1:
        result, last = written_across(last, row, RESULT)
        steps = (*steps, Fill(RESULT, prod(i.extent for i in result.loops), result))
    turning = Turning(row.extent, frozenset(i.name for i in (*rows.around, *rows.blocks)))
    for step in steps:
        turning.note(step.nest)
    names = turning.worth()
    fills = tuple(Fill(name, turning.elements(key), turning.fill(key, name, last)) for key, name in names.items())
    return replace(rows, steps=(*fills, *(s._replace(nest=turning.loaded(s.nest, names)) for s in steps)), last=last)


def filled(expr: Expr, bound: tuple[Iter, ...], ranges: Ranges, nest: Nest, row: Iter | None) -> list[tuple[Kept, str]] | None:
    """Every function with the window of it that a block reads and the name of its array, those first that others read.

    The rows are side by side if a `row` is given; None where they cannot be, or a function is not read in windows.
    """
    groups: dict[Function, list[Place]] = {}
    for found in places(expr, ranges, ()):
        groups.setdefault(found.use.function, []).append(found)
    fixed = frozenset(i.name for i in bound)
    around = dict((*nest.outer, *ranges_of(bound)))
    result: list[tuple[Kept, str]] = []
    for function in ordered(groups):
        group = list({p.use: p for p in groups[function]}.values())
        kept = window(function, group, fixed, ranges)
        if kept is not None and row is not None:
            kept = turned(kept, group, row)
        if kept is None or prod(kept.extents) > LARGEST or wasteful(kept, bound):
            return None
        result.append((replace(kept, ranges=around), f"rows of {function.name}"))
    return result


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
        kept, name = arrays[e.function]
        return kept.load(e, name)
    args = children(e)
    return rebuild(e, tuple(loaded(a, arrays) for a in args)) if args else e
