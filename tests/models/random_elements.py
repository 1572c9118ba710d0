"""Random functions of elements, choices, reductions and moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.models.random_nodes import Drawn, Graph

FUNCTIONS = (
    "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Abs", "Neg", "Softplus", "Softsign", "Mish", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos",
    "HardSwish", "Identity", "Gelu",
)  # fmt: skip
OF_POSITIVE = ("Log", "Sqrt", "Reciprocal", "Pow", "Div", "ReduceLogSum")


def unary(g: Graph) -> Drawn | None:
    return Drawn(g.rng.choice(FUNCTIONS), [g.pick()])


def parametrised(g: Graph) -> Drawn | None:
    x = g.pick()
    assert x is not None
    rank = len(g.live[x])
    low, high = np.array(-0.5, np.float32), np.array(1, np.float32)
    alpha = g.rng.choice((0.2, 1.0, 1.7))
    drop = g.rng.choice(([], [np.array(0.3, np.float32)], [np.array(0.3, np.float32), np.array(False)]))
    if g.opset == 24 and g.rng.random() < 0.2:
        return Drawn("Swish", [x], {"alpha": alpha})
    return g.rng.choice(
        (
            Drawn("LeakyRelu", [x], {"alpha": 0.2}),
            Drawn("Clip", [x, *g.rng.choice(([low, high], [low], [None, high], []))]),
            Drawn("PRelu", [x, g.weight(*(n if g.rng.random() < 0.5 else 1 for n in g.live[x]))]),
            Drawn(g.rng.choice(("Softmax", "LogSoftmax")), [x], {"axis": g.rng.randint(-rank, max(rank - 1, 0))}),
            Drawn(g.rng.choice(("Elu", "Celu", "ThresholdedRelu")), [x], {"alpha": alpha}),
            Drawn("Selu", [x], {"alpha": alpha, "gamma": 1.1}),
            Drawn("HardSigmoid", [x], {"alpha": 0.3, "beta": 0.4}),
            Drawn("Gelu", [x], {"approximate": g.rng.choice(("none", "tanh"))}),
            Drawn("Cast", [x], {"to": 1} | ({"saturate": 1} if g.opset >= 19 else {}) | ({"round_mode": "up"} if g.opset >= 24 else {})),
            Drawn("Dropout", [x, *drop], {"seed": 3} if g.opset >= 12 else {}),
        )
    )


def binary(g: Graph) -> Drawn | None:
    x, y = g.pick(), g.pick()
    assert x is not None
    other: Any = y if g.rng.random() < 0.5 else weight_like(g, x)
    pair = [x, other] if g.rng.random() < 0.7 else [other, x]
    op = g.rng.choice(("Add", "Mul", "Sub", "Max", "Min", "Add", "Mul", "Sum", "Mean"))
    if op in ("Max", "Min", "Sum", "Mean"):
        pair = [*pair, *g.rng.choice(([], [g.pick()], [weight_like(g, x)]))][: g.rng.randint(1, 3)]
    return Drawn(op, pair)


def weight_like(g: Graph, x: str) -> np.ndarray:
    """A weight that is broadcast to the value along some dimensions."""
    return g.weight(*(n if g.rng.random() < 0.6 else 1 for n in g.live[x]))


def of_positive(g: Graph) -> Drawn | None:
    """Functions that are not defined, or not smooth, everywhere."""
    x = g.pick()
    assert x is not None
    if g.rng.random() < 0.2:
        return Drawn("Pow", [x, np.array(g.rng.choice((1, 2, 3, 4)), np.float32)])
    if g.rng.random() < 0.1:
        return Drawn("Tan", [g.last()]) if g.add(Drawn("Tanh", [x])) else None
    y, op = g.positive(), g.rng.choice(OF_POSITIVE)
    if y is None:
        return None
    if op == "Pow":
        return Drawn(op, [y, g.rng.choice((np.array(g.rng.choice((-1, 0.5, 2.5)), np.float32), weight_like(g, y)))])
    if op == "Div":
        return Drawn(op, g.rng.choice(([x, y], [y, np.abs(weight_like(g, y)) + np.float32(0.5)])))
    return reduced(g, op, y) if op == "ReduceLogSum" else Drawn(op, [y])


def choice(g: Graph) -> Drawn | None:
    """Where by a mask that is a box, a band or anything; triangles."""
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    if len(shape) > 1 and g.rng.random() < 0.4:
        offset = [np.array(g.rng.randint(-2, 2), np.int64)] if g.rng.random() < 0.7 else []
        return Drawn("Trilu", [x, *offset], {"upper": g.rng.randint(0, 1)})
    mask = np.ones(shape, bool)
    match g.rng.randrange(4):
        case 0 if len(shape) > 1:
            mask = np.broadcast_to(np.tri(*shape[-2:], k=g.rng.randint(-1, 1), dtype=bool), shape)
        case 1:
            mask = np.arange(shape[-1]) % g.rng.randint(1, 3) == 0
        case 2:
            mask[..., g.rng.randrange(shape[-1]) :] = False
        case 3:
            mask = g.numbers.random(shape) < 0.5
    other: Any = g.rng.choice((g.pick(), weight_like(g, x), np.array(g.rng.choice((0.0, -np.inf)), np.float32)))
    return Drawn("Where", [np.ascontiguousarray(mask), *g.rng.choice(([x, other], [other, x]))])


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")


def reduction(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    return None if x is None else reduced(g, g.rng.choice(REDUCTIONS), x)


def reduced(g: Graph, op: str, x: str) -> Drawn | None:
    rank = len(g.live[x])
    if not rank:
        return None
    axes = np.array(sorted(g.rng.sample(range(rank), g.rng.randint(1, rank))), np.int64) - (g.rng.choice((0, rank)) if g.opset >= 11 else 0)
    if g.rng.random() < 0.1:
        return Drawn(op, [x], {"keepdims": g.rng.randint(0, 1), "noop_with_empty_axes": g.rng.randint(0, 1)})
    return Drawn(op, [x, axes], {"keepdims": g.rng.randint(0, 1)})


MOVES = (
    "Transpose", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Slice", "Pad", "Expand", "Concat", "Split", "Gather", "Tile", "DepthToSpace",
)  # fmt: skip


def movement(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    axis = g.rng.randrange(len(shape))
    kind = g.rng.choice(MOVES)
    return reshaped(g, kind, x, shape) or part(g, kind, x, shape, axis) or copied(g, kind, x, shape, axis) or blocks(g)


def reshaped(g: Graph, kind: str, x: str, shape: Sequence[int]) -> Drawn | None:
    """The same elements in another order or under another shape; None where the kind is no such operator."""
    rank = len(shape)
    match kind:
        case "Transpose":
            return Drawn(kind, [x], {"perm": g.rng.sample(range(rank), rank)} if g.rng.random() < 0.9 else {})
        case "Reshape":
            target = np.array(g.rng.choice(([-1], [0, -1], [*shape[1:], shape[0]], [1, *shape], [2, -1])), np.int64)
            return Drawn(kind, [x, target], {"allowzero": 1} if g.opset >= 14 and 0 not in target else {})
        case "Flatten":
            return Drawn(kind, [x], {"axis": g.rng.randint(0, rank)})
        case "Unsqueeze":
            return Drawn(kind, [x, np.array([g.rng.randint(0, rank)], np.int64)])
        case "Squeeze":
            ones = [a for a, n in enumerate(shape) if n == 1]
            return Drawn(kind, [x, np.array(g.rng.sample(ones, 1), np.int64)] if ones and g.rng.random() < 0.5 else [x])
    return None


def part(g: Graph, kind: str, x: str, shape: Sequence[int], axis: int) -> Drawn | None:
    """Parts of a tensor along an axis; None where the kind is no such operator."""
    match kind:
        case "Slice":
            step = g.rng.choice((1, 2, -1)) if g.opset >= 10 else 1
            start = g.rng.randrange(shape[axis]) if step > 0 else shape[axis]
            end = shape[axis] if step > 0 else -shape[axis] - 1
            return Drawn(kind, [x, *(np.array([n], np.int64) for n in (start, end, axis, step)[: 4 if g.opset >= 10 else 3])])
        case "Split":
            if g.opset >= 18 and shape[axis] > 1 and g.rng.random() < 0.3:
                return Drawn(kind, [x], {"axis": axis, "num_outputs": 2}, 2)
            first = g.rng.randint(1, max(shape[axis] - 1, 1))
            return Drawn(kind, [x, np.array([first, shape[axis] - first], np.int64)], {"axis": axis}, 2)
        case "Gather":
            table = np.array(g.numbers.integers(-shape[axis] if g.opset >= 11 else 0, shape[axis], g.rng.choice(((), (2,), (2, 2)))), np.int64)
            return Drawn(kind, [x, table], {"axis": axis})
    return None


def copied(g: Graph, kind: str, x: str, shape: Sequence[int], axis: int) -> Drawn | None:
    """A tensor with more around it, several times, or beside others; None where the kind is no such operator."""
    rank = len(shape)
    match kind:
        case "Pad":
            mode = g.rng.choice(("constant", "edge", "reflect", "wrap"))
            pads = np.array([g.rng.randint(0, min(2, shape[a % rank] - 1) if mode != "constant" else 2) for a in range(2 * rank)], np.int64)
            return Drawn(kind, [x, pads, np.array(g.rng.choice((0, 1.5)), np.float32)], {"mode": mode})
        case "Expand":
            return Drawn(kind, [x, np.array([g.rng.choice((1, n)) if n > 1 else g.rng.randint(1, 3) for n in shape], np.int64)])
        case "Concat":
            fit = [n for n, s in g.live.items() if len(s) == rank and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
            return Drawn(kind, [g.rng.choice(fit) for _ in range(g.rng.randint(1, 3))], {"axis": axis})
        case "Tile":
            return Drawn(kind, [x, np.array([g.rng.randint(1, 2) for _ in shape], np.int64)])
    return None


def blocks(g: Graph) -> Drawn | None:
    """Pixels to channels or channels to pixels, of which there are made enough."""
    x, to_space = g.pick(rank=4), g.rng.random() < 0.5
    if x is None or not g.add(Drawn("Tile", [x, np.array([1, 4, 1, 1] if to_space else [1, 1, 2, 2], np.int64)])):
        return None
    mode = {"mode": g.rng.choice(("DCR", "CRD"))} if g.opset >= 11 and to_space else {}
    return Drawn("DepthToSpace" if to_space else "SpaceToDepth", [g.last()], {"blocksize": 2} | mode)


def opaque(g: Graph) -> Drawn | None:
    """Operators without an expression."""
    x = g.pick(least=1)
    if x is None:
        return None
    return g.rng.choice(
        (Drawn("LpNormalization", [x], {"axis": 0}), Drawn("Hardmax", [x], {"axis": -1}), Drawn("LpNormalization", [x], {"axis": -1}))
    )
