"""Vectorised arithmetic modulo the Mersenne prime P = 2^61 - 1 on uint64 arrays, the field of the checker's random evaluation.

Values are residues 0 <= x < P, and two codes for the infinities of max and min. The order behind `max`, `min`, `relu`, `less` is that of
the centred residues -(P-1)/2..(P-1)/2. Functions without exact meaning on rationals (exp, tanh, ...) are fixed pseudo-random functions that
keep their rational values at 0 and 1, so that equal residues here are what equal real functions must give, up to identities of those functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.nodes import Number

P = (1 << 61) - 1
MINUS_INFINITY = np.uint64((1 << 64) - 1)
PLUS_INFINITY = np.uint64((1 << 64) - 2)

Residues = NDArray[np.uint64]

_P = np.uint64(P)
_LOW31 = np.uint64((1 << 31) - 1)
_LOW30 = np.uint64((1 << 30) - 1)
_S1, _S30, _S31, _S33, _S29, _S32, _S61 = (np.uint64(n) for n in (1, 30, 31, 33, 29, 32, 61))
_TINY = np.iinfo(np.int64)


def _fold(x: Residues) -> Residues:
    """x modulo P for x < 2^64."""
    return _below((x >> _S61) + (x & _P))


def _below(x: Residues) -> Residues:
    """x modulo P for x < 2 P."""
    return np.asarray(x - np.where(x >= _P, _P, np.uint64(0)))


def residue(value: Number) -> np.uint64:
    """The residue of an exact rational, or the code of an infinity. Raises ZeroDivisionError where P divides the denominator."""
    if isinstance(value, float):
        return PLUS_INFINITY if value > 0 else MINUS_INFINITY
    if value.denominator == 1:
        return np.uint64(value.numerator % P)
    return np.uint64(value.numerator * pow(value.denominator, -1, P) % P)


def from_integers(values: NDArray[Any]) -> Residues:
    """Residues of signed integers (int64 or Python integers)."""
    if values.dtype == object:
        return np.asarray([int(v) % P for v in values.reshape(-1)], dtype=np.uint64).reshape(values.shape)
    return np.asarray(np.remainder(values, np.int64(P))).astype(np.uint64)


def _finite(*arrays: Residues) -> bool:
    return all(a.size == 0 or bool(a.max() < _P) for a in arrays)


def add(a: Residues, b: Residues) -> Residues:
    """a + b; an infinity absorbs."""
    if _finite(a, b):
        return _below(a + b)
    return np.where(a >= _P, a, np.where(b >= _P, b, _below(a % _P + b % _P)))


def multiply(a: Residues, b: Residues) -> Residues:
    """a * b; an infinity keeps its sign or takes the other's, 0 absorbs."""
    if _finite(a, b):
        return _multiply(a, b)
    product = _multiply(a % _P, b % _P)
    negative = (order(a) < 0) != (order(b) < 0)
    unbounded = np.where(negative, MINUS_INFINITY, PLUS_INFINITY)
    return np.where((a == 0) | (b == 0), np.uint64(0), np.where((a >= _P) | (b >= _P), unbounded, product))


def _multiply(a: Residues, b: Residues) -> Residues:
    ah, al, bh, bl = a >> _S31, a & _LOW31, b >> _S31, b & _LOW31
    middle = al * bh + ah * bl
    return _fold(((ah * bh) << _S1) + (middle >> _S30) + ((middle & _LOW30) << _S31) + al * bl)


def inverse(a: Residues) -> Residues:
    """1 / a; 1 / 0 is 0, which no identity of ours relies on."""
    a = a % _P
    result = np.ones_like(a)
    power = a
    exponent = P - 2
    while exponent:
        if exponent & 1:
            result = _multiply(result, power)
        power = _multiply(power, power)
        exponent >>= 1
    return result


def total(a: Residues, axes: tuple[int, ...]) -> Residues:
    """Sum over some axes."""
    if not axes:
        return a
    if not _finite(a):
        for axis in sorted(axes, reverse=True):
            part = np.take(a, 0, axis=axis)
            for k in range(1, a.shape[axis]):
                part = add(part, np.take(a, k, axis=axis))
            a = part
        return a
    high = (a >> _S32).sum(axis=axes, dtype=np.uint64)
    low = (a & np.uint64((1 << 32) - 1)).sum(axis=axes, dtype=np.uint64)
    return _fold(_multiply(_fold(high), np.asarray(np.uint64(1 << 32))) + _fold(low))


def order(a: Residues) -> NDArray[np.int64]:
    """Centred residues as signed integers, infinities at both ends."""
    signed = a.astype(np.int64)
    centred = np.where(a > np.uint64(P // 2), signed - np.int64(P), signed)
    return np.where(a == PLUS_INFINITY, _TINY.max, np.where(a == MINUS_INFINITY, _TINY.min, centred))


def from_order(ordered: NDArray[np.int64]) -> Residues:
    """The inverse of `order`."""
    residues = np.where(ordered < 0, ordered + np.int64(P), ordered).astype(np.uint64)
    return np.where(ordered == _TINY.max, PLUS_INFINITY, np.where(ordered == _TINY.min, MINUS_INFINITY, residues))


def mix(x: Residues) -> Residues:
    """A bijective scrambling of 64-bit words (xor, shift and multiply by odd constants)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _S33)) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ (x >> _S29)) * np.uint64(0xC4CEB9FE1A85EC53)
        return x ^ (x >> _S32)


def seed_of(*words: object) -> np.uint64:
    """64 bits that depend on some printable values, the same in every process."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest(), "little"))


def random_function(seed: np.uint64, args: tuple[NDArray[Any], ...]) -> Residues:
    """A fixed pseudo-random residue for every tuple of arguments."""
    state: Residues = np.asarray(seed)
    with np.errstate(over="ignore"):
        for a in args:
            state = mix((state + np.uint64(0x9E3779B97F4A7C15)) ^ mix(np.asarray(a).astype(np.uint64)))
    return _fold(state)


_SMALL = 1 << 20
"""Centred residues below this stand for integers: `floor`, `ceil` and `round` keep them."""


def drawn(name: str, *fixed: tuple[int, int]) -> Callable[..., Residues]:
    """A function without a meaning on residues: a fixed pseudo-random one, but for its rational values (argument, value) at some arguments."""
    seed = seed_of(name)

    def apply(*args: Residues) -> Residues:
        result = random_function(seed, args)
        for argument, value in fixed:
            result = np.where(args[0] == np.uint64(argument), np.uint64(value), result)
        return result

    return apply


def drawn_between(name: str, at: int, value: int, ends: tuple[int, int]) -> Callable[..., Residues]:
    """The same with its value at one argument and at its ends, -inf and inf."""
    low, high = (end % P for end in ends)
    return drawn(name, (at, value), (int(MINUS_INFINITY), low), (int(PLUS_INFINITY), high))


def kept_where_whole(name: str) -> Callable[[Residues], Residues]:
    """A pseudo-random function that keeps what stands for an integer."""
    function = drawn(name)
    return lambda x: np.where(np.abs(order(x) // 2) < _SMALL, x, function(x))


def by_order(function: Callable[..., NDArray[Any]]) -> Callable[..., Residues]:
    """A function of centred residues that is exact on them."""
    return lambda *args: from_order(np.asarray(function(*(order(np.asarray(a)) for a in args))).astype(np.int64))
