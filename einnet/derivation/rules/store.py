"""store: factors of a product that are no operand yet become one, computed once (the inverse of merge)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.functions import PARTIAL
from einnet.expr.index import Index
from einnet.expr.nodes import (
    Body,
    Call,
    Const,
    Iter,
    Read,
    Scope,
    Select,
    Val,
    children,
    fresh,
    indices,
    inside,
    is_weight,
    make_mul,
    map_reads,
    reads,
    used_names,
)  # fmt: skip


@rule("store", order=170, guard="factors of a sum that use the same iterators, or one that is no read, beside others")
def store(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] f*g*h = L[x] Σ[y] {L[u] f(u)*g(u)}[u]*h for factors f, g over the iterators u; {L[z] f(A[z])}[τ] where f reads at τ only

    So that a vendor's kernel finds an operand where there was arithmetic.
    """
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    whole = factors(e.body)
    wanted = [g for g in _groups(e, whole) if len(g) < len(whole) and (len(g) > 1 or not isinstance(g[0], Read))]
    if not wanted:
        yield Refused("every factor is a read, over iterators of its own, or there is one only")
        return
    operands = [(g, stored(e, make_mul(g))) for g in wanted]
    rest = [f for f in whole if not any(f is x for g in wanted for x in g)]
    kind = "exact" if len(whole) == 2 else "reassociation"
    yield Rewrite(replace(e, body=make_mul((*(r for _, r in operands), *rest))), "all", kind)


def _groups(e: Scope, parts: Sequence[Body]) -> list[list[Body]]:
    """Factors with a summed iterator by the iterators that they use, in order; constants stay outside. Weights join weights that use more iterators:
    that product is known before anything runs."""
    summed = {i.name for i in e.sums}
    found: dict[frozenset[str], list[Body]] = {}
    for f in parts:
        used = used_names(f)
        if used & summed:
            found.setdefault(used, []).append(f)
    known = [used for used, group in found.items() if all(map(is_weight, group))]
    for used in sorted(known, key=len):
        larger = next((other for other in known if used < other and other in found), None)
        if larger is not None:
            found[larger] += found.pop(used)
    return list(found.values())


def stored(e: Scope, f: Body) -> Read:
    """A body over the iterators of e as a tensor: over the box of what it reads, where it reads that at one place, else over its iterators."""
    place = _place(e, f)
    if place is not None:
        return place
    used = used_names(f)
    own = tuple(i for i in (*e.loops, *e.sums) if i.name in used)
    return Read(Scope(own, (), f), indices(own))


def _place(e: Scope, f: Body) -> Read | None:
    """f(A[τ], B[τ]) as {L[z] f(A[z], B[z])}[τ]; None where it reads at several places, or may read outside the box that all have."""
    found = list(reads(f))
    if not found or not _only_reads(f):
        return None
    at = found[0].index
    box = found[0].base.box
    plain = {i.name for i in (*e.loops, *e.sums)} >= {n for ix in at for n in ix.names()} and all(len(ix.names()) < 2 for ix in at)
    if plain or any(r.index != at or r.base.box != box for r in found) or not all(inside(r, e.ranges) for r in found):
        return None
    taken: set[str] = set()
    loops: list[Iter] = []
    for lo, hi in box:
        loops.append(Iter(fresh("z", taken), lo, hi))
        taken.add(loops[-1].name)
    where: tuple[Index, ...] = indices(loops)
    return Read(Scope(tuple(loops), (), map_reads(f, lambda r: Read(r.base, where, r.fill))), at)


def _only_reads(f: Body) -> bool:
    """All that a body depends on is what it reads, and it is a number for any values that stand beyond what was read."""
    if isinstance(f, (Val, Select)) or (isinstance(f, Call) and f.name in PARTIAL):
        return False
    return isinstance(f, (Const, Read)) or all(map(_only_reads, children(f)))
