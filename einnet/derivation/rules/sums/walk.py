"""walk: a sum over the times before one, with all that it reads as one sum, so that a loop along time computes it with a state that goes along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.chunk import points
from einnet.derivation.rules.transitions import masked, may_choose, opened, running, split
from einnet.expr.nodes import Scope, make_mul


@rule(
    "walk", order=66, kind="reassociation",
    guard="what depends on t and s is a product over the times between, also in what is read; all states have fewer points than all pairs",
)  # fmt: skip
def walk(e: Scope) -> Iterator[Outcome]:
    """L[t] Σ[s<=t] v[s]*D(t,s)*{L[t,s] Σ[k] q[t,k]*c[s,k]}[t,s] = L[t] Σ[s<=t,k] q[t,k]*D(t,s)*c[s,k]*v[s]

    The right side has a state over k, S[t,k] = D(t,t-1)*S[t-1,k] + c[t,k]*v[t], of which q asks (see `transitions`): its cost is linear in the number
    of times, where each pair of them was a product.
    """
    opening = opened(e) if may_choose(e) else e  # without a choice of times there is no recurrence, and to merge all that is read takes its time
    conds, parts = split(opening.body)
    whole = replace(opening, body=masked(conds, make_mul(parts)))
    r = running(whole) if opening.sums != e.sums else None
    if r is None:
        yield Refused("no sum of sums over the times before one")
    elif prod(i.extent for i in (*whole.loops, *r.sums)) >= points(e):
        yield Refused("a state for each time has as many points as all pairs of times")
    else:
        yield Rewrite(whole, "", "reassociation")
