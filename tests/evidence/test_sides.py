"""What pads a tensor beyond what is read of it says nothing; what is read says all."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from einnet.derivation.checker.exact import marked
from einnet.errors import CertificateError
from einnet.evidence.normal import changes, flat, narrowed, with_unit_reads, within_reach
from einnet.evidence.prove import compared
from einnet.evidence.sides import grouped, key_of, levels, matched_by_cells
from einnet.expr.index import Index
from einnet.expr.nodes import Cond, Const, Iter, Scope, Select, nested, tensors, used_names, walk
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

HEAD = "A : f32[32,64,64]\nU : f32[200000]\nV : f32[32,64,64]\n"
END = "L[b<32,m<64,n<64] {L[b<32,m<64,n<64] Σ[k<64] {L[b<32,m<64,k<64] select(m-k>=0, A[b,m,k], 0)}[b,m,k]*V[b,k,n]}[b,m,n]"
PADDED = (
    "L[b<32,m<64,n<64] {L[b<32,i<65,n<64] Σ[k<64] {L[b<32,i<65,k<64] select(-i+63>=0, "
    "{L[b<32,m<64,k<64] select(m-k>=0, A[b,m,k], 0)}[b,i,k], U[4160*b+64*i+k])}[b,i,k]*V[b,k,n]}[b,m,n]"
)


def test_rows_that_nobody_reads_are_left_out() -> None:
    small = within_reach(parse(HEAD + PADDED))
    assert all(s.shape[1] == 64 for s in walk(small))
    assert grouped(parse(HEAD + END), parse(HEAD + PADDED)).method == "inline"


def test_what_is_read_outside_stays_outside() -> None:
    for index in ("[t]|2", "[t-7]|2", "[t/2]", "[t+9]"):
        scope = parse(HEAD + f"L[t<9] {{L[s<5] A[s,0,0]}}{index}")
        assert grouped(scope, within_reach(scope)).method == "inline"


@pytest.mark.parametrize(("old", "new"), [("-i+63>=0", "-i+62>=0"), ("[b,m,n]", "[b,m+1,n]"), ("m-k>=0", "m-k-1>=0"), ("V[b,k,n]", "V[b,n,k]")])
def test_another_tensor_is_none(old: str, new: str) -> None:
    head, _, tail = PADDED.rpartition(old)
    with pytest.raises(CertificateError):
        grouped(parse(HEAD + END), parse(HEAD + head + new + tail))


CHUNKS = (
    "L[b<4,i<8,m<64,n<64] {L[b<4,i<8,m<64,n<64] Σ[k<64] {L[b<4,i<8,m<64,k<64] A[8*b+i,m,k]*exp(0.25*val(m+1))}[b,i,m,k]"
    "*{L[b<4,i<8,k<64,n<64] Σ[j<8] select(i-j-1>=0, exp(val(j-i))*V[8*b+j,k,n], 0)}[b,i,k,n]}[b,i,m,n]"
)
ROWS = (
    "L[b<4,i<8,m<64,n<64] {L[c<32,i<65,n<64] Σ[k<64] {L[c<32,i<65,k<64] select(-i+63>=0, "
    "{L[b<4,i<8,m<64,k<64] A[8*b+i,m,k]*exp(0.25*val(m+1))}[c//8,c%8,i,k], U[4160*c+64*i+k])}[c,i,k]"
    "*{L[b<4,i<8,k<64,n<64] Σ[j<8] select(i-j-1>=0, exp(val(j-i))*V[8*b+j,k,n], 0)}[c//8,c%8,k,n]}[8*b+i,m,n]"
)


def test_what_depends_on_a_chunk_is_grouped_alike_where_chunks_and_batch_are_one_dimension() -> None:
    assert grouped(parse(HEAD + CHUNKS), parse(HEAD + ROWS)).method == "inline"


@pytest.mark.parametrize(("old", "new"), [("val(j-i)", "val(j-i-1)"), ("val(m+1)", "val(m+2)"), ("i-j-1>=0", "i-j>=0"), ("-i+63>=0", "-i+62>=0")])
def test_another_decay_is_none(old: str, new: str) -> None:
    head, _, tail = ROWS.rpartition(old)
    with pytest.raises(CertificateError):
        grouped(parse(HEAD + CHUNKS), parse(HEAD + head + new + tail))


HALVES = (  # one of 32, its rows in two halves, each with as many columns as it needs
    "L[i<8,m<64,n<64] {L[b<32,i<8,m<32,n<64] Σ[k<32] select(m-k>=0, exp(val(k-m))*{L[b<32,i<8,m<32,k<32] Σ[j<64] A[b,m,j]*V[b,j,8*k+i]}[b,i,m,k], 0)"
    "*A[b,k,n]}[3,i,m,n] + {L[b<32,i<8,32<=m<64,n<64] Σ[k<64] select(m-k>=0, exp(val(k-m))*"
    "{L[b<32,i<8,32<=m<64,k<64] Σ[j<64] A[b,m,j]*V[b,j,k%8+i]}[b,i,m,k], 0)*A[b,k,n]}[3,i,m,n]"
)
ONE_HEAD = (
    "L[i<8,m<64,n<64] select(-m+31>=0, {L[i<8,q<33,n<64] Σ[k<32] select(-q+31>=0, select(q-k>=0, exp(val(k-q))*"
    "{L[i<8,q<32,k<32] Σ[j<64] A[3,q,j]*V[3,j,8*k+i]}[i,q,k], 0), U[1056*i+32*q+k])*A[3,k,n]}[i,m,n], 0) + "
    "select(m-32>=0, {L[i<8,q<33,n<64] Σ[k<64] select(-q+31>=0, select(q-k+32>=0, exp(val(k-q-32))*"
    "{L[i<8,q<32,k<64] Σ[j<64] A[3,q+32,j]*V[3,j,k%8+i]}[i,q,k], 0), U[2112*i+64*q+k])*A[3,k,n]}[i,m-32,n], 0)"
)


def test_rows_beyond_what_a_choice_takes_are_left_out_and_one_of_many_has_no_dimension() -> None:
    assert grouped(parse(HEAD + HALVES), parse(HEAD + ONE_HEAD)).method == "inline"


@pytest.mark.parametrize(
    ("old", "new"), [("-m+31>=0", "-m+32>=0"), ("val(k-q-32)", "val(k-q-31)"), ("[i,m-32,n]", "[i,m-31,n]"), ("A[3,q+32", "A[4,q+32")]
)
def test_another_row_or_head_is_none(old: str, new: str) -> None:
    head, _, tail = ONE_HEAD.rpartition(old)
    with pytest.raises(CertificateError):
        grouped(parse(HEAD + HALVES), parse(HEAD + head + new + tail))


IMAGE = "A : f32[1,2,4,4,32]\nW : f32[64,32,3,3]\nB : f32[64]\n"
CONVOLVED = "L[f<64] Σ[h<2,w<2] relu({{L[h<2,w<2,f<64] Σ[c<32,r<3,s<3] {}[0,0,h+r-1,w+s-1,c]*W[f,c,r,s]}}[h,w,f] + B[f])"
POOLED = CONVOLVED.format("{L[n<1,d<1,h<2,w<2,c<32] max[q<2,r<2,s<2] A[0,q,2*h+r,2*w+s,c]|-inf}")
VIEWED = CONVOLVED.format(
    "{L[i0<1,i1<1,i2<2,i3<2,i4<32] {L[i0<1,i1<32,i2<1,i3<2,i4<2] max[r0<2,r1<2,r2<2] "
    "{L[i0<1,i1<32,i2<2,i3<4,i4<4] A[0,i2,i3,i4,i1]}[i0,i1,i2+r0,2*i3+r1,2*i4+r2]|-inf}[0,i4,0,i2,i3]}"
)


def test_padding_that_is_not_reached_says_nothing() -> None:
    """A convolution of a maximum over windows that lie inside: views give -inf beyond them, or nothing, or have another order of dimensions."""
    end, plan = parse(IMAGE + POOLED), parse(IMAGE + VIEWED)
    method, _, problem = compared(end, end, plan, True)
    assert (method, problem) == ("normal form", "")
    for old, new in (("2*i3+r1", "2*i3+r1-1"), ("h+r-1", "h+r-2"), ("i2,i3,i4,i1]}", "i2,i4,i3,i1]}"), ("max[", "min[")):
        other = parse(IMAGE + VIEWED.replace(old, new))
        assert compared(end, end, other, True)[2], (old, new)


@pytest.mark.parametrize("fill", ["0", "3"])
@pytest.mark.parametrize("index", ["(d-q)/2", "(d+q)/2", "(d-q+1)/3", "d-q", "(d-q)//2", "(d+q)//2", "d+q-1", "(2*d-q)/4", "(d-q)%2"])
def test_the_index_of_a_unit_dimension_stays_a_condition(index: str, fill: str) -> None:
    """Where it is a fraction nothing is read either, though the only whole number between its bounds is 0."""
    scope = parse(f"A : f32[1,3]\nL[d<2,w<3] Σ[q<2] A[{index},w]|{fill}")
    values = {"A": np.array([[1.0, 20.0, 300.0]])}
    np.testing.assert_array_equal(evaluate(with_unit_reads(scope), values), evaluate(scope, values))


def test_padding_that_is_reached_stays() -> None:
    inside, beyond, below = (f"A : f32[{n}]\nL[i<4] max[r<2] A[{at}]" for n, at in ((8, "2*i+r"), (7, "2*i+r"), (8, "2*i+r-1")))
    assert with_unit_reads(parse(inside + "|-inf")) == parse(inside)
    for text in (beyond, below, "A : f32[8]\nL[i<8] A[i/2]"):
        assert with_unit_reads(parse(text + "|-inf")) == parse(text + "|-inf") != parse(text)


JOINED = "A : f32[4,4,9]\nU : f32[3,9]\nV : f32[4,9]\nW : f32[2,9]\n"
CHOSEN = (
    "L[f<9] Σ[h<4,w<4] {L[h<4,w<4,f<9] select(f-7>=0, {L[h<4,w<4,f<2] relu({L[h<4,w<4,f<2] Σ[c<9] A[h,w,c]*W[f,c]}[h,w,f] + 1)}[h,w,f-7], "
    "select(f-3>=0, {L[h<4,w<4,f<4] tanh({L[h<4,w<4,f<4] Σ[c<9] A[h,w,c]*V[f,c]}[h,w,f] + 2)}[h,w,f-3], "
    "{L[h<4,w<4,f<3] relu({L[h<4,w<4,f<3] Σ[c<9] A[h,w,c]*U[f,c]}[h,w,f] + 3)}[h,w,f]))}[h,w,f]"
)
ROWWISE = (
    "L[f<9] Σ[h<4,w<4] select(f-7>=0, relu({L[i<16,f<2] Σ[c<9] A[i//4,i%4,c]*W[f,c]}[4*h+w,f-7] + 1), "
    "select(f-3>=0, tanh({L[i<16,f<4] Σ[c<9] A[i//4,i%4,c]*V[f,c]}[4*h+w,f-3] + 2), relu({L[i<16,f<3] Σ[c<9] A[i//4,i%4,c]*U[f,c]}[4*h+w,f] + 3)))"
)

PARTS = "A : f32[6,8,9]\nB : f32[6,9,3,5]\nC : f32[5]\n"
WHOLE = "L[h<8,f<5] relu({L[h<8,f<5] Σ[c<6] {L[c<6,h<8,f<5] Σ[s<3] {L[c<6,h<8,s<3,f<5] Σ[k<9] A[c,h,k]*B[c,k,s,f]}[c,h+s-1,s,f]}[c,h,f]}[h,f] + C[f])"
CHUNK = "{{L[c<2,h<8,f<5] Σ[s<3] {{L[c<2,h<8,j<15] Σ[k<9] A[c+{0},h,k]*B[c+{0},k,j//5,j%5]}}[c,h+s-1,5*s+f]}}[i-{0},h,f]"
CHUNKED = (
    f"L[h<8,f<5] relu({{L[h<8,f<5] Σ[c<6] {{L[i<6,h<8,f<5] select(i-4>=0, {CHUNK.format(4)}, select(i-2>=0 & -i+3>=0, {CHUNK.format(2)}, "
    f"{CHUNK.format(0)}))}}[c,h,f]}}[h,f] + C[f])"
)


def test_what_is_computed_in_chunks_is_grouped_alike() -> None:
    """Joined tensors under a sum, where only one side has the choice inside functions; and a sum whose parts come in chunks."""
    for head, one, other in ((JOINED, CHOSEN, ROWWISE), (PARTS, WHOLE, CHUNKED)):
        for pair in ((one, other), (other, one)):
            assert matched_by_cells(*(parse(head + text) for text in pair), marked)
    assert grouped(parse(PARTS + WHOLE), parse(PARTS + CHUNKED)).details == "operations grouped alike, cell by cell"


OTHERS = (("f-7>=0", "f-6>=0"), ("f-3>=0", "f-4>=0"), ("W[f,c]", "W[f-1,c]"), ("V[f,c]", "V[f,c+1]"), ("U[f,c]", "U[c,f]"), ("+ 1", "+ 2"))
PLACES = (("[4*h+w,f-7]", "[5*h,f-7]"), ("[4*h+w,f-3]", "[4*h+w,f-2]"), ("tanh", "exp"), ("+ 3", "- 3"), ("Σ[h<4,w<4]", "Σ[h<4,w<3]"))


@pytest.mark.parametrize(("old", "new"), OTHERS + PLACES)
def test_another_joined_tensor_is_none(old: str, new: str) -> None:
    assert old in ROWWISE
    assert not matched_by_cells(parse(JOINED + CHOSEN), parse(JOINED + ROWWISE.replace(old, new)), marked)


WITHIN = (("A[c+{0},", "A[c+{0}+1,"), ("h+s-1", "h+s"), ("j//5,j%5", "j%3,j//3"), ("[i-{0},", "[i-{0}+1,"), ("Σ[k<9]", "Σ[k<8]"))


@pytest.mark.parametrize("start", [0, 2, 4])
@pytest.mark.parametrize(("old", "new"), WITHIN)
def test_another_chunk_is_none(start: int, old: str, new: str) -> None:
    wrong = CHUNKED.replace(CHUNK.format(start), CHUNK.replace(old, new).format(start))
    assert wrong != CHUNKED
    assert not matched_by_cells(parse(PARTS + WHOLE), parse(PARTS + wrong), marked)


def test_another_box_is_none() -> None:
    """The same numbers at other places."""
    assert matched_by_cells(parse(JOINED + CHOSEN), parse(f"{JOINED}L[g<9] {{{ROWWISE}}}[g]"), marked)
    assert not matched_by_cells(parse(JOINED + CHOSEN), parse(f"{JOINED}L[1<=g<10] {{{ROWWISE}}}[g-1]"), marked)


def test_of_several_conditions_one_that_fails_is_enough() -> None:
    scope = parse("A : f32[6]\nL[i<6,j<2] select(i-2>=0 & -i+3>=0, A[i], A[j])")
    assert list(changes(scope)) == [(0, 2), (0, 4)]
    assert [used_names(narrowed(scope, (cell, (0, 2))).body) for cell in ((0, 2), (2, 4), (4, 6))] == [{"j"}, {"i"}, {"j"}]


def test_sums_in_other_groups_are_not_alike_by_cells() -> None:
    """The same tensor, its channels added up two by two: equal, and computed otherwise."""
    pairs = CHUNKED.replace("Σ[c<6] {", "Σ[a<3] {L[a<3,h<8,f<5] Σ[b<2] {").replace("}[c,h,f]}[h,f]", "}[2*a+b,h,f]}[a,h,f]}[h,f]")
    assert not matched_by_cells(parse(PARTS + WHOLE), parse(PARTS + pairs), marked)


ONE, TWO = Const(Fraction(1)), Const(Fraction(2))


@pytest.mark.parametrize("equal", [False, True])
def test_choices_change_where_they_are_said_to(equal: bool) -> None:
    """Between two neighbours along a loop a condition changes at places that are told, and within a cell never."""
    for k, const, lo in product((-3, -2, -1, 1, 2, 3), range(-7, 8), (-2, 0)):
        choice = Select((Cond(Index((("i", k),), const), equal),), ONE, TWO)
        scope = Scope((Iter("a", 0, 2), Iter("i", lo, 6)), (), choice)
        truth = [k * i + const == 0 if equal else k * i + const >= 0 for i in range(lo, 6)]
        seen = {(1, lo + n) for n in range(1, len(truth)) if truth[n] != truth[n - 1]}
        assert seen <= set(changes(scope)) <= {(1, n) for n in range(lo + 1, 6)}
        assert equal or seen == set(changes(scope))
        ends = sorted({lo, 6, *(place for _, place in changes(scope))})
        for low, high in pairwise(ends):
            left = narrowed(scope, ((0, 2), (low, high))).body
            assert left == (ONE if truth[low - lo] else TWO) or (left == choice and equal and const % k)


QKV = "Q : f32[8,256,32]\nK : f32[8,256,32]\nV : f32[8,256,32]\n"


def masked_attention(lo: int, hi: int, scores: str, at: str) -> str:
    """A sum over the rows from lo to hi of masked attention, which see no column from hi on; `scores` are read at `at`."""
    rows, power = f"b<8,{lo}<=m<{hi}", f"{scores}[b,{at},n] + select(m-n>=0, 0, -inf)"
    power = f"exp({power} + (-1)*{{L[{rows}] max[n<{hi}] {power}}}[b,m])"
    return f"Σ[k<{hi}] {{L[{rows},n<{hi}] {power} / {{L[{rows}] Σ[n<{hi}] {power}}}[b,m]}}"


def blocks_at_the_last() -> str:
    """Four blocks of rows, added up where the last one is."""
    found = []
    for lo, hi in pairwise(range(0, 257, 64)):
        scores = f"{{L[b<8,{lo}<=m<{hi},n<{hi}] Σ[k<32] Q[b,m,k]*K[b,n,k]}}"
        found.append(f"{{L[b<8,{lo}<=m<{hi},n<32] {masked_attention(lo, hi, scores, 'm')}[b,m,k]*V[b,k,n]}}[i,j+192,n]")
    return f"L[i<8,j<64,n<32] {' + '.join(found)}"


LAST_BLOCK = (
    "L[i<8,j<64,n<32] " + masked_attention(192, 256, "{L[b<8,j<64,n<256] Σ[k<32] Q[b,j+192,k]*K[b,n,k]}", "m-192") + "[i,j+192,k]*V[i,k,n]"
)


def test_blocks_that_a_kernel_does_not_write_are_not_compared_with_it() -> None:
    """They are 0 where it writes, which no evaluation need find: of four blocks of masked attention there are too many points."""
    end, plan = parse(QKV + blocks_at_the_last()), parse(QKV + LAST_BLOCK)
    assert compared(end, end, plan, True) == ("normal form", "equal normal forms", "")
    assert [len(nested(e)) for e in (end, with_unit_reads(end))] == [4, 1]


@pytest.mark.parametrize(
    ("old", "new"), [("Σ[k<256]", "Σ[k<192]"), ("[i,j+192,k]", "[i,j+191,k]"), ("Q[b,j+192,k]", "Q[b,j+191,k]"), ("m-n>=0", "m-n-1>=0")]
)
def test_another_block_is_none(old: str, new: str) -> None:
    end, plan = parse(QKV + blocks_at_the_last()), parse(QKV + LAST_BLOCK.replace(old, new))
    assert compared(end, end, plan, True)[2]


PLANES = "X : f32[5,5,12]\nY : f32[5,5,12]\nK : f32[4,4,3]\nM : f32[4,4,3]\nT : f32[4]\nU : f32[4]\n"
DOWN, ALONG = "{L[h<5,w<5,f<4] Σ[r<3] X[h+r-1,w,f+4*r]}", "{L[h<5,w<5,f<4] Σ[s<3] Y[h,w+s-1,f+4*s]}"
BLOCKS = (
    "{L[b<2,c<4,h<5,w<5,f<4] Σ[s<3] ({L[b<1,c<4,h<5,w<5,s<3] {L[h<5,w<5,c<4] relu(" + DOWN + "[h,w,c] + T[c])}[h,w+s-1,c]}[b,c,h,w,s] + "
    "{L[b<1,c<4,h<5,w<5,s<3] {L[h<5,w<5,c<4] relu(" + ALONG + "[h,w,c] + U[c])}[h+s-1,w,c]}[b-1,c,h,w,s])"
    "*({L[b<1,c<4,f<4,s<3] K[f,c,s]}[b,c,f,s] + {L[b<1,c<4,f<4,s<3] M[f,c,s]}[b-1,c,f,s])}"
)
STACKED = (
    "{L[i<8,j<25,f<4] Σ[k<3] select(i-4>=0, relu(select(j//5+k-1>=0 & -(j//5)-k+5>=0, " + ALONG + "[j//5+k-1,j%5,i-4] + U[i-4], 0)), "
    "relu(select(j%5+k-1>=0 & -(j%5)-k+5>=0, " + DOWN + "[j//5,j%5+k-1,i] + T[i], 0)))*select(i-4>=0, M[f,i-4,k], K[f,i,k])}"
)
BOTH = "L[h<5,w<5,f<4] relu({L[h<5,w<5,f<4] Σ[c<4] %s}[h,w,f] + T[f]) + relu({L[h<5,w<5,f<4] Σ[c<4] %s}[h,w,f] + U[f])"
TWO_BLOCKS = BOTH % (BLOCKS + "[0,c,h,w,f]", BLOCKS + "[1,c,h,w,f]")
TWO_READS = BOTH % (STACKED + "[c,5*h+w,f]", STACKED + "[c+4,5*h+w,f]")


def test_two_blocks_that_are_added_are_one_tensor_whose_rows_are_read_in_two_places() -> None:
    """What a function of a sum is 0 beyond is a condition within it, of a term that may be 0 there without: beside it stands a weight."""
    one, other = parse(PLANES + TWO_BLOCKS), parse(PLANES + TWO_READS)
    assert compared(one, one, other, True) == ("normal form", "equal normal forms", "")
    assert grouped(one, other).method == "inline"


@pytest.mark.parametrize(("old", "new"), [
    ("j//5+k-1>=0", "j//5+k>=0"), ("-(j//5)-k+5>=0", "-(j//5)-k+4>=0"), ("j%5+k-1>=0", "j%5+k-2>=0"), ("-(j%5)-k+5>=0", "-(j%5)-k+6>=0"),
    ("j//5+k-1>=0", "j//5+j%5-1+k>=0"), ("i-4>=0, relu", "i-5>=0, relu"), (" + U[i-4], 0)", ", 0) + U[i-4]"), (" + T[i], 0)", ", 0) + T[i]"),
    ("U[i-4], 0)", "U[i-4], 1)"), ("[c+4,5*h+w,f]", "[c,5*h+w,f]"), ("[c+4,5*h+w,f]", "[c+4,5*w+h,f]"), ("M[f,i-4,k]", "M[i-4,f,k]"),
    ("-1,i] + T", ",i] + T"),
])  # fmt: skip
def test_rows_or_windows_that_are_others_are_no_blocks(old: str, new: str) -> None:
    assert old in TWO_READS
    one, other = parse(PLANES + TWO_BLOCKS), parse(PLANES + TWO_READS.replace(old, new))
    method, _, problem = compared(one, one, other, True)
    assert not method and problem
    with pytest.raises(CertificateError):
        grouped(one, other)


def test_another_group_of_the_same_blocks_is_told() -> None:
    """A weight that is added in two parts leaves the values, and no more than these."""
    one, other = parse(PLANES + TWO_BLOCKS), parse(PLANES + TWO_READS.replace(" + U[i-4], 0)", " + 1/3*U[i-4] + 2/3*U[i-4], 0)"))
    method, _, problem = compared(one, one, other, True)
    assert method and problem


ROWS_OF_POINTS = "Y : f32[1,16,16,128]\nW : f32[128,128]\nQ : f32[5,128,8,3,3]\nb : f32[128]\n"
MAXIMA = (
    "L[h<8,w<8,f<5] Σ[c<128,r<3,s<3] {L[n<1,h<8,w<8,c<128] max[r<2,s<2] relu({L[h<16,w<16,c<128] Σ[k<128] Y[0,h,w,k]*W[c,k]}[2*h+r,2*w+s,c] + b[c])}"
    "[0,h+r-1,w+s-1,c]*Q[f,c,h,r,s]"
)
MAXIMA_ROWS = (
    "L[h<8,w<8,f<5] Σ[c<128,r<3,s<3] {L[n<1,c<128,h<8,w<8] max[r<2,s<2] relu({L[i<256,c<128] Σ[k<128] Y[0,i//16,i%16,k]*W[c,k]}[32*h+2*w+16*r+s,c]"
    " + b[c])}[0,c,h+r-1,w+s-1]*Q[f,c,h,r,s]"
)


def test_what_both_read_in_another_order_of_dimensions_is_one_part() -> None:
    found = list(levels(parse(ROWS_OF_POINTS + MAXIMA), parse(ROWS_OF_POINTS + MAXIMA_ROWS), lambda s: key_of(marked(s))))
    assert found[0][0].key == found[0][1].key and [t.shape for name, t in tensors(found[0][0]).items() if name.startswith("part")] == [(8, 8, 128, 1)]
    assert grouped(parse(ROWS_OF_POINTS + MAXIMA), parse(ROWS_OF_POINTS + MAXIMA_ROWS)).method == "inline"


@pytest.mark.parametrize("exchanged", ["[0,c,w+s-1,h+r-1]", "[0,c,h+r,w+s-1]"])
def test_another_order_of_reading_is_another_tensor(exchanged: str) -> None:
    with pytest.raises(CertificateError):
        grouped(parse(ROWS_OF_POINTS + MAXIMA), parse(ROWS_OF_POINTS + MAXIMA_ROWS.replace("[0,c,h+r-1,w+s-1]", exchanged)))


SCALED = "L[w<8] select(w//2+w%2-4>=0, {S}[3], {S}[w//2+w%2])".replace("S", "L[w<4] 0.1*{L[w<4] B[w]*B[w]}[w] + 2")
GUARDED = (
    "L[w<8] select(w//2+w%2-4>=0, 0.1*B[3]*B[3] + 2, select(-(w//2)-w%2+3>=0, 0.1*select(-(w//2)-w%2+3>=0, B[w//2+w%2]*B[w//2+w%2], 0) + 2, 0))"
)


def test_a_guard_that_says_what_is_known_groups_nothing() -> None:
    assert grouped(parse("B : f32[4]\n" + SCALED), parse("B : f32[4]\n" + GUARDED)).method == "inline"
    with pytest.raises(CertificateError):
        grouped(parse("B : f32[4]\n" + SCALED), parse("B : f32[4]\n" + GUARDED.replace("0.1*B[3]", "B[3]", 1)))


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ("{L[b<1,i<4,c<1] A[i,b]}[0,i,0]", "{L[i<4] A[i,0]}[i]"),
        ("{L[2<=b<3,i<4] A[i,b - 2]}[2,i]", "{L[i<4] A[i,0]}[i]"),
        ("{L[b<1,i<4] A[i,b]}[k,i]", "select(k==0, {L[i<4] A[i,0]}[i], 0)"),
        ("{L[2<=b<3,i<4] A[i,b - 2]}[k,i]|5", "select(k-2==0, {L[i<4] A[i,0]}[i]|5, 5)"),
        ("{L[b<1,i<4] A[i,b]}[k/2,i]", "select(k==0, {L[i<4] A[i,0]}[i], 0)"),
        ("{L[b<1,c<1] A[c,b]}[k,0]", "select(k==0, {L[] A[0,0]}[], 0)"),
        ("{L[] A[3,1]}[]", "{L[] A[3,1]}[]"),
        ("{L[b<1,i<4] val(b + i)}[0,i]", "{L[i<4] val(i)}[i]"),
    ],
)
def test_dimensions_of_one_place_are_none_of_scopes_inside(read: str, left: str) -> None:
    """What is read outside of that place stays outside."""
    scope, bare = (parse(f"A : f32[4,2]\nL[i<4,k<3] {body} + A[0,0]") for body in (read, left))
    found = with_unit_reads(scope)
    assert found.text().splitlines()[-1] == bare.text().splitlines()[-1]
    values = {"A": np.arange(1.0, 9.0).reshape(4, 2)}
    np.testing.assert_array_equal(evaluate(found, values), evaluate(scope, values))


def test_a_mean_in_two_shapes_is_one_tensor() -> None:
    """A normalisation reads what it takes the mean of in two shapes, with and without the dimensions that the model keeps; a plan has it in one."""
    declared = "x : f32[1,6,8]\nu : f32[1,6,16]\nw : weight f32[16,8]\nc : weight f32[8]\nv : weight f32[5,8]\n"

    def form(row: str, at: str, ends: str, place: str) -> str:
        """One over the standard deviation of rows; `row` is an element of them, `at` and `ends` how means are read, `place` what they stand at."""
        mean = f"{{L[{ends}] {{L[{ends}] Σ[n<8] {row}}}[{at}] / 8}}[{place}]"
        square = f"({row} + (-1)*{mean})*({row} + (-1)*{mean})"
        return f"1 / sqrt({{L[{ends}] {{L[{ends}] Σ[n<8] {square}}}[{at}] / 8}}[{place}] + 0.001)"

    layer = "{L[b<1,m<6,n<8] Σ[k<16] u[0,m,k]*w[k,n]}"
    flat_row = f"{{L[m<6,n<8] x[0,m,n] + {layer}[0,m,n] + c[n]}}[m,n]"
    kept_row = f"{{L[b<1,m<6,n<8] x[b,m,n] + {{L[b<1,m<6,n<8] {layer}[b,m,n] + c[n]}}[b,m,n]}}[0,m,n]"
    mean = f"{{L[m<6] Σ[n<8] {flat_row}}}[m] / 8"
    ends = form(kept_row, "b,m,d", "b<1,m<6,d<1", "0,m,0"), form(flat_row, "m", "m<6", "m")
    model, plan = (parse(f"{declared}L[p<5] Σ[n<8] {{L[n<8] Σ[m<6] ({flat_row} + (-1)*{mean})*{e}}}[n]*v[p,n]") for e in ends)
    assert grouped(with_unit_reads(model), with_unit_reads(plan)).method == "inline", "without evaluating, which takes too long of large ones"
    other = parse(plan.text().replace("0.001", "0.002"), {t.name: t for t in tensors(plan).values()})
    assert compared(model, model, other, True)[2]


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ("{L[i<36] A[i//6,i%6]}[6*h+w]", "{L[a<6,b<6] A[a,b]}[h,w]"),
        ("{L[i<36] A[i//6,i%6]}[6*h+w+3]|2", "{L[a<6,b<6] A[a,b]}[h+(w+3)//6,(w+3)%6]|2"),
        ("{L[i<36] A[i//6,i%6]}[6*h+w-8]|2", None),
        ("{L[i<36] A[i//6,i%6]}[(6*h+w)/2]|2", "{L[i<36] A[i//6,i%6]}[3*h+w/2]|2"),
        ("{L[i<36] A[i//12,i%12//6]}[6*h+w]", "{L[a<3,b<2,c<6] A[a,b]}[h//2,h%2,w]"),
        ("{L[i<34] A[i//6,i%6]}[5*h+w]", "{L[i<34] A[i//6,i%6]}[5*h+w]"),
        ("{L[1<=i<37] A[i//6,i%6]|5}[6*h+w+1]", "{L[1<=i<37] A[i//6,i%6]|5}[6*h+w+1]"),
        ("{L[i<36] A[i//6,i%6]*B[i]}[6*h+w]", "{L[a<6,b<6] A[a,b]*B[6*a+b]}[h,w]"),
    ],
)
def test_dimensions_that_are_divided_are_digits(read: str, left: str | None) -> None:
    """What reduces nothing is merged; a maximum stays a scope, whose dimensions are divided."""
    declared = "A : f32[6,6]\nB : f32[36]\n"
    scope = parse(f"{declared}L[h<6,w<6] 2*{read.replace('] A', '] max[r<1] A')}")
    found = flat(scope)
    if left is not None:
        kept_form = left.replace('] A', '] max[r<1] A')
        assert found.key == parse(f"{declared}L[h<6,w<6] 2*{kept_form}").key
    values = {"A": np.arange(1.0, 37.0).reshape(6, 6), "B": np.arange(36.0)[::-1] - 9}
    kept = {name: values[name] for name in tensors(scope)}
    np.testing.assert_array_equal(evaluate(found, kept), evaluate(scope, kept))


NORMALISED = "D : f32[64,64,12]\nW : weight f32[48,12]\nb : weight f32[48]\n"


def of_normalised(rows: str, at: str, place: str) -> str:
    """What an activation makes of products with rows of a normalisation, whose mean and mean square are sums themselves."""
    mean = "{L[h<64,w<64] Σ[f<12] D[h,w,f]}"
    square = f"{{L[h<64,w<64] Σ[f<12] (D[h,w,f] + (-1)*{mean}[h,w])*(D[h,w,f] + (-1)*{mean}[h,w])}}"
    row = f"{{L[h<64,w<64,k<12] (D[h,w,k] + (-1)*{mean}[h,w])/sqrt({square}[h,w] + 1)}}"
    product = f"({{L[{rows},c<48] Σ[k<12] {row}[{at},k]*W[c,k]}}[{place},c] + b[c])"
    return f"{NORMALISED}L[h<64,w<64,c<48] {product}*tanh({product} + {product}*{product}*{product})"


def test_two_dimensions_that_a_kernel_takes_for_one_are_two() -> None:
    end, plan = parse(of_normalised("h<64,w<64", "h,w", "h,w")), parse(of_normalised("i<4096", "i//64,i%64", "64*h+w"))
    assert flat(end).key == flat(plan).key != flat(parse(of_normalised("i<4096", "i%64,i//64", "64*h+w"))).key
