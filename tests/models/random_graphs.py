"""Random ONNX graphs: any operator with any of its attributes, wired at random. A seed gives the graph; what is invalid is drawn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

OPSET = 18
MOST_ELEMENTS = 4096

Shape = tuple[int, ...]


class Drawn(NamedTuple):
    """A node to be: operator, inputs (names, or arrays that become initialisers), attributes, number of outputs."""

    op: str
    inputs: list[str | np.ndarray | None]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1


class Graph:
    """A graph under construction; `live` are its float values."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.live: dict[str, Shape] = {}
        self.inputs: list[str] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> np.ndarray:
        return self.numbers.standard_normal(shape).astype(np.float32)

    def pick(self, rank: int | None = None, least: int = 0) -> str | None:
        """A value of a rank, or of that rank at least; recent ones are likelier."""
        fit = [n for n, s in self.live.items() if (rank is None or len(s) == rank) and len(s) >= least]
        return self.rng.choice(fit[-4:] if self.rng.random() < 0.7 else fit) if fit else None

    def add(self, drawn: Drawn) -> bool:
        """Append the node if ONNX takes it and nothing gets large."""
        number = len(self.nodes)
        names, weights = [], []
        for n, given in enumerate(drawn.inputs):
            if isinstance(given, (np.ndarray, np.generic)):
                weights.append(numpy_helper.from_array(np.asarray(given), f"w{number}_{n}"))
                names.append(weights[-1].name)
            else:
                names.append(given or "")
        results = [f"v{number}_{n}" for n in range(drawn.outputs)]
        node = helper.make_node(drawn.op, names, results, name=f"n{number}", **drawn.attributes)
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.live[n]) for n in dict.fromkeys(names) if n in self.live]
        graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(r) for r in results], weights)
        try:
            inferred = shape_inference.infer_shapes(wrapped(graph), check_type=True, strict_mode=True, data_prop=True)
            onnx.checker.check_model(inferred, full_check=True)
        except Exception:  # the checker's word for "no such node"
            return False
        shapes = {o.name: tuple(d.dim_value for d in o.type.tensor_type.shape.dim) for o in inferred.graph.output}
        typed = all(o.type.tensor_type.elem_type == TensorProto.FLOAT and o.type.tensor_type.HasField("shape") for o in inferred.graph.output)
        if not typed or any(min(s, default=1) < 1 or prod(s) > MOST_ELEMENTS for s in shapes.values()):
            return False
        self.nodes.append(node)
        self.weights += weights
        self.live.update(shapes)
        return True


