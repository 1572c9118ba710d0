"""Convolutional networks beside the seven: one of each common topology, at sizes that run in some milliseconds."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net, Value
from benchmarks.models.resnet import RESIDUAL_GAIN, bottleneck, stem


def _normed(net: Net, x: Value, name: str, features: int, kernel: int | tuple[int, ...], stride: int = 1, groups: int = 1) -> Value:
    """Convolution that keeps the size (over the stride), batch norm, ReLU."""
    taps = (kernel,) * (len(x.shape) - 2) if isinstance(kernel, int) else kernel
    y = net.conv(x, name, features, taps, stride=stride, pad=tuple(k // 2 for k in taps), groups=groups, bias=False)
    return net.relu(net.batch_norm(y, f"{name}.bn"), f"{name}.relu")


def _fire(net: Net, x: Value, name: str, squeeze: int, expand: int) -> Value:
    """1x1 to few channels, then 1x1 and 3x3 side by side."""
    s = net.relu(net.conv(x, f"{name}.squeeze", squeeze, 1), f"{name}.squeeze.relu")
    small = net.relu(net.conv(s, f"{name}.expand1x1", expand, 1), f"{name}.expand1x1.relu")
    large = net.relu(net.conv(s, f"{name}.expand3x3", expand, 3, pad=1), f"{name}.expand3x3.relu")
    return net.concat([small, large], f"{name}.concat")


def squeeze(batch: int = 1, seed: int = 0, size: int = 112, classes: int = 100) -> onnx.ModelProto:
    """Fire modules (SqueezeNet): concatenated 1x1 and 3x3 convolutions on a squeezed input."""
    net = Net("squeeze", seed)
    x = net.relu(net.conv(net.input("image", (batch, 3, size, size)), "conv1", 64, 3, stride=2, pad=1), "relu1")
    for stage, (middle, width) in enumerate(((16, 64), (32, 128), (48, 192)), start=1):
        x = net.max_pool(x, f"pool{stage}", 3, stride=2, pad=1)
        for block in range(2):
            x = _fire(net, x, f"fire{stage}.{block}", middle, width)
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))


def residual(batch: int = 1, seed: int = 0, size: int = 112, classes: int = 100) -> onnx.ModelProto:
    """Residual bottlenecks 1x1, 3x3, 1x1 (ResNet-50), two in each of three stages."""
    net = Net("residual", seed)
    x = stem(net, net.input("image", (batch, 3, size, size)))
    for stage, middle in enumerate((64, 128, 256), start=1):
        for block in range(2):
            x = bottleneck(net, x, f"layer{stage}.{block}", middle, 2 if stage > 1 and block == 0 else 1)
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))


def _inverted(net: Net, x: Value, name: str, features: int, stride: int) -> Value:
    """1x1 to six times the channels, depthwise 3x3, linear 1x1 (MobileNetV2), around it a shortcut where shapes agree."""
    wide = 6 * x.shape[1]
    y = net.relu6(net.batch_norm(net.conv(x, f"{name}.expand", wide, 1, bias=False), f"{name}.bn1"), f"{name}.relu1")
    y = net.conv(y, f"{name}.depthwise", wide, 3, stride=stride, pad=1, groups=wide, bias=False)
    y = net.relu6(net.batch_norm(y, f"{name}.bn2"), f"{name}.relu2")
    y = net.batch_norm(net.conv(y, f"{name}.project", features, 1, bias=False), f"{name}.bn3", gain=RESIDUAL_GAIN)
    return net.add(x, y, f"{name}.add") if x.shape == y.shape else y


def depthwise(batch: int = 1, seed: int = 0, size: int = 112, classes: int = 100) -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions and ReLU6 (MobileNetV2)."""
    net = Net("depthwise", seed)
    x = net.conv(net.input("image", (batch, 3, size, size)), "conv1", 32, 3, stride=2, pad=1, bias=False, gain=1.0)
    x = net.relu6(net.batch_norm(x, "bn1"), "relu1")
    for n, (features, stride) in enumerate(((24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1))):
        x = _inverted(net, x, f"block{n}", features, stride)
    x = net.relu6(net.conv(x, "last", 256, 1), "last.relu")
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))


def unet(batch: int = 1, seed: int = 0, size: int = 96, classes: int = 4) -> onnx.ModelProto:
    """Downwards by pooling, upwards by strided ConvTranspose, skip connections concatenated (U-Net)."""
    net = Net("unet", seed)

    def double(x: Value, name: str, features: int) -> Value:
        return _normed(net, _normed(net, x, f"{name}.0", features, 3), f"{name}.1", features, 3)

    x, skips = net.input("image", (batch, 3, size, size)), []
    for n, features in enumerate((16, 32, 64)):
        x = double(x, f"down{n}", features)
        skips.append(x)
        x = net.max_pool(x, f"pool{n}", 2, stride=2)
    x = double(x, "bottom", 128)
    for n, skip in reversed(list(enumerate(skips))):
        x = net.conv_transpose(x, f"up{n}", skip.shape[1], 2, stride=2, bias=True)
        x = double(net.concat([skip, x], f"concat{n}"), f"merge{n}", skip.shape[1])
    return net.finish(net.conv(x, "maps", classes, 1, gain=1.0))


