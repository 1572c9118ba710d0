"""What was chosen for a product in another arithmetic is chosen again where the budget has no room for rounding it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

import pytest

import einnet
from benchmarks.models.net import Net
from einnet.compile.targets.cpu import contest, in_float32, rounded_products
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.compile.targets.cpu.in_float32 import again, staying
from einnet.compile.targets.cpu.rounding_trials import Tried
from einnet.evidence.report.schema import PrecisionRow, RoundedRow
from einnet.expr.nodes import walk
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32
from einnet.records import changed
from einnet.runtime.costs import CpuCost
from einnet.runtime.timing import Timing
from einnet.search.choosing.candidate import Candidate, Choice
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
    monkeypatch.setattr(CpuCost, "timings", lambda self, kernels, until=inf: [Timing(seconds(k, bool(self.arithmetics)), 0.0, 9) for k in kernels])
    monkeypatch.setattr(CpuCost, "rounded", lambda self, kernel, arithmetics, seconds: [kernel.in_arithmetic(a) for a in arithmetics])
    monkeypatch.setattr(CpuCost, "estimates", lambda self, kernels: [seconds(k, bool(self.arithmetics)) for k in kernels])
    for module in (rounded_products, in_float32):
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
    assert any("chosen again by times in float32" in note for note in found.report["notes"])
    assert found.record.verification.passed
    assert found.derivations
    assert all(r.candidate.measured == pytest.approx(sum(seconds(k, False) for k in r.candidate.kernels)) for r in found.outcome.results if r.changed)


@needs_bf16
def test_where_all_round_nothing_is_chosen_again(priced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_float32, "again", lambda *_: pytest.fail("nothing stays in float32"))
    found = einnet.optimize(model(), max_error=0.05, time_budget=15, max_depth=1, threads=1, fresh=True)
    products = [k for k in found.executable.plan.kernels if isinstance(k, (Conv, Matmul))]
    assert [(type(k), k.arithmetic) for k in products] == [(Conv, BF16)] * 2


class Costs:
    """Seconds of candidates' kernels, as predicted and as measured; None for what is not measured."""

    def __init__(self, expected: dict[str, float], measured: dict[str, float | None]) -> None:
        self.expected, self.known, self.asked = expected, measured, list[str]()

    def estimates(self, kernels: Sequence[str]) -> list[float]:
        return [self.expected[k] for k in kernels]

    def measured(self, kernels: Sequence[str], until: float) -> list[float | None]:
        self.asked += kernels
        return [self.known[k] for k in kernels]


def chosen(expected: dict[str, float], measured: dict[str, float | None], until: float = inf) -> tuple[str, list[str]]:
    """What is chosen of candidates with one kernel each, of which "own" are the model's operators and "wide" was chosen; and what was measured."""

    class One(Candidate):
        @property
        def kernels(self):
            return (self.build,)

    made = {name: One(form=None, build=name) for name in expected}  # type: ignore[arg-type]
    choice = Choice(None, list(made.values()), made["own"], made["wide"])  # type: ignore[arg-type]
    costs = Costs(expected, measured)
    return str(again(choice, costs, until).best.build), costs.asked  # type: ignore[arg-type]


def test_what_is_predicted_to_be_faster_is_measured_the_best_first() -> None:
    expected = {"own": 9.0, "wide": 8.0, "other": 2.0, "third": 3.0, "slow": 20.0}
    assert chosen(expected, {"own": 9.0, "wide": 8.5, "other": 4.0, "third": 3.5}) == ("third", ["own", "other", "third"])
    assert chosen(expected, {"own": 9.0, "wide": 8.5, "other": None, "third": inf})[0] == "wide"
    assert chosen(expected, {"own": 9.0, "wide": 8.9, "other": 8.8, "third": 8.9})[0] == "own", "three parts in a hundred are no gain"
    assert chosen(expected, {"own": 9.0}, until=time.monotonic() - 1) == ("own", ["own"])


def test_what_stays_is_told_by_what_rounding_would_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(place: int, gain: float, runs: bool) -> RoundedRow:
        return RoundedRow(place=place, kernel="k", arithmetic="bf16", float32_ms=10.0, ms=10.0 - gain, runs=runs)

    class Owner:
        def __init__(self, key: str | None) -> None:
            self.key = key

    monkeypatch.setattr(in_float32, "owners", lambda *_: [Owner(k) for k in ("a", "a", "b", "c", None, "d")])
    rows = [row(0, 3, True), row(1, 2, False), row(2, 1, False), row(3, 4, False), row(4, 9, False), row(5, -1, False)]
    told = PrecisionRow(max_error=1.0, error=0.0, float32_error=0.0, draws=1, products=rows)
    assert staying(None, None, told) == ["c", "b"]  # type: ignore[arg-type]
    rows[1] = changed(rows[1], ms=2.0)
    assert staying(None, None, changed(told, products=rows)) == ["a", "c", "b"]  # type: ignore[arg-type]