def wrapped(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


# ---------------------------------------------------------------------------------------------------------------- operators

Draw = Callable[[Graph], Drawn | None]


def unary(g: Graph) -> Drawn | None:
    op = g.rng.choice(
        ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Abs", "Neg", "Softplus", "Floor", "Ceil", "Sign", "Sin", "HardSigmoid", "HardSwish", "Elu")
    )
    return Drawn(op, [g.pick()])


def parametrised(g: Graph) -> Drawn | None:
    x = g.pick()
    assert x is not None
    return g.rng.choice(
        (
            Drawn("LeakyRelu", [x], {"alpha": 0.2}),
            Drawn("Clip", [x, np.float32(-0.5) * np.ones((), np.float32), np.ones((), np.float32)]),
            Drawn("PRelu", [x, g.weight(*(n if g.rng.random() < 0.5 else 1 for n in g.live[x]))]),
            Drawn("Softmax", [x], {"axis": g.rng.randint(-1, 1)}),
            Drawn("LogSoftmax", [x], {"axis": -1}),
        )
    )


def binary(g: Graph) -> Drawn | None:
    x, y = g.pick(), g.pick()
    assert x is not None
    other: Any = y if g.rng.random() < 0.5 else g.weight(*(n if g.rng.random() < 0.6 else 1 for n in g.live[x]))
    pair = [x, other] if g.rng.random() < 0.7 else [other, x]
    return Drawn(g.rng.choice(("Add", "Mul", "Sub", "Max", "Min", "Add", "Mul")), pair)


def convolution(g: Graph) -> Drawn | None:
    x = g.pick(least=3)
    if x is None:
        return None
    _, channels, *space = g.live[x]
    groups = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
    taps = [g.rng.randint(1, 3) for _ in space]
    attributes: dict[str, Any] = {
        "group": groups,
        "strides": [g.rng.choice((1, 1, 2, 3)) for _ in space],
        "dilations": [g.rng.choice((1, 1, 2)) for _ in space],
    }
    if g.rng.random() < 0.2:
        attributes["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attributes["pads"] = [g.rng.randint(0, 2) for _ in range(2 * len(space))]
    out = groups * g.rng.randint(1, 3)
    bias = [g.weight(out)] if g.rng.random() < 0.5 else []
    if g.rng.random() < 0.6:
        return Drawn("Conv", [x, g.weight(out, channels // groups, *taps), *bias], attributes)
    if "pads" in attributes and g.rng.random() < 0.5:
        attributes["output_padding"] = [g.rng.randint(0, s - 1) for s in attributes["strides"]]
    return Drawn("ConvTranspose", [x, g.weight(channels, out // groups, *taps), *bias], attributes)


def pooling(g: Graph) -> Drawn | None:
    x = g.pick(least=3)
    if x is None:
        return None
    rank = len(g.live[x]) - 2
    if g.rng.random() < 0.2:
        return Drawn(g.rng.choice(("GlobalAveragePool", "GlobalMaxPool")), [x])
    taps = [g.rng.randint(1, min(3, n)) for n in g.live[x][2:]]
    attributes: dict[str, Any] = {"kernel_shape": taps, "strides": [g.rng.randint(1, 2) for _ in range(rank)], "ceil_mode": g.rng.randint(0, 1)}
    attributes["pads"] = [g.rng.randint(0, t - 1) for t in taps * 2]
    dilations = [g.rng.randint(1, 2) if g.rng.random() < 0.5 else 1 for _ in taps]
    if any(starts_in_padding(n, t, attributes, a) for a, (n, t) in enumerate(zip(g.live[x][2:], taps))):
        attributes["ceil_mode"] = 0
    if dilations != [1] * rank and not attributes["ceil_mode"]:
        return Drawn("MaxPool", [x], attributes | {"dilations": dilations})
    return Drawn(*g.rng.choice((("MaxPool", [x], attributes), ("AveragePool", [x], attributes | {"count_include_pad": g.rng.randint(0, 1)}))))


def starts_in_padding(extent: int, taps: int, attributes: dict[str, Any], axis: int) -> bool:
    """With ceil_mode the last window would begin behind the data: shape inference counts it, engines do not."""
    rank = len(attributes["kernel_shape"])
    begin, end, stride = attributes["pads"][axis], attributes["pads"][axis + rank], attributes["strides"][axis]
    last = -(-(extent + begin + end - taps) // stride) * stride
    return bool(last >= extent + begin)


def product(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    if len(shape) == 2 and g.rng.random() < 0.4:
        flip, n = g.rng.random() < 0.5, g.rng.randint(1, 5)
        b = g.weight(n, shape[1]) if flip else g.weight(shape[1], n)
        return Drawn("Gemm", [x, b, g.weight(*g.rng.choice(((n,), (1, n), (shape[0], 1))))], {"transB": int(flip), "alpha": g.rng.choice((1.0, 0.5))})
    same = [n for n, s in g.live.items() if len(s) >= 2 and s[-2] == shape[-1]]
    other: Any = g.rng.choice(same) if same and g.rng.random() < 0.5 else g.weight(*g.rng.choice(((shape[-1], 3), (shape[-1],), (2, shape[-1], 2))))
    return Drawn("MatMul", [x, other])


def einsum(g: Graph) -> Drawn | None:
    x = g.pick(rank=3)
    if x is None:
        return None
    a, b, c = g.live[x]
    equation, shape = g.rng.choice(
        (("abc,dc->abd", (3, c)), ("abc,abd->acd", (a, b, 2)), ("abc,cb->a", (c, b)), ("abc,bd->dac", (b, 2)), ("abc,abc->ab", (a, b, c)))
    )
    return Drawn("Einsum", [x, g.weight(*shape)], {"equation": equation})


def reduction(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    rank = len(g.live[x])
    axes = np.array(sorted(g.rng.sample(range(rank), g.rng.randint(1, rank))), np.int64) - g.rng.choice((0, rank))
    return Drawn(
        g.rng.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")),
        [x, axes],
        {"keepdims": g.rng.randint(0, 1)},
    )


def movement(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    rank = len(shape)
    axis = g.rng.randrange(rank)
    kind = g.rng.choice(
        (
            "Transpose",
            "Reshape",
            "Flatten",
            "Unsqueeze",
            "Squeeze",
            "Slice",
            "Pad",
            "Expand",
            "Concat",
            "Split",
            "Gather",
            "Tile",
            "DepthToSpace",
            "Resize",
        )
    )
    match kind:
        case "Transpose":
            return Drawn(kind, [x], {"perm": g.rng.sample(range(rank), rank)})
        case "Reshape":
            return Drawn(kind, [x, np.array(g.rng.choice(([-1], [0, -1], [*shape[1:], shape[0]], [1, *shape], [2, -1])), np.int64)])
        case "Flatten":
            return Drawn(kind, [x], {"axis": g.rng.randint(0, rank)})
        case "Unsqueeze":
            return Drawn(kind, [x, np.array([g.rng.randint(0, rank)], np.int64)])
        case "Squeeze":
            return Drawn(kind, [x])
        case "Slice":
            step = g.rng.choice((1, 2, -1))
            ends = (0, shape[axis]) if step > 0 else (shape[axis], -shape[axis] - 1)
            start = g.rng.randrange(shape[axis]) if step > 0 else ends[0]
            return Drawn(kind, [x, *(np.array([n], np.int64) for n in (start, ends[1], axis, step))])
        case "Pad":
            mode = g.rng.choice(("constant", "edge", "reflect"))
            pads = np.array([g.rng.randint(0, min(2, shape[a % rank] - 1) if mode == "reflect" else 2) for a in range(2 * rank)], np.int64)
            return Drawn(kind, [x, pads, np.array(g.rng.choice((0, 1.5)), np.float32)], {"mode": mode})
        case "Expand":
            return Drawn(kind, [x, np.array([g.rng.choice((1, n)) if n > 1 else g.rng.randint(1, 3) for n in shape], np.int64)])
        case "Concat":
            fit = [n for n, s in g.live.items() if len(s) == rank and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
            return Drawn(kind, [g.rng.choice(fit) for _ in range(g.rng.randint(1, 3))], {"axis": axis})
        case "Split":
            first = g.rng.randint(1, max(shape[axis] - 1, 1))
            return Drawn(kind, [x, np.array([first, shape[axis] - first], np.int64)], {"axis": axis}, 2)
        case "Gather":
            table = np.array(g.numbers.integers(-shape[axis], shape[axis], g.rng.choice(((), (2,), (2, 2)))), np.int64)
            return Drawn(kind, [x, table], {"axis": axis})
        case "Tile":
            return Drawn(kind, [x, np.array([g.rng.randint(1, 2) for _ in shape], np.int64)])
        case "DepthToSpace":
            return Drawn(g.rng.choice((kind, "SpaceToDepth")), [g.pick(rank=4)], {"blocksize": 2})
    scales = np.array([1.0 if a < 2 else g.rng.choice((0.5, 1.0, 2.0)) for a in range(rank)], np.float32)
    mode = g.rng.choice(("nearest", "linear"))
    way = g.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    return Drawn("Resize", [x, None, scales], {"mode": mode, "coordinate_transformation_mode": way})


def normalisation(g: Graph) -> Drawn | None:
    x = g.pick(least=2)
    if x is None:
        return None
    c = g.live[x][1]
    if g.rng.random() < 0.5:
        return Drawn("BatchNormalization", [x, g.weight(c), g.weight(c), g.weight(c), np.abs(g.weight(c)) + np.float32(0.1)])
    if g.rng.random() < 0.5 and len(g.live[x]) > 2:
        return Drawn("InstanceNormalization", [x, g.weight(c), g.weight(c)])
    return Drawn("LayerNormalization", [x, g.weight(g.live[x][-1])], {"axis": -1})


def opaque(g: Graph) -> Drawn | None:
    """Operators without an expression."""
    x = g.pick(least=1)
    if x is None:
        return None
    return g.rng.choice(
        (Drawn("CumSum", [x, np.array(0, np.int64)]), Drawn("Hardmax", [x], {"axis": -1}), Drawn("LpNormalization", [x], {"axis": -1}))
    )


OPERATORS: tuple[tuple[Draw, int], ...] = (
    (unary, 3), (parametrised, 2), (binary, 4), (convolution, 4), (pooling, 2), (product, 3), (einsum, 1), (reduction, 2), (movement, 6),
    (normalisation, 2), (opaque, 1),
)  # fmt: skip


def random_graph(seed: int, nodes: int = 6) -> onnx.ModelProto:
    """A valid float32 model of up to `nodes` nodes with one or two inputs; its outputs are what nobody reads, and sometimes more."""
    g = Graph(seed)
    for n in range(g.rng.randint(1, 2)):
        rank = g.rng.choice((1, 2, 3, 4, 4, 4, 5))
        g.inputs.append(f"x{n}")
        g.live[f"x{n}"] = tuple(g.rng.randint(1, 3) if d < rank - 2 else g.rng.randint(1, 6) for d in range(rank))
    wanted = g.rng.randint(1, nodes)
    draws, weights = zip(*OPERATORS, strict=True)
    for _ in range(20 * wanted):
        if len(g.nodes) == wanted:
            break
        drawn = g.rng.choices(draws, weights)[0](g)
        if drawn is not None and drawn.inputs[0] is not None:
            g.add(drawn)
    read = {n for node in g.nodes for n in node.input}
    made = [o for node in g.nodes for o in node.output]
    outputs = [o for o in made if o not in read or g.rng.random() < 0.1] or g.inputs[:1]
    if not made:
        g.nodes.append(helper.make_node("Identity", [g.inputs[0]], ["same"], name="same"))
        g.live["same"], outputs = g.live[g.inputs[0]], ["same"]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, g.live[n]) for n in (*g.inputs, *outputs)]
    graph = helper.make_graph(g.nodes, f"random{seed}", infos[: len(g.inputs)], infos[len(g.inputs) :], g.weights)
    return wrapped(graph)
