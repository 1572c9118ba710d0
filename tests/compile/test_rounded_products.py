"""A budget of error: which products round their factors, that the whole stays within the budget, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einnet
from einnet.cli import main
from einnet.compile.targets.cpu import contest, rounded_products, rounding_trials
from einnet.compile.targets.cpu.reach import HEADROOM, kept, leaves, narrow, reaches
from einnet.compile.targets.cpu.rounded_products import GAIN, SPENT, Rounding, further_inputs, inputs_like, likely, row, with_room
from einnet.compile.targets.cpu.rounding_trials import SPREAD, Offer, Tried, beyond, fitting
from einnet.errors import UsageError
from einnet.evidence.audit import audit
from einnet.evidence.comparison.draws import Draws, random_inputs, random_values
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.pages.precision_lines import precision_lines
from einnet.instantiate import implementations
from einnet.instantiate.kernels import Kernel, VendorKernel
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction, arithmetic_of
from einnet.runtime import machine
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.implementations import implementations as names
from einnet.runtime.cpu.program import Executable
from einnet.runtime.timing import Timing
from einnet.search.settings import Limits, Settings
from einnet.search.time_shares import GROUPS_SHARE
from tests.models import two_layers
from tests.runtime.plans import two_layers as plan_of_two_layers

BF16, HALF = ARITHMETICS["bf16"], ARITHMETICS["f16"]
WEIGHTS = ("w1", "w2")
needs_bf16 = pytest.mark.skipif(dnnl.available() is not None or bool(BF16.missing(machine.cpu_features())), reason="no products in bf16 here")
needs_f16 = pytest.mark.skipif(dnnl.available() is not None or bool(HALF.missing(machine.cpu_features())), reason="no products in f16 here")


# ------------------------------------------------------------------------------------------------------------------ the choice


class Additive(Tried):
    """Programs whose errors add up by their squares."""

    def __init__(self, errors: Sequence[float], tries: float = inf) -> None:
        super().__init__(None, ({},), inf)  # type: ignore[arg-type]
        self.errors, self.tries, self.asked = errors, tries, 0

    @property
    def late(self) -> bool:
        return self.asked >= self.tries

    def error(self, offers: Sequence[Offer], limit: float = inf, draws: int | None = None) -> float:
        self.asked += 1
        return float(np.sqrt(sum(self.errors[o.place] ** 2 for o in offers)))


def offers_of(gains: Sequence[float]) -> list[Offer]:
    return [Offer(n, BF16, 1.0 + gain, 1.0) for n, gain in enumerate(gains)]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), max_size=12), st.floats(0, 2))
def test_what_is_taken_stays_within_the_limit(products: list[tuple[float, float]], limit: float) -> None:
    errors, offers = [e for e, _ in products], offers_of([g for _, g in products])
    tried = Additive(errors)
    taken, error = tried.within(offers, limit)
    assert error == tried.error(taken) <= limit
    if tried.error(offers) <= limit:
        assert taken == offers
    left = [o for o in offers if o not in taken and errors[o.place] <= limit]
    worst = max((errors[o.place] ** 2 / o.gain for o in taken), default=0.0)
    assert all(errors[o.place] ** 2 / o.gain >= worst - 1e-9 for o in left) or len(taken) == len(offers)
    if left:
        first = min(left, key=lambda o: errors[o.place] ** 2 / o.gain)
        assert tried.error([*taken, first]) > limit


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1), st.integers(0, 12))
def test_where_time_ends_nothing_untried_is_taken(errors: list[float], limit: float, tries: int) -> None:
    tried = Additive(errors, tries)
    taken, error = tried.within(offers_of([1.0] * len(errors)), limit)
    assert error == Additive(errors).error(taken) <= limit
    assert not taken or tries > 0


def test_much_time_for_little_error_goes_first() -> None:
    errors, gains = (0.5, 0.1, 0.3, 0.6), (10.0, 0.001, 1.0, 0.1)
    taken, _ = Additive(errors).within(offers_of(gains), 0.6)
    assert [o.place for o in taken] == [0, 2]


class Timed(Additive):
    """The same, each of which takes a second of a clock that stands still else."""

    def __init__(self, errors: Sequence[float], seconds: float) -> None:
        super().__init__(errors)
        self.until, self.sizes = seconds, []

    @property
    def late(self) -> bool:
        return self.asked >= self.until

    def error(self, offers: Sequence[Offer], limit: float = inf, draws: int | None = None) -> float:
        self.sizes.append(len(offers))
        return super().error(offers, limit, draws)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Timed]:
    """The programs that were tried last are the clock."""
    running: list[Timed] = []
    monkeypatch.setattr(rounding_trials.time, "monotonic", lambda: float(running[-1].asked) if running else 0.0)
    return running


def test_where_time_is_short_neighbours_are_tried_as_one(clock: list[Timed]) -> None:
    """Of a hundred products twenty can be tried, of which the first tells how long that takes; those of the second half err ten times as much, and
    there is room for about the first."""
    errors = [0.01] * 56 + [0.1] * 44
    tried = Timed(errors, 21.0)
    clock.append(tried)
    taken, error = tried.within(offers_of([1.0] * 100), 0.1)
    assert {o.place for o in taken} == set(range(56))
    assert error == pytest.approx(0.01 * np.sqrt(56))
    assert tried.sizes[1] == 1 and set(tried.sizes[2:11]) == {11}, "half of the time is for groups"
    assert tried.alone[taken[0]] == pytest.approx(0.01)
    assert tried.asked <= 1 + GROUPS_SHARE * 20 + 4, "squares say where to look"


def test_where_there_is_time_each_is_tried_alone(clock: list[Timed]) -> None:
    tried = Timed([0.3, 0.4], 1e6)
    clock.append(tried)
    assert [o.place for o in tried.within(offers_of([1.0, 1.0]), 0.45)[0]] == [0]
    assert tried.sizes == [2, 1, 1, 1]


@needs_bf16
def test_where_time_is_less_each_is_tried_on_one_draw(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two products and six draws, as many seconds are left as products; every trial takes one."""
    tried = Tried(program, [random_inputs(program.plan, seed) for seed in range(6)], 8.0)
    asked: list[tuple[int, int | None]] = []
    own = Tried.error

    def error(self: Tried, offers: Sequence[Offer], limit: float = inf, draws: int | None = None) -> float:
        asked.append((len(offers), draws))
        return own(self, offers, limit, draws)

    monkeypatch.setattr(Tried, "error", error)
    monkeypatch.setattr(rounding_trials.time, "monotonic", lambda: float(len(asked)))
    offers = [Offer(n, BF16, 2.0, 1.0) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)]
    tried.within(offers, 1e-9)
    assert asked[:3] == [(2, None), (1, 1), (1, 1)]
    assert all(0 < tried.alone[o] <= own(tried, [o]) for o in offers)


