"""Structure of weights that their values show: zeros outside a region, one value throughout, a product of vectors or a sum of few such,
numbers that decay along a diagonal.

A weight that has some is read as a tensor that is computed of it at compile time: select(region, W, 0), a number, u*v, Σ[r] u*v. Operators take
that as they took the weight; derivations can open it. The region and the number are exact; a product is one where no element is further from it than
rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import inf, isfinite

import numpy as np

from einnet.expr.index import simplify, var
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Iter, Mul, Read, Scope, Select, Tensor, Val, indices, make_mul, map_reads, reads
from einnet.graph.operators.choice import conditions
from einnet.graph.operators.op import number
from einnet.graph.passes.decays import decay
from einnet.graph.passes.low_rank import LowRank, Walk, low_rank
from einnet.graph.passes.masks import whole
from einnet.graph.passes.table_factors import ROUNDING
from einnet.graph.passes.table_samples import largest
from einnet.graph.program import Node, Program
from einnet.graph.rewrite import Fresh

MOST_FULL = 0.6
"""Share of the elements that a region may have."""

FEW = 2
"""Rows of a weight that are looked at first."""

MINORS = 32
"""Rows and columns of a weight at least that show first that it is no product."""

SAMPLED = 64
"""Elements among which the most frequent number is looked for."""

BLOCKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Blocks along a diagonal that are looked for."""


def recover_structure(program: Program) -> Program:
    """Reads of such weights, one iterator to a dimension, as reads of what they are made of."""
    finder = _Finder(program)
    nodes = [replace(n, scope=finder.opened(n.scope)) if isinstance(n, Node) else n for n in program.nodes]
    return replace(program, nodes=tuple(nodes), weights={**program.weights, **finder.made})


def one_number(values: np.ndarray) -> Scope | None:
    """A weight that is one number everywhere; None for any other, of which the last element mostly tells."""
    if values.dtype != np.float32 or not values.size or not np.isfinite(values.flat[0]):
        return None
    if values.flat[-1] != values.flat[0] or not (values == values.flat[0]).all():
        return None
    return Scope(tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(values.shape)), (), Const(number(float(values.flat[0]))))


