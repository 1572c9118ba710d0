"""Dense evaluation against the point-by-point meaning."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from einnet.errors import UsageError
from einnet.expr.functions.modular import order, residue
from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values import evaluate as module
from einnet.expr.values.arithmetic import Machine, arithmetic
from einnet.expr.values.bodies import numerator
from einnet.expr.values.evaluate import Evaluation, evaluate
from tests.expr.brute import Brute
from tests.strategies import integer_values, repeatable, scopes

CONV = "A : f32[7,6,4]\nK : f32[3,3,5,4]\nL[h<7,w<6,f<5] Σ[c<4,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]"
MANY = repeatable(80)


def brute(scope: Scope, values: dict[str, np.ndarray]) -> np.ndarray:
    out = np.empty(scope.shape, dtype=object)
    for point, v in Brute(values).table(scope).items():
        out[tuple(x - lo for x, (lo, _) in zip(point, scope.box, strict=True))] = v
    return out


@MANY
@given(scopes(depth=2))
def test_exact_evaluation_is_the_meaning(scope: Scope) -> None:
    values = integer_values(scope)
    assert (evaluate(scope, values, "int") == brute(scope, values)).all()


@MANY
@given(scopes(depth=1))
def test_floats_agree_with_rationals(scope: Scope) -> None:
    values = integer_values(scope)
    np.testing.assert_allclose(evaluate(scope, values), evaluate(scope, values, "int").astype(float), rtol=1e-9, atol=1e-9)


@MANY
@given(scopes(depth=1))
def test_chunks_do_not_change_values(scope: Scope) -> None:
    values = integer_values(scope)
    whole = evaluate(scope, values, "mod")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", 3)
        assert (evaluate(scope, values, "mod") == whole).all()


def test_residues_are_those_of_the_integers() -> None:
    scope = parse(CONV)
    values = integer_values(scope)
    assert (order(evaluate(scope, values, "mod")) == brute(scope, values).astype(int)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int", "mod"])
def test_fills_of_max_pooling(dtype: str) -> None:
    scope = parse("A : f32[4]\nL[h<4] max[r<3] A[h+r-1]|-inf")
    out = evaluate(scope, {"A": np.asarray([-4, -3, -7, -9])}, dtype)
    assert (order(out) if dtype == "mod" else out).tolist() == [-3, -3, -3, -7]


def test_fractional_reads_are_outside() -> None:
    scope = parse("A : f32[3]\nL[h<6] A[h/2]|5")
    assert evaluate(scope, {"A": np.asarray([1, 2, 3])}).tolist() == [1, 5, 2, 5, 3, 5]


def test_functions_follow_numpy() -> None:
    x = np.linspace(0.25, 2, 8)
    scope = parse("A : f32[8]\nL[i<8] exp(A[i]) + sigmoid(A[i])*erf(A[i]) - log(A[i]) / sqrt(A[i]) + softplus(pow(A[i], 2)) + round(2*A[i])")
    from math import erf

    want = np.exp(x) + np.vectorize(erf)(x) / (1 + np.exp(-x)) - np.log(x) / np.sqrt(x) + np.log1p(np.exp(x**2)) + np.rint(2 * x)
    np.testing.assert_allclose(evaluate(scope, {"A": x}), want)


def test_empty_ranges_give_the_neutral_element() -> None:
    assert evaluate(parse("A : f32[3]\nL[i<2] Σ[k<0] A[k]"), {"A": np.ones(3)}).tolist() == [0, 0]
    assert evaluate(parse("A : f32[3]\nL[i<2] max[k<0] A[k]"), {"A": np.ones(3)}).tolist() == [-np.inf] * 2
    assert evaluate(parse("A : f32[3]\nL[i<0] A[i]"), {"A": np.ones(3)}).shape == (0,)


def test_weight_relayouts_are_copies() -> None:
    """No array of places is made for each index: those alone would be eight times as large as the weights."""
    weights = np.random.default_rng(0).standard_normal((3, 3, 64, 64)).astype("f4")
    for body, want in (
        ("L[f<64,c<64,r<3,s<3] K[r,s,f,c]", weights.transpose(2, 3, 0, 1)),
        ("L[n<576,c<64] K[n//3%3,n%3,n//9,c]", weights.transpose(2, 0, 1, 3).reshape(576, 64)),
    ):
        scope = parse("K : weight f32[3,3,64,64]\n" + body)
        evaluate(scope, {"K": weights}, "float32")
        tracemalloc.start()
        try:
            out = evaluate(scope, {"K": weights}, "float32")
            assert tracemalloc.get_traced_memory()[1] < 5 * weights.nbytes
        finally:
            tracemalloc.stop()
        assert (out == want).all()


@pytest.mark.parametrize("index", ["k,l", "199-k,l", "k,l-l%2"])
def test_a_read_within_a_tensor_takes_no_copy_of_it(index: str) -> None:
    """Up to its last element; where iterators are divided it is copied, which shows that copies are counted."""
    values = np.random.default_rng(0).integers(-99, 99, (200, 250)).astype(np.float64)
    values[199, 248] = 100
    scope = parse(f"A : f32[200,250]\nL[] max[k<200,l<250] A[{index}]")
    evaluate(scope, {"A": values})
    tracemalloc.start()
    try:
        out = evaluate(scope, {"A": values})
        copied = tracemalloc.get_traced_memory()[1] > values.nbytes / 2
    finally:
        tracemalloc.stop()
    assert out == 100 and copied == ("%" in index)


PRODUCT = "A : f32[40,60]\nB : f32[60,50]\nL[i<40,j<50] Σ[k<60] A[i,k]*B[k,j]"
LONG = "A : f32[2,60]\nB : f32[60]\nL[i<2,j<1] Σ[k<60] A[i,k]*B[k]*A[i,k]"


@pytest.mark.parametrize(("text", "dtype", "most", "name"), [
    (PRODUCT, "float64", 3000, None), (PRODUCT, "float64", 2999, "j"), (PRODUCT, "int", 120_000, None), (PRODUCT, "int", 119_999, "j"),
    (PRODUCT.replace("j<50", "j<5"), "float64", 2399, "i"), (PRODUCT + "+A[i,k]*A[i,k]", "float64", 2999, "j"), (LONG, "float64", 119, "i"),
    (LONG, "int", 119, "i"), (LONG.replace("i<2", "i<1"), "float64", 59, "k"), (LONG.replace("i<2", "1<=i<2"), "float64", 59, "k"),
    ("A : f32[40,60]\nL[i<1] Σ[r<40,k<60] A[r,k]", "float64", 2000, "k"),
])  # fmt: skip
def test_which_iterator_is_split(text: str, dtype: str, most: int, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest of the largest array, loops before sums: of a product that is contracted a factor, else the whole of it."""
    monkeypatch.setattr(module, "_CHUNK", most)
    scope = parse(text)
    assert Evaluation(arithmetic(dtype), {}).widest(scope, scope.ranges) == name


