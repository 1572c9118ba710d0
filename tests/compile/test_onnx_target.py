"""`target="onnx"`: chosen by times in ONNX Runtime; the derived model where it is faster there, the original byte for byte where it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import einnet
from einnet.cli import main
from einnet.compile.target import Optimization
from einnet.compile.targets.onnx import target as onnx_target
from einnet.errors import UsageError
from einnet.evidence.audit import audit
from einnet.instantiate.kernels import Conv, Kernel, Matmul, OpaqueCall, View, dense_view
from einnet.records import as_json
from einnet.runtime import capacity
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.roofline import flops
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.onnx.costs import OnnxCost, expanded
from einnet.runtime.ort import Baseline, Session
from einnet.runtime.timing import Timing
from tests.models import random_inputs, tiny, two_layers


def optimized(model: onnx.ModelProto, seconds: float = 4) -> Optimization:
    return einnet.optimize(model, target="onnx", time_budget=seconds, max_depth=2, threads=1, fresh=True)


@pytest.fixture
def model() -> onnx.ModelProto:
    return tiny("convtranspose")


def test_where_nothing_is_faster_the_original_is_written(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_target, "gains", lambda times: False)
    result = optimized(model)
    assert any(note.startswith(onnx_target.NOT_DERIVED) for note in result.report["notes"])
    assert onnx.load(result.save(tmp_path / "same.onnx")) == model
    assert result.report["onnx_out"]["speedup"] == 1


def test_a_derived_model_is_verified_in_onnx_runtime(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cost that likes products only, something is derived; with a clock that finds it faster, it is written."""

    def liked(self: OnnxCost, kernels: list[Kernel], until: float = inf) -> list[float | None]:
        return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]

    monkeypatch.setattr(OnnxCost, "measured", liked)
    monkeypatch.setattr(OnnxCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
    monkeypatch.setattr(OnnxCost, "estimates", liked)
    monkeypatch.setattr(onnx_target, "gains", lambda times: True)
    monkeypatch.setattr(onnx_target, "pick", lambda outcome, *_: outcome)
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
    database.put(cost.describe(product), Timing(0.5, 0.0, 7))
    assert OnnxCost(1, database, measure=False).timing(product).n == 7
    assert native.timing(product).n == 0


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


def test_an_output_without_a_shape_is_written_with_it(tmp_path: Path) -> None:
    given = two_layers()
    for out in given.graph.output:
        out.type.tensor_type.ClearField("shape")
    onnx.save(given, tmp_path / "m.onnx")
    assert main(["optimize", str(tmp_path / "m.onnx"), "--target", "onnx", "-o", str(tmp_path / "o.onnx"), "--time-budget", "2"]) == 0
    written = onnx.load(tmp_path / "o.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert all(out.type.tensor_type.HasField("shape") for out in written.graph.output)


def test_an_unknown_target_is_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="native, onnx"):
        einnet.optimize(model, target="torch")


def derived(patch: pytest.MonkeyPatch, model: onnx.ModelProto) -> Optimization:
    """Something derived, whatever it costs, and however busy the machine is."""

    def liked(self: OnnxCost, kernels: list[Kernel], until: float = inf) -> list[float | None]:
        return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]

    patch.setattr(OnnxCost, "measured", liked)
    patch.setattr(OnnxCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
    patch.setattr(OnnxCost, "estimates", liked)
    patch.setattr(onnx_target, "gains", lambda times: True)
    patch.setattr(onnx_target, "pick", lambda outcome, *_: outcome)
    return optimized(model, 60)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Path]:
    """A model of several parts, and the program that holds what was written for it."""
    model = tiny("fsrcnn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        return model, derived(patch, model).save(tmp_path_factory.mktemp("written") / "p.einnet")


def test_what_is_written_is_proven_by_its_kernels(stored: tuple[onnx.ModelProto, Path]) -> None:
    model, path = stored
    verdict = audit(model, einnet.load(path))
    told = verdict["lifting"]
    assert verdict["passed"], verdict
    assert told["proven"] + told["by_derivation"] == told["subprograms"] > 1
    assert verdict["constants"]["constants"] > 0
    numbers = verdict["verification"]["subprograms"]
    assert numbers["subprograms"] == numbers["of"] and numbers["not_compared"] == []


def change_kernel(told: dict[str, Any], written: onnx.ModelProto) -> None:
    text = json.dumps(told["plan"])
    changed = text.replace("relu(", "abs(", 1)
    assert changed != text
    told["plan"] = json.loads(changed)


def change_weight(told: dict[str, Any], written: onnx.ModelProto) -> None:
    weight = next(i for i in written.graph.initializer if i.name.startswith("einnet_"))
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.00005), weight.name))


def change_node(told: dict[str, Any], written: onnx.ModelProto) -> None:
    out = written.graph.output[0].name
    node = next(n for n in written.graph.node if out in n.output)
    node.output[0] = "before"
    written.graph.node.append(onnx.helper.make_node("Mul", ["before", "half"], [out]))
    shape = [d.dim_value for d in written.graph.output[0].type.tensor_type.shape.dim]
    half = np.ones(shape, np.float32)
    half[..., shape[-1] // 2 :] = 0
    written.graph.initializer.append(onnx.numpy_helper.from_array(half, "half"))


def change_function(told: dict[str, Any], written: onnx.ModelProto) -> None:
    node = next(n for f in written.functions for n in f.node if n.op_type in ("Relu", "Add", "Max", "Min"))
    node.op_type = {"Relu": "Abs", "Add": "Sub", "Max": "Min", "Min": "Max"}[node.op_type]


def no_record(told: dict[str, Any], written: onnx.ModelProto) -> None:
    told.clear()


@pytest.mark.parametrize("change", [change_kernel, change_weight, change_node, change_function, no_record])
def test_another_written_model_is_refused(stored: tuple[onnx.ModelProto, Path], change: Any) -> None:
    model, path = stored
    program = einnet.load(path)
    (kernel,) = program.plan.kernels
    told, written = as_json(program.written), onnx.load_model_from_string(kernel.model)
    change(told, written)
    plan = replace(program.plan, kernels=(replace(kernel, model=written.SerializeToString()),))
    program.loaded = replace(program.loaded, plan=plan, metadata={**program.loaded.metadata, "written": told or None})
    assert not audit(model, program)["passed"]
