"""Small random networks for tests of program-level passes."""

from __future__ import annotations

import numpy as np
import onnx

from tests.graph.cases import build, node, values

BN = ("scale", "shift", "mean", "variance")


def network(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A random network over tensors [1, c, 4, 4], with one or two outputs, and values for its input."""
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    held: dict[str, np.ndarray] = {}
    channels = {"x": 3}
    for n in range(int(rng.integers(4, 10))):
        source = str(rng.choice(list(channels)[-3:]))
        c, name = channels[source], f"v{n}"
        kind = rng.choice(["conv", "bn", "relu", "add", "softmax", "pool", "concat", "transpose", "scale", "tconv", "copy", "topk"])
        same = [other for other, k in channels.items() if k == c]
        channels[name] = c
        if kind == "conv":
            channels[name] = int(rng.integers(1, 4))
            held[f"w{n}"] = values((channels[name], c, 3, 3), n)
            nodes.append(node("Conv", [source, f"w{n}"], [name], pads=[1, 1, 1, 1]))
        elif kind == "tconv":
            channels[name] = 2
            held[f"w{n}"], held[f"b{n}"] = values((c, 2, 3, 3), n), values((2,), n)
            nodes.append(node("ConvTranspose", [source, f"w{n}", f"b{n}"], [name], pads=[1, 1, 1, 1]))
        elif kind == "bn":
            held.update({f"{p}{n}": values((c,), n + k, 0.5, 1.5) for k, p in enumerate(BN)})
            nodes.append(node("BatchNormalization", [source, *(f"{p}{n}" for p in BN)], [name]))
        elif kind == "scale":
            held[f"k{n}"] = values((1, c, 1, 1), n)
            nodes.append(node(str(rng.choice(["Mul", "Add", "Div"])), [source, f"k{n}"], [name]))
        elif kind == "add":
            nodes.append(node(str(rng.choice(["Add", "Mul"])), [source, str(rng.choice(same))], [name]))
        elif kind == "concat":
            channels[name] = c + channels[str(other := rng.choice(list(channels)[:-1]))]
            nodes.append(node("Concat", [source, str(other)], [name], axis=1))
        elif kind == "transpose":
            nodes.append(node("Transpose", [source], [name], perm=[0, 1, 3, 2]))
        elif kind == "pool":
            nodes.append(node("AveragePool", [source], [name], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        elif kind == "topk":
            held["four"] = np.array([4], np.int64)
            nodes.append(node("TopK", [source, "four"], [name, f"i{n}"], axis=-1))
        else:
            nodes.append(node({"relu": "Relu", "softmax": "Softmax", "copy": "Identity"}[str(kind)], [source], [name]))
    outputs = list(channels)[-1:] + ([list(channels)[-3]] if rng.random() < 0.5 and len(channels) > 4 else [])
    return build(nodes, {"x": values((1, 3, 4, 4), seed)}, outputs, held), {"x": values((1, 3, 4, 4), seed)}
