"""The tiles of a nest around one reduction, chosen by a model of the device.

The model counts what a warp issues, what it loads, how many warps there are, and how long one thread's chain is. It knows extents and strides, and no
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import inf, nextafter, prod
from typing import Any

from einnet.instantiate.codegen.canonicalise import own_index_functions
from einnet.instantiate.codegen.cuda.footprint import Footprint, arranged, footprint
from einnet.instantiate.codegen.cuda.lanes import Lanes
from einnet.instantiate.codegen.cuda.reduction_nest import contraction, floor_names, live_share, self_contained, traffic
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

MOST_KNOWN = 1 << 12
"""Searches whose end is remembered."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a search has chosen, without the nest: another nest that looks alike to it gets the same."""

    threads: Mapping[str, int]
    points: Mapping[str, int]
    order: tuple[str, ...]
    team: tuple[str, int]
    copied: tuple[bool, ...]
    cycles: float


_known: dict[object, Sizes] = {}


@lru_cache(maxsize=1 << 10)
def _tile(nest: Nest, exact: bool) -> Tile | None:
    found = contraction(nest)
    if found is None:
        return None
    search = TileSearch(nest, *found, exact)
    alike = search.alike()
    if alike not in _known:
        if len(_known) >= MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[alike] = search.sizes(search.best())
    sizes = _known[alike]
    return search.of_sizes(sizes) if sizes.cycles < inf else None


def tile(nest: Nest, exact: bool = False) -> Tile | None:
    """The fastest tiles of a normalised nest by the model; None for a nest of another form. `exact` wants tiles that divide every extent."""
    return _tile(self_contained(nest), exact)


def runs(t: Tile) -> bool:
    """A block has as many threads, and a thread as many elements, as can be, and whole warps where lanes share the sum."""
    return t.elements <= MOST_POINTS and t.block <= MOST_THREADS and not (t.team[1] > 1 and t.block % WARP)


def size_of(t: Tile) -> tuple[object, ...]:
    """What tells a tile of a nest from another before its copies are chosen."""
    return *t.threads.values(), *t.points.values(), t.order, t.team


@dataclass(frozen=True, slots=True)
class Touched:
    """What a warp touches: turns of each load for an element and whether it reads a copy, what closes an element, and rounds, elements that a thread
    copies in one, and bytes of copies."""

    turns: tuple[int, ...]
    copies: tuple[bool, ...]
    closing: int
    rounds: int = 0
    filling: int = 0
    room: int = 0

    @classmethod
    def least(cls, search: TileSearch) -> Touched:
        """One turn for everything."""
        return cls((1,) * len(search.loads), (True,) * len(search.loads), 5 + 3 * len(search.around))

    @classmethod
    def of(cls, search: TileSearch, lanes: Lanes) -> Touched:
        """Nothing is copied."""
        closing = 4 + sum(3 * lines(a.address, lanes) for a in search.around) + lines(search.nest.address, lanes)
        return cls(tuple(lines(x.address, lanes) for x in search.loads), (False,) * len(search.loads), closing)

    def copied(self, chosen: Sequence[bool]) -> Touched:
        """At least that, where some loads are copied: one turn of each, and one round."""
        return self.filled([int(one) for one in chosen], int(any(chosen)), sum(chosen), 0) if chosen else self

    def filled(self, per_load: Sequence[int], rounds: int, filling: int, room: int) -> Touched:
        """Loads that read a copy in so many turns, 0 for one that reads the array, and how the copies are filled."""
        turns = tuple(way or own for way, own in zip(per_load, self.turns, strict=True))
        return Touched(turns, tuple(map(bool, per_load)), self.closing, rounds, filling, room)


