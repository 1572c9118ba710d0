"""Whole models lowered to CUDA programs, run by the host driver, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.models import build
from einnet.instantiate.kernels import Buffer, Matmul, Plan, Post, dense_view
from einnet.runtime.cuda import shim
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import ALIGNMENT, Generated
from tests.models import TINY, random_inputs, tiny, two_outputs, with_opaque
from tests.runtime.cuda.programs import own_plan, reference, worst

SEVEN = ("infogan", "dcgan", "fsrcnn", "gcn", "resnet18", "csrnet", "longformer")
text = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")


def check(model, generated: str) -> None:
    program, inputs = lower(own_plan(model)), random_inputs(model)
    host, wanted = Host(program, generated), reference(model, inputs)
    assert worst(host(inputs), wanted) < 1e-5
    assert worst(host(inputs), wanted) < 1e-5, "the second run differs: something was overwritten"


@text
@pytest.mark.parametrize("name", [n if n != "gcn" else pytest.param(n, marks=pytest.mark.slow) for n in SEVEN])
def test_the_seven_models(name):
    check(tiny(name), "text")


@text
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TINY) - set(SEVEN)))
def test_other_models(name):
    check(tiny(name), "text")


@text
@pytest.mark.slow
@pytest.mark.parametrize("name", SEVEN)
def test_full_size(name):
    check(build(name), "text")


@pytest.mark.parametrize("name", ["fsrcnn", "longformer"])
def test_expressions_that_the_text_was_made_from(name):
    check(tiny(name), "expression")


@text
@pytest.mark.parametrize("model", [with_opaque, two_outputs])
def test_opaque_nodes_and_several_outputs(model):
    check(model(), "text")


def test_buffers_are_aligned_and_those_alive_at_once_are_apart():
    program = lower(own_plan(tiny("resnet18")))
    assert all(p.offset % ALIGNMENT == 0 for p in program.places.values())
    changing = sum(p.size * 4 for p in program.places.values() if not p.constant)
    assert 0 < program.arena_bytes < changing, "no buffer takes the place of another"


def test_equal_operators_share_their_text():
    views = [dense_view(name, (4, 4)) for name in ("x", "t", "y")]
    swapped = [replace(v, strides=(1, 4)) for v in views]
    products = [Matmul(views[0], views[0], views[1], (Post("tanh"),)), Matmul(swapped[1], views[1], views[2], (Post("tanh"),))]
    buffers = tuple(Buffer(name, 16, "f32", role) for name, role in (("x", "input"), ("t", "temporary"), ("y", "output")))
    program = lower(Plan(buffers, tuple(products), (("x", views[0]),), (("y", views[2]),)))
    generated = [s for s in program.steps if isinstance(s, Generated)]
    assert len(generated) == 2
    assert {s.text for s in generated} == set(program.texts)
    assert len(program.texts) == 1
