"""The number systems in which expressions are evaluated: machine numbers (or their sizes), exact rationals, residues modulo 2^61 - 1."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.functions import FUNCTIONS, modular
from einnet.expr.nodes import Number

Array = NDArray[Any]


class Arithmetic(Protocol):
    """Operations on arrays that broadcast against each other."""

    dtype: np.dtype[Any]

    def __hash__(self) -> int: ...
    def number(self, value: Number) -> Array: ...
    def values(self, array: Array) -> Array: ...
    def integers(self, array: Array, den: int) -> Array: ...
    def add(self, a: Array, b: Array) -> Array: ...
    def multiply(self, a: Array, b: Array) -> Array: ...
    def divide(self, a: Array, b: Array) -> Array: ...
    def call(self, name: str, args: tuple[Array, ...]) -> Array: ...
    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array: ...


class Contracting(Arithmetic, Protocol):
    """A number system that computes a sum of products as one."""

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        """Σ of the product of the factors over the axes from `rank` on, with axes of length 1 where no factor has the iterator.

        All factors have an axis for each extent of `shape`, of length 1 where they do not vary.
        """


def contracts(system: Arithmetic) -> TypeGuard[Contracting]:
    """The number system computes sums of products as one; it is asked so often that Python's own look at a protocol took a tenth of a check."""
    return hasattr(system, "contract")


class Accumulating(Arithmetic, Protocol):
    """A number system that reduces the first one, two, three of a sequence in its own way."""

    def accumulate(self, kind: str, array: Array) -> Array:
        """The reductions of what stands until each place of the first axis."""


def accumulates(system: Arithmetic) -> TypeGuard[Accumulating]:
    """The number system has such a way."""
    return hasattr(system, "accumulate")


LARGEST = 1 << 21
"""Elements of the largest array that a product of several factors makes on its way."""


class Machine:
    """Numbers of a numpy type, rounded as numpy does."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)

    def number(self, value: Number) -> Array:
        return np.asarray(float(value)).astype(self.dtype)

    def values(self, array: Array) -> Array:
        return np.asarray(array, dtype=self.dtype)

    def integers(self, array: Array, den: int) -> Array:
        return np.asarray(array / den if den != 1 else array).astype(self.dtype)

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b)

    def multiply(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b)

    def divide(self, a: Array, b: Array) -> Array:
        return np.asarray(a / b).astype(self.dtype)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        return np.asarray(FUNCTIONS[name].machine(*args)).astype(self.dtype)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        if kind == "sum":
            return np.asarray(np.sum(array, axis=axes)).astype(self.dtype)
        return np.asarray(np.max(array, axis=axes) if kind == "max" else np.min(array, axis=axes))

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        return contracted(factors, rank, shape)


def contracted(factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
    """`Contracting.contract` of numpy's numbers."""
    used = [[a for a, n in enumerate(f.shape) if n > 1] for f in factors]
    kept = sorted({a for axes in used for a in axes if a < rank})
    operands: list[Any] = []
    for f, axes in zip(factors, used):
        operands += [f[tuple(slice(None) if a in axes else 0 for a in range(f.ndim))], axes]
    result = np.einsum(*operands, kept, optimize=("greedy", LARGEST))
    return np.asarray(result).reshape([shape[a] if a in kept else 1 for a in range(rank)])


