"""Recurrences that no paper names, as masked squares: each is cut in chunks, proven, right in numbers, and its cost is linear in its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from einnet.derivation.checker.check import check_equal
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.chunk import STORED, chunk, points, promise, sizes
from einnet.derivation.rules.distribute import distribute
from einnet.expr.nodes import Iter, Read, Scope, map_reads, nested, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.search.work import flops

HEAD = """Q : f32[4,N,3]
K : f32[4,N,3]
V : f32[4,N,5]
P : f32[4,N]
G : f32[4,N,3]
H : f32[4,N,5]
J : f32[N,2]
r : weight f32[4]
"""

VARIANTS = {
    "a rate for each head": "select(t-s>=0, exp(-r[h]*r[h]*val(t-s))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "backwards": "select(s-t>=0, exp(0.1*val(t-s))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "strictly before": "select(t-s-1>=0, exp(-0.1*val(t-s))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "three times late": "select(t-s-3>=0, exp(-0.1*val(t-s))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "two times late, backwards": "select(s-t-2>=0, exp(P[h,s]-P[h,t])*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "late, by decays that are data": "select(t-s-4>=0, exp(P[h,t]-P[h,s])*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "keys of the time before": "select(t-s>=0, exp(-0.1*val(t-s))*Q[h,t,k]*K[h,s-1,k]*V[h,s,n], 0)",
    "a gate for each key": "select(t-s>=0, exp(G[h,t,k]-G[h,s,k])*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "a gate for each value": "select(t-s>=0, exp(H[h,t,n]-H[h,s,n])*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "gates for both": "select(t-s>=0, exp(G[h,t,k]-G[h,s,k])*exp(H[h,t,n]-H[h,s,n])*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "a gate and a rate": "select(t-s>=0, exp(P[h,t]-P[h,s]-0.2*val(t-s))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "one key for two heads": "select(t-s>=0, exp(-0.1*val(t-s))*Q[h,t,k]*K[h//2,s,k]*V[h//2,s,n], 0)",
    "three factors come in": "select(t-s>=0, exp(P[h,t]-P[h,s])*Q[h,t,k]*K[h,s,k]*J[s,0]*V[h,s,n], 0)",
    "nothing is asked": "select(t-s>=0, exp(P[h,t]-P[h,s])*K[h,s,k]*V[h,s,n], 0)",
    "functions of what comes and of what asks": "select(t-s>=0, exp(-0.1*val(t-s))*relu(Q[h,t,k])*exp(K[h,s,k])*V[h,s,n], 0)",
    "a number beside what comes in": "select(t-s>=0, exp(-0.1*val(t-s))*Q[h,t,k]*K[h,s,k]*(V[h,s,n] + 1), 0)",
    "two states of two rates": "select(t-s>=0, (exp(-0.1*val(t-s)) + exp(-0.5*val(t-s)))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
    "two states, a rate and a gate": "select(t-s-1>=0, (exp(-0.1*val(t-s)) + exp(P[h,t]-P[h,s]))*Q[h,t,k]*K[h,s,k]*V[h,s,n], 0)",
}


def variant(name: str, length: int) -> Scope:
    text = f"L[h<4,t<{length},n<5] Σ[s<{length},k<3] {VARIANTS[name]}"
    return normalise(parse(HEAD.replace("N", str(length)) + text))[0]


def proven(before: Scope, after: Scope) -> None:
    assert check_equal(before, after).method == "inline"


def unproven(before: Scope, after: Scope) -> None:
    """Where only costs count: the same steps are proven at smaller sizes."""


def derived(scope: Scope, prove: Callable[[Scope, Scope], None] = proven) -> Iterator[Scope]:
    """In chunks; where it has several states, each of them. Every step is proven."""
    for r in chunk(scope):
        if isinstance(r, Rewrite):
            prove(scope, r.scope)
            yield r.scope
    for r in distribute(scope):
        if isinstance(r, Rewrite) and len(nested(r.scope)) > 1:
            prove(scope, r.scope)
            least = {s: min(derived(normalise(s)[0], prove), key=flops, default=s) for s in nested(r.scope)}
            yield replaced(r.scope, least)


def replaced(scope: Scope, by: dict[Scope, Scope]) -> Scope:
    """The scope with those that it reads exchanged."""
    return replace(scope, body=map_reads(scope.body, lambda r: Read(by[r.base], r.index, r.fill) if isinstance(r.base, Scope) else r))


@pytest.mark.parametrize("length", [24, 45])
@pytest.mark.parametrize("name", VARIANTS)
def test_chunks_are_what_was_written(name: str, length: int) -> None:
    scope = variant(name, length)
    found = list(derived(scope))
    assert found
    rng = np.random.default_rng(0)
    given = {t.name: rng.uniform(0.0, 1.0, t.shape) for t in tensors(scope).values()}
    for letter in set("PGH") & given.keys():
        given[letter] = -np.cumsum(given[letter], axis=1)
    wanted = evaluate(scope, given, "float64")
    for other in found:
        np.testing.assert_allclose(evaluate(other, given, "float64"), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_cost_is_linear_in_the_length(name: str) -> None:
    """The sum that is written costs sixteen times as much at four times the length. Chunks are as long as they were, and hand on states by a walk."""
    short, middle, long = (min(map(flops, derived(variant(name, length), unproven))) for length in (240, 480, 960))
    assert middle <= 2.1 * short
    assert long <= 2.1 * middle
    assert 8 * long < 2 * points(variant(name, 960))


def test_chunks_are_as_long_at_every_length() -> None:
    """What is stored between chunks counts: of a state of 64 x 64 they are not as short as points alone would have them, which is 4."""
    found = []
    for length in (256, 4096):
        text = f"Q : f32[{length},64]\nK : f32[{length},64]\nV : f32[{length},64]\n"
        scope = parse(f"{text}L[t<{length},n<64] Σ[s<{length},k<64] select(t-s>=0, Q[t,k]*K[s,k]*V[s,n], 0)")
        found.append({r.parameters for r in chunk(normalise(scope)[0]) if isinstance(r, Rewrite)})
    assert found[0] == found[1] == {"t=32*i+a", "t=64*i+a"}


@pytest.mark.parametrize(("body", "why"), [
    ("select(t-s+2>=0, exp(-0.1*val(t-s))*K[h,s,k]*V[h,s,n], 0)", "cheaper in chunks"),
    ("select(t-s>=0 & s-t+9>=0, K[h,s,k]*V[h,s,n], 0)", "more is asked of s"),
    ("select(t-s>=0, val(t-s)*K[h,s,k]*V[h,s,n], 0)", "no product over the times between"),
])  # fmt: skip
def test_what_is_no_recurrence_is_refused(body: str, why: str) -> None:
    scope = normalise(parse(HEAD.replace("N", "64") + f"L[h<4,t<64,n<5] Σ[s<64,k<3] {body}"))[0]
    outcomes = list(chunk(scope))
    assert not any(isinstance(o, Rewrite) for o in outcomes)
    assert any(why in o.why for o in outcomes if not isinstance(o, Rewrite))


@pytest.mark.parametrize(("extent", "found"), [(7, []), (8, [4]), (15, [4]), (16, [4, 8]), (100, [4, 8, 16, 32])])
def test_a_chunk_is_at_most_half_of_all_times(extent: int, found: list[int]) -> None:
    assert sizes(extent) == found


def test_a_chunk_promises_by_points_without_the_walk_over_chunks_and_by_what_is_stored() -> None:
    """A chunk's sum over those before it is a walk, one step for each: six times, three chunks of two, a state for each of the three."""
    text = "L[t<6] {L[i<3,a<2] Σ[j<3] {L[j<3] Σ[b<2] A[j,b]}[j]*B[i,a]}[t//2,t%2]"
    e = parse(f"A : f32[3,2]\nB : f32[3,2]\n{text}")
    assert promise(e, Iter("j", 0, 3)) == 6 + 3 * 2 + 3 * 2 + STORED * (3 * 2 + 3)
