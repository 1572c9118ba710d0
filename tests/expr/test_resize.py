"""An expression at another size is what stands there when that size is written at once."""

from __future__ import annotations

from fractions import Fraction

import pytest

from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.expr.resize import Resize, doubtful

AT = 13
TEXTS = (
    "A : f32[@,8]\nL[m<@] A[m,3]", "A : f32[4]\nL[m<@] val(m-@) + 2", "A : f32[@@]\nL[i<@@,@<=j<@@] max[k<@] A[i+k-@]|-inf",
    "A : f32[@,6]\nL[m<@*6] A[m//6,m%6]", "A : f32[@@,5]\nL[i<5,m<@@] A[@*(m//@)+m%@,i]", "A : f32[9]\nL[m<@*6] A[(m+@)/@]|7",
    "A : f32[@]\nL[m<@] select(m>=2*@ & m%2==0, A[@-m], select(m<=@, val(@@-m), 5))",
    "A : f32[@,3]\nL[m<@] Σ[c<3] {L[m<@,c<3] exp(A[m,c])/2}[@-m,c]*{L[m<@,c<3] exp(A[m,c])/2}[m,c]",
)  # fmt: skip


def written(text: str, size: int) -> str:
    """@ is the size, @@ twice as much, @*6 six times."""
    return text.replace("@*6", str(6 * size)).replace("@@", str(2 * size)).replace("@", str(size))


@pytest.mark.parametrize("size", [2, 5, 13, 32])
@pytest.mark.parametrize("text", TEXTS)
def test_what_stands_there_at_another_size(text: str, size: int) -> None:
    resized = Resize(AT, size)
    assert resized.scope(parse(written(text, AT))) == parse(written(text, size))
    assert Resize(size, AT).integer(resized.integer(3 * AT)) == 3 * AT


@pytest.mark.parametrize(("value", "resized"), [(0, 0), (13, 5), (-26, -10), (12, 12), (14, 14), (169, 65)])
def test_multiples_follow_the_size_once(value: int, resized: int) -> None:
    assert Resize(AT, 5).integer(value) == resized


def test_parameters_follow_the_size_and_names_do_not() -> None:
    assert Resize(AT, 5).text("scope=0 h13=26 w'13 1.13 [13,12]") == "scope=0 h13=10 w'13 1.13 [5,12]"


def test_given_values_are_of_one_size() -> None:
    table = "T : weight f32[2] = [1, 2]\n"
    assert tensors(Resize(2, 2).scope(parse(f"{table}L[i<2] T[i]")))["T"].values == (1, 2)
    with pytest.raises(ValueError, match="the values of T are given"):
        Resize(2, 3).scope(parse(f"{table}L[i<2] T[i]"))


@pytest.mark.parametrize(("body", "told"), [
    ("A[i]+val(i)*(5/26)", "5/26"), ("A[i]+39", "39"), ("exp({L[j<9] A[j]-13/2}[i])", "-13/2"), ("0", None), ("12*A[i]/14", None),
    ("A[i]+val(i+13)", None),
])  # fmt: skip
def test_numbers_that_a_size_may_have_made(body: str, told: str | None) -> None:
    found = doubtful(parse(f"A : f32[9]\nL[i<9] {body}"), AT)
    assert found is None if told is None else found is not None and abs(Fraction(found)) in {abs(Fraction(told)), 1 / abs(Fraction(told))}
