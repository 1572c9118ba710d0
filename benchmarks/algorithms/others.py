"""Transforms by libraries that run no ONNX model, beside which derived ones are timed: each reads its window, taps or sizes off the model's file.

A function takes the model's path and a number of threads, and gives one from inputs to outputs (`benchmarks.contest.engines`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.contest.engines import Arrays, Run

Single = Callable[[np.ndarray], np.ndarray]


def weights(path: Path) -> dict[str, np.ndarray]:
    """The model's constants by name."""
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


def on_x(function: Single) -> Run:
    """A function of the one input."""

    def run(inputs: Arrays) -> list[np.ndarray]:
        (x,) = inputs.values()
        return [function(x)]

    return run


def pairs(spectrum: np.ndarray) -> np.ndarray:
    """Complex numbers as their two parts, which lie in memory so."""
    return spectrum.view(np.float32).reshape(*spectrum.shape, 2)


def scipy_frames(path: Path, threads: int) -> Run:
    """Spectra of a signal's frames, each times the window."""
    from scipy import fft

    known = weights(path)
    window, hop = known["window"], int(known["step"])

    def spectra(x: np.ndarray) -> np.ndarray:
        frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], len(window), axis=-1)[:, ::hop]
        return pairs(fft.rfft(frames * window, axis=-1, workers=threads))

    return on_x(spectra)


def torch_frames(path: Path, threads: int) -> Run:
    """The same."""
    import torch

    torch.set_num_threads(threads)
    known = weights(path)
    window, hop = torch.from_numpy(known["window"].copy()), int(known["step"])

    def spectra(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found = torch.stft(torch.from_numpy(x[..., 0]), len(window), hop, window=window, center=False, return_complex=True)
            return np.asarray(torch.view_as_real(found.transpose(1, 2).contiguous()).numpy())

    return on_x(spectra)


def scipy_overlapping(path: Path, threads: int) -> Run:
    """Frames from half spectra, the real parts of all bins before the imaginary ones, each windowed, and added up where they overlap."""
    from scipy import fft

    (node,) = onnx.load(path).graph.node
    (hop,) = next(a.ints for a in node.attribute if a.name == "strides")
    table = weights(path)["table"][:, 0]
    size, window = table.shape[1], table[0] * table.shape[1]  # the first bin is the window alone

    def signal(x: np.ndarray) -> np.ndarray:
        bins, (batch, _, count) = len(table) // 2, x.shape
        frames = fft.irfft(x[:, :bins] + np.complex64(1j) * x[:, bins:], size, axis=1, workers=threads) * window[None, :, None]
        whole = np.zeros((batch, 1, (count - 1) * hop + size), np.float32)
        for n in range(count):
            whole[:, 0, n * hop : n * hop + size] += frames[:, :, n]
        return whole

    return on_x(signal)


def torch_overlapping(path: Path, threads: int) -> Run:
    """The same, by its own inverse transform and its own sum of what overlaps."""
    import torch

    torch.set_num_threads(threads)
    (node,) = onnx.load(path).graph.node
    (hop,) = next(a.ints for a in node.attribute if a.name == "strides")
    table = weights(path)["table"][:, 0]
    size = table.shape[1]
    window = torch.from_numpy(table[0] * np.float32(size))

    def signal(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            bins, count = len(table) // 2, x.shape[2]
            given = torch.from_numpy(x)
            frames = torch.fft.irfft(torch.complex(given[:, :bins], given[:, bins:]), size, dim=1) * window[None, :, None]
            whole = torch.nn.functional.fold(frames, (1, (count - 1) * hop + size), (1, size), stride=(1, hop))
            return np.asarray(whole[:, :, 0].numpy())

    return on_x(signal)


def scipy_half(path: Path, threads: int) -> Run:
    """Real rows from half of their spectra, real and imaginary parts in turns."""
    from scipy import fft

    length = weights(path)["table"].shape[1]
    return on_x(lambda x: np.asarray(fft.irfft(x.view(np.complex64), length, axis=1, workers=threads)))


def torch_half(path: Path, threads: int) -> Run:
    """The same."""
    import torch

    torch.set_num_threads(threads)
    length = weights(path)["table"].shape[1]

    def rows(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(torch.fft.irfft(torch.from_numpy(x.view(np.complex64)), length, dim=1).numpy())

    return on_x(rows)


def scipy_cosines(path: Path, threads: int) -> Run:
    """Cosine transforms of rows."""
    from scipy import fft

    return on_x(lambda x: np.asarray(fft.dct(x, type=2, axis=1, workers=threads)) / np.float32(2))


def scipy_hartley(path: Path, threads: int) -> Run:
    """Hartley's transforms of rows, from half of their spectra."""
    from scipy import fft

    def transform(x: np.ndarray) -> np.ndarray:
        half = fft.rfft(x, axis=1, workers=threads)
        low = half.real - half.imag
        high = (half.real + half.imag)[:, 1 : x.shape[1] - half.shape[1] + 1]
        return np.concatenate([low, high[:, ::-1]], axis=1)

    return on_x(transform)


def scipy_filter(path: Path, threads: int) -> Run:
    """A causal filter for each channel, by transforms of pieces."""
    from scipy import signal

    taps = weights(path)["taps"][:, 0, ::-1]
    return on_x(lambda x: np.asarray(signal.oaconvolve(x, taps[None], axes=2)[:, :, : x.shape[2]]))
