"""join: two scopes of one form as one scope over a joined space (paper section 4.2, expression merging)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from einnet.derivation.generalise import Seam, generalise
from einnet.derivation.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, Range, simplify, var
from einnet.expr.nodes import (
    Add,
    Body,
    Iter,
    Read,
    Scope,
    children,
    fresh,
    is_weight,
    make_add,
    map_indices,
    map_reads,
    nested,
    reads,
    rebuild,
    substitute_body,
    used_names,
    walk,
)  # fmt: skip

Pairs = tuple[tuple[Iter, Iter], ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which iterators of two scopes become one. The loops in `own`, of the first and of the second scope, are laid end to end."""

    loops: Pairs
    sums: Pairs
    own: tuple[tuple[Iter, ...], tuple[Iter, ...]]


@rule("join", guard="two sums of one form: all iterators alike but those of one operand, or all alike; neither is read in the other", family="inter")
def join(e: Scope) -> Iterator[Outcome]:
    """{L[x,n<N] Σ[y] f}[u] ∘ {L[x,n<M] Σ[y] g}[v] = J[u] ∘ J[v+N], J = L[x,n<N+M] Σ[y] h, h(n) = f(n) for n<N, g(n-N) beyond

    Operands that f and g share stay, those that differ are concatenated along n. What shares nothing gets a batch iterator n<2.
    """
    siblings = [s for s in dict.fromkeys(nested(e)) if s.sums and not is_weight(s)]
    if len(siblings) < 2:
        yield Refused("fewer than two different sums are read")
        return
    for s, t in combinations(siblings, 2):
        yield from join_scopes(e, s, t)


def join_scopes(e: Scope, s: Scope, t: Scope) -> Iterator[Outcome]:
    """All ways to compute two scopes inside e together; what read them reads parts of the joined scope."""
    found = False
    for parameters, parts in joins(e, s, t):
        found = True
        yield Rewrite(put_together(e, parts), parameters)
    if not found:
        yield Refused("one of two sums depends on the other" if s in walk(t) or t in walk(s) else "two sums have no form in common")


def joins(e: Scope, s: Scope, t: Scope) -> Iterator[tuple[str, dict[Scope, Scope]]]:
    """For every pairing the rule's parameters, and the two scopes inside e as parts of a joined one."""
    if s in walk(t) or t in walk(s):
        return
    for pairing in pairings(s, t):
        parts = joined(s, t, pairing)
        if parts is not None:
            yield _parameters(e, s, t, pairing), {s: parts[0], t: parts[1]}


def put_together(e: Scope, parts: Mapping[Scope, Scope]) -> Scope:
    """e with scopes exchanged for parts of a joined one, and neighbouring parts read as one."""
    return stitched(exchanged(e, parts))


def _parameters(e: Scope, s: Scope, t: Scope, pairing: Pairing) -> str:
    order = list(dict.fromkeys(walk(e)))
    along = "+".join("*".join(i.name for i in own) or "1" for own in pairing.own)
    return f"scopes={order.index(s)},{order.index(t)} along={along}"


def pairings(s: Scope, t: Scope) -> Iterator[Pairing]:
    """Ways to identify the iterators of two scopes: as a shared operand is read; and, where all are alike, one for one."""
    if s.reduce != t.reduce or sorted(i.extent for i in s.sums) != sorted(i.extent for i in t.sums):
        return
    seen: set[Pairing] = set()
    for a in dict.fromkeys(reads(s.body)):
        for b in dict.fromkeys(reads(t.body)):
            names = renaming(a, b, s, t) if (a.base, a.fill) == (b.base, b.fill) else None
            pairing = _completed(s, t, names) if names else None
            if pairing and pairing not in seen and _wanted(pairing):
                seen.add(pairing)
                yield pairing
    alike = _one_for_one(s, t)
    if alike and not seen:
        yield alike


def _wanted(pairing: Pairing) -> bool:
    return any(pairing.own)


def renaming(a: Read, b: Read, s: Scope, t: Scope) -> dict[str, str] | None:
    """The iterators of t for those of s with which two reads of one tensor are the same read."""
    names: dict[str, str] = {}
    for x, y in zip(a.index, b.index, strict=True):
        if (x.const, x.den, len(x.terms)) != (y.const, y.den, len(y.terms)):
            return None
        for (i, c), (j, d) in zip(_ordered(x, s), _ordered(y, t), strict=True):
            if c != d or not isinstance(i, str) or not isinstance(j, str) or names.setdefault(i, j) != j:
                return None
            if s.ranges[i] != t.ranges[j] or (i in _names(s.sums)) != (j in _names(t.sums)):
                return None
    return names if len(set(names.values())) == len(names) else None


