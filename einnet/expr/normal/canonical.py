"""One form for the terms that differ by the choice of summation iterators, by ranges that reach where nothing is, and by redundant conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice, permutations, product

from einnet.expr import sets
from einnet.expr.index import Floor, Index, Range, bounds, substitute, var
from einnet.expr.key import canonical_form
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Div, Iter, Mul, Read, Scope, Select, Tensor, Val, fresh, used_names
from einnet.expr.normal.constant_sums import without_constants
from einnet.expr.normal.infinities import infinities
from einnet.expr.normal.lattice import anchored, rows
from einnet.expr.normal.terms import (
    Divisor,
    Term,
    by_blocks,
    closed_factors,
    divisor_condition,
    equality,
    inequality,
    product_body,
    reduced_divisor,
    simplified,
    supports,
    with_plain_fills,
)
from einnet.expr.normal.totals import partial

_ROUNDS = 64
_TIES = 24

Box = Mapping[str, Range]


def canonical(term: Term, box: Box) -> Term | None:
    """The term in canonical form over the iterators of `box` and its own sums; None where it is nowhere anything but neutral."""
    settled = _settled(term, box)
    if settled is None:
        return None
    best: tuple[str, Term] | None = None
    for order in _orders(settled):
        done = _finished(anchored(settled, order, box), box)
        if done is None:
            return None
        text = text_of(done, box)
        if best is None or text < best[0]:
            best = text, done
    assert best is not None
    return best[1]


def _settled(term: Term, box: Box) -> Term | None:
    """Apply the steps that change which sums there are, until none applies."""
    for _ in range(_ROUNDS):
        term = simplified(term, box)
        if _vanishes(term, box):
            return None
        new = _changed(term, box)
        if new is None:
            break
        term = new
    return term


def _changed(term: Term, box: Box) -> Term | None:
    return (
        _without_free(term)
        or _with_equations(term)
        or _of_single_elements(term)
        or without_constants(term)
        or _eliminated(term)
        or _divided(term)
        or _without_floors(term, box)
        or _without_residues(term, box)
        or _fused(term, box)
        or (_fused_where_it_is(term, box) if term.conds else None)
    )


def _fused_where_it_is(term: Term, box: Box) -> Term | None:
    """Iterators fused where they reach no further than the term does: a condition on one of them alone may say no more than its range then."""
    tight = _tightened(term, box)
    return None if tight is None else _fused(_without_implied(tight, box), box)


def _finished(term: Term, box: Box) -> Term | None:
    """Tighten the sums, drop what is implied, evaluate what is constant."""
    for _ in range(_ROUNDS):
        before = term
        term = _by_blocks(simplified(term, box), box)
        tight = None if _vanishes(term, box) else _tightened(term, box)
        if tight is None:
            return None
        term = _without_implied(tight, box)
        term = _without_free(term) or term
        if term == before:
            break
    known, _ = supports(term.factors, term.absorbing)
    ranges = term.ranges(box)
    asked = term.conds or term.divisors or _supports_meet(term, ranges)
    if asked and sets.empty((*term.conds, *known, *map(divisor_condition, term.divisors)), ranges):
        return None
    return replace(term, factors=tuple(with_plain_fills(f, ranges) for f in term.factors))


def _by_blocks(term: Term, box: Box) -> Term:
    """Conditions without what decides nothing in them. Before, two that are opposite are an equation, and iterators that are one are fused."""
    ranges = term.ranges(box)
    return replace(term, conds=tuple(dict.fromkeys(by_blocks(c, ranges) for c in term.conds)))


def _vanishes(term: Term, box: Box) -> bool:
    ranges = term.ranges(box)
    if any(hi <= lo for lo, hi in ranges.values()):
        return True
    conds, divisors = supports(term.factors, term.absorbing)
    for c in (*term.conds, *conds):
        lo, hi = bounds(c.index, ranges)
        if hi < 0 or (c.equal and lo > 0):
            return True
    return any(num.is_const and num.const % d for num, d in (*term.divisors, *divisors))


def _supports_meet(term: Term, ranges: Mapping[str, Range]) -> bool:
    """Two factors are absorbing on parts of the box that depend on one iterator: they may leave nothing together."""
    seen: set[str] = set()
    for factor in term.factors if len(term.factors) > 1 else ():
        names = frozenset[str]().union(*(c.index.names() for c in supports((factor,), term.absorbing)[0] if bounds(c.index, ranges)[0] < 0))
        if seen & names:
            return True
        seen |= names
    return False


def _without_free(term: Term) -> Term | None:
    """Sums whose iterator occurs nowhere are factors."""
    used = term.names()
    free = [i for i in term.sums if i.name not in used]
    if not free:
        return None
    coefficient = term.coefficient
    if term.absorbing == 0:
        for i in free:
            coefficient *= i.extent
    return replace(term, coefficient=coefficient, sums=tuple(i for i in term.sums if i.name in used))


def _with_equations(term: Term) -> Term | None:
    """e >= 0 and -e >= 0 are e = 0."""
    for c in term.conds:
        opposite = Cond(-c.index)
        if not c.equal and opposite in term.conds:
            e = c.index if not c.index.terms or c.index.terms[0][1] > 0 else opposite.index
            rest = tuple(d for d in term.conds if d not in (c, opposite))
            return replace(term, conds=(*rest, equality(e)))
    return None


def _of_single_elements(term: Term) -> Term | None:
    """Along a dimension of one element, a tensor is read at it, or outside, where the term vanishes."""
    if term.absorbing != 0 or partial(term.factors):
        return None
    for f in term.factors:
        if isinstance(f, Read) and isinstance(f.base, Tensor) and f.fill == 0:
            for n, (e, extent) in enumerate(zip(f.index, f.base.shape, strict=True)):
                if extent == 1 and e.terms:
                    index = (*f.index[:n], Index(), *f.index[n + 1 :])
                    factors = tuple(replace(f, index=index) if g is f else g for g in term.factors)
                    return replace(term, factors=factors, conds=tuple(dict.fromkeys((*term.conds, equality(_positive(e))))))
    return None


def _positive(e: Index) -> Index:
    return e if e.terms[0][1] > 0 else -e


def _loose(e: Index, name: str) -> Index | None:
    """e without its linear part in `name`, or None where `name` is also inside a floor division."""
    rest = Index(tuple((a, c) for a, c in e.terms if a != name), e.const, 1)
    return None if name in rest.names() else rest


def _eliminated(term: Term) -> Term | None:
    """An equation fixes a sum's iterator."""
    for c in term.conds:
        if c.equal:
            for i in term.sums:
                k, rest = c.index.coefficient(i.name), _loose(c.index, i.name)
                if k in (1, -1) and rest is not None:
                    value = rest * -k
                    others = tuple(j for j in term.sums if j != i)
                    left = replace(term, conds=tuple(d for d in term.conds if d != c))
                    return left.substitute({i.name: value}, others, (inequality(value - i.lo), inequality(i.hi - 1 - value)))
    return None


