"""How the threads of a device share out a nest around one reduction: tiles of elements in a thread's registers, and of operands in a block's memory.

Sizes of a tile, and the figures of the device by which tiles are compared; `tile_search` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from einnet.expr.index import Floor, Index, value
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.cuda.footprint import Footprint
from einnet.instantiate.codegen.cuda.lanes import Lanes
from einnet.instantiate.codegen.cuda.reduction_nest import floor_names
from einnet.instantiate.codegen.ir import (
    Expr,
    Load,
    Nest,
    Reduce,
    walk,
)

PROCESSORS, SCHEDULERS, WARP = 132, 4, 32
"""Of the device: multiprocessors, the warps of one that issue at once, and threads of a warp."""

OPERATIONS = 2 * PROCESSORS * SCHEDULERS * WARP
"""Floating-point operations of the device in a cycle, two for a multiply-add."""

RESIDENT, FILE, MEMORY = 64, 65536, 200 << 10
"""Of a multiprocessor: most warps, registers, and bytes of memory that blocks share."""

TRAFFIC = 2700
"""Bytes of the device's memory that arrive in a cycle."""

SHARED = 40 << 10
"""Bytes of the copies of a block."""

ROOM = (48 << 10) - 256
"""Bytes that a block may share without asking for more, less what lies between arrays that start at multiples of 64."""

CACHED = 2 * TRAFFIC
"""Bytes of the level-2 cache that arrive in a cycle."""

TOGETHER = 4
"""Elements that one access to a copy takes."""

LATENCY, BARRIER, BEGIN = 40, 60, 800
"""Cycles from a load to its use when it hits, of a barrier, and of a block's start and first loads."""

MOST_POINTS, MOST_BODY, MOST_UNROLLED, MOST_THREADS = 32, 256, 32, 256
"""Elements of a thread, multiply-adds that are written out for one step, terms of the sum among them, threads of a block."""

FLOOR_EXTENT = 8
"""Iterators inside floor divisions are written out up to this extent."""

@dataclass(frozen=True)
class Tile:
    """A nest by blocks: thread (x) of loop i computes `points[i]` elements from `points[i]·x` on.

    `rest` is the nest's expression around `SUM`. `team` is a summation iterator that neighbouring lanes share. `order` has the loops with
    several threads, the one in which neighbours differ last. Sums in `unrolled` are written out, the others walked in chunks of `chunks`.
    """

    nest: Nest
    reduce: Reduce
    rest: Expr
    threads: Mapping[str, int]
    points: Mapping[str, int]
    order: tuple[str, ...]
    team: tuple[str, int] = ("", 1)
    unrolled: tuple[str, ...] = ()
    staged: tuple[Footprint, ...] = ()
    chunks: Mapping[str, int] | None = None
    cycles: float = 0.0

    @property
    def block(self) -> int:
        """Threads of a block."""
        return prod(self.threads.values()) * self.team[1]

    @property
    def elements(self) -> int:
        """Of a thread."""
        return prod(self.points.values())

    @property
    def box(self) -> dict[str, int]:
        """Elements of a block along each loop."""
        return {n: t * self.points[n] for n, t in self.threads.items()}

    @property
    def blocks(self) -> int:
        box = self.box
        return prod(-(-i.extent // box[i.name]) for i in self.nest.loops)


def pitch(elements: int) -> int:
    """Elements between rows of a copy: accesses are aligned, and eight rows lie in banks of their own."""
    count = ceil(elements / TOGETHER)
    return TOGETHER * (count + 1 - count % 2)


def block_cycles(t: Tile, threads: int) -> float:
    """Cycles of the same nest where so many threads of a block compute each element together."""
    loads = [e for e in walk(t.reduce.body) if isinstance(e, Load)]
    steps = -(-prod(i.extent for i in t.reduce.sums) // threads)
    issued = 6 + 4 * len(loads)
    exchange = 12 * (threads.bit_length() - 1) + BARRIER
    warps, each = threads // WARP, -(-prod(i.extent for i in t.nest.loops) // PROCESSORS)
    busy = each * warps * (steps * issued + exchange) / SCHEDULERS
    return max(busy, (steps * (issued + LATENCY) + exchange + BEGIN) * -(-each // (RESIDENT // warps)))


def lanes_of(t: Tile) -> Lanes:
    """The threads of a warp: first those that share a sum, then along each loop."""
    along = ((t.team[0], t.team[1], 1), *((n, t.threads[n], t.points[n]) for n in reversed(t.order)))
    return Lanes(tuple((n, threads, apart) for n, threads, apart in along if threads > 1), min(WARP, t.block))


def lines(address: Index, lanes: Lanes) -> int:
    """Lines of 32 elements that the lanes touch."""
    moving = {a: c for a, c in address.terms if isinstance(a, str)}
    return len({place // WARP for place in lanes.places(moving)})


def distinct(address: Index, written: Mapping[str, int]) -> int:
    """Different values of an address over the written-out iterators."""
    inside = sorted({n for n in floor_names(address) if n in written})
    found = {0}
    if inside:
        fixed = dict.fromkeys(address.names(), 0)
        own = Index(tuple((a, c) for a, c in address.terms if isinstance(a, Floor) or a in inside))
        found = {int(value(own, {**fixed, **dict(zip(inside, at))})) for at in product(*(range(written[n]) for n in inside))}
    for a, c in address.terms:
        if isinstance(a, str) and a in written and a not in inside:
            found = {v + c * k for v in found for k in range(written[a])}
    return len(found)


def sums_of(t: Tile, written: bool) -> tuple[Iter, ...]:
    """The sums that are written out, or those that are walked."""
    return tuple(i for i in t.reduce.sums if (i.name in t.unrolled) == written)
