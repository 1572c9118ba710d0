"""The operator cases of the published experiments, and those beyond: what a deep search promises about them."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from benchmarks.search.cases import CASES, PAPER, Case
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.points import evaluate_at
from einnet.search.space import Options, Space
from tests.search.catalogue import expression

ALL = 10**6
REDUCED = (
    "convolutions: conv3x3", "convolutions: stride 2", "convolutions: dilation 2", "convolutions: depthwise", "convolutions: k x 1",
    "convolutions: groups", "transposed: transposed 4x4", "transposed: k5 s3 p1", "transposed: k3 s2 p1", "transposed: k4 s2 p1",
    "matmuls: band dilated", "matmuls: three factors", "matmuls: matmul", "tails: residual", "siblings: global convolution block",
    "convolutions: conv3x3 nchw", "convolutions: groups nchw", "convolutions: stride 2 dilation 3", "transposed: transposed 4x4 nchw",
)  # fmt: skip
PAPER_CASES = [pytest.param(case, id=case.name) for case in PAPER]


def options(depth: int, **changes: object) -> Options:
    return Options(max_depth=depth, **changes)  # type: ignore[arg-type]


def keys(case: Case, chosen: Options) -> set[str]:
    return {f.key for f in Space(chosen).forms(parse(case.text))}


def values(scope: Scope) -> np.ndarray:
    """The whole tensor, exact modulo the prime."""
    points = np.array(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64).reshape(-1, len(scope.box))
    return np.asarray(evaluate_at(scope, points, seed=1))


@pytest.mark.parametrize("case", PAPER_CASES)
def test_fingerprints_lose_nothing(case: Case) -> None:
    assert keys(case, options(1)) == keys(case, options(1, fingerprint=False))


@pytest.mark.slow
@pytest.mark.parametrize("case", PAPER_CASES)
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_fingerprints_lose_nothing_deeper(case: Case, depth: int) -> None:
    assert keys(case, options(depth)) == keys(case, options(depth, fingerprint=False))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_more_depth_finds_no_less(case: Case) -> None:
    """Searches of their own, not one that goes on."""
    found = [keys(case, options(depth)) for depth in range(8)]
    assert all(a <= b for a, b in pairwise(found))


@pytest.mark.parametrize("case", [c for c in PAPER_CASES if c.id in ("Conv3x3", "G2BMM d4")])
def test_a_search_that_goes_on_is_a_deeper_search(case: Case) -> None:
    space, scope = Space(options(4)), parse(case.text)
    for depth in (1, 3, 4):
        found = space.forms(scope, depth)
    at_once = Space(options(4))
    assert [f.key for f in found] == [f.key for f in at_once.forms(scope)]
    assert space.statistics == at_once.statistics


@pytest.mark.slow
def test_every_candidate_of_depth_4_is_exact_modulo_a_prime(capsys: pytest.CaptureFixture[str]) -> None:
    compared = 0
    for name in REDUCED:
        source = expression(name)
        wanted = values(source)
        space = Space(options(4, intensity=0.0, kept=1500, few=ALL, inner=1500, states=4000))
        for form in space.forms(source):
            np.testing.assert_array_equal(values(form.tree), wanted, err_msg=f"{name}\n{form.tree.text()}")
            compared += 1
    with capsys.disabled():
        print(f"\n{compared} candidates of {len(REDUCED)} expressions equal their sources modulo 2^61-1")
    assert compared >= 10_000
