"""The inverses of the tangent and of the hyperbolic sine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import known
from einnet.expr.functions.record import ODD, ScalarFunction, Span

_BOUND = Fraction(11, 7)
"""Above π/2."""

ATAN = ScalarFunction(
    "atan", 1, np.arctan, ends.monotone(np.arctan, ((0.0, 0.0),), -1.6, 1.6), modular.drawn("atan", (0, 0)), rounding.monotone(np.arctan),
    known("atan", 0, 0), span=Span(-_BOUND, True, _BOUND, True), keeps_zero=True, nondecreasing=True, mirror=ODD, costly=True,
    library="atan", onnx="Atan",
)  # fmt: skip

ASINH = ScalarFunction(
    "asinh", 1, np.arcsinh, ends.monotone(np.arcsinh, ((0.0, 0.0),), -np.inf, np.inf), modular.drawn("asinh", (0, 0)), rounding.monotone(np.arcsinh),
    known("asinh", 0, 0), keeps_zero=True, nondecreasing=True, mirror=ODD, costly=True, library="asinh", onnx="Asinh",
)  # fmt: skip
