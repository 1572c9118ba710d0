"""bilinear: a short correlation with fewer multiplications (Toom-Cook; nested over several dimensions it is Winograd's convolution)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.block_product import block_products
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.substitute import reflect
from einnet.expr.algebra import Bilinear, Matrix, growth, toom_cook
from einnet.expr.index import Index, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, fresh, indices, make_mul, tensors, used_names
from einnet.expr.normal.totals import partial

TILES = (2, 3, 4, 6)
"""Outputs per tile and dimension."""

MOST_PRODUCTS = 8
"""Products per dimension; beyond, rounding errors grow faster than the products shrink."""

WASTE = 1.6
"""Most points that rounding up to whole tiles may add, as a factor per dimension."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A loop and a tap that stand in `index` of the data as a·(loop + tap), and nowhere else but the tap in the other factors."""

    loop: Iter
    tap: Iter
    index: Index


@rule("bilinear", order=130, guard="h and r occur in d only as a·(h+r), h in no other factor; r is short; all factors are numbers", kind="precision")
def bilinear(e: Scope) -> Iterator[Outcome]:
    """L[h] Σ[r<R] d[h+r]*g[r] = L[h] Σ[p] A[h%M,p]*{L[p,h'] {Σ[r] G[p,r]*g[r]}*{Σ[a] B[p,a]*d[M*h'+a]}}[p,h//M]

    p and a run over M+R-1; A, G, B are the exact Toom-Cook matrices F(M,R). All such pairs of one data operand are taken at once (F(MxM,RxR)).
    The same for products of matrices: blocks with fewer products (`block_products`). An element is in more sums on the right, with the factor 0 in
    some: the operands are numbers at every place.
    """
    if e.reduce == "sum" and partial(factors(e.body)):
        yield Refused("an operand need not be a number everywhere, and 0 times what is none is not 0")
        return
    yield from block_products(e)
    e = forwards(e)
    found = correlation(e)
    if isinstance(found, Refused):
        yield found
        return
    place, pairs = found
    applied = False
    for m in TILES:
        if all(m + p.tap.extent - 1 <= MOST_PRODUCTS and -(-p.loop.extent // m) * m <= WASTE * p.loop.extent for p in pairs):
            applied = True
            algorithms = [toom_cook(m, p.tap.extent) for p in pairs]
            bound = prod(growth(f) / f.taps for f in algorithms)
            yield Rewrite(transformed(e, place, pairs, algorithms), _parameters(pairs, algorithms), "precision", bound)
    if not applied:
        yield Refused(f"no tile of 2 to 6 outputs fits the extent with at most {MOST_PRODUCTS} products")


def _parameters(pairs: Sequence[Pair], algorithms: Sequence[Bilinear]) -> str:
    return " ".join(f"F({f.m},{f.taps}):{p.loop.name}+{p.tap.name}" for p, f in zip(pairs, algorithms))


def correlation(e: Scope) -> tuple[int, list[Pair]] | Refused:
    """The place of the data among the factors, and its pairs of loop and tap."""
    if e.reduce != "sum" or len(e.sums) < 1:
        return Refused("it is no sum")
    parts = factors(e.body)
    if len(parts) < 2:
        return Refused("its body is no product")
    for place, data in enumerate(parts):
        if isinstance(data, Read) and data.fill == 0:
            others = without(parts, place)
            pairs = [p for p in (_pair(e, data, others, r) for r in e.sums) if p is not None]
            if pairs and len({p.loop.name for p in pairs}) == len(pairs):
                return place, pairs
    return Refused("no operand is read at loop + tap, with the loop nowhere else")


def forwards(e: Scope) -> Scope:
    """Taps that are subtracted from a loop somewhere, and added nowhere, counted from their other end: h-r becomes h+r."""
    for i in e.sums:
        where = [ix for f in factors(e.body) if isinstance(f, Read) for ix in f.index if i.name in ix.names()]
        signs = {ix.coefficient(i.name) for ix in where if len(ix.terms) > 1}
        if -1 in signs and 1 not in signs:
            e = reflect(e, i).scope
    return e


def _pair(e: Scope, data: Read, others: Sequence[Body], tap: Iter) -> Pair | None:
    """The loop that goes with a tap, if tap and loop are added with one coefficient in just one index of the data."""
    holding = [ix for ix in data.index if tap.name in ix.names()]
    if len(holding) != 1 or tap.extent < 2 or tap.lo != 0 or not holding[0].is_affine or holding[0].coefficient(tap.name) < 1:
        return None
    (ix,) = holding
    elsewhere = frozenset().union(*(used_names(f) for f in others))
    if tap.name not in elsewhere:
        return None
    for loop in e.loops:
        alone = loop.name not in elsewhere and sum(loop.name in i.names() for i in data.index) == 1
        if alone and ix.coefficient(loop.name) == ix.coefficient(tap.name) and loop.lo == 0 and loop.extent > 1:
            return Pair(loop, tap, ix)
    return None


@dataclass(frozen=True, slots=True)
class Tiling:
    """A pair under its algorithm: iterators of the products p, of the points a of a window and of the tiles h', and the matrices A, G and B."""

    pair: Pair
    size: int
    product: Iter
    point: Iter
    tile: Iter
    out: Tensor
    of_taps: Tensor
    of_data: Tensor

    @property
    def window(self) -> Index:
        """Where a point of a tile's window stands in the data."""
        return substitute(self.pair.index, {self.pair.loop.name: self.size * var(self.tile.name), self.pair.tap.name: var(self.point.name)})


def tilings(e: Scope, pairs: Sequence[Pair], algorithms: Sequence[Bilinear]) -> list[Tiling]:
    """Each pair with its algorithm, under names that the scope does not have."""
    taken, used = {i.name for i in (*e.loops, *e.sums)}, set(tensors(e))
    found = []
    for p, f in zip(pairs, algorithms):
        new = []
        for wish, extent in (("p", f.products), ("a", f.products), (p.loop.name + "'", -(-p.loop.extent // f.m))):
            new.append(Iter(fresh(wish, taken), 0, extent))
            taken.add(new[-1].name)
        out, of_taps, of_data = (_tensor(fresh(f"{kind}_{f.m}_{f.taps}", used), f, name) for kind, name in (("AT", "A"), ("G", "G"), ("BT", "B")))
        found.append(Tiling(p, f.m, new[0], new[1], new[2], out, of_taps, of_data))
    return found


def transformed(e: Scope, place: int, pairs: Sequence[Pair], algorithms: Sequence[Bilinear]) -> Scope:
    """The right-hand side of the rule; the factor at `place` is the data."""
    data, others = factors(e.body)[place], without(factors(e.body), place)
    assert isinstance(data, Read)
    found = tilings(e, pairs, algorithms)
    products, taps = tuple(t.product for t in found), [t.pair.tap for t in found]
    tile, window = {t.pair.loop.name: t for t in found}, {t.pair.index: t.window for t in found}
    tapped = {i.name for i in taps}
    moved = replace(data, index=tuple(window.get(ix, ix) for ix in data.index))
    with_taps = [f for f in others if used_names(f) & tapped]
    rest = [f for f in others if not used_names(f) & tapped]
    loops = tuple(tile[i.name].tile if i.name in tile else i for i in e.loops)
    sums = in_memory_order(moved, [i for i in e.sums if i not in taps])
    v = _image(products, (*loops, *sums), {t.point: t.of_data for t in found}, (moved,))
    u = _image(products, (*loops, *sums), {t.pair.tap: t.of_taps for t in found}, with_taps)
    middle = Scope((*products, *loops), sums, make_mul((*rest, Read(v, indices(v.loops)), Read(u, indices(u.loops)))))
    where = indices(products)
    back = tuple(var(i.name) // tile[i.name].size if i.name in tile else var(i.name) for i in e.loops)
    results = (Read(t.out, (var(t.pair.loop.name) % t.size, p)) for t, p in zip(found, where))
    return Scope(e.loops, products, make_mul((*results, Read(middle, (*where, *back)))))


def _image(products: Sequence[Iter], over: Sequence[Iter], matrices: Mapping[Iter, Tensor], of: Sequence[Body]) -> Scope:
    """What matrices make of factors with the iterators that they sum up: L[p] Σ[a] M[p,a]*f(a), over the other iterators of the factors."""
    used = frozenset().union(*(used_names(f) for f in of))
    read = (Read(m, at) for m, at in zip(matrices.values(), zip(indices(products), indices(matrices))))
    return Scope((*products, *(i for i in over if i.name in used)), tuple(matrices), make_mul((*read, *of)))


def in_memory_order(data: Read, sums: Sequence[Iter]) -> tuple[Iter, ...]:
    """The iterators by their steps in the row-major data, greatest first: a transform that keeps their order moves whole rows."""
    steps = [prod(data.base.shape[k + 1 :]) for k in range(len(data.index))]
    return tuple(sorted(sums, key=lambda i: -max((s * abs(e.coefficient(i.name)) for s, e in zip(steps, data.index)), default=0)))


@lru_cache(maxsize=256)
def _tensor(name: str, f: Bilinear, which: str) -> Tensor:
    """One of the matrices of an algorithm. It is made once, so that its numbers are hashed and compared no more than that."""
    matrix: Matrix = getattr(f, which)
    return Tensor(name, (len(matrix), len(matrix[0])), "f32", True, tuple(v for row in matrix for v in row))
