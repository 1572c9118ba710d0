"""Reductions of what comes before a place or after it: in one pass the same as term by term, in every number system, and told from what is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einnet.expr.nodes import Scope, Select, tensors
from einnet.expr.notation.text import parse
from einnet.expr.prefixes import Prefix, passes, prefix
from einnet.expr.values.arithmetic import Machine
from einnet.expr.values.cancellation import Conditioned
from einnet.expr.values.evaluate import Evaluation, evaluate
from einnet.expr.values.points import effort, values_at
from einnet.expr.values.running_errors import Running, pair

DECLARED = "X : f32[5,40]\nY : f32[40,3]\nZ : f32[23]\n"
REDUCED = {
    "until a place": "L[x<5,t<40] Σ[s<40] select(t-s>=0, X[x,s], 0)",
    "before a place": "L[t<40,c<3] Σ[s<40] select(t-s-1>=0, Y[s,c], 0)",
    "from a place on": "L[t<40,c<3] Σ[s<40] select(s-t>=0, Y[s,c], 0)",
    "from five places after": "L[x<5,t<40] Σ[s<40] select(s-t-5>=0, X[x,s], 0)",
    "until five places after": "L[x<5,t<40] Σ[s<40] select(t-s+5>=0, X[x,s], 0)",
    "from five places before": "L[x<5,t<40] Σ[s<40] select(s-t+5>=0, X[x,s], 0)",
    "until a place of more": "L[-3<=t<60] Σ[s<23] select(t-s-2>=0, Z[s], 0)",
    "from a place of more on": "L[-3<=t<60] Σ[s<23] select(s-t+4>=0, Z[s], 0)",
    "of some of the terms": "L[2<=t<30,c<3] Σ[5<=s<38] select(t-s+4>=0, Y[s,c]*X[c,s-1], 0)",
    "beyond what is read": "L[t<50] Σ[-4<=s<44] select(t-s>=0, X[2,s], 0)",
    "the greatest until a place": "L[x<5,t<40] max[s<40] select(t-s>=0, X[x,s], -inf)",
    "the greatest of none": "L[x<5,t<40] max[s<40] select(t-s-20>=0, X[x,s], -inf)",
    "the least from a place on": "L[t<40,c<3] min[s<40] select(s-t-2>=0, Y[s,c], inf)",
}
OTHERS = {
    "at the places": "L[x<5,t<40] Σ[s<40] select(t-s==0, X[x,s], 0)",
    "in a band": "L[x<5,t<40] Σ[s<40] select(t-s>=0 & s-t+3>=0, X[x,s], 0)",
    "at every other": "L[x<5,t<40] Σ[s<20] select(t-2*s>=0, X[x,s], 0)",
    "that decays": "L[x<5,t<40] Σ[s<40] select(t-s>=0, exp(-1*val(t-s))*X[x,s], 0)",
    "with something for the rest": "L[x<5,t<40] Σ[s<40] select(t-s>=0, X[x,s], 1)",
    "of two sums": "L[t<40] Σ[s<40,c<3] select(t-s>=0, Y[s,c], 0)",
    "of few": "L[t<16,c<3] Σ[s<16] select(t-s>=0, Y[s,c], 0)",
    "a maximum with zeros": "L[x<5,t<40] max[s<40] select(t-s>=0, X[x,s], 0)",
}


def term_by_term(scope: Scope) -> Scope:
    """The same with its condition said twice."""
    assert isinstance(scope.body, Select)
    return replace(scope, body=replace(scope.body, conds=scope.body.conds * 2))


def drawn(scope: Scope) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(-9, 10, t.shape).astype(np.float64) for name, t in tensors(scope).items()}


@pytest.mark.parametrize("dtype", ["float64", "int", "mod"])
@pytest.mark.parametrize("name", REDUCED)
def test_one_pass_gives_what_every_term_by_itself_does(name: str, dtype: str) -> None:
    scope = parse(DECLARED + REDUCED[name])
    if dtype == "mod" and scope.reduce != "sum":
        pytest.skip("residues have no order")
    assert prefix(scope) is not None and prefix(term_by_term(scope)) is None
    found, wanted = (evaluate(s, drawn(scope), dtype=dtype) for s in (scope, term_by_term(scope)))
    assert found.shape == wanted.shape and (found == wanted).all()


@pytest.mark.parametrize("system", [Running(), Conditioned()], ids=lambda system: type(system).__name__)
@pytest.mark.parametrize("name", REDUCED)
def test_one_pass_errs_as_far_as_terms_that_are_added_in_any_order(name: str, system: Running) -> None:
    scope = parse(DECLARED + REDUCED[name])
    held = {n: pair(x + 0.1, 1e-6 * np.abs(x)) for n, x in drawn(scope).items()}
    found, wanted = (Evaluation(system, held).whole(s) for s in (scope, term_by_term(scope)))
    np.testing.assert_allclose(found.real, wanted.real, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_reduction_of_what_comes_before(name: str) -> None:
    assert prefix(parse(DECLARED + OTHERS[name])) is None


def test_what_a_reduction_is_told_as() -> None:
    found = prefix(parse(DECLARED + REDUCED["until five places after"]))
    assert isinstance(found, Prefix) and (found.axis, found.forward, found.more) == (1, True, 5)
    assert [passes(found._replace(over=found.over._replace(hi=n))) for n in (2, 3, 4, 5, 16, 17)] == [1, 2, 2, 3, 4, 5]


def test_an_infinity_is_in_what_comes_after_it_alone() -> None:
    scope = parse(DECLARED + REDUCED["until a place"])
    values = drawn(scope)
    values["X"][2, 7], values["X"][3, 9] = np.inf, np.nan
    found = evaluate(scope, values)
    assert np.isfinite(found[2, :7]).all() and np.isinf(found[2, 7:]).all()
    assert np.isfinite(found[3, :9]).all() and np.isnan(found[3, 9:]).all()


def test_at_points_it_takes_one_pass_too_and_effort_says_so() -> None:
    """A sum of all of 4,096 running sums: sixteen million terms by themselves."""
    text = "A : f32[4096]\nL[x<3] Σ[t<4096] {L[t<4096] Σ[s<4096] select(t-s>=0, A[s], 0)}[t]"
    scope = parse(text)
    assert effort(scope, 3) < 1 << 17 < 1 << 24 < effort(replace(scope, body=replace(scope.body, base=term_by_term(scope.nested[0]))), 3)
    asked = []

    def element(tensor: object, address: np.ndarray) -> np.ndarray:
        asked.append(address.size)
        return np.ones(address.shape)

    found = values_at(scope, np.array([[0], [2]]), Machine("float64"), element)
    assert found.tolist() == [4096 * 4097 / 2] * 2 and sum(asked) == 4096
