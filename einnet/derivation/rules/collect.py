"""collect: the linearity of a sum, from sums of products to products of sums or to one longer sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

from einnet.derivation.facts import factors
from einnet.derivation.generalise import Seam, generalise
from einnet.derivation.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.join import digits, rewritten
from einnet.expr.index import var
from einnet.expr.nodes import Add, Body, Iter, Read, Scope, fresh, make_add, make_mul, substitute_body


@rule("collect", guard="two sums over one box are added at one point, and share a factor or their form", kind="reassociation", family="inter")
def collect(e: Scope) -> Iterator[Outcome]:
    """{L[x] Σ[y] u*f}[v] + {L[x] Σ[y] u*g}[v] = {L[x] Σ[y] u*(f+g)}[v];  {L[x] Σ[k<K] f}[v] + {L[x] Σ[k<J] g}[v] = {L[x] Σ[k<K+J] h}[v]

    h(k) is f(k) for k < K and g(k-K) beyond: operands that differ are concatenated along what is summed.
    """
    terms = e.body.args if isinstance(e.body, Add) else ()
    pairs = [(a, b) for a, b in combinations(terms, 2) if _same_place(a, b)]
    if not pairs:
        yield Refused("no two sums over one box are added at the same point")
        return
    found = False
    for n, (a, b) in enumerate(pairs):
        assert isinstance(a, Read) and isinstance(b, Read) and isinstance(a.base, Scope) and isinstance(b.base, Scope)
        rest = tuple(x for x in terms if x is not a and x is not b)
        other = _aligned(a.base, b.base)
        common = with_common_factor(a.base, other)
        whole = common or end_to_end(a.base, other)
        if whole is not None:
            found = True
            how = "factor" if common else "end-to-end"
            yield Rewrite(Scope(e.loops, e.sums, make_add((Read(whole, a.index), *rest))), f"pair={n} {how}", "reassociation")
    if not found:
        yield Refused("the two sums have neither a factor nor their form in common")


def _same_place(a: Body, b: Body) -> bool:
    """Both are reads of sums over one box at the same index."""
    if not isinstance(a, Read) or not isinstance(b, Read) or not isinstance(a.base, Scope) or not isinstance(b.base, Scope):
        return False
    s, t = a.base, b.base
    summed = bool(s.sums) and bool(t.sums) and s.reduce == t.reduce == "sum"
    return summed and a.fill == b.fill == 0 and a.index == b.index and s.box == t.box


def _aligned(s: Scope, t: Scope) -> Scope:
    """t with the loops of s, its sums named apart from them."""
    taken = {i.name for i in (*s.loops, *s.sums, *t.loops)}
    sums: list[Iter] = []
    mapping = {j.name: var(i.name) for i, j in zip(s.loops, t.loops)}
    for k in t.sums:
        name = fresh(k.name, taken)
        taken.add(name)
        mapping[k.name] = var(name)
        sums.append(Iter(name, k.lo, k.hi))
    return Scope(s.loops, tuple(sums), substitute_body(t.body, mapping))


def with_common_factor(s: Scope, t: Scope) -> Scope | None:
    """One sum of u*(f+g), where the sums have the same ranges, one for one, and both products the factor u."""
    if [i.range for i in s.sums] != [i.range for i in t.sums]:
        return None
    body = substitute_body(t.body, {j.name: var(i.name) for i, j in zip(s.sums, t.sums)})
    left, right = list(factors(s.body)), list(factors(body))
    common: list[Body] = []
    for f in tuple(left):
        if f in right:
            left.remove(f)
            right.remove(f)
            common.append(f)
    return Scope(s.loops, s.sums, make_mul((*common, make_add((make_mul(left), make_mul(right)))))) if common else None


def end_to_end(s: Scope, t: Scope) -> Scope | None:
    """One sum over the points of both, one after the other."""
    seam = Seam(fresh("k", {i.name for i in (*s.loops, *s.sums, *t.sums)}), _points(s.sums), _points(t.sums))
    iters = (*s.loops, seam.joined)
    ranges = {i.name: i.range for i in iters}
    first = rewritten(s.body, digits(s.sums, var(seam.name)), ranges)
    second = rewritten(t.body, digits(t.sums, var(seam.name) - seam.first), ranges)
    body = generalise(first, second, seam, iters)
    return Scope(s.loops, (seam.joined,), body) if body is not None else None


def _points(sums: Sequence[Iter]) -> int:
    return prod(i.extent for i in sums)
