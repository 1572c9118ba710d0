"""ResNet-18 as torchvision defines it, and the residual blocks that other models share."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net, Value

RESIDUAL_GAIN = 0.5
"""Mean scale of the batch norm that closes a residual branch, below 1 so that a sum over many blocks stays near unit scale."""


def stem(net: Net, x: Value) -> Value:
    """7x7 stride-2 convolution and 3x3 stride-2 max-pool: a quarter of the size, 64 channels."""
    x = net.conv(x, "conv1", 64, 7, stride=2, pad=3, bias=False, gain=1.0)
    x = net.relu(net.batch_norm(x, "bn1"), "relu")
    return net.max_pool(x, "maxpool", 3, stride=2, pad=1)


def shortcut(net: Net, x: Value, name: str, features: int, stride: int) -> Value:
    """x itself where shapes agree, else a strided 1x1 convolution."""
    if stride == 1 and x.shape[1] == features:
        return x
    return net.batch_norm(net.conv(x, f"{name}.downsample.0", features, 1, stride=stride, bias=False, gain=1.0), f"{name}.downsample.1")


def basic_block(net: Net, x: Value, name: str, features: int, stride: int) -> Value:
    """Two 3x3 convolutions beside the shortcut."""
    y = net.conv(x, f"{name}.conv1", features, 3, stride=stride, pad=1, bias=False)
    y = net.relu(net.batch_norm(y, f"{name}.bn1"), f"{name}.relu1")
    y = net.conv(y, f"{name}.conv2", features, 3, pad=1, bias=False)
    y = net.batch_norm(y, f"{name}.bn2", gain=RESIDUAL_GAIN)
    return net.relu(net.add(y, shortcut(net, x, name, features, stride), f"{name}.add"), f"{name}.relu2")


def bottleneck(net: Net, x: Value, name: str, middle: int, stride: int) -> Value:
    """1x1, 3x3, 1x1 convolutions to 4·middle channels beside the shortcut; the stride is on the 3x3."""
    y = net.conv(x, f"{name}.conv1", middle, 1, bias=False)
    y = net.relu(net.batch_norm(y, f"{name}.bn1"), f"{name}.relu1")
    y = net.conv(y, f"{name}.conv2", middle, 3, stride=stride, pad=1, bias=False)
    y = net.relu(net.batch_norm(y, f"{name}.bn2"), f"{name}.relu2")
    y = net.conv(y, f"{name}.conv3", 4 * middle, 1, bias=False)
    y = net.batch_norm(y, f"{name}.bn3", gain=RESIDUAL_GAIN)
    return net.relu(net.add(y, shortcut(net, x, name, 4 * middle, stride), f"{name}.add"), f"{name}.relu3")


def resnet18(batch: int = 1, seed: int = 0, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """(batch, 3, size, size) to (batch, classes)."""
    net = Net("resnet18", seed)
    x = stem(net, net.input("image", (batch, 3, size, size)))
    for stage, features in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            x = basic_block(net, x, f"layer{stage}.{block}", features, 2 if stage > 1 and block == 0 else 1)
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))
