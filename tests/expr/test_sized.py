"""Index functions of an unknown size have, with each size put in, the values that they have as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.errors import ParseError
from einnet.expr.index import Index, as_index, floor_div, value, var
from einnet.expr.nodes import Read
from einnet.expr.notation import sized_text
from einnet.expr.notation.sized_text import SIZE, follows, multiple, parse_sized
from einnet.expr.sets import PARAMETER
from einnet.expr.sized import SLICE, Frame, Sized, Unsliced
from tests.strategies import repeatable

N, S, A, B = map(var, (PARAMETER, SLICE, "a", "b"))
RANGES = {"a": (0, 3), "b": (1, 3)}
FRAME = Frame({"m": Sized(2 * A, 2 * S + B - 1), "k": Sized(as_index(0), B), "h": Sized(A, S)}, RANGES)
"""m is one of 6·N places in blocks of two slices, h one of 3·N."""

Point = dict[str, int]


def points(most: int = 5) -> Iterator[Point]:
    """Sizes, slices and places."""
    for size in range(1, most):
        for s, a, b in product(range(size), range(3), range(1, 3)):
            yield {PARAMETER: size, SLICE: s, "a": a, "b": b}


ENDS = [{PARAMETER: size, SLICE: s, "a": 0, "b": b} for size in range(1, 14) for s in {0, size - 1} for b in (1, 2)]
"""Where functions without a are greatest and least."""


def quotients(rest: Index, k: int) -> set[int]:
    """All quotients of a function by k times the size."""
    return {at(Sized(as_index(0), rest), p) // (k * p[PARAMETER]) for p in ENDS}


def at(e: Sized, point: Point) -> int:
    found = value(e.many, point) * point[PARAMETER] + value(e.rest, point)
    assert found.denominator == 1
    return found.numerator


SMALL = st.integers(-2, 2)
RESTS = st.builds(lambda p, q, r, t: p * S + q * N + r + t * B, SMALL, SMALL, SMALL, st.integers(-1, 1))


@repeatable(40)
@given(RESTS, SMALL, SMALL, st.integers(1, 3), st.booleans())
def test_quotients_by_the_size_are_those_of_numbers(rest: Index, slope: int, constant: int, k: int, multiples: bool) -> None:
    """What is found is so everywhere, and a quotient of the rest that is -1, 0 or 1 everywhere is found."""
    many = (slope * A + constant) * (k if multiples else 1)
    e = Sized(many, rest)
    try:
        found = FRAME.floored(e, k)
    except Unsliced:
        assert not (multiples and quotients(rest, k) in ({-1}, {0}, {1}))
        assert quotients(rest, 1) not in ({-1}, {0}, {1})
        return
    assert all(value(found, p) == at(e, p) // (k * p[PARAMETER]) for p in points())


@pytest.mark.parametrize(("rest", "k", "quotient"), [
    (S, 1, 0), (N - 1 - S, 1, 0), (S + N, 1, 1), (S - N, 1, -1), (-1 - S, 1, -1), (N, 1, 1), (-N, 1, -1), (2 * S + B - 1, 2, 0), (S + N, 2, 0),
    (2 * N - 1, 2, 0), (2 * N, 2, 1), (-2 * N, 2, -1), (-2 * N, 3, -1),
])  # fmt: skip
def test_quotients_at_the_ends_of_a_slice(rest: Index, k: int, quotient: int) -> None:
    assert FRAME.quotient(rest, k) == quotient


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("quotient", [-1, 0, 1])
def test_what_the_divisor_divides_leaves_the_quotient(quotient: int, k: int) -> None:
    assert FRAME.floored(Sized(k * A - 2 * k, S + quotient * k * N), k) == A - 2 + quotient


@pytest.mark.parametrize("rest", [S + 1, S - 1, 2 * S, 2 * N, -1 - N, S / 2, floor_div(S, 2) + S])
def test_quotients_that_are_not_one(rest: Index) -> None:
    with pytest.raises(Unsliced, match="not the same at all points"):
        FRAME.quotient(rest, 1)


OPERANDS = st.builds(Sized, st.builds(lambda c, d: c * A + d, SMALL, SMALL), RESTS)


@repeatable(20)
@given(OPERANDS, OPERANDS, SMALL, SMALL)
def test_sums_and_products_are_those_of_numbers(e: Sized, other: Sized, many: int, rest: int) -> None:
    factor = Sized(as_index(many), as_index(rest))
    plain = not many or (not e.many.terms and not e.many.const and not {PARAMETER, SLICE} & e.rest.names())
    for p in points(4):
        assert at(e + other, p) == at(e, p) + at(other, p)
        assert at(e - other, p) == at(e, p) - at(other, p) and at(-e, p) == -at(e, p)
        if plain:
            assert at(e.times(factor), p) == at(e, p) * at(factor, p)
    if not plain:
        with pytest.raises(Unsliced, match="multiplied"):
            e.times(factor)


def test_what_is_constant_and_what_is_divided() -> None:
    assert Sized(as_index(2), as_index(1)).is_const and not Sized(A, as_index(1)).is_const and not Sized(as_index(2), S).is_const
    assert Sized(A, B / 2).den == 2
    with pytest.raises(Unsliced):
        Sized(as_index(0), B / 2).times(Sized(as_index(1), as_index(0)))


def index_of(text: str) -> Index:
    """The index function as it is read, @ for the size."""
    body = parse_sized(f"X : f32[{SIZE}]\nL[m<{6 * SIZE},h<{3 * SIZE},1<=k<3] X[{text.replace('@', str(SIZE))}]").body
    assert isinstance(body, Read)
    return body.index[0]


@pytest.mark.parametrize("text", [
    "m + 3*k - 5", "m*2 + h", "@ - 1 - h", "m//2", "m//(2*@)", "m%(2*@)", "h//@", "h%@", "2*h//(2*@)", "(m + k)%2",
    "(4*@ + k)//4", "(5*@ + k)//4", "2*(m - h)/2", "(k*@ + h)//@",
])  # fmt: skip
def test_what_is_read_has_the_value_that_is_written(text: str) -> None:
    """Against Python's own integers."""
    found = sized_text.value(index_of(text), FRAME)
    for p in points():
        own = {name: at(e, p) for name, e in FRAME.iterators.items()}
        assert at(found, p) == eval(text.replace("@", "size"), {**own, "size": p[PARAMETER]})


