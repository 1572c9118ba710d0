"""Transforms by dense tables: Fourier's, of cosines and of signs, as operators of the standard or as a product with a matrix."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import onnx

from benchmarks.algorithms.case import Case
from benchmarks.models.net import Net


def stft(batch: int, frames: int, length: int) -> onnx.ModelProto:
    """The operator of the standard, one-sided, with a Hann window and a hop of a quarter of a frame."""
    net, hop = Net("stft", 0), length // 4
    signal = net.input("x", (batch, (frames - 1) * hop + length, 1))
    step = net.constant("step", np.array(hop))
    window = net.constant("window", np.hanning(length).astype(np.float32))
    size = net.constant("size", np.array(length))
    return net.finish(net.node("STFT", "y", [signal, step, window, size], (batch, frames, length // 2 + 1, 2), onesided=1))


def product(rows: int, table: np.ndarray) -> onnx.ModelProto:
    """Rows times a dense matrix."""
    net = Net("product", 0)
    x = net.input("x", (rows, table.shape[0]))
    return net.finish(net.matmul(x, net.constant("table", table.astype(np.float32)), "y"))


def cosines(rows: int, length: int) -> onnx.ModelProto:
    """The discrete cosine transform (type II)."""
    return product(rows, np.cos(np.pi * (2 * np.arange(length)[:, None] + 1) * np.arange(length)[None, :] / (2 * length)))


def signs(rows: int, bits: int) -> onnx.ModelProto:
    """Hadamard's matrix."""
    return product(rows, reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * bits))


def waves(rows: int, length: int) -> onnx.ModelProto:
    """Hartley's transform: cosine plus sine, real in and real out."""
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(length)) / length
    return product(rows, np.cos(angle) + np.sin(angle))


def half_spectrum(rows: int, length: int) -> onnx.ModelProto:
    """A real signal from half of its spectrum, real and imaginary parts in turns."""
    bins = np.arange(length // 2 + 1)
    angle = 2 * np.pi * np.outer(bins, np.arange(length)) / length
    twice = np.where((bins == 0) | (2 * bins == length), 1.0, 2.0)[:, None] / length
    return product(rows, np.stack([twice * np.cos(angle), -twice * np.sin(angle)], 1).reshape(2 * len(bins), length))


def overlapping(frames: int, length: int) -> onnx.ModelProto:
    """A signal from half spectra of its frames, real parts before imaginary ones, windowed and added up at a hop of a quarter."""
    net, hop = Net("overlapping", 0), length // 4
    bins = np.arange(length // 2 + 1)
    angle = 2 * np.pi * np.outer(bins, np.arange(length)) / length
    twice = np.where((bins == 0) | (2 * bins == length), 1.0, 2.0)[:, None] / length
    table = np.concatenate([twice * np.cos(angle), -twice * np.sin(angle)]) * np.hanning(length)
    x = net.input("x", (1, 2 * len(bins), frames))
    weight = net.constant("table", table[:, None].astype(np.float32))
    return net.finish(net.node("ConvTranspose", "y", [x, weight], (1, 1, (frames - 1) * hop + length), strides=[hop]))


def long_filter(channels: int, length: int) -> onnx.ModelProto:
    """A causal filter for each channel, as long as the data."""
    net = Net("long_filter", 0)
    x = net.input("x", (1, channels, length))
    fading = np.exp(-np.arange(length) / 100)
    taps = net.constant("taps", (np.random.default_rng(0).standard_normal((channels, 1, length)) * fading).astype(np.float32))
    return net.finish(net.node("Conv", "y", [x, taps], (1, channels, length), group=channels, pads=[length - 1, 0]))


def by(**functions: str) -> dict[str, str]:
    """Columns of engines that compute the same without the model, by functions of `others`."""
    return {name: f"benchmarks.algorithms.others:{function}" for name, function in functions.items()}


STAGES = "stages of n log n operations"
ADDED_UP = "stages, added up where they overlap"
FRAMES = by(scipy="scipy_frames", torch="torch_frames")
OVERLAPPING = by(scipy="scipy_overlapping", torch="torch_overlapping")
HALF = by(scipy="scipy_half", torch="torch_half")

TRANSFORMS: tuple[Case, ...] = (
    Case("STFT 128 x 8 x 1024", STAGES, partial(stft, 8, 128, 1024), "precision", FRAMES),
    Case("STFT 100 x 10 x 1000", STAGES, partial(stft, 10, 100, 1000), "precision", FRAMES),
    Case("inverse STFT 128 x 2048", ADDED_UP, partial(overlapping, 128, 2048), "precision", OVERLAPPING),
    Case("from a half spectrum 512", STAGES, partial(half_spectrum, 256, 512), "precision", HALF),
    Case("from a half spectrum 2048", STAGES, partial(half_spectrum, 256, 2048), "precision", HALF),
    Case("long filter 256 x 2048", "waves, by stages of n log n operations", partial(long_filter, 256, 2048), "precision", by(scipy="scipy_filter")),
    Case("cosine transform 512", STAGES, partial(cosines, 256, 512), "precision", by(scipy="scipy_cosines")),
    Case("Hartley transform 960", STAGES, partial(waves, 256, 960), "precision", by(scipy="scipy_hartley")),
    Case("Hadamard transform 1024", STAGES, partial(signs, 256, 10), "precision"),
)
