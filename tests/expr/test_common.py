"""Conditions that all terms of a sum have in common: written, or told by the edges of what a term reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from einnet.expr.index import Index, var
from einnet.expr.nodes import Cond, Iter, Read, Tensor
from einnet.expr.normal.common import apart_from_conditions
from einnet.expr.normal.terms import Divisor, Term

A, B = Tensor("A", (40,)), Tensor("B", (40,))
X = var("x")
BOX = {"x": (0, 12), "y": (0, 4)}


def at(index: Index) -> Read:
    return Read(A, (index,))


def plain(*conds: Cond, divisors: Sequence[Divisor] = (), sums: Sequence[Iter] = ()) -> Term:
    """A term that reads an element which is there in any case."""
    return Term(sums=tuple(sums), conds=conds, divisors=tuple(divisors), factors=(Read(B, (var("y"),)),))


def from_(n: int) -> Cond:
    """x >= n."""
    return Cond(X - n)


ODD, EVEN = (X + 1, 2), (X, 2)
BOTH = Cond(X + var("y") - 3)
EDGE = Term(factors=(at(X - 3),))
HALF = Term(factors=(Read(A, (Index(X.terms, 0, 2),)),))


@pytest.mark.parametrize(("terms", "bare", "conds", "divisors"), [
    ((plain(from_(3)), plain(from_(3))), (plain(), plain()), (from_(3),), ()),
    ((plain(from_(3)), plain(from_(5))), (plain(), plain(from_(5))), (from_(3),), ()),
    ((plain(from_(3)), plain()), None, (), ()),
    ((EDGE, plain(from_(3))), (EDGE, plain()), (from_(3),), ()),
    ((EDGE, plain(from_(2))), (EDGE, plain()), (from_(2),), ()),
    ((EDGE, plain(from_(4))), None, (), ()),
    ((plain(from_(3), Cond(9 - X)), plain(from_(3))), (plain(Cond(9 - X)), plain()), (from_(3),), ()),
    ((plain(from_(3), Cond(9 - X)), plain(Cond(9 - X), from_(3))), (plain(), plain()), (from_(3), Cond(9 - X)), ()),
    ((plain(Cond(X - var("z"))), plain(Cond(X - var("z")))), None, (), ()),
    (2 * (plain(from_(3), sums=(Iter("x", 0, 12),)),), None, (), ()),
    ((plain(from_(3), sums=(Iter("k", 0, 2),)), plain(from_(3))), (plain(sums=(Iter("k", 0, 2),)), plain()), (from_(3),), ()),
    ((plain(divisors=(EVEN,)), plain(divisors=(EVEN,))), (plain(), plain()), (), (EVEN,)),
    ((plain(divisors=(EVEN,)), plain(divisors=(ODD,))), None, (), ()),
    ((plain(divisors=(EVEN,)), plain()), None, (), ()),
    ((plain(divisors=(EVEN, ODD)), plain(divisors=(ODD,))), (plain(divisors=(EVEN,)), plain()), (), (ODD,)),
    ((HALF, plain(divisors=(EVEN,))), (HALF, plain()), (), (EVEN,)),
    ((HALF, plain(divisors=(ODD,))), None, (), ()),
    (2 * (plain(divisors=(EVEN,), sums=(Iter("x", 0, 12),)),), None, (), ()),
    ((plain(from_(3), divisors=(EVEN,)), plain(from_(3))), (plain(divisors=(EVEN,)), plain()), (from_(3),), ()),
    ((plain(from_(3), divisors=(EVEN,)), plain(divisors=(EVEN,))), (plain(from_(3)), plain()), (), (EVEN,)),
    ((plain(BOTH), plain(BOTH)), (plain(), plain()), (BOTH,), ()), ((), None, (), ()),
])  # fmt: skip
def test_what_all_terms_have_is_taken_from_them(
    terms: Sequence[Term], bare: Sequence[Term] | None, conds: Sequence[Cond], divisors: Sequence[Divisor]
) -> None:
    """`bare` None: as they were."""
    assert apart_from_conditions(list(terms), BOX) == (tuple(terms if bare is None else bare), conds, divisors)