@needs_bf16
def test_trials_pack_nothing_twice_and_give_the_same(program: Executable) -> None:
    """The first program that is tried has weights of its own, and what is kept; others read theirs there."""
    draw = random_inputs(program.plan, 0)
    tried = Tried(program, [draw], inf)
    offers = [Offer(n, BF16, 2.0, 1.0) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)]
    first = tried.trial(offers)
    assert tried.trial(offers[::-1]) is tried.program(offers) is first and first.constant_bytes > 0
    for some in ([], offers[:1], offers[1:]):
        trial, apart = tried.trial(some), tried.program(some)
        assert trial.constant_bytes == 0 < apart.constant_bytes
        for name, y in apart(draw).items():
            assert np.array_equal(trial(draw)[name], y)


def test_groups_say_nothing_of_a_certified_bound(clock: list[Timed]) -> None:
    tried = Timed([0.3] * 4, 3.0)
    clock.append(tried)
    tried.budget = 1.0
    tried.within(offers_of([1.0] * 4), 0.4)
    assert set(tried.sizes[1:]) == {1}


class Lucky(Additive):
    """Programs that err more on other draws than on those that were tried: by these factors of what they err there."""

    def __init__(self, errors: Sequence[float], factors: Sequence[float]) -> None:
        super().__init__(errors)
        self.executable, self.factors = None, factors  # type: ignore[assignment]


