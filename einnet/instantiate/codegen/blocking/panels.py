"""What all blocks of rows read with gaps, written once in the order in which they read it: panels as wide as a vector."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from einnet.expr.index import combine, simplify, substitute, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.rows import Rows, all_effort, rows
from einnet.instantiate.codegen.blocking.steps import Fill
from einnet.instantiate.codegen.ir import Expr, Load, Nest, Reduce, children, rebuild, substitute_expr, walk
from einnet.instantiate.codegen.schedule import LANES

FEWEST_BLOCKS = 4
"""Blocks from which on writing once more pays."""

TURNING_GAIN = 1.5
"""How many times more blocks have to take whose rows are not turned, for rows to stand in lanes."""


def chosen(nest: Nest, threads: int = 1, lanes: int = LANES) -> list[Rows] | None:
    """A normalised nest in blocks of rows, in so many lanes where that takes far less; None where there are none."""
    plain, across = rows(nest), rows(nest, across=True, lanes=lanes)
    if plain is not None:
        plain = [packed(blocks) if prod(i.extent for i in blocks.around) >= threads else blocks for blocks in plain]
    part = lanes / LANES  # efforts count a wide vector as one step, which a processor of so many lanes takes in parts
    turn = across is not None and (plain is None or all_effort(plain) > TURNING_GAIN * part * all_effort(across))
    return across if turn else plain


def packed(rows: Rows) -> Rows:
    """The same with what all blocks read across their lanes written once, before the blocks, in the order in which they read it."""
    if prod(i.extent for i in rows.blocks) < FEWEST_BLOCKS:
        return rows
    packs: list[Fill] = []
    steps: list[Fill] = []
    for _, fill in rows.fills:
        across = list(dict.fromkeys(x for x in walk(fill.nest.expr) if isinstance(x, Load) and is_across(x, fill.nest, rows)))
        expr = fill.nest.expr
        for load in across:
            pack, packed_load = pack_of(load, fill.nest, rows, f"pack {len(packs)}")
            packs.append(pack)
            expr = exchanged(expr, load, packed_load)
        steps.append(fill._replace(nest=replace(fill.nest, expr=expr)))
    return replace(rows, packs=(*rows.packs, *packs), steps=tuple(steps))


def is_across(load: Load, nest: Nest, rows: Rows) -> bool:
    """The load is summed over and moves with one loop of its nest, with gaps, and not with the block."""
    moving = [i for i in nest.loops if i.name in load.address.names()]
    summed = sums_of(nest, load)
    made = {fill.array for _, fill in rows.fills}
    plain = all(isinstance(a, str) for a, _ in load.address.terms) and not load.guards and load.array not in made | nest.tables
    fixed = {i.name for i in rows.around} | {n for n, _ in nest.outer} - {i.name for i in rows.blocks}
    known = load.address.names() <= {i.name for i in (*moving, *summed)} | fixed
    return plain and known and bool(summed) and len(moving) == 1 and abs(load.address.coefficient(moving[0].name)) > 1


def sums_of(nest: Nest, load: Load) -> tuple[Iter, ...]:
    """The iterators of the reduction in which the load stands that it moves with."""
    found = [r for r in walk(nest.expr) if isinstance(r, Reduce) and load in walk(r.body)]
    return tuple(i for r in found[:1] for i in r.sums if i.name in load.address.names())


def pack_of(load: Load, nest: Nest, rows: Rows, name: str) -> tuple[Fill, Load]:
    """The nest that writes the array in panels of a vector's lanes, and the load from it."""
    (moving,) = (i for i in nest.loops if i.name in load.address.names())
    summed = sums_of(nest, load)
    panel = LANES if moving.extent % LANES == 0 else moving.extent
    lane, step = var(moving.name) % panel, var(moving.name) // panel
    parts = [(step, panel * prod(i.extent for i in summed)), (lane, 1)]
    for n, i in enumerate(summed):
        parts.append((var(i.name) - i.lo, panel * prod(j.extent for j in summed[n + 1 :])))
    ranges = {**nest.ranges, **{i.name: i.range for i in summed}}
    address = simplify(combine(*parts), ranges)
    given = tuple((n, r) for n, r in nest.outer if n not in {i.name for i in rows.blocks})
    shift = {i.name: var(i.name) + i.lo for i in summed if i.lo}
    loops = (moving, *(Iter(i.name, 0, i.extent) for i in summed))
    source, target = substitute_expr(load, shift), substitute(address, shift)
    return Fill(name, moving.extent * prod(i.extent for i in summed), Nest(loops, name, target, source, outer=given)), Load(name, address)


def exchanged(e: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with one load in the place of another."""
    if e == old:
        return new
    args = children(e)
    return rebuild(e, tuple(exchanged(a, old, new) for a in args)) if args else e
