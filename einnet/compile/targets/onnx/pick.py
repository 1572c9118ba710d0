"""Which of the derived subprograms stay where ONNX Runtime runs all: those with which the whole model is faster there, one after the other.

Kernels are timed alone, but ONNX Runtime fuses the model's own nodes with what stands around them: only the whole tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from einnet.evidence.comparison.verify import NOISE
from einnet.search.outcome import Outcome, Result

OVERRUN = 1.1
"""Times what it was given that a race takes at least which could not be shorter."""

Write = Callable[[Outcome], bytes | str | None]
"""The model as what ONNX Runtime takes, with what is derived in an outcome; None where it cannot be written."""
Race = Callable[[bytes | str, bytes | str, float], Mapping[str, Any]]
"""Interleaved timings of two models in some seconds: "onnxruntime" of the first, "optimized" of the second."""


def pick(outcome: Outcome, original: bytes | str, write: Write, race: Race, seconds: float, least: float = 0.0) -> Outcome:
    """The outcome in which those subprograms run as the model has them without which the model is no slower, as far as that is found in so many
    seconds.

    What is predicted to gain most is tried first, equal subprograms together; what is left when time is over is as the model has it. A race takes
    `least` seconds however few it is given, or what one has taken; where these are not left, none is begun.
    """
    ordered = sorted(outcome.changed.values(), key=lambda alike: -len(alike) * gain(alike[0]))
    kept = outcome.kept | {alike[0].key for alike in ordered}
    best, end = original, time.monotonic() + seconds
    for n, alike in enumerate(ordered):
        left = end - time.monotonic()
        if left < least or left <= 0:
            told = f"no time was left to try {len(ordered) - n} derived subprograms in ONNX Runtime: the model's own nodes stay"
            return outcome.keeping(kept).noting(told)
        with_it = kept - {alike[0].key}
        tried = write(outcome.keeping(with_it))
        began = time.monotonic()
        share = (end - began) / (len(ordered) - n)
        times = race(best, tried, share) if tried else None
        took = time.monotonic() - began
        least = max(least, took) if took > OVERRUN * share else least
        if tried and times and times["optimized"].median < times["onnxruntime"].median * (1 - NOISE):
            best, kept = tried, with_it
    return outcome.keeping(kept)


def gain(r: Result) -> float:
    """Seconds that the derived form is known or predicted to save."""
    saved = r.choice.original.cost - r.choice.best.cost
    return saved if saved < inf else r.choice.best.cost
