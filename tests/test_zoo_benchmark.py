"""The zoo's command on small models of our own: rows, failures that stay local, and a table that follows from the rows."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import einnet
from benchmarks.contest.compare import difference
from benchmarks.contest.worker import Engine
from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo import making
from benchmarks.zoo.__main__ import in_order, main, told
from benchmarks.zoo.table import CLASSES, WHOLE, cells, markdown, of_the_best
from einnet.errors import ModelError
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
    assert {r["commit"] for r in rows.values()} == {zoo.commit()}
    assert all(rows["torn", c]["missing"][c].startswith("not an ONNX model") for c in CLASSES)


def test_our_programs_of_a_model_are_made_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own operators are a program that gives its results; an error stays with its class."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    model, optimize = tmp_path / "model.onnx", einnet.optimize
    onnx.save(two_layers(), model)

    def failing(model: Path, *, allow: str, **settings: Any) -> Any:
        if allow == "precision":
            raise ModelError(f"{model}: it is odd")
        return optimize(model, allow=allow, **settings)

    monkeypatch.setattr(making.einnet, "optimize", failing)
    making.make(model, 1, {"default": 60.0, "precision": 1.0}, 0, own=True)
    told = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("no_derive", *CLASSES)}
    assert told["precision"] == {"error": "it is odd"} and not (tmp_path / "precision.einnet").exists()
    own = einnet.load(tmp_path / "no_derive.einnet")
    assert told["no_derive"]["runs"] == "own operators" and told["no_derive"]["kernels"] == len(own.loaded.plan.kernels)
    assert min(told["default"]["operations"].values()) > 0
    given = random_inputs(two_layers(), 3)
    (expected,) = ReferenceEvaluator(two_layers()).run(None, given)
    np.testing.assert_allclose(next(iter(own(given).values())), expected, rtol=1e-4, atol=1e-5)


def test_the_table_follows_from_the_rows() -> None:
    report = {"opaque": 1, "why_opaque": [], "parts": 9, "runs": "derived", "changed": [{}, {}], "verification": {"passed": True}, "notes": []}
    report |= {"kernels": 7, "operations": {"model": 400, "runs": 300}}
    results = {"onnxruntime": 4.0, "openvino": 3.0, "no_derive": 2.5, "default": 2.0}
    found = told(report, "default", {n: {"status": "ok", "median_ms": t} for n, t in results.items()})
    row = {"name": "m", "nodes": 12, "allow": "default", "noise": 0.02, "missing": {}, **found}
    assert cells(row) == ["m", "default", "12", "1", "9", "2", "−25%", "7", "derived", "4", "3", "2.5", "2", "1.50x", "2.0%", "yes"]
    slow = {**row, "name": "n", "ms": {"onnxruntime": 1.0, "einnet": 2.0}}
    assert of_the_best(slow["ms"]) == 0.5
    slow["asked"] = {"budgets": {"default": 40.0, "precision": 20.0}}
    text = markdown({"machine": {"cpu": "a processor", "cores": 2}, "threads": 2, "models": [row, slow]})
    assert text.count("one class after the other: 40 s for class default, 20 s for class precision.") == 1
    assert "Class default, 2 models, against the faster of ONNX Runtime and OpenVINO: geometric mean 0.87x, least 0.50x." in text


def test_what_onnx_runtime_runs_whole_is_no_gain() -> None:
    """Its second measurement was given as 1.06x, with six changed parts that do not run."""
    row = {"name": "m", "allow": "default", "nodes": 4, "opaque": 0, "parts": 9, "changed": 6, "runs": "whole model", "noise": 0.2, "verified": True}
    told_so = cells({**row, "ms": {"onnxruntime": 15.0, "openvino": 14.2, "einnet_no_derive": 14.4, "einnet": 13.5}})
    assert told_so[5:9] == ["0", "–", "–", "ONNX Runtime"] and told_so[12:14] == ["15", "0.95x"]


def test_equal_programs_are_timed_once(tmp_path: Path) -> None:
    """The manifest's other entries, and what is derived, make no difference; a constant does."""

    def program(name: str, constant: bytes, metadata: str) -> Engine:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("manifest.json", json.dumps({"plan": {"kernels": [1]}, "metadata": metadata}))
            archive.writestr("constants/0.npy", constant)
            archive.writestr("derivations/0.ein", metadata)
        return Engine(name, "einnet", tmp_path / name)

    engines = {n: program(n, c, n) for n, c in (("no_derive", b"1"), ("default", b"1"), ("precision", b"2"))}
    runs = {n: {"runs": "derived"} for n in engines}
    assert zoo.timed_as(engines, runs) == {"no_derive": "no_derive", "default": "no_derive", "precision": "precision"}
    assert zoo.timed_as(engines, {**runs, "default": {"runs": "whole model"}})["default"] == "onnxruntime"


