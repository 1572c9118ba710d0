"""Mixers of sequence models as a Scan over time, known ones and variants that no paper names: right, and of a cost that is linear in the length."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest

from benchmarks.algorithms.mixers import MIXERS, SIZES, TOGETHER
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node, Opaque
from einnet.graph.split import subprograms
from einnet.search.work import flops
from tests.graph.cases import compare, values

SMALL = {"H": 2, "K": 3, "V": 5}

STORED = frozenset({"a state that follows another"})
"""One state of all times stands in memory, which the other one takes up."""

LENGTHS = 256, 512, 1024, 2048


@pytest.mark.parametrize("name", [n for n in MIXERS if n not in TOGETHER])
def test_the_expressions_give_what_the_scan_gives(name: str) -> None:
    model = MIXERS[name].model(21, SMALL)
    program = load(model)
    assert not any(isinstance(n, Opaque) for n in program.nodes)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    compare(program, model, {n: values(shape, k) for k, (n, shape) in enumerate(shapes.items())}, 2e-4)


@pytest.mark.parametrize("name", [n for n in MIXERS if n not in TOGETHER])
def test_the_cost_is_linear_in_the_length(name: str) -> None:
    """At 256, 512, 1,024 and 2,048 times; what one part hands to the next is no state of all times."""
    counts = []
    for length in LENGTHS:
        program = prepare(load(MIXERS[name].model(length)))
        assert not any(isinstance(n, Opaque) for n in program.nodes)
        counts.append(sum(flops(n.scope) for n in program.nodes if isinstance(n, Node)))
    assert all(2 * short == long for short, long in pairwise(counts))
    largest = max(prod(s.expression.shape) for s in subprograms(program))
    assert largest <= LENGTHS[-1] * SIZES["H"] * SIZES["V"] or name in STORED
