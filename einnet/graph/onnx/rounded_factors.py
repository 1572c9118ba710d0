"""Products of a tensor and a weight of few bits, of which ONNX Runtime by its defaults rounds the tensor to bytes, too.

A `DequantizeLinear` of a weight and the product that reads it become one node there (`MatMulNBits`), of an accuracy that a setting chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from einnet.graph.onnx.read import Source, in_pieces

PRODUCTS = frozenset({"MatMul", "Gemm"})


def rounds_factors(source: Source) -> bool:
    """Some product of the model, of a body in it or of a function has a second factor that a `DequantizeLinear` makes of what is known beforehand.

    ONNX Runtime joins not all of these: for the others both accuracies are one. What a function is given counts as known.
    """
    model = in_pieces(source).proto
    return _found(model.graph.node, _given(model.graph), set()) or any(_found(f.node, set(), set()) for f in model.functions)


def _given(graph: onnx.GraphProto) -> set[str]:
    """The inputs of a graph that each run has of its own."""
    return {v.name for v in graph.input} - {t.name for t in graph.initializer}


def _found(nodes: Sequence[onnx.NodeProto], computed: set[str], weights: set[str]) -> bool:
    """The nodes have such a product; what they give joins what is `computed` in each run, or the `weights` that are made of few bits."""
    for node in nodes:
        read, made = ({name for name in names if name} for names in (node.input, node.output))
        bodies = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
        if node.op_type in PRODUCTS and len(node.input) > 1 and node.input[1] in weights:
            return True
        if any(_found(body.node, computed | _given(body), set(weights)) for body in bodies):
            return True
        if node.op_type != "Constant" and (bodies or not read or read & computed):
            computed |= made
        elif node.op_type == "DequantizeLinear" or read & weights:
            weights |= made
    return False
