"""What is chosen before a nest is written: costs of loads, sizes of tiles and blocks, what threads share, and operations that are counted."""

from __future__ import annotations

from math import prod

import pytest

pytest.importorskip("tvm")

from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen.blocking.rows import block
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cpu import reach
from einnet.instantiate.codegen.ir import Nest
from einnet.instantiate.codegen.nests import parallel_loops
from einnet.instantiate.codegen.operation_counts import operations
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.codegen.schedule import ACCUMULATORS, UNROLL, Tiling, grown, load_cost, schedule
from einnet.instantiate.kernels import View
from tests.instantiate.compiled import dense

ALONG, ACROSS = Iter("i", 0, 64), Iter("j", 0, 64)


def nest_of(text: str) -> Nest:
    return normalise(resolve(dense(parse(text))))


@pytest.mark.parametrize(("address", "cost"), [
    (var("j"), 0.3), (var("i"), 1.0), (-1 * var("i") + 63, 1.0), (2 * var("i"), 2.0), (4 * var("i") + var("j"), 3.0), (5 * var("i"), 16.0),
    (64 * var("i") + 2 * var("j"), 16.0), (64 * var("i") + var("j"), 4.0), (var("i") // 2, 20.0), (var("j") // 2, 0.3),
])  # fmt: skip
def test_neighbours_in_memory_are_cheap(address: Index, cost: float) -> None:
    nest = nest_of("A : f32[64,64]\nL[i<64,j<64] A[j,i]")
    assert load_cost(address, ALONG, Nest((ALONG, ACROSS), nest.array, nest.address, nest.expr)) == cost


@pytest.mark.parametrize(("extent", "size", "bordered", "larger"), [
    (64, 1, False, 2), (64, 2, False, 4), (64, 4, False, 8), (64, 8, False, 0), (63, 1, False, 3), (63, 3, False, 7), (63, 7, False, 0),
    (11, 1, False, 2), (11, 2, False, 4), (11, 4, False, 0), (7, 2, False, 7), (13, 2, False, 4), (5, 1, False, 5), (3, 1, False, 3),
    (64, 4, True, 8), (63, 3, True, 7), (32, 4, True, 0), (15, 1, True, 0), (5, 1, True, 5), (22, 1, True, 2),
])  # fmt: skip
def test_tiles_grow_by_divisors(extent: int, size: int, bordered: bool, larger: int) -> None:
    assert grown(Iter("i", 0, extent), size, bordered) == larger


APART = 64 * var("i") + var("p") + 8 * var("j")
PRODUCT = 64 * var("i") + var("k"), 64 * var("j") + var("k")


@pytest.mark.parametrize(("loads", "extents", "points", "tile"), [
    (PRODUCT, (64, 64), {}, (4, 2)), (PRODUCT, (6, 6), {}, (6, 2)), ((APART,), (64, 64), {}, (8, 1)), ((var("i"),), (64, 64), {}, (1, 8)),
    ((APART,), (6, 64), {"p": 4}, (2, 1)), ((var("p"),), (6, 64), {"p": 4}, (3, 1)),
    ((APART,), (6, 64), {"p": 3}, (3, 1)), ((APART,), (64, 64), {"p": 13}, (1, 1)),
])  # fmt: skip
def test_tiles_grow_while_that_saves_loads(loads: tuple[Index, ...], extents: tuple[int, int], points: dict[str, int], tile: tuple[int, int]) -> None:
    """Beyond a few accumulators only for loads that are saved, and never beyond the registers."""
    free = [Iter(name, 0, extent) for name, extent in zip("ij", extents)]
    assert tuple(Tiling(loads, points, (), frozenset()).sizes(free).values()) == tile
    assert tile == (1, 1) or prod(tile) * prod(points.values()) <= ACCUMULATORS


@pytest.mark.parametrize(("rows", "size"), [(64, 8), (8, 8), (5, 5), (14, 7), (12, 6), (10, 8), (27, 8), (21, 7), (18, 6), (9, 8)])
def test_blocks_of_rows_divide_them_where_that_costs_little(rows: int, size: int) -> None:
    assert block(Iter("m", 0, rows)) == size


@pytest.mark.parametrize("text", [
    "A : f32[64,64,64]\nL[i<64,j<64,k<64] A[k,j,i]", "A : f32[2,256,64,8]\nL[i<2,j<8,k<64,l<256] A[i,l,k,j]",
    "A : f32[9,7,600]\nL[i<9,k<600,j<7] A[i,j,k]",
])  # fmt: skip
def test_threads_share_the_outermost_loops_that_are_enough(text: str) -> None:
    plan = schedule(nest_of(text))
    extents = [i.extent for i in plan.order]
    assert parallel_loops(plan, 1) == 0
    for threads in (2, 3, 8):
        shared = parallel_loops(plan, threads)
        assert prod(extents[:shared]) >= 4 * threads > prod(extents[: shared - 1])


def test_little_work_is_not_shared() -> None:
    assert parallel_loops(schedule(nest_of("A : f32[64,8,8]\nL[i<64,j<8,k<8] A[i,k,j]")), 2) == 0


@pytest.mark.parametrize(("body", "count"), [
    ("A[i,0]", 1), ("A[i,0]+B[i]", 3), ("A[i,0]*B[i]+A[i,1]", 5), ("relu(A[i,0])", 2), ("exp(A[i,0])", 9), ("Σ[k<7] A[i,k]", 14),
    ("max[k<7] A[i,k]*B[k]", 28),
])  # fmt: skip
def test_operations_at_a_point(body: str, count: int) -> None:
    assert operations(resolve(dense(parse(f"A : f32[9,7]\nB : f32[9]\nL[i<9] {body}"))).expr) == count


def test_a_view_reaches_its_last_element() -> None:
    views = View("x", (3, 4), (8, 1)), View("x", (3, 4), (0, 1), 2), View("x", (1, 1), (9, 9), 5), View("x", (), ())
    assert [reach(v) for v in views] == [20, 6, 6, 1]


@pytest.mark.parametrize(("sums", "most"), [(2, UNROLL), (384, ACCUMULATORS)])
def test_loops_that_share_an_operand_are_unrolled_while_sums_fit_the_registers(sums: int, most: int) -> None:
    """Windows of rows of a product are two loops of seven: as one body they are 49 sums, of which most would lie in memory."""
    rows = f"A : f32[14,14,{sums}]\nB : f32[{sums},768]\nL[b<4,m<49,n<768] Σ[k<{sums}] A[7*(b//2)+m//7,7*(b%2)+m%7,k]*B[k,n]"
    assert ACCUMULATORS // 2 < prod(p.extent for p in schedule(nest_of(rows)).points) <= most


DEPTHWISE = "A : f32[28,28,32]\nK : weight f32[{k},{k},32]\nL[h<28,w<28,c<32] {op}[r<{k},s<{k}] A[h+r-{p},w+s-{p},c]"


@pytest.mark.parametrize(("k", "op", "factor", "side_by_side"), [
    (5, "Σ", "*K[r,s,c]", True), (3, "Σ", "*K[r,s,c]", True), (1, "Σ", "*K[r,s,c]", False), (5, "Σ", "", False), (5, "max", "*K[r,s,c]", False),
])  # fmt: skip
def test_sums_of_several_products_run_side_by_side(k: int, op: str, factor: str, side_by_side: bool) -> None:
    """Each addition waits for the one before: with several sums at once there are others to be done. A short sum has none to wait for."""
    plan = schedule(nest_of(DEPTHWISE.format(k=k, op=op, p=k // 2) + factor))
    assert plan.lane is not None
    assert bool(plan.points) == side_by_side
