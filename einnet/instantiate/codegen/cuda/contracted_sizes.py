"""How threads share out a sum of products whose operands are copied while others are multiplied, and which sizes a model of the device says are
the fastest.

A block has a tile of rows and columns. Its copies of both operands lie in stages, of which one is worked on while the next ones are on their
way. Several blocks of a cluster may share a tile: each walks a part of the sum, and they add their parts through each other's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from math import ceil, inf, prod

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.cuda.contracted import Contracted, contracted, together
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import (
    BARRIER,
    BEGIN,
    CACHED,
    FILE,
    MEMORY,
    MOST_THREADS,
    OPERATIONS,
    PROCESSORS,
    RESIDENT,
    ROOM,
    SCHEDULERS,
    TOGETHER,
    WARP,
    block_cycles,
    pitch,
)  # fmt: skip
from einnet.instantiate.codegen.ir import Expr, Nest, walk

MOST_REGISTERS, OTHERS, MOST_COPIES = 200, 48, 16
"""Registers of a thread, those for addresses and the like among them, and what a thread copies for a stage."""

MOST_PLAYED = 1024
"""Threads of a cluster."""

ARRIVAL, MEETING = 700, 250
"""Cycles until a copy has arrived, and cycles of a barrier of a cluster."""

ADDRESS, PIECE, SIDE, DEEP = 10, (16, 8), 16, 8
"""Instructions of one copy's address; rows and columns of what a warp multiplies at once on tensor cores, cycles of it, and terms of it."""

MARGIN = 2.0
"""How many times as fast as tiles it has to be by the model: a card took 1.6 to 5 times as long as it says, and for tiles 2.6 in the middle."""

LEAST = 16
"""Rows and columns below which nothing is shared that would be worth a tile, and terms below which nothing is on its way."""


@dataclass(frozen=True, slots=True)
class Stages:
    """`down` by `across` threads, or warps on tensor cores, each with `tall` by `wide` elements, or pieces of 16x8.

    `step` terms are a stage. `above` and `beside` tell whether a copy of rows and columns has an operand's terms side by side, else its lines;
    `high` and `broad` elements of them are copied at once. `cluster` blocks share a tile.
    """

    down: int
    across: int
    tall: int
    wide: int
    step: int
    stages: int
    cluster: int = 1
    tensor: bool = False
    above: bool = True
    beside: bool = True
    high: int = 1
    broad: int = 1

    @property
    def threads(self) -> int:
        return self.down * self.across * (WARP if self.tensor else 1)

    @property
    def rows(self) -> int:
        return self.down * self.tall * (PIECE[0] if self.tensor else 1)

    @property
    def columns(self) -> int:
        return self.across * self.wide * (PIECE[1] if self.tensor else 1)

    @property
    def sides(self) -> tuple[int, int]:
        """Elements of both copies of a stage."""
        return copied(self.rows, self.step, self.above), copied(self.columns, self.step, self.beside)

    @property
    def size(self) -> int:
        """Elements that a block shares: its stages, and after them its sums."""
        return max(self.stages * sum(self.sides), self.rows * self.columns)

    @property
    def copies(self) -> tuple[int, int]:
        """What a thread copies of rows and of columns for a stage."""
        return ceil(self.rows * self.step / (self.high * self.threads)), ceil(self.columns * self.step / (self.broad * self.threads))

    @property
    def registers(self) -> int:
        """Of a thread, about."""
        if self.tensor:
            return OTHERS + 4 * self.tall * (self.wide + 1) + 2 * self.wide
        return OTHERS + self.tall * self.wide + TOGETHER * (self.tall + self.wide)


def apart(lines: int, step: int, terms: bool) -> int:
    """Elements between neighbours of the copy's outer dimension: accesses are aligned, and a warp's lie in different banks."""
    return pitch(step) if terms else ceil(lines / 16) * 16 + 8