def uncontracted(system: Arithmetic, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
    """`Contracting.contract` in steps."""
    product = reduce(system.multiply, factors)
    done = system.reduce("sum", product, tuple(a for a in range(rank, len(shape)) if product.shape[a] > 1))
    return np.asarray(done).reshape(product.shape[:rank])


class Strict(Machine):
    """Doubles in which a value that does not exist, as 1/0 or log(0), is NaN and makes all NaN that is computed from it."""

    def __init__(self) -> None:
        super().__init__("float64")

    def divide(self, a: Array, b: Array) -> Array:
        return np.where(np.asarray(b) == 0, np.nan, super().divide(a, b))

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        found, function = super().call(name, args), FUNCTIONS[name]
        if not function.strict:
            return found
        gone = reduce(np.logical_or, map(np.isnan, args))
        if function.exists is not None:
            gone = gone | (np.isinf(found) & reduce(np.logical_and, map(np.isfinite, args)))
        return np.where(gone, np.nan, found)

    def contract(self, factors: list[Array], rank: int, shape: tuple[int, ...]) -> Array:
        """Product by product where one may be of no number: infinity times a sum is no sum of infinities."""
        if all(bool(np.isfinite(f).all()) for f in factors):
            return super().contract(factors, rank, shape)
        return uncontracted(self, factors, rank, shape)


class Magnitudes(Machine):
    """Sizes instead of values: of constants the absolute value, of sums and products no less than they can be.

    What stays within its argument, as `relu` or `max`, has the argument's size. Of other functions, and of divisors, the result counts as 1 and
    `arguments` has the greatest size of an argument, by name.
    """

    def __init__(self) -> None:
        super().__init__("float64")
        self.arguments: dict[str, float] = {}

    def number(self, value: Number) -> Array:
        return np.abs(super().number(Fraction(0) if isinstance(value, float) else value))

    def integers(self, array: Array, den: int) -> Array:
        return super().integers(np.abs(array), den)

    def divide(self, a: Array, b: Array) -> Array:
        return self._noted("/", np.broadcast_arrays(a, b)[0], (b,))

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        if FUNCTIONS[name].within:
            return np.asarray(reduce(np.maximum, args[-2:]))  # a condition is no value that is chosen
        return self._noted(name, np.ones(np.broadcast_shapes(*map(np.shape, args))), args)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        return super().reduce(kind if kind == "sum" else "max", array, axes)

    def _noted(self, name: str, result: Array, args: tuple[Array, ...]) -> Array:
        most = max((float(np.max(a, initial=0.0)) for a in args), default=0.0)
        self.arguments[name] = max(self.arguments.get(name, 0.0), most)
        return np.asarray(result)


def _rational(x: Any) -> Number:
    if isinstance(x, float) and math.isinf(x):
        return x
    return Fraction(x)


class Exact:
    """Rationals of any size (`fractions.Fraction` in object arrays). Slow; for small boxes."""

    dtype = np.dtype(object)

    def number(self, value: Number) -> Array:
        return np.asarray(value, dtype=object)

    def values(self, array: Array) -> Array:
        plain = np.asarray(array)
        out = np.empty(plain.shape, dtype=object)
        out.reshape(-1)[:] = [_rational(x) for x in plain.reshape(-1).tolist()]
        return out

    def integers(self, array: Array, den: int) -> Array:
        return np.asarray(self.values(array) / Fraction(den), dtype=object)

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b, dtype=object)

    def multiply(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b, dtype=object)

    def divide(self, a: Array, b: Array) -> Array:
        return np.asarray(a / b, dtype=object)

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        function = FUNCTIONS[name]
        if not function.accurate or function.rational is None:
            raise UsageError(f"{name} has no exact value on rationals; evaluate in float64 or mod")
        return np.asarray(np.frompyfunc(function.rational, len(args), 1)(*args), dtype=object)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        how = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
        return np.asarray(how.reduce(array, axis=axes), dtype=object)


class Modular:
    """Residues modulo 2^61 - 1, with functions as their records have them."""

    dtype = np.dtype(np.uint64)

    def number(self, value: Number) -> Array:
        return np.asarray(modular.residue(value))

    def values(self, array: Array) -> Array:
        plain = np.asarray(array)
        return plain if plain.dtype == np.uint64 else modular.from_integers(plain)

    def integers(self, array: Array, den: int) -> Array:
        whole = modular.from_integers(np.asarray(array))
        return whole if den == 1 else modular.multiply(whole, np.asarray(modular.residue(Fraction(1, den))))

    def add(self, a: Array, b: Array) -> Array:
        return modular.add(a, b)

    def multiply(self, a: Array, b: Array) -> Array:
        return modular.multiply(a, b)

    def divide(self, a: Array, b: Array) -> Array:
        return modular.multiply(a, modular.inverse(b))

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        return FUNCTIONS[name].residue(*args)

    def reduce(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return array
        if kind == "sum":
            return modular.total(array, axes)
        return modular.from_order((np.max if kind == "max" else np.min)(modular.order(array), axis=axes))


def arithmetic(dtype: str) -> Arithmetic:
    """The number system of a name: "int" (exact rationals), "mod", or a numpy type.

    Raises UsageError for any other name.
    """
    if dtype == "int":
        return Exact()
    if dtype == "mod":
        return Modular()
    try:
        return Machine(dtype)
    except TypeError:
        raise UsageError(f"{dtype!r} is no number system: expected a numpy type, 'int' or 'mod'") from None
