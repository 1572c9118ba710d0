"""Which loop of a nest runs in vector lanes, which are unrolled into points of one body, and in what order the others stand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from math import prod

from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.canonicalise import index_functions, split
from einnet.instantiate.codegen.ir import (
    Apply,
    Expr,
    Load,
    Nest,
    Reduce,
    Use,
    children,
    conditions,
    decide,
    expand,
    expanded,
    names,
    picked,
    picks,
    weights,
)

LANES = 16
"""Floats of the widest vector."""
UNROLL = 64
"""Most copies of a body."""
ACCUMULATORS = 12
"""Most accumulators of a reduction that is not unrolled."""
PAGE = 1024
"""Floats between addresses that fall into one set of a first-level cache."""
SMALL = 8
"""Loops up to this extent may be unrolled as a whole."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A nest whose loops are: `order` (outermost first), the lane iterator, and the unrolled points."""

    nest: Nest
    order: tuple[Iter, ...]
    lane: Iter | None
    points: tuple[Iter, ...]

    @property
    def straight(self) -> bool:
        """The body is a linear transform by known matrices, written once as straight-line code, and once more for the borders."""
        found = list(reductions(self.nest.expr))
        return bool(found) and all(is_transform(r, self.nest.tables) for r in found)

    @property
    def body_size(self) -> int:
        """Loads in one unrolled body."""
        copies = prod(p.extent for p in self.points)
        within = sum(prod(i.extent for i in r.sums if i.extent <= SMALL) for u in every_use(self.nest.expr) for r in reductions(u.function.expr))
        return copies * within + sum(copies * min(prod(s.extent for s in a.sums), max(1, UNROLL // copies)) for a in accesses(self.nest.expr))

    @property
    def lane_level(self) -> int:
        """The number of loops in `order` after which the lane iterator has a meaning."""
        if self.lane is None:
            return len(self.order)
        chunk = self.lane.name.removesuffix(".l") + ".o"
        return max((n + 1 for n, i in enumerate(self.order) if i.name.startswith(chunk)), default=len(self.order))


@dataclass(frozen=True, slots=True)
class Access:
    """A load that is made `count` times for each output, over these summation iterators."""

    address: Index
    count: int
    sums: tuple[Iter, ...]


def width(extent: int) -> int:
    """Lanes for a loop of this extent; 1 if vectors do not pay."""
    return 1 if extent < 3 else 4 if extent <= 4 else 8 if extent <= 8 else LANES


def accesses(e: Expr, sums: tuple[Iter, ...] = ()) -> Iterator[Access]:
    """The loads made at each point of the nest, those of hoisted functions excepted."""
    if isinstance(e, Load):
        yield Access(e.address, prod(i.extent for i in sums if i.name in e.address.names()), sums)
    inner = (*sums, *e.sums) if isinstance(e, Reduce) and not picks(e) else sums
    for a in children(e):
        yield from accesses(a, inner)


def schedule(nest: Nest) -> Plan:
    """A plan for a normalised nest."""
    loads = tuple(accesses(nest.expr))
    chosen = choose_lane(nest, loads)
    turned = transposed_loop(nest, loads, chosen) if chosen else None
    points = list(unrolled(nest, chosen))
    lane: Iter | None = None
    if chosen:
        lanes = width(chosen.extent)
        nest = split(nest, chosen, lanes, ".o", ".l")
        lane = next(i for i in nest.loops if i.name == chosen.name + ".l")
        if turned is not None and turned not in points and lanes * prod(p.extent for p in points) <= UNROLL:
            nest, tile = tiled(nest, turned, lanes)
            points.append(tile)
    rolled = rolled_reduction(nest.expr, prod(p.extent for p in points), nest.tables) or (chained(nest.expr, nest.tables) if lane else None)
    if rolled is not None:
        nest, tiles = blocked(nest, rolled, lane, points)
        points += tiles
    rest = [i for i in nest.loops if i != lane and i not in points]
    return Plan(nest, tuple(ordered(nest, rest, lane)), lane, tuple(points))


def ordered(nest: Nest, loops: list[Iter], lane: Iter | None) -> list[Iter]:
    """Loops by the output's memory order, those that all nested reductions depend on first."""
    uses = [frozenset(n for i in u.index for n in i.names()) for u in every_use(nest.expr)]
    shared = frozenset.intersection(*uses) if uses else frozenset()

    def key(i: Iter) -> tuple[bool, int]:
        return i.name not in shared, -abs(nest.address.coefficient(i.name))

    return sorted(loops, key=key)


def every_use(e: Expr) -> Iterator[Use]:
    if isinstance(e, Use):
        yield e
    for a in children(e):
        yield from every_use(a)


def uses_of(e: Expr, bound: Set[str]) -> Iterator[Use]:
    """The functions in an expression that depend on bound iterators alone, also those that other functions use."""
    for use in every_use(e):
        if names(use) <= bound:
            yield use
        else:
            yield from uses_of(expand(use), bound)


def choose_lane(nest: Nest, loads: tuple[Access, ...]) -> Iter | None:
    """The loop whose vectors cost least; None where lanes over a summation iterator (or none at all) are better."""
    costs = lane_costs(nest, loads)
    return min(costs, key=lambda i: (costs[i], i is None))


def lane_costs(nest: Nest, loads: tuple[Access, ...]) -> dict[Iter | None, float]:
    """What an element takes with each loop in vector lanes, in contiguous loads; under None with lanes over a summation iterator or none at all."""
    costs: dict[Iter | None, float] = {None: 1.0 + sum(a.count for a in loads)}
    in_floor = floor_names(nest)
    placing = {n for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Reduce) and picks(e) for n in names(picked(e)[0])}
    for i in nest.loops:
        lanes = width(i.extent) if i.name not in placing else 1
        if lanes > 1:
            steps = -(-i.extent // lanes)
            total = sum(a.count * load_cost(a.address, i, nest) for a in loads) + store_cost(nest, i) + (16.0 if i.name in in_floor else 0.0)
            costs[i] = total * steps / i.extent
    for s in {s for a in loads for s in a.sums}:
        lanes = width(s.extent)
        if lanes > 1:
            inside = sum(a.count * load_cost(a.address, s, nest) for a in loads if s in a.sums) * -(-s.extent // lanes) / s.extent
            costs[None] = min(costs[None], inside + 12.0 + sum(a.count for a in loads if s not in a.sums))
    return costs


def load_cost(address: Index, i: Iter, nest: Nest) -> float:
    """Cost of one vector load along i, in contiguous loads."""
    if any(isinstance(a, Floor) and i.name in a.num.names() for a, _ in address.terms):
        return 20.0
    stride = abs(address.coefficient(i.name))
    if stride <= 1:
        return 1.0 if stride else 0.3
    if stride <= 4:
        return 1.0 + 0.5 * stride
    return 4.0 if any(turns(address, u, i) for u in nest.loops) else 16.0


def turns(address: Index, u: Iter, i: Iter) -> bool:
    """A square block of loads along u can be transposed into vectors along i."""
    return u is not i and u.extent >= 4 and address.coefficient(u.name) == 1


def store_cost(nest: Nest, i: Iter) -> float:
    stride = abs(nest.address.coefficient(i.name))
    return 1.0 if stride == 1 else 2.5 if 1 < stride <= 4 else 16.0


def transposed_loop(nest: Nest, loads: tuple[Access, ...], lane: Iter) -> Iter | None:
    """The loop that most loads which are strided along the lane are contiguous in."""
    strided = [a for a in loads if abs(a.address.coefficient(lane.name)) > 4]
    votes = {u: sum(a.count for a in strided if turns(a.address, u, lane)) for u in nest.loops}
    best = max(votes, key=lambda u: votes[u])
    return best if votes[best] else None


def floor_names(nest: Nest) -> frozenset[str]:
    """Iterators that stand inside a floor division."""
    return frozenset(n for e in index_functions(nest) for a, _ in e.terms if isinstance(a, Floor) for n in a.num.names())


def unrolled(nest: Nest, lane: Iter | None) -> Iterator[Iter]:
    """Small loops to unroll as a whole: those inside a floor division, rows of known matrices, and those that the main operand does not
    depend on."""
    wanted = floor_names(nest) | {n for r in reductions(nest.expr) for w in weights(r, nest.tables) for n in w.address.names()}
    extents = {i.name: i.extent for i in nest.loops}
    every = [x.address for x, _ in expanded(nest.expr, nest.ranges) if isinstance(x, Load)]
    main = max(every, key=lambda a: prod(extents.get(n, 1) for n in a.names()), default=None)
    copies, most = 1, UNROLL if rolled_reduction(nest.expr, 1, nest.tables) is None else ACCUMULATORS
    for i in sorted(nest.loops, key=lambda i: i.extent):
        reused = main is not None and i.name not in main.names() and len(nest.loops) > 1 and copies * i.extent <= most
        if i is not lane and i.extent <= SMALL and copies * i.extent <= UNROLL and (i.name in wanted or reused):
            copies *= i.extent
            yield i


def rolled_reduction(e: Expr, copies: int, tables: Collection[str] = ()) -> Reduce | None:
    """A reduction of the body that is too large to unroll."""
    for node in reductions(e):
        if prod(i.extent for i in node.sums) * copies > UNROLL and not is_transform(node, tables):
            return node
    return None


def chained(e: Expr, tables: Collection[str] = ()) -> Reduce | None:
    """A sum of products over windows, so long that each addition waits for the one before: with several of them side by side none does."""
    for node in reductions(e):
        window = node.op == "sum" and len(node.sums) > 1 and isinstance(node.body, Apply) and node.body.op == "mul"
        if window and prod(i.extent for i in node.sums) >= SMALL and not is_transform(node, tables):
            return node
    return None


def is_transform(e: Reduce, tables: Collection[str]) -> bool:
    """A short sum weighted by known matrices, which is unrolled as a whole."""
    return all(i.extent <= SMALL for i in e.sums) and bool(weights(e, tables))


def reductions(e: Expr) -> Iterator[Reduce]:
    if isinstance(e, Reduce) and not picks(e):
        yield e
    for a in children(e):
        yield from reductions(a)


def tiled(nest: Nest, i: Iter, factor: int) -> tuple[Nest, Iter]:
    """The nest with i split by the factor, and the inner iterator."""
    nest = split(nest, i, factor, ".t", ".u")
    return nest, next(j for j in nest.loops if j.name == i.name + ".u")


def undecided(nest: Nest) -> frozenset[str]:
    """The iterators in conditions that hold at some points of the nest and not at others."""
    return frozenset(n for e, r in expanded(nest.expr, nest.ranges) for c in conditions(e) if decide(c, r) is None for n in c.index.names())


def blocked(nest: Nest, reduce: Reduce, lane: Iter | None, points: list[Iter]) -> tuple[Nest, list[Iter]]:
    """Tiles of loops whose accumulators are kept in registers while the reduction runs, such that loads are shared between them."""
    loads = [a.address for a in accesses(reduce)]
    if lane is not None:
        loads += [e for e in loads if lane.name in e.names()]  # a vector is as dear as two broadcasts
    free = [i for i in nest.loops if i is not lane and i not in points and i.extent > 1 and i.name in names(reduce)]
    free.sort(key=lambda i: max(abs(e.coefficient(i.name)) for e in loads) if loads else 0)
    sliding = tuple(s for s in reduce.sums if s.extent <= 2 * SMALL)
    sizes = Tiling(tuple(loads), {p.name: p.extent for p in points}, sliding, undecided(nest)).sizes(free)
    tiles = []
    for i, size in sizes.items():
        tile = i
        if 1 < size < i.extent:
            nest, tile = tiled(nest, i, size)
        if size > 1:
            tiles.append(tile)
    return nest, tiles


@dataclass(frozen=True, slots=True)
class Tiling:
    """What decides over tiles: the loads of one step, the points that are unrolled anyway, sums over which loads may slide, loops with borders."""

    loads: tuple[Index, ...]
    points: Mapping[str, int]
    sliding: tuple[Iter, ...]
    bordered: frozenset[str]

    def sizes(self, free: Sequence[Iter]) -> Mapping[Iter, int]:
        """The size of each loop's tile, grown one loop at a time while accumulators are left, and while loads are saved or few accumulators used."""
        sizes: Mapping[Iter, int] = dict.fromkeys(free, 1)
        while trials := list(self._larger(sizes)):
            best = min(trials, key=self._ratio)
            if self._ratio(best) > 0.9 * self._ratio(sizes) and self._held(sizes) >= SMALL:
                break
            sizes = best
        return sizes

    def _larger(self, sizes: Mapping[Iter, int]) -> Iterator[Mapping[Iter, int]]:
        for i, size in sizes.items():
            larger = grown(i, size, i.name in self.bordered)
            trial = {**sizes, i: larger}
            if larger and self._held(trial) <= ACCUMULATORS:
                yield trial

    def _held(self, sizes: Mapping[Iter, int]) -> int:
        """Accumulators."""
        return prod(self.points.values()) * prod(sizes.values())

    def _ratio(self, sizes: Mapping[Iter, int]) -> float:
        """Loads for each step; twice as dear where the tile's addresses fall into one set of the cache."""
        fixed = {**self.points, **{i.name: t for i, t in sizes.items()}}
        aliased = any(t > 2 and e.coefficient(i.name) and e.coefficient(i.name) % PAGE == 0 for i, t in sizes.items() for e in self.loads)
        slides = [{}, *({s.name: s.extent} for s in self.sliding)]
        return min(loads_per_step(self.loads, {**fixed, **slide}) for slide in slides) * (2.0 if aliased else 1.0)


def loads_per_step(loads: Sequence[Index], unrolled: Mapping[str, int]) -> float:
    """Distinct addresses loaded by a body in which these iterators are unrolled, for each of its steps; infinite if it is too large."""
    steps = prod(unrolled.values())
    return sum(distinct(e, unrolled) for e in loads) / steps if steps <= UNROLL else float("inf")


def distinct(address: Index, unrolled: Mapping[str, int]) -> int:
    """Different values of an address over the unrolled iterators."""
    moving = [(c, unrolled[a]) for a, c in address.terms if isinstance(a, str) and a in unrolled]
    return len({sum(c * v for (c, _), v in zip(moving, at)) for at in product(*(range(n) for _, n in moving))})


def grown(i: Iter, size: int, bordered: bool) -> int:
    """The next larger tile: a divisor of the extent if there is one up to 8, else a power of two; 0 if there is none.

    Where the loop has borders, tiles are such that most of them lie inside.
    """
    divisors = [t for t in range(size + 1, SMALL + 1) if i.extent % t == 0]
    larger = divisors[0] if divisors else 2 * size if 2 * size <= min(4, i.extent // 2) else 0
    return larger if larger == i.extent or not bordered or i.extent >= 8 * larger else 0


def lane_of(e: Reduce) -> Iter | None:
    """The summation iterator in which most loads are contiguous, None if vectors along it do not pay."""
    loads = list(accesses(Reduce(e.op, e.sums, e.body)))
    if not loads:
        return None

    def cost(i: Iter) -> float:
        lanes = width(i.extent)
        vector = sum(1.0 if abs(a.address.coefficient(i.name)) <= 1 else float(lanes) for a in loads if plain_in(a, i))
        return vector * -(-i.extent // lanes) / i.extent + sum(1.0 for a in loads if not plain_in(a, i))

    candidates = [i for i in e.sums if width(i.extent) > 1]
    best = min(candidates, key=cost, default=None)
    return best if best is not None and cost(best) < 0.8 * len(loads) else None


def plain_in(a: Access, i: Iter) -> bool:
    """No floor division of i stands in the address."""
    return all(not isinstance(t, Floor) or i.name not in t.num.names() for t, _ in a.address.terms)
