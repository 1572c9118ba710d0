"""delta: an equation that a factor of a sum asks for determines a summation iterator, or all but its remainder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.forced.merge import merge_read
from einnet.expr.index import Floor, Index, bounds, in_range, simplify, var
from einnet.expr.nodes import Body, Cond, Const, Iter, Mul, Read, Scope, Select, fresh, make_mul, map_indices, neutral, substitute_body


@rule("delta", order=220, guard="a factor is 0 unless y = τ, y//d = τ or y%d = τ for a summation iterator y", kind="reassociation", roles=("forced",))
def delta(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y<Y] select(y == τ(x), f(y), 0)*g(y) = L[x] select(τ in Y, f(τ)*g(τ), 0);  y//d == τ: y = d*τ + y'', y%d == τ: y = d*y' + τ

    Maxima and minima likewise, where the other value is their neutral element.
    """
    result = determined(e)
    yield Refused("no factor asks for one value of a summation iterator") if result == e else Rewrite(result, "all", "reassociation")


@lru_cache(maxsize=1 << 14)
def determined(e: Scope) -> Scope:
    """All sums that an equation determines replaced by what is left of them; factors that hide the equation in a scope are merged."""
    for where in _choices(e):
        for cond in where.conds:
            for i in e.sums if cond.equal else ():
                found = _solution(e, cond, i)
                if found is not None:
                    return determined(_with_value(e, where, cond, i, *found))
    for r in factors(e.body) if e.sums else ():
        if isinstance(r, Read) and isinstance(r.base, Scope) and _hides_equation(r.base):
            merged = merge_read(e, r)
            if isinstance(merged, Scope) and (result := determined(merged)) != merged:
                return result
    return e


def _hides_equation(s: Scope) -> bool:
    """A factor of a scope that reduces nothing, or of one that is a factor of it, asks for an equation."""
    if s.sums or s.reduce != "sum":
        return False
    inside = (f.base for f in factors(s.body) if isinstance(f, Read) and isinstance(f.base, Scope))
    return any(c.equal for choice in _choices(s) for c in choice.conds) or any(map(_hides_equation, inside))


def _choices(e: Scope) -> list[Select]:
    """Factors that are neutral unless their conditions hold; of a maximum or minimum the body itself."""
    return [f for f in (factors(e.body) if e.reduce == "sum" else (e.body,)) if isinstance(f, Select) and f.other == Const(neutral(e.reduce))]


def _solution(e: Scope, cond: Cond, i: Iter) -> tuple[Index, tuple[Iter, ...], tuple[Cond, ...]] | None:
    """What the iterator is where the condition holds: its value, the sums that stay of it, and what else has to hold."""
    ix = cond.index
    if ix.den != 1 or i.extent < 2:
        return None
    for atom, k in ix.terms:
        quotient = isinstance(atom, Floor) and atom.num == var(i.name)
        if k not in (1, -1) or not (atom == i.name or quotient):
            continue
        rest = Index(tuple(t for t in ix.terms if t[0] != atom), ix.const) * -k
        if i.name not in rest.names():
            if not isinstance(atom, Floor):
                return rest, (), ()
            low = Iter(fresh(i.name + "'", e.ranges), 0, atom.den)
            return atom.den * rest + var(low.name), (low,), ()
    return _remainder(e, ix, i)


def _remainder(e: Scope, ix: Index, i: Iter) -> tuple[Index, tuple[Iter, ...], tuple[Cond, ...]] | None:
    """The same for y%d + rest == 0: y = d*y' - rest, if -rest is a remainder."""
    k = ix.coefficient(i.name)
    floors = [(a, c) for a, c in ix.terms if isinstance(a, Floor) and a.num == var(i.name)]
    if k not in (1, -1) or len(floors) != 1 or floors[0][1] != -k * floors[0][0].den:
        return None
    d = floors[0][0].den
    rest = Index(tuple(t for t in ix.terms if t[0] not in (i.name, floors[0][0])), ix.const) * -k
    if i.name in rest.names():
        return None
    high = Iter(fresh(i.name + "'", e.ranges), i.lo // d, (i.hi - 1) // d + 1)
    return d * var(high.name) + rest, (high,), _between(rest, 0, d, e)


def _between(ix: Index, lo: int, hi: int, e: Scope) -> tuple[Cond, ...]:
    """Conditions that the index lies in [lo, hi); none where it does anyway."""
    if in_range(ix, (lo, hi), e.ranges):
        return ()
    low, high = bounds(ix, e.ranges)
    return (*(Cond(ix - lo),) * (low < lo), *(Cond(hi - 1 - ix),) * (high >= hi))


def _with_value(e: Scope, where: Select, cond: Cond, i: Iter, value: Index, left: tuple[Iter, ...], more: tuple[Cond, ...]) -> Scope:
    """e with the iterator at its value: the sums that are left of it in its place, everything 0 where the value is none of the iterator's."""
    sums = tuple(k for own in e.sums for k in (left if own == i else (own,)))
    inner = replace(e, sums=sums)
    conds = (*(c for c in where.conds if c != cond), *more, *_between(value, i.lo, i.hi, inner))
    rest: list[Body] = list(factors(e.body)) if e.reduce == "sum" else [e.body]
    rest.remove(where)
    then = make_mul((where.then, *rest)) if rest or isinstance(where.then, Mul) else where.then
    body = Select(conds, then, where.other) if conds else then
    body = map_indices(substitute_body(body, {i.name: value}), lambda ix: simplify(ix, inner.ranges))
    return replace(inner, body=body, reduce=e.reduce if sums else "sum")
