"""Tiles of a nest around one reduction: what a block shares, every kind of tile against the expression, tails, strides, borders and aliases."""

from __future__ import annotations

from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest

from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda import thread_blocks, tile_search
from einnet.instantiate.codegen.cuda.emit import CudaOperator, lower_cuda
from einnet.instantiate.codegen.cuda.footprint import footprint, turns
from einnet.instantiate.codegen.cuda.lanes import Lanes
from einnet.instantiate.codegen.cuda.reduction_nest import SUM, contraction
from einnet.instantiate.codegen.cuda.staging import staged
from einnet.instantiate.codegen.cuda.tile_search import TileSearch, Touched, tile
from einnet.instantiate.codegen.cuda.tiling import Tile, distinct, lanes_of
from einnet.instantiate.codegen.ir import Load, Nest, Reduce, walk
from einnet.instantiate.codegen.resolve import OUT, resolve
from einnet.instantiate.kernels import EOperator, dense_view
from einnet.runtime.cuda import shim
from tests.instantiate.cuda_cases import operator
from tests.instantiate.test_codegen_cuda import run

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")

CASES = {
    "few channels": ("L[h<13,w<37,f<5] relu({L[h<13,w<37,f<5] Σ[c<3,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]}[h,w,f]+B[f])",
                     {"A": (13, 37, 3), "K": (3, 3, 5, 3), "B": (5,)}),
    "strided": ("L[h<11,w<19,f<6] Σ[c<3,r<7,s<7] A[c,2*h+r-3,2*w+s-3]*K[f,c,r,s]", {"A": (3, 23, 39), "K": (6, 3, 7, 7)}),
    "dilated, no border": ("L[h<9,w<33] Σ[c<4,r<3,s<2] A[c,h+2*r,w+3*s]*K[c,r,s]", {"A": (4, 13, 36), "K": (4, 3, 2)}),
    "transposed": ("L[f<3,h<14,w<22] Σ[c<7,r<4,s<4] A[(h-r+1)/2,(w-s+1)/2,c]*K[c,f,r,s]", {"A": (7, 11, 7), "K": (7, 3, 4, 4)}),
    "pooled": ("L[c<3,h<9,w<35] max[r<3,s<3] A[c,2*h+r-1,2*w+s-1]|-inf", {"A": (3, 17, 69)}),
    "reflected": ("L[i<50,f<3] Σ[k<9] A[i-k+8]*K[k,f]", {"A": (58,), "K": (9, 3)}),
    "a range of its own": ("L[i<40] Σ[-3<=k<5] A[i+k]*K[k+3]", {"A": (40,), "K": (8,)}),
    "rows": ("L[i<37] Σ[k<45] A[i,k]*B[k]", {"A": (37, 45), "B": (45,)}),
    "one number": ("L[i<1] Σ[k<45] A[k]*A[k]", {"A": (45,)}),
    "product": ("L[m<41,n<29] Σ[k<23] A[m,k]*B[k,n]", {"A": (41, 23), "B": (23, 29)}),
    "long product": ("L[m<17,n<40] Σ[k<600] A[m,k]*B[n,k]", {"A": (17, 600), "B": (40, 600)}),
    "differences": ("L[m<21,n<35] Σ[k<6] abs(A[m,k]-B[n,k])", {"A": (21, 6), "B": (35, 6)}),
    "residual": ("L[n<2,f<4,h<6,w<34] relu({L[n<2,f<4,h<6,w<34] Σ[c<2,r<3] A[n,c,h+r-1,w]*K[f,c,r]}[n,f,h,w]+R[n,f,h,w])",
                 {"A": (2, 2, 6, 34), "K": (4, 2, 3), "R": (2, 4, 6, 34)}),
    "masked": ("L[i<19,j<33] Σ[k<5] select(j-i>=0, A[i,k]*B[j,k], 0)", {"A": (19, 5), "B": (33, 5)}),
}  # fmt: skip


ALONE = Lanes((), 1)
"""One thread."""


def case(name: str) -> EOperator:
    return operator(*CASES[name])