@pytest.mark.parametrize(("factors", "kept"), [([1.0] * 3, 4), ([1.0, 1.05, 1.1], 3), ([1.5] * 3, 2), ([1.0, 9.0, 1.0], 0), ([np.nan] * 3, 0)])
def test_other_draws_confirm_what_rounds(factors: list[float], kept: int, program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four products that err 0.4 each there is room for 1.0. Where other draws may go beyond it by far, fewer are taken, until those do not."""
    tried = Lucky([0.4] * 4, factors)
    monkeypatch.setattr(rounding_trials.Tried, "each", lambda _, offers: [f * tried.error(offers) for f in tried.factors])
    made = Rounding(Settings(max_error=0.9), Reference(program), Costs({}))  # type: ignore[arg-type]
    taken, error, draws = made.lasting(tried, offers_of([1.0] * 4), 0.8, 1.0)
    assert len(taken) == kept and draws == (len(factors) if taken else 0)
    assert error == (max(factors) * tried.error(taken) if taken else 0.0)
    assert not taken or beyond([f * tried.error(taken) for f in factors]) <= 1.0


@pytest.mark.parametrize("known", [True, False])
def test_where_time_is_over_fewer_are_taken_by_what_they_err(known: bool) -> None:
    tried, offers = Additive([0.1, 0.2, 0.3, 0.4]), offers_of([1.0, 1.0, 1.0, 2.0])
    tried.alone = {o: tried.errors[o.place] for o in offers} if known else {offers[0]: 0.1}
    assert tried.fewer(offers, 1.0) == sorted(offers, key=lambda o: (0.1, 0.2, 0.3, 0.283)[o.place] if known else -o.gain)
    assert [o.place for o in tried.fewer(offers, 0.5)] == ([0, 1] if known else [3])
    assert tried.fewer(offers, 0.0) == [] == tried.fewer([], 1.0)


def test_a_choice_is_confirmed_though_time_is_over(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried any more, and what was found rounds where a few other draws confirm it or a part of it."""
    tried = Lucky([0.4] * 4, [1.5] * 3)
    monkeypatch.setattr(rounding_trials.Tried, "each", lambda _, offers: [f * tried.error(offers) for f in tried.factors])
    monkeypatch.setattr(Lucky, "late", property(lambda self: self.asked > 0))
    made = Rounding(Settings(max_error=0.9), Reference(program), Costs({}))  # type: ignore[arg-type]
    assert len(made.lasting(tried, offers_of([1.0] * 4), 0.8, 1.0)[0]) == 2


def test_what_errors_are_not_expected_to_exceed() -> None:
    assert beyond([0.5]) == 1.0
    assert beyond([0.5, 0.5]) == 0.5
    assert beyond([0.4, 0.6]) == pytest.approx(0.5 + SPREAD * np.sqrt(0.02))
    assert beyond([0.1, inf]) == inf
    drawn = np.random.default_rng(0).gumbel(1.0, 0.1, (200, rounded_products.FURTHER + 20))
    exceeded = [row[rounded_products.FURTHER :].max() > beyond(row[: rounded_products.FURTHER]) for row in drawn]
    assert np.mean(exceeded) < 0.1, "twenty further draws seldom go beyond, long as their tail may be"


def test_further_draws_are_no_draws_that_were_tried() -> None:
    draws = Draws(random_values([("x", (64,), "f32")], 3), 3)
    every = [*inputs_like(draws), *further_inputs(draws)]
    normal = [d["x"].tobytes() for d in every if len(set(np.sign(d["x"]))) > 1]
    assert len(set(normal)) == len(normal) == rounded_products.SEEDS + rounded_products.FURTHER


@pytest.mark.parametrize("first", [0, 1])
def test_places_that_are_all_0_stay_so_in_other_draws(first: int) -> None:
    every = further_inputs(Draws({"at": np.full(9, first), "x": np.ones(9, np.float32)}))
    assert any(d["at"].any() for d in every) is bool(first) and len({d["x"].tobytes() for d in every}) == len(every)


@needs_bf16
def test_each_draw_is_compared_with_float32(program: Executable) -> None:
    draws = [random_inputs(program.plan, seed) for seed in range(5)]
    tried = Tried(program, draws, inf)
    offers = [Offer(n, BF16, 2.0, 1.0) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)]
    errors = tried.each(offers)
    assert len(errors) == 5 and min(errors) > 0 and max(errors) == pytest.approx(tried.error(offers))
    assert tried.each(offers) == pytest.approx(errors) and tried.each([]) == [0.0] * 5
    assert len(Tried(program, draws, -inf).each(offers)) == rounding_trials.FEWEST_DRAWS


