"""What values the oracle draws: their kinds, their ranges, in which order, and the same numbers in every form."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from einnet.derivation.checker.draws import GENERIC, SMALL, Choice, Draw, draws
from einnet.expr.nodes import Scope, Tensor, tensors
from einnet.expr.notation.text import parse

A, B = Tensor("A", (96,)), Tensor("B", (96,))
DECLARED = "A : f32[96]\nB : f32[96]\n"
BEFORE, AFTER = parse(DECLARED + "L[i<96] max(A[i], 3/2)*B[i]"), parse(DECLARED + "L[i<96] max(A[i], 3/2 + B[i])")


def made(before: Scope = BEFORE, after: Scope = AFTER, read: int = 1) -> list[Draw]:
    named = {**tensors(before), **tensors(after)}
    return list(draws(before, after, named.values(), dict.fromkeys(named, read)))


def values(draw: Draw, t: Tensor = A) -> list[Fraction]:
    return list(draw.array(t))


def test_a_ramp_goes_by_the_address() -> None:
    ramp = Choice(ramp=(-7, 2, 4))
    assert [ramp.exact(n) for n in range(4)] == [Fraction(-7, 4), Fraction(-5, 4), Fraction(-3, 4), Fraction(-1, 4)]
    assert ramp.floats(np.arange(4)).tolist() == [-1.75, -1.25, -0.75, -0.25]


@pytest.mark.parametrize("sparse", [2, 8, 64])
def test_of_sparse_elements_one_in_so_many_is_taken(sparse: int) -> None:
    palette = (Fraction(3), Fraction(5), Fraction(0))
    address = np.arange(1 << 14)
    found = Choice(palette, "some", sparse=sparse).floats(address)
    share = (found != 0).mean() * sparse
    assert 0.4 < share < 0.95, "of those that are taken from the palette a third is 0"
    assert {3.0, 5.0} < set(found.tolist())
    dense = Choice(palette, "some").floats(address)
    assert (dense != 0).mean() == pytest.approx(2 / 3, abs=0.03)
    assert ((found == dense) | (found == 0)).all()


def test_one_draw_in_four_forms() -> None:
    """Exact rationals, doubles, intervals and arrays have the same numbers, elements set apart among them."""
    for dtype in ("f32", "i64", "u8", "bool"):
        t, other = Tensor("A", (6, 4), dtype), Tensor("B", (6, 4), dtype)
        draw = Draw("", Choice(GENERIC, "x"), {"B": Choice(SMALL, "y", -1)}, {("A", 5): Fraction(7, 2), ("A", 0): Fraction(-1, 3)})
        for s in (t, other):
            exact = [draw.exact(s, n) for n in range(24)]
            assert list(draw.rationals(s, np.arange(24).reshape(2, 12)).reshape(-1)) == exact == list(draw.array(s).reshape(-1))
            assert draw.floats(s, np.arange(24)).tolist() == [float(v) for v in exact]
            around = draw.enclosures(s, np.asarray([[3, 5], [5, 0]]))
            assert around.shape == (2, 2)
            assert [exact[n] for n in (3, 5, 5, 0)] == [Fraction(v.real).limit_denominator(8) for v in around.reshape(-1)]
    assert draw.exact(Tensor("A", (24,)), 5) == Fraction(7, 2) and draw.exact(Tensor("C", (24,)), 5) == Choice(GENERIC, "x").exact(5)


def test_integers_are_rounded_down_and_truth_values_are_signs() -> None:
    apart = {("N", n): v for n, v in enumerate((Fraction(7, 2), Fraction(-1, 3), Fraction(1, 8), Fraction(0)))}
    draw = Draw("", Choice(), {}, apart)
    wanted = {"f32": apart.values(), "f64": apart.values(), "i32": (3, -1, 0, 0), "u8": (3, -1, 0, 0), "bool": (1, 0, 1, 0)}
    for dtype, numbers in wanted.items():
        t = Tensor("N", (4,), dtype)
        assert [draw.exact(t, n) for n in range(4)] == list(numbers)
        assert draw.floats(t, np.arange(4)).tolist() == [float(v) for v in numbers]


LEAST_AND_MOST = {
    "generic": (Fraction(-31, 8), Fraction(31, 8)), "small whole numbers": (-2, 2), "negative": (-5, Fraction(-1, 8)),
    "positive": (Fraction(1, 8), Fraction(39, 8)),
    "0 and 1": (0, 1), "large": (-4096 * Fraction(31, 8), 4096 * Fraction(31, 8)), "tiny": (-Fraction(31, 8) / 2**20, Fraction(31, 8) / 2**20),
    "near 0": (-Fraction(31, 8) / 64, Fraction(31, 8) / 64), "of all sizes": (-Fraction(13, 8) * 2**14, Fraction(13, 8) * 2**14),
}  # fmt: skip


@pytest.mark.parametrize("title", LEAST_AND_MOST)
def test_kinds_of_values_have_their_ranges(title: str) -> None:
    for seed in range(5):
        (draw,) = [d for d in made() if d.title == f"{title} {seed}"]
        palette = draw.choice(A).palette
        assert (min(palette), max(palette)) == LEAST_AND_MOST[title] and set(values(draw)) <= set(palette)
        assert values(draw) != values(draw, B), "tensors are drawn apart"
        assert pickle.loads(pickle.dumps(draw)).array(B).tolist() == values(draw, B)


def test_sizes_are_powers_apart() -> None:
    (draw,) = [d for d in made() if d.title == "of all sizes 0"]
    found = {abs(v) for v in draw.choice(A).palette}
    assert min(found) == Fraction(1, 64) and {v for v in found if 1 <= v < 2} == {1, Fraction(11, 8), Fraction(13, 8)}


def test_in_which_order() -> None:
    """Two of each kind, then what is chosen for the pair, then three more of each kind."""
    titles = [d.title for d in made()]
    seeds = [title[-1] for title in titles if title.startswith("generic ")]
    assert seeds == list("01234") and len(set(titles)) == len(titles)
    first, second, third = (titles.index(f"generic {n}") for n in range(3))
    assert titles.index("all elements 0") == second - 1 and first == 0
    between = titles[second + 12 : third]
    assert between[:2] == ["ascending", "descending"] and "A negative, B positive" in between and "A positive, B negative" in between
    assert "A negative, B negative" not in between
    assert {"tied, small", "opposite, generic", "all elements 3/2", "all elements 1", "A sparse, others 0", "B at constants, others 1"} < set(between)


@pytest.mark.parametrize(("before", "after", "count"), [
    ("exp(A[i])", "relu(as_f16(A[i]))", 3), ("as_bf16({L[i<96] exp(A[i])}[i])", "A[i]", 3), ("exp({L[i<96] as_f16(A[i])}[i])", "A[i]", 3),
    ("exp(A[i])", "A[i]", 0),
])  # fmt: skip
def test_numbers_between_those_of_shorter_types_are_drawn_where_one_is_asked_for(before: str, after: str, count: int) -> None:
    one, other = (parse(f"{DECLARED}L[i<96] {text}") for text in (before, after))
    assert sum(d.title.startswith("between numbers of shorter types") for d in made(one, other)) == count


def test_ramps() -> None:
    ramps = {d.title: values(d) for d in made() if "scending" in d.title}
    quarter = Fraction(1, 4)
    wanted = {
        "ascending": (-7, 1), "descending": (5, -1), "ascending, all negative": (-97, 1), "descending, all negative": (-1, -1),
        "ascending, all positive": (1, 1), "descending, all positive": (97, -1),
    }  # fmt: skip
    assert ramps == {title: [quarter * (first + step * n) for n in range(96)] for title, (first, step) in wanted.items()}


def test_one_tensor_of_one_sign_each() -> None:
    (draw,) = [d for d in made() if d.title == "A negative, B positive"]
    below, above = draw.choice(A).palette, draw.choice(B).palette
    assert (min(below), max(below)) == (-5, Fraction(-1, 8)) and (min(above), max(above)) == (Fraction(1, 8), Fraction(39, 8))
    assert max(values(draw)) < 0 < min(values(draw, B))


def test_ties_and_what_is_moved() -> None:
    """Tensors equal element by element, each other's negatives, or a constant apart."""
    found = {d.title: d for d in made()}
    for kind in ("small", "generic", "at constants"):
        assert values(found[f"tied, {kind}"]) == values(found[f"tied, {kind}"], B) == [-v for v in values(found[f"opposite, {kind}"], B)]
    moved = [d for title, d in found.items() if title.startswith("tied, A moved by ")]
    assert {values(d)[7] - values(d, B)[7] for d in moved} >= {Fraction(3, 2), Fraction(-3, 2), Fraction(1), Fraction(1, 2)}
    assert {title.replace(" A ", " B ") for title in found if title.startswith("tied, A moved by ")} < set(found)
    assert all(len({x - y for x, y in zip(values(d), values(d, B))}) == 1 for d in moved)


