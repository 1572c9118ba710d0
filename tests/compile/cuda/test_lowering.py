"""From an outcome to the program of a card: copies that its prices speak against are left out, and what cannot be lowered is gone round."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.models.net import Net
from einnet.compile.targets.cuda import lowering
from einnet.compile.targets.cuda.cuda_report import step_reports
from einnet.compile.targets.cuda.target import optimize_cuda, search_counted
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import Refusal, lower
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.profile import key, shipped
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from tests.models import random_inputs
from tests.runtime.cuda.programs import reference, worst


def heads() -> onnx.ModelProto:
    """A product for each of four heads, which are then laid side by side and multiplied."""
    net = Net("heads", 0)
    x = net.input("x", (4, 32, 16))
    each = net.node("MatMul", "each", [x, net.normal("w", (4, 16, 16), 0.25)], (4, 32, 16))
    side = net.reshape(net.transpose(each, "side", (1, 0, 2)), "merged", (1, 32, 64))
    return net.finish(net.linear(side, "out", 24))


def found(model: onnx.ModelProto) -> tuple[Outcome, CudaCost]:
    cost = CudaCost(shipped())
    return search_counted(prepare(load(model)), Settings(backend="cuda", derive=False), cost), cost


def test_what_only_moves_is_left_out_where_its_readers_read_it_where_it_lies():
    model = heads()
    outcome, cost = found(model)
    made = lowering.lowered(outcome, cost)
    assert len(made.plan.kernels) < len(outcome.plan().kernels)
    assert sum(map(cost.seconds, made.plan.kernels)) < sum(map(cost.seconds, outcome.plan().kernels))
    assert len(made.owners) == len(made.plan.kernels)
    inputs = random_inputs(model)
    assert worst(Host(made.program)(inputs), reference(model, inputs)) < 1e-5


def test_every_step_is_told_with_the_subprogram_that_it_is_of():
    outcome, cost = found(heads())
    made = lowering.lowered(outcome, cost)
    rows = step_reports(made, cost)
    assert len(rows) == len(made.program.steps)
    nodes = [n for r in rows for n in r.nodes]
    assert set(nodes) <= {n for r in outcome.results for n in r.subprogram.origin}
    assert all(r.nodes for r in rows)
    report = optimize_cuda(heads(), Settings(backend="cuda", derive=False)).report
    assert report["totals"]["optimized_predicted_ms"] == pytest.approx(sum(k["predicted_ms"] for k in report["kernels"]))
    assert report["totals"]["original_predicted_ms"] == pytest.approx(report["totals"]["optimized_predicted_ms"]), "both without copies"


def test_a_kernel_without_its_copy_that_cannot_be_lowered_keeps_the_copy(monkeypatch):
    outcome, cost = found(heads())
    own = {key(k) for k in outcome.plan().kernels}
    changed = [k for k in lowering.lowered(outcome, cost).plan.kernels if key(k) not in own]
    assert changed

    def refusing(plan, channels_last):
        if any(k in changed for k in plan.kernels):
            raise Refusal({changed[0]: "no code"})
        return lower(plan, channels_last)

    monkeypatch.setattr(lowering, "lower", refusing)
    made = lowering.lowered(outcome, cost)
    assert {key(k) for k in made.plan.kernels} == own


def test_what_cannot_be_lowered_at_all_is_refused(monkeypatch):
    outcome, cost = found(heads())
    (first, *_) = outcome.plan().kernels

    def refusing(plan, channels_last):
        raise Refusal({first: "no code"})

    monkeypatch.setattr(lowering, "lower", refusing)
    with pytest.raises(Refusal, match="no code"):
        lowering.lowered(outcome, cost)
