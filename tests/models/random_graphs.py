"""Random ONNX graphs: any operator with any of its attributes, wired at random. A seed gives the graph; what is invalid is drawn again."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models.random_elements import binary, choice, movement, of_positive, opaque, parametrised, reduction, unary
from tests.models.random_layers import convolution, einsum, normalisation, pooling, product, resizing
from tests.models.random_nodes import Draw, Graph, wrapped
from tests.models.random_truth import places, running, truth

OPERATORS: tuple[tuple[Draw, int], ...] = (
    (unary, 3), (parametrised, 3), (binary, 4), (of_positive, 2), (choice, 2), (convolution, 4), (pooling, 3), (product, 3), (einsum, 1),
    (resizing, 1), (reduction, 2), (movement, 6), (normalisation, 3), (opaque, 1),
)  # fmt: skip


OF_TRUTH: tuple[tuple[Draw, int], ...] = (*OPERATORS, (truth, 16), (places, 6), (running, 3))
"""With conditions inside, places that are data and running sums: a family of its own, so that the graphs of the other one stay what they are."""


def random_graph(seed: int, nodes: int = 6, operators: tuple[tuple[Draw, int], ...] = OPERATORS) -> onnx.ModelProto:
    """A valid model of about `nodes` nodes at most with one or two inputs, float32 outside; its outputs are what nobody reads, and sometimes more."""
    g = Graph(seed)
    for n in range(g.rng.randint(1, 2)):
        rank = g.rng.choice((1, 2, 3, 4, 4, 4, 5))
        g.inputs.append(f"x{n}")
        g.live[f"x{n}"] = tuple(g.rng.randint(1, 3) if d < rank - 2 else g.rng.randint(1, 6) for d in range(rank))
    wanted = g.rng.randint(1, nodes)
    draws, weights = zip(*operators, strict=True)
    for _ in range(20 * wanted):
        if len(g.nodes) >= wanted:
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
    infos = [g.info(n) for n in (*g.inputs, *outputs)]
    graph = helper.make_graph(g.nodes, f"random{seed}", infos[: len(g.inputs)], infos[len(g.inputs) :], g.weights)
    return wrapped(graph, g.opset)


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph on float16: its inputs, outputs, and weights but those that an operator wants as float32."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = {name for n in made.graph.node if n.op_type in ("Resize", "Upsample") for name in n.input[1:]}
    for info in (*made.graph.input, *made.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in made.graph.initializer:
        if weight.data_type == TensorProto.FLOAT and weight.name not in kept:
            with np.errstate(over="ignore"):
                weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
    return made


def rounded(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same graph with some of its values cast to float16 and back, or quantised and back."""
    made, rng = onnx.ModelProto(), Random(seed)
    made.CopyFrom(model)
    nodes = list(made.graph.node)
    del made.graph.node[:]
    outputs = {o.name for o in made.graph.output}
    for n, node in enumerate(nodes):
        made.graph.node.append(node)
        if node.output[0] in outputs or rng.random() < 0.4:
            continue
        source, result = f"{node.output[0]}/exact", node.output[0]
        made.graph.node[-1].output[0] = source
        if rng.random() < 0.5:
            there = helper.make_node("Cast", [source], [f"between{n}"], to=TensorProto.FLOAT16)
            back = helper.make_node("Cast", [f"between{n}"], [result], to=TensorProto.FLOAT)
        else:
            made.graph.initializer.append(numpy_helper.from_array(np.array(rng.uniform(0.01, 0.1), np.float32), f"scale{n}"))
            made.graph.initializer.append(numpy_helper.from_array(np.array(rng.randint(0, 255), np.uint8), f"zero{n}"))
            ends = [f"scale{n}", f"zero{n}"]
            there = helper.make_node("QuantizeLinear", [source, *ends], [f"between{n}"])
            back = helper.make_node("DequantizeLinear", [f"between{n}", *ends], [result])
        made.graph.node.extend((there, back))
    return made
