"""The search for missing rules: what it enumerates, what it takes for equal, and that it finds a gap where a rule is taken away."""

from __future__ import annotations

from itertools import islice

from benchmarks.gaps.__main__ import OPERATIONS, Values, gaps, groups
from benchmarks.gaps.expressions import Bounds, expressions
from einnet.derivation.rules import EXPLORED
from einnet.expr.notation.text import parse
from einnet.search.space import Options
from einnet.search.work import flops

TABLES = "A : f32[5,11]\nB : f32[11,7]\n"
SLOW = parse(TABLES + "L[i<5] Σ[j<7,k<11] A[i,k]*B[k,j]")
QUICK = parse(TABLES + "L[i<5] Σ[k<11] A[i,k]*{L[k<11] Σ[j<7] B[k,j]}[k]")
OTHER = parse(TABLES + "L[i<5] Σ[k<11] A[i,k]*{L[k<11] max[j<7] B[k,j]}[k]")


def options(**more: object) -> Options:
    given: dict[str, object] = {"max_depth": 3, "states": 300, "converge": False, "weights": OPERATIONS, "slack": float("inf"), "intensity": 0.0}
    return Options(**{**given, **more})  # type: ignore[arg-type]


def test_expressions_are_parsed_again_and_many_are_equal_to_a_cheaper_one():
    found = list(islice(expressions(Bounds(factors=2)), 0, None, 900))
    assert len(found) > 100 and all(parse(str(e)).key == e.key for e in found)
    for group in groups(islice(expressions(Bounds(factors=1, term=1)), 2000), Values(0)):
        assert flops(group[0]) < flops(group[-1])


def test_equal_expressions_make_a_group_and_others_do_not():
    (group,) = groups([SLOW, OTHER, QUICK], Values(0))
    assert [e.key for e in group] == [QUICK.key, SLOW.key]


def test_a_rule_that_is_missing_is_a_gap():
    found = groups([SLOW, QUICK], Values(0))
    assert [gap for _, gap in gaps(found, options(), 60.0)] == [None]
    without = tuple(name for name in EXPLORED if name not in ("sum-split", "distribute"))
    ((_, gap),) = gaps(found, options(rules=without), 60.0)
    assert gap is not None and (gap.ops_before, gap.ops_cheaper, gap.ops_reached) == (flops(SLOW), flops(QUICK), flops(SLOW))
    assert parse(TABLES + gap.cheaper).key == QUICK.key and gap.proof == "inline"
