"""The bilinear rule for products of matrices: blocks with fewer products (Strassen), for the rule in `bilinear`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from einnet.derivation.facts import product_reads, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite
from einnet.expr.algebra import BlockProduct, Matrix, product_growth, strassen
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, fresh, indices, make_mul, substitute_body, tensors, used_names

LEAST = 32
"""Rows, columns and depth from which on a block is still a product worth its transforms."""


def block_products(e: Scope) -> Iterator[Outcome]:
    """L[m,n] Σ[k] x[m,k]*y[k,n] = L[m,n] Σ[p] W[i,j,p]*{L[p,m',n'] Σ[k'] {Σ[i,l] U[p,i,l]*x[M*i+m',K*l+k']}*{Σ[l,j] V[p,l,j]*y[..]}}[p,m%M,n%N]

    i = m//M and j = n//N number the blocks, M is half the rows rounded up: reads beyond the last row are 0.
    """
    found = roles(e)
    if isinstance(found, Refused):
        yield found
        return
    x, y, m, n, k = found
    algorithm = strassen()
    bound = product_growth(algorithm) * -(-k.extent // algorithm.blocks) / k.extent
    yield Rewrite(blocked(e, x, y, (m, n, k), algorithm), f"blocks={m.name},{n.name},{k.name}", "precision", bound)


def roles(e: Scope) -> tuple[Read, Read, Iter, Iter, Iter] | Refused:
    """The operands, and the longest row, column and depth iterators: each alone in an index of the operands that have it."""
    operands = product_reads(e.body)
    if e.reduce != "sum" or operands is None or len(operands) != 2:
        return Refused("its body is no product of two reads")
    if any(r.fill != 0 or len(ix.terms) > 1 or not ix.is_affine for r in operands for ix in r.index):
        return Refused("an operand's index has several iterators: it is no product of matrices")
    x, y = operands
    of_x, of_y = used_names(x), used_names(y)
    groups = [[i for i in iters if i.name in own] for iters, own in ((e.loops, of_x - of_y), (e.loops, of_y - of_x), (e.sums, of_x & of_y))]
    if not all(groups):
        return Refused("rows, columns or what is summed is missing: it is no product of matrices")
    m, n, k = (max(group, key=lambda i: i.extent) for group in groups)
    if min(i.extent for i in (m, n, k)) < LEAST:
        return Refused(f"the matrices are smaller than {LEAST}")
    if k.extent % 2 and not zero_outside(e.body, k.name, k.range, e.ranges):
        return Refused("what is summed has an odd extent, and the operands are not 0 beyond it")
    return x, y, m, n, k


def blocked(e: Scope, x: Read, y: Read, of: tuple[Iter, Iter, Iter], f: BlockProduct) -> Scope:
    """The right-hand side of the rule."""
    taken = {i.name for i in (*e.loops, *e.sums)}

    def name(wish: str) -> str:
        found = fresh(wish, taken)
        taken.add(found)
        return found

    p = Iter(name("p"), 0, f.products)
    which = {i.name: Iter(name("i"), 0, f.blocks) for i in of}
    within = {i.name: Iter(name(i.name + "'"), 0, -(-i.extent // f.blocks)) for i in of}
    place = {i.name: within[i.name].extent * var(which[i.name].name) + var(within[i.name].name) + i.lo for i in of}
    m, n, k = of
    loops, sums = tuple(within.get(i.name, i) for i in e.loops), tuple(within.get(i.name, i) for i in e.sums)
    used = set(tensors(e))

    def transform(kind: str, r: Read, rows: Iter, columns: Iter) -> Read:
        own = (p, *(i for i, old in zip((*loops, *sums), (*e.loops, *e.sums)) if old.name in used_names(r)))
        at = var(which[rows.name].name), var(which[columns.name].name)
        read = Read(_tensor(fresh(f"{kind}_{f.blocks}", used), f, kind, (f.products, f.blocks, f.blocks)), (var(p.name), *at))
        moved = substitute_body(r, place)
        return Read(Scope(own, (which[rows.name], which[columns.name]), make_mul((read, moved))), indices(own))

    middle = Scope((p, *loops), sums, make_mul((transform("U", x, m, k), transform("V", y, k, n))))
    back = tuple((var(i.name) - i.lo) % within[i.name].extent if i in (m, n) else var(i.name) for i in e.loops)
    block: tuple[Index, ...] = tuple((var(i.name) - i.lo) // within[i.name].extent for i in (m, n))
    read = Read(_tensor(fresh(f"W_{f.blocks}", used), f, "W", (f.blocks, f.blocks, f.products)), (*block, var(p.name)))
    return Scope(e.loops, (p,), make_mul((read, Read(middle, (var(p.name), *back)))))


@lru_cache(maxsize=256)
def _tensor(name: str, f: BlockProduct, which: str, shape: tuple[int, ...]) -> Tensor:
    """One of the matrices of an algorithm. It is made once, so that its numbers are hashed and compared no more than that."""
    matrix: Matrix = getattr(f, which)
    return Tensor(name, shape, "f32", True, tuple(v for row in matrix for v in row))
