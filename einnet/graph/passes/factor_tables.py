"""Weights that are products of smaller tables over digits of their indices are read as such: W[k,n] as {Σ[r] A[k1,n1,n2,r]*B[k1,k2,n2,r]}[k,n].

A factor that is one small matrix at all of its places, beside a number or a pair for each, is read as these two: the matrix carries its values.

It changes an element by what it is further from the product, so this is done where steps of the class `precision` are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, prod

import numpy as np

from einnet.expr.index import ZERO, Index, simplify, var
from einnet.expr.nodes import Body, Iter, Mul, Read, Scope, Tensor, make_mul, map_reads, tensors, used_names
from einnet.expr.values.evaluate import evaluate
from einnet.graph.passes.matrices_apart import Apart, is_short, matrix_apart, rounded
from einnet.graph.passes.sums_at_place import apart
from einnet.graph.passes.table_factors import ROUNDING, Factored, Part, everything, factored, factors, gains
from einnet.graph.passes.table_samples import fewest_products, largest
from einnet.graph.program import Node, Program
from einnet.graph.rewrite import Fresh, prune

MOST_ELEMENTS = 1 << 25
"""Of a table that is looked at."""

PARTS_GAIN = 1.2
"""How many times fewer products a table has to take in parts than whole."""

APART = 1e-6
"""How far an element of a factor may be from one by a matrix, relative to the largest: factors were rounded, and the whole is looked at again."""

NAMES = "gkcnd"
"""Loops over a table: one for each g, rows k with parts c, columns n with parts d."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table W[g,k,c,n,d] as it is read: a tensor without the dimensions of extent 1, or a sum of products over those that are left."""

    base: Tensor | Scope
    shape: tuple[int, ...]

    def at(self, index: Sequence[Index]) -> Read:
        return Read(self.base, tuple(ix for ix, extent in zip(index, self.shape) if extent > 1))


def factor_tables(program: Program) -> Program:
    """Reads of such weights in sums of products, with every factor that is such a table again as one, too."""
    finder = _Finder(program)
    nodes = [made for n in program.nodes for made in (finder.node(n) if isinstance(n, Node) else (n,))]
    return prune(replace(program, nodes=tuple(nodes), weights={**program.weights, **finder.made})) if finder.made else program


def roles(r: Read, scope: Scope) -> tuple[tuple[int, ...], int] | None:
    """The dimensions of a weight as rows k, parts c of them, columns n, parts d of them, and the place of n; None where a sum has no such table.

    Loops are rows and sums are columns, the longest of each is what is counted by digits.
    """
    summed, looped = {i.name for i in scope.sums}, {i.name for i in scope.loops}
    rows = [p for p, ix in enumerate(r.index) if ix.names() <= looped]
    columns = [p for p, ix in enumerate(r.index) if ix.names() <= summed and ix.names()]
    if not columns or not rows or len(rows) + len(columns) < len(r.index):
        return None
    k, n = (max(group, key=lambda p: r.base.shape[p]) for group in (rows, columns))
    return (k, *(p for p in rows if p != k), n, *(p for p in columns if p != n)), len(rows)


def walked(r: Read, scope: Scope) -> bool:
    """Every dimension is walked by an iterator of its own, all of it, or has one place."""
    names = [next(iter(ix.names()), "") for ix in r.index]
    wide = [n for n, extent in zip(names, r.base.shape) if extent > 1]
    plain = all(ix == (var(n) if n else ZERO) and (not n or scope.ranges[n] == (0, extent)) for ix, n, extent in zip(r.index, names, r.base.shape))
    return plain and all(wide) and len(set(filter(None, names))) == len(list(filter(None, names)))


