"""Which iterators of two scopes are taken for the same ones: what joining them begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from einnet.expr.index import Index
from einnet.expr.nodes import Iter, Read, Scope, is_weight, reads, used_names

Pairs = tuple[tuple[Iter, Iter], ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which iterators of two scopes become one. The loops in `own`, of the first and of the second scope, are laid end to end."""

    loops: Pairs
    sums: Pairs
    own: tuple[tuple[Iter, ...], tuple[Iter, ...]]


@lru_cache(maxsize=1 << 13)
def pairings(s: Scope, t: Scope) -> tuple[Pairing, ...]:
    """Ways to identify the iterators of two scopes: as a shared operand is read; and, where all are alike, one for one."""
    return tuple(_pairings(s, t))


def _pairings(s: Scope, t: Scope) -> Iterator[Pairing]:
    if s.reduce != t.reduce or sorted(i.extent for i in s.sums) != sorted(i.extent for i in t.sums):
        return
    seen: set[Pairing] = set()
    for a in dict.fromkeys(reads(s.body)):
        for b in dict.fromkeys(reads(t.body)):
            names = renaming(a, b, s, t) if (a.base, a.fill) == (b.base, b.fill) else None
            pairing = _completed(s, t, names) if names else None
            if pairing and pairing not in seen and any(pairing.own):
                seen.add(pairing)
                yield pairing
    alike = _one_for_one(s, t)
    if alike and not seen:
        yield alike


def renaming(a: Read, b: Read, s: Scope, t: Scope) -> dict[str, str] | None:
    """The iterators of t for those of s with which two reads of one tensor are the same read."""
    names: dict[str, str] = {}
    for x, y in zip(a.index, b.index, strict=True):
        if (x.const, x.den, len(x.terms)) != (y.const, y.den, len(y.terms)):
            return None
        for (i, c), (j, d) in zip(_ordered(x, s), _ordered(y, t), strict=True):
            if c != d or not isinstance(i, str) or not isinstance(j, str) or names.setdefault(i, j) != j:
                return None
            if s.ranges[i] != t.ranges[j] or (i in _names(s.sums)) != (j in _names(t.sums)):
                return None
    return names if len(set(names.values())) == len(names) else None


def _ordered(ix: Index, scope: Scope) -> list[tuple[object, int]]:
    """Terms in the order of the scope's loops and sums."""
    place = {i.name: n for n, i in enumerate((*scope.loops, *scope.sums))}
    return sorted(ix.terms, key=lambda term: place.get(str(term[0]), len(place)))


def _names(iters: Sequence[Iter]) -> set[str]:
    return {i.name for i in iters}


def _completed(s: Scope, t: Scope, names: Mapping[str, str]) -> Pairing | None:
    """The pairing in which the loops that the shared operand does not have are laid end to end."""
    back = {j: i for i, j in names.items()}
    own = tuple(i for i in s.loops if i.name not in names), tuple(j for j in t.loops if j.name not in back)
    rest = [j for j in t.sums if j.name not in back]
    sums: list[tuple[Iter, Iter]] = []
    for i in (i for i in s.sums if i.name not in names):
        other = next((j for j in rest if j.range == i.range), None)
        if other is None:
            return None
        rest.remove(other)
        sums.append((i, other))
    return None if rest else Pairing(_renamed(s.loops, t.loops, names), (*_renamed(s.sums, t.sums, names), *sums), own)


def _renamed(first: Sequence[Iter], second: Sequence[Iter], names: Mapping[str, str]) -> Pairs:
    """The iterators that have another name, with those that bear it."""
    by_name = {j.name: j for j in second}
    return tuple((i, by_name[names[i.name]]) for i in first if i.name in names)


def _one_for_one(s: Scope, t: Scope) -> Pairing | None:
    """Every iterator with one of the same range that stands in as many operands of the same kind; one loop each may be left over."""
    sums = _matched(s, t, s.sums, t.sums)
    loops = _matched(s, t, s.loops, t.loops)
    own = tuple(i for i in s.loops if i not in [a for a, _ in loops]), tuple(j for j in t.loops if j not in [b for _, b in loops])
    fits = len(sums) == len(s.sums) == len(t.sums) and len(own[0]) == len(own[1]) <= 1
    return Pairing(loops, sums, own) if fits else None


def _matched(s: Scope, t: Scope, first: Sequence[Iter], second: Sequence[Iter]) -> Pairs:
    left = list(second)
    pairs: list[tuple[Iter, Iter]] = []
    for i in first:
        other = next((j for j in left if j.range == i.range and _membership(i, s) == _membership(j, t)), None)
        if other is not None:
            left.remove(other)
            pairs.append((i, other))
    return tuple(pairs)


def _membership(i: Iter, scope: Scope) -> list[bool]:
    """Of the operands that have the iterator, which are known at compile time."""
    return sorted(is_weight(r) for r in reads(scope.body) if i.name in used_names(r))
