"""Bisection finds what moves a result: a derivation that is exchanged for another one, and the step that does it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einnet.derivation.steps import Derivation, Step
from einnet.evidence import bisect as subject
from einnet.evidence.bisect import errors_by_step, greatest, operators
from einnet.expr.nodes import make_add
from einnet.expr.notation.text import parse
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator, Matmul

DECLARED = "A : f32[4,8]\nB : f32[8,6]\n"
PRODUCT = parse(DECLARED + "L[i<4,j<6] Σ[k<8] A[i,k]*B[k,j]")
HALVES = parse(DECLARED + "L[i<4,j<6] Σ[k<8] A[i,k]*B[k,j]*0.5")


def test_the_step_that_moves_the_result_is_named() -> None:
    """The second of three steps halves the result."""
    steps = (Step("same", "", PRODUCT, PRODUCT), Step("halve", "", PRODUCT, HALVES), Step("same", "", HALVES, HALVES))
    random = np.random.default_rng(0)
    found = errors_by_step(Derivation(PRODUCT, steps), [random.standard_normal(s).astype(np.float32) for s in ((4, 8), (8, 6))])
    assert [row["rule"] for row in found] == ["start", "same", "halve", "same"]
    assert max(found[0]["error"], found[1]["error"]) < 1e-5
    assert found[2]["error"] == pytest.approx(0.5, rel=1e-4)
    assert greatest(found) == 2


def test_no_step_is_named_where_none_adds_an_error() -> None:
    assert greatest([{"error": 0.25}, {"error": 0.25}, {"error": 0.0}]) is None
    assert greatest([{"error": 0.25}]) is None


def test_operators_are_those_that_the_derivation_names() -> None:
    named = operators(Derivation(PRODUCT), ("Matmul(m=i, n=j, k=k)",))
    assert [type(k) for k in named[1].kernels] == [Matmul]
    assert [type(k) for k in operators(Derivation(PRODUCT), ())[1].kernels] == [EOperator]


def test_the_subprogram_that_is_wrong_comes_first(derived, monkeypatch: pytest.MonkeyPatch) -> None:
    model, stored = derived
    honest = subject.bisect(model, stored)
    assert honest["subprograms"]
    assert all(s["moved"] < 1e-4 for s in honest["subprograms"])
    victim = honest["subprograms"][-1]
    real = subject.operators
    start = next(e.derivation.start for e in stored.certificate.entries if e.key == victim["key"])

    def wrong(derivation: Derivation, matches: tuple[str, ...]):
        if derivation.start == start:
            return start, build(replace(start, body=make_add([start.body, start.body])), {}, "out")
        return real(derivation, matches)

    monkeypatch.setattr(subject, "operators", wrong)
    found = subject.bisect(model, stored)
    assert found["subprograms"][0]["key"] == victim["key"]
    assert found["subprograms"][0]["moved"] == pytest.approx(1.0, rel=1e-3)
    assert len(found["steps"]) == 1 + len(next(e for e in stored.certificate.entries if e.key == victim["key"]).derivation.steps)


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory):
    """A stored program in which something is derived: by costs that like products."""
    import einnet
    from einnet.instantiate.kernels import Conv
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.roofline import flops
    from tests.models import tiny

    def liked(self, kernels, until=float("inf")):
        return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]

    from einnet.compile.targets.cpu import contest as decide
    from einnet.compile.targets.cpu.acceptance import InPlace

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuCost, "measured", liked)
        patch.setattr(CpuCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
        patch.setattr(CpuCost, "estimates", liked)
        patch.setattr(decide, "slower", lambda times: False)
        patch.setattr(decide, "weighed", lambda *_: InPlace())
        model = tiny("convtranspose")
        result = einnet.optimize(model, time_budget=4, max_depth=2, threads=1, fresh=True)
    assert result.report["runs"] == "derived"
    return model, einnet.load(result.save(tmp_path_factory.mktemp("bisect") / "p.einnet"))
