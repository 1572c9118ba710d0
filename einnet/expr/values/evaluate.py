"""Dense evaluation of expressions with numpy: the meaning of the language, and the compile-time evaluation of weight expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.index import Index, Range, bounds, simplify
from einnet.expr.nodes import Body, Mul, Read, Scope, Tensor, map_indices, neutral, tensors, used_names
from einnet.expr.prefixes import Prefix, prefix, terms_of
from einnet.expr.values.arithmetic import Arithmetic, Array, accumulates, arithmetic, contracts
from einnet.expr.values.blas import on_one_thread
from einnet.expr.values.bodies import Environment, flat_address, inside_box, reduced, terms, values

_CHUNK = 1 << 21
"""Elements of the largest intermediate array."""

_MOVED = 1 << 24
"""Elements of what is read at once, of which an address may have to be made for each."""

Ranges = Mapping[str, Range]


def nothing() -> None:
    """There is no hurry."""


@on_one_thread
def evaluate(
    scope: Scope, tensor_values: Mapping[str, NDArray[Any]], dtype: str = "float64", hurry: Callable[[], None] = nothing
) -> NDArray[Any]:  # fmt: skip
    """The values of a scope over the box of its loops, in the number system `dtype`: a numpy type, "int" (exact rationals), or "mod".

    Reads outside a box, or at a fractional index, give the read's fill. Every distinct nested scope is materialised once.

    Tensors that carry their own values need none in `tensor_values`. `hurry` is called before each array of up to `_CHUNK` elements and may raise.
    Raises UsageError for a tensor without values or with values of another shape.
    """
    system = arithmetic(dtype)
    held: dict[str, Array] = {}
    for name, t in tensors(scope).items():
        if t.values is not None:
            held[name] = own_values(t, system)
            continue
        if name not in tensor_values:
            raise UsageError(f"no values for tensor {name}{list(t.shape)}")
        if tensor_values[name].shape != t.shape:
            raise UsageError(f"values of shape {list(tensor_values[name].shape)} for tensor {name}{list(t.shape)}")
        held[name] = system.values(tensor_values[name])
    with np.errstate(all="ignore"):
        return Evaluation(system, held, hurry).whole(scope)


def own_values(t: Tensor, system: Arithmetic) -> Array:
    """The values that a tensor carries."""
    assert t.values is not None
    return np.array([system.number(v) for v in t.values], dtype=system.dtype).reshape(t.shape)


class Evaluation:
    """One run: the number system, the tensors, and the nested scopes done so far. What these read must not change any more."""

    def __init__(self, system: Arithmetic, held: Mapping[str, Array], hurry: Callable[[], None] = nothing) -> None:
        self.system = system
        self.hurry = hurry
        self.held = held
        self.done: dict[str, Array] = {}

    def whole(self, s: Scope) -> Array:
        """All values of a scope."""
        along = prefix(s)
        if along is not None:
            return self.along(s, along)
        out = np.empty(s.shape, dtype=self.system.dtype)
        self.part(s, s.ranges, out)
        return out

    def along(self, s: Scope, found: Prefix) -> Array:
        """All values of a reduction of what comes before a place or after it, in one pass."""
        each = np.moveaxis(self.whole(terms_of(s, found)), found.axis, 0)
        count = len(each)
        done = self.accumulated(s.reduce, each if found.forward else each[::-1])
        places = np.arange(*found.place.range) - found.over.lo
        last = places + found.more if found.forward else count - 1 - (places - found.more)
        out = done[np.clip(last, 0, count - 1)]
        if (last < 0).any():
            none = self.system.reduce(s.reduce, np.stack([self.system.number(neutral(s.reduce))]), (0,))
            out = out.astype(np.result_type(out, none), copy=False)
            out[last < 0] = none
        return np.moveaxis(out, 0, found.axis)

    def accumulated(self, kind: str, array: Array) -> Array:
        """Reductions of the first one, two, three along the first axis: of two, of four, of eight made of one another, where the system does it in no
        other way, as one that counts how often a sum rounds."""
        if accumulates(self.system):
            return self.system.accumulate(kind, array)
        step = 1
        while step < len(array):
            self.hurry()
            array = np.concatenate([array[:step], self.system.reduce(kind, np.stack([array[step:], array[:-step]]), (0,))])
            step *= 2
        return array

    def part(self, s: Scope, ranges: Ranges, out: Array) -> None:
        """The values of a scope where its loops are in `ranges`, into `out`."""
        if any(i.extent == 0 for i in s.sums):
            out[...] = self.system.number(neutral(s.reduce))
        elif out.size:
            self.fill(_plain(s), ranges, out)

    def nested(self, s: Scope) -> Array:
        """All values of a scope inside another, which are kept."""
        if s.key not in self.done:
            moves = isinstance(s.body, Read) and not s.sums and 0 < prod(s.shape) <= _MOVED
            self.done[s.key] = self.moved(_plain(s)) if moves else self.whole(s)
        return self.done[s.key]

    def moved(self, s: Scope) -> Array:
        """All values of a scope that only reads: no copy of what is read where they are a view of it."""
        self.hurry()
        return np.broadcast_to(self.block(s, s.ranges), s.shape)

    def fill(self, s: Scope, ranges: Ranges, out: Array) -> None:
        """Write the part of the result that `ranges` covers."""
        name = self.widest(s, ranges)
        if name is None:
            self.hurry()
            out[...] = self.block(s, ranges)
            return
        lo, hi = ranges[name]
        middle = (lo + hi) // 2
        lower, upper = {**ranges, name: (lo, middle)}, {**ranges, name: (middle, hi)}
        axis = next((n for n, i in enumerate(s.loops) if i.name == name), None)
        if axis is not None:
            left, right = np.split(out, [middle - lo], axis=axis)
            self.fill(s, lower, left)
            self.fill(s, upper, right)
            return
        rest = np.empty_like(out)
        self.fill(s, lower, out)
        self.fill(s, upper, rest)
        out[...] = self.system.reduce(s.reduce, np.stack([out, rest]), (0,))

    def widest(self, s: Scope, ranges: Ranges) -> str | None:
        """The iterator to split so that intermediate arrays get smaller, loops before sums; None when they are small."""
        parts = [p for t in terms(s) for p in (_factors(t) if contracts(self.system) else (t,))]
        names = max((used_names(p) for p in parts), key=lambda used: _size(used, ranges))
        if _size(names, ranges) <= _CHUNK:
            return None

        def extent(name: str) -> int:
            return ranges[name][1] - ranges[name][0]

        loops = [i.name for i in s.loops if i.name in names and extent(i.name) > 1]
        return max(loops or names, key=extent)

    def block(self, s: Scope, ranges: Ranges) -> Array:
        """The reduction over all sums, as an array that broadcasts to the loops."""
        names = (*(i.name for i in s.loops), *(i.name for i in s.sums))
        view = _View(self, ranges, names)
        return reduce(self.system.add, (self.term(s, t, view) for t in terms(s)))

    def term(self, s: Scope, term: Body, view: _View) -> Array:
        rank, axes = len(s.loops), len(view.shape)
        factors = [values(f, view.env, self.system, view.read) for f in _factors(term)]
        if s.reduce == "sum" and s.sums and len(factors) > 1 and contracts(self.system):
            factors = [f.reshape((1,) * (axes - f.ndim) + f.shape) for f in factors]
            done = self.system.contract(factors, rank, view.shape)
            repeats = prod(view.shape[a] for a in range(rank, axes) if all(f.shape[a] == 1 for f in factors))
            return done if repeats == 1 else self.system.multiply(done, self.system.number(Fraction(repeats)))
        return reduced(self.system, s.reduce, reduce(self.system.multiply, factors), rank, view.shape)


class _View:
    """The grid of iterator values of one block, an axis per iterator, and the reads over it."""

    def __init__(self, run: Evaluation, ranges: Ranges, names: tuple[str, ...]) -> None:
        self.run = run
        self.ranges = ranges
        self.names = names
        self.shape = tuple(ranges[n][1] - ranges[n][0] for n in names)
        self.env: Environment = {
            n: np.arange(*ranges[n]).reshape(tuple(-1 if m == n else 1 for m in names)) for n in names
        }

    def read(self, r: Read, env: Environment) -> Array:
        """The values of a read, an axis per iterator, of length 1 where the iterator does not occur.

        Affine indices make a view of the window that they touch, whose other dimensions are gathered first by the iterators of their indices. Where
        that is much larger than what is read, every element is read by its address.
        """
        base = self.run.held[r.base.name] if isinstance(r.base, Tensor) else self.run.nested(r.base)
        affine = [n for n, e in enumerate(r.index) if e.is_affine]
        other = [n for n, e in enumerate(r.index) if not e.is_affine]
        hull = tuple((lo, hi + 1) for lo, hi in (bounds(r.index[n], self.ranges) for n in affine))
        gathered = _size(_names(r.index[n] for n in other), self.ranges)
        if base.size and prod(hi - lo for lo, hi in hull) * gathered <= 2 * _size(_names(r.index), self.ranges) + 4096:
            fill = self.run.system.number(r.fill)
            window = _window(base.transpose(other + affine), r.base.box, tuple(other), tuple(affine), hull, fill)
            return self.strided(r, affine, self.gathered(r, other, window, fill), hull)
        address, inside = flat_address(r.index, r.base.box, env)
        if inside is None:
            return np.take(base.reshape(-1), address)
        fill = self.run.system.number(r.fill)
        if base.size == 0:
            return np.broadcast_to(fill, np.broadcast_shapes(address.shape, inside.shape))
        return np.where(inside, np.take(base.reshape(-1), address), fill)

    def gathered(self, r: Read, dimensions: list[int], window: Array, fill: Array) -> Array:
        """The window with an axis per iterator for its first dimensions, those whose indices are not affine."""
        ones = (1,) * len(self.names)
        if not dimensions:
            return window.reshape(ones + window.shape)
        at, inside = zip(*(inside_box(r.index[n], r.base.box[n], self.env) for n in dimensions))
        where = tuple(x - r.base.box[n][0] for x, n in zip(at, dimensions))
        found = np.asarray(window[tuple(x.reshape(ones) if x.ndim == 0 else x for x in where)])
        missing = [~ok for ok in inside if ok is not None]
        if missing:
            gone = np.broadcast_to(reduce(np.logical_or, missing), found.shape[: len(ones)])
            found = found.copy()  # numbers alone as indices make a view of the tensor
            found[gone] = fill
        return found

    def strided(self, r: Read, affine: list[int], window: Array, hull: tuple[Range, ...]) -> Array:
        """A read as a view of what holds all it touches: an axis per iterator, and one for each affine index."""
        rank = len(self.names)
        index = [r.index[n] for n in affine]
        first = [e.const + sum(c * self.ranges[str(a)][0] for a, c in e.terms) - lo for e, (lo, _) in zip(index, hull)]
        own = [step if extent > 1 else 0 for step, extent in zip(window.strides, window.shape[:rank])]
        steps = [mine + sum(e.coefficient(n) * s for e, s in zip(index, window.strides[rank:])) for n, mine in zip(self.names, own)]
        used = _names(r.index)
        shape = [extent if n in used else 1 for n, extent in zip(self.names, self.shape)]
        origin = _part(window, [*[slice(None)] * rank, *(slice(f, None) for f in first)])
        return as_strided(origin, shape, steps, writeable=False)


def _plain(s: Scope) -> Scope:
    """The scope with indices as simple as they are over its box: a floor that is one number there ties no iterator to a read."""
    return replace(s, body=map_indices(s.body, lambda e: simplify(e, s.ranges)))


def _names(index: Iterable[Index]) -> frozenset[str]:
    return frozenset[str]().union(*(e.names() for e in index))


def _factors(term: Body) -> tuple[Body, ...]:
    return term.args if isinstance(term, Mul) else (term,)


def _size(names: frozenset[str], ranges: Ranges) -> int:
    return prod(ranges[n][1] - ranges[n][0] for n in names)


def _part(array: Array, where: list[slice]) -> Array:
    """A view; of an array without dimensions too, where plain indexing would give the element."""
    return np.asarray(array[tuple(where)]) if where else array


def _window(base: Array, box: tuple[Range, ...], whole: tuple[int, ...], cut: tuple[int, ...], hull: tuple[Range, ...], fill: Array) -> Array:
    """The part of a tensor in `hull`, which is of its dimensions `cut`, with the fill where that lies outside the box; all of the others before."""
    edges = [box[n] for n in cut]
    before = [slice(None)] * len(whole)
    if all(lo >= b and hi <= e for (lo, hi), (b, e) in zip(hull, edges)):
        return _part(base, [*before, *(slice(lo - b, hi - b) for (lo, hi), (b, _) in zip(hull, edges))])
    out = np.full([*base.shape[: len(whole)], *(hi - lo for lo, hi in hull)], fill, dtype=base.dtype)
    common = [(max(lo, b), min(hi, e)) for (lo, hi), (b, e) in zip(hull, edges)]
    if all(lo < hi for lo, hi in common):
        target = [slice(lo - h, hi - h) for (lo, hi), (h, _) in zip(common, hull)]
        out[(*before, *target)] = base[(*before, *(slice(lo - b, hi - b) for (lo, hi), (b, _) in zip(common, edges)))]
    return out
