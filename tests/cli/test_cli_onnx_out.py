"""`einnet optimize -o OUT.onnx`: a model that stock ONNX Runtime runs, with the original's outputs."""

from __future__ import annotations

import json

import numpy as np
import onnx
from onnx.numpy_helper import to_array

from einnet.compile.export import onnx_file as onnx_out
from einnet.runtime.ort import Session
from tests.models import random_inputs, tiny


def test_a_standard_model_is_written(einnet, tmp_path):
    model = tiny("small", size=8)
    onnx.helper.set_model_props(model, {"author": "somebody"})
    onnx.save(model, tmp_path / "m.onnx")
    options = ("--threads", "1", "--time-budget", "4", "--max-depth", "1", "--json", str(tmp_path / "report.json"))
    shown = einnet("optimize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx"), *options)
    assert "as plain ONNX in ONNX Runtime" in shown.out
    made = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert made.graph.name == model.graph.name
    assert {p.key: p.value for p in made.metadata_props}["author"] == "somebody"
    inputs = random_inputs(model)
    wanted, got = Session(model.SerializeToString(), 1)(inputs), Session(made.SerializeToString(), 1)(inputs)
    for name, y in wanted.items():
        np.testing.assert_allclose(got[name], y, rtol=0, atol=1e-4 * np.abs(y).max())
    report = json.loads((tmp_path / "report.json").read_text())["onnx_out"]
    assert report["verification"]["passed"]
    assert report["speedup"] > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "out.onnx", "report.json"]


def test_weights_that_are_too_large_go_into_a_file_beside_it(tmp_path, monkeypatch):
    model = tiny("small", size=8)
    wanted = {t.name: to_array(t).tobytes() for t in model.graph.initializer}
    monkeypatch.setattr(onnx_out, "to_onnx", lambda _: model)
    monkeypatch.setattr("einnet.runtime.onnx.model.too_large", lambda _: True)
    monkeypatch.setattr(onnx_out, "as_the_original", lambda *_: None)
    onnx_out.write(None, tmp_path / "out.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.onnx", "out.onnx.data"]
    made = onnx.load(tmp_path / "out.onnx")
    assert {t.name: to_array(t).tobytes() for t in made.graph.initializer} == wanted
