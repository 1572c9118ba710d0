"""`target="onnx"`: chosen by times in ONNX Runtime; the derived model where it is faster there, the original byte for byte where it is not."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.api import onnx_target
from einnet.api.audit import audit
from einnet.api.optimize import Optimization
from einnet.errors import UsageError
from einnet.instantiate.kernels import Conv, Kernel, Matmul, OpaqueCall, View, dense_view
from einnet.runtime import capacity
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.roofline import flops
from einnet.runtime.onnx.cost import OnnxCost, expanded
from einnet.runtime.ort import Baseline, Session
from einnet.runtime.profile import ProfileDatabase
from tests.models import random_inputs, tiny


def optimized(model: onnx.ModelProto) -> Optimization:
    return einnet.optimize(model, target="onnx", time_budget=4, max_depth=2, threads=1, fresh=True)


@pytest.fixture
def model() -> onnx.ModelProto:
    return tiny("convtranspose")


def test_where_nothing_is_faster_the_original_is_written(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_target, "faster", lambda times: False)
    result = optimized(model)
    assert any(note.startswith(onnx_target.NOT_DERIVED) for note in result.report["notes"])
    assert onnx.load(result.save(tmp_path / "same.onnx")) == model
    assert result.report["onnx_out"]["speedup"] == 1


def test_a_derived_model_is_verified_in_onnx_runtime(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cost that likes products only, something is derived; with a clock that finds it faster, it is written."""

    def liked(self: OnnxCost, kernels: list[Kernel], until: float = inf) -> list[float | None]:
        return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]

    monkeypatch.setattr(OnnxCost, "measured", liked)
    monkeypatch.setattr(OnnxCost, "estimates", liked)
    monkeypatch.setattr(onnx_target, "faster", lambda times: True)
    monkeypatch.setattr(onnx_target, "pick", lambda *_: None)
    result = optimized(model)
    assert result.report["runs"] == "derived"
    written = onnx.load(result.save(tmp_path / "out.onnx"))
    assert written != model
    assert "ConvTranspose" not in {n.op_type for n in written.graph.node}
    inputs = random_inputs(model)
    wanted = Session(model.SerializeToString(), 1)(inputs)
    for got in (Session(str(tmp_path / "out.onnx"), 1)(inputs), einnet.load(result.save(tmp_path / "out.einnet"))(inputs)):
        for name, y in wanted.items():
            np.testing.assert_allclose(got[name], y, rtol=0, atol=1e-4 * np.abs(y).max())
    assert audit(model, einnet.load(tmp_path / "out.einnet"))["passed"]


def test_costs_are_those_of_onnx_runtime_under_keys_of_their_own(tmp_path: Path) -> None:
    database = ProfileDatabase(tmp_path / "p.sqlite")
    native, cost = CpuCost(1, database, measure=False), OnnxCost(1, database, budget_s=0.002)
    product = Matmul(dense_view("a", (16, 32)), dense_view("b", (32, 24)), dense_view("c", (16, 24)))
    broken = OpaqueCall(b"no model", (), (), "broken")
    found = cost.costs([product, broken])
    assert 0 < found[0] < 1
    assert found[1] == inf
    assert native.describe(product) != cost.describe(product)
    assert native.place() != cost.place()
    assert OnnxCost(1, database, measure=False).timing(product).n == cost.timing(product).n


def test_what_onnx_would_have_to_copy_is_not_run_where_it_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that overlap take one row of memory here, and a copy of all of them there."""
    windows = View("a", (1_000_000, 64), (1, 1))
    product = Matmul(windows, dense_view("b", (64, 8)), dense_view("c", (1_000_000, 8)))
    assert expanded(product) == 4 * (64_000_000 + 512 + 8_000_000)
    monkeypatch.setattr(capacity, "available_bytes", lambda: 1e9)
    assert OnnxCost(1, ProfileDatabase(tmp_path / "p.sqlite"), budget_s=0.002).cost(product) == inf


@pytest.mark.parametrize(("free", "rests"), [(1 << 40, False), (0, True)])
def test_models_that_do_not_fit_together_take_turns(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, free: int, rests: bool) -> None:
    rested = list[str]()
    original = Baseline.rest
    monkeypatch.setattr(Baseline, "rest", lambda self: (rested.append(""), original(self)))
    monkeypatch.setattr("einnet.runtime.capacity.available_bytes", lambda: free)
    data = model.SerializeToString()
    times = onnx_target.in_turn(data, data, random_inputs(model), 1, 0.01, peak=1 << 20)
    assert times["optimized"].median > 0
    assert bool(rested) is rests


def test_an_unknown_target_is_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="native, onnx"):
        einnet.optimize(model, target="torch")
