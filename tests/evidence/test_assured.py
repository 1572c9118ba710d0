"""What `optimize` asks of its own program: the proofs are in the report, and a part whose kernels are not the model is not kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import einnet
from einnet.compile.targets.cpu import finishing as optimizing
from einnet.evidence import prove as proving
from einnet.evidence.assured import assured, with_evidence
from einnet.expr.normal.limits import OutOfTime
from einnet.instantiate.kernels import Conv, EOperator, Matmul, View
from einnet.records import changed
from einnet.runtime.cpu.program import Executable
from tests.models import random_inputs, two_outputs


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> einnet.Optimization:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        return einnet.optimize(two_outputs(), max_depth=2, time_budget=4, threads=1)


def test_the_report_tells_what_was_proven(result: einnet.Optimization) -> None:
    told = assured(result.outcome, result.executable, 60.0)
    assert told["problems"] == told["own"] == [] and told["left"] == 0
    assert told["proven"] + told["by_derivation"] == told["subprograms"] > 0
    assert with_evidence(changed(result.record.verification, passed=True), told).passed is True


def test_without_time_nothing_is_said(result: einnet.Optimization) -> None:
    told = assured(result.outcome, result.executable, 0.0)
    assert told["left"] == told["subprograms"] and told["proven"] == told["kernels"] == 0


def test_what_is_not_proven_in_time_is_told_as_left(result: einnet.Optimization, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that has begun is broken off, and what came before it counts."""
    compared = proving.compared
    begun: list[None] = []

    def late(*sides: Any) -> tuple[str, str, str]:
        begun.append(None)
        if len(begun) > 1:
            raise OutOfTime("no time is left")
        return compared(*sides)

    monkeypatch.setattr(proving, "compared", late)
    told = assured(result.outcome, result.executable, 60.0)
    assert told["problems"] == told["own"] == []
    assert 0 < told["left"] < told["subprograms"] and told["proven"] + told["by_derivation"] == told["subprograms"] - told["left"]


def test_a_plan_that_is_not_the_model_fails(result: einnet.Optimization) -> None:
    plan = result.executable.plan
    found = 0
    for n, kernel in enumerate(plan.kernels):
        if isinstance(kernel, (Matmul, Conv, EOperator)):
            moved = kernel.map_views(still)
            made = Executable(replace(plan, kernels=(*plan.kernels[:n], moved, *plan.kernels[n + 1 :])), 1)
            told = assured(result.outcome, made, 60.0)
            found += bool(told["problems"] or told["own"])
    assert found


def still(view: View) -> View:
    """The first dimension that moves, if it is of the input, moves no more."""
    wide = [d for d, n in enumerate(view.shape) if n > 1]
    return replace(view, strides=tuple(0 if d == wide[0] else s for d, s in enumerate(view.strides))) if wide and view.buffer == "x" else view


def test_a_derived_program_that_is_not_proven_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    monkeypatch.setattr(optimizing, "assured", lambda *_: {"problems": ["a part is not what the model has"], "own": []})
    found = einnet.optimize(two_outputs(), max_depth=2, time_budget=4, threads=1)
    assert not any(s["changed"] for s in found.report["subprograms"])
    inputs = random_inputs(two_outputs())
    assert all(np.isfinite(x).all() for x in found(inputs).values())
