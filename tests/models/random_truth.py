"""Random conditions and what reads them, places that are data, running sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.models.random_elements import weight_like
from tests.models.random_nodes import Drawn, Graph

COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
CONNECTIVES = ("And", "Or", "Xor")


def condition(g: Graph, depth: int = 2) -> str | None:
    """A truth value of some elements."""
    x = g.pick()
    assert x is not None
    if depth and g.rng.random() < 0.5:
        return connected(g, depth)
    match g.rng.randrange(4):
        case 0:
            drawn = Drawn("IsNaN", [x])
        case 1:
            signs = {"detect_negative": g.rng.randint(0, 1), "detect_positive": g.rng.randint(0, 1)}
            drawn = Drawn("IsInf", [x], signs if g.rng.random() < 0.5 else {})
        case 2:  # zeros are zero however they are computed
            drawn = Drawn(g.rng.choice(COMPARISONS), [relu, np.array(0, np.float32)]) if (relu := rectified(g, x)) else Drawn("IsNaN", [x])
        case _:
            drawn = Drawn(g.rng.choice(COMPARISONS), [x, weight_like(g, x)])
    return g.last() if g.add(drawn) else None


def rectified(g: Graph, x: str) -> str | None:
    return g.last() if g.add(Drawn("Relu", [x])) else None


def connected(g: Graph, depth: int) -> str | None:
    """Conditions negated and put together; of the other one alike in shape, or a constant."""
    one = condition(g, depth - 1)
    if one is None:
        return None
    if g.rng.random() < 0.3:
        return g.last() if g.add(Drawn("Not", [one])) else None
    shape = g.truths[one]
    fit = [name for name, s in g.truths.items() if s == shape]
    other: Any = g.rng.choice((*fit, g.numbers.random(shape) < 0.5))
    return g.last() if g.add(Drawn(g.rng.choice(CONNECTIVES), [one, other])) else None


def truth(g: Graph) -> Drawn | None:
    """What reads a condition: a choice, or a number that is one or zero."""
    mask, x, y = condition(g), g.pick(), g.pick()
    if mask is None:
        return None
    match g.rng.randrange(3):
        case 0:
            return Drawn("Cast", [mask], {"to": TensorProto.FLOAT})
        case 1 if g.opset >= 19:
            return Drawn("CastLike", [mask, x], {"saturate": 1} | ({"round_mode": "up"} if g.opset >= 24 else {}))
        case 1:
            return Drawn("CastLike", [mask, x])
    number = np.array(g.rng.choice((0.0, -1.5)), np.float32)
    return Drawn("Where", [mask, *g.rng.choice(([x, number], [number, x], [x, y]))])


def places(g: Graph) -> Drawn | None:
    """Elements at places that a table names."""
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    rank, axis = len(shape), g.rng.randrange(len(shape))
    if g.rng.random() < 0.5 and g.opset >= 11:
        taken = tuple(g.rng.randint(1, n) for n in shape)
        extent = shape[axis]
        return Drawn("GatherElements", [x, g.numbers.integers(-extent, extent, taken)], {"axis": axis - g.rng.choice((0, rank))})
    batch = g.rng.randint(0, min(rank - 1, 2)) if g.opset >= 12 else 0
    deep = g.rng.randint(1, rank - batch)
    front = (*shape[:batch], *(g.rng.randint(1, 3) for _ in range(g.rng.randint(0, 2))))
    columns = [g.numbers.integers(-n, n, front) for n in shape[batch : batch + deep]]
    return Drawn("GatherND", [x, np.stack(columns, -1)], {"batch_dims": batch} if batch or g.rng.random() < 0.5 else {})


def running(g: Graph) -> Drawn | None:
    """Sums along an axis so far, and the arc of a tangent."""
    x = g.pick(least=1)
    if x is None:
        return None
    if g.rng.random() < 0.4:
        return Drawn("Atan", [x])
    axis = g.rng.randrange(len(g.live[x]))
    return Drawn("CumSum", [x, np.array(axis, np.int64)], {"exclusive": g.rng.randint(0, 1), "reverse": g.rng.randint(0, 1)})
