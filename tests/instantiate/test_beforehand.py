"""Reductions over blocks of neighbours: in vectors along memory, before what reads them; the numbers, what is stored for it, and what is no such."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen.beforehand import beforehand, blocks, digits
from einnet.instantiate.codegen.ir import Function, Load, Reduce, names, walk
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import EOperator
from tests.instantiate.compiled import check, dense, scattered


def group_norm(batch: int, height: int, width: int, groups: int, size: int, after: str = "") -> Scope:
    """As exporters write it: every group as one row, of which mean and variance are taken; channels last in memory."""
    n, pixels = height * width * size, height * width
    at = f"A[b,m//{width}-{height}*(m//{pixels}),m%{width},{size}*g+m//{pixels}]"
    mean = f"{{L[b<{batch},g<{groups}] Σ[m<{n}] {at}}}"
    off = f"({at} + (-1)*({mean}[b,g] / {n}))"
    variance = f"{{L[b<{batch},g<{groups}] Σ[m<{n}] {off}*{off}}}"
    here = f"A[b,h,w,{size}*g+c]"
    y = f"W[{size}*g+c]*(({here} + (-1)*({mean}[b,g] / {n}))*(1 / sqrt({variance}[b,g] / {n} + 0.001)))"
    return parse(
        f"A : f32[{batch},{height},{width},{groups * size}]\nW : f32[{groups * size}]\n"
        f"L[b<{batch},h<{height},w<{width},g<{groups},c<{size}] {after.replace('y', f'({y})') or y}"
    )


CASES = {
    "one row of groups": group_norm(1, 9, 8, 4, 6),
    "a batch": group_norm(3, 8, 9, 8, 2),
    "swish after it": group_norm(1, 16, 5, 8, 4, "y*sigmoid(y)"),
    "an odd number of channels": group_norm(2, 8, 8, 5, 7),
    "groups of a vector's length": group_norm(1, 8, 9, 4, 16),
    "groups of more": group_norm(2, 8, 9, 2, 20),
    "a bias before it": parse(
        "A : f32[99,24]\nB : f32[24]\n"
        "L[h<99,g<6,c<4] A[h,4*g+c] + B[4*g+c] + {L[g<6] Σ[h<99,c<4] {L[h<99,f<24] A[h,f] + B[f]}[h,4*g+c]}[g]"
    ),
    "no image": parse("A : f32[2,99,24]\nL[b<2,h<99,g<6,c<4] A[b,h,4*g+c] + (-1)*{L[b<2,g<6] max[h<99,c<4] A[b,h,4*g+c]}[b,g]"),
    "a minimum": parse("A : f32[99,24]\nL[h<99,g<8,c<3] A[h,3*g+c]*{L[g<8] min[h<99,c<3] exp(A[h,3*g+c])}[g]"),
    "the reduction itself": parse("A : f32[2,10,10,24]\nL[n<2,g<6] Σ[h<10,w<10,c<4] A[n,h,w,4*g+c]"),
    "a function of the reduction": parse("A : f32[100,24]\nL[g<6] sqrt({L[g<6] Σ[h<100,c<4] A[h,4*g+c]*A[h,4*g+c]}[g])"),
    "two reductions": parse("A : f32[70,16]\nL[g<4] {L[g<4] Σ[h<70,c<4] A[h,4*g+c]}[g] + {L[g<4] max[h<70,c<4] A[h,4*g+c]}[3-g]"),
    "another order of groups": parse("A : f32[70,16]\nL[h<70,g<4,c<4] A[h,4*g+c] + {L[g<4] Σ[h<70,c<4] A[h,4*g+c]}[3-g]"),
    "a condition": parse("A : f32[70,16]\nL[h<70,g<4,c<4] select(4*g+c-h>=0, A[h,4*g+c], {L[g<4] Σ[h<70,c<4] A[h,4*g+c]}[g])"),
    "a border": parse("A : f32[70,16]\nL[h<70,g<6,c<4] A[h,4*g+c-4] + {L[g<6] Σ[h<70,c<4] A[h,4*g+c-4]}[g]"),
}
OTHERS = {
    "rows that are long enough": "A : f32[99,64]\nL[h<99,g<4,c<16] A[h,16*g+c] + {L[g<4] Σ[h<99,c<16] A[h,16*g+c]}[g]",
    "few terms": "A : f32[63,24]\nL[h<63,g<6,c<4] A[h,4*g+c] + {L[g<6] Σ[h<63,c<4] A[h,4*g+c]}[g]",
    "groups that lie apart": "A : f32[99,24]\nL[h<99,g<6,c<4] A[h,6*c+g] + {L[g<6] Σ[h<99,c<4] A[h,6*c+g]}[g]",
    "a bias in another order": "A : f32[99,24]\nB : f32[24]\nL[g<6] Σ[h<99,c<4] A[h,4*g+c]*exp(B[6*c+g])",
    "a product": "A : f32[99,24]\nW : f32[99,24]\nL[g<6] Σ[h<99,c<4] A[h,4*g+c]*W[h,4*g+c]",
    "a product with itself elsewhere": "A : f32[99,24]\nL[g<6] Σ[h<99,c<4] A[h,4*g+c]*A[h,g]",
    "too few for a vector": "A : f32[99,12]\nL[h<99,g<3,c<4] A[h,4*g+c] + {L[g<3] Σ[h<99,c<4] A[h,4*g+c]}[g]",
}  # fmt: skip


def fills(op: EOperator) -> list[str]:
    return [fill.array for fill in beforehand(resolve(op))[0]]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_is_written(name: str, threads: int) -> None:
    op = dense(CASES[name])
    assert fills(op)
    check([op], threads=threads)


@pytest.mark.parametrize("name", CASES)
def test_also_over_views_with_gaps(name: str) -> None:
    check([scattered(CASES[name], seed=3)])


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_none_stays_one_nest(name: str) -> None:
    op = dense(OTHERS[name])
    nest = resolve(op)
    assert beforehand(nest) == ((), nest)
    check([op])


def test_each_sum_is_taken_once_and_every_nest_runs_along_memory() -> None:
    made, last = beforehand(resolve(dense(CASES["one row of groups"])))
    sums = [fill for fill in made if any(isinstance(x, Reduce) and len(x.sums) == 1 and x.sums[0].extent == 72 for x in walk(fill.nest.expr))]
    assert len(sums) == 2, "one for the mean, and one for the variance"
    for nest in (*(fill.nest for fill in sums), last):
        (channel,) = [i for i in nest.loops if i.extent == 24]
        assert all(x.address.coefficient(channel.name) == 1 for x in walk(nest.expr) if isinstance(x, Load) and channel.name in names(x))
    assert len({fill.array for fill in made}) == len(made)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(2, 7), st.integers(2, 7), st.integers(2, 5))
def test_digits_walk_the_same_elements(height: int, width: int, size: int) -> None:
    pixels = height * width
    text = f"A : f32[{height},{width},{size}]\nL[x<1] Σ[m<{pixels * size}] A[m//{width}-{height}*(m//{pixels}),m%{width},m//{pixels}]"
    nest = resolve(dense(parse(text)))
    reduce = next(x for x in walk(nest.expr) if isinstance(x, Reduce))
    found = digits(reduce, nest.loops)
    assert np.prod([i.extent for i in found.sums]) == pixels * size
    load = next(x for x in walk(found.body) if isinstance(x, Load))
    assert all(isinstance(atom, str) for atom, _ in load.address.terms), "no division is left"
    steps = sorted((abs(load.address.coefficient(i.name)), i.extent) for i in found.sums if i.extent > 1)
    reached = 1
    for step, extent in steps:
        assert step == reached
        reached *= extent
    assert reached == pixels * size


def test_iterators_that_do_not_start_at_nought_are_left_alone() -> None:
    nest = resolve(dense(parse("A : f32[99,24]\nL[g<6] Σ[1<=h<99,c<4] A[h,4*g+c]")))
    assert blocks(Function("f", nest.loops, nest.expr)) is None
