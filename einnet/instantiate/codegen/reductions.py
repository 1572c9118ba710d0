"""Reductions inside a kernel: unrolled where small, else loops over accumulators, in vector lanes where the outputs are not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial, reduce
from itertools import product, repeat
from math import prod
from typing import TypeVar

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx import Expr as Tir

from einnet.expr.constant_matrices import Matrix, Terms, factored
from einnet.expr.index import Floor, Index, Range, combine, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen import mathfunctions, vectors
from einnet.instantiate.codegen.canonicalise import own_index_functions
from einnet.instantiate.codegen.context import Value
from einnet.instantiate.codegen.ir import (
    PICK,
    Apply,
    Choose,
    Expr,
    Lit,
    Load,
    Ranges,
    Reduce,
    expanded,
    names,
    picked,
    protect,
    simplified,
    substitute_expr,
    walk,
    weights,
)  # fmt: skip
from einnet.instantiate.codegen.pieces import located, pieces
from einnet.instantiate.codegen.schedule import SMALL, UNROLL, accesses, lane_of, loads_per_step, uses_of, width
from einnet.instantiate.codegen.values import NEUTRAL, Evaluating, Point

T = TypeVar("T")

COMPACT = 24
"""Most copies of a body in compact code."""

CHAINS = 4
"""Independent accumulators that hide the latency of an addition."""


class Reducing(Evaluating):
    """Values of reductions."""

    compact = False
    """Borders of large bodies are being written: short code matters more than its speed."""

    def for_each(self, name: str, own: Range, body: Callable[[], None], kind: int = tirx.ForKind.SERIAL) -> None:
        """Run the body's statements for every value of the iterator; a range of one value makes no loop."""
        lo, hi = own
        if hi - lo == 1:
            self.variables[name] = self.constant(lo)
            body()
            return
        v = tirx.Var(name, self.index_type)
        self.variables[name] = v
        with self.block() as inner:
            body()
        if not inner:
            return
        self.statements.append(tirx.For(v, self.constant(lo), self.constant(hi - lo), kind, tirx.SeqStmt(inner) if len(inner) > 1 else inner[0]))

    def reduce(self, e: Reduce, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """One reduction at several points, computed once however often it stands in an expression."""
        own = names(e)
        fixed = e, self.lane, tuple(sorted((n, ranges[n]) for n in own & ranges.keys()))
        keys = [(fixed, tuple(sorted((n, p[n]) for n in own & p.keys()))) for p in points]
        missing = {key: p for key, p in zip(keys, points) if self.remembered(key) is None}
        for key, value in zip(missing, self.reduced(e, list(missing.values()), ranges) if missing else ()):
            self.memo[-1][key] = value if isinstance(value, float) else self.bind(value)
        return [v for key in keys for v in (self.remembered(key),) if v is not None]

    def reduced(self, e: Reduce, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """One reduction at several points, in the same loops."""
        inner = {**ranges, **{i.name: i.range for i in e.sums}}
        if e.op == PICK:
            place, _ = picked(e)
            if self.lane is None or self.lane.name not in names(place):
                return [self.picked(e, p, ranges) for p in points]
            e = Reduce("sum", e.sums, e.body)
        for use in uses_of(e.body, ranges.keys()):
            self.values(use, points, ranges)
        if (self.lane is None or self.lane.name not in names(e)) and prod(i.extent for i in e.sums) >= SMALL:
            chosen = lane_of(e)
            if chosen is not None:
                return self.in_sum_lanes(e, chosen, points, ranges)
        unrolled = to_unroll(e, inner, points, COMPACT if self.compact else UNROLL, self.tables.keys())
        rolled = [i for i in e.sums if i not in unrolled]
        if not rolled:
            return self.straight(e, unrolled, points, inner)
        return self.looped(e, rolled, unrolled, points, inner)

    def picked(self, e: Reduce, point: Point, ranges: Ranges) -> Value:
        """The term that a number says, 0 where it says none: the iterator is a variable."""
        place, term = picked(e)
        (over,) = e.sums
        (number,) = self.values(place, [point], ranges)
        at = self.bind(self.tir(number))
        inside = tirx.And(at >= tirx.const(float(over.lo), "float32"), at <= tirx.const(float(over.hi - 1), "float32"))
        whole = tirx.Select(inside, at, tirx.const(float(over.lo), "float32")).astype(self.index_type)
        name = self.fresh(over.name)
        self.variables[name] = self.offset(whole)
        own = substitute_expr(term, {over.name: var(name)})
        (value,) = self.values(own, [point], {**ranges, name: over.range})
        same = tirx.And(inside, tirx.EQ(self.variables[name].astype("float32"), at))
        width = 1 if isinstance(value, float) else mathfunctions.lanes(value)
        zero = self.tir(0.0, width)
        return tirx.Select(vectors.broadcast(same, width), self.tir(value, width), zero)

    def straight(
        self, e: Reduce, unrolled: Sequence[Iter], points: Sequence[Point], ranges: Ranges, starts: Sequence[Value] | None = None
    ) -> list[Value]:
        """The reduction without a loop, from a value for each point on."""
        weighted = None if starts else self.weighted(e, unrolled, points, ranges)
        if weighted is not None:
            return weighted
        found = self.values(e.body, steps(points, unrolled), ranges)
        return [reduce(partial(self.combine, e.op), row, first) for row, first in zip(rows(found, len(points)), starts or repeat(NEUTRAL[e.op]))]

    def weighted(self, e: Reduce, unrolled: Sequence[Iter], points: Sequence[Point], ranges: Ranges) -> list[Value] | None:
        """The reduction as the product of a known matrix and the values that it weights; None if it is no such product at these points."""
        given = weights(e, self.tables.keys())
        if not given:
            return None
        assert isinstance(e.body, Apply)
        rest = Apply("mul", (*(a for a in e.body.args if a not in given), Lit(1.0)))
        places = steps(points, unrolled)
        entries = self.entries(given, places, ranges)
        if entries is None:
            return None
        used = names(rest)
        columns = [tuple(sorted((n, v) for n, v in p.items() if n in used)) for p in places]
        live = {key: place for key, place, entry in zip(columns, places, entries) if entry}
        found: dict[Hashable, Value] = dict(zip(live, self.values(rest, list(live.values()), ranges)))
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        for n, row in enumerate(rows(columns, len(points))):
            groups.setdefault(row, []).append(n)
        matrix = rows(entries, len(points))
        results: list[Value] = [0.0] * len(points)
        for keys, members in groups.items():
            for n, value in zip(members, self.mapped(tuple(matrix[n] for n in members), [found.get(k, 0.0) for k in keys])):
                results[n] = value
        return results

    def entries(self, given: Sequence[Expr], places: Sequence[Point], ranges: Ranges) -> list[float] | None:
        """The product of the weights at each place; None if one is no number."""
        found = []
        for values in zip(*(self.values(w, places, ranges) for w in given)):
            known = [v for v in values if isinstance(v, float)]
            if len(known) < len(values):
                return None
            found.append(prod(known))
        return found

    def mapped(self, matrix: Matrix, columns: Sequence[Value]) -> list[Value]:
        """A known matrix applied to values."""
        values = [v if isinstance(v, float) else self.bind(v) for v in columns]
        plan = factored(matrix)
        for terms in plan.shared:
            value = self.combination(terms, values)
            values.append(value if isinstance(value, float) else self.bind(value))
        return [self.combination(terms, values) for terms in plan.rows]

    def combination(self, terms: Terms, values: Sequence[Value]) -> Value:
        """Σ coefficient·value; ones are not multiplied by, and minus ones subtract."""
        total: Value = 0.0
        for n, c in sorted(terms, key=lambda term: (term[1] != 1.0, term[1] == -1.0, term[0])):
            negative = c == -1.0 and not isinstance(total, float) and not isinstance(values[n], float)
            total = self.minus(total, values[n]) if negative else self.combine("add", total, self.combine("mul", c, values[n]))
        return total

    def minus(self, a: Value, b: Value) -> Tir:
        width = max(mathfunctions.lanes(x) for x in (a, b) if not isinstance(x, float))
        return self.tir(a, width) - self.tir(b, width)

    def looped(self, e: Reduce, rolled: list[Iter], unrolled: list[Iter], points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """Loops over accumulators, one for each point; few points get several, to hide latency."""
        rolled.sort(key=lambda i: -max(abs(a.address.coefficient(i.name)) for a in accesses(e)) if has_loads(e) else 0)
        last = rolled[-1]
        chains: list[Point] = [{}]
        copies = prod(i.extent for i in unrolled)
        if len(points) * copies < CHAINS and last.extent >= 2 * CHAINS:
            e, split, part = split_sum(e, last, CHAINS)
            rolled[-1] = split
            ranges = {**ranges, split.name: split.range, part.name: part.range}
            chains = [{part.name: n} for n in range(CHAINS)]
        places = [{**p, **c} for p in points for c in chains]
        vector = self.lane is not None and self.lane.name in names(e)
        lanes = self.lane.extent if vector and self.lane is not None else 1
        accumulators = [self.local(lanes, "acc") for _ in places]
        for a in accumulators:
            self.statements.append(tirx.BufferStore(a, self.tir(NEUTRAL[e.op], lanes), [self.slot(lanes)]))
        self.loops(e, rolled, unrolled, places, accumulators, ranges)
        neutral: Value = NEUTRAL[e.op]
        loads = (map(self.bind, (tirx.BufferLoad(a, [self.slot(lanes)]) for a in row)) for row in rows(accumulators, len(points)))
        return [reduce(partial(self.combine, e.op), row, neutral) for row in loads]

    def slot(self, lanes: int) -> Tir:
        zero = self.constant(0)
        return tirx.Ramp(zero, 1, lanes) if lanes > 1 else zero

    def loops(
        self, e: Reduce, rolled: Sequence[Iter], unrolled: Sequence[Iter], places: Sequence[Point], into: Sequence[Buffer], ranges: Ranges
    ) -> None:
        """Accumulate over the rest of the loops."""
        if not rolled:
            lanes = int(into[0].shape[0])
            e = Reduce(e.op, (), simplified(e.body, ranges))
            starts = [tirx.BufferLoad(a, [self.slot(lanes)]) for a in into]
            for value, a in zip(self.straight(e, unrolled, places, ranges, starts), into):
                self.statements.append(tirx.BufferStore(a, self.tir(value, lanes), [self.slot(lanes)]))
            return
        i = rolled[0]
        for own in pieces(i.name, ranges[i.name], located(e.body, ranges), 1 if self.compact else 3):
            self.for_each(i.name, own, partial(self.loops, e, rolled[1:], unrolled, places, into, {**ranges, i.name: own}))

    def in_sum_lanes(self, e: Reduce, chosen: Iter, points: Sequence[Point], ranges: Ranges) -> list[Value]:
        """The reduction with `chosen` in vector lanes, whose results are then combined."""
        lanes = width(chosen.extent)
        e, _, part = split_sum(e, chosen, lanes)
        e = Reduce(e.op, tuple(i for i in e.sums if i != part), e.body)
        inner = {**ranges, part.name: part.range}
        with self.lanes(part):
            found = self.reduce(e, points, inner)
            wide = [self.bind(self.tir(v, lanes)) for v in found]
        return [*vectors.horizontals(wide, e.op, self.bind)]


def steps(points: Sequence[Point], unrolled: Sequence[Iter]) -> list[Point]:
    """Every point at every value of the iterators, point after point."""
    values = [dict(zip((i.name for i in unrolled), at)) for at in product(*(range(i.lo, i.hi) for i in unrolled))]
    return [{**p, **v} for p in points for v in values]


def rows(values: Sequence[T], count: int) -> list[tuple[T, ...]]:
    """As many rows of equal length, one after the other."""
    length = len(values) // count if count else 0
    return [tuple(values[n * length : (n + 1) * length]) for n in range(count)]


def has_loads(e: Expr) -> bool:
    return any(True for _ in accesses(e))


def split_sum(e: Reduce, i: Iter, factor: int) -> tuple[Reduce, Iter, Iter]:
    """The same reduction over i = factor·outer + inner; beyond the end the body is neutral."""
    outer, inner = Iter(i.name + ".o", 0, -(-i.extent // factor)), Iter(i.name + ".l", 0, factor)
    body = e.body
    if i.extent % factor:
        rest = (Cond(Index((), i.hi - 1) - var(i.name)),)
        body = Choose(rest, protect(body, rest, only=i.name), Lit(NEUTRAL[e.op]))
    body = substitute_expr(body, {i.name: combine((var(outer.name), factor), (var(inner.name), 1), (Index((), i.lo), 1))})
    return Reduce(e.op, (*(j for j in e.sums if j != i), outer, inner), body), outer, inner


def in_floors(e: Reduce, ranges: Ranges) -> set[str]:
    """The iterators in floor divisions of the body's index functions."""
    functions = (f for x, _ in expanded(e.body, ranges) for f in own_index_functions(x))
    return {n for f in functions for a, _ in f.terms if isinstance(a, Floor) for n in a.num.names()}


def indexing(e: Reduce, tables: Collection[str]) -> set[str]:
    """The iterators in the addresses of what the body loads of these arrays."""
    return {n for x in walk(e.body) if isinstance(x, Load) and x.array in tables for n in x.address.names()}


def to_unroll(e: Reduce, ranges: Ranges, points: Sequence[Point], limit: int, tables: Collection[str]) -> list[Iter]:
    """Summation iterators to unroll: short ones that index a table of constants, so that zeros and ones cost nothing; then, within the limit
    on copies, those inside floor divisions, and those whose steps share most loads."""
    inside = in_floors(e, ranges)
    places = indexing(e, tables)
    chosen = [i for i in e.sums if i.name in places and i.extent <= SMALL]
    copies = len(points) * prod(i.extent for i in chosen)
    loads = [a.address for a in accesses(e.body)]
    fixed = {n: len({p[n] for p in points if n in p}) for n in set().union(*points)}

    def key(i: Iter) -> tuple[bool, float, int]:
        sizes = {**fixed, **{c.name: c.extent for c in chosen}, i.name: i.extent}
        return i.name not in inside, loads_per_step(loads, sizes), i.extent

    while True:
        fitting = [i for i in e.sums if i not in chosen and copies * i.extent <= limit and (i.extent <= 2 * SMALL or i.name in inside)]
        if not fitting:
            return chosen
        chosen.append(min(fitting, key=key))
        copies *= chosen[-1].extent