def test_how_many_squares_a_limit_has_room_for() -> None:
    assert fitting([3.0, 4.0, 1.0], 5.0) == 2
    assert fitting([3.0, 4.0, 1.0], 4.9) == fitting([3.0], 1.0) == fitting([], 1.0) == 1


@needs_bf16
def test_a_draw_beyond_the_limit_is_the_last_that_is_run(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [random_inputs(program.plan, seed) for seed in range(4)]
    tried = Tried(program, draws, inf)
    offers = [Offer(n, BF16, 2.0, 1.0) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)]
    runs: list[int] = []
    own = rounding_trials.worst
    monkeypatch.setattr(rounding_trials, "worst", lambda *pair: runs.append(1) or own(*pair))
    every = [own(tried.program(offers)(draw), wanted) for draw, wanted in zip(draws, tried.wanted, strict=True)]
    assert tried.error(offers) == max(every) and len(runs) == 4
    assert tried.error(offers, every[0] / 2) == every[0] and len(runs) == 5
    assert tried.error(offers, draws=2) == max(every[:2]) and len(runs) == 7


# --------------------------------------------------------------------------------------------------------------- whole programs


@dataclass
class Costs:
    """Times of products: so much faster in bf16 as told by the number of columns, else slower."""

    gains: dict[int, float]

    def like(self, plan: object, measure: bool = False) -> Costs:
        return self

    def implementations(self, kernel: Contraction) -> list[str]:
        return names(kernel, WEIGHTS)

    def describe(self, kernel: Contraction) -> object:
        return [kernel.describe(), kernel.by]

    def measured(self, kernels: Sequence[Contraction], until: float) -> list[float]:
        return [self.seconds(k) for k in kernels]

    def rounded(self, kernel: Contraction, arithmetics: Sequence[Arithmetic], seconds: float) -> list[Contraction]:
        return [kernel.in_arithmetic(a) for a in arithmetics]

    def seconds(self, k: Contraction) -> float:
        gain = self.gains.get(k.result.shape[-1], -1.0)
        return 10.0 - (gain if k.arithmetic == BF16 else 0.0 if k.arithmetic == F32 else -2.0)


class Made(Costs):
    """Products in bf16 are faster by the last of the library's other implementations, and slower by the others."""

    def seconds(self, k: Contraction) -> float:
        return super().seconds(k) - (5.0 if k.by and k.by == self.implementations(k.made_by(""))[-1] else 0.0)


class Reference:
    """The program in float32 as what others are compared with."""

    def __init__(self, executable: Executable, seed: int = 0) -> None:
        self.inputs = random_inputs(executable.plan, seed)
        self.draws = Draws(self.inputs, seed)
        self.expected = executable(self.inputs)

    def verify(self, executable: Executable, tolerance: float):
        return compare_outputs(executable(self.inputs), self.expected, tolerance)


@pytest.fixture(scope="module")
def program() -> Executable:
    return Executable(plan_of_two_layers(), 1)


