"""drop: a loop along which a scope does not change leaves it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import in_range
from einnet.expr.nodes import Read, Scope, indices, is_weight, map_reads, reads, used_names


@rule("drop", order=230, guard="the body does not use the loop, and is read within its range", roles=("forced",))
def drop(e: Scope) -> Iterator[Outcome]:
    """{L[z,u] Σ[w] f(z,w)}[Φ,τ] = {L[z] Σ[w] f(z,w)}[Φ];  L[x,u] Σ[y] f(x,y) = L[x,u] {L[x] Σ[y] f(x,y)}[x]

    What is the same along a loop is computed once: of the scopes that are read, and of a reduction itself. What is known at compile time is an
    operand as it stands, and stays.
    """
    result = dropped(e)
    yield Refused("every loop is used, or may be read outside its range") if result == e else Rewrite(result, "all")


@lru_cache(maxsize=1 << 14)
def dropped(e: Scope, kept: frozenset[Scope] = frozenset()) -> Scope:
    """e without the loops that it, and the scopes it reads, do not use; scopes in `kept` stay as they are.

    A scope that is read at several places loses a loop only where all of them lie within its range.
    """
    free = {s: found for s, found in _unused(e, kept).items() if found}

    def without(r: Read) -> Read:
        if not isinstance(r.base, Scope) or r.base not in free:
            return r
        stay = [k for k in range(len(r.index)) if k not in free[r.base]]
        return Read(replace(r.base, loops=tuple(r.base.loops[k] for k in stay)), tuple(r.index[k] for k in stay), r.fill)

    if free:
        e = replace(e, body=map_reads(e.body, without))
    used = used_names(e.body)
    if not e.sums or all(i.name in used or i.extent == 1 for i in e.loops):
        return e
    own = tuple(i for i in e.loops if i.name in used)
    return Scope(e.loops, (), Read(replace(e, loops=own), indices(own)))


def _unused(e: Scope, kept: Set[Scope]) -> dict[Scope, set[int]]:
    """For every scope that e reads the dimensions that its body does not use, and that no read leaves."""
    found: dict[Scope, set[int]] = {}
    for r in reads(e.body):
        if isinstance(r.base, Scope) and r.base not in kept and not is_weight(r.base):
            used = used_names(r.base.body)
            unused = {k for k, i in enumerate(r.base.loops) if i.name not in used and in_range(r.index[k], i.range, e.ranges)}
            found[r.base] = found.get(r.base, unused) & unused
    return found