def nest_of(op: EOperator) -> Nest:
    """The last kernel's nest as it is tiled."""
    return normalise(staged(resolve(op, ())).nests[-1])


def some_tiles(op: EOperator, seed: int, count: int, exact: bool = False) -> list[Tile]:
    """The chosen tile, and those of walks through what was not chosen, with copies wherever they are possible in every other one."""
    nest = nest_of(op)
    found = contraction(nest)
    assert found is not None
    search, rng = TileSearch(nest, *found, exact), Random(seed)
    result = [search.best()]
    while len(result) < count:
        at = rng.choice(list(search.starts()))
        for _ in range(rng.randrange(1, 7)):
            near = [t for t in search.neighbours(at) if search.finished(t).cycles < float("inf")]
            at = rng.choice(near) if near else at
        done = search.finished(at)
        if len(result) % 2 and at.team[1] == 1:
            some = [rng.random() < 0.7 for _ in search.loads]
            forced = search.modelled(done, some, ALONE, Touched.of(search, ALONE))
            done = forced if forced.staged else done
        if done.cycles < float("inf"):
            result.append(done)
    return result


def emitted(op: EOperator, tiles: list[Tile], monkeypatch: pytest.MonkeyPatch) -> list[CudaOperator]:
    made = []
    monkeypatch.setattr(thread_blocks, "team", lambda nest: 0)
    for n, t in enumerate(tiles):
        monkeypatch.setattr(thread_blocks, "tile", lambda nest, exact=False, t=t: t)
        made.append(lower_cuda(op, f"k{n}"))
    return made


def library(made: list[CudaOperator]) -> object:
    kernels = {k.name: len(k.arguments) for m in made for k in m.kernels}
    return shim.compiled({f"k{n}": m.text for n, m in enumerate(made)}, kernels)


QUICK = ("few channels", "transposed", "rows", "masked", "long product")


@needs_compiler
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_every_tile_computes_the_expression(name, monkeypatch):
    op = case(name)
    rng = np.random.default_rng(0)
    given = {n: rng.integers(-4, 5, v.shape).astype(np.float32) for n, v in op.operands}
    wanted = evaluate(op.scope, given)
    tiles = some_tiles(op, seed=len(name), count=4 if name in QUICK else 8)
    made = emitted(op, tiles, monkeypatch)
    compiled = library(made)
    for t, m in zip(tiles, made, strict=True):
        out = np.full(op.out.shape, np.nan, np.float32)
        run(compiled, m, {**{f"operand {i}": given[n] for i, (n, _) in enumerate(op.operands)}, OUT: out})
        np.testing.assert_array_equal(out, wanted, err_msg=str((t.threads, t.points, t.team, t.unrolled, t.chunks, t.staged)))


def test_the_walks_meet_every_kind_of_tile():
    found = [t for name in QUICK for t in some_tiles(case(name), seed=len(name), count=4)]
    assert any(t.team[1] > 1 for t in found)
    assert any(t.staged for t in found)
    assert any(t.staged and t.chunks and any(t.chunks.get(i.name, i.extent) < i.extent for i in t.reduce.sums) for t in found)
    assert any(i.extent % t.box[i.name] for t in found for i in t.nest.loops)
    assert any(1 < t.points[i.name] < i.extent for t in found for i in t.nest.loops)


class Exhaustive(TileSearch):
    """The search that looks into everything."""

    def least(self, t: Tile) -> float:
        return 0.0

    def with_copies(self, t: Tile, most: float = inf) -> Tile:
        lanes = lanes_of(t)
        options = [(False,) * len(self.loads)] if t.team[1] > 1 or t.block == 1 else list(product((False, True), repeat=len(self.loads)))
        return min((self.modelled(t, chosen, lanes, Touched.of(self, lanes)) for chosen in options), key=lambda t: t.cycles)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_looked_into_is_no_better(name):
    """What a tile takes at least is what bounds the search: it ends at the tile that it would end at without."""
    nest = nest_of(case(name))
    found = contraction(nest)
    assert found is not None
    search = TileSearch(nest, *found, False)
    assert search.best() == Exhaustive(nest, *found, False).best()
    near = [t for start in search.starts() for t in search.neighbours(start)]
    assert all(search.least(t) <= search.finished(t).cycles for t in near)
    assert any(search.least(t) > 0.5 * search.finished(t).cycles for t in near)


