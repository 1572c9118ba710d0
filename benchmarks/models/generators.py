"""InfoGAN and DCGAN generators: a latent vector grows to an image through transposed convolutions."""

from __future__ import annotations

import onnx

from benchmarks.models.net import Net, Value


def _upward(net: Net, x: Value, features: tuple[int, ...], image_channels: int) -> onnx.ModelProto:
    """Batch norm and ReLU, then a doubling ConvTranspose for each entry of `features` and for the image; tanh at the end."""
    for n, width in enumerate((*features, image_channels), start=1):
        x = net.batch_norm(x, f"bn{n}")
        x = net.relu(x, f"relu{n}")
        x = net.conv_transpose(x, f"tconv{n + 1}", width, 4, stride=2, pad=1, gain=1.0 if width == image_channels else 2.0)
    return net.finish(net.node("Tanh", "image", [x], x.shape))


def infogan(batch: int = 1, seed: int = 0, latent: int = 228) -> onnx.ModelProto:
    """z (batch, latent, 1, 1) to an image (batch, 3, 32, 32)."""
    net = Net("infogan", seed)
    z = net.input("z", (batch, latent, 1, 1))
    return _upward(net, net.conv_transpose(z, "tconv1", 448, 2, gain=1.0), (256, 128, 64), 3)


def dcgan(batch: int = 1, seed: int = 0, latent: int = 100) -> onnx.ModelProto:
    """z (batch, latent, 1, 1) to an image (batch, 3, 64, 64)."""
    net = Net("dcgan", seed)
    z = net.input("z", (batch, latent, 1, 1))
    return _upward(net, net.conv_transpose(z, "tconv1", 512, 4, gain=1.0), (256, 128, 64), 3)
