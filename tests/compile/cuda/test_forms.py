"""What a search for a card proposes whatever its budget, and how it stores filters."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.models.net import Net
from einnet.compile.budget import CountedClock
from einnet.compile.subprogram_search import options
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.instantiate.kernels import Conv, Plan
from einnet.runtime.cuda.fit import filters_last, fitted
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import Gemm
from einnet.search.settings import Settings, explored
from tests.models import random_inputs
from tests.runtime.cuda.programs import own_plan, reference, worst


def layers() -> onnx.ModelProto:
    """Strided, dilated, one-dimensional in effect, with odd channels, and transposed convolutions."""
    net = Net("layers", 0)
    x = net.input("x", (1, 128, 14, 14))
    x = net.relu(net.conv(x, "strided", 128, 3, stride=2, pad=1), "r1")
    x = net.relu(net.conv(x, "point", 85, 1), "r2")
    x = net.relu(net.conv(x, "odd", 85, 3, pad=1), "r3")
    return net.finish(net.conv_transpose(x, "transposed", 64, 4, stride=2, pad=1))


def test_every_convolution_is_proposed_as_a_product_without_a_budget():
    found = optimize_cuda(layers(), Settings(backend="cuda", time_budget=1e-6, allow="precision"))
    assert found.report["verification"]["passed"]
    assert not any(isinstance(s, Conv) for s in found.program.steps)
    assert found.report["totals"]["optimized_predicted_ms"] < 0.7 * found.report["totals"]["original_predicted_ms"]


def test_a_long_sum_with_few_results_is_shared_by_several_products():
    net = Net("deep", 0)
    model = net.finish(net.conv(net.input("x", (1, 4096, 6, 6)), "wide", 1024, 1))
    found = optimize_cuda(model, Settings(backend="cuda", time_budget=1e-6, allow="precision"))
    assert found.report["verification"]["passed"]
    assert [s.batches[0].count for s in found.program.steps if isinstance(s, Gemm) and s.batches] == [8]
    (result,) = found.outcome.results
    assert "share-sum" in {s.rule for s in result.choice.best.form.steps}


def test_parts_of_a_sum_are_added_by_the_sum_that_reads_them():
    net = Net("transposed", 0)
    model = net.finish(net.conv_transpose(net.input("x", (1, 512, 4, 4)), "deep", 256, 4, stride=2, pad=1))
    found = optimize_cuda(model, Settings(backend="cuda", time_budget=0.5, allow="precision"))
    assert found.report["verification"]["passed"]
    (result,) = found.outcome.results
    assert "share-read" in {s.rule for s in result.choice.best.form.steps}
    assert found.program.launches == 2


def test_sums_are_shared_for_cards_alone():
    assert set(explored("cuda")) - set(explored("cpu")) == {"share-sum", "share-read"}
    for backend in ("cpu", "cuda"):
        assert ("share-read" in options(Settings(backend=backend), 1.0, CountedClock()).rules) == (backend == "cuda")
    assert options(Settings(backend="cuda", rules=("merge",)), 1.0, CountedClock()).rules == ("merge",)


@pytest.mark.parametrize("math", ["fp32", "tf32"])
def test_the_program_says_in_which_order_its_data_was_searched(math):
    found = optimize_cuda(layers(), Settings(backend="cuda", derive=False), math=math)
    assert found.report["settings"]["channels_last"] == (math == "tf32")
    assert found.report["math"] == math


def convolutions(plan: Plan) -> list[Conv]:
    return [k for k in plan.kernels if isinstance(k, Conv)]


def test_filters_are_stored_with_channels_last_where_tensor_cores_want_them():
    model = layers()
    plan = own_plan(model)
    as_given, last = fitted(plan), fitted(plan, channels_last=True)
    assert len(convolutions(last)) == len(convolutions(as_given)) >= 2
    changed = [b for a, b in zip(convolutions(as_given), convolutions(last), strict=True) if a.w != b.w]
    assert changed
    for kernel in convolutions(last):
        assert kernel.transposed or kernel.w.strides == filters_last(kernel).w.strides
        assert kernel.w.buffer in last.constants
    assert all(k.w.buffer in last.expressions for k in changed), "what a copy holds is told"
    inputs = random_inputs(model)
    assert worst(Host(lower(plan, channels_last=True))(inputs), reference(model, inputs)) < 1e-5
    assert all(isinstance(v, np.ndarray) for v in last.constants.values())
