"""What a product waits for: rows times windows, one by one or in blocks."""

from __future__ import annotations

import pytest

from einnet.expr.notation.text import parse
from einnet.search.choosing.making import candidates
from einnet.search.forms import Form, effort, plain
from einnet.search.space import Options, Space
from einnet.search.work import MACHINE, cost, flops, in_one, streamed
from tests.search.goldens import BAND, BAND_SUM, BANDS, LIMIT, MASKED, MASKS, ROOM, block_band, both_banded, matmuls
from tests.search.test_space import OPERATORS, options


def test_a_row_times_its_window_takes_every_element_anew() -> None:
    band = parse("Q : f32[57,43]\nK : f32[57,43]\nL[m<57,w<9] Σ[k<43] Q[m,k]*K[m+w-4,k]")
    assert streamed(band) == 57 * 43 + 57 * 9 * 43


def test_a_matrix_is_taken_once() -> None:
    product = parse("A : f32[57,43]\nB : f32[43,8]\nL[m<57,n<8] Σ[k<43] A[m,k]*B[k,n]")
    assert streamed(product) == 57 * 43 + 43 * 8
    square = parse("A : f32[57,43]\nL[m<57,n<57] Σ[k<43] A[m,k]*A[n,k]")
    assert streamed(square) == 2 * 57 * 43
    power = parse("A : f32[57]\nL[b<1] Σ[k<57] A[k]*A[k]")
    assert streamed(power) == 57


def test_products_of_rows_cost_what_they_take_from_near_memory() -> None:
    rows = parse("Q : f32[4096,64]\nK : f32[4096,64]\nL[m<4096,w<513] Σ[k<64] Q[m,k]*K[m+4*w-1024,k]")
    assert cost(rows, True, MACHINE) == int(MACHINE.near * 4 * streamed(rows) + MACHINE.launch)
    dense = parse("A : f32[512,512]\nB : f32[512,512]\nL[m<512,n<512] Σ[k<512] A[m,k]*B[k,n]")
    assert cost(dense, True, MACHINE) == 2 * 512**3 + int(MACHINE.launch)


@pytest.mark.parametrize("vendor", [True, False])
def test_what_is_not_read_of_a_tensor_costs_nothing(vendor: bool) -> None:
    """A block of a product takes as long as a product of that size; what is read in two places counts once where that is all of it."""
    block = parse("A : f32[512,8]\nB : f32[8,512]\nL[64<=m<128,n<32] Σ[k<8] A[m,k]*B[k,n]")
    alone = parse("A : f32[64,8]\nB : f32[8,32]\nL[m<64,n<32] Σ[k<8] A[m,k]*B[k,n]")
    assert cost(block, vendor, MACHINE) == cost(alone, vendor, MACHINE)
    copy = "A : f32[512]\nL[m<256] "
    once, twice = (cost(parse(copy + body), False, MACHINE) for body in ("A[m] + 1", "A[m]*A[m+256] + A[2*m]"))
    assert twice - once == int(MACHINE.balance * 4 * 256)


def rows_only(form: Form) -> bool:
    """One product, of as many rows as there are, each for itself."""
    return len(form.matches) == 1 and all(1 in (m, n) for _, m, n, _ in matmuls(form)) and bool(matmuls(form))


@pytest.mark.parametrize(("text", "kind"), [(BAND, "scores"), (BAND_SUM, "values")])
@pytest.mark.parametrize("sizes", BANDS[1:])
def test_blocks_of_a_band_promise_more_than_its_rows(text: str, kind: str, sizes: dict[str, int]) -> None:
    forms = Space(Options(max_depth=2)).forms(parse(text.format(**sizes)))
    blocks = [effort(f) for f in forms if block_band(kind)(f, sizes)]
    rows = [effort(f) for f in forms if rows_only(f)]
    assert blocks and rows and min(blocks) < min(rows)


def test_blocks_of_masked_attention_are_among_the_first_to_be_made() -> None:
    sizes = MASKS[1]
    forms = Space(Options(max_depth=6, states=LIMIT - ROOM)).forms(parse(MASKED.format(**sizes)))
    assert len(forms) > 100
    assert any(both_banded(f, sizes) for f in sorted(forms, key=effort)[:16])


