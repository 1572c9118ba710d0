"""Evaluation at points against dense evaluation of the same pseudo-random tensors."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given

from einnet.expr.functions.modular import P, add, inverse, multiply, random_function, seed_of
from einnet.expr.nodes import Scope, Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values import points as module
from einnet.expr.values.arithmetic import Arithmetic, Exact, Machine
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import effort, elements_read, evaluate_at, values_at, work
from einnet.expr.values.running_errors import Running, pair
from tests.strategies import repeatable, scopes

MANY = repeatable(80)


def pseudo_random(scope: Scope, seed: int) -> dict[str, np.ndarray]:
    return {n: random_function(seed_of(seed, n), (np.arange(np.prod(t.shape, dtype=int)).reshape(t.shape),)) for n, t in tensors(scope).items()}


@MANY
@given(scopes(depth=2))
def test_points_are_those_of_the_dense_values(scope: Scope) -> None:
    grid = np.asarray(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64).reshape(prod(scope.shape), len(scope.loops))
    want = evaluate(scope, pseudo_random(scope, 3), "mod").reshape(-1)
    assert (evaluate_at(scope, grid, 3) == want).all()


def test_points_outside_the_box_are_zero() -> None:
    scope = parse("A : f32[4]\nL[1<=i<3] A[i]")
    assert (evaluate_at(scope, np.asarray([[0], [1], [2], [3]]), 1) != 0).tolist() == [False, True, True, False]


def test_large_sums_are_chunked(monkeypatch) -> None:
    scope = parse("A : f32[40,50]\nB : f32[50,40]\nL[i<40,j<40] Σ[k<50,l<7] A[i,k]*B[k,j]*val(l)")
    at = np.asarray([[0, 0], [39, 39], [3, 8]])
    whole = evaluate_at(scope, at, 1)
    monkeypatch.setattr(module, "_CHUNK", 16)
    assert (evaluate_at(scope, at, 1) == whole).all()


@pytest.mark.parametrize(("count", "sums", "arrays"), [
    (3, "k<64,l<8", 96 * [16]), (3, "l<2,k<64", 24 * [16]), (1, "100<=l<102,k<64", 8 * [16]), (64, "k<2", 8 * [16]), (5, "k<1,l<1", [5]),
    (1, "k<2,b<2,c<2,d<2,e<2", 2 * [16]),
])  # fmt: skip
def test_no_array_is_larger_than_a_chunk(count: int, sums: str, arrays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is smaller than it need be: points are taken together, then sums are halved."""
    scope = parse(f"A : f32[64,64]\nL[i<64] Σ[{sums}] A[i,k]")
    sizes: list[int] = []
    real = module.reduced
    monkeypatch.setattr(module, "_CHUNK", 16)
    monkeypatch.setattr(module, "reduced", lambda *given: sizes.append(prod(given[-1])) or real(*given))
    found = evaluate_at(scope, np.arange(count).reshape(count, 1), 1)
    assert sizes == arrays
    assert (found == evaluate(scope, pseudo_random(scope, 1), "mod")[:count]).all()


@pytest.mark.parametrize("count", [4, 400])
def test_what_is_not_known_yet_is_found_among_few_addresses_and_many(count: int) -> None:
    kept = module._Kept(2000, np.dtype(np.float64))
    kept.known[::3] = True
    address = np.random.default_rng(0).integers(0, 50, count)
    assert kept.unknown(address).tolist() == sorted({int(a) for a in address if a % 3})


def test_real_extents_are_no_matter() -> None:
    scope = parse("A : f32[56,56,512]\nK : f32[3,3,512,512]\nL[h<56,w<56,f<512] Σ[c<512,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]")
    at = np.random.default_rng(0).integers(0, 56, (64, 3))
    assert evaluate_at(scope, at, 1).shape == (64,)
    assert work(scope, 64) == 64 * 9 * 512