@pytest.fixture(autouse=True)
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is faster by kernels is faster as a whole: no test depends on the speed of a machine."""
    monkeypatch.setattr(rounded_products, "surely_faster", lambda *_: True)


def rounded(program: Executable, budget: float | None, gains: dict[int, float], kind: type[Costs] | None = None) -> tuple[Executable, Rounding]:
    reference = Reference(program)
    made = Rounding(Settings(max_error=budget, threads=1), reference, (kind or Costs)(gains))  # type: ignore[arg-type]
    found, verification = made.of(program, reference.verify(program, 1.0), inf)
    assert verification.passed
    return found, made


def arithmetics(program: Executable) -> list[str]:
    return [k.arithmetic.name for k in program.plan.kernels if isinstance(k, Contraction)]


BOTH = {48: 5.0, 16: 1.0}


@needs_bf16
@pytest.mark.parametrize(
    ("budget", "gains", "runs"),
    [(0.3, BOTH, ["bf16", "bf16"]), (1e-6, BOTH, ["f32", "f32"]), (0.3, {48: 5.0}, ["bf16", "f32"]), (0.3, {16: 1.0}, ["f32", "bf16"]),
     (0.3, {}, ["f32", "f32"]), (None, BOTH, ["f32", "f32"])],
)  # fmt: skip
def test_products_round_where_that_is_faster_and_within_the_budget(program: Executable, budget, gains, runs) -> None:
    found, made = rounded(program, budget, gains)
    assert arithmetics(found) == runs
    assert (found is program) == (set(runs) == {"f32"})
    told = made.told.get(found)
    assert (told is None) == (budget is None)
    if told is not None:
        assert [p.arithmetic if p.runs else "f32" for p in told.products] == runs
        assert all(p.why for p in told.products)
        assert told.error <= budget or found is program


def test_float32_leaves_room_for_other_inputs() -> None:
    """Of a budget near the roundoff it may take a half; where a model rounds, other errors pass."""
    y = np.ones(3, np.float32)

    def found(error: float, tolerance: float) -> bool | None:
        return with_room(compare_outputs({"y": y + np.float32(error)}, {"y": y}, tolerance), Limits(1e-4)).passed

    assert found(4e-5, 1e-4) and not found(6e-5, 1e-4) and not found(2e-4, 1e-4)
    assert found(6e-5, 2.0**-7) and not found(2.0**-6, 2.0**-7)
    within = compare_outputs({"y": y + np.float32(6e-5)}, {"y": y}, 1e-4)
    for budget, passes in ((None, True), (1e-4, False)):
        made = Rounding(Settings(max_error=budget), None, None)  # type: ignore[arg-type]
        assert made.with_room(None, within).passed == passes, "a class of steps has its limit for itself"  # type: ignore[arg-type]


@needs_bf16
def test_a_program_that_rounds_may_take_what_its_trials_take(program: Executable) -> None:
    """More than a half of the budget, which float32 may not: so it is when a program is verified again after it was put together anew."""
    error = next(iter(rounded(program, 0.3, BOTH)[1].told.values())).error
    budget = error / SPENT * 1.001
    found, made = rounded(program, budget, BOTH)
    assert found is not program
    inputs = random_inputs(program.plan, 0)
    verification = compare_outputs(found(inputs), {n: y + 0.7 * budget * np.abs(y).max() for n, y in found(inputs).items()}, budget)
    assert verification.passed and verification.max_rel > 0.5 * budget
    assert made.with_room(found, verification).passed
    assert not made.with_room(program, verification).passed


@needs_bf16
def test_one_of_two_products_where_the_budget_has_room_for_one(program: Executable) -> None:
    """The budget is between what one of them errs and what both do; the error of each alone, and its bound, are told."""
    _, made = rounded(program, 1e-6, BOTH)
    alone = [p.error for p in next(iter(made.told.values())).products]
    both = next(iter(rounded(program, 0.3, BOTH)[1].told.values())).error
    assert 0 < min(alone) <= max(alone) < both
    found, made = rounded(program, (max(alone) + both) / 2 / SPENT, BOTH)
    assert arithmetics(found) == ["bf16", "f32"], "the first gains five times as much"
    told = made.told[found]
    assert told.error == pytest.approx(alone[0])
    assert all(2**-9 < p.bound < 0.2 for p in told.products)
    lines = "\n".join(precision_lines(told))
    assert "1 in bf16" in lines
    assert "others gain more time for their error" in lines
    assert "a-priori bound" in lines


@needs_bf16
def test_fresh_inputs_stay_within_the_budget(program: Executable) -> None:
    _, made = rounded(program, 0.3, BOTH)
    error = next(iter(made.told.values())).error
    for budget in (error / SPENT * 1.001, error):
        found, _ = rounded(program, budget, BOTH)
        for seed in range(100, 120):
            inputs = random_inputs(program.plan, seed)
            assert compare_outputs(found(inputs), program(inputs), budget).passed


@needs_bf16
def test_a_whole_program_that_is_not_surely_faster_stays_in_float32(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounded_products, "surely_faster", lambda *_: False)
    found, made = rounded(program, 0.3, BOTH)
    assert found is program
    assert {p.why for p in made.told[found].products} == {"the whole program is not surely faster"}


@needs_bf16
def test_where_memory_has_no_room_nothing_rounds(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounded_products, "fits", lambda nbytes: False)
    found, made = rounded(program, 0.3, BOTH)
    assert found is program
    assert {(p.why, p.error, p.bound) for p in made.told[found].products} == {("there was no time or memory to try it", None, None)}


def test_code_for_other_processors_rounds_nothing_that_they_lack(program: Executable) -> None:
    made = Rounding(Settings(max_error=0.1, cpu="x86-64-v4"), Reference(program), Costs(BOTH))  # type: ignore[arg-type]
    assert {r.why for r in made.rows(program.plan, inf).values()} == {rounded_products.NO_ARITHMETIC}


def test_a_search_reckons_with_what_the_budget_has_room_for() -> None:
    assert likely(Settings()) == likely(Settings(max_error=1e-5)) == []
    here = {a.name for a in ARITHMETICS.values() if a.rounds and not a.missing(machine.cpu_features())}
    assert {a.name for a in likely(Settings(max_error=1e-3))} == here & {"f16"}
    assert {a.name for a in likely(Settings(max_error=1e-2))} == here & {"f16", "bf16"}


def test_why_a_product_stays_in_float32() -> None:
    (product, *_) = plan_of_two_layers().kernels
    assert isinstance(product, Contraction)
    rounds = product.in_arithmetic
    assert row(0, product, 1.0, {}).why == rounded_products.NO_ARITHMETIC
    assert row(0, product, 1.0, {rounds(BF16): None}).why == row(0, product, None, {rounds(BF16): 1.0}).why == rounded_products.NOT_MEASURED
    assert row(0, product, 1.0, {rounds(BF16): inf}).why == row(0, product, 1.0, {rounds(BF16): 1 - GAIN / 2}).why == rounded_products.NO_FASTER
    found = row(0, product, 1.0, {rounds(HALF): 0.9, rounds(BF16): 0.5})
    assert (found.why, found.arithmetic, found.by, found.float32_ms, found.ms) == ("", "bf16", "", 1e3, 500.0)
    assert row(0, product, 1.0, {rounds(BF16): 0.9, rounds(BF16).made_by("other"): 0.5}).by == "other"


@needs_bf16
def test_the_implementation_that_is_fastest_in_an_arithmetic_runs(program: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is no faster in bf16 by what the library takes first is faster by another implementation, which the program has."""
    monkeypatch.setattr(implementations, "SMALL", 0)
    made = Rounding(Settings(max_error=0.3), Reference(program), Made({}))  # type: ignore[arg-type]
    rows = made.rows(program.plan, inf)
    others = {n: names(k.in_arithmetic(BF16), WEIGHTS) for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)}
    assert {n: r.by for n, r in rows.items() if not r.why} == {n: found[-1] for n, found in others.items() if found} != {}
    found, _ = made.of(program, Reference(program).verify(program, 1.0), inf)
    running = {n: k.by for n, k in enumerate(found.plan.kernels) if isinstance(k, Contraction) and k.arithmetic == BF16}
    assert running == {n: found[-1] for n, found in others.items() if found}


