"""Choices by remainders as tables: the same values, from as few entries as the iterators of a choice have together, and only where that is fewer."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.nodes import Read, Scope, Tensor, children
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate import choices
from einnet.instantiate.choices import tabled
from tests.instantiate.numpy_kernels import integers

CHOSEN = "A : f32[12,5]\nL[{loops}] {sums} A[h,w]*{choice}"
EVEN = "select(h%2==0, 2, -1)"


def stored(scope: Scope) -> Tensor:
    values = tuple(Fraction(int(v)) for v in evaluate(scope, {}).reshape(-1))
    return Tensor("table", scope.shape, values=values)


def table_of(scope: Scope) -> tuple[int, ...] | None:
    """The shape of the table from which a choice is read; the values are those of the choice."""
    body = tabled(scope, stored)
    values = integers(scope)
    after = Scope(scope.loops, scope.sums, body, scope.reduce)
    np.testing.assert_array_equal(evaluate(after, values), evaluate(scope, values))
    return next((r.base.shape for r in children(body) if isinstance(r, Read) and r.base.name == "table"), None)  # type: ignore[union-attr]


@pytest.mark.parametrize(("loops", "sums", "choice", "shape"), [
    ("h<12,w<5", "", EVEN, (12,)), ("w<5", "Σ[h<12]", EVEN, (12,)), ("w<5,h<12", "", "select((h+w)%2==0, 2, -1)", None),
    ("w<5,h<12,n<2", "", "select((h+w)%2==0, 2, -1)", (5, 12)), ("h<12,w<1", "", EVEN, None), ("3<=h<12,w<5", "", EVEN, None),
    ("3<=h<12,w<5,n<2", "", "select((h+w)%2==0, 2, -1)", None), ("h<12,w<5", "", "select(h-3>=0, 2, -1)", None),
    ("h<12,w<5", "", "select(h%2==0, 2, A[h,0])", None), ("h<12,w<5", "", "select(h%2==0, A[h,0], 2)", None),
    ("h<12,w<5", "", "select(w-2>=0 & h//3-1==0, 3, 1)", None), ("h<12,w<5,n<3", "", "select(w-2>=0 & h//3-1==0, 3, 1)", (12, 5)),
])  # fmt: skip
def test_tables_have_the_values_of_choices(loops: str, sums: str, choice: str, shape: tuple[int, ...] | None) -> None:
    assert table_of(parse(CHOSEN.format(loops=loops, sums=sums, choice=choice))) == shape


def test_a_table_that_is_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = parse(CHOSEN.format(loops="h<12,w<5", sums="", choice=EVEN))
    for largest, shape in ((12, (12,)), (11, None)):
        monkeypatch.setattr(choices, "LARGEST", largest)
        assert table_of(scope) == shape