def _divided(term: Term) -> Term | None:
    """Conditions 0 <= e - d*y < d are all that is said of y: exactly y = floor(e/d) counts."""
    for i in term.sums:
        if any(i.name in e.names() for f in term.factors for e in rows(f)) or any(i.name in num.names() for num, _ in term.divisors):
            continue
        about = [c.index for c in term.conds if i.name in c.index.names()]
        if len(about) != 2 or any(c.equal for c in term.conds):
            continue
        lower, upper = sorted(about, key=lambda e: e.coefficient(i.name))
        d, rest = -lower.coefficient(i.name), _loose(lower, i.name)
        if d > 0 and rest is not None and lower + upper == Index((), d - 1, 1):
            ends = (inequality(rest - d * i.lo), inequality(d * i.hi - 1 - rest))
            others = tuple(c for c in term.conds if c.index not in about)
            return replace(term, sums=tuple(j for j in term.sums if j != i), conds=tuple(dict.fromkeys((*others, *ends))))
    return None


def _floors(e: Index) -> Iterator[Floor]:
    for a, _ in e.terms:
        if isinstance(a, Floor):
            yield a
            yield from _floors(a.num)


def _all_indices(term: Term) -> Iterator[Index]:
    """The index functions of the term, nested scopes looked through."""
    for f in term.factors:
        yield from rows(f)
    yield from (c.index for c in term.conds)
    yield from (num for num, _ in term.divisors)


