"""Values of index functions and scalar bodies over arrays of iterator values that broadcast against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.errors import UsageError
from einnet.expr.index import Index, Range
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Div, Mul, Read, Scope, Select, Val
from einnet.expr.values.arithmetic import Arithmetic, Array

Integers = NDArray[np.int64]
Environment = Mapping[str, Integers]
_LARGEST = 1 << 61


def numerator(e: Index, env: Environment) -> Integers:
    """den * e at the iterator values of `env`.

    Raises UsageError where a value may not fit 62 bits, rather than wrap around.
    """
    total = np.asarray(e.const, dtype=np.int64)
    reach = abs(e.const)
    for atom, c in e.terms:
        part = env[atom] if isinstance(atom, str) else numerator(atom.num, env) // (atom.den * atom.num.den)
        reach += abs(c) * max(1, int(np.abs(part).max(initial=0)))
        if reach > _LARGEST:
            raise UsageError(f"an index function reaches beyond 62 bits (coefficient {c})")
        total = total + c * part
    return total


def affine(e: Index, env: Environment) -> Integers:
    """The values of an index function over 1 that are known to be within 62 bits: where a term leaves them, the others bring the sum back."""
    total = np.asarray(e.const, dtype=np.int64)
    for atom, c in e.terms:
        part = env[atom] if isinstance(atom, str) else numerator(atom.num, env) // (atom.den * atom.num.den)
        total = total + (part if c == 1 else c * part)
    return total


def holds(conds: tuple[Cond, ...], env: Environment) -> NDArray[np.bool_]:
    """Where all conditions hold."""
    result = np.asarray(True)
    for c in conds:
        at = numerator(c.index, env)
        result = result & ((at == 0) if c.equal else (at >= 0))
    return result


Side = Callable[[], Array]


def one_of(taken: NDArray[np.bool_], then: Side, other: Side) -> Array:
    """The values of the one side where that is taken, elsewhere of the other: both are evaluated everywhere."""
    return np.where(taken, then(), other())


def values(
    body: Body, env: Environment, system: Arithmetic, read: Callable[[Read, Environment], Array],
    select: Callable[[NDArray[np.bool_], Side, Side], Array] = one_of,
) -> Array:  # fmt: skip
    """The body's values; `read` gives those of reads, `select` those of a side where its conditions hold and of the other elsewhere."""

    def visit(b: Body) -> Any:
        match b:
            case Const(v):
                return system.number(v)
            case Val(index):
                return system.integers(numerator(index, env), index.den)
            case Read():
                return read(b, env)
            case Add(args):
                return reduce(system.add, map(visit, args))
            case Mul(args):
                return reduce(system.multiply, map(visit, args))
            case Div(num, den):
                return system.divide(visit(num), visit(den))
            case Call(name, args):
                return system.call(name, tuple(map(visit, args)))
            case Select(conds, then, other):
                return select(holds(conds, env), lambda: visit(then), lambda: visit(other))
        raise TypeError(f"not a body: {b!r}")

    return np.asarray(visit(body))


def flat_address(index: tuple[Index, ...], box: tuple[tuple[int, int], ...], env: Environment) -> tuple[Integers, NDArray[np.bool_] | None]:
    """Row-major address of a read inside its box, and where the read is inside (None: everywhere); addresses outside are 0."""
    address: Integers = np.asarray(0, dtype=np.int64)
    inside: NDArray[np.bool_] | None = None
    for e, (lo, hi) in zip(index, box):
        at, ok = inside_box(e, (lo, hi), env)
        if ok is not None:
            inside = ok if inside is None else inside & ok
        address = address * (hi - lo) + (at - lo)
    return address, inside


def inside_box(e: Index, box: Range, env: Environment) -> tuple[Integers, NDArray[np.bool_] | None]:
    """An index in [lo, hi), and where it is inside (None: everywhere); the lower end where it is outside."""
    lo, hi = box
    at = numerator(e, env)
    ok = np.ones((), dtype=np.bool_)
    if e.den != 1:
        ok = np.asarray(at % e.den == 0)
        at = at // e.den
    ok = ok & (at >= lo) & (at < hi)
    return (at, None) if ok.all() else (np.where(ok, at, lo), ok)


def reduced(system: Arithmetic, kind: str, product: Array, rank: int, shape: tuple[int, ...]) -> Array:
    """Reduce the axes from `rank` on; `shape` has the full extents, of which the array has 1 where it does not vary."""
    product = product.reshape((1,) * (len(shape) - product.ndim) + product.shape)
    done = system.reduce(kind, product, tuple(a for a in range(rank, len(shape)) if product.shape[a] > 1)).reshape(product.shape[:rank])
    repeats = prod(shape[a] for a in range(rank, len(shape)) if product.shape[a] == 1) if kind == "sum" else 1
    return done if repeats == 1 else system.multiply(done, system.number(Fraction(repeats)))


def terms(s: Scope) -> tuple[Body, ...]:
    """Bodies whose reductions add up to the scope's."""
    return s.body.args if s.reduce == "sum" and isinstance(s.body, Add) else (s.body,)
