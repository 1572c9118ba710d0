"""The benchmark models as functions of jax, against ONNX Runtime; where jax is not installed there is nothing to test."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from benchmarks.models import MODELS
from tests.models import TINY, random_inputs, tiny

jax = pytest.importorskip("jax", reason="jax is not installed: pip install -e '.[bench]'")

from benchmarks.contest.jax_model import to_jax  # noqa: E402


def check(model: onnx.ModelProto, error: float = 2e-5) -> None:
    inputs = random_inputs(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    run, weights = to_jax(model)
    got = jax.jit(run)(weights, *(inputs[i.name] for i in session.get_inputs()))
    for y, wanted in zip(got, session.run(None, inputs), strict=True):
        assert y.shape == wanted.shape
        assert float(np.abs(np.asarray(y) - wanted).max()) <= error * float(np.abs(wanted).max())


def test_every_model_has_a_test_size():
    assert TINY.keys() == MODELS.keys()


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in ("fsrcnn", "longformer") else pytest.mark.slow) for n in TINY])
def test_models(name):
    check(tiny(name))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("stride", "dilation", "pads", "more"), [(1, 1, (0, 0), 0), (2, 1, (1, 2), 1), (3, 2, (2, 1), 2), (2, 2, (0, 3), 0)])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_windows(kind, stride, dilation, pads, more, group):
    shape = (6, 4 // group, 3, 3) if kind == "Conv" else (4, 6 // group, 3, 3)
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pads[0]] * 2 + [pads[1]] * 2, "group": group}
    attributes |= {"output_padding": [more] * 2} if kind == "ConvTranspose" else {}
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    check(one_node(node, (2, 4, 9, 9), {"w": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}))


def one_node(node: onnx.NodeProto, shape: tuple[int, ...], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A model of one node from x to y."""
    given, made = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initial = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    return helper.make_model(helper.make_graph([node], "one", [given], [made], initial), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_what_it_does_not_know_is_named():
    with pytest.raises(ValueError, match="CumSum 'running'"):
        to_jax(one_node(helper.make_node("CumSum", ["x", "axis"], ["y"], name="running"), (2, 3), {"axis": np.array(1)}))
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="same", auto_pad="SAME_UPPER")
    run, weights = to_jax(one_node(node, (1, 1, 4, 4), {"w": np.ones((1, 1, 3, 3), np.float32)}))
    with pytest.raises(ValueError, match="Conv 'same'"):
        run(weights, np.ones((1, 1, 4, 4), np.float32))
