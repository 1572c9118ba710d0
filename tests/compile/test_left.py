"""Nodes that are recursions run as their equations where that is not slower than the node; times are given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from einnet.compile.targets.cpu.left import left
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque, Program
from einnet.instantiate.kernels import Kernel, OpaqueCall
from einnet.runtime.costs import CpuCost
from tests.graph.test_recurrent_operators import model


class Told(CpuCost):
    """Equations take a second, and the node as it is so many."""

    alone = 1.0

    def costs(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 if isinstance(k, OpaqueCall) and k.recursion is not None else self.alone for k in kernels]


@pytest.mark.parametrize(("alone", "kept"), [(2.0, True), (0.95, True), (0.8, False)])
def test_the_node_runs_where_it_is_surely_faster(alone: float, kept: bool) -> None:
    program, cost = load(model("GRU")), Told(1)
    cost.alone = alone
    found = left(program, cost)
    assert [n.recursion is not None for n in found.nodes if isinstance(n, Opaque)] == [kept]
    assert found.outputs == program.outputs
    (told,) = [n.why for n in found.nodes if isinstance(n, Opaque)]
    assert told.endswith("faster than these: 8e+05 us beside 1e+06") != kept


def test_other_programs_are_as_they_were() -> None:
    program = load(model("GRU", steps=3))
    assert left(program, Told(1)) is program
    early: Program = load(model("GRU", lengths=[30, 2]))
    assert left(early, Told(1)) is early
