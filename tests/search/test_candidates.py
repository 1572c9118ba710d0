"""Choosing among candidates: no kernel is measured that cannot matter, and none that can is left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.rules import FORCED
from einnet.derivation.steps import KINDS, Step
from einnet.expr.notation.text import parse
from einnet.instantiate import chunks
from einnet.instantiate.kernels import EOperator, Kernel, Matmul
from einnet.instantiate.registry import tables_for
from einnet.search.choosing import making, trials
from einnet.search.choosing.candidate import DOUBT, GENERATED_DOUBT, Candidate, Choice
from einnet.search.choosing.choose import LONG_S, choose, least_of_equals
from einnet.search.choosing.making import candidates
from einnet.search.forms import Form, effort, plain
from einnet.search.recall import choice_json, name
from einnet.search.space import Options, Space
from einnet.search.work import MACHINE, flops

CONV = parse("A : f32[6,57,43,64]\nK : weight f32[3,3,64,64]\nL[n<6,h<57,w<43,f<64] Σ[c<64,r<3,s<3] A[n,h+r-1,w+s-1,c]*K[r,s,c,f]")


@pytest.fixture(scope="module")
def forms() -> list[Form]:
    return Space(Options(max_depth=1)).forms(CONV)


def every(forms: Sequence[Form]) -> list[Candidate]:
    return candidates(forms, lambda kernels: [1.0] * len(kernels))


@pytest.mark.parametrize("seed", range(5))
def test_the_fastest_is_chosen_where_predictions_are_not_too_doubtful(forms: list[Form], seed: int) -> None:
    found = every(forms)
    kernels = list(dict.fromkeys(k for c in found for k in c.kernels))
    seconds = {k: 1.0 + (n * n * 7919 + seed * 104729) % 1000 for n, k in enumerate(kernels)}
    doubt = {k: DOUBT ** (((n + seed) % 3 - 1) / 1.01) for n, k in enumerate(kernels)}
    choice = choose(CONV, forms, lambda ks: [seconds[k] * doubt[k] for k in ks], lambda ks, _: [seconds[k] for k in ks], most=10**6, gain=0.0)
    assert choice.best.measured == pytest.approx(min(sum(seconds[k] for k in c.kernels) for c in found))


@pytest.mark.parametrize(("dtype", "apart"), [("u8", False), ("f32", True)])
def test_what_may_be_stored_as_bytes_is_shown_whole_by_the_kernel_that_writes_it(dtype: str, apart: bool) -> None:
    """A maximum along rows of a maximum along columns reads what may be -inf, for all that its own kernel knows."""
    source = parse(f"A : {dtype}[10,10,4]\nL[h<10,w<10,c<4] max[r<3,s<3] A[h+r-1,w+s-1,c]|-inf")
    found = every(Space(Options(max_depth=2)).forms(source))
    assert any(c.original for c in found)
    assert any(len(c.kernels) == 2 for c in found) == apart


@pytest.mark.parametrize(("share", "chosen"), [(0.3 * GENERATED_DOUBT, True), (1.2 * GENERATED_DOUBT, False)])
def test_generated_code_may_be_much_faster_than_predicted(share: float, chosen: bool) -> None:
    """Loops over what a cache holds are: a form that computes less is not left out for a prediction that is three times too high."""
    source = parse("A : f32[8,64,64]\nB : f32[8,64,64]\nL[b<8,m<64] Σ[n<64] {L[b<8,m<64,n<64] Σ[k<64] A[b,m,k]*B[b,k,n]}[b,m,n]")
    ways = Space(Options(max_depth=2)).forms(source)
    own = {k for c in every(ways) if c.original for k in c.kernels}
    least = min(len(c.kernels) for c in every(ways) if c.original)

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 if k in own else share * least if isinstance(k, EOperator) else 100.0 for k in kernels]

    choice = choose(source, ways, predicted, lambda ks, _: [1.0 if k in own else 0.1 for k in ks], most=10**6)
    assert (not choice.best.original) == chosen


def test_what_the_code_computes_again_and_again_is_not_measured(forms: list[Form]) -> None:
    """What looks cheapest by its expression is predicted from what is written for it before it is compiled; what is known takes no such look."""
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    generated = [k for k in dict.fromkeys(k for c in found for k in c.kernels) if isinstance(k, EOperator) and k not in own]
    slow = set(generated[::2])
    looked: list[Kernel] = []
    measured: list[Kernel] = []

    def closely(kernels: Sequence[Kernel]) -> list[float]:
        looked.extend(kernels)
        return [100.0 if k in slow else 1.0 if k in own else 0.01 for k in kernels]

    def measure(kernels: Sequence[Kernel], _: float) -> list[float]:
        measured.extend(kernels)
        return [100.0 if k in slow else 1.0 if k in own else 0.01 for k in kernels]

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 if k in own else 0.001 if k in slow else 0.01 for k in kernels]

    without = choose(CONV, forms, predicted, measure, most=10**6)
    assert slow.intersection(measured)
    measured.clear()
    choice = choose(CONV, forms, predicted, measure, most=10**6, closely=closely)
    assert not slow.intersection(measured)
    assert not choice.best.original
    assert choice.best.measured == without.best.measured
    assert len(looked) == len(set(looked))
    assert all(isinstance(k, EOperator) for k in looked)


def test_as_many_kernels_are_predicted_closely_as_there_is_time_for(forms: list[Form], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Kernel] = []
    monkeypatch.setattr(trials, "MOST_COUNTED", 3)
    same = lambda ks: [1.0] * len(ks)  # noqa: E731
    choose(CONV, forms, same, lambda ks, _: same(ks), most=10**6, closely=lambda ks: looked.extend(ks) or same(ks))
    assert len(looked) == 3


def test_nothing_is_compiled_beside_a_library_kernel_that_is_too_slow(forms: list[Form]) -> None:
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    measured: list[Kernel] = []

    def measure(kernels: Sequence[Kernel], _: float) -> list[float]:
        measured.extend(kernels)
        return [1.0 if k in own or isinstance(k, EOperator) else 100.0 for k in kernels]

    choice = choose(CONV, forms, lambda ks: [1.0 if k in own else 0.01 for k in ks], measure, most=10**6)
    library = {k for c in found for k in c.kernels if not isinstance(k, EOperator)} - own
    apart = own.union(*(c.kernels for c in found if not library.intersection(c.kernels)))
    beside = {k for c in found if library.intersection(c.kernels) for k in c.kernels if isinstance(k, EOperator)} - apart
    assert choice.best.original
    assert beside
    assert library.intersection(measured)
    assert not beside.intersection(measured)


def test_what_is_learned_elsewhere_is_tried_first_and_what_loses_there_is_not_measured(forms: list[Form]) -> None:
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    wanted = set(next(c for c in reversed(found) if not own.intersection(c.kernels)).kernels)
    seconds = {k: 0.1 if k in wanted else 10.0 for c in found for k in c.kernels}
    measured: set[Kernel] = set()

    def measure(kernels: Sequence[Kernel], _: float) -> list[float]:
        measured.update(kernels)
        return [seconds[k] for k in kernels]

    def learned(c: Candidate) -> tuple[list[float], list[float]]:
        times = [seconds[k] for k in c.kernels]
        return times, [t / DOUBT for t in times]

    choice = choose(CONV, forms, lambda ks: [0.01] * len(ks), measure, most=10**6, learned=learned)
    assert set(choice.best.kernels) <= wanted
    assert measured <= wanted | own


def test_making_candidates_takes_no_time_from_measuring_them(forms: list[Form]) -> None:
    ends: list[float] = []

    def measure(kernels: Sequence[Kernel], until: float) -> list[float]:
        ends.append(until)
        return [1.0] * len(kernels)

    begin = time.monotonic()
    choose(CONV, forms, lambda ks: [1.0] * len(ks), measure, most=1, until=begin, least_s=1e3)
    assert ends
    assert min(ends) > begin + 1e3


@pytest.mark.parametrize(("share", "promised_s", "derived"), [(0.5, 1e3, True), (0.9, 1e3, False), (0.5, 0.0, False)])
def test_what_is_promised_is_measured_before_more_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, forms: list[Form], share: float, promised_s: float, derived: bool
) -> None:  # fmt: skip
    """Where time is over with the original, what is predicted to be much faster is measured all the same, if there is time that is promised."""
    now = [0.0]
    for module in ("choose", "making", "trials"):
        monkeypatch.setattr(f"einnet.search.choosing.{module}.time", SimpleNamespace(monotonic=lambda: now[0]))
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    fewest = min(len(c.kernels) for c in found if own.isdisjoint(c.kernels))
    original = min(len(c.kernels) for c in found if c.original)

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 if k in own else share * original / fewest for k in kernels]

    def measure(kernels: Sequence[Kernel], until: float) -> list[float | None]:
        now[0] += 1.0
        return list(predicted(kernels))

    choice = choose(CONV, forms, predicted, measure, most=64, until=0.5, least_s=0.0, promised_s=promised_s, assuming=False)
    assert min(c.predicted for c in choice.candidates) / choice.original.cost == pytest.approx(share)
    assert choice.best.original != derived


@pytest.mark.parametrize(
    ("share", "original_s", "last", "measured"),
    [
        (0.8, 1.0, False, True),
        (0.9, 1.0, False, False),
        (0.9, 1.0, True, True),
        (0.9, 0.01, False, True),
        (1.5, 1.0, True, True),
        (3.0, 1.0, True, False),
    ],
)
def test_long_kernels_that_promise_little_are_measured_last(forms: list[Form], share: float, original_s: float, last: bool, measured: bool) -> None:
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    fewest = min(len(c.kernels) for c in found if own.isdisjoint(c.kernels))
    original = min(len(c.kernels) for c in found if c.original)
    seen: set[Kernel] = set()

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [original_s / original * (1.0 if k in own else share * original / fewest) for k in kernels]

    def measure(kernels: Sequence[Kernel], _: float) -> list[float | None]:
        seen.update(kernels)
        return list(predicted(kernels))

    choice = choose(CONV, forms, predicted, measure, most=64, long_s=math.inf if last else LONG_S, closely=predicted)
    assert bool(seen - own) == measured
    assert choice.unmeasured or last or measured


def test_where_time_is_short_the_forms_that_promise_least_are_no_candidates(forms: list[Form]) -> None:
    def chosen(until: float, most: int = 8, least_s: float = 0.0) -> Choice:
        return choose(CONV, forms, lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks), most=most, until=until, least_s=least_s)

    everything, late = chosen(math.inf), chosen(time.monotonic() - 1.0)
    assert not everything.hurried
    assert len(everything.candidates) == len(every(forms))
    assert late.hurried, "more time would have found more"
    assert late.candidates and all(c.original for c in late.candidates)
    assert len(chosen(time.monotonic() - 1.0, least_s=600.0).candidates) == len(everything.candidates)
    assert all(c.original for c in chosen(math.inf, most=0).candidates), "nothing else is measured, so that nothing else is made"


def test_the_most_promising_forms_are_made_first(monkeypatch: pytest.MonkeyPatch, forms: list[Form]) -> None:
    """A clock that stands still until a few forms are made."""
    now = iter([0.0] * 8)
    monkeypatch.setattr(making.time, "monotonic", lambda: next(now, 1e9))
    ranked, complete, _ = making.made(forms, lambda ks: [1.0] * len(ks), None, 1.0)
    monkeypatch.undo()
    assert not complete
    derived = [c.form for c in ranked if not c.original]
    left = [f for f in forms if f.steps and f.tree not in {d.tree for d in derived} and any(s.rule not in FORCED for s in f.steps)]
    assert derived and left
    assert max(map(effort, derived)) <= min(map(effort, left))


def test_originals_and_the_most_promising_are_run_part_by_part(monkeypatch: pytest.MonkeyPatch, forms: list[Form]) -> None:
    monkeypatch.setattr(chunks, "CACHED", 8 << 20)
    monkeypatch.setattr(making, "MOST_DIVIDED", 2)
    parted = [c for c in every(forms) if len(c.kernels) > len(set(c.kernels))]
    monkeypatch.setattr(making, "MOST_DIVIDED", 10**6)
    assert 0 < len(parted) < len([c for c in every(forms) if len(c.kernels) > len(set(c.kernels))])


@pytest.mark.parametrize("seed", range(4))
def test_what_surely_takes_longer_is_not_predicted(monkeypatch: pytest.MonkeyPatch, forms: list[Form], seed: int) -> None:
    """Where predictions are all that is ever known, the same is chosen, original and best, and less of it is looked at."""
    monkeypatch.setattr(chunks, "CACHED", 8 << 20)
    kernels = list(dict.fromkeys(k for c in every(forms) for k in c.kernels))
    seconds = {k: 1.0 + (n * n * 7919 + seed * 104729) % 1000 for n, k in enumerate(kernels)}
    at_least = {k: s * (0.9 if isinstance(k, EOperator) else 1.0) for k, s in seconds.items()}
    asked: list[set[Kernel]] = []
    found: list[tuple[float, ...]] = []
    for given in (None, lambda ks: [at_least[k] for k in ks]):
        seen = set[Kernel]()

        def estimate(ks: Sequence[Kernel], seen: set[Kernel] = seen) -> list[float]:
            seen.update(ks)
            return [seconds[k] for k in ks]

        choice = choose(CONV, forms, estimate, lambda ks, _: [seconds[k] for k in ks], most=10**6, gain=0.0, at_least=given)
        asked.append(seen)
        found.append((choice.best.cost, choice.original.cost, min(c.predicted for c in choice.candidates if c.original)))
    assert found[1] == found[0]
    assert asked[1] < asked[0]


def test_one_way_to_run_the_original_is_measured_where_others_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CACHED", 4 << 20)
    product = "{L[b<8,m<512,k<512] Σ[c<512] A[b,m,c]*A[b,c,k]}[b,m,k]"
    source = parse(f"A : f32[8,512,512]\nB : f32[8,512,64]\nL[b<8,m<512,n<64] Σ[k<512] {{L[b<8,m<512,k<512] exp({product})}}[b,m,k]*B[b,k,n]")
    ways = Space(Options(max_depth=0)).forms(source)
    for most, several in ((0, True), (8, False)):
        measured: set[Kernel] = set()

        def measure(kernels: Sequence[Kernel], _: float, measured: set[Kernel] = measured) -> list[float]:
            measured.update(kernels)
            return [1.0] * len(kernels)

        choice = choose(source, ways, lambda ks: [1.0 / DOUBT] * len(ks), measure, most=most, until=0.0)
        assert (not measured <= set(choice.original.kernels)) == several
        assert set(choice.original.kernels) <= measured


def test_other_ways_to_run_the_original_are_measured_until_they_are_known_to_be_slower() -> None:
    """The library's product alone takes longer than all generated code: the code beside it is not compiled. One that is faster is measured whole."""
    source = parse("A : f32[64,48]\nB : f32[48,64]\nL[m<64,n<64] exp({L[m<64,n<64] Σ[k<48] A[m,k]*B[k,n]}[m,n])")
    ways = Space(Options(max_depth=0)).forms(source)
    found = every(ways)
    beside = [k for c in found for k in c.kernels if isinstance(k, EOperator) and not all(isinstance(x, EOperator) for x in c.kernels)]
    assert beside
    for library_s, generated_s, other_s, whole in ((5.0, 1.0, 1.0, False), (0.1, 1.0, 0.1, True)):
        seconds = {k: other_s if k in beside else generated_s if isinstance(k, EOperator) else library_s for c in found for k in c.kernels}
        measured: list[Kernel] = []

        def measure(kernels: Sequence[Kernel], _: float, measured: list[Kernel] = measured, seconds: dict[Kernel, float] = seconds) -> list[float]:
            measured.extend(kernels)
            return [seconds[k] for k in kernels]

        predicted = {k: 0.2 if isinstance(k, EOperator) else 1.0 for k in seconds}
        choice = choose(source, ways, lambda ks, predicted=predicted: [predicted[k] for k in ks], measure, most=0, until=0.0)
        assert any(not isinstance(k, EOperator) for k in measured)
        assert any(k in beside for k in measured) == whole
        assert choice.original.measured == min(sum(seconds[k] for k in c.kernels) for c in found)


