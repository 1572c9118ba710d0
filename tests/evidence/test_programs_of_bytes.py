"""Programs of bytes: the numbers of the model's own expressions bit for bit, proven, run kernel by kernel; and changed ones, which are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from einnet.derivation.steps import Derivation
from einnet.evidence.examine import proven, told_kernels, told_lifting
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Read, tensors
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import builds
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import refusal
from einnet.runtime.cpu.program import Executable
from einnet.search.candidates import OUT
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from einnet.search.space import Options, deepen
from tests.graph.quantised_networks import network

pytestmark = pytest.mark.skipif(
    bool(dnnl.available() or dnnl.limit() or U8I8.missing(machine.cpu_features())), reason="no products of bytes on this processor"
)

CASES = [("uint8", (128, 0), 1, 1), ("uint8", (3, 117), 1, 2), ("int8", (-128, -128), 1, 1), ("int8", (0, 5), 0, 2)]


def in_bytes(form: Form) -> bool:
    return any(isinstance(m.kernel, Contraction) and m.kernel.arithmetic.whole for _, m in form.matches)


@cache
def drawn(case: tuple[str, tuple[int, int], int, int]) -> tuple[Program, Plan, list[Derivation]]:
    """The prepared program, a plan of products of bytes for it where there are any, and the derivations of its parts."""
    program = prepare(load(network(*case)), in_bytes=True)
    assembly, used = Assembly(program), []
    for part in subprograms(program):
        expression = canonical(part.expression)
        found = deepen(expression, Options(max_depth=2, states=30))[0]
        form = next(filter(in_bytes, found), found[0])
        used += [form.derivation] if form.steps else []
        build = next(iter(builds(form.tree, dict(form.matches), OUT)))
        assembly.add(build, dict(zip(tensors(expression), part.inputs, strict=True)), part.output.name)
    return program, assembly.finish(), used


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_expressions(case: tuple[str, tuple[int, int], int, int]) -> None:
    """Scales are powers of two: single precision has every number on the way."""
    program, plan, _ = drawn(case)
    products = [k for k in plan.kernels if isinstance(k, Contraction) and k.arithmetic.whole]
    assert products
    assert all(refusal(k, plan.constants.keys()) is None for k in products)
    stored = {b.name: b.dtype for b in plan.buffers}
    assert sum(kind == "u8" for kind in stored.values()) >= 5
    executable, rng = Executable(plan, 2, strict=True), np.random.default_rng(5)
    shape = plan.inputs[0][1].shape
    for scale in (0.01, 1, 5, 1000):
        x = rng.uniform(-scale, scale, shape).astype(np.float32)
        (wanted,), (got,) = interpret(program, {"x": x}).values(), executable({"x": x}).values()
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("case", CASES[:2])
def test_they_are_proven_and_their_kernels_exact(case: tuple[str, tuple[int, int], int, int]) -> None:
    program, plan, used = drawn(case)
    assert told_lifting(program, proven(program, plan, used))["problems"] == []
    assert told_kernels(plan, OnProcessor(Executable(plan, 1)))["problems"] == []


def wider(kernel: EOperator) -> EOperator:
    """Bytes up to 256, which wrap."""
    return replace(kernel, scope=parse(kernel.scope.text().replace(", 255)", ", 256)")))


def unlike(kernel: EOperator) -> EOperator:
    """What stands around an image is another number than the zero point."""
    body = kernel.scope.body
    return replace(kernel, scope=replace(kernel.scope, body=Read(body.base, body.index, Fraction(9)))) if isinstance(body, Read) else kernel


def coarse(kernel: EOperator) -> EOperator:
    """Rounding that is left out."""
    return replace(kernel, scope=parse(kernel.scope.text().replace("round(", "relu(")))


@pytest.mark.parametrize("change", [wider, unlike, coarse])
def test_a_changed_program_is_found(change: Callable[[EOperator], EOperator]) -> None:
    program, plan, used = drawn(CASES[1])

    def one(kernel: Kernel) -> Kernel:
        return change(kernel) if isinstance(kernel, EOperator) and kernel.dtype == "u8" else kernel

    changed = replace(plan, kernels=tuple(map(one, plan.kernels)))
    assert changed.kernels != plan.kernels
    assert told_lifting(program, proven(program, changed, used))["problems"]
