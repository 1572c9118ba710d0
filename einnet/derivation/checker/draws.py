"""Real values for tensors at which two expressions with an order in them may differ: ties, zeros, one sign only, values at and beside constants.

Every draw is a function of a tensor and the flat addresses of its elements, so that nothing is materialised, and gives exact rationals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.functions.ends import Intervals
from einnet.expr.functions.exact import PLUS_ZERO
from einnet.expr.functions.modular import random_function, seed_of
from einnet.expr.nodes import Body, Const, Read, Scope, Tensor, children, functions_in, walk
from einnet.expr.values.intervals import enclosure

Element = tuple[str, int]
Integers = NDArray[np.int64]

_MOST_CONSTANTS = 12
_MOST_DERIVED = 48
_SEVERAL = 4


@dataclass(frozen=True)
class Choice:
    """How the elements of one tensor are chosen: from a palette by a hash of the address, or along a ramp.

    `salt` names the hash: tensors with one salt have equal elements at equal addresses. Of `sparse` elements one is taken from the palette, the
    others are 0. A ramp gives (first + step·address) / den.
    """

    palette: tuple[Fraction, ...] = (Fraction(0),)
    salt: str = ""
    sign: int = 1
    sparse: int = 1
    ramp: tuple[int, int, int] | None = None

    def exact(self, address: int) -> Fraction:
        """One element."""
        return self.exactly(np.asarray([address], dtype=np.int64))[0]

    def exactly(self, address: Integers) -> list[Fraction]:
        """Elements at some addresses."""
        if self.ramp:
            first, step, den = self.ramp
            return [Fraction(first + step * a, den) for a in address.tolist()]
        palette = [v * self.sign for v in self.palette]
        return [palette[place] for place in self.chosen(address).tolist()]

    def chosen(self, address: Integers) -> Integers:
        """Places in the palette; 0 is at the end of it where elements are sparse."""
        found = random_function(seed_of(self.salt), (address,))
        places = (found % np.uint64(len(self.palette))).astype(np.int64)
        if self.sparse > 1:
            some = (found >> np.uint64(20)) % np.uint64(self.sparse) == 0
            return np.where(some, places, len(self.palette) - 1)
        return places

    def floats(self, address: Integers) -> NDArray[np.float64]:
        """Elements, rounded to doubles."""
        if self.ramp:
            first, step, den = self.ramp
            return np.asarray((first + step * address) / den)
        return np.take(self._rounded, self.chosen(address)) * self.sign

    @cached_property
    def _rounded(self) -> NDArray[np.float64]:
        return np.asarray([float(v) for v in self.palette], dtype=np.float64)


@dataclass(frozen=True)
class Draw:
    """Values for all tensors: a choice for each by name, one for all others, and single elements that are set apart."""

    title: str
    every: Choice
    own: Mapping[str, Choice] = field(default_factory=dict)
    apart: Mapping[Element, Fraction] = field(default_factory=dict)

    def exact(self, t: Tensor, address: int) -> Fraction:
        """One element, exactly; of a tensor of integers a whole number, of truth values 0 or 1."""
        return self.exactly(t, np.asarray([address], dtype=np.int64))[0]

    def exactly(self, t: Tensor, address: Integers) -> list[Fraction]:
        """Elements at some flat addresses."""
        found = self.choice(t).exactly(address)
        for (name, at), value in self.apart.items():
            if name == t.name:
                for place in np.flatnonzero(address == at):
                    found[place] = value
        kind = _kind(t.dtype)
        return found if kind == "real" else [Fraction(math.floor(v)) if kind == "whole" else Fraction(v > 0) for v in found]

    def choice(self, t: Tensor) -> Choice:
        return self.own.get(t.name, self.every)

    def floats(self, t: Tensor, address: Integers) -> NDArray[np.float64]:
        """Elements at flat addresses as doubles."""
        address = np.asarray(address)
        found = self.choice(t).floats(address)
        for (name, at), value in self.apart.items():
            if name == t.name:
                found = np.where(address == at, float(value), found)
        kind = _kind(t.dtype)
        return found if kind == "real" else np.floor(found) if kind == "whole" else (found > 0).astype(np.float64)

    def rationals(self, t: Tensor, address: Integers) -> NDArray[Any]:
        """Elements at flat addresses as exact rationals, in an array of objects; zeros are positive ones."""
        address = np.asarray(address)
        out = np.empty(address.shape, dtype=object)
        out.ravel()[:] = [v or PLUS_ZERO for v in self.exactly(t, address.reshape(-1))]
        return out

    def enclosures(self, t: Tensor, address: Integers) -> Intervals:
        """Elements at flat addresses as intervals around the exact values."""
        address = np.asarray(address)
        distinct, back = np.unique(address, return_inverse=True)
        found = np.asarray([enclosure(v) for v in self.exactly(t, distinct)], dtype=np.complex128)
        return found[back].reshape(address.shape)

    def array(self, t: Tensor) -> NDArray[Any]:
        """The whole tensor as exact rationals."""
        return self.rationals(t, np.arange(prod(t.shape), dtype=np.int64).reshape(t.shape))


def _kind(dtype: str) -> str:
    return "truth" if dtype == "bool" else "whole" if dtype[0] in "iu" else "real"


def draws(before: Scope, after: Scope, named: Iterable[Tensor], read: Mapping[str, int]) -> Iterator[Draw]:
    """Draws for two expressions, those that tell most pairs apart first. `read`: how many elements of a tensor one value takes, about."""
    constants = _constants(before, after)
    at, beside = _palettes(constants)
    given = [t for t in named if t.values is None]
    for seed in range(2):
        yield from _everywhere(f"{seed}", at, beside)
    yield from _along(given)
    yield from _signs(given)
    yield from _tied(given, at)
    for c in constants[:_MOST_CONSTANTS]:
        yield Draw(f"all elements {c}", Choice((c,)))
    for t in islice(given, _SEVERAL):
        yield from _one_apart(t, at, beside, max(2, read.get(t.name, 1)))
    for seed in range(2, 5):
        yield from _everywhere(f"{seed}", at, beside)
    if any("as_" in name for side in (before, after) for s in walk(side) for name in functions_in(s.body)):
        yield from (_apart_by_name(f"between numbers of shorter types {seed}", _BETWEEN, f"{seed}") for seed in range(3))


def _eighths(lo: int, hi: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(k, 8) for k in range(lo, hi))


SMALL = tuple(map(Fraction, range(-2, 3)))
GENERIC = _eighths(-31, 32)
_LARGE = tuple(c * 4096 for c in GENERIC)
_HEAVY = tuple(s * Fraction(m, 8) * Fraction(2) ** e for s in (1, -1) for e in range(-6, 15) for m in (8, 11, 13))


_BETWEEN = tuple(
    sign * v for sign in (1, -1) for v in (
        *(1 + Fraction(odd, 1 << k) + Fraction(more, 1 << 14) for k in (8, 11) for odd in (1, 3) for more in (0, 1, -1)),
        *(Fraction(n, 1 << 26) for n in (1, 2, 3, 5, 6)), *map(Fraction, (65504, 65519, 65520, 65535, 65536, 66000)),
        *(255 * Fraction(2) ** 120 * Fraction(n, 512) for n in (511, 512, 513, 514)),
    )
)  # fmt: skip
"""Middles of numbers of 8 and 11 binary digits, and values beside them; the least and the greatest numbers of these types."""


def _everywhere(seed: str, at: tuple[Fraction, ...], beside: tuple[Fraction, ...]) -> Iterator[Draw]:
    """All elements from one palette, tensors apart."""
    palettes: dict[str, tuple[Fraction, ...]] = {
        "generic": GENERIC, "small whole numbers": SMALL, "negative": _eighths(-40, 0), "at constants": at, "beside constants": beside,
        "positive": _eighths(1, 40), "0 and 1": SMALL[2:4], "at and beside constants": (*at, *beside, *SMALL), "large": _LARGE,
        "tiny": tuple(c / (1 << 20) for c in GENERIC), "of all sizes": _HEAVY, "near 0": tuple(c / 64 for c in GENERIC),
    }  # fmt: skip
    for title, palette in palettes.items():
        yield _apart_by_name(f"{title} {seed}", palette, seed)
    if seed == "0":
        yield Draw("all elements 0", Choice())


def _apart_by_name(title: str, palette: tuple[Fraction, ...], seed: str) -> Draw:
    return Draw(title, Choice(palette, seed), _Named(palette, seed))


class _Named(dict[str, Choice]):
    """A choice for every name, with a hash of its own."""

    def __init__(self, palette: tuple[Fraction, ...], seed: str) -> None:
        super().__init__()
        self.palette, self.seed = palette, seed

    def get(self, name: str, default: object = None) -> Choice:
        found = super().get(name)
        return found if found is not None else Choice(self.palette, f"{self.seed} {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return _named, (self.palette, self.seed, dict(self))


def _named(palette: tuple[Fraction, ...], seed: str, own: dict[str, Choice]) -> _Named:
    found = _Named(palette, seed)
    found.update(own)
    return found


def _along(given: list[Tensor]) -> Iterator[Draw]:
    """Ascending and descending with the address, of one sign or across 0."""
    for title, first, step in (("ascending", -7, 1), ("descending", 5, -1)):
        yield Draw(title, Choice(ramp=(first, step, 4)))
    sizes = {t.name: prod(t.shape) for t in given}
    yield Draw("ascending, all negative", Choice(), {n: Choice(ramp=(-size - 1, 1, 4)) for n, size in sizes.items()})
    yield Draw("descending, all negative", Choice(ramp=(-1, -1, 4)))
    yield Draw("ascending, all positive", Choice(ramp=(1, 1, 4)))
    yield Draw("descending, all positive", Choice(), {n: Choice(ramp=(size + 1, -1, 4)) for n, size in sizes.items()})


def _signs(given: list[Tensor]) -> Iterator[Draw]:
    """Tensors of one sign each, not all of the same: a maximum of products that a function makes 0 differs nowhere else."""
    kinds = {"negative": _eighths(-40, 0), "positive": _eighths(1, 40)}
    for signs in product(kinds, repeat=min(len(given), _SEVERAL)):
        if len(set(signs)) > 1:
            own = {t.name: Choice(kinds[sign], t.name) for t, sign in zip(given, signs)}
            yield Draw(", ".join(f"{name} {sign}" for name, sign in zip(own, signs)), Choice(GENERIC, "others"), own)


def _tied(given: list[Tensor], at: tuple[Fraction, ...]) -> Iterator[Draw]:
    """Tensors that agree element by element, or are each other's negatives, or are a constant apart."""
    for title, palette in (("small", SMALL), ("generic", GENERIC), ("at constants", at)):
        yield Draw(f"tied, {title}", Choice(palette, "tied"))
        yield Draw(f"opposite, {title}", Choice(palette, "tied"), {t.name: Choice(palette, "tied", -1) for t in given[1::2]})
    for c in at[:_MOST_CONSTANTS]:
        if c:
            moved = Choice(tuple(v + c for v in GENERIC), "tied")
            yield from (Draw(f"tied, {t.name} moved by {c}", Choice(GENERIC, "tied"), {t.name: moved}) for t in given[:_SEVERAL])


