"""One proof for every size: what is called sliced is N copies of one function, at every N; what is not is refused with the reason."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einnet.derivation.checker.slice_places import parts, points
from einnet.derivation.checker.slices import Place, Slices, sliced
from einnet.derivation.ranged import RangedFile
from einnet.derivation.rules import RULES
from einnet.derivation.steps import Step
from einnet.errors import CertificateError, EinNetError
from einnet.expr.index import ZERO, Index, Range, var
from einnet.expr.nodes import Const, Iter, Scope, tensors
from einnet.expr.sets import PARAMETER
from einnet.expr.sized import SLICE, Frame, Sized, Unsliced
from einnet.expr.values.evaluate import evaluate
from tests.derivation.copies import SIZES, copies, written

WRITTEN = re.compile(r"(?<![\w.'])(?:\d+\*)?N\b|(?<![\w.'])\d+|n'")
"""Integers, sizes and the iterator of the copies."""

A, B, S, N = var("m#a"), var("m#b"), var(SLICE), var(PARAMETER)

INSTEAD = ("1", "2", "3", "0", "N", "2*N", "N//2", "n'", "(n'+1)", "(N-1)", "-n'", "(n'//2)", "(n'%2)", "(n'*N)", "(N+n')", "n'%N")


def file(body: str) -> RangedFile:
    return RangedFile("N", 1, 32, SIZES, body)


def slice_of(array: np.ndarray, place: Place, size: int, s: int) -> np.ndarray:
    """Slice s, with the shape that the whole has at size 1."""
    d = place.dimension
    apart = array.reshape(*array.shape[:d], place.blocks, size, place.stride, *array.shape[d + 1 :])
    return apart.take(s, axis=d + 1).reshape(*array.shape[:d], place.blocks * place.stride, *array.shape[d + 1 :])


def random_values(scope: Scope, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-50, 50, t.shape) for name, t in tensors(scope).items() if t.values is None}


def are_copies(text: RangedFile, places: Slices, size: int) -> bool:
    """The theorem at a size, evaluated: every slice of the result is the result at size 1 on that slice of the tensors."""
    whole, one = text.start(size), text.start(1)
    values = random_values(whole, size)
    result = evaluate(whole, values, "mod")
    for s in range(size):
        part = {name: slice_of(v, places.tensors[name], size, s) if name in places.tensors else v for name, v in values.items()}
        if not np.array_equal(slice_of(result, places.result, size, s), evaluate(one, part, "mod")):
            return False
    return True


def known(text: RangedFile) -> bool:
    """It is sliced; evaluation agrees at every size."""
    try:
        places = sliced(text.sized())
        for size in SIZES:
            text.start(size)
    except (Unsliced, EinNetError):
        return False
    assert all(are_copies(text, places, size) for size in SIZES), text.body
    return True


def damaged(text: str, seed: int) -> str:
    """One integer, size or iterator of a line as another."""
    at = random.Random(seed).choice(list(WRITTEN.finditer(text)))
    return text[: at.start()] + random.Random(seed + 1).choice(INSTEAD) + text[at.end() :]


def share(strategy: st.SearchStrategy[bool], examples: int) -> float:
    """How many of the drawn examples are true."""
    drawn: list[bool] = []

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(one: bool) -> None:
        drawn.append(one)

    run()
    return sum(drawn) / len(drawn)


@st.composite
def steps(draw: st.DrawFn) -> RangedFile | None:
    """A derivation of one step by some rule."""
    before, most = draw(copies()), draw(st.integers(1, 3))
    for rule in draw(st.permutations(RULES)):
        for rewrite in list(islice(rule.rewrites(before), most))[-1:]:
            return written(before, Step(rule.name, "", before, rewrite.scope, (), rewrite.kind, rewrite.bound))
    return None


def proven(text: RangedFile | None) -> bool:
    """It has one proof for every size; evaluation of both sides agrees at every size."""
    if text is None or isinstance(text.for_every_size(), str):
        return False
    for size in SIZES:
        try:
            states = list(text.at(size).derivation.states())
        except EinNetError:
            states = []
        for after in states[1:]:
            values = random_values(states[0], size) | random_values(after, size)
            same = np.array_equal(*(evaluate(s, {n: values[n] for n in tensors(s) if n in values}, "mod") for s in (states[0], after)))
            assert same, text
    return True


def test_copies_by_construction_are_copies_at_every_size_and_mostly_known_to_be():
    assert share(copies().map(lambda scope: known(written(scope))), 60) > 0.6


def test_what_is_damaged_and_still_sliced_is_copies_at_every_size():
    @st.composite
    def changed(draw: st.DrawFn) -> bool:
        head, _, expression = written(draw(copies())).body.partition("from ")
        return known(file(f"{head}from {damaged(expression, draw(st.integers(0, 999)))}"))

    assert 0.1 < share(changed(), 100) < 0.6


def test_what_has_one_proof_for_every_size_is_equal_at_every_size():
    assert share(steps().map(proven), 30) > 0.4


def test_a_damaged_step_that_has_one_proof_is_equal_at_every_size():
    @st.composite
    def changed(draw: st.DrawFn) -> bool:
        text = draw(steps())
        if text is None:
            return False
        head, _, after = text.body.rpartition("   L[")
        return proven(file(f"{head}   {damaged('L[' + after, draw(st.integers(0, 999)))}"))

    assert share(changed(), 40) < 0.5


DECLARED = "A : f32[N,8]\nB : f32[2*N,8]\nC : f32[6*N]\nW : f32[8]\n"

SLICED = {
    "own dimensions": ("L[n<N,f<4] Σ[c<8] A[n,c]*W[(c+f)%8]", 1),
    "behind one another": ("L[m<6*N] C[m]*W[m%6]", 6),
    "in turns": ("L[m<6*N] C[m]*W[m//N]", 1),
    "from behind one another to in turns": ("L[m<6*N] C[6*(m%N)+m//N]", 1),
    "between others": ("L[m<6*N] C[m//(3*N)*3*N + m%(3*N)]*W[m%3]", 3),
    "joined tensors": ("L[m<2*N,c<8] A[m,c] + A[m-N,c]", 1),
    "a condition on blocks": ("L[m<2*N,c<8] select(m>=N, A[m-N,c], B[m,c])", 1),
    "an equation between blocks": ("L[m<2*N,c<8] select(m//N==1, B[m,c], val(c))", 1),
    "a nested scope along other dimensions": ("L[n<N,c<8] {L[m<8*N] A[m//8,m%8]}[8*n+7-c]", 1),
    "padding": ("L[n<N,c<8] Σ[r<3] A[n,c+r-1]|1", 1),
    "outside at every size": ("L[n<N,c<8] A[n,c] + A[n+N,c] + A[n-N,c]", 1),
    "a block that there is not, elsewhere": ("L[m<2*N,c<8] B[m,c]*W[m//N] + B[m+2*N,c+N] + B[m-2*N,c+N]", 1),
    "elements outside at every size": ("L[n<N,c<8] A[n,c] + W[c+8*N] + W[c-8*N]", 1),
    "elements below the first at every size": ("L[n<N,c<8] A[n,c] + {L[3<=x<11] W[x-3]}[c-8*N]", 1),
    "between two elements at every size": ("L[n<N,c<8] A[n,c] + W[(2*c+2*N+1)/2]", 1),
    "an odd number at every size": ("L[m<2*N,c<8] select(2*N-1-2*m==0, val(c), B[m,c]*W[m//N])", 1),
    "from a block on": ("L[m<6*N] select(m>=2*N, C[m]*W[m%2], 0)", 2),
    "up to a block": ("L[m<6*N] select(2*N-1-m>=0, C[m]*W[m%2], 0)", 2),
    "the greatest of a window": ("L[n<N] max[c<9] A[n,c-1]|-inf", 1),
}


@pytest.mark.parametrize("name", SLICED)
def test_what_is_sliced(name: str):
    body, stride = SLICED[name]
    text = file(f"{DECLARED}from {body}\n")
    assert sliced(text.sized()).result.stride == stride
    assert known(text)


REFUSED = {
    "the next slice": ("L[n<N,c<8] A[n+1,c]", "the read A[n+1,c]: it is not the same in all slices"),
    "around": ("L[n<N,c<8] A[(n+1)%N,c]", "not the same at all points"),
    "backwards": ("L[n<N,c<8] A[N-1-n,c]", "is not the same in all slices"),
    "the first slice": ("L[n<N,c<8] A[0,c]", "does not follow the slices"),
    "half as fast": ("L[n<N,c<8] A[n//2,c]", "does not follow the slices"),
    "every other, as far as it goes": ("L[n<N,c<8] A[2*n,c]", "in steps of 2, along N elements"),
    "too wide a stride": ("L[n<N,h<6] C[7*n+h]", "in steps of 7, along 6*N elements"),
    "too narrow a stride": ("L[n<N,h<6] C[3*n+h]", "the read C[3*n+h]: a quotient by the size is not the same at all points"),
    "over the edge of a slice": ("L[n<N,h<6] C[6*n+h+1]", "is not the same in all slices"),
    "divided in two ways": ("L[n<N,c<8] B[2*n,c] + B[n,c]", "divides the tensor otherwise"),
    "a mean over it": ("L[c<8] Σ[n<N] A[n,c]", "the result has no dimension"),
    "a softmax over it": ("L[n<N,c<8] A[n,c] / {L[c<8] Σ[n<N] A[n,c]}[c]", "reduces over what follows the size: sum[n<N]"),
    "pairs": ("L[n<N,m<N] A[n,0]*A[m,0]", "2 dimensions"),
    "the size as a number": ("L[n<N,c<8] A[n,c]*1/N", "a number of the expression"),
    "a slice's number": ("L[n<N,c<8] A[n,c]*val(n)", "val(n): it is not the same"),
    "all but the first": ("L[n<N,c<8] select(n>=1, A[n,c], 0)", "the condition n-1 >= 0: it is not"),
    "all but the last": ("L[n<N,c<8] select(n==N-1, A[n,c], 0)", "the condition n-N-1 == 0: it is not"),
    "what grows with it": ("L[n<N,c<8] A[n,c]*W[N-1]", "the read W[N-1]: it is not the same"),
    "what is scaled by it": ("L[n<N,c<8] A[n,c]*W[c*N]", "a multiple of the size where nothing follows it"),
    "a diagonal": ("L[n<N,c<8] A[n,(n+c)%8]", "is not the same in all slices"),
    "half of the sizes": ("L[n<N,c<8] A[n,c]*W[N//2]", "is not the same in all slices"),
    "a square": ("L[n<N,c<8] A[n*N,c]", "multiplied by what follows it"),
    "a number of slices": ("L[5<=n<N,c<8] A[n,c]", "does not start at 0"),
    "not declared": ("L[n<N,c<8] D[n,c]", "tensor D is not declared"),
    "no derivation of a range": ("L[n<5,c<8] A[n,c]", "the result has no dimension"),
    "the last element at one size": ("L[n<N,c<8] A[n,c]*W[7*N]", "the read W[7*N]: it is not the same in all slices"),
    "the first of a block": ("L[m<2*N,c<8] select(m==N, A[m-N,c], B[m,c])", "it is not the same in all slices"),
    "the last of a block": ("L[m<2*N,c<8] select(N-1-m==0, A[m,c], B[m,c])", "it is not the same in all slices"),
    "the last of a block of two": ("L[m<6*N] select(2*N-1-m==0, C[m]*W[m%2], 0)", "it is not the same in all slices"),
    "a nested scope that takes one": ("L[n<N,c<8] A[n,c]*{L[c<8] A[0,c]}[c]", "does not follow the slices"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_sliced_is_refused_with_the_reason(name: str):
    body, why = REFUSED[name]
    text = file(f"{DECLARED}from {body}\n")
    with pytest.raises(Unsliced):
        sliced(text.sized())
    assert why in str(text.for_every_size())


WRONG = {
    "equal at 1, transposed beyond": ("L[m<6*N] C[m]*W[m//6]", "L[m<6*N] C[m]*W[m%N]"),
    "equal at 1, slices in turns beyond": ("L[m<6*N] C[m]*W[m%6]", "L[m<6*N] C[m//6 + N*(m%6)]*W[m%6]"),
    "equal at 1, the first slice beyond": ("L[n<N,c<8] A[n,c]", "L[n<N,c<8] A[0,c]"),
    "equal at 1, backwards beyond": ("L[n<N,c<8] A[n,c]", "L[n<N,c<8] A[N-1-n,c]"),
    "equal at 1, another half beyond": ("L[n<N,c<8] B[n,c]", "L[n<N,c<8] B[2*n,c]"),
    "equal at 1, summed beyond": ("L[n<N,c<8] A[n,c]", "L[n<N,c<8] Σ[m<N] A[m,c]"),
    "equal at 1, cut beyond": ("L[n<N,c<8] A[n,c]", "L[n<N,c<8] {L[n<1,c<8] A[n,c]}[n,c]"),
    "equal at 1, scaled beyond": ("L[n<N,c<8] A[n,c]", "L[n<N,c<8] A[n,c]*N"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_right_at_1_and_wrong_at_2_has_no_proof(name: str):
    before, after = WRONG[name]
    text = file(f"{DECLARED}from {before}\nby fold\n   {after}\n")
    assert text.at_one(1)
    assert isinstance(text.for_every_size(), str)
    with pytest.raises(CertificateError, match="at N = 2"):
        text.check()


def test_results_of_other_shapes_are_not_sliced():
    text = file(f"{DECLARED}from L[n<N,c<8] A[n,c]\nby fold\n   L[n<N,c<7] A[n,c]\n")
    with pytest.raises(Unsliced, match="the results have different shapes"):
        sliced(text.sized())


def test_what_is_wrong_within_a_slice_is_told_with_the_size():
    text = file(f"{DECLARED}from L[n<N,c<8] A[n,c]\nby fold\n   L[n<N,c<8] A[n,7-c]\n")
    sliced(text.sized())
    with pytest.raises(CertificateError, match="at N = 1: step 1"):
        text.check()


def test_operations_in_other_groups_are_found_for_every_size():
    """Equal, sliced, but a step of class exact that sums in another way."""
    text = file(f"{DECLARED}from L[n<N] Σ[c<8] A[n,c]\nby split\n   L[n<N] Σ[d<2] {{L[n<N,d<2] Σ[e<4] A[n,4*d+e]}}[n,d]\n")
    with pytest.raises(CertificateError, match="in other groups"):
        text.check()


@pytest.mark.parametrize("number", ["N.5", "N.", "2*N.5", f"1{'0' * 60}*N"])
def test_a_size_hidden_in_a_number_is_no_number(number: str):
    assert "a number of the expression" in str(file(f"{DECLARED}from L[n<N,c<8] A[n,c]*{number}\n").for_every_size())


def test_other_strides_than_the_size_of_a_slice_are_tried_as_far_as_they_are_not_too_many():
    most = 9 * 10**16
    body = f"C : f32[{most}*N]\nfrom L[m<{most}*N] C[{{}}]\n"
    assert sliced(file(body.format("m")).sized()).result.stride == most
    assert sliced(file(body.format(f"{most}*(m%N)+m//N")).sized()).result.stride == 1
    assert "not the same" in str(file(body.format("m+1")).for_every_size())


def test_sizes_below_1_have_no_common_proof():
    text = RangedFile("N", 0, 3, (0, 1, 2), f"{DECLARED}from L[n<N,c<8] A[n,c]\n")
    assert text.for_every_size() == "a size is less than 1"


@pytest.mark.parametrize("body", ["", "A : f32[N]\n", "match Matmul(m=n)\n", "by fold\n   L[n<N] 1\n", "from L[n<N] C[n\n", "from\n"])
def test_what_is_no_derivation_has_no_proof(body: str):
    text = file(body)
    assert isinstance(text.for_every_size(), str)
    with pytest.raises(CertificateError, match="at N = 1"):
        text.check()


def frame_of(place: Place | None) -> Frame:
    return points(Scope((Iter("m", 0, 6),), (Iter("k", 1, 4),), Const(Fraction(1))), place)


@pytest.mark.parametrize(("blocks", "stride", "ranges", "many", "rest"), [
    (3, 2, {"m#a": (0, 3), "m#b": (0, 2)}, 2 * A, 2 * S + B), (2, 3, {"m#a": (0, 2), "m#b": (0, 3)}, 3 * A, 3 * S + B),
    (1, 6, {"m#b": (0, 6)}, ZERO, 6 * S + B), (6, 1, {"m#a": (0, 6)}, A, S), (1, 1, {}, ZERO, S),
])  # fmt: skip
def test_points_of_a_slice(blocks: int, stride: int, ranges: dict[str, Range], many: Index, rest: Index):
    frame = frame_of(Place(0, blocks, stride))
    assert frame.iterators["m"] == Sized(many, rest) and frame.iterators["k"] == Sized(ZERO, var("k"))
    assert frame.ranges == {**ranges, "k": (1, 4)}


def test_blocks_and_places_within_a_slice():
    """An index that leaves a slice at one end is in the block beside it."""
    place = Place(0, 3, 2)
    frame = frame_of(place)
    for moved in (0, -1, 1):
        assert parts(frame, Sized(2 * A, 2 * S + B + 2 * moved * N), place) == (A + moved, 2 * S + B)
    with pytest.raises(Unsliced, match="in parts"):
        parts(frame, Sized(3 * A, 2 * S + B), place)
    with pytest.raises(Unsliced, match="not the same at all points"):
        parts(frame, Sized(2 * A, 2 * S + B + 1), place)
    assert parts(frame, Sized(Index((), 5), B), Place(0, 1, 2)) == (ZERO, B + 5 * N)
    assert parts(frame, Sized(Index((), 4), B), Place(0, 3, 2)) == (Index((), 2), B), "one block of all"


@pytest.mark.slow
def test_many_more():
    assert share(copies().map(lambda scope: known(written(scope))), 2000) > 0.6
    assert share(steps().map(proven), 500) > 0.4
