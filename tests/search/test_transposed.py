"""Transposed convolutions of any kernel, stride and padding, from the expression as a model gives it: matrix products and phases, all exact."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import pytest

from benchmarks.search.cases import BEYOND, Case
from einnet.derivation.checker.check import check
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.search.forms import Form
from einnet.search.space import Options, Space
from tests.search.goldens import convolutions, matmuls
from tests.search.test_operator_cases import values

CHANNELS, FILTERS = 2, 3
EVERY = [(k, s, p) for k in (2, 3, 4, 5, 9) for s in (1, 2, 3, 4) for p in range(5)]
SAMPLE = [(2, 1, 1), (2, 2, 0), (3, 2, 4), (4, 2, 1), (4, 4, 3), (5, 3, 4), (9, 4, 2)]


def transposed(k: int, s: int, p: int) -> Scope:
    """Kernel k×k, stride s, padding p, channels last, unsplit; the input has so many rows that k come out at least, and is 4 or more."""
    size = max(4, ceil((k + 2 * p) / s) + 1)
    out = (size - 1) * s + k - 2 * p
    data, kernel = f"A : f32[{size},{size},{CHANNELS}]", f"K : weight f32[{k},{k},{CHANNELS},{FILTERS}]"
    sums = f"Σ[c<{CHANNELS},r<{k},q<{k}] A[(h-r+{p})/{s},(w-q+{p})/{s},c]*K[r,q,c,f]"
    return parse(f"{data}\n{kernel}\nL[h<{out},w<{out},f<{FILTERS}] {sums}")


def products(form: Form) -> int:
    """Multiplications of a form whose vendor operators are all products of matrices; 0 for another one."""
    return sum(map(prod, matmuls(form))) if form.matches and all("Matmul" in o for o in form.operators()) else 0


def phases(form: Form, k: int, s: int) -> bool:
    """One stride-1 convolution with the taps of a phase, ⌈k/s⌉ in each dimension; its filters are those of all s² phases."""
    kernels = convolutions(form)
    taps = ceil(k / s)
    shape = (s * s * FILTERS, CHANNELS, taps, taps)
    return any(not c.transposed and {*c.strides, *c.dilations} == {1} and c.w.shape[1:] == shape for c in kernels)


def derives(k: int, s: int, p: int) -> None:
    """Every form equals the source, proven; among them are phases, and matrix products with no more than a phase's taps for each output."""
    source = transposed(k, s, p)
    forms = Space(Options(max_depth=1, intensity=0.0)).forms(source)
    wanted = values(source)
    for form in forms:
        np.testing.assert_array_equal(values(form.tree), wanted, err_msg=form.tree.text())
        check(form.derivation)
    found = [n for n in map(products, forms) if n]
    outputs = prod(i.extent + 2 * s for i in source.loops[:2]) * FILTERS
    assert found and min(found) <= outputs * CHANNELS * ceil(k / s) ** 2
    assert k <= s or any(phases(f, k, s) for f in forms), "where the kernel is no longer than the stride, a phase has one tap: a product of matrices"


@pytest.mark.parametrize(("k", "s", "p"), SAMPLE)
def test_transposed_convolutions_are_derived(k: int, s: int, p: int) -> None:
    derives(k, s, p)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "s", "p"), EVERY)
def test_every_transposed_convolution_is_derived(k: int, s: int, p: int) -> None:
    derives(k, s, p)


WANTED = {
    "Conv3x3 stride 2": "Conv(n=1, o=h*w, f=f, c=r''*s''*c, r=r'*s', g=1)", "Conv3x3 dilation 2": "Conv(n=h''*w'', o=h'*w', f=f, c=c, r=r*s, g=1)",
    "Conv3x3 depthwise": "BatchedMatmul(m=1, n=h*w, k=r*s, b=c)", "Conv5x1": "Matmul(m=t*w, n=r*f, k=c)",
    **{f"Matmul {a} {b}": "BatchedMatmul(m=m, n=n, k=k, b=b)" for a in ("mk", "km") for b in ("kn", "nk")},
    "G2BMM d1 M4096": "BatchedMatmul(m=m'', n=t, k=k, b=b*m')",
    **{f"G2BMM {name}": "BatchedMatmul(m=m', n=t, k=k, b=b*m'')" for name in ("d2 M4096", "d4 M4096", "d2 M1001")},
}  # fmt: skip


@pytest.mark.parametrize("case", BEYOND, ids=lambda c: c.name)
def test_what_the_original_engine_cannot_derive(case: Case) -> None:
    """At full size: space-to-depth, residue classes in the batch, blocks of a dilated band, any layout of batched operands."""
    forms = Space(Options(max_depth=1)).forms(parse(case.text))
    found = [f for f in forms if f.operators() == [WANTED[case.name]]]
    assert found, sorted({o for f in forms for o in f.operators()})
    for form in found:
        check(form.derivation)
