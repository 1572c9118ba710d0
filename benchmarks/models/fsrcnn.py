"""FSRCNN (Dong et al. 2016): super-resolution by 4 of a one-channel image, d=56, s=12, m=4."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net


def fsrcnn(batch: int = 1, seed: int = 0, size: int = 32, scale: int = 4) -> onnx.ModelProto:
    """(batch, 1, size, size) to (batch, 1, scale·size, scale·size)."""
    net = Net("fsrcnn", seed)
    x = net.input("image", (batch, 1, size, size))
    layers = [("extract", 56, 5), ("shrink", 12, 1), *((f"map{n}", 12, 3) for n in range(4)), ("expand", 56, 1)]
    for name, features, kernel in layers:
        x = net.conv(x, name, features, kernel, pad=kernel // 2)
        x = net.prelu(x, f"{name}.prelu")
    return net.finish(net.conv_transpose(x, "deconv", 1, 9, stride=scale, pad=4, output_padding=scale - 1, bias=True, gain=1.0))
