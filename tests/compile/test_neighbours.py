"""What times at one size tell about another."""

from collections.abc import Sequence
from math import inf

import pytest

from einnet.compile.ranges.follow import as_expected
from einnet.compile.ranges.neighbours import DISTANCE, Known, Neighbours, doubt
from einnet.derivation.steps import Step
from einnet.expr.notation.text import parse
from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Kernel, Matmul, dense_view
from einnet.search.choosing.candidate import DOUBT, Candidate, Choice
from einnet.search.forms import Form, plain

FORM = plain(parse("L[m<4] A[m]"))


def product(n: int) -> Matmul:
    return Matmul(dense_view("a", (n, n)), dense_view("b", (n, n)), dense_view("c", (n, n)))


def candidate(*kernels: Kernel) -> Candidate:
    return Candidate(FORM, Build(list(kernels)))


class Table:
    """Times of products by their size, and what they take at least: their size."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds

    def known(self, kernels: Sequence[Kernel]) -> list[Known]:
        sizes = [k.c.shape[0] for k in kernels]
        return [(self.seconds.get(n), float(n)) for n in sizes]


def test_a_kernel_is_expected_to_be_as_much_slower_than_it_might_be_as_at_the_nearest_size():
    found = Neighbours(Table({10: 30.0, 40: 40.0, 3: 9.0}))
    found.note(1, [("f", candidate(product(10)))], 30.0)
    found.note(4, [("f", candidate(product(40)))], 40.0)
    expected, least = found.expected(5, "f", candidate(product(50)))
    assert expected == [50.0]
    assert least == [pytest.approx(50.0 / doubt(5, 4))]
    assert found.expected(1, "f", candidate(product(3)))[0] == [9.0]
    assert found.expected(2, "other", candidate(product(20))) is None


def test_where_a_form_has_another_number_of_kernels_the_factor_of_all_counts():
    found = Neighbours(Table({10: 30.0, 20: 30.0}))
    found.note(4, [("f", candidate(product(10), product(20)))], 60.0)
    assert found.expected(8, "f", candidate(product(5), product(5), product(5)))[0] == [10.0] * 3


def test_what_lost_clearly_nearby_is_not_tried_and_what_lost_far_away_is():
    found = Neighbours(Table({10: 10.0, 15: 15.0}))
    found.note(16, [("best", candidate(product(10))), ("slow", candidate(product(15)))], 10.0)
    assert found.promising(16, "best")
    assert not found.promising(15, "slow")
    assert found.promising(1, "slow")
    assert found.promising(15, "never seen")
    assert doubt(1, 16) == pytest.approx(DOUBT * (1 + 4 * DISTANCE))


def test_what_was_not_measured_counts_by_what_it_takes_at_least():
    found = Neighbours(Table({}))
    found.note(16, [("f", candidate(product(100)))], 10.0)
    assert not found.promising(16, "f")
    assert found.expected(8, "f", candidate(product(50))) is None


def test_the_whole_is_told_only_where_each_kernel_is():
    found = Neighbours(Table({10: 30.0, 7: 8.0}))
    found.note(2, [("f", candidate(product(10), product(20)))], 60.0)
    assert found.total(4, "f", candidate(product(12), product(7))) == 44.0
    assert found.total(4, "f", candidate(product(12), product(24))) is None


def test_where_time_was_too_short_that_runs_which_is_expected_to_take_least():
    own, quick, unknown = (candidate(product(n)) for n in (10, 4, 1))
    quick.form = unknown.form = Form(FORM.start, FORM.tree, (), (Step("sum-split", "", FORM.start, FORM.tree),))
    choice = Choice(FORM.start, [own, quick, unknown], own, own)
    as_expected(choice, lambda c: {id(own): 10.0, id(quick): 4.0}.get(id(c), inf))
    assert choice.best is quick
    as_expected(choice, lambda c: {id(own): 10.0, id(quick): 9.9}.get(id(c), inf))
    assert choice.best is own
    as_expected(choice, lambda c: {id(quick): 4.0}.get(id(c), inf))
    assert choice.best is own
