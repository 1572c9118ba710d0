"""Long filters by the waves that shifts only turn: y[t] = Σ[s] x[t+s]*k[s] is a number for each wave between two tables of waves.

A sum that reads its data at a place that a loop and a sum move alike has in the waves of a long enough circle its own vectors: the wave e(f,u) read
t further is e(f,t)*e(f,u). So Σ[u] x[u]*e(f,u), once for all t and for all filters, times the filter's number h(f), and Σ[f] e(f,t) of that, is the
sum. The tables are dense here: that they are products of smaller ones is found from their values (`factor_tables`), as of any other.

Numbers change by the rounding of the tables, so this is done where steps of the class `precision` are allowed; and a NaN reaches all of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log2, prod

import numpy as np

from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Mul, Read, Scope, Tensor, fresh, indices, make_mul
from einnet.graph.operators.fourier import waves
from einnet.graph.passes.factor_tables import MOST_ELEMENTS
from einnet.graph.passes.table_factors import ROUNDING
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh

FEWEST_TAPS = 256
"""Of a filter that is looked at."""

LEAST_GAIN = 2.0
"""How many times fewer products there must be, where a table of N waves counts as log N sums of four."""

SAMPLE = 5
"""Places and filters at which what the tables give is compared with the filter."""

PRIMES = (2, 3, 5, 7, 11, 13)
"""Of a circle's length."""


