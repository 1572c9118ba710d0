"""sum-split: materialise a part of a reduction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.nodes import Body, Iter, Read, Scope, indices, make_mul, used_names


@rule("sum-split", order=10, guard="the reduction has two iterators or more", kind="reassociation", roles=("explored", "converging"))
def sum_split(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y,z] u(x,y)*f(x,y,z) = L[x] Σ[y] u(x,y)*{L[y,x] Σ[z] f}[y,x]

    For every way to leave a part y of the sum outside. Factors free of z stay outside, and iterators that f does not use do not become
    dimensions of the inner scope (paper section 4.1, summation splitting).
    """
    if len(e.sums) < 2:
        yield Refused("the reduction has fewer than two iterators")
        return
    for size in range(1, len(e.sums)):
        for outside in combinations(e.sums, size):
            yield Rewrite(split_sum(e, outside), "outside=" + ",".join(i.name for i in outside))


def split_sum(e: Scope, outside: tuple[Iter, ...]) -> Scope:
    """Leave the iterators `outside` in the outer reduction."""
    within = tuple(i for i in e.sums if i not in outside)
    names = {i.name for i in within}
    stay: list[Body] = []
    move: list[Body] = []
    for f in factors(e.body) if e.reduce == "sum" else (e.body,):
        (move if names & used_names(f) else stay).append(f)
    used = used_names(make_mul(move)) if move else frozenset()
    kept = tuple(i for i in (*outside, *e.loops) if i.name in used)
    inner = Scope(kept, within, make_mul(move), e.reduce)
    read = Read(inner, indices(kept))
    return Scope(e.loops, outside, make_mul((*stay, read)) if stay else read, e.reduce)
