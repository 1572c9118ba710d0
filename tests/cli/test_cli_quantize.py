"""Models of bytes from the command line: written with a small error, refused with a reason, and then a program of products of bytes."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from benchmarks.models import build
from einnet.api.quantize import drawn, quantize
from einnet.cli import main
from einnet.compile.run import Run
from einnet.compile.targets.cpu.finishing import saturating
from einnet.errors import BackendError, UsageError
from einnet.evidence.comparison.saturation import saturated, told
from einnet.graph.onnx.byte_ranges import Rounded, rounded
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.runtime import ort
from einnet.runtime.ort import Session
from einnet.search.settings import Settings

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


def test_what_saturates_is_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing on the draws by which ranges were taken as they are; much on inputs that are ten times as large."""
    out, name = model.with_name("bytes.onnx"), name_of(model)[0]
    draws = calibration(model, 30)
    assert main(["quantize", str(model), "--calibrate", str(draws), "-o", str(out)]) == 0
    told_so = capsys.readouterr().out
    assert "rounded tensors is beyond its range on them" in told_so
    with np.load(draws) as file:
        own = [{name: x.astype(np.float32)} for x in file[name]]
    found = saturated(out, own)
    assert set(found.values()) == {0.0} and name in found
    assert found == quantize(model, out, {name: np.stack([one[name] for one in own])}).beyond
    louder = saturated(out, [{name: 10 * one[name]} for one in own])
    x = np.stack([10 * one[name] for one in own])
    assert louder[name] == pytest.approx(float(((x > x.max() / 10) | (x < x.min() / 10)).mean()), abs=0.02) and louder[name] > 0.5
    assert next(iter(louder.values())) == max(louder.values())
    (line,) = told(louder, "these")
    assert line.startswith("saturation: on these 0.")
    assert told(found, "these") == told({}, "these") == told({"x": 0.01}, "these") == []
    assert "'x'" in told({"x": 0.02, "y": 0.015}, "these")[0] and "1 more of 2 tensors" in told({"x": 0.02, "y": 0.015}, "these")[0]


def test_a_program_tells_that_its_inputs_saturate(model: Path) -> None:
    """Ranges that were taken from inputs a tenth as large as those that verify, or twice as large; and where time is over, nothing is looked at."""
    (name, shape), out = name_of(model), model.with_name("bytes.onnx")
    inputs = {name: RNG.standard_normal(shape).astype(np.float32)}

    def run(path: Path, end: float = inf) -> Run:
        made = Run(path, prepare(load(path), in_bytes=True), Settings(threads=1), 0.0)
        vars(made).update(trial=SimpleNamespace(inputs=inputs, threads=1), schedule=SimpleNamespace(end=end))
        return made

    quantize(model, out, {name: RNG.standard_normal((4, *shape)) / 10})
    (line,) = saturating(run(out))
    assert line.startswith("saturation: on the random inputs that verify it")
    assert saturating(run(out, -inf)) == saturating(run(model)) == []
    quantize(model, out, {name: 2 * RNG.standard_normal((4, *shape))})
    assert saturating(run(out)) == []
    assert set(saturated(out, []).values()) == {0.0} and saturated(model, [inputs]) == {}


def node_of(kind: str, zero: int, dtype: type = np.uint8, **attributes: int) -> Rounded | None:
    node = onnx.helper.make_node(kind, ["x", "s", "z"], ["y"], **attributes)
    return rounded(node, {"s": np.array(0.5, np.float32), "z": np.array(zero, dtype), "w": np.ones(3)})


def test_numbers_beyond_a_range_are_counted() -> None:
    """What rounds to the last number is inside; an end that is 0 cuts off what a relu does; a scale for each channel."""
    x = np.array([[-64.3, -64.2, -0.3, 0.0, 63.6, 63.8, np.inf, -np.inf]], np.float32)
    assert node_of("QuantizeLinear", 128).beyond(x) == 4 and node_of("QuantizeLinear", 0, np.int8).beyond(x) == 4
    assert node_of("QuantizeLinear", 0).beyond(np.array([-5.0, 0.0, 127.5, 127.8])) == 1
    assert node_of("QuantizeLinear", 255).beyond(np.array([5.0, 0.0, -127.5, -127.8])) == 1
    by_channel = Rounded("x", np.array([1.0, 10.0]), np.array([128, 128], np.uint8), 0)
    assert by_channel.beyond(np.full((2, 3), 200.0)) == 3 and Rounded("x", by_channel.scale, by_channel.zero, 1).beyond(np.full((3, 2), 200.0)) == 3


def test_what_is_no_rounding_of_a_tensor_is_left_out() -> None:
    assert node_of("QuantizeLinear", 1) is not None
    assert node_of("DequantizeLinear", 1) is None
    assert node_of("QuantizeLinear", 1, np.float32) is None and node_of("QuantizeLinear", 1, block_size=2) is None
    known = {"s": np.ones(()), "z": np.zeros((), np.uint8), "w": np.ones(3)}
    assert rounded(onnx.helper.make_node("QuantizeLinear", ["w", "s"], ["y"]), known) is None, "a weight"
    assert rounded(onnx.helper.make_node("QuantizeLinear", ["x", "t"], ["y"]), known) is None, "a scale of each run"
    assert rounded(onnx.helper.make_node("QuantizeLinear", ["x", "s"], ["y"]), known).zero.dtype == np.uint8


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


def test_an_onnx_model_has_an_onnx_name(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = model.with_name("bytes.einnet")
    assert main(["quantize", str(model), "--calibrate", str(calibration(model)), "-o", str(program)]) == 2
    assert "ends in .onnx" in capsys.readouterr().err and not program.exists()


def test_a_missing_quantiser_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(BackendError, match="cannot be imported"):
        ort.quantise(model, model.with_name("bytes.onnx"), [], "MinMax")