def _ordered(ix: Index, scope: Scope) -> list[tuple[object, int]]:
    """Terms in the order of the scope's loops and sums."""
    place = {i.name: n for n, i in enumerate((*scope.loops, *scope.sums))}
    return sorted(ix.terms, key=lambda term: place.get(str(term[0]), len(place)))


def _names(iters: Sequence[Iter]) -> set[str]:
    return {i.name for i in iters}


def _completed(s: Scope, t: Scope, names: Mapping[str, str]) -> Pairing | None:
    """The pairing in which the loops that the shared operand does not have are laid end to end."""
    back = {j: i for i, j in names.items()}
    loops = tuple((i, next(j for j in t.loops if j.name == names[i.name])) for i in s.loops if i.name in names)
    own = tuple(i for i in s.loops if i.name not in names), tuple(j for j in t.loops if j.name not in back)
    sums = [(i, next(j for j in t.sums if j.name == names[i.name])) for i in s.sums if i.name in names]
    rest = [j for j in t.sums if j.name not in back]
    for i in (i for i in s.sums if i.name not in names):
        other = next((j for j in rest if j.range == i.range), None)
        if other is None:
            return None
        rest.remove(other)
        sums.append((i, other))
    return None if rest else Pairing(loops, tuple(sums), own)


def _one_for_one(s: Scope, t: Scope) -> Pairing | None:
    """Every iterator with one of the same range that stands in as many operands of the same kind; one loop each may be left over."""
    sums = _matched(s, t, s.sums, t.sums)
    loops = _matched(s, t, s.loops, t.loops)
    own = tuple(i for i in s.loops if i not in [a for a, _ in loops]), tuple(j for j in t.loops if j not in [b for _, b in loops])
    fits = len(sums) == len(s.sums) == len(t.sums) and len(own[0]) == len(own[1]) <= 1
    return Pairing(loops, sums, own) if fits else None


def _matched(s: Scope, t: Scope, first: Sequence[Iter], second: Sequence[Iter]) -> Pairs:
    left = list(second)
    pairs: list[tuple[Iter, Iter]] = []
    for i in first:
        other = next((j for j in left if j.range == i.range and _membership(i, s) == _membership(j, t)), None)
        if other is not None:
            left.remove(other)
            pairs.append((i, other))
    return tuple(pairs)


def _membership(i: Iter, scope: Scope) -> list[bool]:
    """Of the operands that have the iterator, which are known at compile time."""
    return sorted(is_weight(r) for r in reads(scope.body) if i.name in used_names(r))


def joined(s: Scope, t: Scope, pairing: Pairing, concatenate: bool = True) -> tuple[Scope, Scope] | None:
    """The two scopes as parts of one joined scope, or None where their bodies differ in form."""
    extents = [prod(i.extent for i in own) for own in pairing.own]
    taken = {i.name for i in (*s.loops, *s.sums, *t.loops, *t.sums)}
    seam = Seam(_name(pairing, taken), extents[0], extents[1])
    n = seam.joined
    position = next((k for k, i in enumerate(s.loops) if i in pairing.own[0]), 0)
    kept = [i for i, _ in pairing.loops]
    place = sum(i in kept for i in s.loops[:position])
    loops = (*kept[:place], n, *kept[place:])
    sums = tuple(i for i, _ in pairing.sums)
    ranges = {i.name: i.range for i in (*loops, *sums)}
    renamed = {j.name: var(i.name) for i, j in (*pairing.loops, *pairing.sums)}
    first = rewritten(s.body, digits(pairing.own[0], var(n.name)), ranges)
    second = rewritten(t.body, {**renamed, **digits(pairing.own[1], var(n.name) - seam.first)}, ranges)
    body = generalise(first, second, seam, (*loops, *sums), concatenate)
    if body is None:
        return None
    whole = Scope(loops, sums, body, s.reduce)
    return _window(s, whole, {i.name: i for i, _ in pairing.loops}, pairing.own[0], n, 0), _window(
        t, whole, {i.name: j for i, j in pairing.loops}, pairing.own[1], n, seam.first
    )


