"""Programs with recurrences: walks along time beside other kernels."""

from __future__ import annotations

import numpy as np

import einnet
from tests.graph.cases import build, node, values


def test_a_program_walks_and_gives_what_onnx_runtime_gives() -> None:
    """Sums of both directions, read by functions and by a product: each is computed once, by a walk of its own."""
    weight = values((12, 5), 3)
    nodes = [
        node("CumSum", ["x", "one"], ["a"]), node("CumSum", ["x", "one"], ["b"], reverse=1, exclusive=1),
        node("Relu", ["a"], ["c"]), node("Mul", ["c", "b"], ["d"]), node("MatMul", ["d", "w"], ["y"]),
    ]  # fmt: skip
    model = build(nodes, {"x": values((4, 33, 12))}, ("y",), {"one": np.array(1, np.int64), "w": weight})
    found = einnet.optimize(model, time_budget=5, threads=1, fresh=True)
    assert found.report["verification"]["passed"] and not found.report["opaque"]
