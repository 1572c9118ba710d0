"""How the second oracle finds a difference and tells it: what is drawn again, counted, decided, singled out and shown."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from einnet.derivation.checker import oracle
from einnet.derivation.checker.check import Difference, check_equal
from einnet.derivation.checker.draws import GENERIC, Choice, Draw
from einnet.derivation.checker.oracle import ORDERED, POLYNOMIAL, QUOTIENT, Points, Witness, nature, reproduced, witness
from einnet.derivation.checker.suspects import every_point
from einnet.expr.nodes import Const, Div, Scope, Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.points import work

DECLARED = "A : f32[9]\nB : f32[9]\nL : f32[9]\nT : bool[9]\nX : f32[9,4]\nM : weight f32[3] = [1,2,3]\n"


def of(text: str) -> Scope:
    return parse(DECLARED + text)


def points(*rows: tuple[int, ...]) -> Points:
    return np.asarray(rows, dtype=np.int64).reshape(len(rows), -1)


@pytest.mark.parametrize(("text", "found"), [
    ("L[i<9] A[i]*B[i] + val(i) - 2", POLYNOMIAL), ("L[i<9] Σ[k<4] X[i,k]", POLYNOMIAL), ("L[i<9] A[i]/3", POLYNOMIAL),
    ("L[i<9] A[i]/B[i]", QUOTIENT), ("L[i<9] {L[i<9] A[i]/B[i]}[i]", QUOTIENT), ("L[i<9] relu(A[i])", ORDERED), ("L[i<9] relu(A[i])/3", ORDERED),
    ("L[i<9] max[k<4] X[i,k]", ORDERED), ("L[i<9] Σ[k<4] relu(X[i,k])", ORDERED), ("L[i<9] A[i-1]|-inf", ORDERED), ("L[i<9] A[i-1]|2", POLYNOMIAL),
    ("L[i<9] A[i]*inf", ORDERED), ("L[i<9] {L[i<9] max[k<4] X[i,k]}[i]", ORDERED), ("L[i<9] relu(A[i])/B[i]", ORDERED),
    ("L[i<9] 1/exp(A[i])", ORDERED), ("L[i<9] A[i]/2/B[i]", QUOTIENT), ("L[i<9] A[i]/B[i]/2", QUOTIENT), ("L[i<9] T[i]*A[i]", ORDERED),
])  # fmt: skip
def test_what_decides_about_an_expression(text: str, found: int) -> None:
    assert nature(of(text)) == found


def test_a_division_by_zero_is_no_polynomial() -> None:
    scope = of("L[i<9] A[i]")
    assert nature(replace(scope, body=Div(scope.body, Const(Fraction(0))))) == QUOTIENT


@pytest.mark.parametrize(("before", "after", "values"), [
    ("max[k<0] A[k]", "Σ[k<0] A[k]", "-inf before, 0 after"), ("max[k<0] A[k]", "min[k<0] A[k]", "-inf before, inf after"),
])  # fmt: skip
def test_a_sum_over_nothing_is_compared_like_any_other(before: str, after: str, values: str) -> None:
    with pytest.raises(Difference, match=values):
        check_equal(of(f"L[i<9] {before}"), of(f"L[i<9] {after}"))


def test_of_each_tensor_the_draws_know_how_many_elements_a_value_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both sides the average; of what one side reads once, or less often than at every second point, one."""
    told: list[object] = []
    monkeypatch.setattr(oracle, "draws", lambda before, after, named, read: told.append(read) or ())
    monkeypatch.setattr(oracle, "_singled", lambda *given: None)
    before, after = of("L[i<9] Σ[k<4] relu(X[i,k])*L[k] + A[i]"), of("L[i<9] Σ[k<4] relu(X[i,k])*L[k] + select(i==8, A[i] + B[i], A[i])")
    assert witness(before, after, every_point(before), every_point(before)) == 0
    almost = of("L[i<9] Σ[k<2] relu(X[i,k])"), of("L[i<9] relu(X[i,0]) + relu(X[i+1,1])")
    assert witness(*almost, every_point(before), every_point(before)) == 0
    assert told == [{"X": 4, "L": 4, "A": 1, "B": 1}, {"X": 1}], "35 of 36 are less than two"


def test_a_witness_of_real_numbers_for_what_is_known_modulo_a_prime() -> None:
    before, after = of("L[i<9] A[i]*A[i]"), of("L[i<9] A[i]*A[i]*A[i]")
    found = reproduced(before, after, (4,))
    assert found is not None and found.point == (4,) and found.draw.title == "small whole numbers 0"
    (value,) = [Fraction(v) for _, v in found.reads]
    assert (found.left, found.right) == (str(value**2), str(value**3)) and value not in (0, 1)
    assert reproduced(before, before, (4,)) is None
    assert reproduced(parse("A : f32[9]\nL[] A[3]"), parse("A : f32[9]\nL[] A[4]"), ()) is not None


