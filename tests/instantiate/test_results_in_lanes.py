"""Sums along what is contiguous: several rows are combined as one vector, dear functions of them are taken of vectors, and each is computed once."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.instantiate.codegen import build, lower
from einnet.instantiate.codegen.blocking.rows import rows
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.executed import executed
from einnet.instantiate.codegen.ir import Reduce, walk
from einnet.instantiate.codegen.resolve import resolve
from tests.instantiate.compiled import call, check, dense, scattered

NUMPY = {"Σ": np.sum, "max": np.max, "min": np.min}


def logarithms(count: int, length: int, inner: str = "") -> str:
    """The logarithm of the sum of exponentials of each row, under the row's maximum."""
    given = f"X : f32[{count},{length}]\n"
    top = f"{{L[m<{count}] max[n<{length}] X[m,n]}}[m]"
    return f"{given}L[m<{count}{inner}] log({{L[m<{count}] Σ[n<{length}] exp(X[m,n] - {top})}}[m]) + {top}"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 17, 32])
@pytest.mark.parametrize("length", [8, 16, 37])
@pytest.mark.parametrize("reduce", NUMPY)
def test_lanes_of_several_rows_are_combined_to_the_result_of_each(count: int, length: int, reduce: str) -> None:
    op = dense(f"X : f32[{count},{length}]\nL[m<{count}] {reduce}[n<{length}] X[m,n]")
    kernel = lower(op, "rows")
    values = np.random.default_rng(count).integers(-99, 99, (count, length)).astype(np.float32)
    with_nan = values.copy()
    with_nan[count // 2, length - 1] = np.nan
    for given in (values, with_nan):
        np.testing.assert_array_equal(call(build([kernel]), kernel, op, {"X": given}), NUMPY[reduce](given, axis=1))


@pytest.mark.parametrize("count", [8, 19, 40, 64])
@pytest.mark.parametrize("inner", ["", ",k<1", ",k<3"])
def test_dear_functions_of_rows_are_taken_of_vectors(count: int, inner: str) -> None:
    text = logarithms(count, 40, inner)
    found = rows(normalise(resolve(dense(text))))
    assert found is not None and not any(isinstance(x, Reduce) for blocks in found for x in walk(blocks.last.expr))
    assert all([fill.size <= 16 for _, fill in blocks.fills] == [True, True] for blocks in found), "the maxima, and the sums"
    check([dense(text), scattered(text, 5)])
    check([dense(text)], threads=2)


ACROSS = "X : f32[40,32]\nL[m<32] log({L[m<32] Σ[n<40] exp(X[n,m])}[m])"
"""Neighbouring sums are added up in lanes as they are."""


@pytest.mark.parametrize("text", [logarithms(4, 40), logarithms(32, 40, ",k<9"), logarithms(32, 40).replace("log", "relu"), ACROSS])
def test_few_rows_long_rows_of_results_cheap_functions_and_sums_across_are_no_blocks(text: str) -> None:
    assert rows(normalise(resolve(dense(text)))) is None
    check([dense(text), scattered(text, 2)])


def often(times: int) -> str:
    """A sum that is squared again and again, its text doubled each time."""
    given = "X : f32[16,8,640]\n"
    own = "{L[m<16,c<8] Σ[n<640] X[m,c,n]}[m,c]"
    for _ in range(times):
        own = f"({own})*relu({own})"
    return f"{given}L[m<16,c<8] {own}"


def test_a_sum_that_stands_many_times_is_computed_once() -> None:
    few, many = (str(lower(dense(often(times)), "many").primfunc.script()) for times in (1, 4))
    assert few.count("for n") == many.count("for n") > 0
    assert executed(dense(often(4))) < 1.5 * executed(dense(often(1)))
    check([dense(often(2))], tolerance=1e-4)


def test_a_maximum_that_a_sum_reads_and_that_stands_beside_it_is_computed_once() -> None:
    text = logarithms(4, 640)
    written = str(lower(dense(text), "beside").primfunc.script())
    assert written.count("for n") == 2, "the maximum, and the sum"


def test_a_sum_under_a_condition_is_remembered_for_no_other_place() -> None:
    own = "{L[m<24] Σ[n<40] X[m,n]}"
    text = f"X : f32[24,40]\nL[m<24] select(m-9>=0, {own}[m]*2, 1) + select(m-15>=0, exp({own}[m-15]/9), 0)"
    check([dense(text), scattered(text, 3)])
    assert parse(text).shape == (24,)


@pytest.mark.parametrize("other", ["0", "log({L[m<24] Σ[n<40] X[m,n]*X[m,n]}[m])"])
def test_a_sum_that_is_read_under_a_condition_alone_reads_nothing_where_that_fails(other: str) -> None:
    """Its rows begin before the operand, whose memory is fenced."""
    text = f"X : f32[24,40]\nL[m<24] select(m-9>=0, exp({{L[m<24] Σ[n<40] X[m,n]}}[m-9]/9), {other})"
    check([dense(text), scattered(text, 3)])
