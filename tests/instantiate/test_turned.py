"""Sums inside sums with their rows in vector lanes: numbers, what is turned, what is not, and that nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.blocking import panels
from einnet.instantiate.codegen.blocking.blocks import chosen
from einnet.instantiate.codegen.blocking.kept import direct_uses, read_once
from einnet.instantiate.codegen.blocking.rows import rows
from einnet.instantiate.codegen.blocking.steps import arrays_read
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.executed import executed
from einnet.instantiate.codegen.ir import Load, Nest, Reduce, walk, weights
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import View
from tests.instantiate.compiled import build, call, check, dense, lower, random_values, scattered
from tests.instantiate.test_rows import attention


def stages(frames: int, hop: int = 64, columns: int = 64, read: int = 64) -> Scope:
    """Frames of a signal by a table in two stages, 8 times 8 columns; from the column `read` on there is nothing."""
    first = f"{{L[r<2,b<3,m<{frames},d<8,k<8] Σ[n<8] X[b,{hop}*m+8*n+d]*A[d,k,r,n]}}"
    if read < 64:
        first = f"{{L[r<2,b<3,m<{frames},d<8,k<8] Σ[n<8] select({read - 1}-8*n-d>=0, X[b,{hop}*m+8*n+d], 0)*A[d,k,r,n]}}"
    size = hop * (frames - 1) + 64
    return parse(
        f"X : f32[3,{size}]\nA : weight f32[8,8,2,8]\nB : weight f32[8,8,8,2]\n"
        f"L[b<3,m<{frames},k<{columns}] {{L[b<3,m<{frames},h<8,k<8] Σ[d<8,r<2] {first}[r,b,m,d,k]*B[k,h,d,r]}}[b,m,k//8,k%8]"
    )


def nest_of(scope: Scope) -> Nest:
    return normalise(resolve(dense(scope)))


CASES = {
    "rows of a matrix": stages(32),
    "windows that overlap": stages(48, hop=16),
    "rows that are no multiple": stages(37),
    "columns that are no multiple": stages(32, columns=61),
    "places that are not there": stages(32, hop=59, read=59),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_in_lanes_compute_the_expression(name: str) -> None:
    (blocks, *_) = chosen(nest_of(CASES[name])) or ()
    assert any(fill.array.startswith("turned") for fill in blocks.steps)
    check([dense(CASES[name])])


def test_few_rows_compute_the_expression() -> None:
    check([dense(stages(9))])


@pytest.mark.parametrize("seed", range(3))
def test_other_orders_of_data_compute_the_same(seed: int) -> None:
    check([scattered(stages(32, columns=61), seed)])


def test_threads_share_the_blocks() -> None:
    (kernel,) = check([dense(stages(64))], threads=2)
    assert kernel.parallel


def test_rows_lie_side_by_side_in_every_array() -> None:
    (blocks,) = rows(nest_of(stages(32)), across=True)
    for fill in blocks.steps:
        assert any(fill.nest.address.coefficient(i.name) == 1 and i.extent == 16 for i in fill.nest.loops)
    for fill in blocks.steps[1:]:
        assert not any(x.array == "X" for x in walk(fill.nest.expr) if isinstance(x, Load))


def test_every_stage_is_computed_once() -> None:
    """A stage that the columns of the last one do not all share stands inside no loop over these."""
    for across in (False, True):
        for blocks in rows(nest_of(stages(32)), across) or ():
            steps = prod(i.extent for i in (*blocks.around, *blocks.blocks))
            sizes = [steps * prod(i.extent for i in fill.nest.loops) for fill in blocks.steps if fill.array.startswith("rows")]
            assert sizes == [3 * 32 * 2 * 8 * 8]


@pytest.mark.parametrize("across", [False, True])
def test_what_stands_two_sums_further_in_is_computed_once(across: bool) -> None:
    """The innermost sum has no k: blocks inside of a loop over k would compute it eight times."""
    first = "{L[m<32,c<8,j<8] Σ[n<8] X[m,8*c+n]*A[j,n]}"
    second = f"{{L[m<32,j<8,k<8] Σ[c<8] {first}[m,c,j]*B[k,c]}}"
    scope = parse(
        "X : f32[32,64]\nA : weight f32[8,8]\nB : weight f32[8,8]\nC : weight f32[8,8]\n"
        f"L[m<32,k<8,h<8] Σ[j<8] {second}[m,j,k]*C[h,j]"
    )
    (blocks,) = rows(nest_of(scope), across)
    steps = prod(i.extent for i in (*blocks.around, *blocks.blocks))
    sizes = [steps * prod(i.extent for i in fill.nest.loops) for fill in blocks.steps if fill.array.startswith("rows")]
    assert sizes == [32 * 8 * 8] * 2
    check([dense(scope)])


def test_places_between_those_that_are_read_are_not() -> None:
    """Where every other number is read, those between may be no numbers of the operand."""
    apart = parse(
        "X : f32[32,15]\nA : weight f32[8,8]\nB : weight f32[8,8]\n"
        "L[m<32,h<8] Σ[k<8] {L[m<32,k<8] Σ[n<8] X[m,2*n]*A[k,n]}[m,k]*B[h,k]"
    )
    (blocks,) = rows(nest_of(apart), across=True)
    assert not any(fill.array.startswith("turned") for fill in blocks.steps)
    check([dense(apart)])


SIGNS = "[" + ",".join(str((-1) ** bin(i & j).count("1")) for i in range(8) for j in range(8)) + "]"


def digits(frames: int, columns: int = 512) -> Scope:
    """Frames of 512 numbers by three digits: signs, a factor for every place, signs, a factor, signs."""
    first = f"{{L[m<{frames},a<8,n<64] Σ[j<8] A[a,j]*X[m,64*j+n]}}"
    scaled = f"{{L[m<{frames},a<8,n<64] Σ[r<2] T[a,r,n]*{first}[m,a,n]}}"
    second = f"{{L[m<{frames},a<8,b<8,n<8] Σ[j<8] A[b,j]*{scaled}[m,a,8*j+n]}}"
    again = f"{{L[m<{frames},a<8,b<8,n<8] Σ[r<2] U[b,r,n]*{second}[m,a,b,n]}}"
    third = f"{{L[m<{frames},c<{-(-columns // 64)},b<8,a<8] Σ[n<8] A[c,n]*{again}[m,a,b,n]}}"
    return parse(
        f"A : weight f32[8,8] = {SIGNS}\nX : f32[{frames},512]\nT : weight f32[8,2,64]\nU : weight f32[8,2,8]\n"
        f"L[m<{frames},k<{columns}] {third}[m,k//64,k//8%8,k%8]"
    )


def known(scope: Scope) -> Nest:
    return normalise(resolve(dense(scope), ["A"]))


@pytest.mark.parametrize("frames", [16, 32, 37])
@pytest.mark.parametrize("columns", [512, 449])
def test_factors_between_known_matrices_compute_the_expression(frames: int, columns: int) -> None:
    check([dense(digits(frames, columns))])


def test_other_orders_of_data_between_known_matrices_compute_the_same() -> None:
    check([scattered(digits(32, 449), 1)])


def test_what_stands_between_known_matrices_needs_no_array() -> None:
    """Two sums by known matrices are kept, what is multiplied with them is computed where the next one reads it; the last is all results."""
    (blocks,) = rows(known(digits(32)), across=True)
    assert len([f for _, f in blocks.fills if f.array.startswith("rows")]) == 2


def test_what_a_part_of_the_result_needs_is_handed_on_in_the_nearest_cache() -> None:
    """The second sum and all after it, for one `a` after the other: every number of it is computed once, at 64 places instead of 512."""
    (blocks,) = rows(known(digits(32)), across=True, lanes=16)
    times = {f.array: (n, f.size) for n, f in blocks.fills}
    assert (8, 16 * 64) in times.values() and (1, 16 * 512) in times.values()
    assert all(n * prod(i.extent for i in f.nest.loops) == 16 * 512 for n, f in blocks.fills)


def test_rows_of_known_matrices_stand_in_no_loop() -> None:
    """They share sums: a loop along them would compute each of them for itself."""
    (blocks,) = rows(known(digits(32)), across=True, lanes=16)
    for _, fill in blocks.fills:
        sums = [r for r in walk(fill.nest.expr) if isinstance(r, Reduce)]
        bound = {n for n, _ in fill.nest.outer}
        assert not any(bound & w.address.names() for r in sums for w in weights(r, ["A"]))


def read_twice(frames: int = 32) -> Scope:
    """Factors between known matrices of which something else is a sum, over the loop that stages are handed on along."""
    first = f"{{L[m<{frames},a<8,n<64] Σ[j<8] A[a,j]*X[m,64*j+n]}}"
    scaled = f"{{L[m<{frames},a<8,n<64] Σ[r<2] T[a,r,n]*{first}[m,a,n]}}"
    total = f"{{L[m<{frames},n<64] Σ[a<8] {scaled}[m,a,n]*W[a,n]}}"
    second = f"{{L[m<{frames},a<8,b<8,n<8] Σ[j<8] A[b,j]*{scaled}[m,a,8*j+n]}}"
    third = f"{{L[m<{frames},a<8,b<8,c<8] Σ[n<8] A[c,n]*{second}[m,a,b,n]}}"
    return parse(
        f"A : weight f32[8,8] = {SIGNS}\nX : f32[{frames},512]\nT : weight f32[8,2,64]\nW : weight f32[8,64]\n"
        f"L[m<{frames},a<8,b<8,c<8] {third}[m,a,b,c] + {total}[m,8*b+c]"
    )


def test_what_something_else_is_computed_from_is_computed_before_it() -> None:
    """The total needs the factors of all `a`: they cannot be filled for one `a` after the other."""
    check([dense(read_twice())])
    (blocks,) = rows(known(read_twice()), across=True, lanes=16)
    assert all(n == 1 for n, f in blocks.fills if {"T", "W"} & arrays_read(f.nest))


def test_rows_of_a_stage_are_computed_together_between_two_others() -> None:
    """Of signs of 512 places, all stages but the last are kept: 24 additions for eight numbers, where each row for itself takes seven."""
    first = "{L[m<32,a<8,n<64] Σ[j<8] A[a,j]*X[m,64*j+n]}"
    second = f"{{L[m<32,a<8,b<8,n<8] Σ[j<8] A[b,j]*{first}[m,a,8*j+n]}}"
    scope = parse(f"A : weight f32[8,8] = {SIGNS}\nX : f32[32,512]\nL[m<32,a<8,b<8,c<8] Σ[n<8] A[c,n]*{second}[m,a,b,n]")
    nest = known(scope)
    (use,) = direct_uses(next(e.body for e in walk(nest.expr) if isinstance(e, Reduce)))
    assert not read_once([(nest.loops, nest.expr), (use.function.loops, use.function.expr)], ["A"])
    check([dense(scope)])


def test_what_two_sums_read_is_kept() -> None:
    (blocks,) = rows(known(read_twice()), across=True, lanes=16)
    (factors,) = (f.nest.expr for _, f in blocks.fills if "T" in arrays_read(f.nest))
    assert not any(isinstance(e, Reduce) and weights(e, ["A"]) for e in walk(factors))


def test_arrays_that_nobody_reads_any_more_make_room() -> None:
    (blocks,) = rows(known(digits(32)), across=True, lanes=16)
    found = blocks.rooms
    order = {f.array: n for n, (_, f) in enumerate(blocks.fills)}
    assert sorted(f.array for room in found for f in room) == sorted(order)
    assert len(found) < len(order)
    read = {f.array: arrays_read(f.nest) for _, f in blocks.fills}
    for room in found:
        for before, after in pairwise(room):
            assert all(order[reader] < order[after.array] for reader, own in read.items() if before.array in own)


@pytest.mark.parametrize("columns", [512, 449])
def test_results_without_gaps_are_turned_in_one_loop(columns: int) -> None:
    (blocks,) = rows(known(digits(32, columns)), across=True)
    assert [i.extent for i in blocks.last.loops] == [16, columns] and not blocks.last.guards


def test_results_with_gaps_are_written_where_they_belong() -> None:
    op = dense(digits(32))
    apart = replace(op, out=View("out", (32, 512), (1024, 2)))
    (blocks,) = rows(normalise(resolve(apart, ["A"])), across=True)
    assert len(blocks.last.loops) > 2
    check([apart])


@pytest.mark.parametrize("across", [False, True])
def test_what_is_read_by_a_part_of_a_loop_further_out_is_found(across: bool) -> None:
    """Inside of a loop over b, what is read at b//2 stands where its range says."""
    inner = "{L[b<3,m<32,k<8] Σ[n<8] X[b,m,n]*A[k,n]}"
    nest = resolve(dense(parse(f"X : f32[3,32,8]\nA : weight f32[8,8]\nB : weight f32[8,8]\nL[b<6,m<32,h<8] Σ[k<8] {inner}[b//2,m,k]*B[h,k]")))
    (b, *loops) = nest.loops
    assert rows(normalise(replace(nest, loops=tuple(loops), outer=((b.name, b.range),))), across)


