"""The zoo's command on small models of our own: rows, failures that stay local, and a table that follows from the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.zoo.__main__ import CLASSES, cells, main, markdown, of_the_best, told
from tests.models import random_inputs, two_layers


def stored(folder: Path, name: str, model: onnx.ModelProto) -> None:
    onnx.save(model, folder / f"{name}.onnx")
    np.savez(folder / f"{name}.npz", **random_inputs(model, 0))


def test_a_row_for_each_class_and_a_reason_for_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    stored(tmp_path, "two", two_layers())
    (tmp_path / "torn.onnx").write_bytes(onnx.ModelProto().SerializeToString())
    np.savez(tmp_path / "torn.npz", x=np.zeros(1, np.float32))
    out = tmp_path / "zoo.json"
    assert main([str(tmp_path), "--untimed", "--time-budget", "1", "--threads", "1", "-o", str(out)]) == 1
    rows = {(r["name"], r["allow"]): r for r in json.loads(out.read_text())["models"]}
    assert set(rows) == {(n, c) for n in ("two", "torn") for c in CLASSES}
    assert all(rows["two", c]["verified"] and rows["two", c]["opaque"] == 0 and rows["two", c]["parts"] for c in CLASSES)
    assert not any(rows["torn", c]["verified"] for c in CLASSES)
    assert all("einnet optimize ended with status 2" in rows["torn", c]["missing"][c] for c in CLASSES)


def test_the_table_follows_from_the_rows() -> None:
    report = {"opaque": 1, "parts": 9, "runs": "derived", "changed": [{}, {}], "verification": {"passed": True}, "notes": []}
    results = {"onnxruntime": 4.0, "openvino": 3.0, "no_derive": 2.5, "default": 2.0}
    found = told(report, "default", {n: {"status": "ok", "median_ms": t} for n, t in results.items()})
    row = {"name": "m", "nodes": 12, "allow": "default", "noise": 0.02, "missing": {}, **found}
    assert cells(row) == ["m", "default", "12", "1", "9", "2", "4", "3", "2.5", "2", "1.50x", "2.0%", "yes"]
    slow = {**row, "name": "n", "ms": {"onnxruntime": 1.0, "einnet": 2.0}}
    assert of_the_best(slow["ms"]) == 0.5
    text = markdown({"machine": {"cpu": "a processor", "cores": 2}, "threads": 2, "models": [row, slow]})
    assert "Class default, 2 models, against the faster of ONNX Runtime and OpenVINO: geometric mean 0.87x, least 0.50x." in text


def test_an_output_that_differs_is_not_verified() -> None:
    report = {"opaque": 0, "parts": 1, "runs": "derived", "changed": [], "verification": {"passed": True}, "notes": []}
    assert not told(report, "default", {"default": {"status": "disagrees with onnxruntime"}})["verified"]
