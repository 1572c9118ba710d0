"""Programs of bytes: the numbers of the model's own expressions bit for bit, proven, run kernel by kernel; and changed ones, which are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.drawn import forced
from einnet.evidence.examine import proven, told_kernels, told_lifting
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Read, Scope
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.program import Program
from einnet.instantiate.kernels import EOperator, Kernel, Plan
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import refusal
from einnet.runtime.cpu.program import Executable
from tests.graph.quantised_networks import network

pytestmark = pytest.mark.skipif(
    bool(dnnl.available() or dnnl.limit() or U8I8.missing(machine.cpu_features())), reason="no products of bytes on this processor"
)

CASES = [("uint8", (128, 0), 1, 1), ("uint8", (3, 117), 1, 2), ("int8", (-128, -128), 1, 1), ("int8", (0, 5), 0, 2)]


def drawn(case: tuple[str, tuple[int, int], int, int]) -> tuple[Program, Plan]:
    program, plan, _ = forced(network(*case), 0, depth=0, states=1, in_bytes=True)
    return program, plan


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_expressions(case: tuple[str, tuple[int, int], int, int]) -> None:
    """Scales are powers of two: single precision has every number on the way."""
    program, plan = drawn(case)
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
    program, plan = drawn(case)
    assert told_lifting(program, proven(program, plan, []))["problems"] == []
    assert told_kernels(plan, OnProcessor(Executable(plan, 1)))["problems"] == []


def wider(kernel: EOperator) -> EOperator:
    """Bytes up to 256, which wrap."""
    return replace(kernel, scope=parse(kernel.scope.text().replace(", 255)", ", 256)")))


def unlike(kernel: EOperator) -> EOperator:
    """What stands around an image is another number than the zero point."""
    body = kernel.scope.body
    return replace(kernel, scope=Scope(kernel.scope.loops, (), Read(body.base, body.index, body.fill + 1))) if isinstance(body, Read) else kernel


def coarse(kernel: EOperator) -> EOperator:
    """Rounding that is left out."""
    return replace(kernel, scope=parse(kernel.scope.text().replace("round(", "relu(")))


@pytest.mark.parametrize("change", [wider, unlike, coarse])
def test_a_changed_program_is_found(change: Callable[[EOperator], EOperator]) -> None:
    program, plan = drawn(CASES[1])

    def one(kernel: Kernel) -> Kernel:
        return change(kernel) if isinstance(kernel, EOperator) and kernel.dtype == "u8" else kernel

    changed = replace(plan, kernels=tuple(map(one, plan.kernels)))
    assert changed.kernels != plan.kernels
    assert told_lifting(program, proven(program, changed, []))["problems"]
