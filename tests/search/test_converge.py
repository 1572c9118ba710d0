"""Converging derivation ends, each of its steps lowers the distance, and what it reaches is the operator."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einnet.derivation.checker.check import check
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.substitute import skew
from einnet.derivation.steps import Derivation
from einnet.expr.nodes import Scope, index_functions
from einnet.expr.notation.text import parse
from einnet.instantiate.matching.mismatches import COUNTED, Permute, Relayout
from einnet.instantiate.matching.types import Match, Table
from einnet.instantiate.registry import TABLES, tables_for
from einnet.search.converge import LIMIT, Converged, Distance, converge, distance
from einnet.search.space import Options, Space
from tests.derivation.generators import correlations, scopes
from tests.search.catalogue import CATALOGUE, expression

MENDING = {kind.rule for kind in (*COUNTED, Relayout, Permute)}


def distances(found: Converged, table: Table) -> list[Distance]:
    """The distance of the matched scope before every step that mends a mismatch."""
    mending = [s for s in found.steps if s.rule in MENDING and s.before.sums]
    result: list[Distance] = []
    for n, step in enumerate(mending):
        left = table.match(step.before)
        assert isinstance(left, list)
        result.append(distance(step.before, left, any(s.rule == Permute.rule for s in mending[:n])))
    return result


def agrees(source: Scope, table: Table) -> bool:
    """The result is a match with a falling distance, or mismatches with reasons; whether it is a match."""
    found = converge(source, table)
    if not isinstance(found, Converged):
        assert found and all(m.why for m in found) and "did not end" not in found[0].why
        return False
    assert len(found.steps) < 4 * LIMIT
    assert str(table.match(found.core)) == str(found.match)
    falling = distances(found, table)
    assert all(a > b for a, b in pairwise(falling)), (falling, [(s.rule, s.parameters) for s in found.steps])
    derivation = Derivation(source, found.steps)
    assert derivation.end.key == found.tree.key
    check(derivation)
    return True


@pytest.mark.parametrize("table", tables_for("cuda"), ids=lambda t: t.name)
def test_the_catalogue_converges(table: Table) -> None:
    names = [n for n in CATALOGUE if not n.startswith("transposed: k") or n.endswith("p1")]
    converged = [n for n in names if agrees(normalise(expression(n))[0], table)]
    assert len(converged) > 20, converged


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(st.one_of(correlations(), correlations(), correlations(), scopes()), st.sampled_from(TABLES))
def test_random_sums_of_products_converge_or_say_why_not(source: Scope, table: Table) -> None:
    agrees(normalise(source)[0], table)


def test_a_match_needs_no_step() -> None:
    source = expression("matmuls: matmul")
    found = converge(source, TABLES[0])
    assert isinstance(found, Converged) and found.steps == () and found.tree == source and isinstance(TABLES[0].match(source), Match)


def test_a_loop_that_a_division_keeps_is_not_skewed_away() -> None:
    source: Scope = parse("A : f32[4,9]\nL[t<4,k<2] Σ[r<3] A[r+t,t+k+(k+t)//3]")
    index = next(ix for ix in index_functions(source.body) if any(not isinstance(a, str) for a, _ in ix.terms))
    assert skew(source, "k", index) is None


FLAT = "x : f32[1,4,4,6]\nw : weight f32[9,24]\n"
POOLED = "{L[n<1,h<2,w<2,c<6] max[r<2,s<2] x[n,2*h+r,2*w+s,c]|-inf}"
FLATTENED = f"{{L[m<1,k<24] {POOLED}[0,k//2%2,k%2,k//4]}}"


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("converging", [True, False])
def test_what_a_model_flattens_before_it_multiplies_it_is_its_own_operator(depth: int, converging: bool) -> None:
    """Normalisation merges the copy into the product, which no library takes by digits of a loop: it is stored flat, and nothing is derived."""
    scope = parse(f"{FLAT}L[m<1,n<9] relu({{L[m<1,n<9] Σ[k<24] {FLATTENED}[m,k]*w[n,k]}}[m,n])")
    forms = Space(Options(max_depth=depth, converge=converging)).forms(scope)
    own = [f for f in forms if f.unchanged and any("Matmul" in name for name in f.operators())]
    assert own
    for form in own:
        assert {proof.kind for proof in check(form.derivation)} == {"exact"}


def test_only_what_is_read_by_digits_of_a_sum_is_stored_for_nothing() -> None:
    """Loops of the result are divided by transposed convolutions and by enlarging, which are more than a copy."""
    stored = 0
    for name in (n for n in CATALOGUE if n.startswith("transposed")):
        forms = Space(Options(max_depth=0)).forms(expression(name))
        relaid = [f for f in forms if any(s.rule == Relayout.rule for s in f.steps)]
        stored += len(relaid)
        assert not any(f.unchanged for f in relaid), name
    assert stored


@pytest.mark.parametrize("index", ["n,(k+m)//4%2,(k+m)%4", "n,3*n//4%2,k%4"])
def test_what_is_read_by_digits_of_a_loop_too_is_stored_by_a_derivation(index: str) -> None:
    """A Reshape or Flatten before a product leaves digits of a sum alone; to store what else is read so is more than the model does."""
    scope = parse(f"x : f32[4,8]\nw : f32[6,2,4]\nL[m<4,n<5] Σ[k<8] x[m,k]*w[{index}]")
    relaid = [f for f in Space(Options(max_depth=0)).forms(scope) if any(s.rule == Relayout.rule for s in f.steps)]
    assert relaid and not any(f.unchanged for f in relaid)