@dataclass(frozen=True, slots=True)
class Work:
    """What a tile does whatever it copies: different elements of each load for a step, and what each costs that reads the array; steps, what a
    step and the end issue, and how blocks lie on the device. `traffic` is what the grid takes at least."""

    counts: tuple[int, ...]
    direct: tuple[int, ...]
    step: float
    steps: int
    registers: int
    points: int
    combining: int
    warps: int
    each: int
    traffic: float

    @classmethod
    def of(cls, search: TileSearch, t: Tile) -> Work:
        """Of a tile whose sums are written out as far as they are to be."""
        written, points = {**t.points, **{n: search.sums[n] for n in t.unrolled}}, t.elements
        counts = tuple(search.distinct(n, written) for n in range(len(search.loads)))
        walked = prod(e for n, e in search.sums.items() if n not in t.unrolled)
        return cls(
            counts,
            tuple(2 + 2 * len(x.guards) for x in search.loads),
            search.live * points * prod(search.sums[n] for n in t.unrolled),
            -(-walked // t.team[1]) if walked > 1 else 1,
            points + 24 + sum(min(count, 32) for count in counts),
            points,
            points * 2 * (t.team[1].bit_length() - 1),
            -(-t.block // WARP),
            -(-t.blocks // PROCESSORS),
            search.traffic / TRAFFIC + BEGIN,
        )

    def cycles(self, touched: Touched) -> float:
        """What the grid takes; infinitely many where a thread has too few registers."""
        if self.registers > 200:
            return inf
        issued, fetched = self.step, 0
        for count, direct, turns, copied in zip(self.counts, self.direct, touched.turns, touched.copies, strict=True):
            issued += count * (1 if copied else direct)
            fetched += count * turns
        closing, rounds, filling = self.points * touched.closing, touched.rounds, touched.filling
        resident = max(1, min(RESIDENT // self.warps, FILE // (WARP * self.warps * self.registers), MEMORY // max(1, touched.room)))
        issue = self.steps * (issued + 3) + rounds * filling * 12 + self.combining + closing
        fetch = self.steps * fetched + rounds * filling * 3 + closing / 2
        busy = self.each * self.warps * max(issue / SCHEDULERS, fetch)
        alone = self.steps * (issued + LATENCY) + rounds * (2 * BARRIER + LATENCY * 10 + 12 * filling) + 5 * self.combining + closing + BEGIN
        return max(busy, alone * -(-self.each // resident), self.traffic)


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
        self.walked = [tuple(sorted(x.address.names())) for x in self.loads]
        self.touching = [tuple(sorted({n for e in (x.address, *(c.index for c in x.guards)) for n in e.names()})) for x in self.loads]
        """The iterators of each load's address, and of its guards, too, in the order of the alphabet."""
        self.counts: list[dict[object, int]] = [{} for _ in self.loads]
        self.footprints: list[dict[object, Footprint | None]] = [{} for _ in self.loads]

    def best(self) -> Tile:
        best: Tile | None = None
        for start in self.starts():
            now = self.finished(start)
            while (better := self.better(now)) is not now:
                now = better
            best = now if best is None or now.cycles < best.cycles else best
        assert best is not None
        return best

    def alike(self) -> object:
        """What the search looks at: it ends in the same sizes for two nests for which this is equal, whatever they compute, read and write, and
        wherever that begins."""
        loads = tuple((x.address.terms, tuple(c.index.terms for c in x.guards)) for x in self.loads)
        around = tuple(x.address.terms for x in self.around)
        looped = tuple(self.loops.items()), tuple(self.sums.items()), self.nest.address.terms, frozenset(self.floors)
        return (*looped, loads, around, self.live, self.traffic, self.exact)

    def sizes(self, t: Tile) -> Sizes:
        """What is chosen of a tile; its copies are those of loads that no other load equals."""
        copies = {f.load for f in t.staged}
        return Sizes(t.threads, t.points, t.order, t.team, tuple(x in copies for x in self.loads), t.cycles)

    def of_sizes(self, sizes: Sizes) -> Tile:
        """The tile of these sizes."""
        t = self.written_out(Tile(self.nest, self.reduce, self.rest, sizes.threads, sizes.points, sizes.order, sizes.team))
        lanes = lanes_of(t)
        touched = Touched.of(self, lanes)
        if any(sizes.copied):
            return self.modelled(t, sizes.copied, lanes, touched)
        return replace(t, chunks=self.chunks(t), cycles=self.work(t).cycles(touched))

    def better(self, now: Tile) -> Tile:
        """The fastest of its neighbours, of equal ones the first, if it is faster by 2 %, else the tile itself.

        What promises most is looked into first, so that most others are known to take too long in any case.
        """
        found, most, place = now, 0.98 * now.cycles, -1
        for least, n, t in sorted(((self.least(t), n, t) for n, t in enumerate(self.neighbours(now))), key=lambda one: one[:2]):
            limit = nextafter(most, inf) if n < place else most
            if least >= limit:
                break
            nearby = self.finished(t, limit)
            if nearby.cycles < limit:
                found, most, place = nearby, nearby.cycles, n
        return found

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

        def sized(threads: Mapping[str, int], points: Mapping[str, int], order: tuple[str, ...], team: tuple[str, int]) -> Tile:
            return Tile(self.nest, self.reduce, self.rest, threads, points, order, team)

        for n, extent in self.loops.items():
            for threads in {2 * t.threads[n], t.threads[n] // 2, extent // t.points[n]} - {0, t.threads[n]}:
                if self.fits(n, threads * t.points[n]):
                    yield sized({**t.threads, n: threads}, t.points, t.order, t.team)
            for points in (1, 2, 3, 4, 6, 8) if n not in self.floors else ():
                if points != t.points[n] and points <= extent:
                    threads = t.threads[n]
                    while threads > 1 and not self.fits(n, threads * points):
                        threads //= 2
                    if self.fits(n, threads * points):
                        yield sized({**t.threads, n: threads}, {**t.points, n: points}, t.order, t.team)
            if n != t.order[-1] and t.threads[n] > 1:
                yield sized(t.threads, t.points, self.sorted(t.threads, n), t.team)
        for s, extent in self.sums.items():
            for lanes in (2, 4, 8, 16, 32):
                if s not in self.floors and lanes <= extent and (s, lanes) != t.team:
                    yield sized(t.threads, t.points, t.order, (s, lanes))
        if t.team[1] > 1:
            yield sized(t.threads, t.points, t.order, ("", 1))

    def finished(self, t: Tile, most: float = inf) -> Tile:
        """The tile with the best choice of copies, and its cycles; of one that takes `most` cycles or more, only that it does."""
        if not runs(t):
            return replace(t, cycles=inf)
        key = ("tile", *size_of(t))
        known, limit = self.known.get(key, (None, 0.0))
        if known is None or (known.cycles >= limit and limit < most):
            known, _ = self.known[key] = self.with_copies(self.written_out(t), most), most
        found: Tile = known
        return found

    def least(self, t: Tile) -> float:
        """Cycles that the tile takes at least, whatever is copied: as if all that a warp touches lay in one line."""
        found: float = self.once(("least", *size_of(t)), lambda: self.work(self.written_out(t)).cycles(Touched.least(self)) if runs(t) else inf)
        return found

    def with_copies(self, t: Tile, most: float) -> Tile:
        """The tile with the best choice of copies below so many cycles; a choice that takes too long in any case is not made."""
        lanes = lanes_of(t)
        touched = Touched.of(self, lanes)
        work = self.work(t)
        best = replace(t, staged=(), chunks=self.chunks(t), cycles=work.cycles(touched))
        if t.team[1] > 1 or t.block == 1:
            return best
        for chosen in product((False, True), repeat=len(self.loads)):
            limit = min(best.cycles, most)
            if any(chosen) and work.cycles(touched.copied(chosen)) < limit:
                best = min(best, self.modelled(t, chosen, lanes, touched, limit), key=lambda t: t.cycles)
        return best

    def written_out(self, t: Tile) -> Tile:
        unrolled = self.once((t.elements, t.team[0]), lambda: self.unrolled(t))
        return Tile(t.nest, t.reduce, t.rest, t.threads, t.points, t.order, t.team, unrolled, t.staged, t.chunks, t.cycles)

    def once(self, key: object, compute: Callable[[], Any]) -> Any:
        """What was computed under the key before, or now."""
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def distinct(self, number: int, written: Mapping[str, int]) -> int:
        """Different values of the address of the load of that number."""
        own, known = tuple((n, written[n]) for n in self.walked[number] if written.get(n, 1) > 1), self.counts[number]
        if own not in known:
            known[own] = distinct(self.loads[number].address, dict(own))
        return known[own]

    def footprint(self, number: int, extents: Mapping[str, int]) -> Footprint | None:
        """What the load of that number touches."""
        own, known = tuple(extents.get(n, 1) for n in self.touching[number]), self.footprints[number]
        if own not in known:
            known[own] = footprint(self.loads[number], extents)
        return known[own]

    def unrolled(self, t: Tile) -> tuple[str, ...]:
        """Sums to write out: those inside floor divisions, then short ones while the body stays small."""
        found, terms, points = list[str](), 1, t.elements
        for n in sorted(self.sums, key=lambda n: (n not in self.floors, self.sums[n])):
            body = terms * self.sums[n] * points * self.live
            if n != t.team[0] and (n in self.floors or terms * self.sums[n] <= MOST_UNROLLED and body <= MOST_BODY):
                found.append(n)
                terms *= self.sums[n]
        return tuple(found)

    def modelled(self, t: Tile, chosen: Sequence[bool], lanes: Lanes, touched: Touched, most: float = inf) -> Tile:
        """The tile with copies of the chosen loads, and the cycles that the whole grid takes; infinitely many where these are `most` or more."""
        chunks = self.chunks(t)
        boxes = self.boxes(t, chosen, chunks)
        if boxes is None:
            return replace(t, cycles=inf)
        rounds = prod(-(-e // chunks[n]) for n, e in self.sums.items() if n not in t.unrolled) if boxes else 0
        filling = sum(-(-f.elements // t.block) for f in boxes)
        work = self.work(t)
        least = touched.filled([int(one) for one in chosen], rounds, filling, 4 * sum(f.elements for f in boxes))
        if work.cycles(least) >= most:
            return replace(t, cycles=inf)
        copies = [arranged(f, lanes, t.points) for f in boxes]
        room = 4 * sum(f.size for f, _ in copies)
        if room > SHARED + 4096:
            return replace(t, cycles=inf)
        turns = iter(copies)
        per_load = [next(turns)[1] if one else 0 for one in chosen]
        staged = tuple(f for f, _ in copies)
        return replace(t, staged=staged, chunks=chunks, cycles=work.cycles(touched.filled(per_load, rounds, filling, room)))

    def work(self, t: Tile) -> Work:
        """What the whole grid does, whatever of it is copied."""
        found: Work = self.once(("work", *size_of(t)), lambda: Work.of(self, t))
        return found

    def chunks(self, t: Tile) -> dict[str, int]:
        """The sums that are walked, in one chunk each."""
        return {n: e for n, e in self.sums.items() if n not in t.unrolled}

    def boxes(self, t: Tile, chosen: Sequence[bool], chunks: dict[str, int]) -> list[Footprint] | None:
        """What is copied of the chosen loads, each element read twice at least, and the `chunks` of the sums such that all has room; else None."""
        whole = {n: self.sums[n] for n in t.unrolled}
        wanted = [number for number, one in enumerate(chosen) if one]
        found = self.with_room(wanted, {**t.box, **whole}, chunks)
        if found is None:
            return None
        read = {**t.points, **whole, **chunks}
        return None if any(2 * f.elements > t.block * self.distinct(n, read) for n, f in zip(wanted, found, strict=True)) else found

    def with_room(self, loads: Sequence[int], box: Mapping[str, int], chunks: dict[str, int]) -> list[Footprint] | None:
        """What loads read of a box in one chunk of the sums, which are made smaller, the widest first, until all of it has room."""
        while True:
            here = {**box, **chunks}
            found = [self.footprint(number, here) for number in loads]
            boxes = [f for f in found if f is not None]
            if len(boxes) < len(found):
                return None
            if 4 * sum(f.elements for f in boxes) <= SHARED:
                return boxes
            widest = max(chunks, key=lambda n: chunks[n], default="")
            if not widest or chunks[widest] == 1:
                return None
            chunks[widest] = next_smaller(self.sums[widest], chunks[widest])


@lru_cache(maxsize=1 << 10)
def next_smaller(whole: int, part: int) -> int:
    """The largest divisor of a number that is less than a part of it, which is more than 1."""
    return max(d for d in range(1, part) if whole % d == 0)


def small(extents: Mapping[str, int], names: Collection[str], most: int) -> Iterator[str]:
    """Those of the iterators that are short enough to be written out, the shortest first, while all together are few values."""
    for n in sorted(extents, key=lambda n: extents[n]):
        if n in names and extents[n] <= min(FLOOR_EXTENT, most):
            most //= extents[n]
            yield n
