"""What was chosen for a product in another arithmetic is chosen again where the budget has no room for rounding it."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

import einnet
from benchmarks.models.net import Net
from einnet.compile.targets.cpu import chosen_again, contest, rounded_products
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.compile.targets.cpu.chosen_again import squares_of
from einnet.compile.targets.cpu.rounding_trials import Tried
from einnet.evidence.report.schema import PrecisionRow, RoundedRow
from einnet.expr.nodes import walk
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32
from einnet.records import changed
from einnet.runtime.costs import CpuCost
from einnet.runtime.timing import Timing
from tests.compile.test_rounded_products import needs_bf16

BF16 = ARITHMETICS["bf16"]


def seconds(kernel: Kernel, rounds: bool) -> float:
    """Convolutions are slow, but for those that round; products of matrices are in between, and gain nothing. Generated sums take for ever."""
    if isinstance(kernel, Conv):
        return 0.1 if kernel.arithmetic == BF16 or (rounds and kernel.arithmetic == F32) else 4.0
    if isinstance(kernel, EOperator):
        return 50.0 if any(s.sums for s in walk(kernel.scope)) else 1e-3
    return 1.0


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Costs by which convolutions win if they round, and products of matrices else; what is chosen runs, whatever the machine does."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(CpuCost, "timings", lambda self, kernels, *limits: [Timing(seconds(k, bool(self.arithmetics)), 0.0, 9) for k in kernels])
    monkeypatch.setattr(CpuCost, "rounded", lambda self, kernel, arithmetics, seconds: [kernel.in_arithmetic(a) for a in arithmetics])
    monkeypatch.setattr(CpuCost, "estimates", lambda self, kernels: [seconds(k, bool(self.arithmetics)) for k in kernels])
    for module in (rounded_products, chosen_again):
        monkeypatch.setattr(module, "surely_faster", lambda *_: True)
    monkeypatch.setattr(contest, "slower", lambda times: False)
    monkeypatch.setattr(contest, "behind", lambda times: False)
    monkeypatch.setattr(contest, "weighed", lambda *_: InPlace())


def model():
    net = Net("two_windows", 0)
    x = net.relu(net.conv(net.input("x", (1, 4, 6, 6)), "first", 6, 3, pad=1), "relu")
    return net.finish(net.conv(x, "second", 5, 3, pad=1))


@needs_bf16
def test_where_the_budget_has_no_room_the_form_that_is_fastest_in_float32_runs(priced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tried, "error", lambda self, offers, limit=inf, draws=None: 1.0)
    found = einnet.optimize(model(), max_error=0.05, time_budget=15, max_depth=1, threads=1, fresh=True)
    products = [k for k in found.executable.plan.kernels if isinstance(k, (Conv, Matmul))]
    assert products
    assert all(isinstance(k, Matmul) and k.arithmetic == F32 for k in products)
    assert any("chosen again by what their products err" in note for note in found.report["notes"])
    assert found.record.verification.passed
    assert found.derivations
    assert all(r.candidate.measured == pytest.approx(sum(seconds(k, False) for k in r.candidate.kernels)) for r in found.outcome.results if r.changed)


@needs_bf16
def test_where_all_round_nothing_is_chosen_again(priced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_again, "options", lambda *_: pytest.fail("nothing stays in float32"))
    found = einnet.optimize(model(), max_error=0.05, time_budget=15, max_depth=1, threads=1, fresh=True)
    products = [k for k in found.executable.plan.kernels if isinstance(k, (Conv, Matmul))]
    assert [(type(k), k.arithmetic) for k in products] == [(Conv, BF16)] * 2


def test_what_products_err_is_told_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the expression as it is written: what was found of a form is divided by how much more that one errs."""

    def row(place: int, error: float | None, runs: bool = False, gain: float = 1.0) -> RoundedRow:
        return RoundedRow(place=place, kernel="k", arithmetic="bf16", float32_ms=10.0, ms=10.0 - gain, runs=runs, error=error)

    keys = ("a", "a", "b", "c", None, "d")
    monkeypatch.setattr(chosen_again, "owners", lambda *_: [SimpleNamespace(key=k) for k in keys])
    monkeypatch.setattr(chosen_again, "growth", lambda start, tree: {"a": 1.0, "b": 2.0, "c": 1.0, "d": inf}[tree])
    results = [SimpleNamespace(key=k, candidate=SimpleNamespace(form=SimpleNamespace(start=None, tree=k))) for k in "abcd"]
    rows = [row(0, 3.0, True), row(1, 4.0), row(2, 6.0), row(3, None), row(4, 1.0), row(5, 1.0)]
    told = PrecisionRow(max_error=1.0, error=0.0, float32_error=0.0, draws=1, products=rows)
    outcome = SimpleNamespace(results=results)
    assert squares_of(outcome, None, told) == {"a": 25.0, "b": 9.0, "c": inf, "d": inf}  # type: ignore[arg-type]
    alone = changed(told, products=[row(0, 3.0, True), row(2, 6.0, gain=-1.0), row(3, None, True)])
    assert squares_of(outcome, None, alone) == {}, "all round that are faster so"  # type: ignore[arg-type]
