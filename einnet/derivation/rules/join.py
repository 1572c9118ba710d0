"""join: two scopes of one form as one scope over a joined space (paper section 4.2, expression merging)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, permutations
from math import prod

from einnet.derivation.facts import has_values, without
from einnet.derivation.moves.generalise import Seam, generalise
from einnet.derivation.moves.pairing import Pairing, pairings
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
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
    named_as,
    nested,
    reads,
    rebuild,
    substitute_body,
    walk,
    with_body,
)  # fmt: skip


@rule(
    "join", order=190,
    guard="two sums of one form: all iterators alike but those of one operand, or all alike; neither is read in the other",
    family="inter",
)  # fmt: skip
def join(e: Scope) -> Iterator[Outcome]:
    """{L[x,n<N] Σ[y] f}[u] ∘ {L[x,n<M] Σ[y] g}[v] = J[u] ∘ J[v+N], J = L[x,n<N+M] Σ[y] h, h(n) = f(n) for n<N, g(n-N) beyond

    Operands that f and g share stay, those that differ are concatenated along n. What shares nothing gets a batch iterator n<2.
    """
    siblings = [s for s in dict.fromkeys(nested(e)) if s.sums and not is_weight(s) and not any(map(has_values, reads(s.body)))]
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
        yield Rewrite(Together(parts)(e), parameters)
    if not found:
        yield Refused("one of two sums depends on the other" if s in walk(t) or t in walk(s) else "two sums have no form in common")


def joins(e: Scope, s: Scope, t: Scope) -> Iterator[tuple[str, dict[Scope, Scope]]]:
    """For every pairing the rule's parameters, and the two scopes inside e as parts of a joined one; nothing for scopes that are not inside e."""
    if s == t or s in t.inside or t in s.inside or not {s, t} <= e.inside:
        return
    for pairing in pairings(s, t):
        parts = joined(s, t, pairing)
        if parts is not None:
            yield _parameters(e, s, t, pairing), {s: parts[0], t: parts[1]}


class Together:
    """Expressions with scopes exchanged for parts of a joined one, and neighbouring parts read as one; what one has in common with another is
    rewritten once."""

    def __init__(self, parts: Mapping[Scope, Scope]) -> None:
        self._exchanging = Exchanging(parts)

    def __call__(self, e: Scope) -> Scope:
        return stitched(self._exchanging.within(e))


def _parameters(e: Scope, s: Scope, t: Scope, pairing: Pairing) -> str:
    order = e.parts
    along = "+".join("*".join(i.name for i in own) or "1" for own in pairing.own)
    return f"scopes={order.index(s)},{order.index(t)} along={along}"


@lru_cache(maxsize=1 << 13)
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
    return own[0].name if len(own) == 1 and own[0].name not in {j.name for _, j in pairing.loops} else fresh("n" if own else "b", taken)


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


class Exchanging:
    """Exchanges scopes for others in one expression after another: what these have in common is rewritten once."""

    def __init__(self, other: Mapping[Scope, Scope]) -> None:
        self._other = other.keys()
        self._known = dict(other)

    def within(self, s: Scope) -> Scope:
        """The scope with others for what it reads; itself it stays."""
        if s not in self._other:
            return self._swapped(s)
        return self._rewritten(s)

    def _swapped(self, s: Scope) -> Scope:
        found = self._known.get(s)
        if found is None:
            found = self._known[s] = self._rewritten(s)
        return found

    def _rewritten(self, s: Scope) -> Scope:
        if self._other.isdisjoint(s.inside):
            return s
        body = self._body(s.body)
        return s if body is s.body else with_body(s, body)

    def _body(self, body: Body) -> Body:
        if isinstance(body, Read):
            if not isinstance(body.base, Scope):
                return body
            base = self._swapped(body.base)
            return body if base is body.base else named_as(Read(base, body.index, body.fill), body)
        args = children(body)
        new = tuple([self._body(a) for a in args])
        if all(a is b for a, b in zip(args, new)):
            return body
        return named_as(rebuild(body, new), body)


@lru_cache(maxsize=1 << 13)
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
    for a, b in permutations(range(len(body.args)), 2):
        both = _neighbours(body.args[a], body.args[b])
        if both is not None:
            rest = make_add((both, *without(body.args, a, b)))
            return _stitched_sum(rest) if isinstance(rest, Add) else rest
    return body


@lru_cache(maxsize=1 << 13)
def _neighbours(a: Body, b: Body) -> Read | None:
    """Reads of two scopes whose boxes lie end to end as one read of both, where one body serves both."""
    if not isinstance(a, Read) or not isinstance(b, Read) or not isinstance(a.base, Scope) or not isinstance(b.base, Scope) or a.fill or b.fill:
        return None
    s, t = a.base, b.base
    if len(s.loops) != len(t.loops) or s.reduce != t.reduce or [i.range for i in s.sums] != [i.range for i in t.sums]:
        return None
    d = _aside(a.index, b.index, s.loops, t.loops)
    loops = tuple(pair for k, pair in enumerate(zip(s.loops, t.loops)) if k != d)
    if d is None or any(i.range != j.range for i, j in loops):
        return None
    pairing = Pairing(loops, tuple(zip(s.sums, t.sums)), ((s.loops[d],), (t.loops[d],)))
    parts = joined(s, t, pairing, concatenate=False)
    if parts is None:
        return None
    (whole,) = nested(parts[0])
    index = tuple(x - s.loops[d].lo if k == d else x for k, x in enumerate(a.index))
    return Read(whole, index)


def _aside(x: Sequence[Index], y: Sequence[Index], of_x: Sequence[Iter], of_y: Sequence[Iter]) -> int | None:
    """The one dimension in which two boxes do not begin and end at the same places, if the second begins there where the first ends."""
    aside = [p - i.lo != q - j.lo or i.extent != j.extent for p, q, i, j in zip(x, y, of_x, of_y)]
    if sum(aside) != 1:
        return None
    d = aside.index(True)
    return d if x[d] - of_x[d].lo - of_x[d].extent == y[d] - of_y[d].lo else None
