"""The table of derived algorithms: its cases are models that ONNX Runtime runs, and its file keeps what was measured before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.algorithms import CASES
from benchmarks.algorithms.__main__ import main
from benchmarks.algorithms.case import Case
from benchmarks.algorithms.measure import Found, medians, naive
from benchmarks.contest.engines import engine, onnxruntime
from benchmarks.contest.results import keep, known
from benchmarks.contest.worker import Engine

NAMES = [case.name for case in CASES]


def row(name: str, states: int = 1) -> dict[str, object]:
    return Found(name, "", 2, 1, states, 1.0, "proven", True, 0.0, "derived", ()).row()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_a_valid_model_the_same_each_time(case: Case) -> None:
    model = case.model()
    onnx.checker.check_model(model)
    assert model.SerializeToString() == case.model().SerializeToString()
    assert naive(model) > 0 and case.inputs()


def test_names_are_of_one_case_each() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_rows_of_other_cases_stay_and_those_of_no_case_go(tmp_path: Path) -> None:
    path = tmp_path / "algorithms.json"
    first, second = CASES[0].name, CASES[1].name
    for one in (row(second), row("gone"), row(first), row(second, states=2)):
        keep(path, {"cpu": "any"}, one, NAMES)
    data = json.loads(path.read_text())
    assert [c["name"] for c in data["cases"]] == [first, second] and data["cases"][1]["states"] == 2
    assert {"name", "naive_ops", "derived_ops", "states", "seconds", "proof", "ms"} <= data["cases"][0].keys()


def test_rows_of_the_same_settings_are_not_measured_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "algorithms.json", {"budget_s": 30.0, "threads": 1}
    assert not known(path, CASES[0].name, asked)
    keep(path, {"cpu": "any"}, {**row(CASES[0].name), "asked": asked, "commit": "abc"}, NAMES)
    keep(path, {"cpu": "any"}, row(CASES[1].name), NAMES)
    assert known(path, CASES[0].name, dict(asked)) and not known(path, CASES[0].name, {**asked, "threads": 2})
    assert not known(path, CASES[1].name, asked)


def test_a_case_for_which_no_time_is_left_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "algorithms.json"
    assert main(["--seconds-left", "5", "--output", str(path)]) == 1
    assert not path.exists() and CASES[0].name in capsys.readouterr().err


@pytest.mark.parametrize("case", [c for c in CASES if "scipy" in c.others], ids=lambda case: case.name)
def test_a_library_that_runs_no_model_computes_the_same(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    onnx.save(case.model(), path := tmp_path / "model.onnx")
    inputs = case.inputs()
    (wanted,), (found,) = (engine(kind)(path, 1)(inputs) for kind in ("onnxruntime", case.others["scipy"]))
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()


def test_an_engine_that_does_not_agree_has_a_reason_and_no_time() -> None:
    engines = [Engine(name, name, Path("model.onnx")) for name in ("onnxruntime", "torch")]
    results = {"onnxruntime": {"status": "ok", "median_ms": 1.5}, "torch": {"status": "disagrees with onnxruntime"}}
    assert medians(results, engines) == ({"onnxruntime": 1.5}, {"torch": "disagrees with onnxruntime"})


def test_an_engine_is_named_or_imported() -> None:
    assert engine("onnxruntime") is onnxruntime is engine("benchmarks.contest.engines:onnxruntime")
