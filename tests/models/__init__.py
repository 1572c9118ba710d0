"""Models for tests: the benchmark models at sizes that run in a moment, and networks with one property each. Generated, never stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.models import build
from benchmarks.models.net import Net, Value

TINY: dict[str, dict[str, int]] = {
    "infogan": {"latent": 12},
    "dcgan": {"latent": 12},
    "fsrcnn": {"size": 8},
    "gcn": {"size": 32},
    "resnet18": {"size": 32, "classes": 10},
    "csrnet": {"size": 5},
    "csrnet_full": {"size": 32},
    "longformer": {"sequence": 26, "window": 3, "dilation": 2, "heads": 2, "hidden": 16},
    "longformer_masked": {"sequence": 26, "window": 3, "dilation": 2, "heads": 2, "hidden": 16},
    "conv3x3": {"channels": 16},
    "convtranspose": {"batch": 2, "channels": 12, "features": 8},
    "conv5x5": {"batch": 2, "size": 12},
    "g2bmm": {"batch": 2, "sequence": 20, "depth": 8, "window": 3, "dilation": 2},
    "squeeze": {"size": 32, "classes": 10},
    "residual": {"size": 32, "classes": 10},
    "depthwise": {"size": 32, "classes": 10},
    "unet": {"size": 16},
    "dense": {"size": 12, "classes": 10},
    "inception": {"size": 8, "classes": 10},
    "shuffle": {"size": 8, "classes": 10},
    "gated": {"size": 8, "classes": 10},
    "mlp": {"size": 32},
    "mixer": {"tokens": 8, "hidden": 16, "layers": 1},
    "transformer": {"sequence": 8, "hidden": 16, "heads": 2, "layers": 1},
    "audio": {"samples": 128, "channels": 8},
    "volume": {"size": 8},
    "small": {"size": 16},
}
"""Generator arguments under which a model keeps its operators and loses its size."""


def tiny(name: str, **changes: Any) -> onnx.ModelProto:
    """A benchmark model at its test size."""
    return build(name, **{**TINY[name], **changes})


def two_layers(seed: int = 0, rows: int = 1, width: int = 8) -> onnx.ModelProto:
    """Two linear layers with a ReLU between: (rows, width) to (rows, 4). So little work, as it stands, that the cost of a call shows."""
    net = Net("two_layers", seed)
    hidden = net.relu(net.gemm(net.input("x", (rows, width)), "fc1", width), "relu")
    return net.finish(net.gemm(hidden, "fc2", 4))


def with_opaque(seed: int = 0) -> onnx.ModelProto:
    """Conv, a norm along the width that has no expression, Conv: (1, 4, 6, 6) to (1, 4, 6, 6)."""
    net = Net("with_opaque", seed)
    x = net.conv(net.input("x", (1, 4, 6, 6)), "before", 4, 3, pad=1)
    x = net.node("LpNormalization", "running", [x], x.shape, axis=3)
    return net.finish(net.conv(x, "after", 4, 1, gain=0.1))


def two_outputs(seed: int = 0) -> onnx.ModelProto:
    """An intermediate result that is an output and is read again."""
    net = Net("two_outputs", seed)
    features = net.relu(net.conv(net.input("x", (2, 3, 8, 8)), "features", 5, 3, pad=1), "features.relu")
    return net.finish(features, net.conv(features, "scores", 2, 1))


def dynamic_batch(seed: int = 0) -> onnx.ModelProto:
    """A linear layer on (batch, 8) with a symbolic batch."""
    net = Net("dynamic_batch", seed)
    y = net.gemm(net.input("x", (1, 8)), "fc", 4)
    net.inputs[:] = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 8))]
    model = net.finish(Value(y.name, y.shape))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal values for every float32 input; symbolic dimensions are 1."""
    random = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
