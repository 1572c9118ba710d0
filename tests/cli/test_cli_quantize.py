"""Models of bytes from the command line: written with a small error, refused with a reason, and then a program of products of bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.models import build
from einnet.api.quantize import drawn, quantize
from einnet.cli import main
from einnet.errors import BackendError, UsageError
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.runtime import ort
from einnet.runtime.ort import Session

RNG = np.random.default_rng(0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.onnx"
    onnx.save(build("mlp", size=24, classes=10), path)
    return path


def name_of(model: Path) -> tuple[str, tuple[int, ...]]:
    value = Session(model, 1).inputs[0]
    return value.name, tuple(int(n) for n in value.shape if isinstance(n, int))


def calibration(model: Path, count: int = 5) -> Path:
    name, shape = name_of(model)
    path = model.with_suffix(".npz")
    np.savez(path, **{name: RNG.standard_normal((count, *shape))})
    return path


def test_a_model_of_bytes_is_written_and_its_error_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = model.with_name("bytes.onnx")
    assert main(["quantize", str(model), "--calibrate", str(calibration(model)), "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "MinMax of 5 draws" in told
    assert "it errs by" in told
    program = prepare(load(out), in_bytes=True)
    kinds = {t.dtype for n in program.expression_nodes() for t in [n.output]}
    assert "u8" in kinds, "products of bytes"
    assert model.stat().st_size > out.stat().st_size / 2


def test_the_error_is_measured_on_the_draws(model: Path) -> None:
    name, shape = name_of(model)
    out, x = model.with_name("bytes.onnx"), RNG.standard_normal((3, *shape)).astype(np.float32)
    found = quantize(model, out, {name: x})
    exact, coarse = Session(model, 1), Session(out, 1)
    worst = 0.0
    for one in x:
        (y,), (z,) = exact({name: one}).values(), coarse({name: one}).values()
        worst = max(worst, float(np.abs(y - z).max() / np.abs(y).max()))
    assert found.error == pytest.approx(worst)
    assert 0 < found.error < 0.2
    assert found.draws == 3
    assert quantize(model, out, {name: x[0]}).draws == 1
    assert quantize(model, out, {name: x}, max_error=0.5).calibration == "MinMax"


def test_nothing_is_written_that_errs_too_much(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = model.with_name("bytes.onnx")
    assert main(["quantize", str(model), "--calibrate", str(calibration(model)), "--max-error", "1e-9", "-o", str(out)]) == 2
    told = capsys.readouterr().err
    assert "1e-09 is allowed" in told
    assert "Percentile" in told
    assert not out.exists()


def test_inputs_that_do_not_fit_are_refused(model: Path) -> None:
    session, (name, shape) = Session(model, 1), name_of(model)
    good = np.zeros(shape, np.float32)
    assert len(drawn(session, {name: good})) == 1
    assert [one[name].dtype for one in drawn(session, {name: np.zeros((2, *shape))})] == [np.float32] * 2
    for wrong in ({}, {name: good, "z": good}, {"z": good}, {name: good[0]}, {name: np.zeros((0, *shape))}):
        with pytest.raises(UsageError, match=r"input|array"):
            drawn(session, wrong)


def test_files_that_are_none_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (model, model.with_name("nowhere.npz")):
        assert main(["quantize", str(model), "--calibrate", str(path), "-o", str(model.with_name("bytes.onnx"))]) == 2
        assert str(path) in capsys.readouterr().err


def test_a_missing_quantiser_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(BackendError, match="cannot be imported"):
        ort.quantise(model, model.with_name("bytes.onnx"), [], "MinMax")