def test_draws_are_of_the_kind_of_the_inputs() -> None:
    inputs = {"x": np.ones((2, 3), np.float32), "n": np.ones(4, np.int64)}
    draws = inputs_like(Draws(inputs))
    assert len(draws) == rounded_products.SEEDS + len(rounded_products.SPECIAL_DRAWS)
    assert all(d[name].shape == x.shape and d[name].dtype == x.dtype for d in draws for name, x in inputs.items())
    assert len({d["x"].tobytes() for d in draws}) == len(draws)


# -------------------------------------------------------------------------------------------------------- numbers beyond the largest


class HalfCosts(Costs):
    """Times of products that are faster in f16."""

    def seconds(self, k: Contraction) -> float:
        return 5.0 if k.arithmetic == HALF else 10.0


def louder(factor: float, weight: int | None = None) -> Executable:
    """The two layers with one weight, or both, so many times as large."""
    plan = plan_of_two_layers()
    names = [v.buffer for k in plan.kernels if isinstance(k, Contraction) for v in k.inputs if v.buffer in plan.constants]
    chosen = names if weight is None else [names[weight]]
    constants = {n: (factor * np.asarray(x)).astype(np.float32) if n in chosen else x for n, x in plan.constants.items()}
    return Executable(replace(plan, constants=constants), 1)


