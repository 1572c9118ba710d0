"""What pads a tensor beyond what is read of it says nothing; what is read says all."""

from __future__ import annotations

import pytest

from einnet.errors import CertificateError
from einnet.evidence.normal import with_unit_reads, within_reach
from einnet.evidence.prove import compared
from einnet.evidence.sides import grouped
from einnet.expr.nodes import walk
from einnet.expr.notation.text import parse

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


def test_padding_that_is_reached_stays() -> None:
    inside, beyond, below = (f"A : f32[{n}]\nL[i<4] max[r<2] A[{at}]" for n, at in ((8, "2*i+r"), (7, "2*i+r"), (8, "2*i+r-1")))
    assert with_unit_reads(parse(inside + "|-inf")) == parse(inside)
    for text in (beyond, below, "A : f32[8]\nL[i<8] A[i/2]"):
        assert with_unit_reads(parse(text + "|-inf")) == parse(text + "|-inf") != parse(text)
