"""What was written chunk by chunk, as one expression: the chunks are alike but for numbers that grow by as much from each to the next.

Each chunk is a box of one size. The constants of its index functions, at any depth, are affine functions of where the box is, which the expression
says by an iterator for each dimension; where such an iterator and a loop only stand together, as 128*c + m, they are one loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from einnet.evidence.buffers.addresses import address, element, ranges_of
from einnet.expr.index import ZERO, Atom, Floor, Index, Range, as_index, combine, floor_div, in_range, simplify, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, fresh, index_functions, map_indices, map_reads, substitute_body, used_names, walk
from einnet.instantiate.kernels import Value, View, loops_of

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

MOST_CHUNKS = 1 << 12
"""Chunks of one tensor; one of more is not looked at."""

MOST_CONSTANTS = 1 << 12
"""Constants of a chunk's index functions; an expression of more is not looked at."""


def in_series(view: View, owners: np.ndarray[tuple[int, ...], np.dtype[np.int32]], written: Mapping[int, tuple[View, Value]]) -> Scope | None:
    """What the view shows, whose elements come from the writes that `owners` says, over loops from 0; None where that is no series of chunks.

    Raises NotLifted where a view that was written shares addresses.
    """
    sizes = box_sizes(owners)
    heads = owners[tuple(slice(None, None, n) for n in sizes)]
    if heads.size > MOST_CHUNKS:
        return None
    loops = loops_of(sizes)
    chunks: list[Scope] = []
    for place in np.ndindex(heads.shape):
        offset = view.offset + sum(p * n * s for p, n, s in zip(place, sizes, view.strides))
        at, (there, value) = address(View(view.buffer, sizes, view.strides, offset), loops), written[int(heads[place])]
        index, _ = element(there, at, ranges_of(loops))  # all that is in the box is an element of what was written
        chunks.append(Scope(loops, (), Read(value, index)))
    return joined(chunks, heads.shape)


