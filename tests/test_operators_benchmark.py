"""The benchmark of operator cases: four programs that agree, with counts and derivations; the judge of topologies."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks import operators
from benchmarks.topologies import failures


@pytest.fixture
def entry(tmp_path, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    monkeypatch.setitem(operators.QUICK, "convtranspose", {"batch": 1, "channels": 8, "features": 4})
    options = Namespace(seed=0, quick=True, time_budget=6.0, allow="precision", seconds=0.05)
    return operators.case("convtranspose", 1, options)


def test_before_and_after_on_vendor_and_generated_kernels(entry):
    programs = entry["programs"]
    assert {"before, vendor", "before, generated"} <= programs.keys()
    for name, program in programs.items():
        assert program["max_rel"] < 1e-5, name
        assert program["flops"] >= 2 * 8 * 4 * 4 * 16 * 0.5, name
        assert program["bytes"] >= 4 * (8 * 4 + 8 * 4 * 16 + 4 * 16), name
        assert program["median_ms"] > 0
        assert bool(program["operators"]) == name.endswith("vendor")
        assert bool(program["rules"]) == name.startswith("after")
    assert any(line.startswith("  before, vendor") and "1.00x" in line for line in operators.lines(entry))


def test_a_topology_that_is_missing_or_slower_is_a_failure():
    def told(ours: float | None, noise: float) -> dict[str, object]:
        times = {"onnxruntime": 1.0} | ({} if ours is None else {"einnet": ours})
        return {"model": "m", "batch": 1, "threads": 2, "median_ms": times, "noise": noise, "missing": {"einnet": "why"}}

    assert failures({"models": [told(1.04, 0.05), told(0.5, 0.0)]}) == []
    slow, missing = failures({"models": [told(1.2, 0.05), told(None, 0.05)]})
    assert "0.83x of ONNX Runtime" in slow
    assert "why" in missing
