"""Programs with recurrences: walks along time beside other kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.compile.targets.cpu import target
from einnet.instantiate.kernels import OpaqueCall
from tests.graph.cases import build, node, values


def test_a_program_walks_and_gives_what_onnx_runtime_gives() -> None:
    """Sums of both directions, read by functions and by a product: each is computed once, by a walk of its own."""
    weight = values((12, 5), 3)
    nodes = [
        node("CumSum", ["x", "one"], ["a"]), node("CumSum", ["x", "one"], ["b"], reverse=1, exclusive=1),
        node("Relu", ["a"], ["c"]), node("Mul", ["c", "b"], ["d"]), node("MatMul", ["d", "w"], ["y"]),
    ]  # fmt: skip
    model = build(nodes, {"x": values((4, 33, 12))}, ("y",), {"one": np.array(1, np.int64), "w": weight})
    found = einnet.optimize(model, time_budget=5, threads=1, fresh=True)
    assert found.report["verification"]["passed"] and not found.report["opaque"]


def test_a_recurrent_layer_among_others_is_saved_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two directions of 60 steps between two products: no node is left to ONNX Runtime, and another process finds the program right."""
    weights = {"w0": values((7, 5), 1), "w": values((2, 24, 5), 2), "r": values((2, 24, 6), 3), "b": values((2, 48), 4), "w1": values((6, 3), 5)}
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]), node("LSTM", ["a", "w", "r", "b"], ["h", "", "c"], hidden_size=6, direction="bidirectional"),
        node("MatMul", ["h", "w1"], ["y"]),
    ]  # fmt: skip
    model = build(nodes, {"x": values((60, 2, 7))}, ("y", "c"), weights)
    monkeypatch.setattr(target, "left", lambda program, cost: program)  # whatever its time
    found = einnet.optimize(model, time_budget=10, threads=1, fresh=True, derive=False)
    assert found.report["verification"]["passed"]
    assert [k.recursion is not None for k in found.outcome.plan().kernels if isinstance(k, OpaqueCall)] == [True]
    onnx.save(model, tmp_path / "model.onnx")
    kept = found.save(tmp_path / "program.einnet")
    command = [sys.executable, "-m", "einnet", "verify", str(tmp_path / "model.onnx"), str(kept)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "1 nodes are their equations" in told.stdout