@pytest.mark.parametrize(("generated", "vendor_first"), [(1.1, True), (0.9, False)])
@pytest.mark.parametrize("most", [0, 8])
def test_the_original_whose_time_is_best_known_is_measured_first(forms: list[Form], most: int, generated: float, vendor_first: bool) -> None:
    """Time may be out after that: generated code may take as many times more than is predicted as it may take less."""
    measured: list[Kernel] = []

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [generated / GENERATED_DOUBT if isinstance(k, EOperator) else 1.0 for k in kernels]

    def measure(kernels: Sequence[Kernel], _: float) -> list[float]:
        measured.extend(kernels)
        return [1.0] * len(kernels)

    whole = [f for f in forms if f.unchanged and all(len(c.kernels) == 1 for c in every([f]))]
    choose(CONV, whole, predicted, measure, most=most, until=0.0)
    assert isinstance(measured[0], EOperator) != vendor_first


def test_of_two_forms_with_the_same_kernels_the_original_is_known(forms: list[Form]) -> None:
    """However short the derivation is that leads to the same kernels: what is left of the model's own operators must not be called derived."""
    original = next(f for f in forms if f.matches and all(s.rule in FORCED for s in f.steps))
    other = next(f.steps[0] for f in forms if f.steps and f.steps[0].rule not in FORCED)
    forced = Step("fold", "", original.start, original.start)
    longer, derived = replace(original, steps=(forced, forced, *original.steps)), replace(original, steps=(other,))
    for given in ([longer, derived], [derived, longer]):
        assert {c.form.steps for c in every(given)} == {longer.steps}
    assert choose(CONV, [derived, longer], alike, lambda kernels, _: alike(kernels)).original.form is longer


