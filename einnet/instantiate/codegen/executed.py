"""How much a generated kernel executes, counted from its nests as they are scheduled: an expression does not tell which parts are computed again.

A step is a load, an operation or a store of a vector of `LANES` floats. One of a shorter vector, or of a number, is a part of a step, down to the
processor's vectors: it does no less with one number than with a vector. A product that is added to a sum is one operation. No text is written for it,
and no library is asked: the count is for predictions of many kernels, and for refusing to write one that would run for seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import prod

from einnet.derivation.rules.transitions import running
from einnet.expr.constant_matrices import Matrix, factored
from einnet.expr.index import Floor, value
from einnet.expr.nodes import Iter, Tensor, reads
from einnet.instantiate.codegen.beforehand import beforehand
from einnet.instantiate.codegen.blocking.panels import chosen
from einnet.instantiate.codegen.blocking.rows import Rows
from einnet.instantiate.codegen.buffering import kept_arrays, replaced
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Apply, Choose, Expr, Known, Lit, Load, Nest, Reduce, Use, children, expand, names, picks, rebuild, weights
from einnet.instantiate.codegen.operation_counts import flops
from einnet.instantiate.codegen.repeats import factored as with_shared
from einnet.instantiate.codegen.resolve import EXPENSIVE, resolve
from einnet.instantiate.codegen.schedule import LANES, SMALL, Plan, every_use, is_transform, lane_of, schedule, width
from einnet.instantiate.codegen.tables import known_tables
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.row_fusion import in_rows

MANY = 1e9
"""Steps that take a second or so, on one thread."""

AGAIN = 32
"""Steps for each operation of the expression from which on a kernel computes its parts again and again. Others have four at most."""

FUNCTION, DIVISION = 16, 6
"""Steps of a function that is computed in vectors, as an exponential, and of a quotient or a root."""


def executed(op: EOperator, floats: int = LANES) -> float:
    """Steps of one run of the kernel on one thread of a processor with so many floats in a vector: a selection has those of its longer side, as most
    code is written for either side alone.

    Raises BackendError for views and types that no code is written for.
    """
    return _executed(op, floats)


@lru_cache(maxsize=1 << 12)
def _executed(op: EOperator, floats: int) -> float:
    """The same, remembered however it is asked for."""
    recurrence = running(op.scope) if all(isinstance(r.base, Tensor) for r in reads(op.scope.body)) else None
    if recurrence is not None:
        return flops(op.scope) / max((width(i.extent) for i in op.scope.loops if i.name != recurrence.t.name), default=1)
    whole = op if in_rows(op.scope) else replace(op, scope=with_shared(op.scope))
    tables = known_tables(op, {})
    fills, nest = beforehand(resolve(whole, tables.keys()))
    return sum(of_nest(n, floats, tables) for n in (*(f.nest for f in fills), nest))


def repeats(op: EOperator) -> bool:
    """The kernel would run for seconds, most of them to compute again what it has computed: it is not worth a trial, which nobody could end."""
    steps = executed(op)
    return steps > MANY and steps > AGAIN * flops(op.scope)


Tables = Mapping[str, Mapping[int, float]]
"""The values of small operands that are known, by their address."""


def of_nest(nest: Nest, floats: int, tables: Tables) -> float:
    """Steps of a nest, in blocks of rows where it is written so."""
    if any(i.extent <= 0 for i in nest.loops):
        return 0.0
    nest = normalise(nest)
    found = chosen(nest, lanes=floats)
    return sum(of_rows(rows, floats, tables) for rows in found) if found else of_plain(nest, floats, tables)


def of_rows(rows: Rows, floats: int, tables: Tables) -> float:
    """Steps of all blocks of rows."""
    block = sum(times * of_plain(f.nest, floats, tables) for times, f in rows.fills) + of_plain(rows.last, floats, tables)
    packs = sum(of_plain(f.nest, floats, tables) for f in rows.packs)
    return _extent(rows.around) * (packs + _extent(rows.blocks) * block)


def of_plain(nest: Nest, floats: int, tables: Tables) -> float:
    """Steps of a nest loop by loop, with what is computed between the loops and kept."""
    if any(i.extent <= 0 for i in nest.loops):
        return 0.0
    plan = schedule(normalise(nest))
    expr, bound, times, total = plan.nest.expr, frozenset(n for n, _ in nest.outer), 1, 0.0
    for n in range(len(plan.order)):
        if plan.lane is not None and n == plan.lane_level:
            bound |= {plan.lane.name}
        expr, before = _between(plan, n, expr, bound, _Body(plan, floats, tables))
        total += times * before
        times *= plan.order[n].extent
        bound |= {plan.order[n].name}
    stores = _copies(plan.points, plan.nest.address.names()) * _part(plan.lane, floats)
    return total + times * (_Body(plan, floats, tables).steps(expr, 1.0) + stores)


def _between(plan: Plan, n: int, expr: Expr, bound: frozenset[str], body: _Body) -> tuple[Expr, float]:
    """What is left for the loops from the n-th on, and the steps of what is computed before them: arrays, and values that no later loop moves."""
    if not any(True for _ in every_use(expr)):
        return expr, 0.0
    steps = 0.0
    scalars = bound - {plan.lane.name} if plan.lane is not None else bound
    for number, kept in enumerate(kept_arrays(expr, plan.order[n:], plan.points, scalars, plan.nest.ranges)):
        array = f"kept {n}.{number} of {plan.nest.array}"
        around = tuple((k, r) for k, r in plan.nest.ranges.items() if k in scalars)
        steps += of_nest(replace(kept.filling(array), outer=around, tables=plan.nest.tables), body.floats, body.tables)
        expr = replaced(expr, kept, array)
    return _known(expr, bound, body), steps + body.total


def _known(expr: Expr, bound: frozenset[str], body: _Body, always: bool = True) -> Expr:
    """The expression with what depends on bound iterators alone known; its steps are added to those of the body."""
    own = names(expr)
    if own <= bound and (isinstance(expr, Use) or (always and isinstance(expr, Reduce))):
        body.total += body.steps(expr, 1.0)
        return Known(f"known {len(body.seen)}", own)
    args = () if isinstance(expr, Use) else children(expr)
    always = always and not isinstance(expr, Choose)
    return rebuild(expr, tuple(_known(a, bound, body, always) for a in args)) if args else expr


@dataclass(frozen=True, slots=True)
class _Terms:
    """Where a reduction's terms are computed: how often what these iterators move, and how often what none of them does."""

    summed: frozenset[str]
    each: float
    once: float
    lane: Iter | None


