"""What ONNX Runtime is known to compute wrongly on a processor, and the evaluator of the standard, which is right there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from einnet.graph.onnx.read import Source, normalised
from einnet.graph.onnx.shapes import Shapes

Array = np.ndarray[Any, np.dtype[Any]]

FACTORS = {"QLinearMatMul": (0, 3), "MatMulInteger": (0, 1)}
"""Products of bytes, with the places of their factors."""

CONVERTED = frozenset({"MatMulInteger"})
"""What ONNX Runtime adds up right where the second factor is known when the model is read: it makes that one of another type then."""

WHOLE_SUMS = frozenset({"avx_vnni", "avx512_vnni"})
"""A processor with one of these adds products of bytes up in 32 bits."""

MOST = 64
"""Of signed bytes no larger than this two products with unsigned ones are added up in 16 bits."""


def cuts(features: Collection[str]) -> bool:
    """On a processor with such features ONNX Runtime adds two products of an unsigned and a signed byte up in 16 bits, and cuts what is larger."""
    return "avx2" in features and WHOLE_SUMS.isdisjoint(features)


def cut_short(source: Source, shapes: Shapes, features: Collection[str]) -> tuple[str, ...]:
    """The first outputs of the nodes of a model whose sums ONNX Runtime cuts on a processor with such features."""
    if not cuts(features):
        return ()
    graph = shape_inference.infer_shapes(normalised(source, shapes)).graph
    held = {t.name: t for t in graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    types |= {name: t.data_type for name, t in held.items()}
    return tuple(n.output[0] for n in graph.node if n.op_type in FACTORS and not n.domain and _cuts(n, types, held))


def _cuts(node: onnx.NodeProto, types: Mapping[str, int], held: Mapping[str, onnx.TensorProto]) -> bool:
    """An unsigned factor, and a signed one that may be large."""
    one, other = (node.input[k] for k in FACTORS[node.op_type])
    if types.get(one) != onnx.TensorProto.UINT8 or types.get(other) != onnx.TensorProto.INT8:
        return False
    if other not in held:
        return True
    return node.op_type not in CONVERTED and int(np.abs(numpy_helper.to_array(held[other]).astype(np.int64)).max(initial=0)) > MOST


class Standard:
    """A model in the evaluator of the standard."""

    def __init__(self, source: Source, shapes: Shapes) -> None:
        self.evaluator = ReferenceEvaluator(normalised(source, shapes))

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name."""
        with np.errstate(all="ignore"):
            found = self.evaluator.run(None, dict(inputs))
        return {name: np.asarray(y) for name, y in zip(self.evaluator.output_names, found, strict=True)}
