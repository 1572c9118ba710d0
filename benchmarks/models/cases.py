"""The single operators of the paper's table 3, and a small network with the parts of large ones."""

from __future__ import annotations

import onnx

from benchmarks.models.longformer import band_scores
from benchmarks.models.net import Net
from benchmarks.models.resnet import basic_block


def conv3x3(batch: int = 1, seed: int = 0, size: int = 7, channels: int = 512) -> onnx.ModelProto:
    """Conv 3x3, stride 1, padding 1, as many features as channels."""
    net = Net("conv3x3", seed)
    return net.finish(net.conv(net.input("x", (batch, channels, size, size)), "y", channels, 3, pad=1, bias=False, gain=1.0))


def convtranspose(batch: int = 16, seed: int = 0, size: int = 2, channels: int = 448, features: int = 256) -> onnx.ModelProto:
    """ConvTranspose 4x4, stride 2, padding 1: twice the size."""
    net = Net("convtranspose", seed)
    return net.finish(net.conv_transpose(net.input("x", (batch, channels, size, size)), "y", features, 4, stride=2, pad=1, gain=1.0))


def conv5x5(batch: int = 16, seed: int = 0, size: int = 224, channels: int = 32, features: int = 1) -> onnx.ModelProto:
    """Conv 5x5, stride 1, padding 2, many channels to one."""
    net = Net("conv5x5", seed)
    return net.finish(net.conv(net.input("x", (batch, channels, size, size)), "y", features, 5, pad=2, bias=False, gain=1.0))


def g2bmm(batch: int = 8, seed: int = 0, sequence: int = 10000, depth: int = 64, window: int = 1000, dilation: int = 4) -> onnx.ModelProto:
    """Band of a batched matrix product, (batch, sequence, depth) twice to (batch, sequence, 2·window+1), as ONNX can say it: by a gather.

    An engine that stores the gathered band needs 4·batch·sequence·(2·window+1)·depth bytes for it, 41 GB at the published size.
    """
    net = Net("g2bmm", seed)
    query, key = (net.input(name, (batch, sequence, depth)) for name in ("query", "key"))
    return net.finish(band_scores(net, query, key, window, dilation))


def small(batch: int = 1, seed: int = 0, size: int = 32, classes: int = 10) -> onnx.ModelProto:
    """(batch, 10, size, size) to (batch, classes): residual blocks with and without stride, a depthwise pair, pooling, a linear layer."""
    net = Net("small", seed)
    x = net.input("image", (batch, 10, size, size))
    x = net.relu(net.batch_norm(net.conv(x, "conv1", 16, 3, pad=1, bias=False, gain=1.0), "bn1"), "relu1")
    x = basic_block(net, x, "layer1.0", 16, 1)
    x = basic_block(net, x, "layer2.0", 32, 2)
    x = net.relu(net.batch_norm(net.conv(x, "depthwise", 32, 3, pad=1, groups=32, bias=False), "bn2"), "relu2")
    x = net.max_pool(net.relu(net.conv(x, "pointwise", 48, 1), "relu3"), "maxpool", 2, stride=2)
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))
