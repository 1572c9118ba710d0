"""Random scopes that read two sums: of one form, of forms that differ a little, concatenated, added, or under functions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

from einnet.expr.index import Index, bounds, var
from einnet.expr.nodes import Body, Call, Cond, Iter, Read, Scope, Select, Tensor, indices, make_add, make_mul


@st.composite
def siblings(draw: st.DrawFn) -> Scope:
    """L[..] s ∘ t: the second sum has other operands, another extent, other names or more loops than the first.
    Where they are added, there may be a third."""
    m, k = draw(st.sampled_from((2, 3))), draw(st.sampled_from((2, 3, 4)))
    low = draw(st.sampled_from((0, 0, 0, 1, -1)))
    how = draw(st.sampled_from(("concatenated", "concatenated", "added", "added", "anyhow")))
    widths = draw(st.sampled_from(((2, 2), (3, 3), (1, 1)) if how == "added" else ((2, 3), (2, 2), (1, 2), (3, 3))))
    reduce = draw(st.sampled_from(("sum",) * 7 + ("max",)))
    share = draw(st.sampled_from((True, True, False)))
    first = product(draw, "m", "n", "k", (m, widths[0], k), "A", "B", low, reduce)
    other = k if draw(st.integers(0, 5)) else k + 1
    second = product(draw, *draw(st.sampled_from((("m", "n", "k"), ("x", "y", "z")))), (m, widths[1], other), "A" if share else "C", "D", low, reduce)
    loops = (Iter("i", low, low + m), Iter("j", 0, sum(widths) if how == "concatenated" else max(widths)))
    shift = widths[0] if how == "concatenated" else 0 if how == "added" else draw(st.integers(-1, 2))
    terms: list[Body] = [Read(first, indices(loops)), Read(second, (var("i"), var("j") - shift))]
    if how == "anyhow":
        terms[0] = Call("relu", (terms[0],))
    if draw(st.integers(0, 7)) == 0:
        terms.append(Read(Tensor("E", (2,)), (var("i"),)))
    if how == "added" and draw(st.booleans()):
        third = product(draw, "m", "n", "k", (m, widths[0], k), draw(st.sampled_from("AAC")), "F", low, reduce)
        terms.append(Read(third, indices(loops)))
    return Scope(loops, (), make_mul(terms) if how == "anyhow" and draw(st.booleans()) else make_add(terms))


def product(draw: st.DrawFn, m: str, n: str, k: str, extents: Sequence[int], left: str, right: str, low: int, reduce: str) -> Scope:
    """L[m,n] Σ[k] left[m,k]*right[k,n], sometimes a window in left, another layout of right, or one more factor."""
    rows, columns, depth = Iter(m, low, low + extents[0]), Iter(n, 0, extents[1]), Iter(k, 0, extents[2])
    ranges = {i.name: i.range for i in (rows, columns, depth)}
    position = var(m) + (var(k) if draw(st.integers(0, 6)) == 0 else 0)
    factors = [_read(left, (position, var(k)), ranges)]
    factors.append(_read(right, (var(k), var(n)) if draw(st.integers(0, 2)) else (var(n), var(k)), ranges, weight=draw(st.booleans())))
    if draw(st.integers(0, 6)) == 0:
        factors.append(_read("S", (var(n),), ranges))
    return Scope((rows, columns), (depth,), make_mul(factors), reduce)


def _read(name: str, index: tuple[Index, ...], ranges: dict[str, tuple[int, int]], weight: bool = False) -> Read:
    shape = tuple(bounds(e, ranges)[1] + 1 for e in index)
    return Read(Tensor(f"{name}{'w' if weight else ''}{'x'.join(map(str, shape))}", shape, "f32", weight), index)


@st.composite
def concatenations(draw: st.DrawFn) -> Scope:
    """Σ[k] of a product in which an operand is a sum of shifted reads, or a scope of such: along a loop, along what is summed, or just added."""
    m, n, k = (draw(st.sampled_from((2, 3, 4))) for _ in range(3))
    loops, sums = (Iter("m", 0, m), Iter("n", 0, n)), (Iter("k", 0, k),)
    cut = draw(st.integers(1, 2))
    along = draw(st.sampled_from(("n", "n", "k", "")))
    e, f = Tensor(f"E{cut}", (k, cut) if along == "n" else (cut, n)), Tensor("F", (k + 1, n + 1))
    index = (var("k"), var("n"))
    moved = tuple(ix - cut if a == along else ix for a, ix in zip("kn", index))
    terms: Body = make_add((Read(e, index), Read(f, moved, draw(st.sampled_from((Fraction(0),) * 5 + (Fraction(1),))))))
    if along and draw(st.integers(0, 2)) == 0:  # by a choice, of what is 0 beyond or goes on there
        there = draw(st.sampled_from((moved, index)))
        terms = Select((Cond(var(along) - cut),), Read(f, there), Read(e, index))
    whole = terms if draw(st.booleans()) else Read(Scope((*sums, loops[1]), (), terms), index)
    factors: list[Body] = [Read(Tensor("A", (m, k)), (var("m"), var("k"))), whole]
    if draw(st.integers(0, 3)) == 0:
        factors.append(Read(Tensor("S", (n,)), (var("n"),)))
    return Scope(loops, sums, make_mul(draw(st.permutations(factors))), draw(st.sampled_from(("sum",) * 5 + ("max",))))
