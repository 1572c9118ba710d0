"""DFT and STFT as their definitions: beside ONNX Runtime, and beside numpy where that gives nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.operators.fourier import waves
from tests.graph.cases import build, check, compare, node, run_opaque, values

SIGNALS = {"real": values((2, 12, 3, 1)), "complex": values((2, 12, 3, 2))}
FORMS = [f for f in product(SIGNALS, (0, 1), (0, 1)) if f[1:] != (1, 1) and f[::2] != ("complex", 1)]


@pytest.mark.parametrize(("signal", "inverse", "onesided"), FORMS)
@pytest.mark.parametrize("axis", [1, 2, -2])
def test_dft(signal: str, inverse: int, onesided: int, axis: int) -> None:
    check([node("DFT", ["x"], axis=axis, inverse=inverse, onesided=onesided)], {"x": SIGNALS[signal]})


@pytest.mark.parametrize("length", [1, 5, 12, 17])
@pytest.mark.parametrize("opset", [17, 20])
def test_dft_cuts_and_pads(length: int, opset: int) -> None:
    axis = {"axis": 1} if opset < 20 else {}
    where = ["n"] if opset < 20 else ["n", "a"]
    check([node("DFT", ["x", *where], **axis)], {"x": SIGNALS["complex"]}, {"n": np.array(length), "a": np.array(1)}, opset=opset)


@pytest.mark.parametrize("length", [None, 7, 8, 12])
def test_a_real_signal_from_half_its_spectrum(length: int | None) -> None:
    spectrum = values((3, 5, 2))
    given = ["x", *(["n"] if length else [])]
    model = build([node("DFT", given, inverse=1, onesided=1)], {"x": spectrum}, constants={"n": np.array(length)} if length else {}, opset=20)
    expected = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], length, axis=1)
    found = interpret(load(model), {"x": spectrum}, run_opaque)
    np.testing.assert_allclose(found["y"][..., 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("signal", [(2, 40, 1), (2, 40, 2)])
@pytest.mark.parametrize(("length", "step"), [(8, 3), (8, 8), (9, 4), (40, 1), (5, 11)])
@pytest.mark.parametrize("window", ["none", "known", "data"])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(signal: tuple[int, ...], length: int, step: int, window: str, onesided: int) -> None:
    inputs: dict[str, Any] = {"x": values(signal)}
    constants: dict[str, Any] = {"s": np.array(step), "l": np.array(length)}
    (inputs if window == "data" else constants)["w"] = values((length,), 1)
    given = ["x", "s", "" if window == "none" else "w", "l"]
    program = check([node("STFT", given, onesided=onesided)], inputs, constants)
    assert len(list(program.expression_nodes())) == (1 if window == "none" else 2)


def test_a_table_beyond_all_use_is_not_made() -> None:
    program = check([node("DFT", ["x"])], {"x": values((1, 8192, 2))}, opaque=True)
    assert "8192 by 8192" in program.nodes[0].why


@pytest.mark.parametrize("given", [["x", "s", "w"], ["x", "s", "w", "l"]])
def test_one_side_is_what_the_standard_gives_by_default(given: list[str]) -> None:
    """Inference of the onnx package takes both sides where nothing is said; the program has the shape that runs."""
    signal = values((1, 30, 1))
    model = build([node("STFT", given)], {"x": signal}, constants={"s": np.array(4), "w": values((10,), 1), "l": np.array(10)})
    model.graph.output[0].ClearField("type")
    model.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, (1, 6, 6, 2)))
    program = load(model)
    assert list(program.expression_nodes())
    compare(program, model, {"x": signal})


def test_waves_are_exact_where_they_vanish() -> None:
    cosine, sine = waves(12, 12, 12)
    assert set(cosine[:, 3]) == {1.0, 0.0, -1.0} and set(sine[:, 6]) == {0.0}
