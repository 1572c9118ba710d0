"""Recurrences against ONNX Runtime over their attributes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from einnet.derivation.rules.transitions import running
from einnet.graph.program import Node
from tests.graph.cases import check, node, values


@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((3, 10), 0), ((3, 10), 1), ((2, 9, 5), -2), ((2, 3, 4, 1), 3)])
@pytest.mark.parametrize(("exclusive", "reverse"), list(product((0, 1), (0, 1))))
def test_cumulative_sums(shape: tuple[int, ...], axis: int, exclusive: int, reverse: int) -> None:
    nodes = [node("CumSum", ["x", "axis"], exclusive=exclusive, reverse=reverse)]
    program = check(nodes, {"x": values(shape)}, {"axis": np.array(axis, np.int64)})
    (made,) = program.nodes
    assert isinstance(made, Node)
    assert (running(made.scope) is not None) == (shape[axis] >= 8)


def test_an_axis_that_is_computed_stays_opaque() -> None:
    nodes = [node("Identity", ["a"], ["axis"]), node("CumSum", ["x", "axis"])]
    check(nodes, {"x": values((3, 9)), "a": np.array([1], np.int64)}, opaque=True)
