"""The tiles of a nest around one reduction, chosen by a model of the device.

The model counts what a warp issues, what it loads, how many warps there are, and how long one thread's chain is. It knows extents and strides, and no
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from einnet.expr.index import Index
from einnet.instantiate.codegen.canonicalise import own_index_functions
from einnet.instantiate.codegen.cuda.footprint import Footprint, arranged, footprint
from einnet.instantiate.codegen.cuda.reduction_nest import contraction, floor_names, live_share, traffic
from einnet.instantiate.codegen.cuda.tiling import (
    BARRIER,
    BEGIN,
    FILE,
    FLOOR_EXTENT,
    LATENCY,
    MEMORY,
    MOST_BODY,
    MOST_POINTS,
    MOST_THREADS,
    MOST_UNROLLED,
    PROCESSORS,
    RESIDENT,
    SCHEDULERS,
    SHARED,
    TRAFFIC,
    WARP,
    Tile,
    distinct,
    lanes_of,
    lines,
)  # fmt: skip
from einnet.instantiate.codegen.ir import Expr, Load, Nest, Reduce, walk


@lru_cache(maxsize=256)
def _tile(nest: Nest, exact: bool) -> Tile | None:
    found = contraction(nest)
    if found is None:
        return None
    best = TileSearch(nest, *found, exact).best()
    return best if best.cycles < float("inf") else None


def tile(nest: Nest, exact: bool = False) -> Tile | None:
    """The fastest tiles of a normalised nest by the model; None for a nest of another form. `exact` wants tiles that divide every extent."""
    return _tile(nest, exact)


class TileSearch:
    """Steps to better tiles from a plain one, as long as there are."""

    def __init__(self, nest: Nest, reduce: Reduce, rest: Expr, exact: bool) -> None:
        self.nest, self.reduce, self.rest, self.exact = nest, reduce, rest, exact
        self.known: dict[object, Any] = {}
        self.loops = {i.name: i.extent for i in nest.loops}
        self.sums = {i.name: i.extent for i in reduce.sums}
        self.loads = tuple(dict.fromkeys(e for e in walk(reduce.body) if isinstance(e, Load)))
        self.around = tuple(dict.fromkeys(e for e in walk(rest) if isinstance(e, Load)))
        inside = frozenset(n for e in walk(reduce.body) for x in own_index_functions(e) for n in floor_names(x))
        self.floors = {*small(self.loops, inside, MOST_POINTS), *small(self.sums, inside, MOST_BODY)}
        self.live = live_share(reduce)
        self.traffic = traffic(nest, reduce, rest)

    def best(self) -> Tile:
        best: Tile | None = None
        for start in self.starts():
            now = self.finished(start)
            while True:
                nearby = [self.finished(t) for t in self.neighbours(now)]
                better = min(nearby, key=lambda t: t.cycles, default=now)
                if not better.cycles < 0.98 * now.cycles:
                    break
                now = better
            best = now if best is None or now.cycles < best.cycles else best
        assert best is not None
        return best

    def starts(self) -> Iterator[Tile]:
        """One element for each thread, neighbours along one of the loops of small strides."""
        points = {n: e if n in self.floors else 1 for n, e in self.loops.items()}
        lanes = sorted((n for n in self.loops if points[n] == 1), key=self.scatter)[:2]
        for lane in lanes or [""]:
            threads, room = dict.fromkeys(self.loops, 1), 128
            for n in sorted(self.loops, key=lambda n: (n != lane, abs(self.nest.address.coefficient(n)))):
                while points[n] == 1 and 2 * threads[n] <= min(room, self.loops[n]) and self.fits(n, 2 * threads[n]):
                    threads[n] *= 2
                room //= threads[n]
            yield Tile(self.nest, self.reduce, self.rest, threads, points, self.sorted(threads, lane))

    def sorted(self, threads: Mapping[str, int], lane: str) -> tuple[str, ...]:
        rest = sorted((n for n in threads if n != lane), key=lambda n: -abs(self.nest.address.coefficient(n)))
        return (*rest, lane) if lane else tuple(rest)

    def scatter(self, n: str) -> float:
        """How far apart neighbours along the loop are, in all loads and the store."""
        touched = [self.nest.address, *(x.address for x in self.loads)]
        return sum(min(abs(a.coefficient(n)), WARP) if a.coefficient(n) else 0.1 for a in touched) * max(1.0, 8 / self.loops[n])

    def fits(self, n: str, box: int) -> bool:
        return self.loops[n] % box == 0 if self.exact else self.loops[n] >= box

    def neighbours(self, t: Tile) -> Iterator[Tile]:
        """Tiles of one other size: threads, elements of a thread, or lanes that share the sum."""
        for n, extent in self.loops.items():
            for threads in {2 * t.threads[n], t.threads[n] // 2, extent // t.points[n]} - {0, t.threads[n]}:
                if self.fits(n, threads * t.points[n]):
                    yield replace(t, threads={**t.threads, n: threads})
            for points in (1, 2, 3, 4, 6, 8) if n not in self.floors else ():
                if points != t.points[n] and points <= extent:
                    threads = t.threads[n]
                    while threads > 1 and not self.fits(n, threads * points):
                        threads //= 2
                    if self.fits(n, threads * points):
                        yield replace(t, threads={**t.threads, n: threads}, points={**t.points, n: points})
            if n != t.order[-1] and t.threads[n] > 1:
                yield replace(t, order=self.sorted(t.threads, n))
        for s, extent in self.sums.items():
            for lanes in (2, 4, 8, 16, 32):
                if s not in self.floors and lanes <= extent and (s, lanes) != t.team:
                    yield replace(t, team=(s, lanes))
        if t.team[1] > 1:
            yield replace(t, team=("", 1))

    def finished(self, t: Tile) -> Tile:
        """The tile with the best choice of copies, and its cycles."""
        points = prod(t.points.values())
        if points > MOST_POINTS or t.block > MOST_THREADS or t.team[1] > 1 and t.block % WARP:
            return replace(t, cycles=float("inf"))

        def found() -> Tile:
            whole = replace(t, unrolled=self.unrolled(t, points))
            lanes = lanes_of(whole)
            options = [()] if t.team[1] > 1 or t.block == 1 else product((False, True), repeat=len(self.loads))
            return min((self.modelled(whole, chosen or (False,) * len(self.loads), lanes, points) for chosen in options), key=lambda t: t.cycles)

        best: Tile = self.once(("tile", *t.threads.values(), *t.points.values(), t.order, t.team), found)
        return best

    def once(self, key: object, compute: Callable[[], Any]) -> Any:
        """What was computed under the key before, or now."""
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def distinct(self, address: Index, written: Mapping[str, int]) -> int:
        own = tuple((n, written[n]) for n in sorted(address.names()) if written.get(n, 1) > 1)
        count: int = self.once((address, own), lambda: distinct(address, dict(own)))
        return count

    def footprint(self, x: Load, extents: Mapping[str, int]) -> Footprint | None:
        own = tuple(extents.get(n, 1) for n in sorted({*x.address.names(), *(n for c in x.guards for n in c.index.names())}))
        found: Footprint | None = self.once((x, own), lambda: footprint(x, extents))
        return found

    def unrolled(self, t: Tile, points: int) -> tuple[str, ...]:
        """Sums to write out: those inside floor divisions, then short ones while the body stays small."""
        found, terms = [], 1
        for n in sorted(self.sums, key=lambda n: (n not in self.floors, self.sums[n])):
            body = terms * self.sums[n] * points * self.live
            if n != t.team[0] and (n in self.floors or terms * self.sums[n] <= MOST_UNROLLED and body <= MOST_BODY):
                found.append(n)
                terms *= self.sums[n]
        return tuple(found)

    def modelled(self, t: Tile, chosen: Sequence[bool], lanes: list[dict[str, int]], points: int) -> Tile:
        """The tile with copies of the chosen loads, and the cycles that the whole grid takes."""
        written = {**t.points, **{n: self.sums[n] for n in t.unrolled}}
        staged, per_load, chunks = self.copies(t, chosen, lanes)
        if staged is None:
            return replace(t, cycles=float("inf"))
        body = self.live * points * prod(self.sums[n] for n in t.unrolled)
        issued, fetched, registers = body, 0.0, points + 24
        for x, way in zip(self.loads, per_load, strict=True):
            count = self.distinct(x.address, written)
            turns = way if way else lines(x.address, lanes)
            issued += count * (1 if way else 2 + 2 * len(x.guards))
            fetched += count * turns
            registers += min(count, 32)
        walked = prod(e for n, e in self.sums.items() if n not in t.unrolled)
        steps = -(-walked // t.team[1]) if walked > 1 else 1
        rounds = prod(-(-e // chunks[n]) for n, e in self.sums.items() if n not in t.unrolled) if staged else 0
        filling = sum(-(-f.elements // t.block) for f in staged)
        warps = -(-t.block // WARP)
        combining = points * 2 * (t.team[1].bit_length() - 1)
        closing = points * (4 + sum(3 * lines(a.address, lanes) for a in self.around)) + points * lines(self.nest.address, lanes)
        each = -(-t.blocks // PROCESSORS)
        resident = max(1, min(RESIDENT // warps, FILE // (WARP * warps * min(255, registers)), MEMORY // max(1, 4 * sum(f.size for f in staged))))
        issue = steps * (issued + 3) + rounds * filling * 12 + combining + closing
        fetch = steps * fetched + rounds * filling * 3 + closing / 2
        busy = each * warps * max(issue / SCHEDULERS, fetch)
        alone = steps * (issued + LATENCY) + rounds * (2 * BARRIER + LATENCY * 10 + 12 * filling) + 5 * combining + closing + BEGIN
        cycles = max(busy, alone * -(-each // resident), self.traffic / TRAFFIC + BEGIN) if registers <= 200 else float("inf")
        return replace(t, staged=tuple(staged), chunks=chunks, cycles=cycles)

    def copies(
        self, t: Tile, chosen: Sequence[bool], lanes: list[dict[str, int]]
    ) -> tuple[list[Footprint] | None, list[int], dict[str, int]]:
        """The copies, the turns of each load that reads one (0: it reads the array), and the chunks of the sums such that they have room."""
        chunks = {n: e for n, e in self.sums.items() if n not in t.unrolled}
        whole = {n: self.sums[n] for n in t.unrolled}
        wanted = [k for k, one in enumerate(chosen) if one]
        boxes = self.with_room([self.loads[k] for k in wanted], {**t.box, **whole}, chunks)
        if boxes is None:
            return None, [], {}
        staged, per_load = [], [0] * len(self.loads)
        for k, f in zip(wanted, boxes, strict=True):
            if 2 * f.elements > t.block * self.distinct(self.loads[k].address, {**t.points, **whole, **chunks}):
                return None, [], {}
            copy, per_load[k] = arranged(f, lanes, t.points)
            staged.append(copy)
        return (staged, per_load, chunks) if 4 * sum(f.size for f in staged) <= SHARED + 4096 else (None, [], {})

    def with_room(self, loads: Sequence[Load], box: Mapping[str, int], chunks: dict[str, int]) -> list[Footprint] | None:
        """What loads read of a box in one chunk of the sums, which are made smaller, the widest first, until all of it has room."""
        while True:
            found = [self.footprint(load, {**box, **chunks}) for load in loads]
            boxes = [f for f in found if f is not None]
            if len(boxes) < len(found):
                return None
            if 4 * sum(f.elements for f in boxes) <= SHARED:
                return boxes
            widest = max(chunks, key=lambda n: chunks[n], default="")
            if not widest or chunks[widest] == 1:
                return None
            chunks[widest] = max(d for d in range(1, chunks[widest]) if self.sums[widest] % d == 0)


def small(extents: Mapping[str, int], names: Collection[str], most: int) -> Iterator[str]:
    """Those of the iterators that are short enough to be written out, the shortest first, while all together are few values."""
    for n in sorted(extents, key=lambda n: extents[n]):
        if n in names and extents[n] <= min(FLOOR_EXTENT, most):
            most //= extents[n]
            yield n
