"""What is written chunk by chunk is one expression, whose values are those of the chunks; chunks that are not alike are none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from einnet.evidence.buffers.contents import MOST_PIECES, Contents
from einnet.evidence.buffers.series import box_sizes
from einnet.evidence.normal import flat
from einnet.evidence.prove import compared
from einnet.expr.nodes import Scope, tensors, walk
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.kernels import NotLifted, View, dense_view

DECLARED = "A : f32[8,96,6]\nB : f32[8,96,6]\nV : f32[8,96,4]\nW : f32[300]\n"


def chunk(text: str, *place: int) -> Scope:
    """An expression of one chunk: a name in angle brackets is a number that grows from chunk to chunk."""
    numbers = {"<b>": place[0], "<m>": 4 * place[1], "<m/2>": 2 * place[1], "<-m>": -4 * place[1], "<c>": place[1]}
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return parse(DECLARED + text)


def stored(text: str, spoilt: str = "", at: tuple[int, int] = (5, 7)) -> Contents:
    """Eight heads of 96 rows in 24 chunks each, all of one expression, but for one."""
    contents = Contents({"t": 8 * 96 * 4})
    for b in range(8):
        for c in range(24):
            contents.write(View("t", (1, 4, 4), (384, 4, 1), 384 * b + 16 * c), chunk(spoilt if spoilt and (b, c) == at else text, b, c))
    return contents


WHOLE = dense_view("t", (8, 96, 4))
SCORES = "{L[m<4,n<96] Σ[k<6] A[<b>,m+<m>,k]*B[<b>,n,k]}"
SHIFTED = f"{{L[m<4,n<96] exp({SCORES}[m,n] + (-1)*{{L[m<4] max[n<96] {SCORES}[m,n]}}[m])}}"
ATTENTION = f"L[b<1,m<4,d<4] Σ[n<96] {SHIFTED}[m,n]*V[<b>,n,d]"
OF_ALL = (
    ATTENTION.replace("L[b<1,m<4,d<4]", "L[b<8,m<96,d<4]").replace("L[m<4,n<96]", "L[b<8,m<96,n<96]").replace("L[m<4]", "L[b<8,m<96]")
    .replace("[m,n]", "[b,m,n]").replace("}[m]", "}[b,m]").replace("<b>", "b").replace("m+<m>", "m")
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION,
        "L[b<1,m<4,d<4] A[<b>,m+<m>,d]",
        "L[b<1,m<4,d<4] A[<b>,(m+<m>)//2,d] + V[<b>,m+<m/2>,d]",
        "L[b<1,m<4,d<4] A[<b>,m+<m>,d]*val(m+<m>)",
        "L[b<1,m<4,d<4] select(m+<m>-3*d-40>=0, A[<b>,m+<m>,d], V[<b>,<c>,d])",
        "L[b<1,m<4,d<4] Σ[r<3] {L[m<6,d<4] select(m+<m>-1>=0 & <-m>-m+96>=0, A[<b>,m+<m>-1,d], 0)}[m+r,d]",
        "L[b<1,m<4,d<4] W[8*m+<m>+d]",
        "L[b<1,m<4,d<4] W[<m/2>+<c>+d+m]",
        "L[b<1,m<4,d<4] {L[2<=m<6,d<4] A[<b>,m+<m>-2,d]}[m+2,d]",
        "L[b<1,m<4,d<4] W[(m+<m>)//100+d]",
        "L[b<1,m<4,d<4] W[(m+<c>+56)//80+d]",
        "L[b<1,m<4,d<4] {L[m<4,d<4] 2*A[<b>,m+<m>,d]}[m/2,d]|5",
        "L[b<1,m<4,d<4] Σ[s<2] A[<b>,(m+<m>-s)/2,d]",
        "L[b<1,m<4,d<4] {L[m<4] max[n<6] A[<b>,m+<m>,n]}[m-1]|7",
    ],
)
def test_chunks_that_are_alike_are_one_expression(text: str) -> None:
    found = stored(text).series(WHOLE)
    assert found is not None and found.shape == (8, 96, 4)
    generator = np.random.default_rng(0)
    arrays = {name: generator.integers(-3, 4, t.shape).astype(float) for name, t in tensors(found).items()}
    whole = evaluate(found, arrays)
    for b, c in product((0, 5, 7), (0, 1, 23)):
        own = chunk(text, b, c)
        expected = evaluate(own, {name: arrays[name] for name in tensors(own)})
        np.testing.assert_array_equal(whole[b : b + 1, 4 * c : 4 * c + 4], expected)


def test_rows_that_stand_with_their_chunk_are_one_loop() -> None:
    """So that what is inside is what the model has, too, and is proven in a moment."""
    found = stored(ATTENTION).series(WHOLE)
    assert found is not None
    assert {s.shape for s in walk(flat(found))} == {s.shape for s in walk(flat(parse(DECLARED + OF_ALL)))}
    model = parse(DECLARED + OF_ALL)
    assert compared(model, model, found, True)[0] == "normal form"


@pytest.mark.parametrize(
    "spoilt",
    [
        ATTENTION.replace("V[<b>,n,d]", "V[<b>,n,3-d]"),
        ATTENTION.replace("m+<m>", "m+<m/2>", 1),
        ATTENTION.replace("exp(", "exp(2*"),
        ATTENTION.replace("A[<b>,", "A[6,", 1),
        ATTENTION.replace("max[n<96]", "max[n<95]"),
    ],
)
def test_one_that_is_another_spoils_it(spoilt: str) -> None:
    contents = stored(ATTENTION, spoilt)
    assert contents.series(WHOLE) is None
    with pytest.raises(NotLifted, match="192 pieces"):
        contents.read(WHOLE)


def test_what_does_not_fill_boxes_of_one_size_is_none() -> None:
    contents = stored(ATTENTION)
    contents.write(View("t", (3,), (1,), 100), parse("z : f32[3]\nL[i<3] z[i]"))
    assert contents.series(WHOLE) is None
    assert stored(ATTENTION).series(View("t", (8, 95, 4), (384, 4, 1))) is None
    assert stored(ATTENTION).series(View("t", (4, 96, 4), (768, 4, 1))) is not None


def test_few_are_told_one_by_one() -> None:
    contents = Contents({"t": 64})
    for c in range(4):
        contents.write(View("t", (16,), (1,), 16 * c), parse(f"W : f32[300]\nL[i<16] W[i+{16 * c}]"))
    assert contents.series(dense_view("t", (64,))) is None and MOST_PIECES > 8


def test_boxes_end_where_the_numbers_change() -> None:
    numbers = np.arange(6).reshape(2, 3).repeat(4, 0).repeat(5, 1).astype(np.int32)
    assert box_sizes(numbers) == (4, 5)
    assert box_sizes(np.zeros((3, 7), np.int32)) == (3, 7)
    numbers[0, 0] = 9
    assert box_sizes(numbers) == (1, 1)