def _one_apart(t: Tensor, at: tuple[Fraction, ...], beside: tuple[Fraction, ...], count: int) -> Iterator[Draw]:
    """One tensor of another kind than the others."""
    zero, one = Choice(), Choice((Fraction(1),))
    rest = _Named(GENERIC, "rest")
    palette = (*at, *beside, Fraction(0))
    kinds: dict[str, Choice] = {
        "0": zero, "1": one, "negative": Choice(_eighths(-40, 0), t.name), "0 and 1": Choice(SMALL[2:4], t.name),
        "at constants": Choice(at, t.name), "beside constants": Choice(beside, t.name), "large": Choice(_LARGE, t.name),
    }  # fmt: skip
    for title, choice in kinds.items():
        yield Draw(f"{t.name} {title}", Choice(GENERIC, "rest"), _named(rest.palette, rest.seed, {t.name: choice}))
    for title, others in (("0", zero), ("1", one)):
        yield Draw(f"{t.name} at constants, others {title}", others, {t.name: Choice((*at, *beside), t.name)})
        yield Draw(f"{t.name} generic, others {title}", others, {t.name: Choice(GENERIC, t.name)})
        yield Draw(f"{t.name} sparse, others {title}", others, {t.name: Choice(palette, t.name, sparse=count)})


