"""Recurrences that are linear in their state, as sums: y[t] = Σ[s <= t] q(t)*D(t,s)*k(s), where D(t,s) = D(t,p)*D(p,s) for every place p between.

D tells what is left at t of what came in at s: decays, products of gates, powers. It is 1 at s = t, or a number that goes to k. What comes in at a
time, what is asked for at a time, and D are told apart by the iterators that they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Refused
from einnet.derivation.rules.forced.merge import merge_read
from einnet.derivation.rules.triangle import chooses, selects
from einnet.expr.index import Index, bounds, var
from einnet.expr.nodes import (
    INF,
    Add,
    Body,
    Call,
    Cond,
    Const,
    Iter,
    Read,
    Scope,
    Select,
    Tensor,
    fresh,
    make_add,
    make_mul,
    map_reads,
    neutral,
    reads,
    substitute_body,
    used_names,
)
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))

SHORTEST = 8
"""Times from which on a walk along them pays."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """L[.. t ..] Σ[.. s ..] select(forward*(t - s) - late >= 0, Π asked(t) * Π between(t,s) * Π coming(s), 0), t and s over one range.

    `late` is 1 where what comes in at a time is not yet part of the state, else 0: what comes in later still is part of `coming`, as what is late
    comes in at a later time. The product of `between` is 1 where there is none.
    """

    t: Iter
    s: Iter
    forward: int
    late: int
    asked: tuple[Body, ...]
    between: tuple[Body, ...]
    coming: tuple[Body, ...]
    sums: tuple[Iter, ...]
    reduce: str = "sum"

    def asked_at(self, t: Index) -> tuple[Body, ...]:
        return tuple(substitute_body(f, {self.t.name: t}) for f in self.asked)

    def coming_at(self, s: Index) -> tuple[Body, ...]:
        return tuple(substitute_body(f, {self.s.name: s}) for f in self.coming)

    def left_at(self, t: Index, s: Index) -> tuple[Body, ...]:
        """What is left at t of what came in at s."""
        return tuple(substitute_body(f, {self.t.name: t, self.s.name: s}) for f in self.between)

    def before(self, t: Index, s: Index) -> Cond:
        """What comes in at s is part of the state that is asked at t."""
        return Cond((t - s) * self.forward - self.late)

    def gate(self) -> Body:
        """What is left at t of the state one time before; of none at the first time."""
        if not self.between:
            return ONE
        t = var(self.t.name)
        return masked(self._later(), make_mul(self.left_at(t, t - self.forward)))

    def entering(self) -> Body:
        """What comes in until t that was not there one time before."""
        body = make_mul(self.coming_at(var(self.t.name) - self.late * self.forward))
        return Select(self._later(), body, Const(neutral(self.reduce))) if self.late else body

    def asking(self) -> Body:
        """What is asked of the state at t."""
        return make_mul(self.asked)

    def _later(self) -> tuple[Cond, ...]:
        """t is not the first time."""
        first = self.t.lo if self.forward > 0 else self.t.hi - 1
        return (Cond((var(self.t.name) - first) * self.forward - 1),)


@lru_cache(maxsize=1 << 14)
def running(e: Scope) -> Recurrence | None:
    """A reduction that one walk along t computes, each step from the one before; None where it is none, or so short that it is not worth that."""
    if e.reduce == "sum":
        return next((r for r in recurrences(e, walk=True) if isinstance(r, Recurrence) and r.t.extent >= SHORTEST), None)
    body, end = e.body, Const(neutral(e.reduce))
    if not isinstance(body, Select) or len(body.conds) != 1 or body.other != end or len(e.sums) != 1:
        return None
    (s,) = e.sums
    for t in e.loops:
        r = _recurrence(e, body.conds[0], body.conds, (body.then,), t, s, True)
        if isinstance(r, Recurrence) and r.t.extent >= SHORTEST and not r.asked and not r.between:
            return replace(r, reduce=e.reduce)
    return None


@lru_cache(maxsize=1 << 14)
def may_choose(e: Scope) -> bool:
    """A choice of regions stands in the body, or in what is merged into it to see a recurrence (see `opened`)."""
    if selects(e.body):
        return True
    merged = ((r.base, inside) for r, inside in inner(e.body) if isinstance(r.base, Scope) and r.base.reduce == "sum")
    return any(chooses(s) if inside else may_choose(s) for s, inside in merged)


def opened(e: Scope, sums: bool = True) -> Scope:
    """A sum with what it reads merged into it: masks, exponents and tables that are written as expressions, and products with `sums` of their own."""
    if sums and any(inside and isinstance(r.base, Scope) and r.base.sums for r, inside in inner(e.body)):
        conds, parts = split(e.body)
        e = replace(e, body=make_mul((masked(conds, ONE), *parts)))
    for r, inside in inner(e.body):
        if isinstance(r.base, Scope) and r.base.reduce == "sum" and ((sums and not inside) or not r.base.sums):
            merged = merge_read(e, r)
            if isinstance(merged, Scope):
                return opened(merged, sums)
    return e


def inner(body: Body, inside: bool = False) -> Iterator[tuple[Read, bool]]:
    """The reads among the factors of a product, and, said to be inside, those of factors that are 0 outside of a region, and in exponents."""
    for f in factors(body):
        if isinstance(f, Read):
            yield f, inside
        elif isinstance(f, Select) and f.other == ZERO:
            yield from inner(f.then, True)
        elif isinstance(f, Call) and f.name == "exp":
            yield from ((r, True) for r in reads(f))


def split(body: Body) -> tuple[tuple[Cond, ...], tuple[Body, ...]]:
    """A product of factors, each 0 outside of a region, as conditions and factors."""
    conds: list[Cond] = []
    parts: list[Body] = []
    for f in map(unmasked, factors(body)):
        if isinstance(f, Select) and f.other == ZERO:
            inner, rest = split(f.then)
            conds += [*f.conds, *inner]
            parts += rest
        elif f != ONE:
            parts.append(f)
    return tuple(dict.fromkeys(conds)), tuple(parts)


def unmasked(f: Body) -> Body:
    """exp(x + select(c, y, -inf)) = select(c, exp(x + y), 0)."""
    if not isinstance(f, Call) or f.name != "exp":
        return f
    terms = f.args[0].args if isinstance(f.args[0], Add) else (f.args[0],)
    masks = [a for a in terms if isinstance(a, Select) and a.other == Const(-INF)]
    conds = tuple(dict.fromkeys(c for m in masks for c in m.conds))
    power = Call("exp", (make_add(a.then if isinstance(a, Select) and a.other == Const(-INF) else a for a in terms),))
    return masked(conds, power) if masks else f


def recurrences(e: Scope, walk: bool = False) -> Iterator[Recurrence | Refused]:
    """The ways to see a sum as a recurrence, over what it reads merged into it (see `opened`); those that a `walk` computes as it stands."""
    if e.reduce != "sum" or not e.sums or not may_choose(e):
        yield Refused("it is no sum, or of nothing that is 0 beyond a time")
        return
    whole = opened(e, not walk)
    conds, parts = split(whole.body)
    for c in conds:
        for t in whole.loops:
            for s in whole.sums:
                found = _recurrence(whole, c, conds, parts, t, s, walk)
                if found is not None:
                    yield found


def _recurrence(
    e: Scope, c: Cond, conds: tuple[Cond, ...], parts: tuple[Body, ...], t: Iter, s: Iter, walk: bool
) -> Recurrence | Refused | None:  # fmt: skip
    forward = c.index.coefficient(t.name)
    late = -c.index.const
    plain = c.index == (var(t.name) - var(s.name)) * forward - late
    if c.equal or forward not in (1, -1) or not plain or not reaches(t, s, forward, late) or t.extent < 2:
        return None
    if len(conds) > 1:
        return Refused(f"more is asked of {s.name} than to come before {t.name}")
    r = told_apart(parts, Recurrence(t, s, forward, late, (), (), (), tuple(i for i in e.sums if i != s)))
    if not r.between or splits(e, r.between, t, s):
        return _entering(e, r, ())
    entered = since_entry(r.between, s, forward * late) if late and walk else []
    if entered and splits(e, entered, t, s):
        return _entering(e, r, entered)
    return Refused(f"what depends on {t.name} and {s.name} is no product over the times between them")


def told_apart(parts: Sequence[Body], r: Recurrence) -> Recurrence:
    """With factors as what is asked, what is left between two times, and what comes in."""
    used = [(f, used_names(f) & {r.t.name, r.s.name}) for f in parts]
    asked = tuple(f for f, names in used if r.s.name not in names)
    between = tuple(f for f, names in used if len(names) == 2)
    return replace(r, asked=asked, between=between, coming=tuple(f for f, names in used if names == {r.s.name}))


def _entering(e: Scope, r: Recurrence, entered: Sequence[Body]) -> Recurrence:
    """The same with s over the times of t, late by one time at most: what `entered` tells is left of what comes in, where it tells anything."""
    if r.late in (0, 1) and r.t.range == r.s.range and not entered:
        return r
    coming = delayed(e, () if entered else r.between, r.coming, r.t, r.s, r.forward * r.late)
    return replace(r, s=Iter(r.s.name, *r.t.range), late=0, between=tuple(entered) or r.between, coming=coming)


def reaches(t: Iter, s: Iter, forward: int, late: int) -> bool:
    """What comes in is part of the state at no time before the first."""
    return s.lo + late >= t.lo if forward > 0 else s.hi - late <= t.hi


def since_entry(between: Sequence[Body], s: Iter, delay: int) -> list[Body]:
    """D(t,s) by the time s+d at which what comes in late is part of the state: that is 1 at first where chunks hand on what they leave.

    Before the first time it may be any number, which a walk never asks for.
    """
    return [substitute_body(f, {s.name: var(s.name) - delay}) for f in between]


def delayed(e: Scope, between: Sequence[Body], coming: Sequence[Body], t: Iter, s: Iter, delay: int) -> tuple[Body, ...]:
    """D(s,s-d)*k(s-d) where s-d is one of the times of k, else what reduces to nothing: what comes in d times late, as what comes in at s."""
    early = var(s.name) - delay
    decays = (substitute_body(f, {t.name: var(s.name), s.name: early}) for f in between) if delay else ()
    parts = make_mul((*decays, *(substitute_body(f, {s.name: early}) for f in coming)))
    asked = tuple(Cond(c) for c in (early - s.lo, s.hi - 1 - early) if bounds(c, {s.name: t.range})[0] < 0)
    return (Select(asked, parts, Const(neutral(e.reduce))),) if asked else factors(parts)


def splits(e: Scope, between: Sequence[Body], t: Iter, s: Iter) -> bool:
    """D(t,s) = D(t,p)*D(p,s), and D(s,s) = 1; what is read at one of the two alone may be anything. What is read at both is no such product."""
    if any(isinstance(f, Read) for f in between):
        return False
    body = map_reads(make_mul(between), lambda r: r if {t.name, s.name} <= used_names(r) else unread(r))
    p = Iter(fresh("p", e.ranges), *t.range)
    loops = (*(i for i in (*e.loops, *e.sums) if i.name in used_names(body)), p)
    parts = make_mul((substitute_body(body, {s.name: var(p.name)}), substitute_body(body, {t.name: var(p.name)})))
    try:
        same = inline(Scope(loops, (), body)).key == inline(Scope(loops, (), parts)).key
        return same and inline(Scope(loops, (), substitute_body(body, {t.name: var(s.name)}))).body == ONE
    except OutOfReach:
        return False


def unread(r: Read) -> Read:
    """The read of a scope as that of a tensor of which nothing is known."""
    if not isinstance(r.base, Scope):
        return r
    return Read(Tensor(f"scope_{r.base.key}", r.base.shape), tuple(ix - lo for ix, (lo, _) in zip(r.index, r.base.box)), r.fill)


def masked(cond: tuple[Cond, ...], body: Body) -> Body:
    """The body where the conditions hold, else 0."""
    return Select(cond, body, ZERO) if cond else body