@pytest.mark.parametrize("text", ["m%@", "(m + 2*@)//@", "(h + @)//3", "m//(4*@)", "m/@", "m/3", "@*@", "h*@"])
def test_what_is_out_of_reach_is_told(text: str) -> None:
    with pytest.raises(Unsliced):
        sized_text.value(index_of(text), FRAME)


@pytest.mark.parametrize("text", ["m//(@ - @)", "m//(0 - @)", "m//(@ + 2)", "m/0", "m%(0-3)"])
def test_what_nothing_is_divided_by(text: str) -> None:
    with pytest.raises(ParseError):
        sized_text.value(index_of(text), FRAME)


@pytest.mark.parametrize("number", [10**18, SIZE + 1, SIZE - 1])
def test_large_numbers_that_are_no_multiples_are_refused(number: int) -> None:
    with pytest.raises(ParseError):
        parse_sized(f"X : f32[{number}]\nL[m<2] X[m]")


@pytest.mark.parametrize("digits", [39, 40, 500])
def test_multiples_are_read_of_as_many_digits_as_numbers_may_have(digits: int) -> None:
    least = -(-(10 ** (digits - 1)) // SIZE) * SIZE
    (loop,) = parse_sized(f"X : f32[4]\nL[m<{least}] X[0]").loops
    assert loop.hi == least


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(ParseError):
        parse_sized(f"X : f32[4]\nL[m<{(10**500 // SIZE + 1) * SIZE}] X[0]")


def test_multiples_of_the_size() -> None:
    assert [multiple(n) for n in (0, 1, SIZE - 1, SIZE, 3 * SIZE, -2 * SIZE, 3 * SIZE + 1)] == [0, 0, 0, 1, 3, -2, 0]
    assert follows(((0, SIZE), (0, 5), (-SIZE, 2), (0, 2 * SIZE + 1))) == [0, 2]
    scope = parse_sized(f"X : f32[{SIZE},4]\nL[m<{2 * SIZE}] X[m//2,3]")
    assert scope.loops[0].hi == 2 * SIZE
    with pytest.raises(Unsliced, match="number of the expression"):
        parse_sized(f"X : f32[4]\nL[m<4] X[m]*{SIZE}")
    with pytest.raises(Unsliced, match="X is not declared"):
        parse_sized("L[m<4] X[m]")
