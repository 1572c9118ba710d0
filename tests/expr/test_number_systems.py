"""Number systems one by one: intervals that hold every value, rationals that need not exist, magnitudes; and dense evaluation beside the meaning."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf, isnan, nan, nextafter

import numpy as np
import pytest

from einnet.errors import UsageError
from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.ends import MAYBE, UNDEFINED, interval
from einnet.expr.functions.exact import NAN, NONE, PLUS_ZERO
from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values import rationals
from einnet.expr.values.arithmetic import Exact, Machine, Modular, Strict, contracted, uncontracted
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.intervals import Enclosures, apart, enclosure
from einnet.expr.values.points import magnitudes_at, values_at, work
from einnet.expr.values.rationals import Rationals, folded
from tests.expr.brute import Brute

DECLARED = "A : f32[5]\nB : f32[5]\nX : f32[5,4]\n"
VALUES = {n: np.vectorize(Fraction)(np.arange(1, 1 + np.prod(s)).reshape(s) ** 2 % 23 - 7) for n, s in {"A": (5,), "B": (5,), "X": (5, 4)}.items()}
SYSTEM = Enclosures()


def kind(x: complex) -> object:
    """The ends, or what is known of a value's existence."""
    if not isnan(x.real):
        return x.real, x.imag
    return "undefined" if isnan(x.imag) else "maybe"


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(-1, 3), Fraction(3), Fraction(0), Fraction(2**60 + 1), Fraction(1, 10), Fraction(7, 5)])
def test_the_least_interval_around_a_number(value: Fraction) -> None:
    found = enclosure(value)
    low, high = Fraction(found.real), Fraction(found.imag)
    assert low <= value <= high and (low == high == value or found.imag == nextafter(found.real, inf))
    assert low < value < high or low == high, "what is a double has no width"


def test_numbers_beyond_doubles() -> None:
    assert enclosure(Fraction(10**400)) == complex(1.7e308, inf) and enclosure(Fraction(-(10**400))) == complex(-inf, -1.7e308)
    assert enclosure(inf) == complex(inf, inf)


def test_whole_numbers_beyond_what_doubles_hold_have_a_width() -> None:
    """Two to the 53rd and one is rounded to two to the 53rd, an end of its interval."""
    numbers = np.array([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**54 + 1])
    found = SYSTEM.integers(numbers, 1)
    for number, x in zip(numbers.tolist(), found):
        assert int(x.real) <= number <= int(x.imag)
    assert found[0].real == found[0].imag
    np.testing.assert_array_equal(SYSTEM.values(np.array([1.5, -2.0])), interval([1.5, -2.0], [1.5, -2.0]))


@pytest.mark.parametrize("kind_of", ["max", "min"])
def test_the_greatest_of_what_need_not_exist(kind_of: str) -> None:
    given = interval([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]], [[2.0, 4.0]] * 3)
    given[1, 0], given[2, 1] = MAYBE, UNDEFINED
    found = SYSTEM.reduce(kind_of, given, (1,))
    assert [kind(x) for x in found] == [(3.0, 4.0) if kind_of == "max" else (1.0, 2.0), "maybe", "undefined"]
    assert [kind(x) for x in SYSTEM.reduce(kind_of, given[:1], (1,))] == [kind(found[0])]


def test_functions_of_what_need_not_exist() -> None:
    """By the first argument as by the second; what is undefined comes before what may be."""
    one = interval([1.0] * 5, [2.0] * 5)
    first, second = one.copy(), one.copy()
    first[1], second[2], first[3], second[3], second[4] = MAYBE, UNDEFINED, MAYBE, UNDEFINED, MAYBE
    assert [kind(x) for x in SYSTEM.call("max", (first, second))] == [(1.0, 2.0), "maybe", "undefined", "undefined", "maybe"]
    assert [kind(x) for x in SYSTEM.call("max", (one, one))] == [(1.0, 2.0)] * 5
    assert [kind(x) for x in SYSTEM.call("less", (first, second))] == [(0.0, 1.0), "maybe", "undefined", "undefined", "maybe"]
    told = SYSTEM.call("isnan", (interval([1.0], [2.0]),))
    assert kind(told[0]) == (0.0, 0.0)
    picked = SYSTEM.call("choose", (interval([1.0], [1.0]), interval([5.0], [6.0]), np.array([UNDEFINED])))
    assert kind(picked[0]) == (5.0, 6.0), "a function that is not strict asks for what it takes alone"


