"""The points at which an expression changes what it computes, and the limits of its index arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from einnet.derivation.checker.check import Difference, check_equal
from einnet.derivation.checker.events import points_of_events
from einnet.derivation.checker.index_limits import LARGEST, overflow, reach
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor
from einnet.expr.notation.text import parse

DECLARED = "A : f32[500]\nB : f32[900,900]\n"


def places(body: str, other: str | None = None, declared: str = DECLARED) -> set[int]:
    """Values of h."""
    scope = parse(f"{declared}L[h<900] {body}")
    return {p["h"] for p in points_of_events(scope, scope if other is None else parse(f"{declared}L[h<900] {other}")) if "h" in p}


@pytest.mark.parametrize(("body", "expected"), [
    ("select(h>=321, 2, 3)", {320, 321}), ("select(h==77, 2, 3)", {0, 77, 78}), ("select(700-h>=0, 2, 3)", {700, 701}),
    ("select(3*h>=399, 2, 3)", {133}), ("select(3*h>=400+2, 2, 3)", {134}), ("select(h>=100 & h>=50, 2, 3)", {99, 100}),
    ("select(h>=50, select(h>=40, 2, 3), 4)", {49, 50}), ("select(h>=50, 4, select(h>=40, 2, 3))", {39, 40, 49, 50}),
    ("A[h-100]", {99, 100, 599, 600}), ("A[h]", {0, 499, 500}), ("A[h+350]", {149, 150}), ("A[2*h-100]", {50, 300}), ("A[(h+50)/2]", set()),
    ("select(h>=120, A[h-100], 0)", {119, 120, 599, 600}), ("B[h,h]", {0, 899}), ("B[h-3,h+5]", {2, 3, 894, 895}),
    ("{L[x<800] select(x>=123, 2, 3)}[h+7]", {115, 116, 792, 793}), ("{L[10<=x<800] select(x>=123, 2, 3)}[h]", {9, 10, 122, 123, 799, 800}),
    ("{L[x<800] {L[y<800] select(y>=123, 2, 3)}[x-40]}[h]", {0, 39, 40, 162, 163, 799, 800}),
    ("relu(val(h) - 321)", {0, 1, 2, 320, 321, 322}), ("relu(val(2*h) - 321)", {0, 1, 160, 161}), ("relu(val(h) - 7/2)", {0, 1, 2, 3, 4}),
    ("2", set()), ("relu(val(899-h) - 321)", {577, 578, 579, 897, 898, 899}), ("select(700-h==0, 2, 3)", {0, 700, 701}),
    ("{L[x<900] relu(val(x) - 321)}[h]", {0, 1, 2, 320, 321, 322, 899}), ("relu(val(h/2) - 321)", {0, 2, 4, 640, 642, 644}),
    ("relu(val(h) - 899)", {0, 1, 2, 898, 899}), ("relu(2*val(h) - 641)", {0, 1, 2, 3, 319, 320, 321, 640, 641, 642}),
])  # fmt: skip
def test_where_something_changes(body: str, expected: set[int]) -> None:
    assert places(body) == expected


@pytest.mark.parametrize(("body", "expected"), [
    ("B[h-3,899-h]", {2, 3, 899}), ("B[h/2,h-100]", {100}), ("B[h/3,h-100]", {99}), ("{L[10<=x<800,y<900] B[x,y]}[h/2,h+885]", set()),
    ("{L[x<100,y<900] B[x,y]}[h/2,h-100]", {100, 198, 200}), ("{L[x<100,y<900] B[x,y]}[h/2,h-198]", {198, 200}),
    ("{L[x<450] select(x>=123, 2, 3)}[h/2]", {0, 244, 246, 898}), ("{L[x<450] select(x>=123, 2, 3)}[(898-h)/2]", {0, 652, 654, 898}),
    ("B[h+1,h-900]", set()), ("B[h+350,h-550]", {549, 550}), ("B[h+350,h-551]", set()),
])  # fmt: skip
def test_an_edge_counts_where_all_other_indices_are_inside(body: str, expected: set[int]) -> None:
    """A place between two elements is outside, too."""
    assert places(body) == expected


def test_an_event_has_its_own_loops_alone_and_comes_once() -> None:
    apart = parse(f"{DECLARED}L[h<900,w<900] select(h>=100 & w>=5, 2, 3)")
    assert list(points_of_events(apart, apart)) == [{"h": 99}, {"h": 100}, {"w": 4}, {"w": 5}, {"h": 100, "w": 5}]
    twice = parse(f"{DECLARED}L[h<900] A[h-100]*A[h-100]")
    assert len(list(points_of_events(twice, twice))) == 4
    summed = parse(f"{DECLARED}L[h<900] Σ[r<5] A[r+497]")
    assert list(points_of_events(summed, summed)) == [], "the end of A is met whatever h is"


def test_events_of_sums_are_tied_to_loops() -> None:
    """The least place at which an element beyond the border is read is one that a summand reaches."""
    found = places("Σ[r<5] A[h+r-2]")
    assert found <= {*range(5), *range(494, 505)} and found & {0, 1} and found & set(range(494, 502))
    scope = parse(f"{DECLARED}L[h<900,w<900] Σ[r<5] A[r+100] + A[h]")
    assert all(set(p) == {"h"} for p in points_of_events(scope, scope)), "nothing is said of loops that an event has nothing to do with"


@pytest.mark.parametrize(("body", "index", "expected"), [
    ("relu(val(h) + val(w) - 300)", lambda h, w: h + w - 300, {-1, 0, 1, 2, 299, 300, 301}), ("relu(val(h)+A[w])", lambda h, w: h, set()),
    ("relu(3*val(h) - 2*val(w) - 7)", lambda h, w: 3 * h - 2 * w - 7, {*range(-1, 5), 6, 7, 8}),
    ("relu(1/2*val(h) + val(w) - 300)", lambda h, w: h / 2 + w - 300, {-1, 0, 1, 2, 299, 300, 301, 599, 600, 601}),
    ("relu(val(h)/4 + val(w)/4 - 90)", lambda h, w: (h + w) / 4 - 90, {-1, 0, 1, 2, 3, 4, 5, 21, 22, 23, 89, 90, 91}),
    ("relu(2*(val(h) + 3*val(w)) - 5)", lambda h, w: 2 * h + 6 * w - 5, {-5, -3, -1, 1, 3, 5, 7}),
    ("relu(val(h)*A[w] + val(h) - 5)", lambda h, w: h, set()),
    ("relu(val(h+2) + val(2*w) - 5)", lambda h, w: h + 2 * w - 3, {-1, 0, 1, 2, 4, 5, 6}), ("relu(exp(val(h)) + val(w) - 5)", lambda h, w: h, set()),
])  # fmt: skip
def test_sums_of_numbers_that_iterators_make(body: str, index: Callable[[int, int], float], expected: set[int]) -> None:
    """They are at and beside constants of both sides, and 0, where they have whole values there."""
    scope = parse(f"{DECLARED}L[h<900,w<900] {body}")
    assert {index(**p) for p in points_of_events(scope, scope) if len(p) == 2} == expected


@pytest.mark.parametrize(("body", "expected"), [
    ("val(h)*val(w) - 35", {(1, 1), (1, 35), (35, 1), (5, 7), (7, 5)}), ("val(h+1)*val(2*w) - 6", {(0, 3), (2, 1)}),
    ("5*val(h)*val(w) - 35", {(1, 1), (1, 35), (35, 1), (5, 7), (7, 5), (1, 5), (5, 1), (1, 7), (7, 1)}), ("val(h/2)*val(w) - 35", set()),
    ("val(h)*val(w/2) - 35", set()), ("val(h)*val(w)*val(h) - 35", set()), ("val(h)*A[w] - 35", set()), ("max(val(h),val(w)) - 35", set()),
    ("val(h)*val(w) - 10000", {(1, 1), (250, 40), (40, 250), (400, 25), (25, 400), (500, 20), (20, 500), (625, 16), (16, 625)}),
    ("val(899-h)*val(899-w) - 35", {(898, 898), (898, 864), (864, 898), (894, 892), (892, 894)}),
    ("val(h)*val(w) + val(w) - 35", {(1, 1), (1, 35), (35, 1), (5, 7), (7, 5)}),
])  # fmt: skip
def test_products_of_numbers_that_iterators_make(body: str, expected: set[tuple[int, int]]) -> None:
    """Two of them make one of the constants: by its greatest divisors that are not too large, and what they leave of it."""
    scope = parse(f"{DECLARED}L[h<900,w<900] relu({body})")
    assert {(p["h"], p["w"]) for p in points_of_events(scope, scope) if len(p) == 2} == expected


def test_conditions_around_hold() -> None:
    """An edge that lies where nothing is computed is none."""
    assert places("select(h>=200, select(h>=100, 2, 3), 4)") == {199, 200}
    assert places("select(h>=200, {L[x<900] A[x]}[h], 4)") == {199, 200, 499, 500, 899}


@pytest.mark.parametrize("body", [
    "select(h==77 & w==5, 2, 3)", "select(h==77, select(w==5, 2, 3), 3)", "select(h==77, {L[x<900] select(x==5, 2, 3)}[w], 3)",
])  # fmt: skip
def test_all_conditions_that_stand_together_hold_in_one_place(body: str) -> None:
    scope = parse(f"{DECLARED}L[h<900,w<900] {body}")
    assert {"h": 77, "w": 5} in list(points_of_events(scope, scope))


def test_entries_of_tables_that_differ() -> None:
    """The place of an entry has all of its coordinates."""
    tables = "C : weight f32[2,3] = [1,2,3,4,5,6]\n", "C : weight f32[2,3] = [1,2,3,4,7,6]\n"
    sides = [parse(f"{t}L[i<2,h<3] C[i,h]") for t in tables]
    assert {"i": 1, "h": 1} in list(points_of_events(*sides))
    assert {"i": 1, "h": 1} not in list(points_of_events(sides[0], sides[0]))


@pytest.mark.parametrize(("index", "point"), [("1-i,2-h", {"i": 0, "h": 1}), ("i,h/2", {"i": 1, "h": 2})])
def test_an_entry_is_where_it_is_read(index: str, point: dict[str, int]) -> None:
    tables = "C : weight f32[2,3] = [1,2,3,4,5,6]\n", "C : weight f32[2,3] = [1,2,3,4,7,6]\n"
    sides = [parse(f"{t}L[i<2,h<3] C[{index}]") for t in tables]
    assert [p for p in points_of_events(*sides) if len(p) == 2] == [point]


def test_entries_of_tables_of_other_shapes_are_not_compared() -> None:
    two = "C : weight f32[2,3] = [1,2,3,4,5,6]\n"
    for other in ("D : weight f32[3,2] = [1,2,3,4,7,6]\n", "D : weight f32[2,2] = [1,2,3,7]\n"):
        sides = [parse(f"{two}{other}L[i<2,h<3] {body}") for body in ("C[i,h]", "D[h,i]")]
        assert not any(len(p) == 2 for p in points_of_events(*sides))
    both = [parse(f"{two}D : weight f32[2,3] = [1,2,3,4,7,6]\nL[i<2,h<3] {body}") for body in ("C[i,h]", "C[i,h]*D[i,h]")]
    assert not any(len(p) == 2 for p in points_of_events(*both)), "both sides read C"


def table(name: str, numbers: list[int], rows: int = 64) -> str:
    return f"{name} : weight f32[{rows},{len(numbers) // rows}] = [{','.join(map(str, numbers))}]\nA : f32[100000]\n"


COUNTED, ONES = list(range(1, 4097)), [1] * 4096
UNIT = [int(i == j) for i in range(64) for j in range(64)]


@pytest.mark.parametrize("wrong", [0, 37 * 64 + 21, 4095])
@pytest.mark.parametrize(("numbers", "loops", "one", "other"), [
    (COUNTED, "i<64,h<64,w<100000", "D[i,h]*A[w]", "C[i,h]*A[w]"), (COUNTED, "w<100000,h<64,i<64", "relu(D[i,h]*A[w])", "relu(C[i,h]*A[w])"),
    (COUNTED, "w<100000,h<4096", "D[h//64,h%64]*A[w]", "C[h//64,h%64]*A[w]"), (ONES, "i<64,h<64,w<100000", "D[i,h]*A[w]", "A[w]"),
    (UNIT, "i<64,h<64,w<100000", "D[i,h]*A[w]", "select(i==h, A[w], 0)"),
    (COUNTED, "i<64,h<64,w<100000", "{L[x<64,y<64,z<100000] D[y,x]*A[z]}[h,i,w]", "C[i,h]*A[w]"),
])  # fmt: skip
def test_one_wrong_entry_of_a_table_is_found(numbers: list[int], loops: str, one: str, other: str, wrong: int) -> None:
    """Among too many points to evaluate all."""
    changed = [x + 2 * (n == wrong) for n, x in enumerate(numbers)]
    with pytest.raises(Difference):
        check_equal(parse(f"{table('D', changed)}L[{loops}] {one}"), parse(f"{table('C', numbers)}L[{loops}] {other}"))


@pytest.mark.parametrize(("index", "most"), [
    (2 * var("h") + 5, 19), (-2 * var("h") + 5, 19), (3 * var("n") - 4, 19), (var("n"), 5), (Index((), -7), 7), (var("one"), 1),
    (var("h") // 3, 7), (9 * (var("h") // 3), 18), (9 * (var("h") // 3) - 1, 19), ((7 * var("h") + 5) // 100, 54),
])  # fmt: skip
def test_the_greatest_number_on_the_way(index: Index, most: int) -> None:
    assert reach(index, {"h": (0, 8), "n": (-5, 2), "one": (0, 1)}) == most


def test_the_largest_number_is_allowed_and_no_larger_one() -> None:
    def at(index: Index, shape: tuple[int, ...] = (8,)) -> str:
        return overflow(Scope((Iter("h", 0, 8),), (), Read(Tensor("A", shape), (index,) * len(shape))))

    assert at(var("h") + LARGEST - 7) == "" and "leaves 64 bits" in at(var("h") + LARGEST - 6)
    assert at(var("h"), (LARGEST,)) == "" and "addresses that leave 64 bits" in at(var("h"), (LARGEST + 1,))
    assert at(var("h"), (1 << 30, 1 << 31)) == "" and f"{1 << 31}x{1 << 31}" in at(var("h"), (1 << 31, 1 << 31))
    high = Scope((Iter("x", LARGEST - 8, LARGEST - 1),), (), parse("L[h<8] 1").body)
    assert overflow(high) == ""
    low = Scope((Iter("x", -LARGEST - 1, 8 - LARGEST - 1),), (), parse("L[h<8] 1").body)
    assert "addresses that leave 64 bits" in overflow(low)
    inside = Scope((Iter("x", 0, 8),), (), Read(Tensor("A", (8,)), (var("x") + LARGEST,)))
    assert "leaves 64 bits" in overflow(Scope((Iter("h", 0, 8),), (), Read(inside, (var("h"),))))