def test_field_arithmetic() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, P, (2, 500), dtype=np.uint64)
    a[:4], b[:4] = [0, 1, P - 1, P - 1], [0, P - 1, P - 1, 1]
    assert multiply(a, b).tolist() == [int(x) * int(y) % P for x, y in zip(a, b, strict=True)]
    assert add(a, b).tolist() == [(int(x) + int(y)) % P for x, y in zip(a, b, strict=True)]
    assert not add(a, multiply(a, np.uint64(P - 1))).any()
    assert (multiply(a, inverse(a)) == (a != 0)).all()


SQUARES = "{L[i<6] Σ[k<5] A[i,k]*A[i,k]}"
PAIRS = f"{{L[i<6] {SQUARES}[i] + {SQUARES}[5-i]}}"
CHAIN = f"A : f32[6,5]\nL[i<6] {PAIRS}[i]*{PAIRS}[5-i]"


@pytest.mark.parametrize(("system", "dtype", "count"), [(Exact(), object, 2 * 6 * 5), (Machine("float64"), np.float64, 6 * 5)])
def test_what_is_read_in_several_places_is_evaluated_once_at_each_point(system: Arithmetic, dtype: type, count: int) -> None:
    """So many elements of A are asked for as the innermost sum has in all, and not again for each of the places where it is read.

    Where sums are contracted, what reads A is evaluated as a whole, and every element of A is asked for once.
    """
    scope, asked = parse(CHAIN), 0
    values = np.random.default_rng(0).integers(-3, 4, (6, 5)).astype(np.float64)

    def element(t: object, address: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += np.size(address)
        return values.reshape(-1)[address].astype(dtype)

    found = values_at(scope, np.arange(6).reshape(6, 1), system, element)
    assert (found == evaluate(scope, {"A": values})).all()
    assert asked == count
    assert effort(scope, 6) == 6 + 6 + 6 * 5 < work(scope, 6)
    assert effort(scope, 1) == 1 + 2 + 4 * 5


@MANY
@given(scopes(depth=3))
def test_no_effort_is_more_than_evaluating_all_anew(scope: Scope) -> None:
    assert effort(scope, 3) <= work(scope, 3)


def test_what_does_not_vary_along_a_row_is_reckoned_once_for_it() -> None:
    row = "{L[m<9] max[n<8] A[m,n]}[m]"
    scope = parse(f"A : f32[9,8]\nL[m<9,n<8] A[m,n] - {row}")
    assert effort(scope, 72) == 72 + 9 * 8
    assert effort(scope, 2) == 2 + 2 * 8
    sliding = parse("A : f32[9,8]\nL[m<3] Σ[n<4,k<2] {L[i<8,j<9] A[j,i]}[n+k,m]")
    assert effort(sliding, 1) == 8 + 8


ROWS = "{L[a<9] Σ[k<5] A[a,k]}"


@pytest.mark.parametrize(("text", "points", "wanted"), [
    (f"L[i<4,j<6] {ROWS}[i]", 100, 24 + 4 * 5), (f"L[i<4,j<6] {ROWS}[i]", 3, 3 + 3 * 5), ("L[i<4] {L[a<9,b<9] A[a,0]}[i,i]", 100, 4 + 4),
    (f"L[i<4,j<4] {{L[a<9,b<9] {ROWS}[a]}}[i,j]", 100, 16 + 16 + 4 * 5), (f"L[i<4] {ROWS}[i] + {ROWS}[i+1]", 100, 4 + 8 * 5),
])  # fmt: skip
def test_how_much_effort_is_reckoned(text: str, points: int, wanted: int) -> None:
    """By hand: a scope is evaluated at no more points than there are iterators in the indices, places in its box, and readers of it."""
    assert effort(parse(f"A : f32[9,5]\n{text}"), points) == wanted


def test_values_that_a_tensor_carries_are_read_within_its_box() -> None:
    """Beyond its ends it is what it is filled with."""
    scope = parse("T : weight f32[3] = [5, 7, 9]\nL[i<7] T[i-2]|2")
    found = values_at(scope, np.arange(7)[:, None], Machine("float64"), lambda t, at: pytest.fail("no element is asked for"))
    assert found.tolist() == [2.0, 2.0, 5.0, 7.0, 9.0, 2.0, 2.0]


def test_no_values_are_kept_of_what_is_too_large(monkeypatch) -> None:
    scope = parse(CHAIN)
    at = np.arange(6).reshape(6, 1)
    whole = evaluate_at(scope, at, 1)
    for limit in ("_LARGEST", "_MOST", "_SPARSE"):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 0)
            patch.setattr(module, "_Kept", lambda size, dtype: pytest.fail(f"room for {size} values"))
            assert (evaluate_at(scope, at, 1) == whole).all()