ALIKE = {
    "elsewhere": "L[i<24,f<8] relu({L[i<24,f<8] Σ[c<6,r<3] A[i+r+4,c]*K[r,f,c]}[i,f])+B[f]",
    "another function": "L[i<24,f<8] abs({L[i<24,f<8] Σ[c<6,r<3] A[i+r,c]*K[r,f,c]}[i,f])+B[f]",
    "guarded": "L[i<24,f<8] relu({L[i<24,f<8] Σ[c<6,r<3] A[i+r-1,c]*K[r,f,c]}[i,f])+B[f]",
    "transposed": "L[i<24,f<8] relu({L[i<24,f<8] Σ[c<6,r<3] A[i+r,c]*K[r,c,f]}[i,f])+B[f]",
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_nests_that_look_alike_have_the_same_tiles_found_once(name, monkeypatch):
    """The tile of a nest is that which a search for itself alone would find, whatever was searched before."""
    shapes = {"A": (40, 6), "K": (3, 8, 6), "B": (8,)}
    monkeypatch.setattr(tile_search, "_known", {})
    tile_search._tile.cache_clear()
    searched = []
    best = TileSearch.best
    monkeypatch.setattr(TileSearch, "best", lambda self: searched.append(self) or best(self))
    texts = ["L[i<24,f<8] relu({L[i<24,f<8] Σ[c<6,r<3] A[i+r,c]*K[r,f,c]}[i,f])+B[f]", ALIKE[name]]
    nests = [nest_of(operator(t, shapes | ({"K": (3, 6, 8)} if "K[r,c,f]" in t else {}))) for t in texts]
    tiles = [tile(nest) for nest in nests]
    assert len(searched) == (1 if name in ("elsewhere", "another function") else 2)
    for nest, found in zip(nests, tiles, strict=True):
        around = contraction(nest)
        assert around is not None and found == best(TileSearch(nest, *around, False))


def test_lanes_are_digits_of_their_numbers():
    lanes = Lanes((("a", 4, 3), ("b", 3, 2), ("c", 5, 7)), 32)
    steps = {"a": 1, "c": -2, "d": 9}
    assert lanes.places(steps) == [3 * (n % 4) - 14 * (n // 12) for n in range(32)]
    assert Lanes((("a", 2, 1),), 2).places({"a": 5}) == [0, 5]
    assert ALONE.places(steps) == [0]


@needs_compiler
def test_in_place_every_element_is_written_once():
    """A residual that lies where the result goes would be added twice by a block that begins earlier."""
    scope = case("residual").scope
    views = tuple((n, dense_view("out" if n == "R" else n, v.shape)) for n, v in case("residual").operands)
    op = EOperator(scope, views, dense_view("out", scope.shape))
    assert all(i.extent % t.box[i.name] == 0 for t in some_tiles(op, 1, 6, exact=True) for i in t.nest.loops)
    rng = np.random.default_rng(0)
    given = {n: rng.integers(-4, 5, v.shape).astype(np.float32) for n, v in op.operands}
    wanted, made, out = evaluate(scope, given), lower_cuda(op, "k"), given["R"].copy()
    arrays = {f"operand {i}": out if n == "R" else given[n] for i, (n, _) in enumerate(op.operands)}
    run(library([made]), made, {**arrays, OUT: out})
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", ["few channels", "residual", "rows"])
def test_what_is_around_a_sum_does_not_hold_it(name):
    found = contraction(nest_of(case(name)))
    assert found is not None
    reduce, rest = found
    assert SUM in walk(rest) and not any(isinstance(e, Reduce) for e in walk(rest)) and isinstance(reduce, Reduce)


@pytest.mark.parametrize("text", [
    "L[i<8,j<8] A[i,j]+1",
    "L[i<8] {L[i<8] Σ[k<8] A[i,k]}[i]*{L[i<8] max[k<8] A[i,k]}[i]",
    "L[i<8] Σ[k<8] {L[i<8,k<8] Σ[l<8] A[i,l]*A[k,l]}[i,k]*A[i,k]",
])  # fmt: skip
def test_other_nests_are_not_tiled(text):
    nest = resolve(operator(text, {"A": (8, 8)}), ())
    assert tile(normalise(nest)) is None


def loads(text: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Load]:
    nest = resolve(operator(text, shapes), ())
    return {e.array: e for e in walk(nest.expr) if isinstance(e, Load)}


def test_iterators_that_move_along_one_coordinate_share_an_axis():
    a = loads("L[h<11,w<19,f<6] Σ[c<3,r<7,s<7] A[c,2*h+r-3,2*w+s-3]*K[f,c,r,s]", {"A": (3, 23, 39), "K": (6, 3, 7, 7)})["A"]
    h, w, c, r, s = (next(n for n in a.address.names() if n.startswith(x)) for x in "hwcrs")
    found = footprint(a, {h: 4, w: 8, c: 3, r: 7, s: 7})
    assert found is not None
    assert sorted((axis.extent, axis.members) for axis in found.axes) == [(3, ((c, 1),)), (13, ((r, 1), (h, 2))), (21, ((s, 1), (w, 2)))]
    assert len(found.at().guards) == len(a.guards) == 4
    assert found.at().address.names() == {axis.name for axis in found.axes}


def test_iterators_that_share_no_element_have_axes_of_their_own():
    k = loads("L[f<6] Σ[c<3,r<7] A[c,r]*K[f,c,r]", {"A": (3, 7), "K": (6, 3, 7)})["K"]
    f = next(n for n in k.address.names() if n.startswith("f"))
    found = footprint(k, {n: 6 if n == f else 21 for n in k.address.names()})
    assert found is not None and [axis.extent for axis in found.axes] == [21, 6]


def test_a_guard_that_is_no_function_of_the_coordinates_has_no_copy():
    masked = loads("L[i<8,j<8] Σ[k<4] select(j-i>=0, A[i+k], 0)", {"A": (11,)})["A"]
    assert masked.guards
    assert footprint(masked, dict.fromkeys(masked.address.names() | {x for c in masked.guards for x in c.index.names()}, 4)) is None


def test_copies_lie_so_that_the_lanes_of_a_warp_find_them_in_different_banks():
    a = loads("L[h<64,w<64] Σ[c<8] A[w,h,c]", {"A": (64, 64, 8)})["A"]
    w, c = (next(n for n in a.address.names() if n.startswith(x)) for x in "wc")
    nest = normalise(resolve(operator("L[w<64,f<8] Σ[c<8] A[w,c]*K[c,f]", {"A": (64, 8), "K": (8, 8)}), ()))
    t = tile(nest)
    assert t is not None
    flat = footprint(a, {n: 8 if n in (w, c) else 1 for n in a.address.names()})
    assert flat is not None and turns(flat, Lanes(((w, 32, 1),), 32)) > 1


def test_elements_of_a_thread_share_what_they_read():
    a = loads("L[h<11,w<19] Σ[r<3,s<3] A[h+r-1,w+s-1]*K[r,s]", {"A": (11, 19), "K": (3, 3)})["A"]
    h, r, s = (next(n for n in a.address.names() if n.startswith(x)) for x in "hrs")
    assert distinct(a.address, {h: 4, r: 3, s: 3}) == 6 * 3
    phases = loads("L[h<12] Σ[r<4] A[(h-r+1)/2]*K[r]", {"A": (6,), "K": (4,)})["A"]
    (h,), (r,) = ([n for n in phases.address.names() if n.startswith(x)] for x in "hr")
    assert distinct(phases.address, {h: 2, r: 4}) == 3


@pytest.mark.parametrize("name", QUICK)
def test_the_choice_is_the_same_every_time(name):
    op = case(name)
    tile.__globals__["_tile"].cache_clear()
    before = lower_cuda(op, "k").text
    tile.__globals__["_tile"].cache_clear()
    assert lower_cuda(op, "k").text == before