def alike(kernels: Sequence[Kernel]) -> list[float]:
    return [1.0] * len(kernels)


@pytest.mark.parametrize(("share", "original"), [(0.96, False), (0.98, True), (1.02, True)])
def test_what_is_derived_must_gain_more_than_noise(forms: list[Form], share: float, original: bool) -> None:
    """Three hundredths of the original's time, whatever that is; without a threshold any gain counts."""
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    whole = min(len(c.kernels) for c in found if c.original)
    derived = next(c for c in found if not own.intersection(c.kernels))
    each = share * whole / len(derived.kernels)

    def seconds(kernels: Sequence[Kernel], _: float = 0.0) -> list[float]:
        return [1.0 if k in own else each if k in derived.kernels else 100.0 for k in kernels]

    assert choose(CONV, forms, seconds, seconds, most=10**6).best.original == original
    assert choose(CONV, forms, seconds, seconds, most=10**6, gain=0.0).best.original == (share >= 1)


@pytest.mark.parametrize(("library", "left", "taken"), [(0.6, 0.3, True), (0.6, 0.39, False), (0.4, 0.45, False)])
def test_what_was_mostly_measured_when_time_was_over_may_be_taken(forms: list[Form], library: float, left: float, taken: bool) -> None:
    """What is left of it may take as many times more than predicted as it may, and it is still faster: that is no time to be recalled."""
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    wanted = next(c for c in found if not own.intersection(c.kernels) and {type(k) for k in c.kernels} == {Matmul, EOperator})
    generated = [k for k in wanted.kernels if isinstance(k, EOperator)]
    products = [k for k in wanted.kernels if not isinstance(k, EOperator)]

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        special = {**dict.fromkeys(generated, left / len(generated) / GENERATED_DOUBT), **dict.fromkeys(products, library / len(products))}
        return [special.get(k, 1.0 if k in own else 50.0) for k in kernels]

    def measure(kernels: Sequence[Kernel], _: float) -> list[float | None]:
        return [None if k in generated else t for k, t in zip(kernels, predicted(kernels))]

    choice = choose(CONV, forms, predicted, measure, most=10**6)
    assert (choice.best.kernels == wanted.kernels) == taken
    assert choice.best.original != taken
    if taken:
        assert choice.best.measured == pytest.approx(library + left)
        assert choice.best.assumed == set(generated)
        assert choice_json(choice, [choice.best])["seconds"].keys() == set(map(name, products))