@dataclass
class _Body:
    """The steps of expressions at all unrolled points of a plan, each distinct function and reduction computed once."""

    plan: Plan
    floats: int
    tables: Tables
    seen: set[Expr] = field(default_factory=set)
    total: float = 0.0

    def steps(self, e: Expr, times: float) -> float:
        """The steps of an expression that is computed so many times."""
        return self._steps(e, _Terms(frozenset(), times, times, self.plan.lane))

    def _steps(self, e: Expr, terms: _Terms) -> float:
        """The steps of a part of a term."""
        own = names(e)
        if terms.summed and own.isdisjoint(terms.summed):
            terms = _Terms(frozenset(), terms.once, terms.once, self.plan.lane)
        if isinstance(e, Use):
            if e in self.seen:
                return 0.0
            self.seen.add(e)
            return self._steps(expand(e), terms)
        if isinstance(e, Reduce) and not picks(e):
            return self._reduced(e, terms)
        copies = _copies(self.plan.points, own)
        below = [self._steps(a, terms) for a in children(e)]
        here = terms.each * copies * _own_steps(e, terms.lane) * _part(terms.lane, self.floats)
        return here + (max(below) if isinstance(e, Choose) else sum(below))

    def _reduced(self, e: Reduce, terms: _Terms) -> float:
        """The steps of a reduction, once however often it stands there: what no term moves is computed before it, all else for each term."""
        if e in self.seen:
            return 0.0
        self.seen.add(e)
        weighted = self._weighted(e, terms)
        if weighted is not None:
            return weighted
        own, count, lane = names(e), float(_extent(e.sums)), terms.lane
        along = lane_of(e) if (lane is None or lane.name not in own) and count >= SMALL else None
        if along is not None:
            count, lane = count / along.extent * -(-along.extent // width(along.extent)), along
        inside = _Terms(frozenset(i.name for i in e.sums) | terms.summed, terms.each * count, terms.once, lane)
        adding = 0.0 if e.op == "sum" and isinstance(e.body, Apply) and e.body.op == "mul" else _part(lane, self.floats)
        return self._steps(e.body, inside) + inside.each * _copies(self.plan.points, own) * adding

    def _weighted(self, e: Reduce, terms: _Terms) -> float | None:
        """The steps of a sum weighted by known matrices, whose rows share sums; None where it is no such sum at unrolled rows."""
        given = weights(e, self.tables.keys())
        moving = frozenset[str]().union(*(w.address.names() for w in given))
        rows = [p for p in self.plan.points if p.name in moving]
        known = moving <= {i.name for i in (*rows, *e.sums)} and not any(w.guards for w in given)
        if not known or not is_transform(e, self.tables.keys()):
            return None
        assert isinstance(e.body, Apply)
        rest = [a for a in e.body.args if a not in given]
        own = frozenset[str]().union(*map(names, rest))
        inside = replace(terms, each=terms.each * _extent([i for i in e.sums if i.name in own]))
        part = _part(terms.lane if terms.lane is not None and terms.lane.name in own else None, self.floats)
        columns = sum(self._steps(a, inside) for a in rest) + inside.each * max(0, len(rest) - 1) * part
        others = _copies([p for p in self.plan.points if p not in rows], own)
        return columns + terms.each * factored(self._matrix(given, rows, e.sums)).steps * others * part

    def _matrix(self, given: Sequence[Load], rows: Sequence[Iter], columns: Sequence[Iter]) -> Matrix:
        """The product of known matrices at all rows and columns."""

        def element(at: Mapping[str, int]) -> float:
            return prod(self.tables[w.array][int(value(w.address, at))] for w in given)

        return tuple(tuple(element({**at, **along}) for along in _places(columns)) for at in _places(rows))


def _places(iters: Sequence[Iter]) -> Iterator[dict[str, int]]:
    """Every value of some iterators."""
    for at in product(*(range(i.lo, i.hi) for i in iters)):
        yield dict(zip((i.name for i in iters), at))


def _own_steps(e: Expr, lane: Iter | None) -> float:
    """Steps of an operation or of a load, those of its operands not counted."""
    match e:
        case Lit() | Known():
            return 0.0
        case Apply(op, args):
            return _operation(op, len(args))
        case Load():
            return _loading(e, lane)
    return 1.0


def _part(lane: Iter | None, floats: int) -> float:
    """Of a step what is done with one vector, or with a number."""
    return max(1 if lane is None else width(lane.extent), floats) / LANES


def _operation(op: str, args: int) -> float:
    """Steps of an operation on so many operands."""
    if op in EXPENSIVE:
        return FUNCTION
    return DIVISION if op in ("div", "sqrt") else max(1.0, args - 1)


def _loading(e: Load, lane: Iter | None) -> float:
    """Steps of a load: one for a number or for neighbours, more for a vector with gaps."""
    if lane is None or lane.name not in e.address.names():
        return 1.0
    floored = any(isinstance(a, Floor) and lane.name in a.num.names() for a, _ in e.address.terms)
    stride = abs(e.address.coefficient(lane.name))
    return float(LANES) if floored or stride > 4 else max(1.0, float(stride))


def _copies(points: Sequence[Iter], own: frozenset[str] | set[str]) -> int:
    """At how many of the unrolled points something is another thing."""
    return prod(p.extent for p in points if p.name in own)


def _extent(iters: Sequence[Iter]) -> int:
    return prod(i.extent for i in iters)
