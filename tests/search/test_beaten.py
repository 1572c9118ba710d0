"""What is known to lose is not measured, or no longer than it takes to see that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.search.choosing.candidate import DOUBT, GENERATED_DOUBT, Candidate
from einnet.search.choosing.choose import choose
from einnet.search.choosing.making import candidates
from einnet.search.forms import Form
from einnet.search.space import Options, Space

CONV = parse("A : f32[6,57,43,64]\nK : weight f32[3,3,64,64]\nL[n<6,h<57,w<43,f<64] Σ[c<64,r<3,s<3] A[n,h+r-1,w+s-1,c]*K[r,s,c,f]")


@pytest.fixture(scope="module")
def forms() -> list[Form]:
    return Space(Options(max_depth=1)).forms(CONV)


def every(forms: Sequence[Form]) -> list[Candidate]:
    return candidates(forms, lambda kernels: [1.0] * len(kernels))


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("most", [0, 10**6])
def test_the_same_is_chosen_where_slow_kernels_are_measured_no_longer_than_it_takes(forms: list[Form], seed: int, most: int) -> None:
    """A kernel that is cut short may be asked for again with a higher limit, by a candidate that takes less beside it."""
    kernels = list(dict.fromkeys(k for c in every(forms) for k in c.kernels))
    seconds = {k: 1.0 + (n * n * 7919 + seed * 104729) % 1000 for n, k in enumerate(kernels)}
    predicted = {k: s / (3.0 if isinstance(k, EOperator) else 1.1) for k, s in seconds.items()}
    cut: list[Kernel] = []
    whole: list[Kernel] = []

    def within(kernel: Kernel, until: float, limit: float) -> tuple[float, bool]:
        longer = seconds[kernel] > limit
        (cut if longer else whole).append(kernel)
        return (limit + (seconds[kernel] - limit) / 2, False) if longer else (seconds[kernel], True)

    plain = choose(CONV, forms, lambda ks: [predicted[k] for k in ks], lambda ks, _: [seconds[k] for k in ks], most=most)
    found = choose(CONV, forms, lambda ks: [predicted[k] for k in ks], lambda ks, _: [math.nan for _ in ks], most=most, within=within)
    assert found.best.kernels == plain.best.kernels and found.best.measured == plain.best.measured
    assert found.original.kernels == plain.original.kernels and found.original.measured == plain.original.measured
    assert cut and len(whole) == len(set(whole))
    assert all(c.measured in (math.inf, sum(seconds[k] for k in c.kernels)) for c in found.candidates)


@pytest.mark.parametrize("most", [1, 3])
def test_what_is_cut_short_counts_as_measured(forms: list[Form], most: int) -> None:
    """It took time: a turn measures so many kernels."""
    own = {k for c in every(forms) if c.original for k in c.kernels}
    cut: list[Kernel] = []

    def within(kernel: Kernel, until: float, limit: float) -> tuple[float, bool]:
        cut.extend([kernel] if kernel not in own else [])
        return (1.0, True) if kernel in own else (limit * 2, False)

    choose(CONV, forms, lambda ks: [1.0 if k in own else 0.1 for k in ks], lambda ks, _: [1.0] * len(ks), most=most, within=within)
    assert len(cut) == most


def test_what_cannot_be_faster_than_an_earlier_choice_is_not_measured(forms: list[Form]) -> None:
    found = every(forms)
    own = {k for c in found if c.original for k in c.kernels}
    derived = [c for c in found if not own.intersection(c.kernels)]
    seconds = {k: 1.0 if k in own else 0.1 for c in found for k in c.kernels}
    least = {k: s / (GENERATED_DOUBT if isinstance(k, EOperator) else DOUBT) for k, s in seconds.items()}
    limits = sorted(sum(least[k] for k in c.kernels) for c in derived)
    for beaten_s, some in ((math.inf, True), (limits[0] * 1.001, True), (limits[0], False)):
        measured: list[Kernel] = []

        def measure(kernels: Sequence[Kernel], _: float, measured: list[Kernel] = measured) -> list[float]:
            measured.extend(kernels)
            return [seconds[k] for k in kernels]

        choice = choose(CONV, forms, lambda ks: [seconds[k] for k in ks], measure, most=10**6, beaten_s=beaten_s)
        assert choice.original.measured < math.inf, "an original is measured in any case"
        assert bool(set(measured) - own) == some
        assert choice.best.original == (not some) or choice.best.measured > beaten_s