def test_forms_are_made_by_what_they_cost_with_and_without_starting_kernels(forms: list[Form]) -> None:
    """Many small kernels cost little where starting one takes no time: a form of such is not behind all that have fewer."""
    derived = [f for f in forms if not f.unchanged]
    made = making.promising(forms)
    assert {id(f) for f in made} == {id(f) for f in derived} and len(made) == len(derived)
    assert effort(made[0]) == min(map(effort, derived))
    computing = [effort(f, launches=False) for f in derived]
    assert min(effort(f, launches=False) for f in made[:2]) == min(computing)
    assert all(effort(f) - effort(f, launches=False) >= 0 for f in derived)
    many = max(derived, key=lambda f: len(f.each))
    assert effort(many) - effort(many, launches=False) > effort(plain(CONV)) - effort(plain(CONV), launches=False) == MACHINE.launch


def by(form: Form, kind: str) -> Form:
    """The form as if one step of a class had led to it."""
    return replace(form, steps=(Step("some", "", form.start, form.tree, (), kind),))


def by_work(forms: Sequence[Form], seconds: Callable[[int], float]) -> list[Candidate]:
    """Derived candidates that compute less and less, as if they had been measured, and by one exact step."""
    first = {flops(c.form.tree): c for c in every(forms) if not c.original}
    return [replace(c, form=by(c.form, "exact"), measured=seconds(n)) for n, (_, c) in enumerate(sorted(first.items(), key=lambda item: -item[0]))]


