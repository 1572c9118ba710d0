"""The error function."""

from __future__ import annotations

import math

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import known
from einnet.expr.functions.record import ODD, Array, ScalarFunction, within_1

_LIFTED = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    found: Array = np.asarray(_LIFTED(x)).astype(np.asarray(x).dtype)
    return found


ERF = ScalarFunction(
    "erf", 1, _erf, ends.monotone(_erf, ((0.0, 0.0),), -1.0, 1.0), modular.drawn_between("erf", 0, 0, (-1, 1)), rounding.monotone(_erf),
    known("erf", 0, 0, (-1, 1)), span=within_1, below="finite", keeps_zero=True, nondecreasing=True, mirror=ODD, costly=True, library="erf",
    onnx="Erf",
)  # fmt: skip