def products(program: Executable) -> dict[int, Contraction]:
    return {n: k for n, k in enumerate(program.plan.kernels) if isinstance(k, Contraction)}


def test_how_far_factors_reach_is_seen_on_every_draw(program: Executable) -> None:
    """The weights as they are; the input, and what the first product gives the second one, on the draw on which that is greatest."""
    first, second = products(program)
    inputs = random_inputs(program.plan, 0)
    (name,) = inputs
    weights = [float(np.abs(program.plan.constants[w]).max()) for w in ("w1", "w2")]
    for draws, factor in (([inputs], 1), ([inputs, {name: -64 * inputs[name]}], 64), ([{name: 64 * inputs[name]}, inputs], 64)):
        found = reaches(program, [first, second], draws)
        assert found[first] == max(weights[0], factor * float(np.abs(inputs[name]).max()))
    assert reaches(program, [second], [inputs, {name: 1000 * inputs[name]}])[second] > 100 * reaches(program, [second], [inputs])[second] > 0
    assert reaches(program, [first], [{name: 0 * inputs[name]}])[first] == weights[0], "weights count, too"
    assert reaches(program, [first], [{name: np.full_like(inputs[name], np.nan)}])[first] == inf
    assert reaches(program, [], [inputs]) == {}


def test_what_is_written_over_is_not_known(program: Executable) -> None:
    """A third product writes to where the first one has read."""
    plan = program.plan
    one, two = plan.kernels
    again = replace(plan, kernels=(one, two, replace(two, c=replace(one.a, shape=two.c.shape, strides=two.c.strides))))
    assert [kept(again, n, view) for n, view in ((0, one.a), (1, one.a), (0, two.a), (1, two.a))] == [False, False, False, True]
    assert all(kept(plan, n, k.a) for n, k in enumerate(plan.kernels))
    found = reaches(Executable(again, 1), [0, 1], [random_inputs(plan, 0)])
    assert found[0] == inf and found[1] < 1e3


def test_numbers_stay_far_below_the_largest() -> None:
    assert [a.name for a in ARITHMETICS.values() if narrow(a)] == ["f16"]
    assert not leaves(HALF, 65504 / HEADROOM) and leaves(HALF, 65504 / HEADROOM * 1.001) and leaves(HALF, inf) and leaves(HALF, float("nan"))
    assert not leaves(BF16, 1e30) and not leaves(F32, 1e30)


