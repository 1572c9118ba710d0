"""sin and cos."""

from __future__ import annotations

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import known
from einnet.expr.functions.record import EVEN, ODD, SYMMETRIC, ScalarFunction

SIN = ScalarFunction(
    "sin", 1, np.sin, ends.wave(np.sin), modular.drawn("sin", (0, 0)), rounding.wave(np.sin), known("sin", 0, 0),
    span=SYMMETRIC, keeps_zero=True, mirror=ODD, costly=True, library="sin", onnx="Sin",
)  # fmt: skip

COS = ScalarFunction(
    "cos", 1, np.cos, ends.wave(np.cos), modular.drawn("cos", (0, 1)), rounding.wave(np.cos), known("cos", 0, 1),
    span=SYMMETRIC, mirror=EVEN, costly=True, library="cos", onnx="Cos",
)  # fmt: skip