@pytest.mark.parametrize("mask", ["select(n-m+16>=0 & m-n+16>=0, 1, 0)", "select(n-m+20>=0 & m-n>=0, 1, 0)"])
def test_scores_of_a_band_are_found_as_one_product_of_blocks(mask: str) -> None:
    """Blocks of rows times windows, put where they belong: no block is a product of its own."""
    scores = "{L[m<256,n<256] Σ[k<64] A[m,k]*B[k,n]}[m,n]"
    start = parse(f"A : f32[256,64]\nB : f32[64,256]\nL[m<256,n<256] {scores}*{{L[m<256,n<256] {mask}}}[m,n]")
    forms = Space(Options(max_depth=4)).forms(start)
    blocks = [f for f in forms if len(f.matches) == 1 and any(b > 1 and min(m, n) > 8 for b, m, n, _ in matmuls(f))]
    assert min(flops(f.tree) for f in blocks) < 0.4 * flops(start)


PARTS = "A : f32[8,5]\nL[m<8,n<5] {L[m<4,n<5] exp(A[m,n])}[m,n]"


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        (f"{PARTS} + {{L[4<=m<8,n<5] exp(A[m,n])}}[m,n]", 40),
        (f"{PARTS} + {{L[3<=m<8,n<5] exp(A[m,n])}}[m,n]", 20 + 25 + 40),
        (f"{PARTS} + {{L[4<=m<8,n<5] exp(A[m,n])}}[7-m,n]", 20 + 20 + 40),
        (f"{PARTS} + {{L[4<=m<8,n<5] exp(A[m,n])}}[m,n] + {{L[m<8,n<1] exp(A[m,n])}}[m,n]", 20 + 20 + 8 + 80),
    ],
)
def test_parts_side_by_side_are_not_added(text: str, operations: int) -> None:
    assert flops(parse(text)) == operations


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        ("A[m,k]", 4 * 64 * 1),
        ("A[m,k]*B[k]", 4 * 64 * 2),
        ("A[m,k]*B[n]", 4 * 64 * 2),
        ("A[m,k]*exp(C[n] + (-1)*C[k])", 4 * 64 * 2 + 64 * 3),
        ("B[k]*exp(D[m,n] + (-1)*D[m,k])", 4 * 64 * (2 + 3)),
    ],
    ids=["sum", "product", "asked", "decay", "decays"],
)
def test_a_step_of_a_recurrence_adds_what_comes_in(body: str, operations: int) -> None:
    """What is left of a state from one time to the next is computed once for all that share it."""
    declared = "A : f32[4,64]\nB : f32[64]\nC : f32[64]\nD : f32[4,64]\n"
    whole = f"{declared}L[m<4,n<64] Σ[k<64] select(n-k>=0, {body}, 0)"
    mask = f"{declared}L[m<4,n<64] Σ[k<64] {body}*{{L[k<64,n<64] select(n-k>=0, 1, 0)}}[k,n]"
    assert [flops(parse(text)) for text in (whole, mask)] == [operations] * 2


@pytest.mark.parametrize("name", OPERATORS)
def test_what_some_states_find_twice_as_many_find_too(name: str) -> None:
    best = [min(map(effort, Space(options(7, states=states)).forms(parse(OPERATORS[name])))) for states in (5, 10, 20, 40, 80)]
    assert best == sorted(best, reverse=True)


CHAIN = (
    "X : f32[512,64]\nA : weight f32[64,8,8]\nB : weight f32[8,8,8]\n"
    "L[m<512,h<8,k<8] Σ[d<8] {L[d<8,m<512,k<8] Σ[n<8] X[m,8*n+d]*A[8*d+n,k,d]}[d,m,k]*B[k,h,d]"
)


def test_sums_in_one_kernel_cost_no_traffic_between_them() -> None:
    """As two kernels they write and read the inner one; as one they take all operations, row by row, and what goes in and out."""
    scope = parse(CHAIN)
    operations, moved = 2 * (2 * 512 * 8 * 8 * 8), 4 * (2 * 512 * 64)
    assert in_one(scope, MACHINE) == int(max(operations * MACHINE.rows, MACHINE.balance * moved) + MACHINE.launch)
    assert effort(plain(scope)) == in_one(scope, MACHINE) < sum(cost(s, False, MACHINE) for s in scope.parts)


def test_what_may_be_one_kernel_is_among_the_candidates_whatever_it_takes_as_two() -> None:
    found = candidates([plain(parse(CHAIN))], lambda kernels: [1.0] * len(kernels))
    assert sorted(len(c.kernels) for c in found) == [1, 2] and len({c.way for c in found}) == 2