class _Finder:
    """What is known of each weight, and the new weights that are needed to say it."""

    def __init__(self, program: Program) -> None:
        self.weights = program.weights
        self.made: dict[str, np.ndarray] = {}
        self._name = Fresh(program)
        self._known: dict[tuple[Tensor, tuple[Walk, ...]], Scope | None] = {}

    def opened(self, scope: Scope) -> Scope:
        def open_read(r: Read) -> Body:
            base = r.base
            if not isinstance(base, Tensor) or base.name not in self.weights or not whole(r, base, scope):
                return r
            walks = walks_of(r, scope)
            if (base, walks) not in self._known:
                self._known[base, walks] = self.structure(base, self.weights[base.name], walks)
            found = self._known[base, walks]
            return r if found is None else Read(found, r.index, r.fill)

        body = map_reads(scope.body, open_read)
        return scope if body is scope.body else replace(scope, body=body)

    def structure(self, tensor: Tensor, values: np.ndarray, walks: Sequence[Walk]) -> Scope | None:
        """The weight, its dimensions walked so, as a scope that shows its structure; None where there is none."""
        if values.size < 2 or values.dtype != np.float32 or not isfinite(top := largest(values)):
            return None
        loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(values.shape))
        if (alike := one_number(values)) is not None:
            return alike
        body = self._region(tensor, values, loops) or self._beside(tensor, values, loops, walks)
        return Scope(loops, (), body) if body is not None else self._product(tensor, values, top, loops, walks)

    def _beside(self, tensor: Tensor, values: np.ndarray, loops: tuple[Iter, ...], walks: Sequence[Walk]) -> Body | None:
        """c + select(region, W - c, 0), where a sum reads what is one number c outside of a region: the sum of all that c multiplies is needed once.

        In every sum c is a good part of the elements, so that none is the small rest of c times what is nearly all.
        """
        sample = values.flat[:: max(values.size // SAMPLED, 1)]
        numbers, counts = np.unique(sample, return_counts=True)
        usual = numbers[counts.argmax()]
        summed = tuple(n for n, walk in enumerate(walks) if walk != "loop")
        if usual == 0 or not summed or len(numbers) == len(sample) > 2:  # of three numbers none is a good part
            return None
        if ((values != usual).mean(axis=summed) > MOST_FULL).any():
            return None
        rest = values.astype(np.float64) - float(usual)
        conds, inside, _ = region_of(rest, loops)
        if not conds or inside.size > MOST_FULL * values.size:
            return None
        then = Const(number(float(inside[0]))) if (inside == inside[0]).all() else self._factor(tensor, rest, loops)
        return Add((Const(number(float(usual))), Select(conds, then, Const(number(0.0)))))

    def _region(self, tensor: Tensor, values: np.ndarray, loops: tuple[Iter, ...]) -> Body | None:
        """select(region, W, 0), where few elements are no zeros."""
        where = values != 0
        if np.count_nonzero(where) > MOST_FULL * values.size:
            return None
        conds, inside, loose = region_of(values, loops)
        if not conds or inside.size > MOST_FULL * values.size:
            return None
        if (inside == inside[0]).all():
            then: Body = Const(number(float(inside[0])))
        else:
            then = (None if loose else self._decay(tensor, values, conds, loops)) or Read(tensor, indices(loops))
        return Select(conds, then, Const(number(0.0)))

    def _decay(self, tensor: Tensor, values: np.ndarray, conds: tuple[Cond, ...], loops: tuple[Iter, ...]) -> Body | None:
        """g*exp(r*(t - s))."""
        found = decay(values, conds, loops, ROUNDING)
        if found is None:
            return None
        power = Call("exp", (make_mul((self._numbers(tensor, found.rates, loops, exact=True), Val(found.distance))),))
        start = self._numbers(tensor, found.starts, loops)
        return power if start == Const(number(1.0)) else make_mul((start, power))

    def _numbers(self, tensor: Tensor, values: np.ndarray, loops: tuple[Iter, ...], exact: bool = False) -> Body:
        """One number where all are the same up to rounding, else a weight over the dimensions that have more than one element."""
        if np.ptp(values) <= ROUNDING * np.abs(values).max():
            mean = float(values.mean())
            return Const(Fraction(repr(mean))) if exact else Const(number(mean))
        return self._factor(tensor, np.squeeze(values), tuple(i for i, extent in zip(loops, values.shape) if extent > 1))

    def _product(self, tensor: Tensor, values: np.ndarray, top: float, loops: tuple[Iter, ...], walks: Sequence[Walk]) -> Scope | None:
        """u*v*..., each with some of the dimensions; where that saves multiplications of a sum, a part is Σ[r] u*v again. `top` is the greatest
        magnitude."""
        varying = tuple(n for n, extent in enumerate(values.shape) if extent > 1)
        parts = absorbed(factors(values, varying, top))
        vectors: list[tuple[np.ndarray, tuple[Iter, ...]]] = []
        sums: list[Iter] = []
        for dims, part in parts.items():
            found, own = low_rank(part, walks), tuple(loops[n] for n in dims)
            if found is not None:
                sums.append(Iter(f"r{len(sums)}", 0, found.left.shape[-1]))
                vectors += pair_of(found, sums[-1], dict(zip(dims, own)))
            elif dims == varying:
                return None
            else:
                vectors.append((np.squeeze(part), own))
        if sum(v.size for v, _ in vectors) >= values.size:
            return None
        return Scope(loops, tuple(sums), make_mul(self._factor(tensor, *v) for v in vectors))

    def _factor(self, tensor: Tensor, values: np.ndarray, loops: tuple[Iter, ...]) -> Read:
        name = self._name(f"{tensor.name}_factor")
        self.made[name] = np.ascontiguousarray(values, dtype=np.float32)
        return Read(Tensor(name, values.shape, "f32", True), indices(loops))


def pair_of(found: LowRank, r: Iter, loops: Mapping[int, Iter]) -> Iterator[tuple[np.ndarray, tuple[Iter, ...]]]:
    """u and v of Σ[r] u*v over the loops of some dimensions, each with those that walk it."""
    rows, columns = (tuple(loops[n] for n in group) for group in (found.rows, found.columns))
    batch = tuple(i for i in loops.values() if i not in (*rows, *columns))
    for values, own in ((found.left, (*batch, *rows, r)), (found.right, (*batch, r, *columns))):
        yield values.reshape([i.extent for i in own]), own


def walks_of(r: Read, scope: Scope) -> tuple[Walk, ...]:
    """What walks each dimension of a weight that is read one iterator to a dimension. Of a sum in which it is no factor, as where rows are taken by
    their numbers, fewer products save nothing: there all count as loops."""
    if not isinstance(scope.body, Mul) or r not in scope.body.args:
        return tuple("loop" for _ in r.index)
    loops = {i.name for i in scope.loops}
    summed = {i.name for i in scope.sums} if scope.reduce == "sum" else set()
    along = {name for other in reads(scope.body) for ix in other.index if ix.names() & loops for name in ix.names() & summed}
    names = [next(iter(ix.names()), "") for ix in r.index]
    return tuple("window" if n in along else "sum" if n in summed else "loop" for n in names)


def region_of(values: np.ndarray, loops: tuple[Iter, ...]) -> tuple[tuple[Cond, ...] | None, np.ndarray, bool]:
    """Conditions outside which there are zeros, the elements inside, and whether some of these may be zeros, too.

    Dimensions of which some places have zeros only are asked for the others, and of those that are left two may have blocks along their diagonal.
    None for the conditions where none tell the region.
    """
    where = values != 0
    ends, inside, narrow = list[Cond](), np.ones_like(where), list[int]()
    for n, loop in enumerate(loops):
        side = where.any(axis=tuple(k for k in range(where.ndim) if k != n))
        asked = None if side.all() else conditions(side, (loop,))
        if asked:
            ends += asked
            narrow.append(n)
            inside &= side.reshape([-1 if k == n else 1 for k in range(where.ndim)])
    if ends and (exact := varying(where, loops)):
        return exact, values[where], False
    rest = where.any(axis=tuple(narrow), keepdims=True)
    if not rest.all() and (region := next(blocks(rest, loops), None)):
        inside &= np.broadcast_to(region[1], where.shape)
        return (*ends, *region[0]), values[inside], True
    return (tuple(ends), values[inside], True) if ends else (varying(where, loops), values[where], False)


def varying(where: np.ndarray, loops: tuple[Iter, ...]) -> tuple[Cond, ...] | None:
    """`conditions` of the dimensions along which the region is not the same throughout."""
    kept = [n for n in range(where.ndim) if (where != np.take(where, [0], n)).any()]
    return conditions(where[tuple(slice(None) if n in kept else 0 for n in range(where.ndim))], tuple(loops[n] for n in kept))


def blocks(where: np.ndarray, loops: tuple[Iter, ...]) -> Iterator[tuple[tuple[Cond, ...], np.ndarray]]:
    """Equal blocks along the diagonal of two dimensions that hold all that is there, the smallest first; single elements are the diagonal.

    Conditions, and the elements of the blocks, among which there may be zeros.
    """
    for a, b in combinations(range(where.ndim), 2):
        n, m = where.shape[a], where.shape[b]
        if min(n, m) < 2:
            continue
        flat = where.any(axis=tuple(k for k in range(where.ndim) if k not in (a, b)))
        rows, columns = np.nonzero(flat)
        for count in sorted({min(n, m), *(c for c in BLOCKS if n % c == m % c == 0)}, reverse=True):
            high, wide = n // count, m // count
            if count > 1 and n == high * count and m == wide * count and (rows // high == columns // wide).all():
                ranges = {i.name: i.range for i in loops}
                places = np.indices(where.shape, sparse=True)
                inside = np.broadcast_to(places[a] // high == places[b] // wide, where.shape)
                yield (Cond(simplify(var(loops[a].name) // high - var(loops[b].name) // wide, ranges), True),), inside


def factors(values: np.ndarray, dims: tuple[int, ...], top: float = inf) -> dict[tuple[int, ...], np.ndarray]:
    """The array, which varies along `dims`, as a product of arrays that vary along fewer, the others of extent 1; itself where it is none.

    No magnitude is greater than `top`.
    """
    for a, b in combinations(dims, 2):
        moved = np.moveaxis(values, (a, b), (-2, -1))
        parts = factored(moved) if may_be_factored(moved, top) else None
        if parts is None:
            continue
        found: dict[tuple[int, ...], np.ndarray] = {}
        number = np.float64(1.0)
        for part, own, other in zip(parts, (a, b), (b, a)):
            whole = np.expand_dims(np.moveaxis(part, -1, own - (own > other)), other)
            for key, factor in factors(whole, tuple(d for d in dims if d != other)).items():
                if (factor == factor.flat[0]).all():
                    number = number * factor.flat[0]
                else:
                    found[key] = found[key] * factor if key in found else factor
        first = next(iter(found), dims)
        found[first] = found.get(first, np.ones_like(values)) * number
        return found
    return {dims: values}


def absorbed(parts: dict[tuple[int, ...], np.ndarray]) -> dict[tuple[int, ...], np.ndarray]:
    """The factors without those that have no dimension of their own: another takes these in."""
    found: dict[tuple[int, ...], np.ndarray] = {}
    for dims in sorted(parts, key=len, reverse=True):
        wider = next((kept for kept in found if set(dims) <= set(kept)), dims)
        found[wider] = found[wider] * parts[dims] if wider in found else parts[dims]
    return found


def may_be_factored(values: np.ndarray, top: float) -> bool:
    """No few elements of the first matrix show that `factored` finds nothing, where no magnitude is greater than `top`.

    Where a[r, s] = u[r]*v[s] + e with |e| <= E = ROUNDING*top and |a| <= m, those of u and v cancel in a[r, s]*a[p, q] - a[r, q]*a[p, s]: each of the
    four products with one e is at most (m + E)*E, both with two of them E*E.
    """
    *before, rows, columns = values.shape
    few = values[(0,) * len(before)][:: max(rows // MINORS, 1), :: max(columns // MINORS, 1)].astype(np.float64)
    p, q = np.unravel_index(np.abs(few).argmax(), few.shape)
    most, error = float(abs(few[p, q])), ROUNDING * top
    return float(np.abs(few * few[p, q] - few[:, q, None] * few[p]).max()) <= 4 * (most + error) * error + 2 * error * error


def factored(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """u and v with values[.., r, s] = u[.., r]*v[.., s] up to rounding; None where there are none."""
    *_, rows, columns = values.shape
    flat = values.reshape(-1, rows, columns)
    every = np.arange(len(flat))
    r, s = np.divmod(peaks(flat.reshape(len(flat), -1)), columns)
    top = flat[every, r, s].astype(np.float64)
    if not top.all():
        return None
    left, right = flat[every, :, s].astype(np.float64), flat[every, r, :] / top[:, None]
    for part in (slice(None, FEW), slice(FEW, None)):  # what is no product shows that in few rows
        error = np.abs(left[:, part, None] * right[:, None, :] - flat[:, part]).reshape(len(flat), -1).max(axis=1, initial=0.0)
        if (error > ROUNDING * np.abs(top)).any():
            return None
    return left.reshape(*values.shape[:-2], rows), right.reshape(*values.shape[:-2], columns)


def peaks(rows: np.ndarray) -> np.ndarray:
    """The place of the greatest magnitude in each row, of equals the first."""
    every, high, low = np.arange(len(rows)), rows.argmax(axis=1), rows.argmin(axis=1)
    above, below = rows[every, high], -rows[every, low]
    first: np.ndarray = np.where((above > below) | ((above == below) & (high < low)), high, low)
    return first
