"""exp, log, and what is made of them: sigmoid, softplus, tanh."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from einnet.expr.functions import ends, modular, rounding
from einnet.expr.functions.exact import NAN, Infinite, known
from einnet.expr.functions.record import ABOVE_0, ODD, Array, Exact, Mirror, ScalarFunction, Span, within_1


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def _exact_exp(x: Exact) -> Exact:
    return Fraction(0) if x == -math.inf else known("exp", 0, 1)(x)


def _exact_log(x: Exact) -> Exact:
    return Infinite(-1) if x == 0 else NAN if x < 0 else known("log", 1, 0)(x)


def _residue_exp(x: modular.Residues) -> modular.Residues:
    return np.where(x == modular.MINUS_INFINITY, np.uint64(0), _DRAWN_EXP(x))


_DRAWN_EXP = modular.drawn("exp", (0, 1))

EXP = ScalarFunction(
    "exp", 1, np.exp, ends.exponential, _residue_exp, rounding.monotone(np.exp), _exact_exp,
    span=ABOVE_0, below="finite", nondecreasing=True, costly=True, library="exp", onnx="Exp",
)  # fmt: skip

LOG = ScalarFunction(
    "log", 1, np.log, ends.logarithm, modular.drawn("log", (1, 0)), rounding.positive(np.log), _exact_log,
    exists=lambda x: x.positive, costly=True, library="log", onnx="Log",
)  # fmt: skip

TANH = ScalarFunction(
    "tanh", 1, np.tanh, ends.monotone(np.tanh, ((0.0, 0.0),), -1.0, 1.0), modular.drawn_between("tanh", 0, 0, (-1, 1)),
    rounding.monotone(np.tanh), known("tanh", 0, 0, (-1, 1)), span=within_1, below="finite", keeps_zero=True, nondecreasing=True, mirror=ODD,
    costly=True, library="tanh", onnx="Tanh",
)  # fmt: skip

SIGMOID = ScalarFunction(
    "sigmoid", 1, _sigmoid, ends.monotone(_sigmoid, ((0.0, 0.5),), 0.0, 1.0), modular.drawn_between("sigmoid", 0, pow(2, -1, modular.P), (0, 1)),
    rounding.monotone(_sigmoid), known("sigmoid", 0, Fraction(1, 2), (0, 1)), span=Span(Fraction(0), True, Fraction(1), True), below="finite",
    nondecreasing=True, mirror=Mirror(-1, 1), costly=True, onnx="Sigmoid",
)  # fmt: skip
"""1/(1 + exp(-x))."""

SOFTPLUS = ScalarFunction(
    "softplus", 1, _softplus, ends.monotone(_softplus, (), 0.0, np.inf), modular.drawn("softplus"), rounding.monotone(_softplus),
    span=ABOVE_0, nondecreasing=True, mirror=Mirror(1, 0, 1), costly=True, onnx="Softplus",
)  # fmt: skip
"""log(1 + exp(x))."""
