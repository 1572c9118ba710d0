"""Evaluation of a scope at a few output points: in any number system, with functions of their addresses for the elements of tensors.

Modulo 2^61 - 1 these are pseudo-random; or it is seen how large sums may become, and which elements are read.

Nothing is materialised: a nested scope is evaluated at the points that are read, once at each, so that expressions are compared at their real
extents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.functions.modular import Residues, random_function, seed_of
from einnet.expr.index import Index, Range, combine
from einnet.expr.nodes import Read, Scope, Tensor, inside, neutral, reads, tensors, walk
from einnet.expr.prefixes import passes, prefix
from einnet.expr.selection import selection
from einnet.expr.values.arithmetic import Arithmetic, Array, Machine, Magnitudes, Modular, contracts
from einnet.expr.values.blas import on_one_thread
from einnet.expr.values.bodies import Environment, Integers, Side, affine, flat_address, one_of, reduced, terms, values
from einnet.expr.values.evaluate import Evaluation

_CHUNK = 1 << 18
"""Elements of one intermediate array."""

_LARGEST, _MOST = 1 << 22, 1 << 24
"""Elements of a nested scope whose values are kept, and of all such scopes together."""

_SPARSE = 1 << 10
"""Of a nested scope that has so many times as many elements as are read at once, no values are kept: it is not read often."""

_MARKED = 512
"""Of so many addresses for each that is read, those that are read are sorted and not marked."""

_AT_ONCE = 16
"""A sum is so many times faster as one product of matrices than element by element, at least."""

Element = Callable[[Tensor, Integers], Array]
"""The elements of a tensor at flat addresses."""


_DOUBLES = Machine("float64")

Places = Callable[[Array], "Integers | None"]
"""The whole numbers that alone `equal` can take values for, where that is told of all of them."""


@on_one_thread
def values_at(scope: Scope, points: NDArray[np.int64], system: Arithmetic, element: Element, places: Places | None = None) -> Array:
    """Values in a number system at `points`, an array of shape (n, rank); 0 outside the scope's box. Raises UsageError as the system does.

    By `places`, only one term is evaluated of a sum of which one is taken.
    """
    with np.errstate(all="ignore"):
        return _Points(system, element, places=places, dense=contracts(system)).values(scope, points)


def elements_read(scope: Scope, point: tuple[int, ...]) -> frozenset[tuple[str, int]]:
    """The elements (tensor, flat address) that are read, inside their boxes, for the value at a point: of selects on the sides taken."""
    found: set[tuple[str, int]] = set()
    tracing = _Tracing(_DOUBLES, lambda t, address: np.ones(np.shape(address)), found=found)
    with np.errstate(all="ignore"):
        tracing.values(scope, np.asarray([point], dtype=np.int64).reshape(1, len(scope.loops)))
    return frozenset(found)


def evaluate_at(scope: Scope, points: NDArray[np.int64], seed: int) -> Residues:
    """Values at `points`, an array of shape (n, rank), as uint64 residues; 0 outside the scope's box.

    Element `index` of tensor `name` is hash(seed, name, address of index). Infinities are the codes of `einnet.expr.functions.modular`.
    """

    def element(t: Tensor, address: Integers) -> Array:
        return random_function(seed_of(seed, t.name), (address,))

    return _Points(Modular(), element).values(scope, points)


def magnitudes_at(scope: Scope, points: NDArray[np.int64], whole: bool = False) -> tuple[NDArray[np.float64], dict[str, float]]:
    """How large at most the products that are added up at `points` are together, where no element of a tensor is larger than 1.

    The second result says how large arguments of functions are (see `Magnitudes`). `whole`: as if tensors went on beyond their boxes.
    """
    system = Magnitudes()
    found = _Points(system, lambda t, address: np.ones(()), whole).values(scope, points)
    return found, system.arguments


@lru_cache(maxsize=1 << 14)
def work(scope: Scope, points: int) -> int:
    """Body evaluations needed for some points, at most; a nested scope is evaluated at no more points than it has."""
    here = points * prod(i.extent for i in scope.sums)
    return here + sum(work(r.base, min(here, prod(r.base.shape))) for r in reads(scope.body) if isinstance(r.base, Scope))


def effort(scope: Scope, points: int) -> int:
    """Body evaluations needed at most for some points where every distinct nested scope is evaluated once at a point, and one term of a selection.

    At how many points that is is told by the iterators in the indices: a maximum of a row is read once for all elements of the row.
    """
    needed, total = {scope: points}, 0
    places = {scope: tuple(min(points, i.extent) for i in scope.loops)}
    for s in _outer_first(scope):
        here = min(needed[s], prod(places[s])) * (1 if selection(s) else prod(i.extent for i in s.sums))
        ordered = prefix(s)
        here = here if ordered is None else min(here, passes(ordered) * prod(s.shape))
        total += here
        various = {i.name: n for i, n in zip(s.loops, places[s], strict=True)} | {i.name: i.extent for i in s.sums}
        for r in dict.fromkeys(reads(s.body)):
            if isinstance(r.base, Scope):
                along = [min(n, prod(various[name] for name in e.names())) for e, n in zip(r.index, r.base.shape, strict=True)]
                needed[r.base] = needed.get(r.base, 0) + min(here, prod(along))
                before = places.get(r.base, (0,) * len(along))
                places[r.base] = tuple(min(m + more, n) for m, more, n in zip(before, along, r.base.shape, strict=True))
    return total


def _outer_first(scope: Scope) -> list[Scope]:
    """The distinct scopes, each before those that it reads."""
    done: dict[Scope, None] = {}

    def visit(s: Scope) -> None:
        for inner in s.nested:
            if inner not in done:
                visit(inner)
        done[s] = None

    visit(scope)
    return list(reversed(done))


class _Kept:
    """Values of a scope at flat addresses, as far as they are `known`."""

    def __init__(self, size: int, dtype: np.dtype[Any]) -> None:
        self.values, self.known = np.empty(size, dtype), np.zeros(size, np.bool_)

    def unknown(self, address: Integers) -> Integers:
        """The distinct addresses among some of which no value is known: sorted where they are few, else marked."""
        missing = address[~self.known[address]]
        if _MARKED * len(missing) < len(self.known):
            return np.unique(missing)
        wanted = np.zeros(len(self.known), np.bool_)
        wanted[missing] = True
        return np.flatnonzero(wanted)


@dataclass(frozen=True)
class _Points:
    """A number system, and the elements of tensors at flat addresses; `whole` tensors have elements outside their boxes too.

    `kept` are values of nested scopes: what is read in several places is evaluated once. `dense`: one of which most is read is evaluated as a whole.
    """

    system: Arithmetic
    element: Element
    whole: bool = False
    places: Places | None = None
    kept: dict[Scope, _Kept] = field(default_factory=dict)
    dense: bool = False

    def values(self, scope: Scope, points: NDArray[np.int64]) -> Array:
        """The scope's values at points; 0 outside its box."""
        result = np.zeros(len(points), dtype=self.system.dtype)
        inside = np.ones(len(points), dtype=np.bool_)
        for axis, (lo, hi) in enumerate(scope.box):
            inside &= (points[:, axis] >= lo) & (points[:, axis] < hi)
        with np.errstate(over="ignore"):
            result[inside] = self.at(scope, points[inside])
        return result

    def at(self, s: Scope, points: NDArray[np.int64]) -> Array:
        if any(i.extent == 0 for i in s.sums):
            return np.full(len(points), self.system.number(neutral(s.reduce)), dtype=self.system.dtype)
        found = self.selected(s, points)
        if found is not None:
            return found
        size = prod(i.extent for i in s.sums)
        step = max(1, _CHUNK // size)
        ranges = {i.name: i.range for i in s.sums}
        parts = [self.block(s, points[k : k + step], ranges) for k in range(0, len(points), step)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=self.system.dtype)

    def selected(self, s: Scope, points: NDArray[np.int64]) -> Array | None:
        """The one term of a selection; None where the scope is none, or which term that is is not told."""
        chosen = selection(s) if self.places else None
        if chosen is None or self.places is None:
            return None
        env = {i.name: points[:, k] for k, i in enumerate(s.loops)}
        read = partial(self.read, s)
        places = self.places(values(chosen.place, env, self.system, read))
        if places is None:
            return None
        lo, hi = chosen.over.range
        at = {**env, chosen.over.name: np.broadcast_to(np.clip(places, lo, hi - 1), (len(points),))}
        return np.broadcast_to(values(s.body, at, self.system, read), (len(points),))

    def block(self, s: Scope, points: NDArray[np.int64], ranges: dict[str, Range]) -> Array:
        """The reduction over a part of the sums, halved until intermediate arrays are small."""
        size = len(points) * prod(hi - lo for lo, hi in ranges.values())
        if size > _CHUNK:
            name = max(ranges, key=lambda n: ranges[n][1] - ranges[n][0])
            lo, hi = ranges[name]
            if hi - lo > 1:
                middle = (lo + hi) // 2
                halves = [self.block(s, points, {**ranges, name: part}) for part in ((lo, middle), (middle, hi))]
                return self.system.reduce(s.reduce, np.stack(halves), (0,))
        shape = (len(points), *(hi - lo for lo, hi in ranges.values()))

        def along(axis: int, array: NDArray[np.int64]) -> Integers:
            return array.reshape([-1 if a == axis else 1 for a in range(len(shape))])

        env = {i.name: along(0, points[:, k]) for k, i in enumerate(s.loops)}
        env |= {n: along(1 + k, np.arange(*r)) for k, (n, r) in enumerate(ranges.items())}
        read = partial(self.read, s)
        parts = [reduced(self.system, s.reduce, values(t, env, self.system, read, self.select), 1, shape) for t in terms(s)]
        return np.broadcast_to(reduce(self.system.add, parts), (len(points),))

    def select(self, taken: NDArray[np.bool_], then: Side, other: Side) -> Array:
        """The values of the one side where that is taken, and of the other."""
        return one_of(taken, then, other)

    def read(self, s: Scope, r: Read, env: Environment) -> Array:
        """What is read in the body of a scope."""
        address, inside = self.address(s, r, env)
        if isinstance(r.base, Scope):
            found = self.read_scope(r.base, address, inside)
        elif r.base.values is not None:
            found = np.take(_table(self.system, r.base), address)
        else:
            found = self.element(r.base, address)
            if self.whole:
                return found
        return found if inside is None else np.where(inside, found, self.system.number(r.fill))

    def address(self, s: Scope, r: Read, env: Environment) -> tuple[Integers, NDArray[np.bool_] | None]:
        """The flat address of a read in a scope, 0 outside of its box, and where it is inside (None: everywhere)."""
        flat = always_inside(s, r)
        return flat_address(r.index, r.base.box, env) if flat is None else (affine(flat, env), None)

    def read_scope(self, s: Scope, address: Integers, inside: NDArray[np.bool_] | None) -> Array:
        """The scope's values at flat addresses; those outside are not evaluated."""
        if inside is None:
            return self.inside(s, address.reshape(-1)).reshape(address.shape)
        address, inside = np.broadcast_arrays(address, inside)
        found = np.zeros(address.shape, dtype=self.system.dtype)
        found[inside] = self.inside(s, address[inside])
        return found

    def inside(self, s: Scope, address: Integers) -> Array:
        """The scope's values at flat addresses inside its box; at each it is evaluated once."""
        kept = self.room(s, len(address))
        if kept is None:
            distinct, back = np.unique(address, return_inverse=True)
            return self.at(s, _unravel(distinct, s))[back.reshape(-1)]
        new = kept.unknown(address)
        ordered = prefix(s)
        faster = 2 if not s.sums else _AT_ONCE if ordered is None else max(_AT_ONCE, ordered.over.extent // passes(ordered))
        if faster * len(new) > len(kept.known) and self.is_dense(s):
            kept.values[...] = self.over_box(s).reshape(-1)
            kept.known[...] = True
        elif len(new):
            kept.values[new] = self.at(s, _unravel(new, s))
            kept.known[new] = True
        return kept.values[address]

    def is_dense(self, s: Scope) -> bool:
        """The scope may be evaluated as a whole: no term of a sum is selected in it, and its tensors are not much larger than what it computes."""
        if not self.dense or (self.places and any(selection(inner) for inner in walk(s))):
            return False
        return sum(prod(t.shape) for t in tensors(s).values()) <= 2 * effort(s, prod(s.shape))

    def over_box(self, s: Scope) -> Array:
        """The scope's values over its box, from all elements of its tensors."""
        held: dict[str, Array] = {}
        for name, t in tensors(s).items():
            address = np.arange(prod(t.shape), dtype=np.int64)
            held[name] = (self.element(t, address) if t.values is None else _table(self.system, t)).reshape(t.shape)
        return Evaluation(self.system, held).whole(s)

    def room(self, s: Scope, count: int) -> _Kept | None:
        """Where the values of a scope are kept that is read at so many addresses; None where they are not."""
        if s not in self.kept:
            size = prod(s.shape)
            if size > min(_LARGEST, _SPARSE * count) or size + sum(len(k.known) for k in self.kept.values()) > _MOST:
                return None
            self.kept[s] = _Kept(size, self.system.dtype)
        return self.kept[s]


@dataclass(frozen=True)
class _Tracing(_Points):
    """An evaluation that takes down which elements it reads; `taken` are the sides of selects that it is in."""

    found: set[tuple[str, int]] = field(default_factory=set)
    taken: list[NDArray[np.bool_]] = field(default_factory=list)

    def select(self, taken: NDArray[np.bool_], then: Side, other: Side) -> Array:
        sides: list[Array] = []
        for where, side in ((taken, then), (~taken, other)):
            self.taken.append(where)
            sides.append(side())
            self.taken.pop()
        return np.where(taken, *sides)

    def address(self, s: Scope, r: Read, env: Environment) -> tuple[Integers, NDArray[np.bool_] | None]:
        address, inside = super().address(s, r, env)
        for where in self.taken:
            inside = where if inside is None else inside & where
        return address, inside

    def read_scope(self, s: Scope, address: Integers, inside: NDArray[np.bool_] | None) -> Array:
        """The points at which a scope is read are of the sides that are taken already."""
        return super(_Tracing, replace(self, taken=[])).read_scope(s, address, inside)

    def read(self, s: Scope, r: Read, env: Environment) -> Array:
        if isinstance(r.base, Tensor) and r.base.values is None:
            address, inside = self.address(s, r, env)
            if inside is not None:
                address, inside = np.broadcast_arrays(address, inside)
                address = address[inside]
            self.found.update((r.base.name, int(a)) for a in np.unique(address))
        return super().read(s, r, env)


@lru_cache(maxsize=1 << 14)
def always_inside(s: Scope, r: Read) -> Index | None:
    """The flat address of a read as one index function, where the read stays in its box at every place of the scope; None where it may not."""
    if any(e.den != 1 for e in r.index) or not inside(r, s.ranges):
        return None
    strides = accumulate((hi - lo for lo, hi in r.base.box[:0:-1]), mul, initial=1)
    return combine(*((e - lo, stride) for e, (lo, _), stride in zip(reversed(r.index), reversed(r.base.box), strides)))


@lru_cache(maxsize=64)
def _table(system: Arithmetic, t: Tensor) -> Array:
    """The values that a tensor carries."""
    assert t.values is not None
    return np.array([system.number(v)[()] for v in t.values], dtype=system.dtype)


def _unravel(address: NDArray[Any], s: Scope) -> NDArray[np.int64]:
    rest, columns = address, []
    for lo, hi in reversed(s.box):
        rest, at = np.divmod(rest, hi - lo)
        columns.append(at + lo)
    return np.stack(columns[::-1], axis=1) if columns else np.zeros((len(address), 0), dtype=np.int64)
