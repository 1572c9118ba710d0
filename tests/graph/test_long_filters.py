"""Filters of many taps by waves: the program computes what it did, and what is short, or no filter, stays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from einnet.derivation.checker.check import check_equal
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.tables.stages import stages
from einnet.evidence.comparison.finite import assumptions
from einnet.evidence.examine import trusted
from einnet.expr.nodes import Scope, is_weight, reads, walk
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.long_filters import SAMPLE, filter_of, long_filters
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.kernels import Plan
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings
from einnet.search.work import flops
from tests.graph.cases import build, node, reference, run_opaque, values

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "causal, a filter for each channel": ((1, 3, 700), (3, 1, 700), {"group": 3, "pads": [699, 0]}),
    "as long as the data, on both sides": ((2, 2, 600), (2, 1, 601), {"group": 2, "pads": [300, 300]}),
    "shorter than the data": ((1, 2, 900), (2, 1, 400), {"group": 2}),
    "later than the data ends": ((1, 2, 500), (2, 1, 450), {"group": 2, "pads": [0, 449]}),
    "between channels": ((1, 4, 640), (3, 4, 512), {"pads": [511, 0]}),
    "of an odd number of taps": ((1, 1, 777), (1, 1, 521), {"pads": [260, 260]}),
    "more than one dimension": ((1, 2, 3, 800), (2, 1, 1, 640), {"group": 2, "pads": [0, 639, 0, 0]}),
}


def model(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    data, taps, attributes = CASES[name]
    x = {"x": values(data)}
    fading = values(taps, 1) * np.exp(-np.arange(taps[-1]) / 90).astype(np.float32)
    return build([node("Conv", ["x", "k"], **attributes)], x, constants={"k": fading}), x


def changed(program: Program) -> bool:
    return any(name.endswith("_by") for name in program.weights)


@pytest.mark.parametrize("name", CASES)
def test_the_program_computes_what_it_did(name: str) -> None:
    given, x = model(name)
    program, wanted = prepare(load(given), tables=True), reference(given, x)["y"]
    assert changed(program)
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def test_filters_backwards() -> None:
    """A transposed convolution reads its data the other way round."""
    x = {"x": values((1, 2, 600))}
    given = build([node("ConvTranspose", ["x", "k"], group=2)], x, constants={"k": values((2, 1, 500), 1)})
    program, wanted = prepare(load(given), tables=True), reference(given, x)["y"]
    assert changed(program)
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def test_tables_of_waves_are_products_of_smaller_ones() -> None:
    given, _ = model("causal, a filter for each channel")
    program = prepare(load(given), tables=True)
    opened = [n for n in program.expression_nodes() for r in reads(n.scope.body) if isinstance(r.base, Scope)]
    assert len(opened) >= 2


@pytest.mark.parametrize(("data", "taps", "told"), [
    ((1, 2, 700), (2, 1, 100), {"group": 2}), ((1, 2, 900), (2, 1, 400), {"group": 2, "strides": [2]}),
    ((1, 2, 900), (2, 1, 300), {"group": 2, "dilations": [2]}), ((1, 2, 260), (2, 1, 256), {"group": 2}),
    ((1, 1, 6000), (1, 1, 6000), {"pads": [5999, 0]}),
])  # fmt: skip
def test_what_does_not_pay_or_skips_places_stays(data: tuple[int, ...], taps: tuple[int, ...], told: dict[str, Any]) -> None:
    x = {"x": values(data)}
    program = load(build([node("Conv", ["x", "k"], **told)], x, constants={"k": values(taps, 1)}))
    assert long_filters(program).nodes == program.nodes


def test_without_leave_nothing_is_changed() -> None:
    assert not changed(prepare(load(model("shorter than the data")[0])))


@pytest.mark.parametrize("name", CASES)
def test_each_transform_is_a_piece_of_its_own(name: str) -> None:
    """Tables that were folded into each other, or into the filter, would be products of smaller ones no longer; 521 is prime, and its are none."""
    for piece in subprograms(prepare(load(model(name)[0]), tables=True)):
        sums = [n.scope for n in piece.nodes if n.scope.sums]
        assert len(sums) <= 1 or not any(isinstance(r.base, Scope) for s in sums for r in reads(s.body))
    assert ("odd" in name) == (len(sums) == 3)


def test_a_transform_is_all_stages_in_one_step() -> None:
    """The step is proven, and leaves no product of tables to be found."""
    program = prepare(load(model("causal, a filter for each channel")[0]), tables=True)
    opened = [n.scope for n in program.expression_nodes() if any(isinstance(r.base, Scope) for r in reads(n.scope.body))]
    for scope in (normalise(s)[0] for s in opened):
        whole, *single = stages.rewrites(scope)
        assert whole.parameters.endswith("all") and check_equal(scope, whole.scope).method == "inline"
        assert all(flops(whole.scope) < flops(s.scope) for s in single) and 5 * flops(whole.scope) < flops(scope)
        assert not any(list(stages.rewrites(s)) for s in walk(whole.scope) if s.sums and not is_weight(s))


def test_that_nan_reaches_further_is_told_and_excluded() -> None:
    given, x = model("shorter than the data")
    program = prepare(load(given), tables=True)
    assert program.spreads == ("Conv 'Conv_y'",)
    x["x"][0, 0, 0] = np.nan
    found, wanted = (interpret(prepare(load(given), tables=t), x, run_opaque)["y"] for t in (True, False))
    assert np.isnan(found[0, 0]).all() and np.isnan(wanted[0, 0]).sum() == 1 and not np.isnan(found[0, 1]).any()
    assert any("by waves: Conv 'Conv_y'" in line for line in assumptions(Outcome(program, ())))
    nothing = Plan((), (), (), (), {}, {})
    assert ["tables of waves" in line for line in trusted(program, nothing, "a library")] == [False, True]
    assert len(trusted(prepare(load(given)), nothing, "a library")) == 1
    assert Settings(allow="precision").tables and not Settings(allow="precision", strict_nan=True).tables


def test_products_grow_little_faster_than_the_length() -> None:
    """A filter as long as its data: the sum that is written takes four times as many products at twice the length."""
    counts = []
    for length in (512, 2048):
        x = {"x": values((1, 1, length))}
        given = build([node("Conv", ["x", "k"], pads=[length - 1, 0])], x, constants={"k": values((1, 1, length), 1)})
        program = load(given)
        (scope,) = (n.scope for n in program.expression_nodes() if n.scope.sums)
        found = filter_of(scope, program.weights)
        assert found is not None and 2 * length - 1 <= found.circle <= 2.2 * length and length > SAMPLE
        counts.append(found.circle * prod(scope.shape) // length)
        assert flops(scope) == 2 * length * length
    assert counts[1] <= 4.2 * counts[0]
