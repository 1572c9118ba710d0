"""What sums weighted by a matrix that carries its values take, where rows of the matrix share sums."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from einnet.derivation.facts import factors, has_values, without
from einnet.expr.constant_matrices import TABLE_SIZE, factored
from einnet.expr.index import Range, var
from einnet.expr.nodes import Read, Scope, Tensor


def has_matrix(s: Scope) -> bool:
    """A sum of a product in which one factor is a small matrix that carries its values, read at iterators as they stand."""
    if not s.sums or s.reduce != "sum":
        return False
    found = [f for f in factors(s.body) if isinstance(f, Read) and has_values(f)]
    return len(found) == 1 and prod(found[0].base.shape) <= TABLE_SIZE and plain(found[0], s)


def plain(r: Read, s: Scope) -> bool:
    """Each index is an iterator, which walks the whole dimension or a part of it."""
    names = [next(iter(ix.names()), "") for ix in r.index]
    alone = all(ix == var(name) for ix, name in zip(r.index, names)) and len(set(names)) == len(names)
    return alone and all(name in s.ranges and s.ranges[name][0] >= 0 and s.ranges[name][1] <= n for name, n in zip(names, r.base.shape))


def matrix_steps(s: Scope) -> int:
    """Products and additions of a sum weighted by a matrix that carries its values, and those with its other factors."""
    parts = factors(s.body)
    place = next(n for n, f in enumerate(parts) if isinstance(f, Read) and has_values(f))
    matrix, rest = parts[place], without(parts, place)
    assert isinstance(matrix, Read) and isinstance(matrix.base, Tensor)
    names = [next(iter(ix.names())) for ix in matrix.index]
    summed = {i.name for i in s.sums}
    others = prod(i.extent for i in (*s.loops, *s.sums) if i.name not in names)
    columns = prod(i.extent for i in s.sums if i.name in names)
    own = shared_steps(matrix.base, tuple(s.ranges[name] for name in names), tuple(name in summed for name in names))
    return others * (own + columns * max(0, len(rest) - 1))


@lru_cache(maxsize=1 << 10)
def shared_steps(matrix: Tensor, ranges: tuple[Range, ...], summed: tuple[bool, ...]) -> int:
    """What a part of a matrix takes, of which these dimensions are summed over, for one of all else."""
    assert matrix.values is not None
    values = np.array([float(v) for v in matrix.values]).reshape(matrix.shape)[tuple(slice(*r) for r in ranges)]
    order = sorted(range(len(summed)), key=lambda n: summed[n])
    columns = prod(hi - lo for (lo, hi), own in zip(ranges, summed) if own)
    rows = values.transpose(order).reshape(-1, columns)
    return factored(tuple(tuple(map(float, row)) for row in rows)).steps
