"""Drawn programs whose products all round: every subprogram within the bound of the arithmetic that its kernels name, and of no finer one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.drawn import forced
from einnet.evidence.comparison.draws import random_values
from einnet.evidence.examine import proven, told_kernels, told_lifting, told_numbers, trusted
from einnet.evidence.running import OnProcessor
from einnet.instantiate.kernels import Kernel, Plan
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32
from einnet.instantiate.kernels.contractions import Contraction, arithmetic_of
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import refusal
from einnet.runtime.cpu.program import Executable
from tests.models import tiny

BF16 = ARITHMETICS["bf16"]
pytestmark = pytest.mark.skipif(dnnl.available() is not None or bool(BF16.missing(machine.cpu_features())), reason="no products in bf16 here")


def rounded(plan: Plan) -> Plan:
    """The plan with all products in bf16 that the library has so."""

    def one(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Contraction) or refusal(kernel.in_arithmetic(BF16), plan.constants.keys()):
            return kernel
        return kernel.in_arithmetic(BF16)

    return replace(plan, kernels=tuple(map(one, plan.kernels)))


@pytest.mark.parametrize(("name", "seed"), [("fsrcnn", 1), ("transformer", 1), ("mlp", 0)])
def test_rounded_programs_stay_within_their_bounds(name: str, seed: int) -> None:
    program, plan, forms = forced(tiny(name), seed, states=40)
    other = rounded(plan)
    count = sum(arithmetic_of(k) != F32 for k in other.kernels)
    executable = Executable(other, 1)
    found = proven(program, other, [f.derivation for f in forms if f.steps])
    assert told_lifting(program, found)["problems"] == []
    coarse = [lifted for lifted in found.lifting.found.values() if lifted.arithmetic == BF16]
    assert bool(coarse) == bool(count)
    inputs = random_values([(program.names.get(t.name, t.name), t.shape, t.dtype) for t in program.inputs], seed)
    runner = OnProcessor(executable)
    places = {n: lifted.place for n, lifted in found.lifting.found.items() if lifted.place is not None}
    numbers = told_numbers(program, found, runner.observing(places), inputs)
    assert numbers["problems"] == []
    assert told_kernels(other, runner)["problems"] == []
    assert any(f"{count} products" in line for line in trusted(program, other, "oneDNN")) == bool(count)
    if count:
        for lifted in coarse:
            lifted.arithmetic = F32
        finer = told_numbers(program, found, runner.observing(places), inputs)
        assert finer["problems"], "numbers of a coarser arithmetic pass for float32"
        assert np.isfinite(finer["bound"])
        assert finer["bound"] < numbers["bound"]


def test_what_is_computed_of_a_rounded_tensor_is_not_rounded_itself() -> None:
    """A tensor that stands for itself ends what is known of its making."""
    program, plan, _ = forced(tiny("fsrcnn"), 1, states=40)
    places = [n for n, k in enumerate(plan.kernels) if isinstance(k, Contraction)]
    assert len(places) > 1
    found = []
    for place in (places[0], places[-1]):
        kernel = plan.kernels[place]
        assert isinstance(kernel, Contraction)
        other = (*plan.kernels[:place], kernel.in_arithmetic(BF16), *plan.kernels[place + 1 :])
        lifting = proven(program, replace(plan, kernels=other), []).lifting
        found.append({name for name, lifted in lifting.found.items() if lifted.arithmetic == BF16})
    first, last = found
    assert first and last
    assert first.isdisjoint(last)
