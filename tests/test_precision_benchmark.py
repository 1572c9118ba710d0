"""The benchmark of programs within an error: rows, what is missing, and a table that follows from the rows."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from benchmarks.models import build
from benchmarks.precision.__main__ import against, cells, main, markdown, row
from benchmarks.precision.quantised import in_bytes
from einnet.graph.onnx.importer import load
from einnet.graph.passes.as_bytes import keeps_bytes
from einnet.graph.passes.prepare import prepare
from tests.models import two_layers


def test_a_row_for_each_error_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    onnx.save(two_layers(), tmp_path / "two.onnx")
    out = tmp_path / "precision.json"
    short = ["--time-budget", "2", "--threads", "1", "--draws", "2", "--rounds", "1", "--seconds", "0.01", "--patience", "0.1"]
    assert main([str(tmp_path / "two.onnx"), "--errors", "0.1", *short, "-o", str(out)]) == 0
    data = json.loads(out.read_text())
    (found,) = data["models"]
    assert (found["name"], found["max_error"]) == ("two", 0.1)
    assert {"onnxruntime", "einnet_f32", "einnet"} <= found["ms"].keys()
    assert found["error"]["einnet_f32"] < 1e-5
    assert found["error"]["einnet"] <= 0.1
    assert "| two | 0.1 |" in out.with_suffix(".md").read_text()
    assert "arithmetics" in data["machine"]


def test_models_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "precision.json"
    short = ["--time-budget", "2", "--threads", "1", "--draws", "2", "--rounds", "1", "--seconds", "0.01", "--patience", "0.1"]
    main(["mlp", "--int8", "--quick", *short, "-o", str(out)])
    (found,) = json.loads(out.read_text())["models"]
    assert (found["name"], found["max_error"]) == ("mlp", 0.02)
    assert {"onnxruntime", "einnet_f32"} <= found["ms"].keys()
    assert keeps_bytes(prepare(load(in_bytes(build("mlp"), 0)), in_bytes=True))


def test_the_figures_of_a_row() -> None:
    results = {n: {"median_ms": t} for n, t in (("onnxruntime", 4.0), ("openvino_default", 3.0), ("einnet_f32", 2.5), ("0.01", 2.0))}
    products = [{"runs": True, "bound": 0.02}, {"runs": True, "bound": None}, {"runs": False, "bound": 0.5}]
    apart = {"einnet_f32": 1e-6, "0.01": 4e-3, "openvino_default": None}
    found = row("m", 0.01, results, apart, {"precision": {"products": products}, "runs": "derived"}, 0.02, {"0.001": "no", "torch_bf16": "no torch"})
    assert found["ms"] == {"onnxruntime": 4.0, "openvino_default": 3.0, "einnet_f32": 2.5, "einnet": 2.0}
    assert found["error"] == {"einnet_f32": 1e-6, "einnet": 4e-3}
    assert (found["bound"], found["rounded"], found["products"], found["missing"]) == (0.02, 2, 3, {"torch_bf16": "no torch"})
    assert against(found) == 1.5
    assert cells(found)[:2] == ["m", "0.01"]
    assert cells(found)[-4:] == ["1.50x", "2 of 3", "0.02", "2.0%"]
    slow = {**found, "ms": {"openvino_default": 1.0, "einnet": 2.0}, "name": "n"}
    text = markdown({"machine": {"cpu": "a processor", "arithmetics": ["avx512_bf16"]}, "threads": 2, "models": [found, slow]})
    assert "Error 0.01: 0.87x of OpenVINO's default in the geometric mean of 2 models, least 0.50x." in text
    assert "Instructions for other arithmetics: avx512_bf16." in text
    assert against({**found, "ms": {"einnet": 2.0}}) is None


def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    found = row("m", 0.01, {}, {}, None, None, {"0.01": "einnet optimize ended with status 2"})
    assert (found["ms"], found["runs"], found["missing"]) == ({}, None, {"einnet": "einnet optimize ended with status 2"})
    assert cells(found)[2:9] == ["–"] * 7
