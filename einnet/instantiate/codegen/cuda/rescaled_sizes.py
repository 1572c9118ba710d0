"""How threads share out a nest of exponentials under their maximum, and which sizes a model of the device says are the fastest.

A block has a tile of rows of scores and walks the keys in tiles. It holds copies of both sides of the inner sum, of what is summed, and of the
exponentials of one tile; the sums, the maxima and the scores of a tile are in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, inf, prod

from einnet.expr.index import Floor, Index, value
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.rescaled import Rescaled, hiding, rescaled
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import (
    BARRIER,
    BEGIN,
    CACHED,
    FILE,
    LATENCY,
    MEMORY,
    PROCESSORS,
    RESIDENT,
    ROOM,
    SCHEDULERS,
    TOGETHER,
    TRAFFIC,
    WARP,
    pitch,
)  # fmt: skip
from einnet.instantiate.codegen.ir import Nest, walk

LANES, LEAST_THREADS, MOST_THREADS = (8, 16), 64, 256
"""Threads along a tile's keys, and of a block."""

MOST_REGISTERS, OTHERS = 168, 40
"""Registers of a thread, and those for addresses and the like among them."""

RAISING, SAMPLES = 24, 24
"""Instructions of an exponential, and tiles along each side that are looked at to know how many are walked."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """`across` threads along keys and columns and `down` along rows; each has so many rows (`tall`), keys (`wide`) and columns (`deep`)."""

    across: int
    down: int
    tall: int
    wide: int
    deep: int
    terms: int

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.down * self.tall

    @property
    def step(self) -> int:
        """Keys of a tile."""
        return self.across * self.wide

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.across * self.deep

    @property
    def near(self) -> int:
        """Columns of a thread that are neighbours."""
        return next(n for n in (4, 2, 1) if self.deep % n == 0)

    @property
    def inner(self) -> int:
        """Terms of the inner sum with those that fill the last access."""
        return ceil(self.terms / TOGETHER) * TOGETHER

    @property
    def room(self) -> int:
        """Bytes that a block shares."""
        return 4 * ((self.rows + self.step) * pitch(self.inner) + self.step * self.columns + self.rows * pitch(self.step))

    @property
    def registers(self) -> int:
        """Of a thread, about."""
        return OTHERS + self.tall * (self.deep + self.wide + 3) + TOGETHER * (self.tall + max(self.wide, self.deep))


@dataclass(frozen=True, slots=True)
class Walked:
    """A nest of that form with sizes, and the cycles that the device takes with them."""

    form: Rescaled
    sizes: Sizes
    cycles: float


def walked(nest: Nest) -> Walked | None:
    """A normalised nest with the sizes of the fewest cycles; None for one of another form, or where no block has room, or rows share nothing."""
    form = rescaled(nest)
    return _fastest(form) if form is not None else None


@lru_cache(maxsize=1 << 10)
def _fastest(form: Rescaled) -> Walked | None:
    found = [Walked(form, s, cycles(form, s)) for s in sizes(form)]
    return min(found, key=lambda w: (w.cycles, w.sizes.room), default=None)


def cycles_apart(nests: Sequence[Nest]) -> float:
    """Cycles of kernels that run one after the other, of which those without tiles move what they write once."""
    found = [(n, tile(normalise(n))) for n in nests]
    return sum(t.cycles if t is not None else BEGIN + 8 * prod(i.extent for i in n.loops) / TRAFFIC for n, t in found)


def sizes(form: Rescaled) -> Iterator[Sizes]:
    """Sizes that fit, none of which is larger than it has to be."""
    for across, down, tall, wide, deep in product(LANES, (4, 8, 16, 32), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16)):
        s = Sizes(across, down, tall, wide, deep, form.terms)
        fits = s.room <= ROOM and s.registers <= MOST_REGISTERS and LEAST_THREADS <= s.threads <= MOST_THREADS
        spare = s.rows >= 2 * form.height or s.step >= 2 * form.over.extent or s.columns >= 2 * max(form.width, across)
        if fits and not spare and tall * max(wide, deep) <= 64:
            yield s


def cycles(form: Rescaled, s: Sizes) -> float:
    """What warps issue, what passes the shared memory, what comes from the level-2 cache, or how long one block's chain is."""
    warps = s.threads // WARP
    blocks = form.batches * ceil(form.height / s.rows) * ceil(form.width / s.columns)
    live = share(form, s.rows, s.step)
    tiles = max(1.0, live * ceil(form.over.extent / s.step))
    spread = max(1, s.across * s.near * 4 // 128)
    beside, along = s.inner // TOGETHER, s.step // TOGETHER
    loads = beside * (s.tall + s.wide) + along * s.tall + s.step * s.deep // s.near
    passes = beside * (s.tall + s.wide * max(1, s.across // 8)) + along * s.tall + s.step * (s.deep // s.near) * spread
    filling = ceil(s.step * (s.inner + s.columns) / s.threads)
    work = s.tall * (s.wide * s.inner + s.deep * s.step)
    around = s.tall * (s.wide * (RAISING + 2 * sum(1 for _ in walk(form.score))) + s.deep + 8 * s.across.bit_length())
    issued = work + loads + around + 6 * filling
    resident = max(1, min(RESIDENT // warps, FILE // (s.registers * s.threads), MEMORY // (s.room + 1024)))
    each = ceil(blocks / PROCESSORS)
    busy = each * tiles * warps * max(issued / SCHEDULERS, passes + filling)
    chain = ceil(each / resident) * (min(ceil(form.over.extent / s.step), 2 * tiles) * (issued + 3 * BARRIER + 8 * LATENCY) + BEGIN)
    moved = 4 * blocks * (s.rows * form.terms + tiles * s.step * (form.terms + s.columns)) / CACHED
    return max(busy, chain, moved)


# ------------------------------------------------------------------------------------------------------------ tiles that add nothing


@dataclass(frozen=True, slots=True)
class Border:
    """A condition without which scores are -∞, that says more of them the further along `row` and `key` one is: its corners decide for a tile."""

    condition: Cond
    row: str
    key: str


def borders(form: Rescaled) -> tuple[Border, ...]:
    """Conditions by which tiles of scores may be left out: of the innermost loop over rows and the keys, each in one place."""
    row = form.queries[-1].name if form.queries else ""
    moving = {i.name for i in form.queries} | {form.over.name}
    found = (c for e in hiding(form.score) for c in e.conds)
    return tuple(Border(c, row, form.over.name) for c in dict.fromkeys(found) if monotone(c.index, moving, {row, form.over.name}))


def monotone(e: Index, moving: set[str], allowed: set[str]) -> bool:
    """Each of these iterators stands in one term, alone, and no other one that moves does."""
    seen: list[str] = []
    for atom, _ in e.terms:
        inside = {atom} if isinstance(atom, str) else set(atom.num.names())
        if isinstance(atom, Floor) and len(inside) > 1:
            return False
        seen += inside & moving
    return len(seen) == len(set(seen)) and set(seen) <= allowed


@lru_cache(maxsize=1 << 12)
def share(form: Rescaled, rows: int, step: int) -> float:
    """The share of tiles in which a score may be finite, of some that lie evenly."""
    limits = borders(form)
    if not limits:
        return 1.0
    height, length = form.queries[-1].extent if form.queries else 1, form.over.extent

    def ends(extent: int, size: int) -> list[tuple[int, int]]:
        count = ceil(extent / size)
        chosen = sorted({k * count // min(count, SAMPLES) for k in range(min(count, SAMPLES))})
        return [(k * size, min((k + 1) * size, extent) - 1) for k in chosen]

    tiles = list(product(ends(height, min(rows, height)), ends(length, step)))
    return sum(all(needed(b, *t, form.over.lo) for b in limits) for t in tiles) / len(tiles)


def needed(b: Border, rows: tuple[int, int], keys: tuple[int, int], first: int) -> bool:
    """The condition may hold in the tile of so many rows and keys, other iterators being 0."""
    fixed: Mapping[str, int] = dict.fromkeys(b.condition.index.names(), 0)
    found = [value(b.condition.index, {**fixed, b.row: r, b.key: first + k}) for r, k in product(rows, keys)]
    return max(found, default=inf) >= 0 and (not b.condition.equal or min(found) <= 0)