def copied(lines: int, step: int, terms: bool) -> int:
    """Elements of a copy."""
    return (lines if terms else step) * apart(lines, step, terms)


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A nest of that form with sizes, and the cycles that the device takes with them."""

    form: Contracted
    sizes: Stages
    cycles: float


def pipelined(nest: Nest, tensor: bool = False) -> Pipelined | None:
    """A normalised nest with the sizes of the fewest cycles; None for one of another form, or where no block has room, or too little is shared.

    `tensor` allows products of numbers that are rounded to 10 bits behind the point.
    """
    form = contracted(nest)
    return _fastest(form, tensor) if form is not None else None


def faster(nest: Nest, tensor: bool = False) -> Pipelined | None:
    """The same where it is much faster than all that computes while nothing is on its way: tiles, or blocks with an element each."""
    other = tile(nest)
    limit = min(other.cycles, block_cycles(other, MOST_THREADS)) if other is not None else inf
    least = 2 * prod(i.extent for i in (*nest.loops, *(other.reduce.sums if other is not None else ()))) / OPERATIONS
    found = pipelined(nest, tensor) if limit > max(BEGIN + ARRIVAL, 0.0 if tensor else least) else None
    return found if found is not None and MARGIN * found.cycles < limit else None


def in_pieces(nest: Nest) -> bool:
    """Tensor cores are worth the rounding of the factors: with them the kernel is much faster than tiles, and faster than without."""
    found = faster(nest, True)
    return found is not None and found.sizes.tensor


@lru_cache(maxsize=1 << 10)
def _fastest(form: Contracted, tensor: bool) -> Pipelined | None:
    found = [Pipelined(form, s, cycles(form, s)) for s in sizes(form, tensor)]
    return min(found, key=lambda f: (f.cycles, f.sizes.size), default=None)


def ways(form: Contracted) -> tuple[tuple[bool, int], tuple[bool, int]]:
    """Of rows and of columns: whether a copy has terms side by side, as memory has, and elements of one copy."""
    return _way(form, form.down, True), _way(form, form.across, False)


def _way(form: Contracted, lines: tuple[Iter, ...], rows: bool) -> tuple[bool, int]:
    load = form.rows if rows else form.columns
    for terms, along, others in ((True, form.sums, lines), (False, lines, form.sums)):
        if together(load, along, (*others, *form.outer)):
            return terms, TOGETHER
    walking = {i.name for i in form.sums if abs(load.address.coefficient(i.name)) == 1}
    return bool(walking), 1


def sizes(form: Contracted, tensor: bool) -> Iterator[Stages]:
    """Sizes that fit, none of which is larger than it has to be; of stages as many as there is room for."""
    if min(form.height, form.width, form.terms) < LEAST:
        return
    (above, high), (beside, broad) = ways(form)
    plain = product((4, 8, 16), (8, 16), (2, 4, 8), (4, 8), (False,))
    pieces = product((1, 2, 4), (1, 2, 4), (1, 2, 4), (2, 4, 8), (True,))
    for down, across, tall, wide, kind in (*plain, *pieces) if tensor else plain:
        whole = Stages(down, across, tall, wide, DEEP, 3, 1, kind, above, beside, high, broad)
        spare = whole.rows >= 2 * form.height or whole.columns >= 2 * form.width
        if spare or not 64 <= whole.threads <= 256 or whole.registers > MOST_REGISTERS:
            continue
        for step, cluster in product((8, 16, 32), (1, 2, 4, 8)):
            found = (replace(whole, step=step, stages=stages, cluster=cluster) for stages in (4, 3))
            yield from islice((s for s in found if fits(form, s)), 1)


def fits(form: Contracted, s: Stages) -> bool:
    """The card can run it, and nothing of it is idle."""
    if s.threads * s.cluster > MOST_PLAYED or s.step * s.cluster * (s.stages - 1) > form.terms or 4 * s.size > ROOM:
        return False
    return max(s.copies) <= MOST_COPIES and s.rows * s.columns % (s.cluster * s.threads) == 0


@lru_cache(maxsize=1 << 10)
def length(e: Expr) -> int:
    """Instructions of an expression, about."""
    return sum(1 for _ in walk(e))


def cycles(form: Contracted, s: Stages) -> float:
    """What warps issue, what passes the shared memory, what comes from the level-2 cache, or how long one block's chain is."""
    warps = s.threads // WARP
    blocks = form.batches * ceil(form.height / s.rows) * ceil(form.width / s.columns) * s.cluster
    steps = ceil(ceil(form.terms / s.step) / s.cluster)
    copies = sum(s.copies)
    if s.tensor:
        groups = s.step // DEEP
        loads, passes = groups * (8 * s.tall + 4 * s.wide), groups * (4 * s.tall + 2 * s.wide)
        work = groups * s.tall * s.wide * SIDE
    else:
        groups = s.step // TOGETHER
        loads, passes = groups * (s.tall + s.wide), groups * 2 * (s.tall + s.wide)
        work = s.tall * s.wide * s.step
    issued = work + loads + (ADDRESS + 3 * len(form.sums)) * copies + 12
    resident = max(1, min(RESIDENT // warps, FILE // (s.registers * s.threads), MEMORY // (4 * s.size + 1024)))
    each = ceil(blocks / PROCESSORS)
    ending = s.rows * s.columns // s.threads * (8 + 2 * length(form.rest)) // s.cluster + 2 * BARRIER + (3 * MEETING if s.cluster > 1 else 0)
    busy = each * warps * (steps * max(issued / SCHEDULERS, passes + copies) + ending / SCHEDULERS)
    chain = ceil(each / resident) * (BEGIN + ARRIVAL + steps * max(issued + BARRIER, ARRIVAL / (s.stages - 1)) + ending)
    moved = 4 * blocks * (s.rows + s.columns) * steps * s.step / CACHED
    return max(busy, chain, moved)
