"""Conditions and divisors in lowest terms, what lies in a box, and what holds wherever a product is not 0: asked at every point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import gcd, inf
from random import Random

import numpy as np
import pytest

from einnet.expr.index import Floor, Index, bounds, value, var
from einnet.expr.nodes import Add, Body, Cond, Const, Iter, Mul, Read, Scope, Select, reads
from einnet.expr.normal.products import enclosed
from einnet.expr.normal.terms import (
    Divisor,
    Term,
    added,
    box_conditions,
    by_blocks,
    closed_again,
    divisor_condition,
    equality,
    inequality,
    product_body,
    reduced_divisor,
    scaled,
    simplified,
    split_conditions,
    supports,
    with_plain_fills,
)
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

RANGES = {"i": (-3, 4), "j": (-2, 5), "k": (0, 3)}
POINTS = [dict(zip(RANGES, p, strict=True)) for p in product(*(range(lo, hi) for lo, hi in RANGES.values()))]
U, V, W = map(var, RANGES)
DECLARED = "A : f32[5]\nB : f32[5]\nX : f32[5,4]\n"


def holds(c: Cond, point: dict[str, int]) -> bool:
    found = value(c.index, point)
    return found == 0 if c.equal else found >= 0


def divides(divisor: Divisor, point: dict[str, int]) -> bool:
    num, d = divisor
    return value(num, point) % d == 0


def drawn(rng: Random) -> Index:
    """A sum of iterators and floors with common factors, perhaps over a denominator."""
    affine = rng.randint(-7, 7) + sum((rng.choice((0, 1, -1, 2, -2, 3)) * x for x in (U, V, W)), Index())
    floor = rng.choice((0, 0, 1, -1, 2)) * ((rng.choice((1, -1, 2)) * U + rng.choice((0, 1)) * V + rng.randint(-3, 3)) // rng.choice((2, 3)))
    return (affine + floor) * rng.choice((1, 1, 2, 3)) / rng.choice((1, 1, 1, 2, 3))


GIVEN = [
    2 * U + 3, -2 * U + 1, 3 * V - 2, 2 * U + 2 * V + 1, (U + 2 * V) / 2, (2 * U + 4 * V + 3) / 5, 4 * U / 3, U // 2 + V, V - U // 2, -1 * (U // 3),
    U // 2 + V // 2, 2 * (U // 2) + V, 2 * (U // 2), 6 * (V // 2) + 3, (U + V) // 3 + 2 * W - 1, 1 - (U + V) // 3 - W, (U // 2 + V) / 3,
    Index((), 3), Index((), -3), Index((), 5, 2), 6 * U + 4, 6 * U + 4 * V + 2,
    *(drawn(Random(seed)) for seed in range(40)),
]  # fmt: skip


@pytest.mark.parametrize("e", GIVEN, ids=str)
def test_conditions_in_lowest_terms(e: Index) -> None:
    """They hold where they held, whether a value is 0 or more, or 0; and what they say is said without common factors."""
    least, null = inequality(e), equality(e)
    for point in POINTS:
        assert holds(least, point) == holds(Cond(e), point) and holds(null, point) == holds(Cond(e, True), point)
    for c in (least, null):
        assert c.index.den == 1
        assert gcd(*(k for _, k in c.index.terms), *([c.index.const] if c.equal else [])) <= 1 or not c.index.terms
    floors = [k for a, k in least.index.terms if isinstance(a, Floor)]
    assert len(floors) != 1 or abs(floors[0]) != 1


@pytest.mark.parametrize("e", GIVEN, ids=str)
def test_divisors_in_lowest_terms(e: Index) -> None:
    for d in (2, 4, 6, 9):
        num, divisor = reduced_divisor(e, d)
        for point in POINTS:
            assert divides((num, divisor), point) == divides((e, d), point) == holds(divisor_condition((num, divisor)), point)
        coefficients = [c for _, c in num.terms]
        assert num.den == 1 and gcd(divisor, num.const, *coefficients) == 1
        assert all(0 < c < divisor for c in coefficients) and 0 <= num.const < divisor
        assert len(coefficients) != 1 or divisor % coefficients[0] == 0


@pytest.mark.parametrize(("e", "d", "found"), [
    (2 * U, 6, (U, 3)), (2 * U, 5, (U, 5)), (3 * U + 1, 7, (U + 5, 7)), (4 * U + 2, 6, (U + 2, 3)), (2 * U + 1, 4, (2 * U + 1, 4)),
    (6 * U + 1, 8, (2 * U + 3, 8)), (6 * U, 15, (U, 5)), (6 * U + 4, 14, (U + 3, 7)), (6 * U, 4, (U, 2)), (6 * U + 10 * V, 4, (U + V, 2)),
    (U / 3, 2, (U, 6)),
    (10 * U + 5, 15, (U + 2, 3)), (10 * U + 1, 15, (5 * U + 2, 15)),
])  # fmt: skip
def test_what_divides_is_written_in_one_way(e: Index, d: int, found: Divisor) -> None:
    assert reduced_divisor(e, d) == found


def conditions(rng: Random) -> Iterable[Cond]:
    """Among them such as say that a residue has some value, or a multiple of one."""
    for _ in range(rng.randint(1, 3)):
        den, factor = rng.choice((2, 3, 4)), rng.choice((1, 1, 2, -1, -3))
        residue = factor * ((rng.choice((1, 2)) * U + rng.choice((0, 1)) * V + rng.randint(-2, 2)) % den)
        yield rng.choice((Cond(drawn(rng)), Cond(drawn(rng), True), Cond(residue - rng.randint(-1, den) * rng.choice((factor, 1)), True)))


@pytest.mark.parametrize("seed", range(60))
def test_residues_are_told_apart_from_other_conditions(seed: int) -> None:
    given = tuple(conditions(Random(seed)))
    plain, divisors = split_conditions(given)
    for point in POINTS:
        assert all(holds(c, point) for c in given) == (all(holds(c, point) for c in plain) and all(divides(d, point) for d in divisors))


@pytest.mark.parametrize(("given", "plain", "divisors"), [
    (Cond(U % 3, True), 0, [(U, 3)]), (Cond(U % 3 - 2, True), 0, [(U + 1, 3)]), (Cond(2 * (U % 3) - 4, True), 0, [(U + 1, 3)]),
    (Cond(U % 3 - 3, True), 1, []), (Cond(U % 3 + 1, True), 1, []), (Cond(2 * (U % 3) - 3, True), 1, []), (Cond(U % 3), 1, []),
    (Cond(-1 * (U % 3) + 1, True), 0, [(U + 2, 3)]), (Cond(U % 3 + V, True), 1, []), (Cond(U % 3 + V % 2, True), 1, []),
    (Cond((U % 3) / 2, True), 0, [(U, 3)]),
    (Cond(U % 3 + U // 3, True), 1, []),
])  # fmt: skip
def test_which_residues_are_divisors(given: Cond, plain: int, divisors: list[Divisor]) -> None:
    found = split_conditions([given])
    assert (len(found[0]), list(found[1])) == (plain, divisors)


BLOCKS = (
    (3 * U + W - 6, U - 2), (3 * U + W - 5, None), (3 * U - W + 2, U), (3 * U - W + 3, None), (-3 * U + W + 3, -U + 1), (-3 * U - W + 5, -U + 1),
    (3 * U + W - 7, None), (3 * U + 3 * V + W - 3, U + V - 1), (6 * U + 3 * W + 5, None), (9 * U + 3 * W + 2, U), (9 * U + 3 * W + 3, None),
    (7 * U + V, None), (7 * U + V + 2, U), (14 * U + 2 * V + 4, U), (7 * U + V + W + 2, None), (9 * U + V + W + 2, U), (2 * U + W, None),
    (U + W, None), (3 * (U // 2) + W, U), (2 * U + W // 2, U), (2 * U + (W + 1) // 2 - 1, None), (2 * U + (W + 2) // 2 - 1, U),
    (6 * U + 4 * V + W // 3, 3 * U + 2 * V),
)  # fmt: skip


@pytest.mark.parametrize(("e", "wanted"), BLOCKS)
def test_what_decides_nothing_leaves_a_condition(e: Index, wanted: Index | None) -> None:
    found = by_blocks(inequality(e), RANGES)
    assert found == (inequality(e) if wanted is None else Cond(wanted))
    assert all(holds(found, point) == holds(Cond(e), point) for point in POINTS)
    assert by_blocks(equality(e), RANGES) == equality(e)


def test_a_condition_keeps_its_places_without_what_decides_nothing() -> None:
    rng, changed = Random(1), 0
    for _ in range(600):
        e = drawn(rng) + rng.choice((2, 3, 4, 7, 9)) * rng.choice((U, V, U + V, U - W)) + rng.randint(-9, 9)
        given = Cond(e) if rng.random() < 0.5 else inequality(e)
        found = by_blocks(given, RANGES)
        changed += found != given
        assert all(holds(found, point) == holds(given, point) for point in POINTS), given
    assert changed > 20


@pytest.mark.parametrize("e", GIVEN, ids=str)
def test_what_lies_in_a_box(e: Index) -> None:
    """Nothing is said that the ranges of iterators say."""
    low, high = bounds(Index(e.terms, e.const), RANGES)
    for box in ((-2, 3), (0, 4), (low // e.den, high // e.den + 1), (low // e.den + 1, high // e.den)):
        conds, divisors = box_conditions([e, W], [box, (0, 3)], RANGES)
        for point in POINTS:
            at = value(e, point)
            inside = at.denominator == 1 and box[0] <= at < box[1]
            assert inside == (all(holds(c, point) for c in conds) and all(divides(d, point) for d in divisors))
        if e.terms:
            assert len(conds) == (low < box[0] * e.den) + (high > (box[1] - 1) * e.den) and len(divisors) == (e.den > 1)


def body(text: str) -> Body:
    return parse(f"{DECLARED}L[-3<=i<4,-2<=j<5,k<3] {text}").body


SUPPORTS = (
    ("A[i]", 0, "i>=0 & 4-i>=0"), ("A[i/2]", 0, "i%2==0 & i>=0 & 8-i>=0"), ("A[2*i/3]", 0, "(2*i)%3==0 & i>=0"), ("A[i]|1", 0, ""),
    ("A[i]|-inf", -inf, "i>=0"), ("A[i]|-inf", 0, ""), ("A[i]", -inf, ""), ("X[i+1,j]", 0, "i+1>=0 & 3-i>=0 & j>=0 & 3-j>=0"),
    ("A[i]*B[j]", 0, "i>=0 & j>=0"), ("A[i]*relu(B[j])", 0, "i>=0 & j>=0"), ("relu(A[i]*B[j])", 0, "i>=0 & j>=0"), ("exp(A[i])", 0, ""),
    ("relu(A[i]|-inf)", -inf, ""), ("A[i]/(1+B[k]*B[k])", 0, "i>=0"), ("A[i]/B[k]", 0, ""), ("A[k]/(1+B[i]*B[i])", 0, ""),
    ("(A[i]|-inf)/(1+B[k]*B[k])", -inf, ""), ("select(i-2>=0 & j%2==0, B[j], 0)", 0, "i-2>=0 & j%2==0 & j>=0"), ("select(i-2>=0, B[j], 1)", 0, ""),
    ("select(i-2>=0, B[j]|-inf, -inf)", -inf, "i-2>=0 & j>=0"), ("A[i]+B[i]", 0, "i>=0 & 4-i>=0"), ("A[i]*(1/B[k])", 0, ""),
    ("A[i]*B[j]+A[i]", 0, "i>=0 & 4-i>=0"), ("A[i]+A[i]*B[j]+B[i]", 0, "i>=0 & 4-i>=0"), ("A[i]+B[j]", 0, ""), ("A[i]+B[j]*A[i]+B[j]", 0, ""),
    ("A[i/2]+B[i/2]", 0, "i%2==0 & i>=0"), ("A[i/2]+B[i]", 0, "i>=0 & 4-i>=0"), ("A[i/2]+B[i/2]+A[i]", 0, "i>=0"),
    ("A[i]+1", 0, ""), ("A[i]+(B[i]|1)", 0, ""), ("A[i]+B[i]", -inf, ""),
    ("A[i]+A[i]*(1/B[k])", 0, ""), ("relu(A[i]+B[i]*A[j])*2", 0, "i>=0 & 4-i>=0"), ("A[i]+select(i>=0 & 4-i>=0 & j>=1,1/B[k],0)", 0, "i>=0 & 4-i>=0"),
    ("{L[x<9] Σ[y<2] A[x]*B[y]+A[x]}[i+3]", 0, "1-i>=0"),
    ("A[i]*select(j>=0,1/B[k],0)", 0, "j>=0"),
    ("select(i>=0 & j%2==0 & k-1>=0,1/A[k],0)*select(i>=0 & j%2==0 & j>=0,1/B[k],0)", 0, "i>=0 & j%2==0"),
    ("select(i>=0,1/A[k],0)*select(j>=0,1/B[k],0)*A[i+1]", 0, ""), ("(A[i]|-inf)*(1/B[k])", -inf, "i>=0"),
    ("{L[x<9] Σ[y<3] A[x-2]*B[y]}[i+3]", 0, "i+1>=0 & 3-i>=0"), ("{L[x<9] Σ[y<2] A[x-y]}[2*i]", 0, "i>=0 & 5-2*i>=0"),
    ("{L[x<9] Σ[y<2] A[x+y-4]}[2*i]", 0, "2*i-3>=0"), ("{L[x<9] Σ[y<2] A[x+y-4]}[2*i]|1", 0, ""), ("{L[x<9] max[y<2] A[x+y-4]}[2*i]", 0, ""),
    ("{L[x<9] Σ[y<2] select(x-y==0,B[y],0)}[2*i]", 0, ""), ("{L[x<9] Σ[y<2] select(x-2==0,B[y],0)}[2*i]", 0, "i-1==0"),
    ("{L[x<9] Σ[y<2] select(x//2-y-2>=0,B[y],0)}[2*i]", 0, "i-2>=0"), ("{L[x<9] Σ[y<2] select(x-4*(x//4)-1+y>=0,B[y],0)}[2*i]", 0, ""),
    ("{L[x<9] Σ[y<2] A[x/2]*B[(x+y)/2]}[i+1]", 0, "(i+1)%2==0 & i+1>=0 & 7-i>=0"), ("{L[x<9] Σ[y<2] A[7]*B[y]}[i]", 0, ""),
    ("{L[x<9,z<9] Σ[y<2] A[x]*B[z]}[i,k]", 0, "i>=0"),
    ("{L[x<9,z<9] Σ[y<2] A[(x+z)/2]}[i+3,k]", 0, "(i+3+k)%2==0 & 8-i-3-k>=0"), ("{L[x<9,z<9] Σ[y<2] A[(x+1)/2]}[i+3,k]", 0, "i%2==0 & 4-i>=0"),
    ("{L[x<9,z<9] Σ[y<2] select(x-z-3+y>=0,1,0)}[i+3,k]", 0, "i-k+1>=0"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "absorbing", "wanted"), SUPPORTS)
def test_what_holds_wherever_a_product_is_not_zero(text: str, absorbing: Fraction | float, wanted: str) -> None:
    """Of a sum inside its own box: what is asked of its summation iterators is that one is there."""
    given = body(text)
    conds, divisors = supports(given.args if isinstance(given, Mul) else (given,), Fraction(0) if absorbing == 0 else absorbing)
    expected = parse(f"L[-3<=i<4,-2<=j<5,k<3] select({wanted}, 1, 0)").body if wanted else None
    for point in POINTS:
        found = all(holds(c, point) for c in conds) and all(divides(d, point) for d in divisors)
        assert found == (not isinstance(expected, Select) or all(holds(c, point) for c in expected.conds)), (point, conds, divisors)


CLOSED = (
    ("{L[k<3,j<5] relu(X[j,k])}[k,j]", "jk"), ("{L[j<5,k<3] relu(X[j,k])}[j,k]", None), ("{L[j<5,k<3] relu(A[j])}[j,k]", None),
    ("{L[a<5,b<3] relu(X[a,b])}[j,k]", "jk"), ("{L[a<5] relu(A[a])}[k]", "k"), ("{L[k<5] relu(A[k])}[k]", None),
    ("{L[a<5,b<4] relu(X[a,b])}[k,2]", "k"),
    ("{L[k<5,j<4] relu(X[k,j])}[k,k]", "k"), ("{L[k<5,j<4] relu(X[k,j])}[2,k]", "k"), ("{L[j<5,k<4] relu(X[j,k])}[j,j]", "j"),
    ("{L[i<4,k<3,j<4] relu(X[i,j]+A[k])}[i,k,j]", "ijk"),
    ("{L[a<9] relu({L[b<9] exp(A[b//2])}[a])}[2*k+1]", "k"), ("{L[a<3] Σ[k<4] relu(X[a,k])}[k]", "k"),
    ("{L[a<3,b<3] max[k<4] X[a,k]+A[b]}[k,0]", "k"),
    ("{L[k<3] Σ[a<4] relu(X[k,a])}[0]", ""), ("{L[a<3] relu({L[a<3,b<4] exp(X[a,b])}[a,1])}[k]", "k"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "loops"), CLOSED)
def test_scopes_are_closed_over_what_occurs(text: str, loops: str | None) -> None:
    """In the order of the ranges; what is so already is left as it is. Values stay, also of scopes further inside."""
    scope = parse(f"{DECLARED}L[i<4,j<4,k<3] {text}")
    given = scope.body
    assert isinstance(given, Read)
    found = closed_again(given, scope.ranges)
    if loops is None:
        assert found is given
        return
    assert isinstance(found.base, Scope) and "".join(i.name for i in found.base.loops) == loops
    assert tuple(found.index) == tuple(map(var, loops)) and all(i.range == scope.ranges[i.name] for i in found.base.loops)
    values = {n: np.arange(1.0, 1 + np.prod(s)).reshape(s) ** 2 % 23 - 7 for n, s in (("A", 5), ("B", 5), ("X", (5, 4)))}
    before, after = (evaluate(replace(scope, body=b), values) for b in (given, found))
    np.testing.assert_array_equal(before, after)
    for inner in (r for r in reads(found.base.body) if isinstance(r.base, Scope)):
        assert all(e == var(i.name) for e, i in zip(inner.index, inner.base.loops, strict=True))


def test_fills_that_are_not_read() -> None:
    for fill in ("1", "2", "-inf"):
        assert with_plain_fills(body(f"A[k]|{fill}"), RANGES) == body("A[k]")
        for text in (f"A[i]|{fill}", f"A[k+3]|{fill}", f"A[k/2]|{fill}"):
            assert with_plain_fills(body(text), RANGES) == body(text)


def test_products_and_sums_as_bodies() -> None:
    a, b = body("A[k]"), body("B[k]")
    two = Fraction(2)
    assert scaled(two, Const(Fraction(3))) == Const(Fraction(6)) and scaled(two, Const(-inf)) == Mul((Const(two), Const(-inf)))
    assert scaled(Fraction(1), a) is a and scaled(two, a) == Mul((Const(two), a)) and scaled(two, Mul((a, b))) == Mul((Const(two), a, b))
    assert added([]) == Const(Fraction(0)) and added([a]) is a and added([a, b]) == Add((a, b))
    assert product_body(Term()) == Const(Fraction(1)) and product_body(Term(factors=(a,))) is a and product_body(Term(factors=(a, b))) == Mul((a, b))
    under = Term(two, conds=(Cond(U),), divisors=((V, 2),), factors=(a,), absorbing=-inf)
    assert product_body(under) == Select((Cond(U), Cond(V % 2, True)), a, Const(-inf))


def test_numbers_among_factors_are_coefficients() -> None:
    """Where it is a sum; iterators of one value are that value."""
    found = simplified(Term(Fraction(3), factors=(body("val(2*k+1)"), body("A[k+i]")), sums=(Iter("i", 2, 3),)), {"k": (1, 2)})
    assert found == Term(Fraction(9), factors=(body("A[3]"),))
    greatest = simplified(Term(factors=(body("val(k)"),), absorbing=-inf), {"k": (1, 2)})
    assert greatest == Term(factors=(body("val(1)"),), absorbing=-inf)
    assert simplified(Term(factors=(body("val(k)"),)), {"k": (1, 3)}) == Term(factors=(body("val(k)"),))


def test_what_is_enclosed_has_the_coefficient_the_sums_and_the_conditions_of_both() -> None:
    outer = Term(Fraction(3), (Iter("i", 0, 4),), (Cond(V),), ((W, 2),), (body("A[k]"),))
    inner = Term(Fraction(5, 2), (Iter("j", 0, 3),), (Cond(W),), ((V, 3),), (body("B[k]"),))
    both = Term(Fraction(15, 2), outer.sums + inner.sums, (Cond(V), Cond(W)), ((W, 2), (V, 3)), inner.factors)
    assert enclosed(outer, [inner, Term()]) == [both, replace(outer, factors=())]
