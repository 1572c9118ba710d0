"""The benchmark models are what the published tables say, run in ONNX Runtime, and stay near unit scale."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tests.models as test_models
from benchmarks.models import MODELS, build, parameters
from benchmarks.models.__main__ import main
from benchmarks.models.flops import flops, node_flops, shapes
from benchmarks.models.longformer import band_mask, dense_mask
from tests.models import TINY, random_inputs, tiny


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs or random_inputs(model)))


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def test_every_model_has_a_test_size():
    assert TINY.keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_runs_with_declared_shape_and_sane_scale(name):
    model = tiny(name)
    (result,) = run(model)
    assert result.shape == shapes(model)[model.graph.output[0].name]
    assert np.isfinite(result).all()
    assert 0.02 < result.std() < 20


@pytest.mark.parametrize(
    ("name", "gflop"),
    [("infogan", 0.051), ("dcgan", 0.21), ("fsrcnn", 0.026), ("resnet18", 3.6), ("csrnet", 3.4), ("gcn", 12), ("longformer", 15)],
)
def test_published_size_has_published_work(name, gflop):
    assert flops(build(name)) == pytest.approx(gflop * 1e9, rel=0.035)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("infogan", {}, (1, 3, 32, 32)),
        ("dcgan", {"batch": 16}, (16, 3, 64, 64)),
        ("fsrcnn", {"size": 256}, (1, 1, 1024, 1024)),
        ("csrnet_full", {}, (1, 1, 28, 28)),
        ("convtranspose", {}, (16, 256, 4, 4)),
        ("conv5x5", {}, (16, 1, 224, 224)),
        ("conv3x3", {}, (1, 512, 7, 7)),
    ],
)
def test_published_shapes(name, arguments, result):
    model = build(name, **arguments)
    assert shapes(model)[model.graph.output[0].name] == result


@pytest.mark.parametrize("name", ["small", "fsrcnn", "longformer"])
def test_seed_decides_every_weight(name):
    first, again, other = weights(tiny(name)), weights(tiny(name)), weights(tiny(name, seed=1))
    assert tiny(name).SerializeToString() == tiny(name).SerializeToString()
    drawn = [n for n in first if n.endswith((".weight", ".bias", ".running_mean", ".running_var"))]
    assert drawn
    assert all(np.array_equal(first[n], again[n]) for n in drawn)
    assert not any(np.array_equal(first[n], other[n]) for n in drawn)


def test_batch_holds_independent_samples():
    inputs = {"image": np.random.default_rng(0).standard_normal((3, 10, 16, 16)).astype(np.float32)}
    (together,) = run(tiny("small", batch=3), inputs)
    alone = [run(tiny("small"), {"image": inputs["image"][n : n + 1]})[0] for n in range(3)]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "gcn", "infogan", "small"])
def test_batch_norm_is_a_node_whose_every_operand_matters(name):
    model = tiny(name)
    values = weights(model)
    norms = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    assert norms
    for node in norms:
        scale, shift, mean, variance = (values[i] for i in node.input[1:])
        assert scale.std() > 0.02
        assert shift.std() > 0.02
        assert mean.std() > 0.02
        assert variance.std() > 0.05


def test_gcn_shares_the_weights_of_five_bottlenecks():
    model = tiny("gcn")
    for stage in ("layer3", "layer4"):
        named = [n for n in model.graph.node if re.fullmatch(rf"{stage}\.\d\.gcn\.conv11", n.name)]
        assert [n.input[1] for n in named] == [f"{stage}.0.gcn.conv11.weight"] + 5 * [f"{stage}.1.gcn.conv11.weight"]


def attention(model: onnx.ModelProto, x: np.ndarray, window: int, dilation: int, heads: int) -> np.ndarray:
    """The Longformer block in float64, one query at a time."""
    values = {name: array.astype(np.float64) for name, array in weights(model).items()}

    def linear(y: np.ndarray, layer: str) -> np.ndarray:
        return y @ values[f"{layer}.weight"] + values[f"{layer}.bias"]

    sequence, hidden = x.shape
    depth = hidden // heads
    query, key, value = (linear(x, layer).reshape(sequence, heads, depth) for layer in ("query", "key", "value"))
    context = np.zeros((sequence, heads, depth))
    for i in range(sequence):
        seen = [j for j in range(i - window * dilation, i + window * dilation + 1, dilation) if 0 <= j < sequence]
        for h in range(heads):
            weight = np.exp(key[seen, h] @ query[i, h] / np.sqrt(depth))
            context[i, h] = weight / weight.sum() @ value[seen, h]
    return linear(np.maximum(linear(context.reshape(sequence, hidden), "intermediate"), 0), "output") + x


@pytest.mark.parametrize("name", ["longformer", "longformer_masked"])
def test_longformer_is_dilated_window_attention(name):
    model = tiny(name, batch=2)
    inputs = random_inputs(model)
    (result,) = run(model, inputs)
    size = {k: TINY[name][k] for k in ("window", "dilation", "heads")}
    expected = np.stack([attention(model, x.astype(np.float64), **size) for x in inputs["hidden_states"]])
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_band_and_dense_mask_admit_the_same_pairs():
    band, dense = band_mask(30, 4, 3), dense_mask(30, 4, 3)
    pairs = {(i, i + 3 * (w - 4)) for i, w in zip(*np.nonzero(band == 0), strict=True)}
    assert pairs == set(zip(*np.nonzero(dense == 0), strict=True))


def test_flops_of_single_nodes():
    known = {"x": (1, 6, 5, 5), "w": (4, 3, 3, 3), "y": (1, 4, 3, 3), "t": (6, 4, 2, 2), "z": (1, 4, 10, 10), "a": (7, 2), "b": (7, 5), "c": (2, 5)}
    assert node_flops(helper.make_node("Conv", ["x", "w"], ["y"], group=2), known) == 2 * 4 * 9 * 3 * 9
    assert node_flops(helper.make_node("ConvTranspose", ["x", "t"], ["z"], strides=(2, 2)), known) == 2 * 6 * 25 * 4 * 4
    assert node_flops(helper.make_node("Gemm", ["a", "b"], ["c"], transA=1), known) == 2 * 2 * 5 * 7
    assert node_flops(helper.make_node("Relu", ["x"], ["x"]), known) == 0


def test_command_writes_the_model_that_build_gives(tmp_path: Path, capsys):
    path = tmp_path / "small.onnx"
    assert main(["small", "-o", str(path), "--batch", "2", "--seed", "3", "--size", "size=16"]) == 0
    assert onnx.load(path).SerializeToString() == build("small", batch=2, seed=3, size=16).SerializeToString()
    assert "GFLOP" in capsys.readouterr().out


@pytest.mark.parametrize("size", ["depth=3", "16x16", "0"])
def test_command_refuses_a_wrong_size(size, capsys, tmp_path: Path):
    with pytest.raises(SystemExit) as stop:
        main(["small", "-o", str(tmp_path / "x.onnx"), "--size", size])
    assert stop.value.code == 2
    assert "small takes size=N, classes=N" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_named():
    with pytest.raises(KeyError, match="no model 'vgg'"):
        build("vgg")
    with pytest.raises(TypeError, match="small has no depth"):
        build("small", depth=3)
    assert parameters("g2bmm")["sequence"] == 10000


@pytest.mark.parametrize("name", ["two_layers", "with_opaque", "two_outputs", "dynamic_batch"])
def test_test_models_run(name):
    assert all(np.isfinite(result).all() for result in run(getattr(test_models, name)()))