def test_intervals_that_touch_may_hold_one_number() -> None:
    left, right, beyond = interval([1.0], [2.0]), interval([2.0], [3.0]), interval([2.5], [3.0])
    assert not apart(left, right).any() and not apart(right, left).any()
    assert apart(left, beyond).all() and apart(beyond, left).all()


def test_functions_of_rationals_that_need_not_exist() -> None:
    strict, truth = rationals._strict(FUNCTIONS["relu"]), rationals._strict(FUNCTIONS["less"])
    assert strict(Fraction(-3)) == 0 and strict(Fraction(3)) == 3
    assert isnan(float(strict(NONE))) and truth(NONE, Fraction(1)) is NONE and truth(Fraction(1), NONE) is NONE
    assert truth(Fraction(1), Fraction(2)) == 1
    assert rationals._strict(FUNCTIONS["max"])(NAN, Fraction(1)) is NAN, "the machine knows more of it than that it does not exist"
    zero = rationals._strict(FUNCTIONS["max"])(PLUS_ZERO, Fraction(-1))
    assert zero == 0 and zero is not PLUS_ZERO, "nobody knows the sign of a zero that is computed"
    assert rationals._strict(FUNCTIONS["choose"]) is FUNCTIONS["choose"].rational
    lifted = rationals._lifted(strict, 1)
    assert (lifted.nin, lifted.nout) == (1, 1) and list(lifted(np.array([Fraction(-1), Fraction(2)], dtype=object))) == [0, 2]


@pytest.mark.parametrize("extent", range(1, 9))
def test_sums_of_intervals(extent: int) -> None:
    """Of whole numbers exactly, along any axes, whatever their number."""
    lows = np.arange(2 * extent * 3).reshape(2, extent, 3) ** 2 % 11 - 4
    given = interval(lows, lows + 2)
    for axes in ((1,), (0, 1), (1, 2), (0, 1, 2), ()):
        found = SYSTEM.reduce("sum", given, axes)
        count = int(np.prod([given.shape[a] for a in axes]))
        assert found.shape == lows.sum(axis=axes).shape if axes else found.shape == given.shape
        np.testing.assert_array_equal(found.real, lows.sum(axis=axes) if axes else lows)
        np.testing.assert_array_equal(found.imag, lows.sum(axis=axes) + 2 * count if axes else lows + 2)


@pytest.mark.parametrize(("values", "most", "total"), [
    ([complex(1, 2), complex(0, 5)], (1.0, 5.0), (1.0, 7.0)), ([complex(1, 2), UNDEFINED], "undefined", "undefined"),
    ([complex(1, 2), MAYBE], "maybe", "maybe"),
    ([MAYBE, UNDEFINED], "undefined", "undefined"), ([UNDEFINED, complex(1, 1), MAYBE], "undefined", "undefined"),
    ([MAYBE, complex(0, 0), MAYBE], "maybe", "maybe"),
])  # fmt: skip
def test_what_may_not_exist_in_a_reduction(values: list[complex], most: object, total: object) -> None:
    given = np.asarray(values)
    assert kind(complex(SYSTEM.reduce("max", given, (0,)))) == most
    assert kind(complex(SYSTEM.reduce("sum", given, (0,)))) == total
    if isinstance(most, tuple):
        assert kind(complex(SYSTEM.reduce("min", given, (0,)))) == (0.0, 2.0)


LOW, HIGH, ZERO, ABOVE = complex(-inf, -inf), complex(inf, inf), complex(0, 0), complex(0, 1)
HUGE, LARGE = complex(1.7e308, 1.7e308), complex(1.7e308, inf)


@pytest.mark.parametrize(("operation", "left", "right", "found"), [
    ("multiply", ZERO, LOW, "undefined"), ("multiply", HIGH, ZERO, "undefined"), ("multiply", ABOVE, LOW, "maybe"),
    ("multiply", LARGE, ZERO, "maybe"), ("multiply", LOW, LOW, (inf, inf)), ("multiply", HIGH, complex(-2, -1), (-inf, -inf)),
    ("multiply", MAYBE, HIGH, "maybe"), ("add", LOW, HIGH, "undefined"), ("add", LOW, LOW, (-inf, -inf)), ("add", LARGE, LOW, "maybe"),
    ("add", LOW, ABOVE, (-inf, -inf)), ("add", HUGE, HUGE, (1.7976931348623157e308, inf)), ("divide", LOW, HIGH, "undefined"),
    ("divide", LARGE, HIGH, "maybe"), ("divide", ABOVE, LOW, (0, 0)), ("divide", HIGH, complex(-2, -1), (-inf, -inf)),
    ("divide", HIGH, ZERO, "undefined"), ("divide", ABOVE, ZERO, "undefined"), ("divide", ABOVE, ABOVE, "maybe"), ("divide", LOW, MAYBE, "maybe"),
    ("divide", UNDEFINED, LOW, "undefined"),
])  # fmt: skip
def test_what_is_infinite_is_known_to_be(operation: str, left: complex, right: complex, found: object) -> None:
    """0 times it is no value, nor what is left of two such; what only overflows may be any large number."""
    with np.errstate(all="ignore"):
        assert kind(complex(getattr(SYSTEM, operation)(np.asarray(left), np.asarray(right)))) == found