def test_a_difference_is_sought_in_eight_draws() -> None:
    """What differs for one of five numbers alone is seldom shown by one draw, and not by eight where none has the number."""
    never = of("L[i<9] 0")
    assert not any(reproduced(never, of("L[i<9] equal(A[i], 1/16)"), (n,)) for n in range(9))
    assert any(found := [reproduced(never, of("L[i<9] equal(A[i], -2)"), (n,)) for n in range(9)])
    assert len({w.draw.title for w in found if w}) > 1


def test_as_many_points_as_can_be_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halved until both sides cost no more, half of them from the first ones; one is always left."""
    cheap, dear = of("L[i<9] A[i]"), of("L[i<9] Σ[k<4] X[i,k]")
    many = points(*((n,) for n in range(64)))
    for budget, count in ((256, 64), (255, 32), (128, 32), (127, 16), (16, 4), (8, 2), (7, 1), (0, 1)):
        monkeypatch.setattr(oracle, "_BUDGET", budget)
        for sides in ((cheap, dear), (dear, cheap)):
            found = oracle._affordable(*sides, many)[:, 0].tolist()
            assert found == sorted(set(found)) and count // 2 < len(found) <= count or found == list(range(64)) and count == 64
            assert sum(n < 2 * count for n in found) >= count // 2
    assert oracle._affordable(dear, dear, points((3,))).tolist() == [[3]]
    monkeypatch.setattr(oracle, "_BUDGET", 64)
    assert max(oracle._affordable(dear, dear, many)[:, 0]) >= 32, "spread over all"


def test_what_rounding_alone_makes_is_agreement() -> None:
    before, after = of("L[i<9] (A[i]*B[i])*L[i]"), of("L[i<9] A[i]*(B[i]*L[i])")
    draw = Draw("", Choice(tuple(Fraction(1, n) for n in range(3, 60)), "x"))
    left, right = (oracle._values(s, every_point(s), draw) for s in (before, after))
    assert (left != right).any() or before.key == after.key
    thirds = of("L[i<9] A[i]/3 + A[i]/3 + A[i]/3")
    generic = Draw("", Choice(tuple(Fraction(n, 7) for n in range(3, 60)), "x"))
    left, right = (oracle._values(s, every_point(s), generic) for s in (thirds, of("L[i<9] A[i]")))
    assert (left != right).any()
    assert oracle._compared(thirds, of("L[i<9] A[i]"), every_point(thirds), generic) == 9


def test_infinities_agree_and_do_not_count() -> None:
    """What is infinite on both sides is no difference, and no number that was compared."""
    before, least = (of(f"L[i<9] select(i>=4, A[i], {{L[i<9] {none}[k<0] A[k]}}[i])") for none in ("max", "min"))
    after = of("L[i<9] select(i<=3, {L[i<9] max[k<0] B[k]}[i], A[i])")
    assert oracle._compared(before, after, every_point(before), Draw("", Choice(GENERIC, "x"))) == 5
    assert isinstance(oracle._compared(before, least, every_point(before), Draw("", Choice(GENERIC, "x"))), Witness)


def test_the_greatest_share_is_decided_first() -> None:
    """Seven points lose all digits to a number of 2^60; one of the size of 2^-20 differs in truth."""
    before = of("L[i<9] select(i==8, B[i], (A[i] + L[i]) + (0-1)*L[i])")
    after = of("L[i<9] select(i==8, 0-B[i], A[i])")
    own = {"A": Choice((Fraction(1, 8),)), "L": Choice((Fraction(1 << 60),)), "B": Choice((Fraction(1, 1 << 20),))}
    draw = Draw("", Choice(), own)
    gap = oracle._values(before, every_point(before), draw) - oracle._values(after, every_point(before), draw)
    assert (gap != 0).sum() > oracle._SUSPECTS
    found = oracle._compared(before, after, every_point(before), draw)
    assert isinstance(found, Witness) and found.point == (8,)


def test_exact_numbers_where_there_is_little_to_do_else_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw("", Choice((Fraction(1, 3),)))
    cheap, dear = of("L[i<9] 2*X[i,0]"), of("L[i<9] Σ[k<4] X[i,k]")
    assert (work(cheap, 1), work(dear, 1)) == (1, 4)
    for sides in ((cheap, dear), (dear, cheap)):
        shown = []
        for exact, enclosed in ((4, 0), (3, 4), (3, 3)):
            monkeypatch.setattr(oracle, "_EXACT", exact)
            monkeypatch.setattr(oracle, "_ENCLOSED", enclosed)
            found = oracle._decided(*sides, np.asarray((2,)), draw)
            shown.append(found and {found.left, found.right})
        assert shown == [{"2/3", "4/3"}, {"0.666666666667", "1.33333333333"}, None]
    monkeypatch.undo()
    rooted = oracle._decided(of("L[i<9] sqrt(A[i])"), of("L[i<9] A[i]"), np.asarray((2,)), draw)
    assert rooted is not None and (rooted.left, rooted.right) == ("0.57735026919", "0.333333333333")


def test_how_values_are_told() -> None:
    assert oracle._number(Fraction(1, 3)) == "1/3" and oracle._number(math.nan) == "undefined" and oracle._number(-math.inf) == "-inf"
    assert oracle._between(complex(math.nan, math.nan)) == "undefined" and oracle._between(complex(0.1 + 0.2, 0.1 + 0.2)) == repr(0.1 + 0.2)
    assert oracle._between(complex(1.0, 1.5)) == "1.25" and oracle._between(complex(3.0, math.inf)) == "3"
    assert oracle._between(complex(math.inf, math.inf)) == "inf"
    assert [oracle._element(Tensor("X", (9, 4)), a) for a in (0, 3, 4, 35)] == ["X[0,0]", "X[0,3]", "X[1,0]", "X[8,3]"]
    assert oracle._element(Tensor("Y", (2, 3, 5)), 17) == "Y[1,0,2]" and oracle._element(Tensor("S", ()), 0) == "S[]"


def test_a_division_by_zero_is_told_as_undefined() -> None:
    zero = Draw("", Choice())
    found = oracle._decided(of("L[i<9] A[i]/B[i]"), of("L[i<9] A[i]"), np.asarray((2,)), zero)
    assert found is not None and (found.left, found.right) == ("undefined", "0")
    assert oracle._decided(of("L[i<9] A[i]/B[i]"), of("L[i<9] B[i]/A[i]"), np.asarray((2,)), zero) is None


def test_what_only_one_side_has_no_value_for_is_a_difference() -> None:
    before, after = of("L[i<9] A[i]/B[i]"), of("L[i<9] A[i]")
    for sides in ((before, after), (after, before)):
        found = oracle._compared(*sides, every_point(before), Draw("", Choice()))
        assert isinstance(found, Witness) and {found.left, found.right} == {"undefined", "0"}
    assert oracle._compared(before, of("L[i<9] 2*A[i]/B[i]"), every_point(before), Draw("", Choice())) == 0


def test_an_element_that_stands_out_shows_a_difference() -> None:
    """An element that the greatest of all leaves out."""
    before, after = of("L[i<9] max[k<4] X[i,k]"), of("L[i<9] max[k<3] X[i,k]")
    found = oracle._singled(before, after, oracle._reads(before, after, points((2,))), tensors(before))
    assert found is not None and found.point == (2,) and found.draw.apart == {("X", 11): 64} and found.left == "64"


def test_what_is_read_is_seen_at_a_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first, the last and some between; none where one value alone costs too much."""
    cheap, dear = of("L[i<9] A[i]"), of("L[i<9] Σ[k<4] X[i,k]")
    assert oracle._reads(cheap, dear, points((1,), (5,))) == {
        (n,): (frozenset({("A", n)}), frozenset(("X", 4 * n + k) for k in range(4))) for n in (1, 5)
    }  # fmt: skip
    assert oracle._reads(cheap, dear, np.zeros((0, 1), dtype=np.int64)) == {}
    many = points(*((n,) for n in range(100)))
    assert [p[0] for p in oracle._reads(cheap, dear, many)] == [9 * n for n in range(12)]
    for traced, places in ((3, []), (4, [0]), (7, [0]), (8, [0, 99]), (12, [0, 49, 99])):
        monkeypatch.setattr(oracle, "_TRACED", traced)
        for sides in ((cheap, dear), (dear, cheap)):
            assert [p[0] for p in oracle._reads(*sides, many)] == places