def test_values_at_and_beside_the_numbers_of_both_sides() -> None:
    """3/2 and 1, their negatives, sums, differences and quotients; beside each a half and a small step away."""
    found = {d.title: set(d.choice(A).palette) for d in made() if "constants" in d.title}
    numbers = {Fraction(3, 2), Fraction(1)}
    at = {*numbers, *(-c for c in numbers), Fraction(0), Fraction(1, 2), Fraction(-1, 2), Fraction(2, 3), Fraction(5, 2)}
    assert found["at constants 0"] == at
    beside = found["beside constants 0"]
    assert {c + s * Fraction(1, 2) for c in at for s in (1, -1)} <= beside
    assert {Fraction(3, 2) + s * Fraction(1, 2**11) for s in (1, -1)} <= beside and {s * Fraction(1, 2**11) for s in (1, -1)} <= beside
    assert found["at and beside constants 0"] == at | beside | set(SMALL)


def test_one_tensor_of_another_kind() -> None:
    found = {d.title: d for d in made(read=32)}
    for own, other in (("A", B), ("B", A)):
        t = A if own == "A" else B
        assert set(values(found[f"{own} 0"], t)) == {0} and set(values(found[f"{own} 1"], t)) == {1}
        assert found[f"{own} 0"].choice(other).palette == GENERIC
        assert set(values(found[f"{own} at constants, others 0"], other)) == {0} and set(values(found[f"{own} generic, others 1"], other)) == {1}
        assert max(values(found[f"{own} negative"], t)) < 0 and set(values(found[f"{own} 0 and 1"], t)) == {0, 1}
        assert max(found[f"{own} large"].choice(t).palette) == 4096 * Fraction(31, 8)
        sparse = values(found[f"{own} sparse, others 0"], t)
        assert 1 <= sum(v != 0 for v in sparse) <= 12, "about one of 32 that are summed"


