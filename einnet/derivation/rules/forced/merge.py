"""merge: remove a scope by putting its body where it is read (traversal merging, vertical fusion without reduction)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import factors, fractions_left, linear_reads, rounds, without, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.decided import decided
from einnet.expr.index import bounds, simplify
from einnet.expr.nodes import (
    Add,
    Body,
    Cond,
    Const,
    Mul,
    Read,
    Scope,
    Select,
    children,
    make_add,
    make_mul,
    map_indices,
    map_reads,
    reads,
    rebuild,
    rename_apart,
    substitute_body,
)  # fmt: skip


@rule(
    "merge", order=80,
    guard="Φ stays in Z, or g is 0 outside Z; a scope with a sum must be read in a linear position of a sum",
    roles=("explored", "forced"),
)  # fmt: skip
def merge(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] u*{L[z] Σ[w] g}[Φ(x,y)] = L[x] Σ[y,w] u*g(Φ(x,y))

    One result for every scope that is read (paper section 4.1, traversal merging; section 4.2, expression fusion).
    """
    seen: set[Read] = set()
    for n, r in enumerate(r for r in reads(e.body) if isinstance(r.base, Scope)):
        if r not in seen:
            seen.add(r)
            result = merge_read(e, r)
            yield result if isinstance(result, Refused) else Rewrite(result, f"scope={n}", merge_kind(e, r))
    if not seen:
        yield Refused("no scope is read here")


def merge_kind(e: Scope, r: Read) -> str:
    """Exact where no two sums become one, no factor moves into a sum, and no + or × is regrouped."""
    assert isinstance(r.base, Scope)
    if isinstance(r.base.body, Const):
        return "reassociation"
    if r.base.reduce == "sum" and r.base.sums:
        return "exact" if e.body == r and not e.sums else "reassociation"
    return "reassociation" if rounds(map_reads(e.body, lambda other: r.base.body if other == r and isinstance(r.base, Scope) else other)) else "exact"


@lru_cache(maxsize=1 << 14)
def merge_read(e: Scope, r: Read) -> Scope | Refused:
    """Put the body of the scope that r reads in place of r: everywhere it is read so, but where it is a sum at one of several equal factors."""
    assert isinstance(r.base, Scope)
    inner = rename_apart(r.base, e.ranges)
    why = outside_problem(e, r, inner)
    if why:
        return Refused(why)
    mapping = {i.name: ix for i, ix in zip(inner.loops, r.index)}
    ranges = {**e.ranges, **{i.name: i.range for i in inner.sums}}
    body = map_indices(substitute_body(inner.body, mapping), lambda ix: simplify(ix, ranges))
    if not inner.sums and inner.reduce == "sum":
        return Scope(e.loops, e.sums, flatten(map_reads(e.body, lambda other: body if other == r else other)), e.reduce)
    if inner.reduce != e.reduce:
        return Refused(f"a {inner.reduce} reduction does not merge into a {e.reduce}")
    if e.reduce == "sum":
        if r not in linear_reads(e.body) or isinstance(e.body, Add) or r not in factors(e.body):
            return Refused("the scope has a sum and is not read as one factor of the body")
        others = without(factors(e.body), factors(e.body).index(r))  # of a square the other factor is read as it was
        return Scope(e.loops, (*e.sums, *inner.sums), make_mul((*others, body)), e.reduce)
    if e.body != r:
        return Refused(f"the scope has a {e.reduce} reduction and is not the whole body")
    return Scope(e.loops, (*e.sums, *inner.sums), body, e.reduce)


def merge_guarded(e: Scope, r: Read) -> Scope | None:
    """L[x] f({L[z] g}[Φ(x)]) = L[x] f(select(Φ(x) in Z, g(Φ(x)), 0)); None where the scope reduces or an index may be fractional."""
    assert isinstance(r.base, Scope)
    if r.base.sums or r.base.reduce != "sum" or any(ix.den != 1 for ix in r.index):
        return None
    inner = rename_apart(r.base, e.ranges)
    mapping = {i.name: ix for i, ix in zip(inner.loops, r.index)}
    body = map_indices(substitute_body(inner.body, mapping), lambda ix: simplify(ix, e.ranges))
    sides = ((ix, bounds(ix, e.ranges), i) for i, ix in zip(inner.loops, r.index))
    conds = tuple(c for ix, (lo, hi), i in sides for c in (*(Cond(ix - i.lo),) * (lo < i.lo), *(Cond(i.hi - 1 - ix),) * (hi >= i.hi)))
    guarded = Select(conds, body, Const(r.fill)) if conds else body
    whole = map_reads(e.body, lambda other: guarded if other == r else other)
    return replace(e, body=flatten(decided(whole, e.ranges) if conds else whole))


def merged(e: Scope, r: Read) -> Scope | None:
    """The scope with what it reads merged into it, under a guard where that alone makes it right and nothing is summed; None where neither can be."""
    found = merge_read(e, r)
    return found if isinstance(found, Scope) else None if e.sums else merge_guarded(e, r)


def outside_problem(e: Scope, r: Read, inner: Scope) -> str:
    """Why reading outside the inner box is not covered by the inner body, or ''."""
    ranges = e.ranges
    wide = {i.name: i.range for i in inner.sums}
    for i, ix in zip(inner.loops, r.index):
        lo, hi = bounds(ix, ranges)
        wide[i.name] = (min(lo, i.lo), max(hi + 1, i.hi))
    fractional = [i.name for i, ix in zip(inner.loops, r.index) if ix.den != 1]
    left = fractions_left(inner.body, fractional) if r.fill == 0 else fractional
    if left:
        return f"the index of {left[0]} can be fractional and the inner body does not vanish there"
    for i in (i for i in inner.loops if i.range != wide[i.name]):
        if r.fill != 0:
            return f"the scope is read outside its box with the fill {r.fill}"
        if not zero_outside(inner.body, i.name, i.range, wide):
            return f"the index of {i.name} leaves [{i.lo},{i.hi}) and the inner body is not 0 there"
    return ""


def flatten(body: Body) -> Body:
    """Nested sums and products as one."""
    match body:
        case Mul(args):
            return make_mul(flatten(a) for a in args)
        case Add(args):
            return make_add(flatten(a) for a in args)
        case Const() | Read():
            return body
    args = children(body)
    return rebuild(body, tuple(flatten(a) for a in args)) if args else body
