"""What is said to be an integer between two others is one, and what may be another number is not said to be."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.integers import holds, integers, within
from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

TYPES = {"u8": (0, 255), "i8": (-128, 127), "f32": (-400, 400)}

ENDS = {
    "X : f32[9]\nL[i<9] min(max(round(X[i] / 0.3) + 7, 0), 255)": (0, 255),
    "X : f32[9]\nL[i<9] min(max(floor(X[i]), -7), 300)": (-7, 300),
    "X : f32[9]\nL[i<9] round(X[i])": (-inf, inf),
    "X : f32[9]\nL[i<9] min(round(X[i]), 3)": (-inf, 3),
    "U : u8[9]\nL[i<9] U[i] + (-3)": (-3, 252),
    "U : u8[9]\nL[i<9] (-1)*U[i]": (-255, 0),
    "U : u8[9]\nL[i<11] U[i-1]|300": (0, 300),
    "U : u8[9]\nL[i<9] U[i]|300": (0, 255),
    "U : u8[9]\nI : i8[9]\nL[i<9] U[i]*I[i]": (255 * -128, 255 * 127),
    "I : i8[9]\nL[i<9] I[i]*I[i]": (-128 * 127, 128 * 128),
    "U : u8[4,9]\nI : i8[9]\nL[i<4] Σ[k<9] U[i,k]*I[k]": (9 * 255 * -128, 9 * 255 * 127),
    "U : u8[9]\nL[i<9] max[r<3] U[i+r-1]|-inf": (0, 255),
    "U : u8[9]\nL[i<5] min[r<2] U[2*i+r]|inf": (0, 255),
    "I : i8[9]\nL[i<9] relu(I[i])": (0, 127),
    "U : u8[9]\nL[i<9] select(i-3>=0, U[i], 2*U[i])": (0, 510),
    "U : u8[9]\nL[i<9] {L[i<9] U[i] + 2}[i] + val(i)": (2, 265),
}

NOT_WHOLE = [
    "X : f32[9]\nL[i<9] X[i]",
    "X : f32[9]\nL[i<9] max(X[i], 0)",
    "U : u8[9]\nL[i<9] 0.5*U[i]",
    "U : u8[9]\nL[i<9] U[i] / 2",
    "U : u8[9]\nL[i<11] U[i-1]|0.5",
    "U : u8[9]\nL[i<9] val(i)/2 + U[i]",
    "U : u8[9]\nL[i<9] max[r<3] U[i+r+8]|-inf",
    "X : f32[9]\nL[i<9] select(i-3>=0, X[i], 2)",
]


@pytest.mark.parametrize("text", ENDS)
def test_the_ends_are_told(text: str) -> None:
    assert integers(parse(text)) == ENDS[text]


@pytest.mark.parametrize("text", NOT_WHOLE)
def test_other_numbers_are_not_told_to_be_integers(text: str) -> None:
    assert integers(parse(text)) is None
    assert not holds("u8", parse(text))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(ENDS)), st.integers(0, 1 << 16), st.booleans())
def test_values_are_integers_between_the_ends(text: str, seed: int, extreme: bool) -> None:
    scope, rng = parse(text), np.random.default_rng(seed)
    values = {}
    for name, t in tensors(scope).items():
        low, high = TYPES[t.dtype]
        drawn = rng.choice([low, high], t.shape) if extreme else rng.uniform(low, high, t.shape)
        values[name] = drawn if t.dtype == "f32" else np.rint(drawn)
    y = evaluate(scope, values)
    ends = integers(scope)
    assert ends is not None
    assert (y == np.rint(y)).all()
    assert ((y >= ends[0]) & (y <= ends[1])).all()


def test_a_type_holds_what_lies_between_its_ends() -> None:
    scope = parse("X : f32[9]\nL[i<9] min(max(round(X[i]), -128), 127)")
    assert [holds(kind, scope) for kind in ("i8", "u8", "i16", "f64")] == [True, False, True, False]
    assert not holds("u8", parse("X : f32[9]\nL[i<9] min(max(round(X[i]), 0), 256)"))
    assert not holds("u8", parse("X : f32[9]\nL[i<9] round(X[i])"))
    assert within((0, 255), (0, 255))
    assert not within((0, 256), (0, 255))
    assert not within((-1, 255), (0, 255))
