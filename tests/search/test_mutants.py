"""The checker rejects every wrong version of the steps that the search makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope
from einnet.expr.values.evaluate import evaluate
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import integers
from tests.search.catalogue import expression
from tests.search.mutations import mutants

SOURCES = (
    "convolutions: conv3x3", "convolutions: dilation 2", "convolutions: stride 2", "convolutions: groups", "convolutions: asymmetric padding",
    "transposed: transposed 4x4", "transposed: k5 s3 p1", "matmuls: three factors", "matmuls: band dilated",
    "siblings: concat of matmuls", "siblings: matmul of concat", "siblings: two kernels", "tails: residual", "tails: bias relu nchw",
)  # fmt: skip
QUICK = (
    "convolutions: conv3x3", "convolutions: stride 2", "transposed: transposed 4x4", "matmuls: three factors", "matmuls: masked band",
        "matmuls: reversed band sum",
    "siblings: concat of matmuls", "siblings: matmul of concat", "siblings: added matmuls", "siblings: product with a sum",
)  # fmt: skip
KINDS = {
    "index constant", "coefficient", "fill", "factor dropped", "sum ends early", "sum begins late", "loop ends early", "loop begins late",
    "equal dimensions swapped", "order of equal loops", "exact division to floor", "term dropped",
}  # fmt: skip


def steps(name: str, depth: int) -> list[Step]:
    """The different steps of all forms, by rule and by what they do."""
    forms = Space(Options(max_depth=depth, intensity=0.0)).forms(expression(name))
    return list({(s.rule, s.before.key, s.after.key): s for f in forms for s in f.steps}.values())


def differs(before: Scope, after: Scope) -> bool:
    """By dense evaluation on integers: independent of what the checker does."""
    values = integers(before)
    return not np.allclose(evaluate(before, values), evaluate(after, values), rtol=1e-9, atol=1e-9)


def reject(step: Step, most: int, seen: Counter[str]) -> None:
    """Some wrong versions of a step, spread over the kinds of mistakes; each must be refused, with the step's number and rule."""
    found = [(kind, after) for kind, after in mutants(step.after) if after.key != step.after.key]
    for kind, after in found if len(found) <= most else [found[n * len(found) // most] for n in range(most)]:
        if differs(step.before, after):
            seen[kind] += 1
            seen[f"rule {step.rule}"] += 1
            with pytest.raises(CertificateError, match=f"step 1 .{step.rule}"):
                check(Derivation(step.before, (replace(step, path=(), after=after),)))


def test_wrong_steps_are_rejected() -> None:
    seen: Counter[str] = Counter()
    for name in QUICK:
        by_rule: dict[str, list[Step]] = {}
        for step in steps(name, 1):
            by_rule.setdefault(step.rule, []).append(step)
        for found in by_rule.values():
            for step in dict.fromkeys((found[0], found[len(found) // 2], found[-1])):
                reject(step, 5, seen)
    assert sum(n for kind, n in seen.items() if kind in KINDS) >= 200, seen
    assert {k for k in seen if not k.startswith("rule ")} >= KINDS - {"term dropped"}, seen
    rules = ("sum-split", "substitute", "merge", "tighten", "relayout", "reorder", "tile", "band", "bilinear")
    joining = ("divide", "distribute", "join", "collect")
    assert {f"rule {name}" for name in (*rules, *joining)} <= seen.keys(), seen


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_many_wrong_steps_are_rejected(name: str) -> None:
    seen: Counter[str] = Counter()
    for step in steps(name, 2):
        reject(step, 30, seen)
    assert sum(n for kind, n in seen.items() if kind in KINDS) >= 40, seen
