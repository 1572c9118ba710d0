"""bilinear: a short correlation with fewer multiplications (Toom-Cook; nested over several dimensions it is Winograd's convolution)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.block_product import block_products
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.substitute import reflect
from einnet.expr.algebra import Bilinear, Matrix, growth, toom_cook
from einnet.expr.index import Index, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, fresh, index_functions, indices, make_mul, tensors, used_names

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


@rule("bilinear", order=130, guard="h and r occur in d only as a·(h+r), h in no other factor; r is short", kind="precision")
def bilinear(e: Scope) -> Iterator[Outcome]:
    """L[h] Σ[r<R] d[h+r]*g[r] = L[h] Σ[p] A[h%M,p]*{L[p,h'] {Σ[r] G[p,r]*g[r]}*{Σ[a] B[p,a]*d[M*h'+a]}}[p,h//M]

    p and a run over M+R-1; A, G, B are the exact Toom-Cook matrices F(M,R). All such pairs of one data operand are taken at once (F(MxM,RxR)).
    The same for products of matrices: blocks with fewer products (`block_products`).
    """
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
    if not any(tap.name in used_names(f) for f in others):
        return None
    for loop in e.loops:
        if ix.coefficient(loop.name) == ix.coefficient(tap.name) and loop.lo == 0 and loop.extent > 1:
            elsewhere = [i for i in index_functions(e.body) if loop.name in i.names() and i != ix]
            if not elsewhere and sum(loop.name in i.names() for i in data.index) == 1 and not any(loop.name in used_names(f) for f in others):
                return Pair(loop, tap, ix)
    return None


def transformed(e: Scope, place: int, pairs: Sequence[Pair], algorithms: Sequence[Bilinear]) -> Scope:
    """The right-hand side of the rule; the factor at `place` is the data."""
    data, others = factors(e.body)[place], without(factors(e.body), place)
    assert isinstance(data, Read)
    taken = {i.name for i in (*e.loops, *e.sums)}
    names: list[tuple[str, str, str]] = []
    for p in pairs:
        new = []
        for wish in ("p", "a", p.loop.name + "'"):
            new.append(fresh(wish, taken))
            taken.add(new[-1])
        names.append((new[0], new[1], new[2]))
    products = tuple(Iter(p, 0, f.products) for (p, _, _), f in zip(names, algorithms))
    window = tuple(Iter(a, 0, f.products) for (_, a, _), f in zip(names, algorithms))
    tile = {q.loop.name: Iter(t, 0, -(-q.loop.extent // f.m)) for q, (_, _, t), f in zip(pairs, names, algorithms)}
    taps = {p.tap.name: p.tap for p in pairs}
    used = set(tensors(e))
    matrix = {kind: [_tensor(f"{kind}_{f.m}_{f.taps}", getattr(f, kind[0]), used) for f in algorithms] for kind in ("AT", "G", "BT")}

    def read_matrix(kind: str, rows: Sequence[Index], columns: Sequence[Index]) -> list[Body]:
        return [Read(t, (r, c)) for t, r, c in zip(matrix[kind], rows, columns)]

    to_window = {p.index: substitute(p.index, {p.loop.name: f.m * var(t), p.tap.name: var(a)}) for p, (_, a, t), f in zip(pairs, names, algorithms)}
    moved = replace(data, index=tuple(to_window.get(ix, ix) for ix in data.index))
    with_taps = [f for f in others if used_names(f) & taps.keys()]
    rest = [f for f in others if not used_names(f) & taps.keys()]
    loops = tuple(tile.get(i.name, i) for i in e.loops)
    sums = in_memory_order(moved, [i for i in e.sums if i.name not in taps])
    where, at = indices(products), indices(window)
    v_used, u_used = used_names(moved), frozenset().union(*(used_names(f) for f in with_taps))
    v_loops = (*products, *(i for i in (*loops, *sums) if i.name in v_used))
    u_loops = (*products, *(i for i in (*loops, *sums) if i.name in u_used))
    v = Scope(v_loops, window, make_mul((*read_matrix("BT", where, at), moved)))
    u = Scope(u_loops, tuple(taps.values()), make_mul((*read_matrix("G", where, indices(taps.values())), *with_taps)))
    middle = Scope((*products, *loops), sums, make_mul((*rest, Read(v, indices(v_loops)), Read(u, indices(u_loops)))))
    out = {p.loop.name: f.m for p, f in zip(pairs, algorithms)}
    rows = [var(p.loop.name) % f.m for p, f in zip(pairs, algorithms)]
    back = tuple(var(i.name) // out[i.name] if i.name in out else var(i.name) for i in e.loops)
    return Scope(e.loops, products, make_mul((*read_matrix("AT", rows, where), Read(middle, (*where, *back)))))


def in_memory_order(data: Read, sums: Sequence[Iter]) -> tuple[Iter, ...]:
    """The iterators by their steps in the row-major data, greatest first: a transform that keeps their order moves whole rows."""
    steps = [prod(data.base.shape[k + 1 :]) for k in range(len(data.index))]
    return tuple(sorted(sums, key=lambda i: -max((s * abs(e.coefficient(i.name)) for s, e in zip(steps, data.index)), default=0)))


def _tensor(name: str, matrix: Matrix, used: set[str]) -> Tensor:
    return Tensor(fresh(name, used), (len(matrix), len(matrix[0])), "f32", True, tuple(v for row in matrix for v in row))
