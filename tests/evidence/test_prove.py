"""Expressions are compared with tensors named alike, and with where derivations of their own end."""

from __future__ import annotations

from einnet.derivation.steps import Derivation, Step
from einnet.evidence.prove import BUNDLE, Known, by_start, ending, ending_by_parts, renamed
from einnet.expr.nodes import exchange_in, nested, tensors
from einnet.expr.notation.text import parse


def test_tensors_that_carry_equal_values_are_one() -> None:
    """A plan calls a matrix otherwise than the derivation does, and it is the same: its values say what it is."""
    one = parse("M : weight f32[2,2] = [1,1,1,-1]\nX : f32[2]\nL[k<2] Σ[n<2] M[k,n]*X[n]")
    other = parse("w7 : weight f32[2,2] = [1,1,1,-1]\nX : f32[2]\nL[k<2] Σ[n<2] w7[k,n]*X[n]")
    left, right = renamed([one, other])
    assert left == right


def test_tensors_of_other_values_are_not() -> None:
    one = parse("M : weight f32[2,2] = [1,1,1,-1]\nX : f32[2]\nL[k<2] Σ[n<2] M[k,n]*X[n]")
    other = parse("w7 : weight f32[2,2] = [1,1,1,1]\nX : f32[2]\nL[k<2] Σ[n<2] w7[k,n]*X[n]")
    turned = parse("w8 : weight f32[4,1] = [1,1,1,-1]\nX : f32[2]\nL[k<2] Σ[n<2] w8[2*k+n,0]*X[n]")
    left, right, third = renamed([one, other, turned])
    assert len({*tensors(left), *tensors(right), *tensors(third)}) == 4


def test_tensors_without_values_are_told_by_name() -> None:
    left, right = renamed([parse("A : f32[2]\nL[k<2] A[k]"), parse("B : f32[2]\nL[k<2] B[k]")])
    assert left != right


PART = "X : f32[4,6]\n{w} : weight f32[6,8]\nL[m<4,n<8] Σ[k<6] X[m,k]*{w}[k,n]"
JOINT = "L[m<4,n<16] {L[m<4,n<8] Σ[k<6] X[m,k]*Q[k,n]}[m,n] + {L[m<4,n<8] Σ[k<6] X[m,k]*V[k,n]}[m,n-8]"
TENSORS = "X : f32[4,6]\nQ : weight f32[6,8]\nV : weight f32[6,8]\n"


def test_parts_that_are_alike_but_for_their_tensors_stand_in_different_places_of_a_joint_one() -> None:
    """Queries and values are products of one input: each has its window, and the derivation of both goes on from either."""
    parts = [parse(PART.format(w=w)) for w in "QV"]
    windows = [parse(f"{TENSORS}L[m<4,n<8] {{{JOINT}}}[m,{at}]") for at in ("n", "n+8")]
    joint, stacked = parse(TENSORS + JOINT), parse(TENSORS + "L[m<4,n<16] Σ[k<6] X[m,k]*{L[k<6,n<16] Q[k,n] + V[k,n-8]}[k,n]")
    derivations = [Derivation(part, (Step(BUNDLE, "parts=2", part, window),)) for part, window in zip(parts, windows, strict=True)]
    known = by_start(Known(d, True) for d in [*derivations, Derivation(joint, (Step("join", "", joint, stacked),))])
    for part, window in zip(parts, windows, strict=True):
        end, used = ending(part, known)
        assert len(used) == 2 and [s.key for s in nested(end)] == [stacked.key]
        assert end.body.index == window.body.index


def test_what_layers_have_alike_has_one_derivation() -> None:
    first, second = (parse(PART.format(w=w)) for w in ("Q", "R"))
    turned = parse("X : f32[4,6]\nQ : weight f32[6,8]\nL[m<4,n<8] Σ[k<6] Q[k,n]*X[m,k]")
    end, used = ending(second, by_start([Known(Derivation(first, (Step("fold", "", first, turned),)), True)]))
    assert len(used) == 1 and tensors(end).keys() == {"X", "R"}


def test_what_the_plan_nowhere_holds_is_computed_as_its_own_derivation_says() -> None:
    """A tensor that stands inside another one's expression has its derivation, and so has the other one over it."""
    inner = parse("X : f32[4,6]\nW : weight f32[6,8]\nL[m<4,n<8] Σ[k<6] X[m,k]*W[k,n]")
    outer = parse("Y : f32[4,8]\nL[m<4] Σ[n<8] relu(Y[m,n])")
    ends = [
        parse("X : f32[4,6]\nW : weight f32[6,8]\nL[m<4,n<8] Σ[a<2] {L[a<2,m<4,n<8] Σ[k<3] X[m,3*a+k]*W[3*a+k,n]}[a,m,n]"),
        parse("Y : f32[4,8]\nL[m<4] Σ[a<2] {L[a<2,m<4] Σ[n<4] relu(Y[m,4*a+n])}[a,m]"),
    ]
    steps = [Derivation(start, (Step("divide", "", start, end),)) for start, end in zip((inner, outer), ends, strict=True)]
    parts = {"Z": outer, "Y": inner}
    for derived in ([], steps[:1], steps[1:], steps):
        end, used = ending_by_parts("Z", parts, by_start(Known(d, True) for d in derived))
        own = [next((d.end for d in derived if d.start == s), s) for s in (inner, outer)]
        assert end == exchange_in(own[1], {"Y": own[0]}) and [k.derivation for k in used] == [d for d in steps[::-1] if d in derived]
