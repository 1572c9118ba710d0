"""A run that is allowed more ends with what a run that was allowed less has kept, or with what is surely faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import einnet
from benchmarks.models.net import Net
from einnet.compile.targets.cpu import contest as decide
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.compile.targets.cpu.contest import DERIVED, MIXED, NARROWER, OWN, defended
from einnet.compile.targets.cpu.incumbent import digest
from einnet.compile.targets.cpu.rounded_products import Rounding
from einnet.evidence.comparison.verify import WHOLE, Trial
from einnet.instantiate.kernels import Conv, Matmul
from einnet.records import changed
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.roofline import flops
from tests.compile.test_contest import BEHIND, times

SESSION = "onnxruntime"


def liked(self: Any, kernels: Any, until: float = float("inf")) -> list[float]:
    """Costs by which products are derived wherever they can be."""
    return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]


@pytest.mark.parametrize(
    ("runs", "incumbent", "noise", "medians", "kept"),
    [
        (WHOLE, OWN, 0.9, {OWN: 1.0, WHOLE: 1.05}, OWN),
        (WHOLE, OWN, 0.01, {OWN: 1.0, WHOLE: 0.9}, WHOLE),
        (WHOLE, OWN, 0.01, {OWN: 1.0, WHOLE: 1.1, SESSION: 0.9}, WHOLE),
        (WHOLE, OWN, 0.01, {OWN: 1.0, SESSION: 1.1}, OWN),
        (DERIVED, OWN, 0.01, {OWN: 1.0, DERIVED: 1.1}, OWN),
        (DERIVED, OWN, 0.01, {OWN: 1.0, DERIVED: 0.9}, DERIVED),
        (OWN, DERIVED, 0.01, {OWN: 1.0, DERIVED: 0.99}, DERIVED),
        (OWN, NARROWER, 0.01, {OWN: 1.0, DERIVED: 0.99}, OWN),
        (WHOLE, None, 0.9, {OWN: 1.0, WHOLE: 1.05}, WHOLE),
    ],
)  # fmt: skip
def test_only_what_is_surely_faster_takes_its_place(runs: str, incumbent: str | None, noise: float, medians: dict[str, float], kept: str) -> None:
    found = times(noise, **medians)
    decided = defended({**found, "runs": runs, "optimized": None}, incumbent)
    assert decided["runs"] == kept
    assert decided["optimized"] == (None if kept == runs else found[kept])


def two_windows() -> Any:
    """Two convolutions of different windows."""
    net = Net("two_windows", 0)
    x = net.relu(net.conv(net.input("x", (1, 4, 6, 6)), "first", 6, 3, pad=1), "relu")
    return net.finish(net.conv(x, "second", 5, 3, pad=1))


class Runs:
    """Runs of one model beside one database, with the times that they are to see."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        patch.setenv("EINNET_CACHE", str(folder))
        patch.setattr(CpuCost, "measured", liked)
        patch.setattr(CpuCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
        patch.setattr(CpuCost, "estimates", liked)
        patch.setattr(decide, "CONTEST_RUNS", 0)
        patch.setattr(decide, "behind", BEHIND)  # the tests' own setting is that no program gives way to ONNX Runtime
        self.patch, self.asked = patch, list[set[str]]()

    def __call__(self, losing: bool = False, noise: float = 0.01, **medians: float) -> Any:
        """The result of a run; `losing` is one changed subprogram in its place."""

        def compared(_: Trial, programs: dict[str, Any], __: float) -> dict[str, object]:
            self.asked.append(set(programs))
            return {**times(noise, **{name: medians[name] for name in (SESSION, *programs)}), "once": False}

        self.patch.setattr(Trial, "compare", compared)
        self.patch.setattr(decide, "weighed", lambda outcome, *_: InPlace(frozenset(sorted(outcome.changed)[:1] if losing else ())))
        return lambda allow, **more: einnet.optimize(two_windows(), **{"allow": allow, "time_budget": 8, "max_depth": 1, "threads": 1} | more)


def test_own_operators_that_were_kept_are_not_lost_to_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, tmp_path)
    seen = {SESSION: 1.0, OWN: 0.8, DERIVED: 0.9, MIXED: 0.9, WHOLE: 1.0}
    first = runs(**seen)("reassociation", max_depth=0)
    assert first.report["runs"] == "own operators"
    noisy = {**seen, OWN: 0.95, DERIVED: 1.2}
    assert runs(noise=0.2, **noisy)("precision", max_depth=0).report["runs"] == "own operators"
    assert runs(noise=0.2, **noisy)("exact", max_depth=0).report["runs"] == "whole model", "what is allowed less is told nothing"
    assert runs(noise=0.2, **noisy)("precision", fresh=True, max_depth=0).report["runs"] == "whole model"
    assert runs(**{**seen, OWN: 1.2, DERIVED: 1.3})("precision", max_depth=0).report["runs"] == "whole model", "surely faster"


def test_what_was_kept_in_part_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, tmp_path)
    seen = {SESSION: 3.0, OWN: 2.0, DERIVED: 1.0, MIXED: 0.5, WHOLE: 3.0, NARROWER: 0.5}
    first = runs(losing=True, **seen)("reassociation")
    assert first.report["runs"] == "derived" and first.outcome.kept and first.outcome.changed
    second = runs(**seen)("precision")
    assert NARROWER in runs.asked[-1]
    assert digest(second.outcome.plan()) == digest(first.outcome.plan())
    assert second.report["verification"]["passed"] and second.report["runs"] == "derived"
    assert any("allowed less" in note for note in second.report["notes"])
    third = runs(**{**seen, NARROWER: 1.5})("precision")
    assert digest(third.outcome.plan()) != digest(first.outcome.plan()), "what is surely faster runs"


def test_a_run_within_a_budget_knows_what_one_without_has_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, tmp_path)
    seen = {SESSION: 3.0, OWN: 2.0, DERIVED: 1.0, MIXED: 0.5, WHOLE: 3.0, NARROWER: 0.5}
    first = runs(losing=True, **seen)("precision")
    assert first.report["runs"] == "derived" and first.outcome.kept and first.outcome.changed
    second = runs(**seen)("precision", max_error=1e-3)
    assert NARROWER in runs.asked[-1] and digest(second.outcome.plan()) == digest(first.outcome.plan())
    with_room, looked_at = Rounding.with_room, list[Any]()

    def no_room_for_the_third(self: Rounding, program: Any, found: Any) -> Any:
        looked_at.extend([] if program in looked_at else [program])
        return changed(with_room(self, program, found), passed=looked_at.index(program) < 2)

    monkeypatch.setattr(Rounding, "with_room", no_room_for_the_third)
    runs(**seen)("precision", max_error=1e-3)
    assert NARROWER not in runs.asked[-1] and len(looked_at) == 3, "what errs too much of the budget is no candidate"


def test_a_run_within_a_budget_tells_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, tmp_path)
    seen = {SESSION: 3.0, OWN: 2.0, DERIVED: 1.0, MIXED: 0.5, WHOLE: 3.0, NARROWER: 0.5}
    assert runs(losing=True, **seen)("reassociation", max_error=1e-6).outcome.kept
    runs(**seen)("precision")
    assert NARROWER not in runs.asked[-1]
