"""How many kernels a layer of a transformer takes: a structure, no time. Models are as exporters write them; plans are proven and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import numpy as np
import onnx
import pytest

from benchmarks.models.net import Net, Value
from benchmarks.models.sequential import feed_forward, self_attention
from einnet.compile.budget import Schedule
from einnet.compile.program_search import search
from einnet.evidence.examine import proven, told_constants, told_lifting
from einnet.expr.nodes import Mul, Scope, reads, walk
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.search.copy_elimination import in_place
from einnet.search.joint_products import together
from einnet.search.settings import Settings
from tests.compile.test_bundling import run
from tests.models import random_inputs

SEQUENCE, HIDDEN, HEADS = 16, 24, 3
DEPTH = HIDDEN // HEADS

Attention = Callable[[Net, Value, str], Value]


class CallsCount:
    """Every kernel takes a second; a generated one that multiplies matrices much longer."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [100.0 if isinstance(k, EOperator) and any(map(multiplies, walk(k.scope))) else 1.0 for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [*self.estimates(kernels)]


def multiplies(scope: Scope) -> bool:
    return bool(scope.sums) and scope.reduce == "sum" and isinstance(scope.body, Mul) and len(set(reads(scope.body))) > 1


def separate(net: Net, x: Value, name: str) -> Value:
    """Queries, keys and values by weights of their own, as in BERT."""
    return self_attention(net, x, name, HEADS)


def weighed(net: Net, name: str, query: Value, key: Value, value: Value, mask: Value | None = None) -> Value:
    """Softmax of queries times keys (transposed), times values; heads merged, and a linear layer."""
    scores = net.matmul(query, key, f"{name}.scores")
    if mask is not None:
        scores = net.node("Add", f"{name}.masked", [scores, mask], scores.shape)
    context = net.matmul(net.unary("Softmax", scores, f"{name}.softmax", axis=-1), value, f"{name}.context")
    merged = net.reshape(net.transpose(context, f"{name}.merge", (0, 2, 1, 3)), f"{name}.merged", (1, SEQUENCE, HIDDEN))
    return net.linear(merged, f"{name}.output", HIDDEN, gain=0.5)


def split_causal(net: Net, x: Value, name: str) -> Value:
    """One product for all three, split, queries and keys scaled, and a causal mask, as in GPT-2."""
    root = net.constant(f"{name}.root", np.array(DEPTH**-0.25, np.float32))
    parts = net.split(net.linear(x, f"{name}.all", 3 * HIDDEN), f"{name}.split", (HIDDEN,) * 3, axis=2)
    heads = [net.reshape(p, f"{name}.heads{n}", (1, SEQUENCE, HEADS, DEPTH)) for n, p in enumerate(parts)]
    orders = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)
    query, key, value = (net.transpose(h, f"{name}.order{n}", order) for n, (h, order) in enumerate(zip(heads, orders)))
    mask = net.constant(f"{name}.mask", np.triu(np.full((1, 1, SEQUENCE, SEQUENCE), -np.inf, np.float32), 1))
    return weighed(net, name, net.mul(query, root, f"{name}.q"), net.mul(key, root, f"{name}.k"), value, mask)


def gathered(net: Net, x: Value, name: str) -> Value:
    """One product for all three, reshaped to five dimensions and gathered, as in ViT."""
    shaped = net.reshape(net.linear(x, f"{name}.all", 3 * HIDDEN), f"{name}.five", (1, SEQUENCE, 3, HEADS, DEPTH))
    ordered = net.transpose(shaped, f"{name}.order", (2, 0, 3, 1, 4))
    at = [net.constant(f"{name}.at{n}", np.array(n)) for n in range(3)]
    query, key, value = (net.node("Gather", f"{name}.part{n}", [ordered, k], (1, HEADS, SEQUENCE, DEPTH), axis=0) for n, k in enumerate(at))
    scaled = net.mul(query, net.constant(f"{name}.scale", np.array(DEPTH**-0.5, np.float32)), f"{name}.scaled")
    return weighed(net, name, scaled, net.transpose(key, f"{name}.key", (0, 1, 3, 2)), value)


def model(attention: Attention, layers: int, before: bool) -> onnx.ModelProto:
    """Layers of attention and a feed-forward pair, each with a residual, the norm before (GPT-2, ViT) or after it (BERT)."""
    net = Net("layers", 0)
    x = net.input("x", (1, SEQUENCE, HIDDEN))
    for n in range(layers):
        for part, apply in (("attention", attention), ("ffn", partial(feed_forward, hidden=4 * HIDDEN))):
            name = f"layer{n}.{part}"
            inner = net.layer_norm(x, f"{name}.norm") if before else x
            x = net.add(x, apply(net, inner, name), f"{name}.add")
            x = x if before else net.layer_norm(x, f"{name}.norm")
    return net.finish(x)


def plan_of(made: onnx.ModelProto) -> tuple[Program, Plan]:
    """The plan of the model's own operators, with as few kernels as that can be."""
    program, cost = prepare(load(made)), CallsCount()
    found = search(program, Settings(derive=False, time_budget=600), cost, Schedule(time.monotonic(), 600))
    measured = partial(cost.measured, until=inf)
    return program, in_place(together(found.plan(), program.tensors(), program.weights, lambda plan: measured), measured)


@pytest.mark.parametrize(
    ("attention", "before", "kernels"),
    [
        (separate, False, 9),  # keys are part of the attention, queries and values are not
        (split_causal, True, 9),  # norm; all three; scores; softmax; context; output and residual; norm; up and GELU; down and residual
        (gathered, True, 9),
    ],
    ids=["BERT", "GPT-2", "ViT"],
)
def test_kernels_of_a_layer(attention: Attention, before: bool, kernels: int) -> None:
    counts = []
    for layers in (1, 2):
        made = model(attention, layers, before)
        program, plan = plan_of(made)
        counts.append(len(plan.kernels))
        inputs = random_inputs(made)
        for key, value in run(plan, inputs).items():
            np.testing.assert_allclose(value, interpret(program, inputs)[key], rtol=1e-4, atol=1e-5)
    assert counts[1] - counts[0] == kernels, [k.describe() for k in plan.kernels]
    found = proven(program, plan, [])
    told = told_lifting(program, found)
    assert told["problems"] == [] and told_constants(found.constants)["problems"] == []
    assert told["proven"] == told["subprograms"] > 0
