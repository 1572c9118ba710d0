"""Forms of random expressions: accepted by the checker, and their kernels compute the expression."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einnet.derivation.checker.check import check
from einnet.expr.nodes import Scope
from einnet.expr.values.evaluate import evaluate
from einnet.search.space import Options, Space
from tests.derivation.generators import correlations, readers, scopes
from tests.derivation.siblings import concatenations, siblings
from tests.instantiate.numpy_kernels import integers, run

SOURCES = st.one_of(correlations(), correlations(), readers(), scopes(), siblings(), concatenations())


def verify(source: Scope, depth: int, most: int) -> None:
    values = integers(source)
    wanted = evaluate(source, values)
    forms = Space(Options(max_depth=depth, intensity=0.0, states=200)).forms(source)
    assert any(f.tree.box == source.box and not f.matches for f in forms), "the plain form is always there"
    for form in forms[:most]:
        check(form.derivation)
        got = run(form.tree, dict(form.matches), values)
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8, err_msg=f"{source}\n{form.operators()}\n{form.tree.text()}")


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(SOURCES)
def test_forms_of_depth_1(source: Scope) -> None:
    verify(source, 1, 20)


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(SOURCES)
def test_forms_of_depth_2(source: Scope) -> None:
    verify(source, 2, 200)
