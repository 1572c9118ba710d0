"""The operator cases of the published experiments, and those beyond: what a deep search promises about them."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from benchmarks.search.cases import CASES, PAPER, Case
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.points import evaluate_at
from einnet.search.forms import plain
from einnet.search.space import Options, Space
from tests.search.catalogue import expression
from tests.search.storage import cheapest, storage_free

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
@pytest.mark.parametrize("depth", [1, 2])
def test_fingerprints_lose_nothing(case: Case, depth: int) -> None:
    assert keys(case, options(depth)) == keys(case, options(depth, fingerprint=False))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "depth"), [*product(CASES, (3,)), *product(PAPER, (4,))], ids=lambda value: getattr(value, "name", str(value)))
def test_fingerprints_lose_nothing_deeper(case: Case, depth: int) -> None:
    """From three steps on a part of a sum may have been stored, merged and stored again. The sum then has another order, and what is stored has its
    dimensions in that order. Nothing else is lost: all that is computed at all is computed at the same cost, where no limit chooses among forms."""
    pruned, whole = (Space(options(depth, fingerprint=on, kept=ALL, few=ALL, inner=ALL)) for on in (True, False))
    found, wanted = (space.forms(parse(case.text)) for space in (pruned, whole))
    assert {f.key for f in found} <= {f.key for f in wanted}
    assert cheapest(found) == cheapest(wanted)
    assert not pruned.statistics.stopped and not whole.statistics.stopped


@pytest.mark.slow
@pytest.mark.parametrize("case", PAPER_CASES)
@pytest.mark.parametrize("depth", [3, 4])
def test_fingerprints_lose_no_best_form(case: Case, depth: int) -> None:
    """Few forms of one structure are kept, and which order of dimensions is among them is chance: the best ones cost the same."""
    found, wanted = (Space(options(depth, fingerprint=on)).forms(parse(case.text)) for on in (True, False))
    assert min(f.efforts[0] for f in found) == min(f.efforts[0] for f in wanted)


MIRRORED = "A : f32[7,7,4]\nK : f32[4,3,3]\nL[h<7,w<7] Σ[r<3,s<3] {{L[{0}] Σ[c<4] A[t,u,c]*K[c,r,s]}}[{1}]"


def test_storage_alone_is_forgotten() -> None:
    """The key that the deeper searches are compared by is one for what is stored in another order, and no other."""
    pairs = (("r<3,s<3,t<7,u<7", "r,s,h+r-1,w+s-1"), ("s<3,u<7,r<3,t<7", "s,w+s-1,r,h+r-1"), ("r<3,s<3,t<7,u<7", "r,s,h+s-1,w+r-1"))
    one, other, crossed = (plain(parse(MIRRORED.format(*pair))) for pair in pairs)
    assert len({one.key, other.key, crossed.key}) == 3
    assert storage_free(one) == storage_free(other) != storage_free(crossed)


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
    assert compared >= 9_500