def _without_floors(term: Term, box: Box) -> Term | None:
    """floor((y+k)/d) makes the iterator y two: y + k = d*q + r."""
    sums = {i.name: i for i in term.sums}
    found: dict[str, Floor] = {}
    for e in _all_indices(term):
        for a in _floors(e):
            if len(a.num.terms) == 1:
                name, c = a.num.terms[0]
                if c == 1 and isinstance(name, str) and name in sums and (name not in found or a.den < found[name].den):
                    found[name] = a
    for name, atom in found.items():
        i, d, k = sums[name], atom.den, atom.num.const
        taken = {*box, *sums}
        q = Iter(fresh(name, taken), (i.lo + k) // d, (i.hi - 1 + k) // d + 1)
        r = Iter(fresh(name, taken | {q.name}), 0, d)
        value = d * var(q.name) + var(r.name) - k
        others = tuple(j for j in term.sums if j != i)
        return term.substitute({name: value}, (*others, q, r), (inequality(value - i.lo), inequality(i.hi - 1 - value)))
    return None


def _without_residues(term: Term, box: Box) -> Term | None:
    """d divides c*y + e, c and d coprime: y is d*q + ((-e/c) % d)."""
    _, implied = supports(term.factors, term.absorbing)
    for num, d in (*term.divisors, *implied):
        for i in term.sums:
            c, rest = num.coefficient(i.name), _loose(num, i.name)
            if rest is None or not c or _gcd(c, d) != 1:
                continue
            q = Iter(fresh(i.name, {*box, *(j.name for j in term.sums)}), -((d - 1 - i.lo) // d), (i.hi - 1) // d + 1)
            value = d * var(q.name) + (rest * -pow(c, -1, d)) % d
            others = tuple(j for j in term.sums if j != i)
            return term.substitute({i.name: value}, (*others, q), (inequality(value - i.lo), inequality(i.hi - 1 - value)))
    return None


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)


def _fused(term: Term, box: Box) -> Term | None:
    """Iterators that occur only as c*a + b, b with c values, are one iterator."""
    for b in term.sums:
        for a in term.sums:
            if a == b:
                continue
            for c in (b.extent, -b.extent):
                joined = fresh(b.name, {*box, *(i.name for i in term.sums)})
                mapping = {b.name: var(joined) - c * var(a.name)}
                if all(a.name not in substitute(e, mapping).names() for e in _all_indices(term)):
                    ends = (c * a.lo, c * (a.hi - 1))
                    new = Iter(joined, min(ends) + b.lo, max(ends) + b.hi)
                    moved = term.substitute(mapping, (*(i for i in term.sums if i not in (a, b)), new))
                    ranges = {**term.ranges(box), joined: new.range}
                    return replace(moved, factors=closed_factors(moved.factors, ranges))
    return None


def _untied(term: Term, names: Set[str]) -> Set[str]:
    """Those of the iterators that no condition of the term ties to others, even by way of each other."""
    while True:
        tied = [e for e in (*(c.index for c in term.conds), *(num for num, _ in term.divisors)) if e.names() & names and not e.names() <= names]
        if not tied:
            return names
        names -= frozenset[str]().union(*(e.names() for e in tied))


def _of_sums_alone(term: Term, box: Box) -> list[Cond]:
    """What holds of sums wherever the factors that are numbers are not 0, though others need not be numbers.

    Those others must not use the sums, and for every value of all else there must be a place at which the conditions hold: what is left out then
    multiplies by 0 what is there anyway, and is no infinity.
    """
    loose = partial(term.factors) if term.absorbing == 0 else ()
    if not loose or not term.sums or any(infinities(f, term.ranges(box)) for f in loose):
        return []
    ranges = {i.name: i.range for i in term.sums}
    free = _untied(term, ranges.keys() - frozenset[str]().union(*map(used_names, loose)))
    conds, _ = supports([f for f in term.factors if f not in loose], 0)
    found = [c for c in conds if c.index.names() and c.index.names() <= free]
    own = [c for c in term.conds if c.index.names() <= free]
    own += [divisor_condition(d) for d in term.divisors if d[0].names() <= free]
    return found if found and sets.sample((*found, *own), {n: ranges[n] for n in free}) is not None else []


def _tightened(term: Term, box: Box) -> Term | None:
    """Shrink the sums to where conditions and supports can hold."""
    known, _ = supports(term.factors, term.absorbing)
    known = known + _of_sums_alone(term, box)
    sums = {i.name: i for i in term.sums}
    for _ in range(_ROUNDS):
        changed = False
        ranges = {**box, **{i.name: i.range for i in sums.values()}}
        for c in (*term.conds, *known):
            for e in (c.index, -c.index) if c.equal else (c.index,):
                for name in [a for a, _ in e.terms if isinstance(a, str) and a in sums]:
                    k, rest, i = e.coefficient(name), _loose(e, name), sums[name]
                    if rest is None:
                        continue
                    _, high = bounds(rest, ranges)
                    lo, hi = (max(i.lo, -(high // k)), i.hi) if k > 0 else (i.lo, min(i.hi, high // -k + 1))
                    if lo >= hi:
                        return None
                    if (lo, hi) != i.range:
                        sums[name], ranges[name], changed = Iter(name, lo, hi), (lo, hi), True
        if not changed:
            break
    return replace(term, sums=tuple(sums[i.name] for i in term.sums))


def _without_implied(term: Term, box: Box) -> Term:
    """Drop the conditions that ranges, supports and other conditions imply."""
    ranges = term.ranges(box)
    known, divisors = supports(term.factors, term.absorbing)
    known = known + _of_sums_alone(term, box)
    equations = [divisor_condition(d) for d in (*divisors, *term.divisors)]
    kept = list(term.conds)
    for c in term.conds:
        others = [k for k in kept if k != c]
        if sets.implied(c, (*known, *others), ranges) or (equations and sets.implied(c, (*known, *others, *equations), ranges)):
            kept = others
    left = list(term.divisors)
    for d in term.divisors:
        if _divides(d, [*divisors, *(other for other in left if other != d)]):
            left.remove(d)
    return replace(term, conds=tuple(kept), divisors=tuple(left))


def _divides(wanted: Divisor, known: list[Divisor]) -> bool:
    num, d = wanted
    if d == 1 or (num.is_const and num.const % d == 0):
        return True
    return any(e % d == 0 and any(reduced_divisor(num - k * other, d) == (Index((), 0, 1), 1) for k in range(1, min(d, 64))) for other, e in known)


def profile(body: Body) -> str:
    """What a factor is, its index functions forgotten: the same for all choices of iterators."""
    match body:
        case Read(base, _, _):
            if isinstance(base, Scope):
                return f"{{{base.reduce}{len(base.sums)} {profile(base.body)}}}"
            return f"{base.name}:{base.dtype}{base.shape}"
        case Const(v):
            return str(v)
        case Val():
            return "val"
        case Add(args):
            return f"+({','.join(sorted(map(profile, args)))})"
        case Mul(args):
            return f"*({','.join(sorted(map(profile, args)))})"
        case Div(num, den):
            return f"/({profile(num)},{profile(den)})"
        case Call(name, args):
            return f"{name}({','.join(map(profile, args))})"
        case Select(conds, then, other):
            return f"?{len(conds)}({profile(then)},{profile(other)})"
    raise TypeError(f"not a body: {body!r}")


def _orders(term: Term) -> Iterator[tuple[Body, ...]]:
    """The factors by profile, alike ones in every order (where that can matter, and up to a limit)."""
    groups: dict[str, list[Body]] = {}
    for f in term.factors:
        groups.setdefault(profile(f), []).append(f)
    ordered = [groups[p] for p in sorted(groups)]
    choices = product(*(islice(permutations(g), _TIES) for g in ordered)) if term.sums else iter([tuple(map(tuple, ordered))])
    for choice in islice(choices, _TIES):
        yield tuple(f for group in choice for f in group)


def text_of(term: Term, box: Box) -> str:
    """The term but for its coefficient, names of its sums and order of its factors forgotten, surrounding iterators by position."""
    loops = tuple(Iter(n, lo, hi) for n, (lo, hi) in box.items())
    return canonical_form(Scope(loops, term.sums, product_body(term)))
