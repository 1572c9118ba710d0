"""Certified bounds of whole programs: never below what is measured, infinite or unknown where nothing holds, a condition where one asks for it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from einnet.compile.targets.cpu import rounded_products, rounding_trials
from einnet.compile.targets.cpu.certified import certified, chunks
from einnet.compile.targets.cpu.rounded_products import Rounding, inputs_like
from einnet.compile.targets.cpu.rounding_trials import Offer, Tried
from einnet.errors import UsageError
from einnet.evidence.comparison.draws import random_inputs
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.pages.precision_lines import precision_line
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Matmul, OpaqueCall, Plan, Post, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.program import Executable
from einnet.search.settings import Settings
from tests.compile.test_rounded_products import BF16, BOTH, Costs, Reference, arithmetics
from tests.evidence.test_roundoff import ROUND, flushed
from tests.runtime.plans import two_layers

needs_bf16 = pytest.mark.skipif(dnnl.available() is not None or bool(BF16.missing(machine.cpu_features())), reason="no products in bf16 here")
RNG = np.random.default_rng(11)
WEIGHTS = {"w": RNG.standard_normal(24 * 9).astype(np.float32), "v": RNG.standard_normal(9 * 5).astype(np.float32)}


def layers(first: Arithmetic, second: Arithmetic) -> Plan:
    """y = tanh(relu(x·w)·v), its layers in two arithmetics."""
    kernels = (
        Matmul(dense_view("x", (7, 24)), dense_view("w", (24, 9)), dense_view("t", (7, 9)), (Post("relu"),), first),
        Matmul(dense_view("t", (7, 9)), dense_view("v", (9, 5)), dense_view("u", (7, 5)), (), second),
        EOperator(parse("U : f32[7,5]\nL[i<7,j<5] tanh(U[i,j])"), (("U", dense_view("u", (7, 5))),), dense_view("y", (7, 5))),
    )
    roles = {"x": "input", "w": "constant", "v": "constant", "t": "temporary", "u": "temporary", "y": "output"}
    sizes = {"x": 168, "w": 216, "v": 45, "t": 63, "u": 35, "y": 35}
    buffers = tuple(Buffer(n, size, "f32", roles[n]) for n, size in sizes.items())
    return Plan(buffers, kernels, (("x", dense_view("x", (7, 24))),), (("y", dense_view("y", (7, 5))),), WEIGHTS)


def computed(x: np.ndarray, first: Arithmetic, second: Arithmetic) -> np.ndarray:
    """The program with factors rounded, everything else in float32."""

    def product(a: np.ndarray, b: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
        rounding = ROUND[arithmetic.name]
        return flushed(rounding(a), arithmetic) @ flushed(rounding(b), arithmetic)

    hidden = np.maximum(product(x, WEIGHTS["w"].reshape(24, 9), first), 0)
    return np.tanh(product(hidden, WEIGHTS["v"].reshape(9, 5), second))


FLOATS = [a for a in ARITHMETICS.values() if not a.whole]


@pytest.mark.parametrize("first", FLOATS, ids=lambda a: a.name)
@pytest.mark.parametrize("second", FLOATS, ids=lambda a: a.name)
def test_no_program_errs_by_more_than_its_bound(first: Arithmetic, second: Arithmetic) -> None:
    """And the bound is not empty: it is within a hundred times of what some program errs by."""
    nearest = 0.0
    for seed in range(12):
        x = np.random.default_rng(seed).standard_normal((7, 24)).astype(np.float32) * np.float32(10.0 ** (seed % 3 - 2))
        exact = np.tanh(np.maximum(x.astype(np.float64) @ WEIGHTS["w"].reshape(24, 9), 0) @ WEIGHTS["v"].reshape(9, 5).astype(np.float64))
        bound = certified(layers(first, second), {"x": x}, inf)
        assert bound is not None
        error = np.abs(computed(x, first, second) - exact).max() / np.abs(exact).max()
        assert error <= bound
        nearest = max(nearest, error / bound)
    assert nearest > 0.01


def test_the_first_layer_counts_by_what_the_second_makes_of_it() -> None:
    x = {"x": RNG.standard_normal((7, 24)).astype(np.float32)}
    f32 = ARITHMETICS["f32"]
    bound = {(a.name, b.name): certified(layers(a, b), x, inf) for a in (f32, BF16) for b in (f32, BF16)}
    assert bound["f32", "f32"] < 1e-4 < min(bound["bf16", "f32"], bound["f32", "bf16"])
    assert max(bound["bf16", "f32"], bound["f32", "bf16"]) < bound["bf16", "bf16"] < 1


def test_where_there_is_no_time_or_no_expression_there_is_no_bound() -> None:
    plan, x = layers(BF16, BF16), {"x": np.ones((7, 24), np.float32)}
    assert certified(plan, x, -inf) is None
    node = OpaqueCall(b"", (dense_view("x", (7, 24)),), (dense_view("t", (7, 9)),), "n")
    assert certified(replace(plan, kernels=(node, *plan.kernels[1:])), x, inf) is None


def test_beyond_the_largest_number_nothing_holds() -> None:
    x = {"x": np.full((7, 24), 1e5, np.float32)}
    half = ARITHMETICS["f16"]
    assert certified(layers(half, BF16), x, inf) == inf
    bound = certified(layers(BF16, BF16), x, inf)
    assert bound is not None and bound < inf


def test_all_points_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einnet.compile.targets.cpu.certified.AT_ONCE", 100)
    scope = parse("A : f32[7,24]\nL[i<7,j<5] Σ[k<24] A[i,k]")
    found = list(chunks(scope))
    assert len(found) > 3 and np.array_equal(np.concatenate([p for _, p in found]), np.argwhere(np.ones((7, 5))))
    assert [s.start for s, _ in found] == [0, *(s.stop for s, _ in found[:-1])]
    x = {"x": RNG.standard_normal((7, 24)).astype(np.float32)}
    parts = certified(layers(BF16, BF16), x, inf)
    monkeypatch.undo()
    assert parts == pytest.approx(certified(layers(BF16, BF16), x, inf), rel=1e-14), "but for the order in which doubles are added"


# the choice


@pytest.fixture(scope="module")
def program() -> Executable:
    return Executable(two_layers(), 1)


def rounded(program: Executable, budget: float, ask: bool) -> tuple[Executable, Rounding]:
    reference = Reference(program)
    settings = Settings(max_error=budget, certified=ask, threads=1)
    made = Rounding(settings, reference, Costs(BOTH))  # type: ignore[arg-type]
    return made.of(program, reference.verify(program, 1.0), inf)[0], made


@needs_bf16
def test_what_has_no_bound_within_the_budget_is_refused(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured error of both products would do; the certified bound of neither, of one, or of both does."""
    monkeypatch.setattr(rounded_products, "surely_faster", lambda *_: True)
    found, _ = rounded(program, 0.3, False)
    assert arithmetics(found) == ["bf16", "bf16"]
    tried = Tried(program, inputs_like(Reference(program).draws), inf)
    offers = [Offer(n, BF16, 10.0, 5.0) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)]
    alone, both, none = [tried.bound([o]) for o in offers], tried.bound(offers), tried.bound([])
    assert none < min(alone) <= max(alone) < both
    for budget, runs in ((both * 1.01, 2), (max(alone) * 1.01, 1), (min(alone) * 0.99, 0)):
        found, made = rounded(program, min(budget, 0.99), True)
        told = made.told[found]
        assert arithmetics(found).count("bf16") == runs
        assert told.certified is not None and told.certified <= budget
        assert f"certified bound {told.certified:.2g}" in precision_line(told)
    assert all(p.why.startswith("refused: alone its certified bound is") and p.error is None for p in told.products)
    for seed in range(200, 220):
        inputs = random_inputs(program.plan, seed)
        assert compare_outputs(found(inputs), program(inputs), min(alone)).passed


@needs_bf16
def test_without_a_bound_nothing_rounds(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounded_products, "surely_faster", lambda *_: True)
    monkeypatch.setattr(rounding_trials, "certified", lambda *_: None)
    found, made = rounded(program, 0.9, True)
    assert found is program and made.told[found].certified is None
    assert {p.why for p in made.told[found].products} == {"refused: a certified bound of 0.9 was asked for, and none was found in time"}


def test_a_bound_goes_with_a_budget() -> None:
    with pytest.raises(UsageError, match="it goes with max_error"):
        Settings(certified=True)
    assert Settings(max_error=0.1, certified=True).certified
