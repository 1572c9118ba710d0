"""What computes in residue classes or tiles writes its result where it belongs, without a copy, if the classes divide the extent."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
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