def _name(pairing: Pairing, taken: set[str]) -> str:
    """The first scope's own loop where it is one, else a new name."""
    own = pairing.own[0]
    return own[0].name if len(own) == 1 and own[0].name not in _names([j for _, j in pairing.loops]) else fresh("n" if own else "b", taken)


def rewritten(body: Body, mapping: Mapping[str, Index], ranges: Mapping[str, Range]) -> Body:
    return map_indices(substitute_body(body, mapping), lambda ix: simplify(ix, {**ranges}))


def digits(own: Sequence[Iter], at: Index) -> dict[str, Index]:
    """The loops as digits of a position in their row-major order."""
    found: dict[str, Index] = {}
    step = 1
    for k, i in reversed(list(enumerate(own))):
        found[i.name] = (at // step if k == 0 else at // step % i.extent) + i.lo
        step *= i.extent
    return found


def _window(s: Scope, whole: Scope, twins: Mapping[str, Iter], own: Sequence[Iter], n: Iter, offset: int) -> Scope:
    """The scope as a part of the joined one."""
    position = Index((), offset)
    step = 1
    for i in reversed(own):
        position = position + step * (var(i.name) - i.lo)
        step *= i.extent
    return Scope(s.loops, (), Read(whole, tuple(position if i == n else var(twins[i.name].name) for i in whole.loops)))


def exchanged(e: Scope, other: Mapping[Scope, Scope]) -> Scope:
    """Scopes exchanged for others wherever they are read."""

    def swap(r: Read) -> Body:
        if not isinstance(r.base, Scope):
            return r
        base = other[r.base] if r.base in other else exchanged(r.base, other)
        return r if base is r.base else Read(base, r.index, r.fill)

    body = map_reads(e.body, swap)
    return e if body is e.body else replace(e, body=body)


def stitched(e: Scope) -> Scope:
    """e with neighbouring parts of one scope read as one part: {L[n<N] f}[u] + {L[n<M] f(n+N)}[u-N] = {L[n<N+M] f}[u]."""

    def visit(body: Body) -> Body:
        if isinstance(body, Read) and isinstance(body.base, Scope):
            base = stitched(body.base)
            return body if base is body.base else Read(base, body.index, body.fill)
        args = tuple(visit(a) for a in children(body))
        body = body if all(a is b for a, b in zip(args, children(body))) else rebuild(body, args)
        return _stitched_sum(body) if isinstance(body, Add) else body

    body = visit(e.body)
    return e if body is e.body else replace(e, body=body)


def _stitched_sum(body: Add) -> Body:
    for a, b in ((a, b) for a in body.args for b in body.args if a is not b):
        both = _neighbours(a, b)
        if both is not None:
            rest = make_add((both, *(x for x in body.args if x is not a and x is not b)))
            return _stitched_sum(rest) if isinstance(rest, Add) else rest
    return body


def _neighbours(a: Body, b: Body) -> Read | None:
    """Reads of two scopes whose boxes lie end to end as one read of both, where one body serves both."""
    if not isinstance(a, Read) or not isinstance(b, Read) or not isinstance(a.base, Scope) or not isinstance(b.base, Scope) or a.fill or b.fill:
        return None
    s, t = a.base, b.base
    if len(s.loops) != len(t.loops) or s.reduce != t.reduce or [i.range for i in s.sums] != [i.range for i in t.sums]:
        return None
    aside = [x - i.lo != y - j.lo or i.extent != j.extent for x, y, i, j in zip(a.index, b.index, s.loops, t.loops)]
    if sum(aside) != 1:
        return None
    d = aside.index(True)
    if a.index[d] - s.loops[d].lo - s.loops[d].extent != b.index[d] - t.loops[d].lo or any(
        i.range != j.range for k, (i, j) in enumerate(zip(s.loops, t.loops)) if k != d
    ):
        return None
    loops = tuple(pair for k, pair in enumerate(zip(s.loops, t.loops)) if k != d)
    pairing = Pairing(loops, tuple(zip(s.sums, t.sums)), ((s.loops[d],), (t.loops[d],)))
    parts = joined(s, t, pairing, concatenate=False)
    if parts is None:
        return None
    (whole,) = nested(parts[0])
    index = tuple(x - s.loops[d].lo if k == d else x for k, x in enumerate(a.index))
    return Read(whole, index)
