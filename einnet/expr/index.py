"""Quasi-affine index functions in a normal form, and exact interval arithmetic on them.

An `Index` is `(sum of coefficient * atom + const) / den`; an atom is an iterator's name or a floor division `Floor(num, den)` of such a
form. There is no separate `%`: `e % d` is `e - d*(e // d)`, so that `2*(h//2) + h%2` is `h` by plain addition. `den > 1` is the exact division of
the language: a read at a fractional index is a read outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import NamedTuple

Range = tuple[int, int]
"""Half-open range [lo, hi) of an iterator's values."""


class Floor(NamedTuple):
    """floor(num / den), den > 1. Built by `floor_div`, which normalises."""

    num: Index
    den: int


Atom = str | Floor


class Index(NamedTuple):
    """(Σ terms + const) / den in lowest terms; `terms` sorted by atom, no zero coefficient."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0
    den: int = 1

    def __add__(self, other: Index | int) -> Index:  # type: ignore[override]
        if type(other) is int:
            return Index(self.terms, self.const + other * self.den, self.den)
        return combine((self, 1), (as_index(other), 1))

    def __radd__(self, other: int) -> Index:
        return self + other

    def __sub__(self, other: Index | int) -> Index:
        if type(other) is int:
            return Index(self.terms, self.const - other * self.den, self.den)
        return combine((self, 1), (as_index(other), -1))

    def __rsub__(self, other: Index | int) -> Index:
        return combine((as_index(other), 1), (self, -1))

    def __mul__(self, factor: int) -> Index:  # type: ignore[override]
        return combine((self, factor))

    def __rmul__(self, factor: int) -> Index:  # type: ignore[override]
        return self * factor

    def __neg__(self) -> Index:
        return combine((self, -1))

    def __floordiv__(self, divisor: int) -> Index:
        return floor_div(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return self - divisor * floor_div(self, divisor)

    def __truediv__(self, divisor: int) -> Index:
        """Exact division: fractional values stand for "outside"."""
        if divisor < 0:
            return (-self) / -divisor
        return _lowest(self.terms, self.const, self.den * divisor)

    def coefficient(self, name: Atom) -> int:
        """The coefficient of an atom in the numerator, 0 if absent."""
        for atom, c in self.terms:
            if atom == name:
                return c
        return 0

    def names(self) -> frozenset[str]:
        """All iterators that occur, inside floor divisions too."""
        return _all_names(self.terms) if self.terms else NO_NAMES

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """No floor division and no exact division."""
        return self.den == 1 and all(isinstance(a, str) for a, _ in self.terms)


@lru_cache(maxsize=1 << 12)
def var(name: str) -> Index:
    """The index function of one iterator."""
    return Index(((name, 1),))


def as_index(value: Index | int | str) -> Index:
    """An integer, a name or an index as an index."""
    if isinstance(value, Index):
        return value
    return var(value) if isinstance(value, str) else Index((), value)


ZERO = Index()
NO_NAMES = frozenset[str]()


@lru_cache(maxsize=1 << 15)
def _all_names(terms: tuple[tuple[Atom, int], ...]) -> frozenset[str]:
    return frozenset(_names(Index(terms)))


def _names(e: Index) -> Iterator[str]:
    for atom, _ in e.terms:
        if isinstance(atom, str):
            yield atom
        else:
            yield from _names(atom.num)


def atom_key(atom: Atom) -> tuple[object, ...]:
    """A total order on atoms: names first, then floor divisions by their content."""
    if isinstance(atom, str):
        return (0, atom)
    return (1, atom.den, atom.num.const, atom.num.den, tuple((atom_key(a), c) for a, c in atom.num.terms))


def _lowest(terms: tuple[tuple[Atom, int], ...], const: int, den: int) -> Index:
    if den == 1:
        return Index(terms, const)
    g = gcd(den, const, *(c for _, c in terms))
    if g > 1:
        return Index(tuple((a, c // g) for a, c in terms), const // g, den // g)
    return Index(terms, const, den)


def combine(*parts: tuple[Index, int]) -> Index:
    """Σ factor * index."""
    den = 1
    for (_, _, own), _ in parts:
        if own != 1:
            den = den * own // gcd(den, own)
    acc: dict[Atom, int] = {}
    const = 0
    for (terms, offset, own), factor in parts:
        f = factor * (den // own)
        if f:
            const += f * offset
            for a, c in terms:
                acc[a] = acc.get(a, 0) + f * c
    items = [item for item in acc.items() if item[1]]
    if len(items) > 1:
        _sort(items)
    return Index(tuple(items), const) if den == 1 else _lowest(tuple(items), const, den)


def _sort(items: list[tuple[Atom, int]]) -> None:
    """By atom, each of which is there once."""
    for atom, _ in items:
        if type(atom) is not str:
            items.sort(key=lambda item: atom_key(item[0]))
            return
    items.sort()


def floor_div(e: Index, d: int) -> Index:
    """floor(e / d) in normal form: whole multiples of d leave the division, common factors and nested floors are folded."""
    if d == 0:
        raise ZeroDivisionError("floor division of an index by 0")
    if d < 0:
        return floor_div(-e, -d)
    if e.den != 1:
        d, e = d * e.den, Index(e.terms, e.const)
    if d == 1:
        return e
    outside = [(a, c // d) for a, c in e.terms if c // d]
    inside = [(a, c % d) for a, c in e.terms if c % d]
    whole, rest = divmod(e.const, d)
    result = Index(tuple(outside), whole)
    if not inside:
        return result
    g = gcd(d, *(c for _, c in inside))
    if g > 1:
        d, rest = d // g, rest // g
        inside = [(a, c // g) for a, c in inside]
        if d == 1:
            return combine((result, 1), (Index(tuple(inside), rest), 1))
    if len(inside) == 1 and inside[0][1] == 1 and isinstance(inside[0][0], Floor):
        inner = inside[0][0]
        return combine((result, 1), (floor_div(inner.num + rest * inner.den, inner.den * d), 1))
    return combine((result, 1), (Index(((Floor(Index(tuple(inside), rest), d), 1),)), 1))


def map_atoms(e: Index, f: Callable[[str], Index]) -> Index:
    """Replace every iterator by an index."""
    parts = [(f(a) if isinstance(a, str) else floor_div(map_atoms(a.num, f), a.den), c) for a, c in e.terms]
    found = combine(*parts, (Index((), e.const), 1))
    return found if e.den == 1 else found / e.den


def substitute(e: Index, mapping: Mapping[str, Index]) -> Index:
    """Replace the iterators that `mapping` names."""
    if e.terms and not mapping.keys().isdisjoint(_all_names(e.terms)):
        return map_atoms(e, lambda name: mapping[name] if name in mapping else var(name))
    return e


class Modulo(NamedTuple):
    """factor * (num % den) + quotient * (num // den)."""

    factor: int
    num: Index
    den: int
    quotient: int


def moduli(e: Index) -> tuple[list[Modulo], Index]:
    """Split e (den 1) into remainders `num % den` with their quotients, and a rest."""
    found: list[Modulo] = []
    rest = e
    for atom, c in e.terms:
        if isinstance(atom, str) or not atom.num.terms:
            continue
        name, unit = atom.num.terms[0]
        factor, odd = divmod(rest.coefficient(name), unit)
        if odd or factor * c >= 0:
            continue
        candidate = combine((rest, 1), (atom.num, -factor), (Index(((atom, 1),)), -c))
        if len(candidate.terms) == len(rest.terms) - 1 - len(atom.num.terms):
            found.append(Modulo(factor, atom.num, atom.den, c + factor * atom.den))
            rest = candidate
    return found, rest


def bounds(e: Index, ranges: Mapping[str, Range]) -> tuple[int, int]:
    """Least and greatest integer value (both inclusive) over the box; an enclosure, exact for affine e with den 1.

    Raises KeyError for an iterator without a range.
    """
    lo, hi = _plain_bounds(e, ranges)
    if e.den == 1 and len(e.terms) > 1 and not _plain(e.terms):
        found, rest = moduli(e)
        low, high = _plain_bounds(rest, ranges)
        for factor, num, d, quotient in found:
            a, b = bounds(num, ranges)
            q, p = a // d, b // d
            m, n = (a % d, b % d) if q == p else (0, d - 1)
            low += min(factor * m, factor * n) + min(quotient * q, quotient * p)
            high += max(factor * m, factor * n) + max(quotient * q, quotient * p)
        return max(lo, low), min(hi, high)
    return lo, hi


def denominators(e: Index, name: str) -> list[int]:
    """By what an iterator that stands alone is divided, in whole numbers, in the terms of an index."""
    return [atom.den for atom, _ in e.terms if isinstance(atom, Floor) and atom.num == var(name)]


def in_range(e: Index, box: Range, ranges: Mapping[str, Range]) -> bool:
    """e is an integer in [lo, hi) over the whole box of iterators."""
    if e.den != 1:
        return False
    lo, hi = bounds(e, ranges)
    return box[0] <= lo and hi < box[1]


def _plain(terms: tuple[tuple[Atom, int], ...]) -> bool:
    """There are iterators only."""
    return all(type(atom) is str for atom, _ in terms)


def _plain_bounds(e: Index, ranges: Mapping[str, Range]) -> tuple[int, int]:
    lo = hi = e.const
    for atom, c in e.terms:
        if isinstance(atom, str):
            a, b = ranges[atom]
            b -= 1
        else:
            a, b = bounds(atom.num, ranges)
            a, b = a // atom.den, b // atom.den
        if c > 0:
            lo, hi = lo + c * a, hi + c * b
        else:
            lo, hi = lo + c * b, hi + c * a
    if e.den != 1:
        lo, hi = -((-lo) // e.den), hi // e.den
    return lo, hi


def simplify(e: Index, ranges: Mapping[str, Range]) -> Index:
    """Evaluate floor divisions that are constant over the box, and drop unit iterators."""
    for atom, _ in e.terms:
        if type(atom) is not str:
            break
        a, b = ranges[atom]
        if b - a == 1:
            break
    else:
        return e
    changed: list[tuple[Index, int]] = []
    touched = False
    for atom, c in e.terms:
        if isinstance(atom, str):
            lo, hi = ranges[atom]
            if hi - lo == 1:
                changed.append((Index((), lo), c))
                touched = True
                continue
            changed.append((var(atom), c))
            continue
        num = simplify(atom.num, ranges)
        lo, hi = bounds(num, ranges)
        if lo // atom.den == hi // atom.den:
            new = Index((), lo // atom.den)
        else:
            new = _split_floor(num, atom.den, ranges)
        touched = touched or new != Index(((atom, 1),))
        changed.append((new, c))
    return combine(*changed, (Index((), e.const), 1)) / e.den if touched else e


def _split_floor(num: Index, den: int, ranges: Mapping[str, Range]) -> Index:
    """floor(num/den), where `num = g*whole + part` with 0 <= part < g and g | den lets the part be dropped."""
    for g in sorted({gcd(c, den) for _, c in num.terms} - {1}, reverse=True):
        whole = Index(tuple((a, c) for a, c in num.terms if c % g == 0))
        part = Index(tuple((a, c) for a, c in num.terms if c % g), num.const)
        if whole.terms and part.terms:
            lo, hi = bounds(part, ranges)
            if lo // g == hi // g:
                return floor_div(Index(whole.terms, (lo // g) * g), den)
    return floor_div(num, den)


def value(e: Index, point: Mapping[str, int]) -> Fraction:
    """The exact value at a point."""
    total = e.const
    for atom, c in e.terms:
        if isinstance(atom, str):
            total += c * point[atom]
        else:
            v = value(atom.num, point) / atom.den
            total += c * (v.numerator // v.denominator)
    return Fraction(total, e.den)


def affine_parts(e: Index) -> tuple[dict[str, int], int] | None:
    """Coefficients by iterator and the constant, or None if e is not affine."""
    if not e.is_affine:
        return None
    return {a: c for a, c in e.terms if isinstance(a, str)}, e.const
