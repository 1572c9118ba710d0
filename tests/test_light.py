"""The light topologies with random weights: nothing of what they compute is lost or left opaque."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.light import LIGHT, NAMES, calibrated, randomised, scaling
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque
from einnet.runtime.ort import Session


def test_there_are_nine() -> None:
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet"])
def test_weights_are_random_and_everything_has_an_expression(name: str) -> None:
    given = onnx.load(LIGHT / f"{name}.onnx")
    model = randomised(given)
    assert "ConstantOfShape" in {n.op_type for n in given.graph.node}, "the argument is left as it is"
    values = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    windows = [v for v in values.values() if v.ndim == 4]
    assert len(windows) > 20
    assert all(np.unique(v).size == v.size or v.size > 1000 for v in windows)
    filled = {n.output[0] for n in given.graph.node if n.op_type == "ConstantOfShape"}
    assert filled <= values.keys()
    assert all((values[n] >= 0.5).all() for n in scaling(list(model.graph.node)) & filled)
    program = load(model)
    assert not [n for n in program.nodes if isinstance(n, Opaque)]


def test_scores_are_spread_so_that_no_softmax_hides_a_difference() -> None:
    model = calibrated(randomised(onnx.load(LIGHT / "light_squeezenet.onnx")))
    session = Session(model.SerializeToString(), 1)
    (result,) = session({"data_0": np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)}).values()
    assert result.max() < 0.1
    assert result.std() > 1e-5
