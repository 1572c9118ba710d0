"""Global Convolutional Network (Peng et al. 2017) with the ResNet-GCN backbone: segmentation through k×1 and 1×k convolutions."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net, Value
from benchmarks.models.resnet import RESIDUAL_GAIN, bottleneck, shortcut, stem

Layer = tuple[str, tuple[int, int]]


def _two_paths(kernel: int) -> tuple[tuple[Layer, Layer], tuple[Layer, Layer]]:
    """k×1 then 1×k, beside 1×k then k×1."""
    tall, wide = (kernel, 1), (1, kernel)
    return (("conv11", tall), ("conv12", wide)), (("conv21", wide), ("conv22", tall))


def _global_backbone(net: Net, x: Value, name: str, layer: str, middle: int, kernel: int) -> Value:
    """The global convolution with batch norm and ReLU after each of its four convolutions."""
    ends = []
    for path in _two_paths(kernel):
        y, gain = x, 1.0
        for part, taps in path:
            pad = (taps[0] // 2, taps[1] // 2)
            y = net.conv(y, f"{name}.{part}", middle, taps, pad=pad, bias=False, gain=gain, shared=f"{layer}.{part}")
            gain = 2.0
            y = net.relu(net.batch_norm(y, f"{name}.{part}.bn", shared=f"{layer}.{part}.bn"), f"{name}.{part}.relu")
        ends.append(y)
    left, right = ends
    return net.add(left, right, f"{name}.sum")


def _global_bottleneck(net: Net, x: Value, name: str, layer: str, middle: int, features: int, kernel: int, stride: int) -> Value:
    """Global convolution, then a 1x1 convolution that carries the stride, beside the shortcut. Weights are those of `layer`."""
    y = _global_backbone(net, x, f"{name}.gcn", f"{layer}.gcn", middle, kernel)
    y = net.conv(y, f"{name}.conv1x1", features, 1, stride=stride, bias=False, gain=0.25, shared=f"{layer}.conv1x1")
    y = net.batch_norm(y, f"{name}.bn1x1", gain=RESIDUAL_GAIN, shared=f"{layer}.bn1x1")
    return net.add(y, shortcut(net, x, name, features, stride), f"{name}.add")


def _global_stage(net: Net, x: Value, stage: str, middle: int, features: int, kernel: int) -> Value:
    """Six bottlenecks at half the size; the last five are one layer applied five times."""
    x = _global_bottleneck(net, x, f"{stage}.0", f"{stage}.0", middle, features, kernel, 2)
    for block in range(1, 6):
        x = _global_bottleneck(net, x, f"{stage}.{block}", f"{stage}.1", middle, features, kernel, 1)
    return x


def _head(net: Net, x: Value, name: str, classes: int, kernel: int = 11) -> Value:
    """Global convolution to one map for each class, linear, with biases."""
    ends = []
    for path in _two_paths(kernel):
        y = x
        for part, taps in path:
            y = net.conv(y, f"{name}.{part}", classes, taps, pad=(taps[0] // 2, taps[1] // 2), gain=0.5)
        ends.append(y)
    left, right = ends
    return net.add(left, right, f"{name}.sum")


def _refine(net: Net, x: Value, name: str) -> Value:
    """Boundary refinement: a residual pair of 3x3 convolutions on the class maps."""
    classes = x.shape[1]
    y = net.relu(net.conv(x, f"{name}.conv1", classes, 3, pad=1), f"{name}.relu")
    return net.add(x, net.conv(y, f"{name}.conv2", classes, 3, pad=1, gain=0.25), f"{name}.add")


def gcn(batch: int = 1, seed: int = 0, size: int = 224, classes: int = 21) -> onnx.ModelProto:
    """(batch, 3, size, size) to class maps (batch, classes, size, size); size is a multiple of 32."""
    net = Net("gcn", seed)
    image = net.input("image", (batch, 3, size, size))
    x = stem(net, image)
    levels = []
    for stage, (middle, blocks) in enumerate(((64, 3), (128, 4)), start=1):
        for block in range(blocks):
            x = bottleneck(net, x, f"layer{stage}.{block}", middle, 2 if stage > 1 and block == 0 else 1)
        levels.append(x)
    levels.append(_global_stage(net, levels[-1], "layer3", 85, 1024, 5))
    levels.append(_global_stage(net, levels[-1], "layer4", 128, 2048, 7))

    maps = [_refine(net, _head(net, x, f"gcn{n}", classes), f"br{n}") for n, x in enumerate(levels, start=1)]
    y = maps.pop()
    for n, finer in zip((5, 6, 7), reversed(maps), strict=True):
        y = net.add(net.upsample(y, f"up{n}", finer.shape[2:]), finer, f"fuse{n}")
        y = _refine(net, y, f"br{n}")
    for n, side in ((8, size // 2), (9, size)):
        y = _refine(net, net.upsample(y, f"up{n}", (side, side)), f"br{n}")
    return net.finish(y)