@pytest.mark.parametrize(("name", "low", "high"), [
    ("exp", 0, inf), ("sigmoid", 0, 1), ("tanh", -1, 1), ("erf", -1, 1), ("softplus", 0, inf), ("asinh", -inf, inf), ("floor", -inf, inf),
])  # fmt: skip
def test_functions_at_infinities_are_their_limits(name: str, low: float, high: float) -> None:
    with np.errstate(all="ignore"):
        found = [kind(complex(SYSTEM.call(name, (np.asarray(end),)))) for end in (LOW, HIGH, complex(-inf, inf))]
    assert found == [(low, low), (high, high), (low, high)]


def test_functions_at_infinities_that_are_fractions_or_nothing() -> None:
    with np.errstate(all="ignore"):
        ends = SYSTEM.call("atan", (np.asarray(HIGH),))
        assert ends.real < ends.imag and ends.real < np.pi / 2 < ends.imag
        assert kind(complex(SYSTEM.call("log", (np.asarray(HIGH),)))) == (inf, inf)
        assert [kind(complex(SYSTEM.call(name, (np.asarray(end),)))) for name in ("sin", "cos") for end in (LOW, HIGH)] == ["undefined"] * 4
        assert kind(complex(SYSTEM.call("sin", (np.asarray(complex(-inf, inf)),)))) == (-1, 1)
        large = SYSTEM.call("exp", (np.asarray(complex(1000, 1000)),))
        assert np.isfinite(large.real) and large.imag == inf, "what overflows is no infinity"


A, B = complex(1, 2), complex(2, 3)


@pytest.mark.parametrize(("left", "right", "found"), [
    (A, B, (2.0, 3.0)), (A, UNDEFINED, "undefined"), (UNDEFINED, A, "undefined"), (MAYBE, A, "maybe"), (A, MAYBE, "maybe"),
    (MAYBE, UNDEFINED, "undefined"),
    (UNDEFINED, MAYBE, "undefined"), (MAYBE, MAYBE, "maybe"),
])  # fmt: skip
def test_functions_of_what_may_not_exist(left: complex, right: complex, found: object) -> None:
    assert kind(complex(SYSTEM.call("max", (np.asarray(left), np.asarray(right))))) == found


@pytest.mark.parametrize(("left", "right", "differ"), [
    (A, A, False), (A, B, False), (A, complex(2.5, 3), True), (complex(2.5, 3), A, True), (A, UNDEFINED, True), (UNDEFINED, A, True),
    (UNDEFINED, UNDEFINED, False), (A, MAYBE, False), (MAYBE, A, False), (MAYBE, UNDEFINED, False), (UNDEFINED, MAYBE, False), (MAYBE, MAYBE, False),
])  # fmt: skip
def test_where_two_values_differ_for_sure(left: complex, right: complex, differ: bool) -> None:
    assert bool(apart(np.asarray(left), np.asarray(right))) == differ


@pytest.mark.parametrize(("name", "args", "value"), [
    ("max", (1, 2), 2), ("relu", (-3,), 0), ("less", (1, 2), 1), ("exp", (0,), 1), ("exp", (1,), None), ("log", (0,), None), ("log", (1,), 0),
    ("sqrt", (4,), 2), ("sqrt", (2,), None),
    ("choose", (1, 5, 7), 5), ("choose", (0, 5, 7), 7), ("erf", (1,), None), ("floor", (Fraction(-1, 2),), -1), ("no function", (1,), None),
])  # fmt: skip
def test_values_that_are_rational(name: str, args: tuple[Fraction, ...], value: int | None) -> None:
    assert folded(name, tuple(map(Fraction, args))) == value


