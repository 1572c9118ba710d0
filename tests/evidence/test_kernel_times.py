"""The profile of a program's kernels, the cost model's error, and the whole model in ONNX Runtime as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime
import pytest

import einnet
from einnet.compile.targets.cpu import contest as door
from einnet.compile.targets.cpu.contest import behind, slower
from einnet.evidence.comparison.verify import Trial
from einnet.evidence.pages.times import time_lines
from einnet.evidence.report.kernel_times import cost_model, owners, rates
from einnet.evidence.report.schema import KernelRow
from einnet.graph.onnx.read import serialised
from einnet.instantiate.kernels import EOperator, Matmul, OpaqueCall, dense_view
from einnet.runtime.cpu.roofline import Machine
from einnet.runtime.timing import Comparison
from tests.filled import filled
from tests.models import random_inputs, two_outputs, with_opaque

MACHINE = Machine(peak=1e9, bandwidth=1e8, launch=1e-6)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def result():
    return einnet.optimize(with_opaque(), derive=False, time_budget=3, threads=1)


def test_every_kernel_has_an_owner_and_a_time(result):
    plan, kernels = result.executable.plan, result.report["kernels"]
    assert len(kernels) == len(plan.kernels)
    keys = {s["key"] for s in result.report["subprograms"]}
    for kernel, told, owner in zip(plan.kernels, kernels, owners(result.outcome, plan), strict=True):
        assert told["ms"] > 0
        assert (told["key"], told["nodes"]) == (owner.key, list(owner.nodes))
        if isinstance(kernel, OpaqueCall):
            assert told["nodes"] == ["LpNormalization 'running'"]
            assert told["key"] is told["gflops"] is told["predicted_ms"] is None
        else:
            assert told["key"] in keys
            assert told["predicted_ms"] > 0
    assert sum(isinstance(k, EOperator) for k in plan.kernels) == sum(k["implementation"] == "generated" for k in kernels)


def test_rates_of_a_product():
    kernel = Matmul(dense_view("a", (10, 20)), dense_view("b", (20, 30)), dense_view("c", (10, 30)))
    found = rates(kernel, 1e-4, MACHINE)
    assert found.flops == 2 * 10 * 20 * 30
    assert found.bytes == 4 * (200 + 600 + 300)
    assert found.gflops == pytest.approx(0.12)
    assert found.share_of_peak == pytest.approx(0.12)
    assert found.share_of_bandwidth == pytest.approx(0.44)


def told(ms: float, predicted: float | None, estimated: bool = False, key: str | None = "k") -> KernelRow:
    known = {"gflops": 1.0, "share_of_peak": 0.5} if predicted is not None else {"gflops": None, "share_of_peak": None}
    rest = {"kernel": f"kernel of {ms} ms", "nodes": ["Conv 'c'"], "key": key, "gbs": 2.0, "share_of_bandwidth": 0.25, "roofline_ms": 1.0}
    return filled(KernelRow, {"ms": ms, "predicted_ms": predicted, "estimated": estimated, **known, **rest})


def test_error_of_the_cost_model_and_its_lines():
    entries = [told(2.0, 1.0), told(1.0, 1.1), told(4.0, 12.0, estimated=True, key="other"), told(8.0, None, key=None)]
    model = cost_model(entries)
    assert (model.kernels, model.estimated) == (3, 1)
    assert model.median_error == pytest.approx(0.5)
    assert model.worst_error == pytest.approx(2.0)
    assert model.worst_kernel == "kernel of 4.0 ms"
    assert model.roofline_median_error == pytest.approx(0.5)
    lines = time_lines(entries, model, {"k": 7})
    assert "15 ms" in lines[0]
    assert [line.split()[0] for line in lines[3:7]] == ["8", "4", "2", "1"]
    assert "~12" in lines[4]
    assert "[Derivation 7, Conv 'c']" in lines[5]
    assert "median 50%, worst 200%" in lines[8]
    assert cost_model([]).median_error is None
    assert time_lines([], cost_model([]), {}) == []


def times(runs: str = "original", shares: tuple[float, ...] = (0.99, 1.0, 1.0, 1.0, 1.01), **seconds: float) -> dict[str, object]:
    """What a comparison gives; every program's rounds are these shares of its seconds."""
    rounds = Comparison({name: tuple(s * share for share in shares) for name, s in seconds.items()}, tuple(seconds["onnxruntime"] for _ in shares))
    return {**rounds.timings, "noise": rounds.noise, "rounds": rounds, "runs": runs, "once": False}


