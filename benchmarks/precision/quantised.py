"""Models of bytes: other models, through ONNX Runtime's quantiser."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from benchmarks.contest.engines import Arrays
from einnet.api.quantize import quantize

DRAWS = 4
"""Draws of inputs by which ranges are taken."""

UNSEEN = 100
"""Where their seeds begin: other draws are those on which errors are measured."""


def in_bytes(model: onnx.ModelProto, draw: Callable[[int], Arrays], seed: int) -> onnx.ModelProto:
    """The model in QDQ form, with ranges by inputs that are drawn by seeds."""
    draws = [draw(UNSEEN + seed + n) for n in range(DRAWS)]
    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder) / "plain.onnx", Path(folder) / "bytes.onnx"
        onnx.save(model, plain)
        quantize(plain, made, {name: np.stack([one[name] for one in draws]) for name in draws[0]})
        return onnx.load(made)
