"""Expressions are compared with tensors named alike."""

from __future__ import annotations

from einnet.evidence.prove import renamed
from einnet.expr.nodes import tensors
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
