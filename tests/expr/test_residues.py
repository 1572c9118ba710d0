"""Arithmetic modulo P and with what does not exist, value by value against Python's integers and against what is written of each kind of NaN."""

from __future__ import annotations

from fractions import Fraction
from math import inf
from random import Random

import numpy as np
import pytest

from einnet.expr.functions import exact
from einnet.expr.functions.exact import NAN, NONE, PLUS_ZERO, Infinite
from einnet.expr.functions.modular import MINUS_INFINITY, PLUS_INFINITY, P, add, from_integers, from_order, inverse, multiply, order, residue, total
from einnet.expr.notation.tags import tag
from einnet.expr.values.rationals import Rationals

EDGES = (0, 1, 2, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, P // 2, P // 2 + 1, P - (1 << 31), P - 2, P - 1)
NUMBERS = [*EDGES, *(Random(0).randrange(P) for _ in range(40))]
RESIDUES = np.asarray(NUMBERS, dtype=np.uint64)
ONE, TWO = Fraction(1), Fraction(2)


def test_sums_products_and_inverses_are_those_of_integers() -> None:
    left, right = RESIDUES[:, None], RESIDUES[None, :]
    sums, products = add(left, right), multiply(left, right)
    for (a, x), (b, y) in ((p, q) for p in enumerate(NUMBERS) for q in enumerate(NUMBERS)):
        assert int(sums[a, b]) == (x + y) % P and int(products[a, b]) == x * y % P, (x, y)
    assert all(int(i) * x % P == (x != 0) for i, x in zip(inverse(RESIDUES), NUMBERS, strict=True))
    assert int(total(RESIDUES, (0,))) == sum(NUMBERS) % P
    assert int(total(np.full((300, 40), P - 1, dtype=np.uint64), (0, 1))) == -12_000 % P
    assert int(residue(Fraction(3, 7))) * 7 % P == 3 and int(residue(Fraction(P + 3))) == 3 and int(residue(Fraction(-1))) == P - 1


def test_centred_residues_are_ordered_as_integers_and_infinities_stand_at_both_ends() -> None:
    signed = [-(P - 1) // 2, -(1 << 31), -1, 0, 1, 1 << 40, (P - 1) // 2]
    assert order(from_integers(np.asarray(signed, dtype=object))).tolist() == signed
    ends = np.asarray([MINUS_INFINITY, *RESIDUES, PLUS_INFINITY])
    assert (from_order(order(ends)) == ends).all() and order(ends).argmin() == 0 and order(ends).argmax() == len(ends) - 1


@pytest.mark.parametrize(("a", "b", "whole", "product"), [
    (PLUS_INFINITY, 5, PLUS_INFINITY, PLUS_INFINITY), (MINUS_INFINITY, 5, MINUS_INFINITY, MINUS_INFINITY),
    (5, MINUS_INFINITY, MINUS_INFINITY, MINUS_INFINITY), (PLUS_INFINITY, P - 5, PLUS_INFINITY, MINUS_INFINITY),
    (P - 5, MINUS_INFINITY, MINUS_INFINITY, PLUS_INFINITY), (0, PLUS_INFINITY, PLUS_INFINITY, 0),
])  # fmt: skip
def test_infinities_absorb_and_0_absorbs_them(a: int, b: int, whole: int, product: int) -> None:
    x, y = np.asarray([a, 7], dtype=np.uint64), np.asarray([b, 8], dtype=np.uint64)
    assert add(x, y).tolist() == [whole, 15] and multiply(x, y).tolist() == [product, 56]


def kind(x: object) -> str:
    """NaN for sure, infinite for sure with the sign that is known, a value that does not exist, or the value."""
    if isinstance(x, Infinite):
        return f"infinite{['', '+', '-'][x.sign]}"
    return "nan" if x is NAN else "none" if isinstance(x, float) and x != x else str(x)


FAR, ABOVE, BELOW = Infinite(0), Infinite(1), Infinite(-1)


@pytest.mark.parametrize(("a", "b", "plus", "times", "over"), [
    (NAN, ONE, "nan", "nan", "nan"), (ONE, NAN, "nan", "nan", "nan"), (NONE, ONE, "none", "none", "none"), (ONE, NONE, "none", "none", "none"),
    (NAN, NONE, "nan", "nan", "nan"), (inf, -inf, "nan", "-inf", "nan"), (inf, TWO, "inf", "inf", "inf"), (-inf, -inf, "-inf", "inf", "nan"),
    (Fraction(0), inf, "inf", "nan", "0"), (TWO, Fraction(0), "2", "0", "infinite"), (Fraction(0), Fraction(0), "0", "0", "nan"),
    (ONE, TWO, "3", "2", "1/2"),
    (-TWO, inf, "inf", "-inf", "0"),
    (TWO, PLUS_ZERO, "2", "0", "infinite+"), (-TWO, PLUS_ZERO, "-2", "0", "infinite-"), (PLUS_ZERO, PLUS_ZERO, "0", "0", "nan"),
    (NONE, Fraction(0), "none", "none", "none"), (FAR, Fraction(0), "infinite", "nan", "infinite"), (Fraction(0), FAR, "infinite", "nan", "none"),
    (FAR, TWO, "infinite", "infinite", "infinite"), (ABOVE, -TWO, "infinite+", "infinite-", "infinite-"),
    (TWO, BELOW, "infinite-", "infinite-", "none"),
    (FAR, FAR, "none", "infinite", "nan"), (ABOVE, ABOVE, "infinite+", "infinite+", "nan"), (ABOVE, BELOW, "nan", "infinite-", "nan"),
    (FAR, ABOVE, "none", "infinite", "nan"), (FAR, NONE, "none", "none", "none"), (FAR, NAN, "nan", "nan", "nan"),
    (NONE, FAR, "none", "none", "none"),
    (FAR, inf, "none", "infinite", "nan"), (ABOVE, inf, "infinite+", "infinite+", "nan"), (ABOVE, -inf, "nan", "infinite-", "nan"),
    (inf, FAR, "none", "infinite", "nan"),
])  # fmt: skip
def test_what_does_not_exist_and_what_is_no_number_for_sure(a: exact.Exact, b: exact.Exact, plus: str, times: str, over: str) -> None:
    assert (kind(exact.plus(a, b)), kind(exact.times(a, b)), kind(exact.over(a, b))) == (plus, times, over)


@pytest.mark.parametrize(("name", "args", "found"), [
    ("relu", (NAN,), "nan"), ("relu", (NONE,), "none"), ("less", (NAN, ONE), "none"), ("less", (NONE, ONE), "none"), ("max", (ONE, NAN), "nan"),
    ("log", (Fraction(0),), "infinite-"), ("exp", (ABOVE,), "infinite+"), ("exp", (FAR,), "none"), ("abs", (FAR,), "infinite+"),
    ("relu", (BELOW,), "none"), ("sin", (FAR,), "nan"), ("max", (ABOVE, ONE), "infinite+"), ("max", (FAR, ONE), "none"), ("less", (FAR, ONE), "none"),
    ("relu", (PLUS_ZERO,), "0"), ("pow", (Fraction(0), -ONE), "infinite"), ("pow", (PLUS_ZERO, -ONE), "infinite+"), ("pow", (-ONE, ONE / 2), "nan"),
    ("pow", (Fraction(0), -TWO), "infinite+"), ("as_f16", (-(ONE * 70000),), "infinite-"), ("isnan", (FAR,), "0"), ("isnan", (NAN,), "1"),
    ("log", (-ONE,), "nan"), ("log", (ONE,), "0"), ("sqrt", (-ONE,), "nan"), ("sqrt", (Fraction(4, 9),), "2/3"),
])  # fmt: skip
def test_functions_of_it(name: str, args: tuple[exact.Exact, ...], found: str) -> None:
    given = []
    for a in args:
        given.append(np.empty((), dtype=object))
        given[-1][()] = a
    assert kind(Rationals().call(name, tuple(given))[()]) == found


def test_elements_of_pages() -> None:
    assert tag("p", "x<b>", class_="a&b", stroke_width=1.0, width=2.25, hidden=None) == '<p class="a&amp;b" stroke-width="1" width="2.2">x<b></p>'
    assert tag("rect", x=1) == '<rect x="1"/>' and tag("p") == "<p></p>" and tag("rect", "y") == "<rect>y</rect>"


def test_a_zero_that_is_computed_has_no_sign() -> None:
    relu = Rationals().call("relu", (np.array(PLUS_ZERO, dtype=object),))[()]
    for found in (exact.times(PLUS_ZERO, -ONE), exact.plus(PLUS_ZERO, Fraction(0)), relu):
        assert found == 0 and kind(exact.over(ONE, found)) == "infinite"