def test_evaluation_may_be_stopped_before_each_array(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "_CHUNK", 2)
    values = {"A": np.arange(5.0)}
    evaluate(parse("A : f32[5]\nL[i<5] A[i]+1"), values, hurry=lambda: asked.append(1))
    assert len(asked) == 3

    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        evaluate(parse("A : f32[5]\nL[i<5] A[i]"), values, hurry=stop)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int", "mod"])
def test_tensors_that_carry_their_values_need_none(dtype: str) -> None:
    scope = parse("A : f32[2]\nT : weight f32[2,3] = [2, -1, 3, 4, 0, 1/2]\nL[i<2] Σ[k<3] T[i,k]*T[1,k]*A[i]*2")
    found = evaluate(scope, {"A": np.asarray([3, 5])}, dtype)
    assert found.tolist() == [residue(v) if dtype == "mod" else v for v in (Fraction(57), Fraction(325, 2))]


class Counting(Machine):
    """Doubles that tell how many factors are contracted."""

    def __init__(self) -> None:
        super().__init__("float64")
        self.factors: list[int] = []

    def contract(self, factors: list[np.ndarray], rank: int, shape: tuple[int, ...]) -> np.ndarray:
        self.factors.append(len(factors))
        return super().contract(factors, rank, shape)


@pytest.mark.parametrize(("text", "contracted"), [
    ("Σ[k<4] A[i,k]*B[k]", [2]), ("Σ[k<4] A[i,k]*B[k]*A[2,k]", [3]), ("Σ[k<4] A[i,k]", []), ("max[k<4] A[i,k]*B[k]", []), ("A[i,1]*B[i]", []),
    ("Σ[k<4] A[i,k]*B[k]+A[i,k]", [2]), ("Σ[k<4,r<5] A[i,k]*B[k]", [2]), ("Σ[k<4] A[i,1]*B[i]", [2]),
])  # fmt: skip
def test_sums_of_products_are_contracted(text: str, contracted: list[int]) -> None:
    scope, system = parse(f"A : f32[3,4]\nB : f32[4]\nL[i<3] {text}"), Counting()
    values = integer_values(scope)
    found = Evaluation(system, {n: v.astype(float) for n, v in values.items()}).whole(scope)
    assert system.factors == contracted and found.tolist() == brute(scope, values).tolist()


