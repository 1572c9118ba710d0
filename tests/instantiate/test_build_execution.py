"""Every form that the search finds for the catalogue is built into kernels, and these compute what the expression says, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import walk
from einnet.expr.values.evaluate import evaluate
from einnet.search.forms import Form
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import integers, run
from tests.search.catalogue import CATALOGUE, GROUPS, expression

MOST = 60
"""Forms per expression that a default run executes, spread over all that were found."""


def verify(form: Form, values: dict[str, np.ndarray], wanted: np.ndarray) -> None:
    """The kernels' result: exact for integers, up to rounding where a step of class precision has fractions in it."""
    scopes = set(walk(form.tree))
    assert all(s in scopes for s, _ in form.matches), "a matched scope is no part of the tree"
    got = run(form.tree, dict(form.matches), values)
    message = f"{form.operators()}\n{form.tree}"
    if form.derivation.kind == "precision":
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9, err_msg=message)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=message)


def sweep(name: str, depth: int, most: int, states: int = 3000) -> int:
    """Verify forms of one expression; their number."""
    source = expression(name)
    values = integers(source)
    wanted = evaluate(source, values)
    forms = Space(Options(max_depth=depth, states=states, intensity=0.0)).forms(source)
    chosen = forms if len(forms) <= most else [forms[n * len(forms) // most] for n in range(most)]
    for form in chosen:
        verify(form, values, wanted)
    return len(chosen)


SMALL = [name for name in CATALOGUE if not name.startswith("transposed: k") or name.endswith("p1")]


@pytest.mark.parametrize("name", SMALL)
def test_forms_compute_the_expression(name: str) -> None:
    assert sweep(name, 1, MOST) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CATALOGUE if n != "tails: two convolutions"])
def test_forms_of_depth_3_compute_the_expression(name: str) -> None:
    assert sweep(name, 3, 1000) > 0


@pytest.mark.slow
def test_forms_of_two_scopes_compute_the_expression() -> None:
    assert sweep("tails: two convolutions", 1, 700) > 100


def test_the_catalogue_has_every_group() -> None:
    assert {"convolutions", "matmuls", "siblings", "tails", "transposed"} == set(GROUPS) and len(CATALOGUE) > 140
