"""Bundles by structure: which parts, that the joint expression means what they mean, and the conditions of replacing them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.models.net import Net
from einnet.derivation.checker.check import check
from einnet.errors import CertificateError
from einnet.evidence.certificate import window_derivations
from einnet.graph.bundle import Bundle, bundles, laid_out, replaced
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.replace_nodes import Refused
from einnet.graph.split import subprograms
from tests.models import random_inputs, tiny


def found(program: Program) -> list[Bundle]:
    return bundles(program, subprograms(program))


def names(bundle: Bundle) -> set[str]:
    return set(bundle.names)


@pytest.mark.parametrize("name", ["longformer_masked", *(pytest.param(n, marks=pytest.mark.slow) for n in ("inception", "gcn"))])
def test_a_program_with_any_bundle_computes_the_same(name: str) -> None:
    model = tiny(name)
    program = prepare(load(model))
    inputs = random_inputs(model)
    wanted = interpret(program, inputs)
    candidates = found(program)
    assert candidates
    for bundle in candidates[:: max(1, len(candidates) // 4)]:
        other = replaced(program, bundle)
        assert isinstance(other, Program) and len(other.nodes) < len(program.nodes) + len(bundle.parts)
        for key, value in interpret(other, inputs).items():
            np.testing.assert_allclose(value, wanted[key], rtol=1e-4, atol=1e-5)


def test_every_window_is_its_part() -> None:
    program = prepare(load(tiny("inception")))
    windowed = [b for b in found(program) if b.windows]
    assert windowed
    for bundle in windowed:
        derivations = window_derivations(bundle)
        assert len(derivations) == len(bundle.parts)
        assert all(proof.method == "inline" for d in derivations for proof in check(d))


def test_windows_of_other_parts_are_rejected() -> None:
    program = prepare(load(tiny("longformer_masked")))
    bundle = next(b for b in found(program) if b.windows)
    for derivation, other in zip(window_derivations(bundle), window_derivations(bundle)[1:]):
        with pytest.raises(CertificateError, match=r"step 1 .bundle"):
            check(type(derivation)(derivation.start, (type(derivation.steps[0])("bundle", "", derivation.start, other.steps[0].after),)))


@pytest.mark.slow
def test_a_block_of_two_branches_is_one_bundle() -> None:
    program = prepare(load(tiny("gcn")))
    together = next(b for b in found(program) if "gcn1_sum" in b.names and not b.windows)
    assert names(together) == {"gcn1_conv11", "gcn1_conv12", "gcn1_conv21", "gcn1_sum"}
    assert together.joint.output.name == "gcn1_sum", "the one result that leaves"


def test_projections_of_one_input_are_end_to_end_or_stacked() -> None:
    program = prepare(load(tiny("longformer_masked")))
    shapes = sorted(b.joint.output.shape for b in found(program) if len(b.parts) == 3)
    assert shapes == [(1, 26, 48), (3, 1, 26, 16)]


def chain(after: bool) -> Program:
    """Two linear layers of one input; with `after`, the second also takes the first one's result in."""
    net = Net("chain", 0)
    x = net.input("x", (4, 6))
    first = net.linear(x, "first", 6)
    second = net.linear(net.add(x, first, "sum") if after else x, "second", 6)
    return prepare(load(net.finish(first, second)))


def test_what_depends_on_another_is_in_no_bundle_with_it() -> None:
    assert any({"first", "second"} <= {n.split("_")[0] for n in b.names} for b in found(chain(False)))
    assert not found(chain(True))


def test_an_interior_value_that_is_an_output_is_not_taken_in() -> None:
    """The first branch is given out: gathering it into the sum would lose it."""
    net = Net("branches", 0)
    left, right = net.linear(net.input("x", (4, 6)), "left", 6), net.linear(net.input("y", (4, 6)), "right", 6)
    total = net.add(left, right, "sum")
    gathered = [b for b in found(prepare(load(net.finish(total)))) if not b.windows]
    assert len(gathered) == 1
    assert not [b for b in found(prepare(load(net.finish(left, total)))) if not b.windows]


def test_a_replacement_that_would_depend_on_itself_is_refused() -> None:
    """A part with what is made of it; and two bundles that cross: after the first one, the second needs its own result."""
    net = Net("crossing", 0)
    x, y = net.input("x", (4, 6)), net.input("y", (4, 6))
    a, b = net.linear(x, "a", 6), net.linear(y, "b", 6)
    c, d = net.linear(net.relu(a, "a.relu"), "c", 6), net.linear(net.relu(b, "b.relu"), "d", 6)
    program = prepare(load(net.finish(a, b, c, d)))
    parts = {p.output.name: p for p in subprograms(program)}
    refused = Refused("a new node depends on its own result")
    assert replaced(program, laid_out([parts["a"], parts["c"]], "joint", 1)) == refused
    other = replaced(program, laid_out([parts["a"], parts["d"]], "joint", 1))
    assert isinstance(other, Program)
    assert replaced(other, laid_out([parts["b"], parts["c"]], "joint_2", 1)) == refused