def test_missing_and_misshapen_values_are_named() -> None:
    scope = parse(CONV)
    with pytest.raises(UsageError, match=r"no values for tensor A\[7, 6, 4\]"):
        evaluate(scope, {})
    with pytest.raises(UsageError, match=r"shape \[1\] for tensor A"):
        evaluate(scope, {"A": np.ones(1), "K": np.ones((3, 3, 5, 4))})
    with pytest.raises(UsageError, match="'nonsense' is no number system"):
        evaluate(scope, {}, "nonsense")


def test_indices_that_would_wrap_around_are_refused() -> None:
    with pytest.raises(UsageError, match="62 bits"):
        evaluate(parse("A : f32[3]\nL[i<99] A[999999999999999998*i//7]"), {"A": np.ones(3)})


MIXED = (
    "L[i<12,j<5] A[i//4,i%4+j-1]",
    "L[i<12,h<3] Σ[c<2,r<3] C[2*(i//4)+c,h+r-1]*A[i//4,h]",
    "L[i<12,j<3] A[i//5-1,i%5+j]",
    "L[i<9] A[i//2,i]",
    "L[i<9,j<4] A[(i+j)/2,j+(i//3)]|-inf",
    "L[i<4,j<4] max[k<6] A[k//2,k-i]|-inf",
    "L[i<3,j<5] Σ[k<12] A[i,j]*A[k//12+i,j]",
    "L[i<6] Σ[k<4] A[i//7,3*k]*A[2,k//4]",
)
"""Reads with affine indices beside others: of the same iterators, outside of the box, of no whole number, of one number only."""


