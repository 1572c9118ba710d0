"""Proof by cases: the box of the loops cut where conditions on one loop change and into residue classes, and normal forms compared on each part.

What is put together from disjoint pieces has the whole's normal form on each piece, seldom on all at once. The parts cover the box by construction.
Where conditions are not enough, the box is cut at the edges of what is read too: a tensor is 0 beyond them, so that such a read is a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import lcm

from einnet.expr.index import Floor, Index, simplify, var
from einnet.expr.nodes import (
    Body,
    Cond,
    Const,
    Iter,
    Read,
    Scope,
    Select,
    children,
    index_functions,
    map_indices,
    map_reads,
    nested,
    reads,
    substitute_body,
    touches,
)  # fmt: skip
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach

MOST_CASES = 96
_LARGEST_MODULUS = 24


@dataclass(frozen=True, slots=True)
class Part:
    """The values step·x + first, 0 <= x < count, of a loop."""

    first: int
    count: int
    step: int


def key_of(scope: Scope) -> str:
    """The key of the normal form."""
    return inline(scope).key


def equal_by_cases(before: Scope, after: Scope, forms: Iterable[Scope], key: Callable[[Scope], str] = key_of) -> int:
    """The number of cases on each of which both sides have one key; 0 where there is no such proof.

    The cases are told by `forms`, the normal forms of the whole.
    """
    found = list(forms)
    return _equal_on_parts(before, after, found, key, False) or _equal_on_parts(before, after, found, key, True)


def _equal_on_parts(before: Scope, after: Scope, forms: list[Scope], key: Callable[[Scope], str], edges: bool) -> int:
    parts = [_parts(i, forms, edges) for i in before.loops]
    cases = 1
    for p in parts:
        cases *= len(p)
    if not 1 < cases <= MOST_CASES:
        return 0
    try:
        alike = all(key(restricted(before, case)) == key(restricted(after, case)) for case in product(*parts))
    except OutOfReach:
        return 0
    return cases if alike else 0


def restricted(scope: Scope, case: tuple[Part, ...]) -> Scope:
    """The scope at the points of a case, over the counts of its parts; what is read beyond a box there is the number that it is."""
    loops = tuple(Iter(i.name, 0, p.count) for i, p in zip(scope.loops, case, strict=True))
    at = {i.name: p.step * var(i.name) + p.first for i, p in zip(loops, case, strict=True)}
    ranges = {**scope.ranges, **{i.name: i.range for i in loops}}
    body = map_indices(substitute_body(scope.body, at), lambda e: simplify(e, ranges))
    return replace(scope, loops=loops, body=map_reads(body, lambda r: r if touches(r, ranges) else Const(r.fill)))


def _parts(loop: Iter, forms: Iterable[Scope], edges: bool) -> list[Part]:
    """A partition of the loop's range, where `edges` also at the edges of what is read."""
    cuts, modulus = {loop.lo, loop.hi}, 1
    for e, equal in (found for form in forms for found in _about(form, loop.name, edges)):
        modulus = lcm(modulus, e.den, *(a.den for a, _ in e.terms if isinstance(a, Floor)))
        if len(e.terms) == 1 and e.terms[0][0] == loop.name:
            c = e.terms[0][1]
            at = -(e.const // c) if c > 0 else e.const // -c + 1
            cuts |= {at, at + 1} if equal else {at}
    modulus = modulus if modulus <= _LARGEST_MODULUS else 1
    inside = sorted(x for x in cuts if loop.lo <= x <= loop.hi)
    return [Part(first, -(-(hi - first) // modulus), modulus) for lo, hi in pairwise(inside) for first in range(lo, min(hi, lo + modulus))]


def _about(form: Scope, name: str, edges: bool) -> Iterator[tuple[Index, bool]]:
    """Conditions on this loop alone, its floors, and exact divisions that it takes part in; closed scopes name their loops as those around them."""
    for c in _conditions(form.body):
        if c.index.names() == {name}:
            yield c.index, c.equal
    for e in index_functions(form.body):
        floors = tuple((a, c) for a, c in e.terms if isinstance(a, Floor) and a.num.names() == {name})
        divided = e.den > 1 and e.coefficient(name) % e.den != 0
        if floors or divided:
            yield Index(floors, 0, e.den if divided else 1), False
    if edges:
        yield from ((e, False) for r in reads(form.body) for e in _edges(r) if e.names() == {name})
    for inner in nested(form):
        if any(i.name == name for i in inner.loops):
            yield from _about(inner, name, edges)


def _edges(r: Read) -> Iterator[Index]:
    """Index functions that change their sign where a read comes into the box of what it reads, and where it leaves it."""
    for e, (lo, hi) in zip(r.index, r.base.box, strict=True):
        if e.den == 1:
            yield e - lo
            yield e - hi


def _conditions(body: Body) -> Iterator[Cond]:
    if isinstance(body, Select):
        yield from body.conds
    if not isinstance(body, Read):
        for child in children(body):
            yield from _conditions(child)
