"""Digits of an iterator are iterators where a kernel is written: of a loop over residue classes or tiles, and of a sum over what was reshaped."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.index import Floor
from einnet.expr.nodes import index_functions
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator
from tests.instantiate.numpy_kernels import integers, run

CLASSES = "{{L[h'<{q},h''<{d},f<3] Σ[r<3] A[{d}*h'+h''+r,f]*A[{d}*h'+h''+2*r,f]}}"


@pytest.mark.parametrize(("extent", "d", "kernels"), [(8, 2, 1), (12, 3, 1), (9, 2, 2), (8, 8, 2)])
def test_classes_are_written_in_place(extent: int, d: int, kernels: int) -> None:
    inner = CLASSES.format(d=d, q=-(-extent // d))
    source = parse(f"A : f32[20,3]\nb : f32[3]\nL[h<{extent},f<3] relu({inner}[h//{d},h%{d},f] + b[f])")
    made = build(source, {}, "out")
    assert len(made.kernels) == kernels
    values = integers(source)
    np.testing.assert_array_equal(run(source, {}, values), evaluate(source, values))


def test_two_different_divisors_are_left_alone() -> None:
    inner = CLASSES.format(d=2, q=6)
    source = parse(f"A : f32[20,3]\nL[h<12,f<3] {inner}[h//2,h%2,f] + {inner}[h//3,h%3,f]")
    values = integers(source)
    np.testing.assert_array_equal(run(source, {}, values), evaluate(source, values))


@pytest.mark.parametrize(
    ("expression", "sums"),
    [
        ("L[m<2] Σ[n<60] A[m,n//20,n//5%4,n%5]", 3),
        ("L[m<2] max[n<60] A[m,n//20,n//5%4,n%5]", 3),
        ("L[m<2] Σ[n<60] A[m,n//20,n//5%4,n%5] * b[n]", 3),
        ("L[m<2] Σ[n<60] A[m,n//20,n//5%4,0] * b[n//5]", 3),
        ("L[m<2] Σ[n<60] A[m,0,n//20,0] * b[n//3]", 1),
        ("L[m<2] Σ[n<60] A[m,0,(n+m)//20,0] * b[n//10]", 1),
        ("L[m<2] Σ[n<50] A[m,0,n//20,0]", 1),
        ("L[m<2] Σ[5<=n<65] A[m,n//20,0,0]", 1),
    ],
)
def test_a_sum_over_digits_is_a_sum_over_each(expression: str, sums: int) -> None:
    """A reshape before a reduction is no order in which memory is walked; where the digits are of different number systems, the sum stays."""
    source = parse(f"A : f32[2,4,4,5]\nb : f32[60]\n{expression}")
    kernel = build(source, {}, "out").kernels[0]
    assert isinstance(kernel, EOperator)
    assert len(kernel.scope.sums) == sums
    divided = [ix for ix in index_functions(kernel.scope.body) if any(isinstance(atom, Floor) for atom, _ in ix.terms)]
    assert bool(divided) == (sums == 1)
    values = integers(source)
    np.testing.assert_array_equal(run(source, {}, values), evaluate(source, values))