@dataclass(frozen=True)
class Arranged:
    """A weight's elements and where each dimension is read: first k and its parts, from `split` on n and its parts."""

    values: np.ndarray
    places: tuple[Index, ...]
    split: int

    def table(self) -> np.ndarray:
        """W[1,k,c,n,d]."""
        shape = self.values.shape
        return self.values.reshape(1, shape[0], prod(shape[1 : self.split]), shape[self.split], prod(shape[self.split + 1 :]))

    def index(self) -> tuple[Index, ...]:
        """Where g, k, c, n and d are read."""
        shape, at, split = self.values.shape, self.places, self.split
        return ZERO, at[0], flat(at[1:split], shape[1:split]), at[split], flat(at[split + 1 :], shape[split + 1 :])

    def in_parts(self) -> Iterator[Arranged]:
        """The same with rows or columns as two parts of half as many, side by side or in turns; none where one of them has parts already."""
        shape = self.values.shape
        if prod(shape) > shape[0] * shape[self.split]:
            return
        for place in (0, self.split):
            extent = shape[place]
            for turns in (False, True) if extent % 2 == 0 and extent > 2 else ():
                halves = (extent // 2, 2) if turns else (2, extent // 2)
                values = self.values.reshape(*shape[:place], *halves, *shape[place + 1 :])
                i = self.places[place]
                pair = (i // 2, i % 2) if turns else (i % (extent // 2), i // (extent // 2))
                places = (*self.places[:place], *pair, *self.places[place + 1 :])
                yield Arranged(values if turns else values.swapaxes(place, place + 1), places, self.split + (place < self.split))


def in_fewest(arranged: Arranged, top: float) -> tuple[Factored | None, Arranged]:
    """The factors of a weight, if it has any, and how its dimensions stand for them: as they are, or one of them in parts where that takes fewer
    products. `top` is the greatest magnitude of its elements."""
    found = factored(arranged.table())
    for other in arranged.in_parts() if isfinite(top) else ():
        if PARTS_GAIN * fewest_products(other.table(), top) < (arranged.values.size if found is None else found.products):
            better = factored(other.table())
            found, arranged = (found, arranged) if better is None or (found and better.products >= found.products) else (better, other)
    return found, arranged


class _Finder:
    """What is known of each weight by its roles, and the tables that are needed to say it."""

    def __init__(self, program: Program) -> None:
        self.weights: Mapping[str, np.ndarray] = program.weights
        self.made: dict[str, np.ndarray] = {}
        self._name = Fresh(program)
        self._known: dict[tuple[str, tuple[int, ...], int], Scope | None] = {}
        self._matrices: dict[tuple[tuple[int, ...], bytes], Tensor] = {}

    def node(self, n: Node) -> tuple[Node, ...]:
        """The node with such weights as what they are made of; as two, where that is seen of a sum that is done before the rest."""
        scope = self.opened(n.scope)
        found = apart(scope, self.weights) if scope is n.scope else None
        inner = self.opened(found.inner) if found is not None else None
        if found is None or inner is None or inner is found.inner:
            return (replace(n, scope=scope),)
        made = Tensor(self._name(f"{n.output.name}_placed"), inner.shape, "f32")
        return Node(made, inner, n.origin), replace(n, scope=found.reading(made))

    def opened(self, scope: Scope) -> Scope:
        """The scope with such weights as what they are made of."""
        if scope.reduce != "sum" or not isinstance(scope.body, Mul):
            return scope

        def open_read(r: Read) -> Body:
            if not isinstance(r.base, Tensor) or r.base.name not in self.weights or not walked(r, scope):
                return r
            order = roles(r, scope)
            if order is None or prod(r.base.shape) > MOST_ELEMENTS or self.weights[r.base.name].dtype != np.float32:
                return r
            key = r.base.name, *order
            if key not in self._known:
                self._known[key] = self._structure(r.base, *order)
            found = self._known[key]
            return r if found is None else Read(found, r.index, r.fill)

        body = map_reads(scope.body, open_read)
        return scope if body is scope.body else replace(scope, body=body)

    def _structure(self, tensor: Tensor, order: tuple[int, ...], split: int) -> Scope | None:
        """The weight as a sum of products; its dimensions in `order` are k and its parts, and from `split` on n and its parts."""
        loops = tuple(Iter(f"i{p}", 0, extent) for p, extent in enumerate(tensor.shape))
        values = self.weights[tensor.name]
        top = largest(values)
        found, arranged = in_fewest(Arranged(values.transpose(order), tuple(var(loops[p].name) for p in order), split), top)
        if found is None or not gains(found, arranged.table()):
            return None
        limit = ROUNDING * top
        for nested, by_matrix in ((True, True), (True, False), (False, False)):  # errors add up from stage to stage
            saying = _Saying(self, nested, by_matrix)
            body, sums = saying.body(found, everything(arranged.table()), arranged.index(), tensor.name, {i.name: i.range for i in loops})
            whole = Scope(loops, sums, body)
            held = {name: self.made[name] for name, t in tensors(whole).items() if t.values is None}
            if by_matrix and not saying.factors:
                continue  # stages without anything between them are told by their tables
            if np.abs(evaluate(whole, held, "float64") - values).max() <= limit:
                return whole
        return None

    def new(self, values: np.ndarray, name: str) -> Table:
        """A tensor that is new."""
        name = self._name(name)
        held = np.ascontiguousarray(values.reshape([extent for extent in values.shape if extent > 1]), dtype=np.float32)
        self.made[name] = held
        return Table(Tensor(name, held.shape, "f32", True), values.shape)

    def matrix(self, values: np.ndarray) -> Table:
        """A tensor that carries its values, the same for all equal ones."""
        held = values.astype(np.float32)
        shape = tuple(extent for extent in held.shape if extent > 1)
        key = shape, held.tobytes()
        if key not in self._matrices:
            self._matrices[key] = Tensor(self._name("matrix"), shape, "f32", True, tuple(map(Fraction, map(float, held.ravel()))))
        return Table(self._matrices[key], held.shape)


@dataclass
class _Saying:
    """How a table is said: its factors `nested`, as sums of products where they are such, and those that have one `by_matrix`."""

    finder: _Finder
    nested: bool
    by_matrix: bool
    factors: int = 0
    """Tables that were said by a matrix, so far."""

    def body(
        self, found: Factored, whole: Part, index: Sequence[Index], name: str, ranges: Mapping[str, tuple[int, int]]
    ) -> tuple[Body, tuple[Iter, ...]]:  # fmt: skip
        """Σ[r] A*B at an index of the table."""
        a, b, way = found.first, found.second, found.way
        one, other = factors(found, whole.rows, whole.columns)
        g, k, c, n, d = index
        k1, k2 = digits(k, way.rows, way.low_row, ranges)
        n1, n2 = digits(n, way.columns, way.low_column, ranges)
        rank = a.shape[3]
        r = var("r") if rank > 1 else ZERO
        first = self.table(one, f"{name}_a")
        second = self.table(other, f"{name}_b")
        body = make_mul((
            first.at((both(g, n2, a.shape[:2]), k1, r, n1, d)),
            second.at((both(g, k1, b.shape[:2]), k2, c, n2, r)),
            *(() if found.scale is None else (self.finder.new(found.scale, f"{name}_s").at((g, n)),)),
        ))  # fmt: skip
        return body, (Iter("r", 0, rank),) if rank > 1 else ()

    def table(self, part: Part, name: str) -> Table:
        """A table as a tensor that is new, or as a sum of products."""
        values = part.table
        loops = tuple(Iter(letter, 0, extent) for letter, extent in zip(NAMES, values.shape) if extent > 1)
        index = tuple(var(letter) if extent > 1 else ZERO for letter, extent in zip(NAMES, values.shape))
        found = factored(values, part.columns) if self.nested else None
        if found is not None and gains(found, values):
            body, sums = self.body(found, part, index, name, {i.name: i.range for i in loops})
            if used_names(body) >= {i.name for i in loops}:
                return Table(Scope(loops, sums, body), values.shape)
        if self.by_matrix and len(values) == 1 and is_short(values):
            return self.finder.matrix(rounded(values[0])[None])
        split = matrix_apart(values, APART * float(np.abs(values).max()), part.rows, part.columns) if self.by_matrix else None
        if split is not None:
            body, sums = self.apart(split, index, name)
            if used_names(body) >= {i.name for i in loops}:
                self.factors += 1
                return Table(Scope(loops, sums, body), values.shape)
        return self.finder.new(values, name)

    def apart(self, found: Apart, index: Sequence[Index], name: str) -> tuple[Body, tuple[Iter, ...]]:
        """Σ[e] of a matrix and what stands before or behind it, at an index of the table."""
        g, k, c, n, d = index
        parts = found.factor.shape[3 if found.behind else 2]
        e = var("e") if parts > 1 else ZERO
        matrix, factor = self.finder.matrix(found.matrix), self.finder.new(found.factor, f"{name}_t")
        at = (matrix.at((k, e, n, d)), factor.at((g, k, c, e))) if found.behind else (matrix.at((k, c, n, e)), factor.at((g, n, e, d)))
        scale = () if found.scale is None else (self.finder.new(found.scale, f"{name}_s").at((g, n)),)
        return make_mul((*at, *scale)), (Iter("e", 0, parts),) if parts > 1 else ()


def digits(ix: Index, size: int, low: bool, ranges: Mapping[str, tuple[int, int]]) -> tuple[Index, Index]:
    """The chosen digit of an index and the other."""
    found = simplify(ix % size, dict(ranges)), simplify(ix // size, dict(ranges))
    return found if low else (found[1], found[0])


def both(one: Index, other: Index, extents: Sequence[int]) -> Index:
    """The place in two dimensions laid flat; one of extent 1 does not count."""
    return flat([ix for ix, extent in zip((one, other), extents) if extent > 1], [extent for extent in extents if extent > 1])


def flat(index: Iterable[Index], extents: Iterable[int]) -> Index:
    """The row-major place of an index."""
    place = Index()
    for ix, extent in zip(index, extents):
        place = place * extent + ix
    return place
