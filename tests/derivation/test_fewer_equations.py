"""Recursions with fewer equations give the same, and those that do not are told."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.fewer_equations import check_recursions, inlined
from einnet.errors import EinNetError
from einnet.expr.recursions.recursion_text import parse_recursion, recursion_text
from einnet.expr.recursions.recursion_values import evaluate_recursion

MANY = """
K : f32[6,3]
V : f32[6,2]
g : f32[6]
k : f32[6,3,1]
kept : f32[6,3,2]
found : f32[6,1,2]
by : f32[6,1,2]
wide : f32[6,3,2]
S : f32[6,3,2]
asked : f32[6,1,2]
y : f32[6,2]
before
k = L[t<6,a<3,b<1] K[t,a]
at each of 6 times
kept = L[t<6,a<3,b<2] g[t]*S[t-1,a,b]
found = L[t<6,a<1,b<2] Σ[c<3] k[t,c,0]*kept[t,c,b]
by = L[t<6,a<1,b<2] tanh(V[t,b] + (-1)*found[t,a,b])
wide = L[t<6,a<3,b<2] k[t,a,0]*by[t,0,b]
S = L[t<6,a<3,b<2] kept[t,a,b] + wide[t,a,b]
asked = L[t<6,a<1,b<2] Σ[c<3] k[t,c,0]*S[t,c,b]
y = L[t<6,a<2] asked[t,0,a]
gives y
"""


def test_what_is_cheap_to_say_again_is_no_equation() -> None:
    given = parse_recursion(MANY)
    found = inlined(given)
    assert [e.tensor.name for e in found.equations] == ["found", "by", "S", "y"]
    check_recursions(given, found)
    rng = np.random.default_rng(0)
    values = {t.name: rng.standard_normal(t.shape) for t in given.inputs}
    np.testing.assert_allclose(evaluate_recursion(found, values)["y"], evaluate_recursion(given, values)["y"], rtol=1e-12)


def test_what_is_asked_for_stays() -> None:
    found = inlined(parse_recursion(MANY.replace("gives y", "gives y, kept, k")))
    assert {"kept", "k"} <= {e.tensor.name for e in found.equations}


def test_what_is_read_at_another_time_stays() -> None:
    """An equation of the time before would be one of the time before that."""
    text = MANY.replace("tanh(V[t,b] + (-1)*found[t,a,b])", "tanh(V[t,b] + (-1)*found[t,a,b] + wide[t-1,0,b])")
    given = parse_recursion(text)
    found = inlined(given)
    assert "wide" in {e.tensor.name for e in found.equations}
    check_recursions(given, found)


@pytest.mark.parametrize(("old", "new"), [
    ("g[t]*S[t-1,", "g[t]*S[t-2,"), ("g[t]*S[t-1,", "g[t-1]*S[t-1,"), ("g[t]*S[t-1,a,b]", "g[t]*S[t-1,b,b]"), ("(-1)*found", "found"),
    ("kept[t,a,b] + wide[t,a,b]", "kept[t,a,b] + (-1)*wide[t,a,b]"), ("Σ[c<3] k[t,c,0]*S", "Σ[c<2] k[t,c,0]*S"), ("tanh(", "sin("),
    ("K[t,a]", "K[t-1,a]"), ("asked[t,0,a]", "asked[t,0,0]"), ("S[t,c,b]", "S[t-1,c,b]"),
])  # fmt: skip
def test_another_recursion_is_told(old: str, new: str) -> None:
    assert old in MANY
    with pytest.raises(EinNetError):
        check_recursions(parse_recursion(MANY), inlined(parse_recursion(MANY.replace(old, new))))


def test_a_state_that_is_left_out_proves_nothing() -> None:
    """S would be written out for ever."""
    given = parse_recursion(MANY)
    text = recursion_text(given)
    lines = [x for x in text.splitlines() if not x.startswith(("S ", "wide ", "asked ", "kept ", "found ", "by ", "y = "))]
    other = "\n".join(x if x != "at each of 6 times" else "at each of 6 times\ny = L[t<6,a<2] 0*K[t,0]" for x in lines)
    with pytest.raises(EinNetError, match="depends on itself"):
        check_recursions(given, parse_recursion(other))
    with pytest.raises(EinNetError, match="other times"):
        check_recursions(given, parse_recursion(other.replace("gives y", "gives k")))