def test_attention_keeps_its_rows_apart() -> None:
    """What rows share is packed there, and then nothing is gained by lanes of rows."""
    nest = nest_of(attention(2, 64, 64, 16))
    assert rows(nest, across=True) and not any(fill.array.startswith("turned") for blocks in chosen(nest) or () for fill in blocks.steps)


def test_a_nan_stays_in_its_row() -> None:
    scope = stages(32)
    op = dense(scope)
    kernel = lower(op, "rows")
    values = random_values(op)
    values["X"][1, 64 * 7 + 3] = np.nan
    got = call(build([kernel]), kernel, op, values)
    assert np.isnan(got[1, 7]).all() and np.isnan(got).sum() == 64
    np.testing.assert_array_equal(np.isnan(got), np.isnan(evaluate(scope, values, dtype="float32")))


def softmax(rows: int) -> Scope:
    """Attention by parts: rows of scores, their greatest, and the sum with V."""
    scores = f"{{L[m<{rows},k<40] Σ[d<16] Q[m,d]*K[k,d]}}"
    weights = f"{{L[m<{rows},k<40] exp({scores}[m,k]-{{L[m<{rows}] max[k<40] {scores}[m,k]}}[m])}}"
    return parse(f"Q : f32[{rows},16]\nK : f32[40,16]\nV : f32[40,24]\nL[m<{rows},n<24] Σ[k<40] {weights}[m,k]*V[k,n]")