@pytest.mark.parametrize("text", MIXED)
@pytest.mark.parametrize("dtype", ["int", "float64"])
def test_reads_by_windows_and_by_addresses_are_the_meaning(text: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse(f"A : f32[3,8]\nC : f32[6,3]\n{text}")
    values = integer_values(scope)
    want = brute(scope, values)
    assert (evaluate(scope, values, dtype) == (want if dtype == "int" else want.astype(float))).all()
    monkeypatch.setattr(module, "_CHUNK", 5)
    assert (evaluate(scope, values, dtype) == (want if dtype == "int" else want.astype(float))).all()


FAR = (
    "L[i<50] A[100*i]", "L[i<50] A[120*i-300]|7", "L[i<50,j<2] A[100*i+4800*j]|-2", "L[i<9,j<50] A[100*j+i%3]", "L[i<9,j<50] C[i%4,130*j]",
    "L[i<9,j<50] C[i%4-1,130*j-9]|5", "L[i<4,j<50] C[i,60*j]*A[100*j]", "L[i<50] E[i]|3", "L[i<5,j<3] E[i]+A[j]",
)  # fmt: skip
"""Few elements far apart, and a tensor without any."""


@pytest.mark.parametrize("text", FAR)
@pytest.mark.parametrize("dtype", ["int", "float64"])
def test_elements_far_apart_are_the_meaning(text: str, dtype: str) -> None:
    scope = parse(f"A : f32[6000]\nC : f32[4,6000]\nE : f32[0]\n{text}")
    values = integer_values(scope)
    assert evaluate(scope, values, dtype).tolist() == brute(scope, values).tolist()


@pytest.mark.parametrize("text", ["L[i<10] A[99999*i+500000]", "L[i<10] A[99999*i-500000]", "L[i<30,j<100] C[i%3,200*j]"])
def test_what_lies_between_elements_far_apart_is_not_copied(text: str) -> None:
    scope = parse(f"A : f32[1000000]\nC : f32[4,20000]\n{text}")
    values = {n: np.ones(t.shape) for n, t in tensors(scope).items()}
    evaluate(scope, values)
    tracemalloc.start()
    try:
        evaluate(scope, values)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_only_indices_that_are_not_affine_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a grouped convolution the channel, of one with a group none: its floors are one number over the box."""
    asked: list[int] = []
    real = module.inside_box
    monkeypatch.setattr(module, "inside_box", lambda e, box, env: asked.append(real(e, box, env)[0].size) or real(e, box, env))
    monkeypatch.setattr(module, "flat_address", None)
    for groups, addresses in ((1, []), (2, [8 * 4])):
        asked.clear()
        channels = f"{8 // groups}*(f//{8 // groups})+c"
        text = f"A : f32[8,9,9]\nK : f32[8,{8 // groups},3,3]\nL[f<8,h<9,w<9] Σ[c<{8 // groups},r<3,s<3] A[{channels},h+r-1,w+s-1]*K[f,c,r,s]"
        scope = parse(text)
        values = integer_values(scope)
        assert (evaluate(scope, values) == evaluate(scope, values, "int").astype(float)).all()
        assert asked[: len(asked) // 2] == addresses


@pytest.mark.parametrize("text", ["{L[] K[0,(1)/2]}[]", "{L[] K[(3)/2,(1)/2]|7}[]", "K[0,(1)/2]", "{L[] Σ[r<3] K[1,r]*K[(1)/2,2]}[]"])
def test_reads_at_numbers_change_no_tensor(text: str) -> None:
    """A fractional number as an index reads the fill, and leaves what the tensor holds."""
    values = {"K": np.arange(6.0).reshape(2, 3) + 1}
    before = values["K"].copy()
    fill = 7.0 if "|7" in text else 0.0
    np.testing.assert_array_equal(evaluate(parse(f"K : f32[2,3]\nL[h<2,w<3] {text} + K[h,w]"), values), before + fill)
    np.testing.assert_array_equal(values["K"], before)


def test_index_functions_reach_to_62_bits_and_no_further() -> None:
    """A coefficient counts once where its iterator is 0: a sum of it may follow."""
    whole = 1 << 61
    assert numerator(Index((("i", whole),)), {"i": np.array([0])}) == 0
    assert numerator(Index((("i", whole - 1),), 1), {"i": np.array([1])}) == whole
    assert numerator(Index((("i", 1), ("j", -1)), 3), {"i": np.array([4, 5]), "j": np.array([1, -1])}).tolist() == [6, 9]
    for beyond in (Index((("i", whole),), 1), Index((("i", whole - 1),), -2), Index((("i", 1),), whole)):
        with pytest.raises(UsageError, match="62 bits"):
            numerator(beyond, {"i": np.array([-1, 1])})


def test_a_floor_of_a_quotient_is_one_division() -> None:
    """Index functions that are made have no such floors; what evaluates them takes them as they are."""
    inner = Floor(Index((("i", 1),), 0, 2), 3)
    assert numerator(Index(((inner, 1),)), {"i": np.arange(13)}).tolist() == [n // 6 for n in range(13)]


MOVED = (
    ("L[i<4,j<6] A[j,i]", True), ("L[i<4,j<6,k<3] A[j,i]", True), ("L[i<3,j<2] A[2*j+1,i+1]", True), ("L[1<=i<4,j<6] A[j,i]", True),
    ("L[i<24] A[i//4,i%4]", False), ("L[i<5,j<7] A[j-1,i]", False), ("L[i<5,j<7] A[j-1,i]|2", False), ("L[i<9] A[i/2,1]", False),
    ("L[i<0] A[i,i]", False), ("L[i<3] A[5,3]", True),
)  # fmt: skip


@pytest.mark.parametrize(("text", "view"), MOVED)
@pytest.mark.parametrize("system", ["float64", "int"])
def test_what_only_reads_is_a_view_of_what_it_reads_where_it_can_be(text: str, view: bool, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse("A : f32[6,4]\n" + text)
    given = {"A": np.arange(24.0).reshape(6, 4)}
    run = Evaluation(arithmetic(system), {"A": arithmetic(system).values(given["A"])})
    found = run.nested(scope)
    assert found.shape == scope.shape and (found == brute(scope, given)).all()
    assert np.shares_memory(found, run.held["A"]) == view
    assert (run.whole(scope) == found).all()
    monkeypatch.setattr(module, "_MOVED", 0)
    assert not np.shares_memory(Evaluation(run.system, run.held).nested(scope), run.held["A"])


def test_what_is_read_at_once_can_be_hurried() -> None:
    scope, asked = parse("A : f32[6,4]\nL[i<4] {L[i<4,j<6] A[j,i]}[i,2]"), []
    Evaluation(arithmetic("float64"), {"A": np.zeros((6, 4))}, lambda: asked.append(1)).whole(scope)
    assert len(asked) == 2