def spikes(alone: bool) -> dict[str, Draw]:
    return {d.title: d for d in oracle._spikes(("A", 3), alone)}


def test_an_element_that_stands_out() -> None:
    """Greater or less than all others; what one side alone reads also 0 among numbers of one sign, and the only one that is not 0."""
    found = spikes(True)
    assert list(spikes(False)) == ["A at 3 is greatest", "A at 3 is least"] == list(found)[:2]
    t = Tensor("A", (2000,))
    rest = {title: {v for n, v in enumerate(d.array(t)) if n != 3} for title, d in found.items()}
    there = {title.removeprefix("A at 3 is "): (d.exact(t, 3), min(rest[title]), max(rest[title])) for title, d in found.items()}
    most = Fraction(31, 8)
    assert there == {
        "greatest": (64, -most, most), "least": (-64, -most, most), "0 among negative": (0, -most - 1, -1),
        "greatest of negative": (Fraction(-1, 2), -most - 1, -1), "least of positive": (Fraction(1, 2), 1, most + 1),
        "the only one": (3, 0, 0), "the only one, negative": (-3, 0, 0), "0": (0, -most, most),
    }  # fmt: skip


def test_so_many_elements_are_singled_out_as_can_be_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that one side alone reads come first, with more values each."""
    tried: list[str] = []
    monkeypatch.setattr(oracle, "_compared", lambda before, after, at, draw: tried.append(draw.title) or 1)
    before, after = of("L[i<9] Σ[k<4] X[i,k]"), of("L[i<9] Σ[k<4] X[i,k] + A[i]")
    reads, named = oracle._reads(before, after, points((2,))), {**tensors(before), **tensors(after)}
    assert oracle._singled(before, after, reads, named) is None
    assert len(tried) == 8 + 4 * 2 and all(title.startswith("A at 2 ") for title in tried[:8])
    assert {title.rpartition(" is ")[0] for title in tried[8:]} == {f"X at {n}" for n in range(8, 12)}
    for budget, count in ((1, 2), (2, 4), (3, 6), (4, 8)):
        monkeypatch.setattr(oracle, "_BUDGET", budget)
        for sides in ((before, after), (of("L[i<9] A[i]"), after), (after, of("L[i<9] A[i]"))):
            tried.clear()
            assert oracle._singled(*sides, reads, named) is None
            assert len(tried) == count, "eight budgets, four evaluations for each draw"
    single = of("L[i<9] A[i]")
    tried.clear()
    monkeypatch.setattr(oracle, "_BUDGET", Fraction(1, 2))
    assert oracle._singled(single, single, reads, named) is None and len(tried) == 4


def test_the_elements_that_matter_are_shown() -> None:
    """What is set apart comes first, then by name and address; of more than eight the number."""
    scope = of("L[i<9] Σ[k<4] X[i,k]*A[i]")
    draw = Draw("drawn", Choice((Fraction(1, 2),)), {}, {("X", 9): Fraction(64)})
    found = oracle._told(Witness((2,), draw, "1", "2"), scope, scope, tensors(scope))
    assert found.reads == (("X[2,1]", "64"), ("A[2]", "1/2"), ("X[2,0]", "1/2"), ("X[2,2]", "1/2"), ("X[2,3]", "1/2"))
    assert str(found) == "1 before, 2 after, where X[2,1] = 64, A[2] = 1/2, X[2,0] = 1/2, X[2,2] = 1/2, X[2,3] = 1/2 (values: drawn)"
    assert str(Witness((2,), draw, "1", "2")) == "1 before, 2 after (values: drawn)"


def test_of_many_elements_eight_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw("drawn", Choice((Fraction(1, 2),)))
    eight, more = of("L[i<9] Σ[k<8] X[k,0]"), of("L[i<9] Σ[k<9] X[k,0]*A[k]")
    plain = Witness((2,), draw, "1", "2")
    assert len(oracle._told(plain, eight, eight, tensors(eight)).reads) == 8
    shown = oracle._told(plain, eight, more, tensors(more)).reads
    assert len(shown) == 9 and shown[-1] == ("and 10 elements more", "...")
    for traced, count in ((9, 9), (8, 0)):
        monkeypatch.setattr(oracle, "_TRACED", traced)
        for sides in ((eight, more), (more, eight)):
            assert len(oracle._told(plain, *sides, tensors(more)).reads) == count


def test_a_point_that_the_draws_do_not_see_is_compared_once() -> None:
    """A difference at one point of all, of which the others are given."""
    before, after = of("L[i<9] relu(A[i])"), of("L[i<9] select(i==5, relu(A[i]) + 1, relu(A[i]))")
    found = witness(before, after, points((0,), (1,)), points(*((n,) for n in range(9))))
    for _ in range(2):
        assert isinstance(found, Witness) and found.point == (5,) and found.reads[0][0] == "A[5]"
        assert found.arrays(of("L[i<9] A[i]*M[0]")).keys() == {"A"} and len(found.arrays(before)["A"]) == 9
        found = witness(before, after, points((0,), (5,)), points((0,), (5,)))
    assert isinstance(witness(before, after, points((0,), (1,)), points((0,), (1,))), int)


def test_so_many_values_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points times draws; one draw is enough where no tensor takes any values."""
    made = [Draw(str(n), Choice(GENERIC, str(n))) for n in range(5)]
    monkeypatch.setattr(oracle, "draws", lambda before, after, named, read: made)
    given, table, both = (of(f"L[i<9] {body}") for body in ("relu(A[i])", "relu(M[i-4]|7)", "relu(M[i-4]|7)*A[i]"))
    at = every_point(given)
    assert [witness(s, s, at, at) for s in (given, table, both)] == [45, 9, 45]