@pytest.mark.parametrize(("name", "args", "value"), [
    ("relu", (nan,), nan), ("less", (nan, Fraction(1)), nan), ("max", (Fraction(1), nan), nan), ("choose", (Fraction(0), nan, Fraction(2)), 2),
    ("choose", (Fraction(1), nan, Fraction(2)), nan), ("choose", (nan, Fraction(2), Fraction(2)), nan), ("less", (Fraction(1), Fraction(2)), 1),
])  # fmt: skip
def test_rationals_that_do_not_exist(name: str, args: tuple[Fraction | float, ...], value: float) -> None:
    found = Rationals().call(name, tuple(np.asarray(a, dtype=object) for a in args))
    assert found == value or (isnan(value) and isnan(found))


TEXTS = (
    "L[i<5] val(i/2)*A[i]", "L[i<5] val(i/3)", "L[i<5] Σ[r<5] A[i]", "L[i<5] Σ[r<5,k<4] A[i]+X[i,k]", "L[i<5] Σ[r<3] relu(A[i])",
    "L[i<5] max[r<3] A[i]*B[r]+A[r]*B[i]",
    "L[i<5] max[r<3] A[r]+B[r]", "L[i<5] min[r<3] A[r]+(-1)*B[r]+X[i,r]", "L[i<3] {L[2<=j<5] A[j]*B[j]}[i+1]", "L[i<7] {L[2<=j<5] A[j]}[i]",
    "L[-2<=i<3] {L[-1<=j<2] A[j+1]}[i]|7",
    "L[i<5] X[i,i]*X[4-i,i//2]", "L[i<5] A[i//2]+A[i/2]+A[i%3]", "L[i<5] max[r<0] A[r]", "L[i<5,j<4] X[i,j]*A[i]*B[i]", "L[] Σ[i<5,j<4] X[i,j]*A[i]",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("system", ["int", "float64", "points", "intervals"])
def test_evaluation_is_the_meaning(text: str, system: str) -> None:
    """Densely and at points, in rationals, doubles, and intervals, which have no width where all numbers are whole."""
    scope = parse(DECLARED + text)
    wanted = [v for _, v in sorted(Brute(VALUES).table(scope).items())]
    grid = np.asarray(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64).reshape(len(wanted), len(scope.loops))

    def element(t: Tensor, address: np.ndarray) -> np.ndarray:
        return VALUES[t.name].reshape(-1)[address]

    if system == "intervals":
        found = values_at(scope, grid, Enclosures(), lambda t, at: interval(*2 * (element(t, at).astype(float),)))
        assert all(f.real <= w <= f.imag and f.imag - f.real < 1e-9 or f.real == f.imag == w for f, w in zip(found.tolist(), wanted, strict=True))
        return
    given = VALUES if system == "int" else {n: v.astype(float) for n, v in VALUES.items()}
    dense = values_at(scope, grid, Rationals(), element) if system == "points" else evaluate(scope, given, system).reshape(-1)
    assert all(f == w if system != "float64" else abs(f - w) < 1e-9 or f == w for f, w in zip(dense.tolist(), wanted, strict=True))


def test_rationals_stay_rational() -> None:
    """Doubles too become fractions; what is infinite is not."""
    found = evaluate(parse(f"{DECLARED}L[i<5] A[i]*1/3"), {"A": np.array([0.5, 1.0, 0.25, 2.0, -4.0])}, "int")
    assert all(isinstance(v, Fraction) for v in found) and found.tolist() == [
        Fraction(1, 6),
        Fraction(1, 3),
        Fraction(1, 12),
        Fraction(2, 3),
        Fraction(-4, 3),
    ]
    assert evaluate(parse(f"{DECLARED}L[] max[r<0] A[r]"), {"A": np.zeros(5)}, "int") == -inf


@pytest.mark.parametrize(("text", "size", "arguments"), [
    ("2*A[i]-3*B[i]", 5, {}), ("max(A[i],-inf)", 1, {}), ("relu(2*A[i])", 2, {}), ("exp(2*A[i])", 1, {"exp": 2.0}),
    ("choose(9*A[i],2*A[i],3*B[i])", 3, {}),
    ("{L[i<5] Σ[k<4] X[i,k]}[i]", 4, {}), ("A[i]/(5*B[i])", 1, {"/": 5.0}), ("exp(2*A[i])*exp(7*B[i])", 1, {"exp": 7.0}), ("val(3*i-6)*A[i]", 3, {}),
    ("max(1/2*A[i],-inf)", 1 / 2, {}), ("{L[i<5] Σ[k<4] val(k)*X[i,k]}[i]", 6, {}), ("{L[i<5] max[k<4] val(k)*X[i,k]}[i]", 3, {}),
    ("{L[i<5] min[k<4] val(k)*X[i,k]}[i]", 3, {}), ("pow(2*A[i],5)", 1, {"pow": 5.0}), ("pow(5*A[i],2)", 1, {"pow": 5.0}),
])  # fmt: skip
def test_magnitudes(text: str, size: float, arguments: dict[str, float]) -> None:
    """Of what is added up at i = 1, where no element is greater than 1."""
    found, asked = magnitudes_at(parse(f"{DECLARED}L[i<5] {text}"), np.asarray([[1]]))
    assert found.tolist() == [size] and asked == arguments


def test_work_at_points() -> None:
    """A nested scope is evaluated at no more points than it has, and at no more than are asked for."""
    scope = parse(f"{DECLARED}L[i<5,j<4] {{L[i<5] Σ[k<4] X[i,k]}}[i]*A[j]")
    assert work(scope, 2) == 2 + 2 * 4 and work(scope, 20) == 20 + 5 * 4


@pytest.mark.parametrize(("name", "args", "value"), [
    ("/", (1, 0), nan), ("/", (0, 0), nan), ("/", (6, 3), 2), ("/", (1, inf), 0), ("/", (inf, 1), inf), ("/", (nan, 1), nan), ("log", (0,), nan),
    ("log", (-1,), nan), ("log", (1,), 0), ("log", (inf,), inf), ("exp", (1000,), inf), ("pow", (0, -1), nan), ("pow", (inf, 2), inf),
    ("pow", (3, 2), 9), ("pow", (1, nan), nan), ("less", (nan, 1), nan), ("less", (1, 2), 1), ("max", (inf, 1), inf),
    ("max", (1, nan), nan), ("choose", (1, 2, nan), 2),
    ("choose", (0, nan, 3), 3), ("isnan", (nan,), 1), ("isnan", (1,), 0), ("relu", (nan,), nan), ("relu", (-2,), 0),
])  # fmt: skip
def test_doubles_that_do_not_exist(name: str, args: tuple[float, ...], value: float) -> None:
    """NaN makes all NaN that is computed from it, but for what is not chosen; what is infinite exists."""
    system, given = Strict(), tuple(np.asarray([float(a), 1.0]) for a in args)
    assert system.dtype == np.float64
    with np.errstate(all="ignore"):
        found = system.divide(*given) if name == "/" else system.call(name, given)
    assert found[0] == value or (isnan(value) and isnan(found[0]))


def test_exact_numbers() -> None:
    """Infinities stay; what is no fraction for all fractions is refused, though it were one here."""
    system = Exact()
    found = system.values(np.asarray([[inf, 0.5], [-inf, 3.0]])).tolist()
    assert found == [[inf, Fraction(1, 2)], [-inf, 3]] and isinstance(found[0][1], Fraction)
    assert system.integers(np.asarray([3, 4]), 2).tolist() == [Fraction(3, 2), 2] and system.call("relu", (system.number(Fraction(-1)),)) == 0
    for name in ("exp", "sin", "log"):
        with pytest.raises(UsageError, match="no exact value"):
            system.call(name, (system.number(Fraction(0)),))


def test_residues_of_fractions() -> None:
    system = Modular()
    for den in (1, 2, 3):
        found = system.multiply(system.integers(np.asarray([3, -5, 0]), den), system.number(Fraction(den)))
        np.testing.assert_array_equal(found, system.values(np.asarray([3, -5, 0])))


def test_sums_of_products_in_steps() -> None:
    """Along axes of any length, where factors vary along some of them."""
    a, b = np.arange(6.0).reshape(3, 2, 1), np.arange(2.0, 10).reshape(1, 2, 4)
    cases = (([a, b], (3, 2, 4), (a * b).sum((1, 2))), ([a], (3, 2, 1), a.sum((1, 2))), ([b[:, :1]], (1, 1, 4), b[:, :1].sum((1, 2))))
    for factors, shape, wanted in cases:
        np.testing.assert_array_equal(uncontracted(Machine("float64"), factors, 1, shape), wanted)
        np.testing.assert_array_equal(contracted(factors, 1, shape), wanted)


@pytest.mark.parametrize("last", [3.0, -inf, inf])
def test_infinity_times_a_sum_is_no_sum_of_infinities(last: float) -> None:
    """Σ[k] A[k]·B[k]·C: what leaves the sum for its product must be a number."""
    factors = [np.asarray([[2.0, -1.0]]), np.asarray([[1.0, 1.0]]), np.full((1, 1), last)]
    with np.errstate(all="ignore"):
        found, wanted = Strict().contract(factors, 1, (1, 2)), uncontracted(Strict(), factors, 1, (1, 2))
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).all() == np.isinf(last) and found.shape == (1,)