@pytest.mark.parametrize(("read", "sparse"), [(1, 2), (2, 2), (3, 3), (32, 32)])
def test_of_what_a_value_reads_about_one_element_is_not_0(read: int, sparse: int) -> None:
    assert [d.choice(A).sparse for d in made(read=read) if d.title.startswith("A sparse")] == [sparse, sparse]


def test_every_second_tensor_is_the_opposite() -> None:
    four = parse("A : f32[96]\nB : f32[96]\nC : f32[96]\nD : f32[96]\nL[i<96] max(A[i]*B[i], C[i]*D[i])")
    (draw,) = [d for d in made(four, four) if d.title == "opposite, generic"]
    a, b, c, d = (values(draw, Tensor(name, (96,))) for name in "ABCD")
    assert a == c and b == d == [-v for v in a]


def test_by_how_much_a_tensor_is_moved() -> None:
    for d in made():
        if d.title.startswith("tied, A moved by "):
            assert values(d)[7] - values(d, B)[7] == Fraction(d.title.rpartition(" ")[2])
    (negative,) = [d for d in made() if d.title == "A negative"]
    assert (min(negative.choice(A).palette), max(negative.choice(A).palette)) == (-5, Fraction(-1, 8))


def test_numbers_that_one_side_alone_has_come_first() -> None:
    before, after = parse("A : f32[8]\nL[i<8] 5*A[i] + 7"), parse("A : f32[8]\nL[i<8] 5*A[i] + 9")
    all_ = [d.title for d in made(before, after) if d.title.startswith("all elements ")]
    assert all_ == ["all elements 0", "all elements 7", "all elements 9", "all elements 5", "all elements 1"]


def test_numbers_of_tables_and_fills_count() -> None:
    before = parse("A : f32[8]\nM : weight f32[3] = [11, 13, 11]\nL[i<8] M[i-2]*A[i-1]|17")
    titles = {d.title for d in made(before, before)}
    assert {f"all elements {n}" for n in (11, 13, 17)} <= titles
    assert not any(title.startswith("M ") for title in titles), "a table has its values"