def _palettes(constants: tuple[Fraction, ...]) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Values at constants and at what two of them make, and values beside those."""
    found = dict.fromkeys((*constants, *(-c for c in constants), Fraction(0)))
    pairs = [(a, b) for a, b in product(constants, repeat=2) if a != b]
    derived = (*(a - b for a, b in pairs), *(a / b for a, b in pairs if b), *(a + b for a, b in pairs))
    at = tuple(islice(dict.fromkeys((*found, *derived)), _MOST_DERIVED))
    beside = dict.fromkeys(c + s * e for c in at for e in (Fraction(1, 2), _near(c)) for s in (1, -1))
    return at, tuple(beside)


def _near(c: Fraction) -> Fraction:
    """A small step, in proportion."""
    return Fraction(2) ** (math.frexp(float(c) or 1.0)[1] - 12)


def _constants(*sides: Scope) -> tuple[Fraction, ...]:
    """The numbers of both sides, those that only one has first."""
    found = [dict.fromkeys(c for s in walk(side) for c in _numbers(s.body)) for side in sides]
    shared = [c for c in found[0] if all(c in f for f in found)]
    single = [c for f in found for c in f if c not in shared]
    return tuple(dict.fromkeys((*single, *shared, Fraction(1))))[: 2 * _MOST_CONSTANTS]


def _numbers(body: Body) -> Iterator[Fraction]:
    match body:
        case Const(Fraction() as v):
            yield v
        case Read(base, _, fill):
            if isinstance(fill, Fraction) and fill:
                yield fill
            if isinstance(base, Tensor) and base.values is not None:
                yield from islice(dict.fromkeys(base.values), _MOST_CONSTANTS)
    for child in children(body):
        yield from _numbers(child)
