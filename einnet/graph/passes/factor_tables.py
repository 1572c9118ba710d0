"""Weights that are products of smaller tables over digits of their indices are read as such: W[k,n] as {Σ[r] A[k1,n1,n2,r]*B[k1,k2,n2,r]}[k,n].

It changes an element by what it is further from the product, so this is done where steps of the class `precision` are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from einnet.expr.index import ZERO, Index, simplify, var
from einnet.expr.nodes import Body, Iter, Mul, Read, Scope, Tensor, make_mul, map_reads, tensors, used_names
from einnet.expr.values.evaluate import evaluate
from einnet.graph.passes.sums_at_place import apart
from einnet.graph.passes.table_factors import ROUNDING, Factored, factored, factors, fewest_products, gains
from einnet.graph.program import Node, Program
from einnet.graph.rewrite import Fresh, prune

MOST_ELEMENTS = 1 << 25
"""Of a table that is looked at."""

PARTS_GAIN = 1.2
"""How many times fewer products a table has to take in parts than whole."""

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


class _Finder:
    """What is known of each weight by its roles, and the tables that are needed to say it."""

    def __init__(self, program: Program) -> None:
        self.weights: Mapping[str, np.ndarray] = program.weights
        self.made: dict[str, np.ndarray] = {}
        self._name = Fresh(program)
        self._known: dict[tuple[str, tuple[int, ...], int], Scope | None] = {}

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
        arranged = Arranged(values.transpose(order), tuple(var(loops[p].name) for p in order), split)
        found = factored(arranged.table())
        if found is None:
            return None
        for other in arranged.in_parts():
            if PARTS_GAIN * fewest_products(other.table()) < found.products:
                better = factored(other.table())
                found, arranged = (found, arranged) if better is None or better.products >= found.products else (better, other)
        if not gains(found, arranged.table()):
            return None
        limit = ROUNDING * float(np.abs(values).max())
        for nested in (True, False):  # errors add up from stage to stage
            body, sums = self._body(found, arranged.index(), tensor.name, {i.name: i.range for i in loops}, nested)
            whole = Scope(loops, sums, body)
            held = {name: self.made[name] for name in tensors(whole)}
            if np.abs(evaluate(whole, held, "float64") - values).max() <= limit:
                return whole
        return None

    def _body(
        self, found: Factored, index: Sequence[Index], name: str, ranges: Mapping[str, tuple[int, int]], nested: bool = True
    ) -> tuple[Body, tuple[Iter, ...]]:  # fmt: skip
        """Σ[r] A*B at an index of the table, and if `nested` A and B as sums of products where they are such."""
        a, b, way = found.first, found.second, found.way
        one, other = factors(found)
        g, k, c, n, d = index
        k1, k2 = digits(k, way.rows, way.low_row, ranges)
        n1, n2 = digits(n, way.columns, way.low_column, ranges)
        rank = a.shape[3]
        r = var("r") if rank > 1 else ZERO
        first = self._table(one, f"{name}_a", nested)
        second = self._table(other, f"{name}_b", nested)
        body = make_mul((
            first.at((both(g, n2, a.shape[:2]), k1, r, n1, d)),
            second.at((both(g, k1, b.shape[:2]), k2, c, n2, r)),
        ))  # fmt: skip
        return body, (Iter("r", 0, rank),) if rank > 1 else ()

    def _table(self, values: np.ndarray, name: str, nested: bool) -> Table:
        """A table as a tensor that is new, or as a sum of products."""
        loops = tuple(Iter(letter, 0, extent) for letter, extent in zip(NAMES, values.shape) if extent > 1)
        found = factored(values) if nested else None
        if found is not None and gains(found, values):
            index = tuple(var(letter) if extent > 1 else ZERO for letter, extent in zip(NAMES, values.shape))
            body, sums = self._body(found, index, name, {i.name: i.range for i in loops})
            if used_names(body) >= {i.name for i in loops}:
                return Table(Scope(loops, sums, body), values.shape)
        name = self._name(name)
        held = np.ascontiguousarray(values.reshape([extent for extent in values.shape if extent > 1]), dtype=np.float32)
        self.made[name] = held
        return Table(Tensor(name, held.shape, "f32", True), values.shape)


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
