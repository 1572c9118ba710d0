"""Parts of a concatenation are written where they belong; where strides cannot say that, they are copied there."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator, Matmul
from einnet.instantiate.stitch import Window, pieces, window_of
from einnet.search.forms import Form
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import integers, run

DECLARED = "A : f32[2,3,5]\nB : f32[5,4]\nC : f32[5,6]\nD : f32[2,7,5]\n"
FIRST = "{L[h<2,w<3,f<4] Σ[k<5] A[h,w,k]*B[k,f]}"
COLUMNS = DECLARED + f"L[h<2,w<3,f<10] {FIRST}[h,w,f] + {{L[h<2,w<3,f<6] Σ[k<5] A[h,w,k]*C[k,f]}}[h,w,f-4]"
MIDDLE = DECLARED + f"L[h<2,w<10,f<4] {FIRST}[h,w,f] + {{L[h<2,w<7,f<4] Σ[k<5] D[h,w,k]*B[k,f]}}[h,w-3,f]"
STACKED = DECLARED + "L[b<2,h<2,w<3,f<4] " + "{L[b<1,h<2,w<3,f<4] Σ[k<5] A[h,w,k]*B[k,f]}[b,h,w,f] + " + (
    "{L[b<1,h<2,w<3,f<4] Σ[k<5] A[h,w,k]*C[k,f]}[b-1,h,w,f]"
)
OVERLAPPING = DECLARED + f"L[h<2,w<3,f<9] {FIRST}[h,w,f] + {{L[h<2,w<3,f<6] Σ[k<5] A[h,w,k]*C[k,f]}}[h,w,f-3]"
WITH_A_GAP = DECLARED + f"L[h<2,w<3,f<11] {FIRST}[h,w,f] + {{L[h<2,w<3,f<6] Σ[k<5] A[h,w,k]*C[k,f]}}[h,w,f-5]"
OTHER_FILL = DECLARED + f"L[h<2,w<3,f<10] {FIRST}[h,w,f] + {{L[h<2,w<3,f<6] Σ[k<5] A[h,w,k]*C[k,f]}}[h,w,f-4]|1"

POOLED = "{L[h<2,w<3,k<5] max[r<3] A[h,w+r-1,k]|-inf}"
CHOSEN = DECLARED + f"L[h<2,w<3,k<15] select(k-10>=0, {POOLED}[h,w,k-10], select(4-k>=0, A[h,w,k], 2*A[h,w,k-5]))"
CHOSEN_ROWS = DECLARED + f"L[h<2,w<6,k<5] select(w-3>=0, {POOLED}[h,w-3,k], A[h,w,k])"
BY_TWO_LOOPS = DECLARED + f"L[h<2,w<3,k<10] select(h+k-5>=0, {POOLED}[h,w,k-5]|0, A[h,w,k]|0)"
AT_ONE_PLACE = DECLARED + f"L[h<2,w<3,k<5] select(k-3==0, {POOLED}[h,w,k], A[h,w,k])"
NEVER = DECLARED + f"L[h<2,w<3,k<5] select(k-5>=0, {POOLED}[h,w,k-5]|0, A[h,w,k])"
BACKWARDS = DECLARED + f"L[h<2,w<3,k<10] select(k-5>=0, {POOLED}[h,2-w,k-5], A[h,w,k])"


def two_matmuls(text: str) -> Form:
    """The form with both sums as Matmuls and without any other step than to them."""
    forms = Space(Options(max_depth=0, intensity=0.0)).forms(parse(text))
    return next(f for f in forms if len(f.matches) == 2)


@pytest.mark.parametrize(("text", "axis", "begins"), [(COLUMNS, 2, (0, 4)), (MIDDLE, 1, (0, 3)), (STACKED, 0, (0, 1)), (CHOSEN, 2, (0, 5, 10)),
                                                     (CHOSEN_ROWS, 1, (0, 3)), (BACKWARDS, 2, (0, 5))])  # fmt: skip
def test_parts_and_where_they_stand(text: str, axis: int, begins: tuple[int, ...]) -> None:
    found = pieces(parse(text))
    assert [(p.window.axis, p.window.begin) for p in found] == [(axis, b) for b in begins]


@pytest.mark.parametrize("text", [OVERLAPPING, WITH_A_GAP, OTHER_FILL, DECLARED + "L[k<5,f<4] B[k,f] + 1", DECLARED + "L[k<5,f<4] relu(B[k,f])",
                                  BY_TWO_LOOPS, AT_ONE_PLACE, NEVER])  # fmt: skip
def test_no_parts(text: str) -> None:
    assert pieces(parse(text)) == ()


@pytest.mark.parametrize("text", [COLUMNS, MIDDLE, STACKED, OVERLAPPING, WITH_A_GAP, OTHER_FILL, CHOSEN, CHOSEN_ROWS, BY_TWO_LOOPS, AT_ONE_PLACE,
                                  NEVER, BACKWARDS])  # fmt: skip
def test_the_kernels_compute_the_whole(text: str) -> None:
    source = parse(text)
    values = integers(source)
    for form in Space(Options(max_depth=1, intensity=0.0)).forms(source):
        np.testing.assert_array_equal(run(form.tree, dict(form.matches), values), evaluate(source, values))


@pytest.mark.parametrize("text", [COLUMNS, STACKED])
def test_each_part_is_one_kernel_that_writes_its_window(text: str) -> None:
    form = two_matmuls(text)
    made = build(form.tree, dict(form.matches), "out")
    assert [type(k) for k in made.kernels] == [Matmul, Matmul] and not made.temporaries
    assert {v.buffer for k in made.kernels for v in k.result_views} == {"out"}


def test_what_strides_cannot_say_is_copied() -> None:
    """Rows h·w of a Matmul cross the border of a cut between w and w."""
    form = two_matmuls(MIDDLE)
    made = build(form.tree, dict(form.matches), "out")
    assert [type(k) for k in made.kernels] == [Matmul, EOperator, Matmul, EOperator]


@pytest.mark.parametrize(("text", "found"), [
    ("L[h<2,w<7,f<5] D[h,w,f]", Window((2, 7, 5), 0, 0, 2)), ("L[h<2,w<3,f<5] D[h,w+2,f]", Window((2, 7, 5), 1, 2, 3)),
    ("L[h<2,w<7,f<2] D[h,w,f+3]", Window((2, 7, 5), 2, 3, 2)), ("L[h<2,2<=w<6,f<5] D[h,w+1,f]", Window((2, 7, 5), 1, 3, 4)),
    ("L[h<1,w<7,f<5] D[1,w,f]", Window((2, 7, 5), 0, 1, 1)), ("L[h<1,w<7,f<5] D[h+1,w,f]", Window((2, 7, 5), 0, 1, 1)),
    ("L[w<7,f<5] D[1,w,f]", Window((2, 7, 5), 0, 1, 1)), ("L[2<=h<3,w<7,f<5] D[1,w,f]", Window((2, 7, 5), 0, 1, 1)),
    ("L[1<=h<2,w<7,f<5] D[0,w,f]", Window((2, 7, 5), 0, 0, 1)),
    ("L[2<=h<3,w<7,f<5] D[h-1,w,f]", Window((2, 7, 5), 0, 1, 1)), ("L[h<2,w<1,f<5] D[h,6,f]", Window((2, 7, 5), 1, 6, 1)),
    ("L[h<2,w<3,f<4] D[h,w,f]", None), ("L[h<2,w<3,f<5] D[h,w+5,f]", None), ("L[h<2,w<3,f<5] D[h,w-1,f]", None), ("L[h<2,w<3,f<5] D[h,2*w,f]", None),
    ("L[h<2,w<7,f<5] D[h,6-w,f]", None), ("L[w<7,h<2,f<5] D[h,w,f]", None), ("L[w<3,f<5] D[1,w,f]", None), ("L[1<=w<8,f<5] D[1,w-1,f]", None),
    ("L[h<2,f<5] D[h,3,f]", None), ("L[h<2,w<7,f<5] 2*D[h,w,f]", None), ("L[h<2,w<7] Σ[f<5] D[h,w,f]", None), ("L[w<7,f<5] D[1/2,w,f]", None),
])  # fmt: skip
def test_windows_of_a_tensor(text: str, found: Window | None) -> None:
    """Every window holds what the scope reads; what is none is never taken for one."""
    scope = parse(DECLARED + text)
    window = window_of(scope)
    assert window == found
    if window is not None:
        values = integers(scope)
        taken = values["D"].take(range(window.begin, window.begin + window.extent), window.axis)
        np.testing.assert_array_equal(taken.reshape(scope.shape), evaluate(scope, values))


def test_each_choice_is_a_kernel_that_writes_where_it_stands() -> None:
    made = build(parse(CHOSEN), {}, "out")
    assert [k.result_views[0].offset for k in made.kernels] == [0, 5, 10] and not made.temporaries
    assert [bool(k.scope.sums) for k in made.kernels if isinstance(k, EOperator)] == [False, False, True]


def test_choices_of_copies_alone_are_one_kernel() -> None:
    made = build(parse(DECLARED + "L[h<2,w<3,k<10] select(k-5>=0, A[h,w,k-5], 2*A[h,w,k])"), {}, "out")
    assert len(made.kernels) == 1


@pytest.mark.parametrize(("inner", "taps", "apart"), [
    ("tanh(A[h,w,k])", 3, True), ("A[h,w,k]*{L[h<2,w<3,k<5] tanh(A[h,w,k])}[h,w,k]", 3, True), ("relu(A[h,w,k])", 3, False),
    ("tanh(A[h,w,k])", 1, False),
])  # fmt: skip
def test_costly_functions_under_windows_that_overlap_are_computed_once(inner: str, taps: int, apart: bool) -> None:
    text = DECLARED + f"L[h<2,w<3,k<5] max[r<{taps}] {{L[h<2,w<3,k<5] {inner}}}[h,w+r-{taps // 2},k]|-inf"
    source = parse(text)
    made = build(source, {}, "out")
    assert len(made.kernels) == 1 + apart == 1 + len(made.temporaries)
    values = {"A": np.random.default_rng(0).standard_normal((2, 3, 5))}
    np.testing.assert_allclose(run(source, {}, values), evaluate(source, values), rtol=1e-6)


def test_costly_functions_under_windows_that_do_not_overlap_stay() -> None:
    made = build(parse(DECLARED + "L[h<2,w<2,k<5] max[r<3] {L[h<2,w<6,k<5] tanh(D[h,w,k])}[h,3*w+r-1,k]|-inf"), {}, "out")
    assert len(made.kernels) == 1


def test_a_part_that_another_part_reads_is_computed_once() -> None:
    twice = f"{{L[h<2,w<3,k<5] max[r<3] {POOLED}[h,w+r-1,k]|-inf}}"
    source = parse(DECLARED + f"L[h<2,w<3,k<15] select(k-10>=0, {twice}[h,w,k-10], select(k-5>=0, {POOLED}[h,w,k-5], A[h,w,k]))")
    made = build(source, {}, "out")
    assert [bool(k.scope.sums) for k in made.kernels if isinstance(k, EOperator)] == [False, True, False, True]
    assert len(made.temporaries) == 1
    values = integers(source)
    np.testing.assert_array_equal(run(source, {}, values), evaluate(source, values))