def clock(ours: float, **seconds: float) -> Callable[..., dict[str, object]]:
    """What `Trial.compare` gives where every program of ours takes so long, whatever was found, and others as given."""
    def compare(trial: Trial, programs: Mapping[str, object], end: float) -> dict[str, object]:
        return times(**{name: seconds.get(name, ours) for name in (*programs, "onnxruntime")})

    return compare


def test_the_fastest_program_of_ours_is_kept_where_the_whole_model_in_onnx_runtime_is_not_wanted(monkeypatch):
    monkeypatch.setattr(Trial, "compare", clock(ours=2.0, onnxruntime=1.0, whole=1.1))
    monkeypatch.setattr(door, "behind", behind)
    monkeypatch.setattr(door, "CONTEST_RUNS", 0)
    result = einnet.optimize(two_outputs(), max_depth=1, time_budget=3, threads=1, whole="never")
    assert result.report["runs"] != "whole model" and result.report["totals"]["optimized_ms"] == 2000.0


def test_onnx_runtime_runs_the_whole_model_where_it_is_faster(tmp_path, monkeypatch):
    monkeypatch.setattr(Trial, "compare", clock(ours=2.0, onnxruntime=1.0, whole=1.1))
    monkeypatch.setattr(door, "behind", behind)
    monkeypatch.setattr(door, "CONTEST_RUNS", 0)
    model = two_outputs()
    result = einnet.optimize(model, max_depth=1, time_budget=3, threads=1)
    assert result.report["runs"] == "whole model"
    assert result.report["totals"]["optimized_ms"] == 1100.0
    assert [k["kernel"] for k in result.report["kernels"]] == ["ONNX Runtime: the whole model"]
    assert any("ONNX Runtime runs the whole model" in note for note in result.report["notes"])
    inputs = random_inputs(model, seed=5)
    expected = onnxruntime.InferenceSession(serialised(model)).run(None, inputs)
    for given in (result(inputs), einnet.load(result.save(tmp_path / "w.einnet"))(inputs)):
        assert list(given) == ["features.relu", "scores"]
        for y, wanted in zip(given.values(), expected, strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


def test_a_whole_model_that_there_is_no_time_to_try_is_judged_by_the_reference(monkeypatch):
    monkeypatch.setattr(Trial, "compare", clock(ours=200.0, onnxruntime=100.0))
    monkeypatch.setattr(door, "behind", behind)
    report = einnet.optimize(two_outputs(), max_depth=0, time_budget=3, threads=1).report
    assert report["runs"] == "whole model"
    assert report["totals"]["optimized_ms"] == 100e3


def test_ours_stays_where_the_whole_model_gains_nothing_or_is_not_wanted(monkeypatch):
    """It is ONNX Runtime's faster samples that it has to beat, alone or inside a program."""
    monkeypatch.setattr(door, "behind", lambda times: True)
    monkeypatch.setattr(door, "CONTEST_RUNS", 0)
    for alone, runs in ((2.2, "own operators"), (1.0, "whole model")):
        monkeypatch.setattr(Trial, "compare", clock(ours=2.0, onnxruntime=alone, whole=2.1))
        assert einnet.optimize(two_outputs(), max_depth=0, time_budget=3, threads=1).report["runs"] == runs
    monkeypatch.setattr(door, "behind", behind)
    monkeypatch.setattr(Trial, "compare", clock(ours=2.0, onnxruntime=0.1))
    assert einnet.optimize(two_outputs(), derive=False, time_budget=3, threads=1).report["runs"] == "own operators"


def test_what_counts_as_slower():
    assert behind(times(onnxruntime=1.0, original=2.0))
    assert behind(times(onnxruntime=1.0, original=1.0)), "not surely faster"
    assert not behind(times(onnxruntime=1.0, original=0.9))
    assert behind(times("optimized", onnxruntime=1.0, original=0.9, optimized=1.1))
    assert slower(times(onnxruntime=1.0, original=1.0, optimized=0.995)), "too little"
    assert not slower(times(onnxruntime=1.0, original=1.0, optimized=0.95))
