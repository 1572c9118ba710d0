"""Bundles chosen by cost and run: a device on which every vendor kernel takes as long, so that fewer are faster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.models.net import Net
from einnet.compile.budget import CountedClock, Schedule
from einnet.compile.bundling import Attempt, attempt
from einnet.compile.program_search import _Search, search
from einnet.evidence.certificate import certify
from einnet.expr.nodes import walk
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Plan
from einnet.search.copy_elimination import in_place
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from tests.instantiate.numpy_kernels import Buffers, execute
from tests.models import random_inputs, tiny


class CallsCount:
    """A vendor kernel takes a second, a generated one that only moves or adds little; windows into wider tensors may be slow to read."""

    def __init__(self, strided: float = 0.0) -> None:
        self.strided = strided

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        return [self.one(k) for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [self.one(k) for k in kernels]

    def one(self, k: Kernel) -> float:
        if isinstance(k, EOperator):
            return 100.0 if any(s.sums for s in walk(k.scope)) else 0.1
        return 1.0 + self.strided * (isinstance(k, Conv) and k.x.strides[-1] > k.x.shape[1])


def model(name: str) -> onnx.ModelProto:
    """A benchmark model at its test size, or an inception block."""
    return block() if name == "block" else tiny(name)


def block() -> onnx.ModelProto:
    """1x1, 1x1 then 3x3, 1x1 then 5x5, and pooling then 1x1, side by side on one input; results concatenated."""
    net = Net("block", 0)
    x = net.input("x", (1, 12, 6, 6))
    branches = [net.relu(net.conv(x, "one", 8, 1), "one.relu")]
    for name, middle, features, taps in (("three", 6, 10, 3), ("five", 4, 5, 5)):
        reduced = net.relu(net.conv(x, f"{name}.reduce", middle, 1), f"{name}.reduce.relu")
        branches.append(net.relu(net.conv(reduced, name, features, taps, pad=taps // 2, gain=2.0), f"{name}.relu"))
    branches.append(net.relu(net.conv(net.max_pool(x, "pool", 3, stride=1, pad=1), "pooled", 7, 1), "pooled.relu"))
    return net.finish(net.node("Concat", "blocks", branches, (1, 30, 6, 6), axis=1))


def outcome(name: str, cost: CallsCount, **settings: object) -> tuple[Program, Outcome]:
    program = prepare(load(model(name)))
    return program, search(program, Settings(max_depth=1, time_budget=60, **settings), cost, Schedule(time.monotonic(), 60))  # type: ignore[arg-type]


def run(plan: Plan, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    buffers: Buffers = {b.name: np.full(b.size, np.nan) for b in plan.buffers}
    buffers |= {name: np.asarray(v, dtype=np.float64) for name, v in plan.constants.items()}
    for name, view in plan.inputs:
        buffers[view.buffer] = inputs[name].astype(np.float64).reshape(-1)
    for kernel in plan.kernels:
        execute(kernel, buffers)
    return {name: buffers[view.buffer].reshape(view.shape) for name, view in plan.outputs}


@pytest.mark.parametrize(("name", "size"), [("block", 3), ("longformer_masked", 3)])
@pytest.mark.parametrize("strided", [0.0, 5.0])
def test_readers_of_one_tensor_are_computed_together(name: str, size: int, strided: float) -> None:
    cost = CallsCount(strided)
    program, found = outcome(name, cost)
    assert [len(b.parts) for b in found.bundles] == [size]
    assert any(r.subprogram is found.bundles[0].joint and "join" in r.candidate.rules for r in found.results)
    inputs = random_inputs(model(name))
    wanted = interpret(program, inputs)
    for plan in (found.plan(), found.plan(original=True), in_place(found.plan(), partial(cost.measured, until=inf))):
        for key, value in run(plan, inputs).items():
            np.testing.assert_allclose(value, wanted[key], rtol=1e-4, atol=1e-5)
    assert vendor(found.plan()) == vendor(found.plan(original=True)) - 2
    assert {d.derivation.steps[0].rule for d in certify(found).entries} >= {"bundle"}


def vendor(plan: Plan) -> int:
    return sum(not isinstance(k, EOperator) for k in plan.kernels)


def test_windows_are_read_in_place_unless_that_is_slow() -> None:
    quick, slow = CallsCount(), CallsCount(5.0)
    copies = [len(in_place(outcome("block", c)[1].plan(), partial(c.measured, until=inf)).kernels) for c in (quick, slow)]
    assert copies[1] == copies[0] + 2, "what the two convolutions read"


def test_where_windows_cost_more_than_is_gained_nothing_is_bundled() -> None:
    class Dear(CallsCount):
        def one(self, k: Kernel) -> float:
            moved = isinstance(k, EOperator) and any(v.buffer == "joint" for _, v in k.operands)
            return inf if moved else super().one(k)

    assert not outcome("longformer_masked", Dear(inf))[1].bundles


def test_a_window_that_a_clock_finds_faster_gains_nothing() -> None:
    _, found = outcome("block", CallsCount())
    (bundle,) = found.bundles
    assert found.apart
    before = {r.subprogram.output.name: r for r in found.apart[1]}
    choice = next(r.choice for r in found.results if r.subprogram is bundle.joint)
    tried = [attempt(bundle, choice, before, CallsCount(strided).measured, inf).together for strided in (0.0, -0.9)]
    assert tried[0] == tried[1] == choice.best.measured


@pytest.mark.parametrize(("together", "derived", "pays"), [(0.96, True, True), (0.98, True, False), (1.0, True, False), (0.5, False, False)])
def test_a_bundle_pays_by_more_than_three_hundredths(together: float, derived: bool, pays: bool) -> None:
    """And only where something was derived for the whole."""
    choice: Any = SimpleNamespace(best=SimpleNamespace(original=not derived))
    bundle: Any = None
    assert Attempt(bundle, choice, 1.0, together).pays == pays


def test_without_the_rule_nothing_is_bundled() -> None:
    assert not outcome("block", CallsCount(), rules=("sum-split", "merge"))[1].bundles


def test_kept_originals_are_the_models_own_operators() -> None:
    program, found = outcome("block", CallsCount())
    own = found.plan(original=True)
    assert found.bundles
    found = found.original()
    assert not found.bundles and found.program is program and not any(r.changed for r in found.results)
    assert found.plan().kernels == own.kernels


@pytest.mark.parametrize(("pieces", "kept"), [(1, 0.0), (2, 0.25)])
def test_time_is_kept_for_groups_where_there_can_be_some(monkeypatch: pytest.MonkeyPatch, pieces: int, kept: float) -> None:
    """One subprogram has all of the time to explore."""
    net = Net("pieces", 0)
    x = net.input("x", (8, 16))
    products = [net.node("MatMul", f"y{n}", [x, net.normal(f"w{n}", (16, 4 + n), 1.0)], (8, 4 + n)) for n in range(pieces)]
    ends: list[float] = []
    monkeypatch.setattr(_Search, "explore", lambda self, expressions, chosen, seconds, end: ends.append(end))
    monkeypatch.setattr(_Search, "secure", lambda self, choices, end: end)
    monkeypatch.setattr(Schedule, "searched", lambda self, program, count, seconds: 80.0)
    search(prepare(load(net.finish(*products))), Settings(), CallsCount(), Schedule(0.0, 100.0, clock=CountedClock()))
    assert ends == [pytest.approx(80.0 - 80.0 * kept, abs=0.1)]
