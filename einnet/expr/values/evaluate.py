"""Dense evaluation of expressions with numpy: the meaning of the language, and the compile-time evaluation of weight expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.index import Range, bounds
from einnet.expr.nodes import Body, Mul, Read, Scope, Tensor, neutral, tensors, used_names
from einnet.expr.values.arithmetic import Arithmetic, Array, arithmetic
from einnet.expr.values.bodies import Environment, flat_address, reduced, terms, values

_CHUNK = 1 << 21
"""Elements of the largest intermediate array."""

Ranges = Mapping[str, Range]


def nothing() -> None:
    """There is no hurry."""


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
            held[name] = np.array([system.number(v) for v in t.values], dtype=system.dtype).reshape(t.shape)
            continue
        if name not in tensor_values:
            raise UsageError(f"no values for tensor {name}{list(t.shape)}")
        if tensor_values[name].shape != t.shape:
            raise UsageError(f"values of shape {list(tensor_values[name].shape)} for tensor {name}{list(t.shape)}")
        held[name] = system.values(tensor_values[name])
    with np.errstate(all="ignore"):
        return _Evaluation(system, held, hurry).scope(scope)


class _Evaluation:
    """One run: the number system, the tensors, and the nested scopes done so far."""

    def __init__(self, system: Arithmetic, held: Mapping[str, Array], hurry: Callable[[], None]) -> None:
        self.system = system
        self.hurry = hurry
        self.held = held
        self.done: dict[str, Array] = {}

    def scope(self, s: Scope) -> Array:
        if s.key not in self.done:
            out = np.empty(s.shape, dtype=self.system.dtype)
            if any(i.extent == 0 for i in s.sums):
                out[...] = self.system.number(neutral(s.reduce))
            elif out.size:
                self.fill(s, s.ranges, out)
            self.done[s.key] = out
        return self.done[s.key]

    def fill(self, s: Scope, ranges: Ranges, out: Array) -> None:
        """Write the part of the result that `ranges` covers."""
        name = self.widest(s, ranges)
        if name is None:
            self.hurry()
            out[...] = self.whole(s, ranges)
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
        parts = [p for t in terms(s) for p in (_factors(t) if self.system.contracts else (t,))]
        names = max((used_names(p) for p in parts), key=lambda used: _size(used, ranges))
        if _size(names, ranges) <= _CHUNK:
            return None

        def extent(name: str) -> int:
            return ranges[name][1] - ranges[name][0]

        loops = [i.name for i in s.loops if i.name in names and extent(i.name) > 1]
        return max(loops or names, key=extent)

    def whole(self, s: Scope, ranges: Ranges) -> Array:
        """The reduction over all sums, as an array that broadcasts to the loops."""
        names = (*(i.name for i in s.loops), *(i.name for i in s.sums))
        view = _View(self, ranges, names)
        return reduce(self.system.add, (self.term(s, t, view) for t in terms(s)))

    def term(self, s: Scope, term: Body, view: _View) -> Array:
        rank, axes = len(s.loops), len(view.shape)
        factors = [values(f, view.env, self.system, view.read) for f in _factors(term)]
        if s.reduce == "sum" and s.sums and len(factors) > 1 and self.system.contracts:
            factors = [f.reshape((1,) * (axes - f.ndim) + f.shape) for f in factors]
            done = _contract(factors, rank, view.shape)
            repeats = prod(view.shape[a] for a in range(rank, axes) if all(f.shape[a] == 1 for f in factors))
            return self.system.multiply(done, self.system.number(Fraction(repeats)))
        return reduced(self.system, s.reduce, reduce(self.system.multiply, factors), rank, view.shape)


class _View:
    """The grid of iterator values of one block, an axis per iterator, and the reads over it."""

    def __init__(self, run: _Evaluation, ranges: Ranges, names: tuple[str, ...]) -> None:
        self.run = run
        self.ranges = ranges
        self.names = names
        self.shape = tuple(ranges[n][1] - ranges[n][0] for n in names)
        self.env: Environment = {
            n: np.arange(*ranges[n]).reshape(tuple(-1 if m == n else 1 for m in names)) for n in names
        }

    def read(self, r: Read, env: Environment) -> Array:
        """The values of a read, an axis per iterator, of length 1 where the iterator does not occur."""
        base = self.run.held[r.base.name] if isinstance(r.base, Tensor) else self.run.scope(r.base)
        if all(e.is_affine for e in r.index):
            hull = tuple((lo, hi + 1) for lo, hi in (bounds(e, self.ranges) for e in r.index))
            size = _size(frozenset().union(*(e.names() for e in r.index)), self.ranges)
            if prod(hi - lo for lo, hi in hull) <= 2 * size + 4096:
                return self.strided(r, _window(base, r.base.box, hull, self.run.system.number(r.fill)), hull)
        address, inside = flat_address(r.index, r.base.box, env)
        if inside is None:
            return np.take(base.reshape(-1), address)
        fill = self.run.system.number(r.fill)
        if base.size == 0:
            return np.broadcast_to(fill, np.broadcast_shapes(address.shape, inside.shape))
        return np.where(inside, np.take(base.reshape(-1), address), fill)

    def strided(self, r: Read, window: Array, hull: tuple[Range, ...]) -> Array:
        """An affine read as a view of the window that holds all it touches."""
        first = [e.const + sum(c * self.ranges[str(a)][0] for a, c in e.terms) - lo for e, (lo, _) in zip(r.index, hull)]
        steps = [sum(e.coefficient(n) * step for e, step in zip(r.index, window.strides)) for n in self.names]
        used = frozenset().union(*(e.names() for e in r.index))
        shape = [extent if n in used else 1 for n, extent in zip(self.names, self.shape)]
        origin = _part(window, [slice(f, None) for f in first])
        return as_strided(origin, shape, steps, writeable=False)


def _factors(term: Body) -> tuple[Body, ...]:
    return term.args if isinstance(term, Mul) else (term,)


def _size(names: frozenset[str], ranges: Ranges) -> int:
    return prod(ranges[n][1] - ranges[n][0] for n in names)


def _part(array: Array, where: list[slice]) -> Array:
    """A view; of an array without dimensions too, where plain indexing would give the element."""
    return np.asarray(array[tuple(where)]) if where else array


def _window(base: Array, box: tuple[Range, ...], hull: tuple[Range, ...], fill: Array) -> Array:
    """The part of a tensor in `hull`, with the fill where that lies outside the box."""
    if all(lo >= b and hi <= e for (lo, hi), (b, e) in zip(hull, box)):
        return _part(base, [slice(lo - b, hi - b) for (lo, hi), (b, _) in zip(hull, box)])
    out = np.full([hi - lo for lo, hi in hull], fill, dtype=base.dtype)
    common = [(max(lo, b), min(hi, e)) for (lo, hi), (b, e) in zip(hull, box)]
    if all(lo < hi for lo, hi in common):
        target = tuple(slice(lo - h, hi - h) for (lo, hi), (h, _) in zip(common, hull))
        out[target] = base[tuple(slice(lo - b, hi - b) for (lo, hi), (b, _) in zip(common, box))]
    return out


def _contract(factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
    """Σ of the product of the factors over the axes from `rank` on, with axes of length 1 where no factor has the iterator."""
    used = [[a for a, n in enumerate(f.shape) if n > 1] for f in factors]
    kept = sorted({a for axes in used for a in axes if a < rank})
    operands: list[Any] = []
    for f, axes in zip(factors, used):
        operands += [f[tuple(slice(None) if a in axes else 0 for a in range(f.ndim))], axes]
    result = np.einsum(*operands, kept, optimize=("greedy", _CHUNK))
    return np.asarray(result).reshape([shape[a] if a in kept else 1 for a in range(rank)])