@pytest.mark.parametrize(("noise", "limit", "place"), [(0.03, math.inf, 3), (0.025, math.inf, 2), (0.0, math.inf, 0), (0.03, 1.015, 1)])
def test_of_what_is_as_fast_that_is_taken_which_computes_least(noise: float, limit: float, place: int) -> None:
    """What a clock tells apart so little another day turns round: up to the share of noise, and as long as enough is gained."""
    ways = Space(Options(max_depth=2, intensity=0.0, kinds=KINDS)).forms(CONV)
    slower = by_work(ways, lambda n: 1 + 0.01 * n)[:5]
    assert len(slower) == 5
    assert least_of_equals(slower[0], slower, noise, limit) is slower[place]


def test_what_computes_less_is_not_taken_where_it_rounds_more_or_cannot_run(forms: list[Form]) -> None:
    first, second, third = by_work(Space(Options(max_depth=2, intensity=0.0, kinds=KINDS)).forms(CONV), lambda n: 1.0)[:3]
    coarse = replace(second, form=by(second.form, "precision"))
    assert least_of_equals(first, [first, coarse], 0.03) is first
    assert least_of_equals(coarse, [first, coarse, third], 0.03) is third
    assert least_of_equals(first, [first, replace(third, refused=frozenset(third.kernels))], 0.03) is first
    assert least_of_equals(replace(first, measured=math.inf), [third], 0.03).measured == math.inf


