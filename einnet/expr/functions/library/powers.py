"""Roots and powers."""

from __future__ import annotations

import numpy as np

from einnet.expr.functions import ends, exact, modular, rounding
from einnet.expr.functions.record import ABOVE_0, ANY, FROM_0, ScalarFunction, Span


def _power_exists(base: Span, exponent: Span) -> bool:
    if base.positive:
        return True
    n = exponent.point
    return n is not None and n >= 0 and (n.denominator == 1 or base.lo >= 0)


def _span(base: Span, exponent: Span) -> Span:
    n = exponent.point
    if base.positive:
        return ABOVE_0
    if n is None or n % 2:
        return ANY
    return ABOVE_0 if base.nonzero else FROM_0


def _residue(base: modular.Residues, exponent: modular.Residues) -> modular.Residues:
    return np.where(exponent == 0, np.uint64(1), np.where(exponent == 1, base, _DRAWN(base, exponent)))


_DRAWN = modular.drawn("pow")

SQRT = ScalarFunction(
    "sqrt", 1, np.sqrt, ends.root, modular.drawn("sqrt", (0, 0), (1, 1)), rounding.positive(np.sqrt), exact.root,
    span=lambda x: ABOVE_0 if x.nonzero else FROM_0, exists=lambda x: bool(x.lo >= 0), keeps_zero=True, library="sqrt", onnx="Sqrt",
)  # fmt: skip

POW = ScalarFunction(
    "pow", 2, np.power, ends.power, _residue, rounding.power, exact.power,
    span=_span, exists=_power_exists, costly=True, library="pow", onnx="Pow",
)  # fmt: skip
