"""Copies in another order by their index functions: a view of what is copied is a view of the copy, where strides can say it."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from einnet.expr.index import Index, combine, floor_div, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.instantiate.relaid import Digit, Relaid, relaid


def copying(scope: Scope) -> EOperator:
    (tensor,) = tensors(scope).values()
    return EOperator(scope, (("A", dense_view("a", tensor.shape)),), dense_view("c", scope.shape))


def shown(values: np.ndarray, view: View) -> np.ndarray:
    return as_strided(values[view.offset :], view.shape, [s * values.itemsize for s in view.strides])


@st.composite
def orders(draw: st.DrawFn) -> tuple[Scope, list[int]]:
    """A copy of a tensor whose digits are permuted, its dimensions and those of the copy being neighbours put together; the digits' extents."""
    extents = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = draw(st.permutations(range(len(extents))))
    loops, digit = list[Iter](), dict[int, Index]()
    for group in groups(draw, order):
        name, rest = f"h{len(loops)}", prod(extents[d] for d in group)
        loops.append(Iter(name, 0, rest))
        for d in group:
            above, rest = rest, rest // extents[d]
            digit[d] = floor_div(var(name), rest) - floor_div(var(name), above) * extents[d]
    shape, index = list[int](), list[Index]()
    for group in groups(draw, range(len(extents))):
        shape.append(prod(extents[d] for d in group))
        steps = [prod(extents[d] for d in group[n + 1 :]) for n in range(len(group))]
        index.append(combine(*((digit[d], step) for d, step in zip(group, steps))))
    return Scope(tuple(loops), (), Read(Tensor("A", tuple(shape)), tuple(index))), extents


def groups(draw: st.DrawFn, items) -> list[list[int]]:
    """The items, neighbours put together at random."""
    items = list(items)
    cuts = sorted({0, len(items), *draw(st.sets(st.integers(0, len(items))))})
    return [items[a:b] for a, b in pairwise(cuts)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(orders(), st.data())
def test_a_view_of_either_order_shows_the_same_in_the_other(given: tuple[Scope, list[int]], data: st.DataObject) -> None:
    scope, extents = given
    kernel = copying(scope)
    assert isinstance(scope.body, Read)
    a = np.arange(prod(extents), dtype=np.float32)
    c = np.ascontiguousarray(evaluate(scope, {"A": a.reshape(scope.body.base.shape)}), dtype=np.float32).reshape(-1)
    places = relaid(kernel)
    for place, values, others, buffer in ((places[0], a, c, "c"), (places[1], c, a, "a")):
        assert (place is not None) == (prod(extents) > 1)
        if place is None:
            continue
        shape = tuple(d.extent for d in place.digits)
        picked = [(begin := data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, n - begin))) for n in shape]
        steps = [d.step for d in place.digits]
        view = View("x", tuple(n for _, n in picked), tuple(steps), sum(b * s for (b, _), s in zip(picked, steps)))
        found = place.view(view, buffer)
        assert found is not None
        assert found.buffer == buffer
        np.testing.assert_array_equal(shown(values, view), shown(others, found))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(orders(), st.data())
def test_a_view_that_strides_cannot_say_is_none(given: tuple[Scope, list[int]], data: st.DataObject) -> None:
    """Any view at all, within what is copied: where there is one of the copy, it shows the same."""
    scope, extents = given
    size = prod(extents)
    assert isinstance(scope.body, Read)
    a = np.arange(size, dtype=np.float32)
    c = np.ascontiguousarray(evaluate(scope, {"A": a.reshape(scope.body.base.shape)}), dtype=np.float32).reshape(-1)
    place = relaid(copying(scope))[0]
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = tuple(data.draw(st.integers(0, max(size // 2, 1))) for _ in shape)
    reach = sum(s * (n - 1) for s, n in zip(strides, shape))
    if place is None or reach >= size:
        return
    view = View("x", shape, strides, data.draw(st.integers(0, size - 1 - reach)))
    found = place.view(view, "c")
    if found is not None:
        np.testing.assert_array_equal(shown(a, view), shown(c, found))


def test_heads_are_merged_by_strides() -> None:
    kernel = copying(parse("A : f32[1,3,5,4]\nL[b<1,m<5,n<12] A[0,n//4,m,n%4]"))
    place = relaid(kernel)[0]
    assert place == Relaid((Digit(3, 20, 4), Digit(5, 4, 12), Digit(4, 1, 1)), 0)
    assert place.view(View("a", (1, 3, 5, 4), (60, 20, 4, 1), 0), "c") == View("c", (1, 3, 5, 4), (60, 4, 12, 1), 0)
    assert place.view(dense_view("a", (15, 4)), "c") is None


@pytest.mark.parametrize(
    ("text", "within", "apart"),
    [
        ("A : f32[4,6]\nL[h<6,w<4] A[w,h]", True, True),
        ("A : f32[4,6]\nL[h<6,w<3] A[w,h]", False, True),  # a part is no order of the whole: the copy lies in it, not it in the copy
        ("A : f32[4,6]\nL[h<4,w<6] A[h,5-w]", False, False),
        ("A : f32[4,6]\nL[h<4,w<6] A[h,0]", False, False),
        ("A : f32[4,6]\nL[h<4,w<6] 2*A[h,w]", False, False),
        ("A : f32[4,6]\nL[h<4,w<7] A[h,w]", False, False),
        ("A : f32[4,6]\nL[h<4] Σ[w<6] A[h,w]", False, False),
        ("A : f32[4,6]\nL[h<4,w<6] A[(h+1)//2,w]", False, False),
        ("A : f32[4,6]\nL[h<24] A[h//6,h%6]", True, True),
        ("A : f32[7]\nL[h<3,w<2] A[2*h+w]", False, True),
    ],
)
def test_orders_are_recognised_by_their_index_functions(text: str, within: bool, apart: bool) -> None:
    found = relaid(copying(parse(text)))
    assert (found[0] is not None, found[1] is not None) == (within, apart)