@pytest.mark.parametrize(("share", "generated"), [(0.9, True), (1.1, False)])
def test_of_originals_that_nobody_could_measure_generated_code_is_doubted(forms: list[Form], share: float, generated: bool) -> None:
    """It may be as much slower than predicted as it may be faster: a library's kernel that is predicted to take a little more is the safer one."""

    def predicted(kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 if isinstance(k, EOperator) else GENERATED_DOUBT / share for k in kernels]

    originals = [f for f in forms if all(s.rule in FORCED for s in f.steps)]
    assert any(len(c.kernels) == 1 and isinstance(c.kernels[0], EOperator) for c in every(originals))
    found = choose(CONV, originals, predicted, lambda ks, _: [None] * len(ks), most=0)
    assert isinstance(found.best.kernels[0], EOperator) == generated


def made_and_predicted(forms: Sequence[Form], seconds: Callable[[Kernel], float], most: float) -> tuple[list[Candidate], bool]:
    ranked, complete, wanted = making.made(forms, lambda ks: [*map(seconds, ks)], None, math.inf, most)
    assert complete
    return ranked, wanted


def test_forms_that_promise_less_are_not_made_where_none_would_be_among_the_fastest(monkeypatch: pytest.MonkeyPatch, forms: list[Form]) -> None:
    monkeypatch.setattr(making, "AT_ONCE", 2)
    made, wanted = made_and_predicted(forms, lambda k: 1.0 + effort_of(k), 1)
    whole, all_wanted = made_and_predicted(forms, lambda k: 1.0 + effort_of(k), math.inf)
    assert all_wanted and not wanted
    assert len({c.form.key for c in made}) < len({c.form.key for c in whole})
    assert any(not c.form.matches for c in made if c.original), "generated code can always run"
    left = [c.form for c in whole if c.form.key not in {d.form.key for d in made} and not c.original]
    assert left and max(effort(c.form) for c in made if not c.original) <= min(map(effort, left))