@pytest.mark.parametrize(("program_of", "refused"), [(lambda: louder(1.0), []), (lambda: louder(1e4, 0), [0, 1]), (lambda: louder(1e6, 1), [1])])
def test_products_whose_factors_may_leave_float16_are_refused_before_they_run(program_of, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight, or what a product hands to the next one."""
    monkeypatch.setattr(rounded_products, "available", lambda settings: [HALF])
    monkeypatch.setattr(Tried, "within", lambda self, offers, limit: ([], 0.0))
    monkeypatch.setattr(rounded_products, "bounds", lambda *_: {})
    program = program_of()
    _, made = rounded(program, 0.3, {}, HalfCosts)
    told = next(iter(made.told.values())).products
    assert [n for n, p in enumerate(told) if "f16 ends at 65504" in p.why and "refused: its factors reach" in p.why] == refused
    assert all(p.reach is not None and (p.reach > 65504 / HEADROOM) == (n in refused) for n, p in enumerate(told))


@needs_f16
def test_a_product_in_float16_tells_how_far_its_factors_reach(program: Executable) -> None:
    found, made = rounded(program, 0.3, {}, HalfCosts)
    assert arithmetics(found) == ["f16", "f16"]
    told = made.told[found]
    assert all(0 < p.reach < 100 for p in told.products)
    assert "its factors reach" in "\n".join(precision_lines(told))
    found.release()


# ------------------------------------------------------------------------------------------------------------------ end to end


def timing(kernel: Kernel) -> Timing:
    """The library is faster than generated code, and faster in bf16 than in float32."""
    seconds = 1e-3 if not isinstance(kernel, VendorKernel) else 1e-6 if arithmetic_of(kernel) != BF16 else 5e-7
    return Timing(seconds, 0.0, 5)


@pytest.fixture
def derived_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our program runs, whatever the machine does; nothing is known of earlier runs, and later ones learn nothing."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contest, "slower", lambda times: False)
    monkeypatch.setattr(contest, "behind", lambda times: False)
    monkeypatch.setattr(CpuCost, "timings", lambda self, kernels, *limits: [timing(k) for k in kernels])
    monkeypatch.setattr(CpuCost, "rounded", lambda self, kernel, arithmetics, seconds: [kernel.in_arithmetic(a) for a in arithmetics])
    monkeypatch.setattr(CpuCost, "estimates", lambda self, kernels: [timing(k).median for k in kernels])


@needs_bf16
def test_a_model_within_a_budget_is_stored_verified_and_explained(tmp_path: Path, derived_wins: None, capsys) -> None:
    model = tmp_path / "two.onnx"
    onnx.save(two_layers(rows=3, width=32), model)
    found = einnet.optimize(model, max_error=0.02, derive=False, threads=1, time_budget=20)
    assert arithmetics(found.executable) == ["bf16", "bf16"]
    assert found.settings.allow == "precision"
    told = found.record.precision
    assert 0 < told.error <= SPENT * 0.02
    assert found.record.verification.tolerance == 0.02
    path = found.save(tmp_path / "p.einnet")
    stored = einnet.load(path)
    inputs = random_inputs(found.executable.plan, 77)
    assert all(np.array_equal(y, found(inputs)[name]) for name, y in stored(inputs).items())
    verdict = audit(model, stored, seed=5)
    assert verdict["passed"], verdict
    assert verdict["kernels"]["exact"] == verdict["kernels"]["distinct"] == 2
    assert any("round their factors to bf16" in line for line in verdict["trusted"])
    assert main(["explain", str(path)]) == 0
    assert "precision: of 2 products 2 in bf16" in capsys.readouterr().out
    assert "precision: of 2 products 2 in bf16" in found.html()
    written = found.save(tmp_path / "out.onnx")
    reference = einnet.optimize(written, derive=False, threads=1, time_budget=5)(inputs)
    assert compare_outputs(found(inputs), reference, 0.02).passed


@needs_bf16
def test_a_stored_program_in_a_coarser_arithmetic_than_it_says_is_found_out(tmp_path: Path, derived_wins: None) -> None:
    """Numbers of each subprogram are held against the arithmetic that its kernels name."""
    model = tmp_path / "two.onnx"
    onnx.save(two_layers(rows=3, width=32), model)
    found = einnet.optimize(model, max_error=0.02, derive=False, threads=1, time_budget=20)
    stored = einnet.load(found.save(tmp_path / "p.einnet"))
    runs = stored.executable
    plan = replace(runs.plan, kernels=tuple(k.in_arithmetic(F32) if isinstance(k, Contraction) else k for k in runs.plan.kernels))
    observing = stored.observing
    stored.loaded = replace(stored.loaded, plan=plan)
    stored.observing = observing
    verdict = audit(model, stored, seed=5)
    assert not verdict["passed"]
    assert any("within" in p for p in verdict["verification"]["problems"])


def test_a_budget_that_nothing_can_keep_is_refused(tmp_path: Path) -> None:
    for wrong in (0.0, -1.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            Settings(max_error=wrong)
    for other in ({"backend": "cuda"}, {"target": "onnx"}):
        with pytest.raises(UsageError, match="this CPU"):
            Settings(max_error=0.1, **other)
    for ranges in ("batch=1..4", ["batch=1..4", "width=1..4"]):
        with pytest.raises(UsageError, match="one size"):
            einnet.optimize(two_layers(), dynamic=ranges, max_error=0.1)


def test_a_budget_widens_the_class_of_steps_as_far_as_it_reaches() -> None:
    assert [Settings(max_error=e).allow for e in (1e-2, 1e-5, 9e-6)] == ["precision", "precision", "reassociation"]
    assert Settings(max_error=1e-2, allow="exact").allow == "exact"
    assert replace(Settings(), max_error=1e-2).allow == "precision"
    assert (Settings(max_error=1e-2).tolerance, Settings().tolerance, Settings(allow="precision").tolerance) == (1e-2, 1e-4, 1e-3)