def dense(batch: int = 1, seed: int = 0, size: int = 56, classes: int = 100) -> onnx.ModelProto:
    """Every layer reads all layers before it (DenseNet): batch norm and ReLU first, growing concatenations."""
    net = Net("dense", seed)
    x = _normed(net, net.input("image", (batch, 3, size, size)), "conv1", 64, 3, stride=2)
    for block in range(2):
        for n in range(4):
            name = f"dense{block}.{n}"
            y = net.relu(net.batch_norm(x, f"{name}.bn1"), f"{name}.relu1")
            y = _normed(net, y, f"{name}.conv1", 128, 1)
            x = net.concat([x, net.conv(y, f"{name}.conv2", 32, 3, pad=1, bias=False)], f"{name}.concat")
        if block == 0:
            y = net.relu(net.batch_norm(x, "transition.bn"), "transition.relu")
            x = net.average_pool(net.conv(y, "transition.conv", x.shape[1] // 2, 1, bias=False), "transition.pool", 2, stride=2)
    return net.finish(net.gemm(net.pooled_features(net.relu(x, "relu"), "head"), "fc", classes))


def inception(batch: int = 1, seed: int = 0, size: int = 28, classes: int = 100) -> onnx.ModelProto:
    """Branches of 1x1, 3x3, factorised 5x5 (1x5, 5x1) and pooled 1x1 convolutions on one input, concatenated."""
    net = Net("inception", seed)
    x = _normed(net, net.input("image", (batch, 32, size, size)), "conv1", 128, 3)
    for n in range(3):
        name = f"mixed{n}"
        middle = _normed(net, x, f"{name}.b3.reduce", 64, 1)
        tall = _normed(net, _normed(net, x, f"{name}.b5.reduce", 32, 1), f"{name}.b5.wide", 48, (1, 5))
        branches = [
            _normed(net, x, f"{name}.b1", 64, 1),
            _normed(net, middle, f"{name}.b3", 96, 3),
            _normed(net, tall, f"{name}.b5.tall", 64, (5, 1)),
            _normed(net, net.average_pool(x, f"{name}.pool", 3, stride=1, pad=1), f"{name}.bp", 32, 1),
        ]
        x = net.concat(branches, f"{name}.concat")
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))


def shuffle(batch: int = 1, seed: int = 0, size: int = 28, classes: int = 100) -> onnx.ModelProto:
    """Half of the channels pass by, half go through 1x1, depthwise 3x3, 1x1; then channels are shuffled (ShuffleNetV2)."""
    net = Net("shuffle", seed)
    x = _normed(net, net.input("image", (batch, 32, size, size)), "conv1", 128, 3)
    _, channels, height, width = x.shape
    for n in range(4):
        name = f"unit{n}"
        kept, y = net.split(x, f"{name}.split", (channels // 2, channels // 2))
        y = _normed(net, y, f"{name}.conv1", channels // 2, 1)
        y = net.conv(y, f"{name}.depthwise", channels // 2, 3, pad=1, groups=channels // 2, bias=False, gain=1.0)
        y = _normed(net, net.batch_norm(y, f"{name}.bn"), f"{name}.conv2", channels // 2, 1)
        y = net.reshape(net.concat([kept, y], f"{name}.concat"), f"{name}.pairs", (batch, 2, channels // 2, height, width))
        x = net.reshape(net.transpose(y, f"{name}.shuffle", (0, 2, 1, 3, 4)), f"{name}.out", (batch, channels, height, width))
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))


def gated(batch: int = 1, seed: int = 0, size: int = 28, classes: int = 100) -> onnx.ModelProto:
    """Residual 3x3 convolutions whose channels are scaled by a gate computed from their means (squeeze-and-excitation)."""
    net = Net("gated", seed)
    x = _normed(net, net.input("image", (batch, 16, size, size)), "conv1", 64, 3)
    for n in range(4):
        y = _normed(net, x, f"block{n}.conv1", 64, 3)
        y = net.batch_norm(net.conv(y, f"block{n}.conv2", 64, 3, pad=1, bias=False), f"block{n}.bn", gain=RESIDUAL_GAIN)
        mean = net.node("GlobalAveragePool", f"block{n}.mean", [y], (batch, 64, 1, 1))
        gate = net.conv(net.relu(net.conv(mean, f"block{n}.fc1", 16, 1), f"block{n}.fc1.relu"), f"block{n}.fc2", 64, 1)
        y = net.mul(y, net.unary("Sigmoid", gate, f"block{n}.gate"), f"block{n}.scale")
        x = net.relu(net.add(x, y, f"block{n}.add"), f"block{n}.relu")
    return net.finish(net.gemm(net.pooled_features(x, "head"), "fc", classes))