def test_forms_are_made_as_long_as_faster_ones_come(monkeypatch: pytest.MonkeyPatch, forms: list[Form]) -> None:
    """What promises least is the fastest: whatever new kernels some forms bring, all before took longer."""
    monkeypatch.setattr(making, "AT_ONCE", 8)
    turn = iter(range(10**6))
    made, wanted = made_and_predicted(forms, lambda k: 0.5 ** (2 * next(turn)), 1)
    whole, _ = made_and_predicted(forms, lambda k: 1.0, math.inf)
    assert wanted and {c.form.key for c in made} == {c.form.key for c in whole}


def effort_of(kernel: Kernel) -> float:
    """More for a generated kernel than for a vendor's, whatever they compute."""
    return 1e-3 * (2 if isinstance(kernel, EOperator) else 1)


def test_what_was_not_wanted_asks_for_another_turn(monkeypatch: pytest.MonkeyPatch, forms: list[Form]) -> None:
    def chosen(at_once: int) -> Choice:
        monkeypatch.setattr(making, "AT_ONCE", at_once)
        return choose(CONV, forms, lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks), most=8)

    assert chosen(2).unmeasured and not chosen(2).hurried
    assert len(chosen(2).candidates) < len(chosen(10**6).candidates)


@pytest.mark.parametrize("search", [{"max_depth": 0, "rules": (), "converge": False}, {"max_depth": 1}], ids=["own operators", "search"])
@pytest.mark.parametrize("groups", [2, 8, 16])
def test_a_convolution_in_groups_is_an_operator_of_the_model(groups: int, search: dict[str, Any]) -> None:
    """The division of the channels that says the group is a loop of the library's: nothing was derived by numbering loops so."""
    c = 64 // groups
    source = parse(f"A : f32[1,64,24]\nK : weight f32[64,{c},5]\nL[n<1,f<64,w<24] Σ[c<{c},s<5] A[n,{c}*(f//{c})+c,w+s-2]*K[f,c,s]")
    own = [c for c in every(Space(Options(tables=tables_for("cpu"), **search)).forms(source)) if c.original]
    assert {tuple(k.kind for k in c.kernels) for c in own} == {("eoperator",), ("conv",), ("conv", "eoperator")}
    assert all(check(c.form.derivation) is not None for c in own)


def test_other_substitutions_derive_something() -> None:
    """Digits that no operand divides by, and copies for a product, are choices of a derivation."""
    source = parse("A : f32[1,16,24]\nK : weight f32[16,16,3]\nL[n<1,f<16,w<24] Σ[c<16,s<3] A[n,c,w+2*s-2]*K[f,c,s]")
    found = every(Space(Options(max_depth=1, tables=tables_for("cpu"))).forms(source))
    assert any("substitute" in c.rules for c in found)
    assert all(set(c.rules) <= set(FORCED) for c in found if c.original)
    grouped = parse("A : f32[1,64,24]\nK : weight f32[64,16,5]\nL[n<1,f<64,w<24] Σ[c<16,s<5] A[n,16*(f//16)+c,w+s-2]*K[f,c,s]")
    derived = [c for c in every(Space(Options(max_depth=1)).forms(grouped)) if not c.original]
    assert derived and all(set(c.rules) - {"substitute", *FORCED} or len(c.form.matches) == 0 for c in derived)
