"""Every kernel that matching gives computes its expression, on integers bit for bit: layouts, groups, windows and batches of all kinds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from einnet.derivation.checker.check import check_equal
from einnet.expr.index import var
from einnet.expr.nodes import Scope, reads
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.matching.contraction import A_OUT, ALL
from einnet.instantiate.matching.mismatches import Digits
from einnet.instantiate.matching.overlap import overlapping
from einnet.instantiate.matching.tables import BATCHED_MATMUL, CONV, CONV3, MATMUL
from einnet.instantiate.matching.types import Match, Table
from tests.instantiate.numpy_kernels import integers, run


def checked(source: Scope, table: Table) -> Match | None:
    """The match, if there is one: what it computes is what is written."""
    found = table.match(source)
    if not isinstance(found, Match):
        assert found and all(m.why for m in found)
        return None
    values = integers(source)
    np.testing.assert_array_equal(run(source, {source: found}, values), evaluate(source, values))
    return found


LAYOUTS = list(product(("ngcx", "nxgc", "xncg", "ncgx"), ("gfcr", "rgcf", "fgcr", "rcfg"), ("ngfx", "nxgf", "nfgx", "xnfg")))
SIZES = (
    {"n": 2, "g": 2, "f": 2, "c": 2},
    {"n": 3, "g": 2, "f": 1, "c": 1},
    {"n": 1, "g": 3, "f": 2, "c": 1},
    {"n": 2, "g": 2, "f": 1, "c": 3},
    {"n": 2, "g": 1, "f": 3, "c": 2},
)
NESTED = {"ngcx", "nxgc"}, {"ngfx", "nxgf"}


def convolution(
    data: str, weight: str, out: str, sizes: dict[str, int], window: str = "x+r-1", extent: int = 5, taps: int = 3, loop: int = 5, lo: int = 0
) -> Scope:
    """A convolution of one dimension, whose loop starts at `lo` and its taps at half of that; of dimensions of one element there is none."""
    left = {"n": 0, "g": 0, "f": 0, "c": 0} | {k: v for k, v in sizes.items() if v > 1}
    extents = {**left, "x": extent, "r": taps}

    def dims(letters: str) -> list[str]:
        return [d for d in letters if extents[d]]

    a, b = dims(data), dims(weight)
    declared = f"A : f32[{','.join(str(extents[d]) for d in a)}]\nK : weight f32[{','.join(str(extents[d]) for d in b)}]\n"
    loops = ",".join(f"{lo}<=x<{loop + lo}" if d == "x" else f"{d}<{extents[d]}" for d in dims(out))
    sums = ",".join([f"{lo // 2}<=r<{taps + lo // 2}", *(["c<" + str(extents["c"])] if extents["c"] else [])])
    moved = window.replace("x", f"(x-{lo})").replace("r", f"(r-{lo // 2})")
    data_index, weight_index = (",".join({"x": moved, "r": f"r-{lo // 2}"}.get(d, d) for d in dimensions) for dimensions in (a, b))
    return parse(f"{declared}L[{loops}] Σ[{sums}] A[{data_index}]*K[{weight_index}]")


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "".join(f"{k}{v}" for k, v in s.items()))
@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_convolutions_of_all_layouts(layouts: tuple[str, str, str], sizes: dict[str, int]) -> None:
    data, weight, out = layouts
    found = checked(convolution(data, weight, out, sizes), CONV)
    assert found is not None or data not in NESTED[0] or out not in NESTED[1] or weight not in ("gfcr", "rgcf")


WINDOWS = (
    ("x+r-1", 5, 3, 5), ("x+r", 7, 3, 5), ("x+r-2", 5, 3, 5), ("x+r+1", 8, 3, 5), ("x+r+2", 7, 2, 5), ("2*x+r", 9, 3, 4), ("2*x+r-1", 8, 3, 4),
    ("2*x+r-1", 7, 3, 4), ("3*x+r", 14, 2, 4), ("3*x+r+1", 14, 2, 4), ("2*x+2*r-2", 9, 3, 4), ("x+2*r-2", 5, 3, 5), ("2*x+3*r-3", 9, 2, 5),
    ("x+r-3", 3, 3, 7), ("x+r-1", 9, 3, 5), ("2*x", 9, 1, 5), ("2*x+1", 9, 1, 4), ("x-1", 4, 1, 6), ("(x-r)/2", 4, 3, 9), ("(x-r+1)/2", 4, 3, 7),
    ("(x-r+1)/2", 4, 4, 8), ("(x-2*r+2)/3", 4, 2, 10), ("x-r+2", 5, 3, 5), ("x-r", 5, 3, 7), ("(x-r-1)/2", 4, 3, 9), ("(x+1)/2", 4, 1, 7),
    ("x/2", 4, 1, 7), ("x-2*r+4", 5, 3, 4), ("(x-r+3)/2", 5, 3, 7), ("x-r+1", 6, 1, 5), ("x-r-1", 5, 1, 6),
)  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: f"{w[0]} {w[1]} {w[2]} {w[3]}")
@pytest.mark.parametrize("data", ["ngcx", "nxgc"])
@pytest.mark.parametrize("lo", [0, 2])
def test_windows_of_all_kinds(data: str, window: tuple[str, int, int, int], lo: int) -> None:
    """Loops and taps that begin elsewhere walk the same data."""
    index, extent, taps, loop = window
    source = convolution(data, "gfcr", "ngfx", SIZES[0], index, extent, taps, loop, lo)
    found = [checked(source, table) for table in (CONV, CONV3)]
    assert found[0] is not None or "-r" in index or "-2*r" in index


@pytest.mark.parametrize(("down", "across", "matched"), [
    ("(h-r+1)/2", "w", True), ("(h-r+1)/2", "w+1", True), ("(h-r+1)/2", "w-1", False), ("(h-r+1)/2", "2*w", False), ("h+r-1", "w-s+1", True),
    ("h+r-1", "w-s-1", True), ("2*h+r", "(w-s)/2", False),
])  # fmt: skip
def test_windows_of_two_directions(down: str, across: str, matched: bool) -> None:
    """A dimension that no tap moves walks with the others, transposed or not; what it leaves out at the front is padding taken away."""
    source = parse(f"A : f32[4,5,2]\nK : weight f32[3,1,2,3]\nL[h<6,w<4,f<3] Σ[r<3,s<1,c<2] A[{down},{across},c]*K[r,s,c,f]")
    assert (checked(source, CONV) is not None) == matched


def test_one_tap_has_no_direction() -> None:
    found = checked(parse("A : f32[6,2]\nK : weight f32[1,2,3]\nL[h<5,f<3] Σ[r<1,c<2] A[h-r+1,c]*K[r,c,f]"), CONV)
    assert found is not None and found.table == "Conv"


FORWARD = (
    "L[m<3,n<4] Σ[k<5]", "L[n<4,m<3] Σ[k<5]", "L[m<3,m'<2,n<4] Σ[k<5]", "L[m'<2,n<4,m<3] Σ[k<5]", "L[n<4,n'<2,m<3] Σ[k<5]",
    "L[m<3,n<4] Σ[k<5,l<2]", "L[b<2,m<3,n<4] Σ[k<5]",
    "L[m<3,b<2,n<4] Σ[k<5]", "L[b<2,b'<3,n<4,m<3] Σ[k<5]", "L[m<3,n<4,b<2] Σ[k<5]", "L[b<2,m<3] Σ[k<5]", "L[m<3] Σ[k<5,l<2]",
    "L[b<2,m<3,m'<2,n<4,n'<2] Σ[l<2,k<5]",
)  # fmt: skip
EXTENTS = {"m": 3, "m'": 2, "n": 4, "n'": 2, "k": 5, "l": 2, "b": 2, "b'": 3}


def operand(names: list[str], order: int) -> list[str]:
    """The iterators of an operand in one of four orders."""
    return [names, names[::-1], names[1:] + names[:1], sorted(names)][order]


@pytest.mark.parametrize("orders", list(product(range(4), range(4))), ids=lambda o: f"{o[0]}{o[1]}")
@pytest.mark.parametrize("head", FORWARD)
def test_products_of_all_layouts(head: str, orders: tuple[int, int]) -> None:
    names = [n.partition("<")[0] for n in head.replace("L[", "").replace("Σ[", "").replace("]", "").replace(" ", ",").split(",")]
    left = operand([n for n in names if n[0] in "bmkl"], orders[0])
    right = operand([n for n in names if n[0] in "bnkl"], orders[1])
    declared = "".join(f"{name} : f32[{','.join(str(EXTENTS[n]) for n in dims)}]\n" for name, dims in (("A", left), ("B", right)))
    source = parse(f"{declared}{head} A[{','.join(left)}]*B[{','.join(right)}]")
    found = [checked(source, table) for table in (MATMUL, BATCHED_MATMUL)]
    plain = all(n in ("m", "n", "k") for n in names)
    assert (found[0] is not None) == plain or not plain, "a plain product has every layout"
    assert not (plain and found[1]), "it is no batch"


@pytest.mark.parametrize(("index", "batch", "forms"), [
    ("2*a+b", "a", ["2*a+b"]), ("2*a+b", "b", ["2*a+b"]), ("2*a+b", "", []), ("2*a+b", "ab", []), ("3*a+b", "a", []), ("a+b", "a", ["a+b"]),
    ("4*a+2*b", "a", ["2*a+b"]),
    ("5*a+2*b", "a", []), ("4*a+2*b+c", "ab", ["4*a+2*b+c"]), ("8*a+2*b+c", "ab", ["2*b+c"]), ("9*a+2*b+c", "a", []), ("5*a+2*b+c",
    "ab", ["2*b+c"]), ("2*a-b", "a", ["b-2*a"]),
    ("(2*a+b)/2", "a", []), ("2*a+b//2", "a", []), ("2*a+d", "a", []), ("u+b+3*a", "a", []), ("3*a+b+c", "ab", ["3*a+b+c"]),
])  # fmt: skip
def test_windows_that_overlap_in_memory(index: str, batch: str, forms: list[str]) -> None:
    """Each steps within the reach of the smaller ones, by a multiple of their unit, and all but one are batches."""
    source = parse(f"A : f32[99,9]\nL[a<3,b<3,c<4,1<=d<4,u<1] A[{index},c]") if "c" not in index else parse(f"A : f32[99]\nL[a<3,b<2,c<3] A[{index}]")
    (read,) = reads(source.body)
    groups = {i.name: ALL if i.name in batch else A_OUT for i in source.loops}
    assert overlapping(read, source, groups) == tuple(parse(f"A : f32[99]\nL[a<3,b<3,c<4] A[{f}]").body.index[0] for f in forms)


MIXED = "A : f32[44]\nK : weight f32[3,4,2]\nL[h<8,f<2] Σ[r<3,c<4] A[4*h+4*r+c]*K[r,c,f]"


def test_dimensions_that_mix_roles_are_copied_by_digits() -> None:
    """Positions and channels in one dimension: the copy has one for each, and then it is a convolution of the same values."""
    source = parse(MIXED)
    (found,) = CONV.match(source)
    assert isinstance(found, Digits) and found.divisor == 4 and found.operand == 0 and found.added == (var("h") + var("r"), var("c"))
    step = found.rewrite(source)
    assert step is not None and check_equal(source, step.scope).method == "inline" and isinstance(CONV.match(step.scope), Match)
    for other in (MIXED.replace("4*h+4*r+c", "3*h+4*r+c"), MIXED.replace("4*h+4*r+c", "4*h+2*r+c"), MIXED.replace("4*h+4*r+c", "4*h+3*r+4*c")):
        assert not any(isinstance(m, Digits) for m in CONV.match(parse(other)))


def test_a_match_in_mathematical_notation() -> None:
    found = MATMUL.match(parse("A : f32[3,5]\nB : f32[5,4]\nL[m<3,n<4] Σ[k<5] A[m,k]*B[k,n]"))
    assert isinstance(found, Match) and found._repr_latex_() == r"$\mathrm{Matmul}(\mathrm{m} = m,\; \mathrm{n} = n,\; \mathrm{k} = k)$"