def shared_by_rows(rows: int) -> Scope:
    """A factor that is a sum itself and the same for all rows."""
    squares = "{L[k<40,d<24] Σ[e<9] K[d,9*k+e]*K[d,9*k+e]}"
    scores = f"{{L[m<{rows},k<40] Σ[d<24] Q[m,d]*{squares}[k,d]}}"
    return parse(f"Q : f32[{rows},24]\nK : f32[24,360]\nV : f32[40,24]\nL[m<{rows},n<24] Σ[k<40] {scores}[m,k]*V[k,n]")


@pytest.mark.parametrize("rows", [8, 16, 17, 33, 49])
@pytest.mark.parametrize("made", [softmax, shared_by_rows])
def test_what_has_no_rows_side_by_side_is_not_turned(made: Callable[[int], Scope], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of 49 rows stands alone; an array without rows has no loop along them, though one of its own loops is as near in memory."""
    monkeypatch.setattr(panels, "TURNING_GAIN", 0.0)
    check([dense(made(rows))])


@pytest.mark.parametrize("rows", [8, 19, 128])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_read_outside_of_a_loop_is_not_made_inside_of_it(rows: int, threads: int) -> None:
    """Every value of n moves through places of its own of the first stage only: the second has all of them at once, and reads the first."""
    first = f"{{L[k<16,r<2,m<{rows},a<2,b<16] Σ[i<8,j<2] X[m,k + 32*i + 16*j]*V[i,j,r,a,b]}}"
    second = f"{{L[r<2,m<{rows},c<16,b<16] Σ[k<16] W[16*(c%2) + b,c//2,k,r]*{first}[k,r,m,c%2,b]}}"
    text = f"W : weight f32[32,8,16,2]\nX : f32[{rows},256]\nV : weight f32[8,2,2,2,16]\nL[m<{rows},n<256] Σ[r<2] {second}[r,m,n//16,n%16]"
    for op in (dense(text), scattered(text, 3)):
        assert executed(op) > 0
    check([dense(text)], tolerance=1e-4, threads=threads)