def box_sizes(owners: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> tuple[int, ...]:
    """The size of boxes on whose borders alone the numbers change, along each dimension."""
    found: list[int] = []
    for axis, extent in enumerate(owners.shape):
        rows = np.moveaxis(owners, axis, 0).reshape(extent, -1)
        changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
        found.append(gcd(extent, *map(int, changes)))
    return tuple(found)


def joined(chunks: Sequence[Scope], grid: tuple[int, ...]) -> Scope | None:
    """The chunks, in row-major order of a grid, as one expression over all of them; None where they are not alike."""
    bare = [_Bare() for _ in chunks]
    shapes = [b.scope(chunk) for b, chunk in zip(bare, chunks)]
    if len(bare[0].found) > MOST_CONSTANTS or any(shape != shapes[0] for shape in shapes):
        return None
    places: Numbers = np.array(list(np.ndindex(grid)), np.int64)
    constants: Numbers = np.array([b.found for b in bare], np.int64)
    units = np.eye(len(grid), dtype=np.int64)
    steps = np.stack([(constants[(places == unit).all(axis=1)][0] if n > 1 else constants[0]) - constants[0] for n, unit in zip(grid, units)])
    if not np.array_equal(constants, constants[0] + places @ steps):
        return None
    taken = {name for s in walk(chunks[0]) for name in (*s.ranges, *used_names(s.body))}
    over = tuple(Iter(fresh(f"c{axis}", taken), 0, n) for axis, n in enumerate(grid))
    formulas = (Formula(int(first), tuple(map(int, step))) for first, step in zip(constants[0], steps.T))
    filling = _Filling(over, formulas)
    sizes = {i.name: i.extent for i in chunks[0].loops}
    loops = tuple(Iter(name, 0, i.extent * size) for i, (name, size) in zip(over, sizes.items()))
    ranges = ranges_of(loops)
    at = {name: var(name) % size for name, size in sizes.items()}
    chunk = {i.name: var(name) // size for i, (name, size) in zip(over, sizes.items())}
    return Scope(loops, (), filling.over_all(shapes[0], Read(shapes[0], tuple(at.values())), chunk, ranges))


@dataclass(frozen=True, slots=True)
class Formula:
    """A constant: what it is in the first chunk, and by how much it grows along each dimension of the grid."""

    first: int
    steps: tuple[int, ...]


class _Bare:
    """Scopes without the constants of their index functions, which are `found` in the order in which `_Filling` asks for them."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def scope(self, s: Scope) -> Scope:
        return replace(s, body=map_reads(map_indices(s.body, self.index), self.read))

    def read(self, r: Read) -> Body:
        return r if isinstance(r.base, Tensor) else Read(self.scope(r.base), r.index, r.fill)

    def index(self, ix: Index) -> Index:
        self.found.append(ix.const)
        return Index(tuple((self.atom(a), c) for a, c in ix.terms), 0, ix.den)

    def atom(self, a: Atom) -> Atom:
        return a if isinstance(a, str) else Floor(self.index(a.num), a.den)


class _Filling:
    """Scopes with formulas for constants; those in which one grows are scopes over the chunks, too."""

    def __init__(self, over: tuple[Iter, ...], formulas: Iterator[Formula]) -> None:
        self.over, self.formulas = over, formulas

    def body(self, s: Scope) -> Body:
        """The body of a scope, for all chunks."""
        ranges, chunk = {**s.ranges, **ranges_of(self.over)}, {i.name: var(i.name) for i in self.over}
        return map_reads(map_indices(s.body, self.index), lambda r: r if isinstance(r.base, Tensor) else self.over_all(r.base, r, chunk, ranges))

    def over_all(self, bare: Scope, r: Read, chunk: Mapping[str, Index], ranges: Mapping[str, Range]) -> Read:
        """What a read of a scope without constants reads, at a chunk."""
        body = self.body(bare)
        over = tuple(i for i in self.over if i.name in used_names(body))
        at = dict(zip((i.name for i in bare.loops), r.index))
        inside = [i for i in bare.loops if i.lo == 0 and in_range(at[i.name], i.range, ranges)]
        whole = replace(bare, loops=(*over, *bare.loops), body=body)
        for c in over:
            m = next((i for i in sorted(inside, key=lambda i: i.extent == 1) if stand_together(whole.body, c.name, i)), None)
            if m is not None:
                at[m.name] = simplify(m.extent * chunk[c.name] + at[m.name], ranges)
                whole = one_loop(whole, c, m)
                inside.remove(m)
        return Read(whole, tuple(at[i.name] if i.name in at else chunk[i.name] for i in whole.loops), r.fill)

    def index(self, ix: Index) -> Index:
        own = next(self.formulas)
        terms = [(var(a) if isinstance(a, str) else floor_div(self.index(a.num), a.den), c) for a, c in ix.terms]
        growing = [(var(i.name), step) for i, step in zip(self.over, own.steps) if step]
        return combine(*terms, *growing, (as_index(own.first), 1)) / ix.den


def one_loop(scope: Scope, c: Iter, m: Iter) -> Scope:
    """The scope with m in place of (extent of m)*c + m."""
    loops = tuple(Iter(i.name, 0, m.extent * c.extent) if i == m else i for i in scope.loops if i != c)
    mapping = {m.name: ZERO, c.name: var(m.name)} if m.extent == 1 else {c.name: ZERO}
    return replace(scope, loops=loops, body=substitute_body(scope.body, mapping))


def stand_together(body: Body, c: str, m: Iter) -> bool:
    """Wherever an index function names c or m it is as (extent of m)*c + m, which they are as well where m has one place."""
    return m.extent == 1 or all(_together(ix, c, m) for ix in index_functions(body))


def _together(ix: Index, c: str, m: Iter) -> bool:
    inner = (a.num for a, _ in ix.terms if isinstance(a, Floor))
    return ix.coefficient(c) == m.extent * ix.coefficient(m.name) and all(_together(num, c, m) for num in inner)