@pytest.mark.parametrize(("most", "kept"), [(13, [6]), (14, [6, 8]), (5, [])])
def test_room_is_for_so_many_values_in_all(most: int, kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse("A : f32[8]\nL[i<6] {L[i<6] A[i]*A[i]}[i] + {L[i<8] A[i]*A[7-i]}[i+2]")
    made: list[int] = []
    real = module._Kept
    monkeypatch.setattr(module, "_MOST", most)
    monkeypatch.setattr(module, "_Kept", lambda size, dtype: made.append(size) or real(size, dtype))
    found = evaluate_at(scope, np.arange(6).reshape(6, 1), 1)
    assert made == kept and (found == evaluate(scope, pseudo_random(scope, 1), "mod")).all()


CHOSEN = "I : f32[4]\nW : f32[7,3]\nL[m<4,n<3] Σ[v<7] choose(equal(I[m], val(v)), W[v,n], 0)"


def test_of_a_selection_one_term_is_evaluated() -> None:
    """Whole numbers in and beside the range, and others, of which none is taken."""
    scope, asked = parse(CHOSEN), []
    held = {"I": np.array([2.0, 9.0, -1.0, 3.5]), "W": np.arange(1.0, 22.0).reshape(7, 3)}

    def element(t: Tensor, address: np.ndarray) -> np.ndarray:
        asked.append((t.name, np.size(address)))
        return held[t.name].reshape(-1)[address]

    grid = np.asarray(list(product(range(4), range(3))))
    found = values_at(scope, grid, Machine("float64"), element, lambda x: np.rint(x).astype(np.int64))
    assert found.reshape(4, 3).tolist() == [[7.0, 8.0, 9.0], *[[0.0] * 3] * 3]
    assert sum(n for name, n in asked if name == "W") == 12
    assert (values_at(scope, grid, Machine("float64"), element) == found).all()
    assert (values_at(scope, grid, Machine("float64"), element, lambda x: None) == found).all()
    assert effort(scope, 12) == 12
    assert work(scope, 12) == 12 * 7


def test_of_a_selection_nothing_beyond_the_range_is_taken() -> None:
    """What is selected from goes on there."""
    scope = parse("I : f32[5]\nW : f32[9]\nL[m<5] Σ[1<=v<7] choose(equal(I[m], val(v)), W[v], 0)")
    held = {"I": np.array([0.0, 1.0, 6.0, 7.0, 8.0]), "W": np.arange(1.0, 10.0)}
    found = values_at(scope, np.arange(5)[:, None], Machine("float64"), lambda t, at: held[t.name][at], lambda x: np.rint(x).astype(np.int64))
    assert found.tolist() == [0.0, 2.0, 7.0, 0.0, 0.0]


NESTED = (
    "A : f32[6,8]\nB : f32[8,5]\nL[i<6,j<5] relu({L[i<6,j<5] Σ[k<8] A[i,k]*B[k,j]}[i,j])*B[i,j]",
    "A : f32[6,8]\nB : f32[8,5]\nL[i<6,j<5] {L[i<6,j<5] Σ[k<8] A[i,k]*{L[k<8,j<5] tanh(B[k,j])}[k,j] + A[i,j]}[i,j]/3",
    "A : f32[6,8]\nB : f32[8,5]\nL[i<6,j<5] {L[i<6,j<5] Σ[k<8,l<3] A[i,k]*{L[k<8,j<5] max[l<2] B[k-l,j]|-inf}[k,j]*A[i,l]}[i,4-j]",
)


@pytest.mark.parametrize("text", NESTED)
@pytest.mark.parametrize("infinite", [False, True])
def test_what_is_mostly_read_is_evaluated_as_a_whole(text: str, infinite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested scope has the values, and the bounds of errors, that it has point by point."""
    scope = parse(text)
    generator = np.random.default_rng(0)
    held = {name: generator.standard_normal(prod(t.shape)) for name, t in tensors(scope).items()}
    if infinite:
        held["A"][5] = np.inf

    def element(t: Tensor, address: np.ndarray) -> np.ndarray:
        return pair(np.take(held[t.name], address), np.full(np.shape(address), 1e-3) if t.name == "B" else 0.0)

    points = np.asarray(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64)
    whole = []
    real = module._Points.over_box
    monkeypatch.setattr(module._Points, "over_box", lambda self, s: whole.append(s) or real(self, s))
    found = values_at(scope, points, Running(), element)
    assert len(whole) == 1, "the scope that it reads, and not that which this reads"
    monkeypatch.setattr(module._Points, "is_dense", lambda self, s: False)
    one_by_one = values_at(scope, points, Running(), element)
    np.testing.assert_allclose(found.real, one_by_one.real, rtol=1e-12)
    np.testing.assert_allclose(found.imag, one_by_one.imag, rtol=1e-6)
    assert len(whole) == 1


def test_little_of_a_scope_is_evaluated_at_points_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse("A : f32[6,8]\nL[i<6] {L[i<6,j<8] A[i,j]*2}[i,3] + {L[i<6] choose(equal(A[i,0],val(i)),1,0)}[i]")
    real = module._Points.over_box
    monkeypatch.setattr(module._Points, "over_box", lambda self, s: pytest.fail("of 48 elements 6 are read") if len(s.loops) == 2 else real(self, s))
    values_at(scope, np.arange(6).reshape(6, 1), Machine("float64"), lambda t, address: np.ones(np.shape(address)))


@pytest.mark.parametrize(("rows", "wholes"), [(4, 0), (5, 1), (64, 1)])
def test_a_sum_of_which_some_is_read_is_one_product(monkeypatch: pytest.MonkeyPatch, rows: int, wholes: int) -> None:
    """From a sixteenth of its elements on; what sums nothing from a half on."""
    scope = parse(f"A : f32[64,8]\nB : f32[8,3]\nL[i<{rows},j<3] {{L[i<64,j<3] Σ[k<8] {{L[i<64,k<8] exp(A[i,k])}}[i,k]*B[k,j]}}[i,j]")
    points = np.asarray(list(product(range(rows), range(3))), dtype=np.int64)
    done: list[Scope] = []
    real = module._Points.over_box
    monkeypatch.setattr(module._Points, "over_box", lambda self, s: done.append(s) or real(self, s))
    found = values_at(scope, points, Machine("float64"), lambda t, address: np.cos(address))
    assert len(done) == wholes
    a, b = np.exp(np.cos(np.arange(512.0))).reshape(64, 8), np.cos(np.arange(24.0)).reshape(8, 3)
    np.testing.assert_allclose(found, (a @ b)[:rows].reshape(-1), rtol=1e-12)


@pytest.mark.parametrize(("body", "read"), [
    ("select(i-3>=0, A[i], B[i])", {3: {("A", 3)}, 2: {("B", 2)}}),
    ("select(i-3>=0, {L[i<6] A[5-i]*B[i]}[i], select(i-1==0, B[0], A[0]))", {3: {("A", 2), ("B", 3)}, 1: {("B", 0)}, 0: {("A", 0)}}),
    ("{L[i<6] Σ[k<6] select(k-i==0, A[k], 0)}[i] + select(i==0, A[i-1], 0)", {0: {("A", 0)}, 4: {("A", 4)}}),
    ("{L[i<6] select(i-2==0, A[i], B[i])}[i] * {L[i<6] select(i-2==0, A[i], B[i])}[2]", {2: {("A", 2)}, 1: {("B", 1), ("A", 2)}}),
])  # fmt: skip
def test_of_selects_the_side_that_is_taken_is_read(body: str, read: dict[int, set[tuple[str, int]]]) -> None:
    scope = parse(f"A : f32[6]\nB : f32[6]\nL[i<6] {body}")
    assert {i: set(elements_read(scope, (i,))) for i in read} == read
