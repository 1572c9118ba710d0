"""CSRNet (Li et al. 2018): the dilated back-end alone, and behind its VGG front-end."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net, Value

FRONT: tuple[tuple[int, ...], ...] = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512))
BACK = (512, 512, 512, 256, 128, 64)


def _back(net: Net, x: Value) -> Value:
    """Six 3x3 convolutions with dilation 2, each with ReLU."""
    for n, features in enumerate(BACK):
        x = net.relu(net.conv(x, f"backend.{n}", features, 3, pad=2, dilation=2), f"backend.{n}.relu")
    return x


def csrnet(batch: int = 1, seed: int = 0, size: int = 14) -> onnx.ModelProto:
    """The back-end: (batch, 512, size, size) to (batch, 64, size, size)."""
    net = Net("csrnet", seed)
    return net.finish(_back(net, net.input("features", (batch, 512, size, size))))


def csrnet_full(batch: int = 1, seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """The whole network: (batch, 3, size, size) to a density map (batch, 1, size/8, size/8)."""
    net = Net("csrnet_full", seed)
    x = net.input("image", (batch, 3, size, size))
    for stage, widths in enumerate(FRONT):
        if stage:
            x = net.max_pool(x, f"frontend.pool{stage}", 2, stride=2)
        for n, features in enumerate(widths):
            x = net.relu(net.conv(x, f"frontend.{stage}.{n}", features, 3, pad=1), f"frontend.{stage}.{n}.relu")
    return net.finish(net.conv(_back(net, x), "output_layer", 1, 1, gain=1.0))