@dataclass(frozen=True, slots=True)
class Filter:
    """y[.., t, ..] = Σ[.., s, ..] x[.., t + forward*s + start, ..]*k[.., s, ..]; t stands nowhere else, nor does s."""

    x: Read
    k: Read
    t: Iter
    s: Iter
    along: int
    """The dimension of x along which t and s move."""
    taps: int
    """The dimension of k that s walks."""
    forward: int
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the data."""
        assert isinstance(self.x.base, Tensor)
        return self.x.base.shape

    @property
    def length(self) -> int:
        return self.shape[self.along]

    @property
    def circle(self) -> int:
        """Places on a circle on which no place that is read lies on another: even, a product of small primes, and a little longer than it must be.

        One that has as many places as the data, or twice as many, has tables whose digits are theirs.
        """
        moved = (-self.start - (self.t.extent - 1), self.length - 1 - self.start)
        low, high = moved if self.forward > 0 else (-moved[1], -moved[0])
        least = max(self.s.extent - min(low, 0), high + 1)
        found = [n for n in range(least + least % 2, 2 * least + 2, 2) if smooth(n)]
        return next((n for n in found if n in (self.length, 2 * self.length) and 4 * n <= 5 * least), found[0])

    @property
    def width(self) -> int:
        """Places of the data, and after them of none, that a table of waves is over: half a circle where that is enough."""
        return max(self.length, self.circle // 2)


def long_filters(program: Program) -> Program:
    """Nodes that are such sums, where that takes fewer products, as three: what the waves are of the data, of the results, and the results."""
    fresh_name, weights = Fresh(program), dict(program.weights)
    nodes: list[ProgramNode] = []
    spreads = list(program.spreads)
    for node in program.nodes:
        found = filter_of(node.scope, program.weights) if isinstance(node, Node) else None
        made = in_waves(node, found, program.weights, fresh_name) if isinstance(node, Node) and found else None
        if made is None:
            nodes.append(node)
        else:
            nodes += made[0]
            weights |= made[1]
            spreads += node.origin[:1]
    return replace(program, nodes=tuple(nodes), weights=weights, spreads=tuple(spreads))


def filter_of(scope: Scope, weights: Mapping[str, np.ndarray]) -> Filter | None:
    """The sum as a filter that is long enough to pay."""
    if scope.reduce != "sum" or not isinstance(scope.body, Mul) or len(scope.body.args) != 2:
        return None
    for x, k in (scope.body.args, reversed(scope.body.args)):
        if isinstance(x, Read) and isinstance(k, Read) and of_tensors(x, k, weights):
            found = next((f for f in filters(scope, x, k) if pays(scope, f)), None)
            if found is not None:
                return found
    return None


def of_tensors(x: Read, k: Read, weights: Mapping[str, np.ndarray]) -> bool:
    """Data, and a weight in single precision; both are 0 outside."""
    known = isinstance(k.base, Tensor) and k.base.name in weights and weights[k.base.name].dtype == np.float32
    return known and isinstance(x.base, Tensor) and not x.base.weight and x.fill == k.fill == 0


def filters(scope: Scope, x: Read, k: Read) -> Iterator[Filter]:
    """The ways to see two factors so."""
    for s in scope.sums:
        taps = [n for n, ix in enumerate(k.index) if s.name in ix.names()]
        along = [n for n, ix in enumerate(x.index) if s.name in ix.names()]
        if s.extent < FEWEST_TAPS or len(taps) != 1 or len(along) != 1:
            continue
        if k.index[taps[0]] != var(s.name) or (0, k.base.box[taps[0]][1]) != s.range:
            continue
        place = x.index[along[0]]
        forward = place.coefficient(s.name)
        for t in scope.loops:
            if forward in (1, -1) and place == var(t.name) + forward * var(s.name) + place.const and not t.lo:
                others = [ix for r in (x, k) for ix in r.index if ix is not place]
                if not any(t.name in ix.names() for ix in others):
                    yield Filter(x, k, t, s, along[0], taps[0], forward, int(place.const))


def pays(scope: Scope, f: Filter) -> bool:
    """There are far fewer products, if the tables of waves are sums of a few, a logarithm often; and no table is too large to be looked at."""
    filters = prod(f.k.base.shape) // f.s.extent if isinstance(f.k.base, Tensor) else 1
    if (f.circle + 2) * max(f.width, f.t.extent, 2 * filters) > MOST_ELEMENTS:
        return False
    direct = prod(i.extent for i in (*scope.loops, *scope.sums))
    rows = prod(f.shape) // f.length + prod(scope.shape) // f.t.extent
    between = 2 * f.circle * (direct // (f.t.extent * f.s.extent))
    return direct > LEAST_GAIN * (4 * rows * f.circle * log2(f.circle) + between)


def in_waves(node: Node, f: Filter, weights: Mapping[str, np.ndarray], name: Fresh) -> tuple[list[Node], dict[str, np.ndarray]] | None:
    """The three nodes and the tables; None where the tables are too far from the filter."""
    assert isinstance(f.k.base, Tensor)
    size, taps = f.circle, np.moveaxis(weights[f.k.base.name], f.taps, -1)
    before, after = (np.stack(waves(n, size // 2 + 1, size), -1).astype(np.float32) for n in (f.width, f.t.extent))
    between = turned(taps.astype(np.float64), f).astype(np.float32)
    if not near(before, between, after, taps, f):
        return None
    root, scope = node.output.name, node.scope
    names = {n: Tensor(name(f"{root}_{n}"), table.shape, "f32", True) for n, table in (("to", before), ("by", between), ("from", after))}
    loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(f.shape))
    u, bins, d, e = loops[f.along], *(Iter(fresh(n, scope.ranges), 0, extent) for n, extent in (("f", size // 2 + 1), ("d", 2), ("e", 2)))
    left, wide = tuple(i for i in loops if i is not u), Iter(u.name, 0, f.width)
    spectrum = Scope((*left, bins, d), (wide,), make_mul((Read(f.x.base, indices(loops)), Read(names["to"], indices((u, bins, d))))))
    of_x = Tensor(name(f"{root}_waves"), spectrum.shape, "f32")
    others = tuple(i for i in scope.loops if i != f.t)
    product = Scope((*others, bins, e), (*(i for i in scope.sums if i != f.s), d), make_mul((
        Read(of_x, (*without(f.x.index, f.along), var(bins.name), var(d.name))),
        Read(names["by"], (*without(f.k.index, f.taps), var(bins.name), var(e.name), var(d.name))),
    )))  # fmt: skip
    of_y = Tensor(name(f"{root}_filtered"), product.shape, "f32")
    back = Read(names["from"], (var(f.t.name), var(bins.name), var(e.name)))
    result = Scope(scope.loops, (bins, e), make_mul((Read(of_y, indices((*others, bins, e))), back)))
    nodes = [Node(of_x, spectrum, node.origin), Node(of_y, product, node.origin), replace(node, scope=result)]
    return nodes, {names[n].name: table for n, table in (("to", before), ("by", between), ("from", after))}


def turned(taps: np.ndarray, f: Filter) -> np.ndarray:
    """By what numbers a filter k[.., s] scales and turns each wave of the circle, [.., f, e, d]: part d of what comes in to part e."""
    size = f.circle
    h = np.fft.rfft(taps, size) / size
    bins = np.arange(h.shape[-1])
    h = h * np.where((bins == 0) | (2 * bins == size), 1.0, 2.0) * np.exp(-2j * np.pi * f.forward * (bins * f.start % size) / size)
    real, imaginary = h.real, f.forward * h.imag
    return np.stack([np.stack([real, -imaginary], -1), np.stack([imaginary, real], -1)], -2)


def near(before: np.ndarray, between: np.ndarray, after: np.ndarray, taps: np.ndarray, f: Filter) -> bool:
    """What the tables give at some places, of some filters, is what the filter has there, as far as float32 tells them apart."""
    flat, numbers = taps.reshape(-1, taps.shape[-1]), between.reshape(-1, *between.shape[-3:])
    chosen = np.unique(np.linspace(0, len(flat) - 1, SAMPLE).astype(int))
    places = np.unique(np.linspace(0, f.t.extent - 1, SAMPLE).astype(int))
    rows = np.einsum("tfe,cfed->ctfd", after[places].astype(np.float64), numbers[chosen].astype(np.float64))
    found = rows.reshape(-1, rows.shape[-2] * 2) @ before[: f.length].astype(np.float64).reshape(f.length, -1).T
    at = f.forward * (np.arange(f.length)[None, :] - places[:, None] - f.start)
    inside = (at >= 0) & (at < f.s.extent)
    wanted = np.where(inside, flat[chosen][:, np.where(inside, at, 0)], 0.0)
    return bool(np.abs(found.reshape(wanted.shape) - wanted).max() <= ROUNDING * np.abs(flat).max())


def smooth(n: int) -> bool:
    """A product of small primes."""
    for p in PRIMES:
        while n % p == 0:
            n //= p
    return n == 1


def without(index: tuple[Index, ...], place: int) -> tuple[Index, ...]:
    """An index without one dimension."""
    return index[:place] + index[place + 1 :]