def test_an_output_that_differs_is_not_verified() -> None:
    report = {"opaque": 0, "why_opaque": [], "parts": 1, "runs": "derived", "changed": [], "verification": {"passed": True}, "notes": []}
    assert not told(report, "default", {"default": {"status": "disagrees with onnxruntime"}})["verified"]


def test_what_onnx_runtime_keeps_is_compared_with_nothing_and_is_no_failure() -> None:
    report = {"opaque": 0, "why_opaque": [], "parts": 0, "runs": WHOLE, "changed": [], "verification": {"passed": False}, "notes": []}
    kept = told(report, "default", {"default": {"status": "ok"}})
    assert kept["verified"] is None
    assert cells({**kept, "name": "m", "allow": "default", "nodes": 3, "noise": 0.1})[-1] == "–"
    assert told(report, "default", {"default": {"status": "failed"}})["verified"] is False
    assert told({**report, "runs": "derived"}, "default", {"default": {"status": "ok"}})["verified"] is False


def test_results_do_not_say_where_a_model_was_read() -> None:
    said = "kept whole, ONNX Runtime runs it: /some/place/model.onnx: output 'y' is no static tensor"
    assert making.without_path(Path("/some/place/model.onnx"), said) == "kept whole, ONNX Runtime runs it: output 'y' is no static tensor"


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        stored(tmp_path, name, two_layers())
    ran: list[str] = []

    def rows_of(path: Path, place: object, options: object, asked: dict[str, object]) -> list[dict[str, object]]:
        ran.append(path.stem)
        row = {"name": path.stem, "asked": asked, "digest": zoo.digest(path), "nodes": 2, "opaque": 1, "why_opaque": ["n: it is odd"], "parts": 1}
        return [{**row, "allow": c, "changed": int(path.stem == "c"), "ms": {}, "noise": None, "verified": True, "missing": {}} for c in CLASSES]

    monkeypatch.setattr(zoo, "rows_of", rows_of)
    out = tmp_path / "zoo.json"
    arguments = [str(tmp_path), "-o", str(out), "--untimed", "--time-budget", "1"]
    assert main([*arguments, "--seconds-left", "1"]) == 1
    assert "3 models are left" in capsys.readouterr().err and not ran
    assert main(arguments) == 0 and ran == ["a", "b", "c"]
    assert main(arguments) == 0 and len(ran) == 3, "nothing is measured twice"
    assert "- a: n: it is odd" in out.with_suffix(".md").read_text()
    rows = {(r["name"], r["allow"]): r for r in json.loads(out.read_text())["models"]}
    assert in_order(["a", "b", "c"], rows) == ["c", "a", "b"]
    assert in_order(["a", "c", zoo.FIRST[1], zoo.FIRST[0]], rows) == [*zoo.FIRST[:2], "c", "a"]
    assert main([*arguments, "--seed", "1"]) == 0 and ran[3:] == ["c", "a", "b"], "other settings are another question"
    (tmp_path / "b.onnx").write_bytes((tmp_path / "b.onnx").read_bytes() + b"\x72\x00")
    assert main([*arguments, "--seed", "1"]) == 0 and ran[6:] == ["b"], "a changed model is measured anew"


def test_outputs_without_elements_agree() -> None:
    none = np.zeros((0, 4), np.float32)
    assert difference([none, np.array([True])], [none, np.array([True])]) == 0.0
    assert difference([none, np.array([1])], [none, np.array([2])]) == 0.5
    assert difference([none], [np.zeros((1, 4), np.float32)]) == float("inf")
