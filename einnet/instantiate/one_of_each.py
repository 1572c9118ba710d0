"""What is the same but for loops over one place, or is a part of it, is computed once."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from einnet.expr.index import Index, Range, in_range
from einnet.expr.nodes import Iter, Read, Scope, is_weight, map_reads, substitute_body
from einnet.instantiate.matching.types import Match
from einnet.instantiate.registry import TABLES

ANY = 1 << 40
"""The places of a loop of whatever range: more than one, as a loop over one place is as good as a number."""


def one_of_each(tree: Scope, matches: Mapping[Scope, Match]) -> tuple[Scope, dict[Scope, Match]]:
    """The tree in which of scopes that differ by loops over one place, their own or those of what they read, one stands for all: one that is matched
    where there is one; of reductions that differ by their ranges, one that has all of them; and the matches of these.

    Steps that leave such a loop out, or restrict a range, are taken where something is read; so what a model reads at several places may stand in a
    form in several ways, of which vendor operators are matched in one. {L[n<1,x] f}[0,x] = {L[x] f}[x], and {L[x<n] f}[x] = {L[x<m] f}[x] where
    x < n < m.
    """
    found = representatives(tree.parts, matches)
    if all(s is other for s, other in found.items()):
        return tree, dict(matches)
    one = _Found(found, matches)
    result = one.of(tree)
    return result, {one.of(s): one.matched(s) for s in matches}


def representatives(scopes: Sequence[Scope], matches: Container[Scope]) -> dict[Scope, Scope]:
    """For each of the scopes the one that stands for it, itself maybe."""
    alike: dict[str, Scope] = {}
    for s in sorted(scopes, key=lambda s: s not in matches):
        alike.setdefault(without_units(s).key, s)
    ranges: dict[str, list[Scope]] = {}
    for s in alike.values():
        if s.sums:
            ranges.setdefault(without_ranges(s).key, []).append(s)
    whole: dict[Scope, Scope] = {}
    for group in ranges.values():
        widest = next((s for s in group if all(_within(without_units(other).box, without_units(s).box) for other in group)), None)
        if widest is not None and (widest in matches or not any(s in matches for s in group)):
            whole |= dict.fromkeys(group, widest)
    first = {s: alike[without_units(s).key] for s in scopes}
    return {s: whole.get(one, one) for s, one in first.items()}


def _within(box: Sequence[Range], other: Sequence[Range]) -> bool:
    """A box is a part of another one."""
    return all(first <= lo and hi <= last for (lo, hi), (first, last) in zip(box, other, strict=True))


class _Found:
    """One scope for all that it stands for, and how operators read these."""

    def __init__(self, one: Mapping[Scope, Scope], matches: Mapping[Scope, Match]) -> None:
        self._one, self._matches = one, matches
        self._known: dict[Scope, Scope] = {}

    def of(self, s: Scope) -> Scope:
        """The scope that reads those that stand for others."""
        if s not in self._known:
            self._known[s] = replace(s, body=map_reads(s.body, lambda r: self._read(r, s)))
        return self._known[s]

    def matched(self, s: Scope) -> Match:
        """How an operator computes a scope: from what stands for its operands, of wider ranges only where it can."""
        match = self._matches[s]
        wider = any(isinstance(o, Scope) and self._wider(o) for o in match.operands)
        again = matched_again(match, self.of(s)) if wider else None
        return again or match.reading(tuple(self._operand(o) if isinstance(o, Scope) else o for o in match.operands))

    def _operand(self, s: Scope) -> Scope:
        return self.of(s if self._wider(s) else self._one.get(s, s))

    def _wider(self, s: Scope) -> bool:
        """What stands for a scope has other ranges, and so another layout."""
        return without_units(self._one.get(s, s)).box != without_units(s).box

    def _read(self, r: Read, reader: Scope) -> Read:
        if not isinstance(r.base, Scope) or is_weight(r):
            return r
        other, wide = self._one.get(r.base, r.base), self._wider(r.base)
        if other == r.base or not _inside(r, reader, wide):
            return replace(r, base=self.of(r.base))
        left = iter(ix for ix, i in zip(r.index, r.base.loops) if i.extent > 1)
        index = tuple(next(left) if i.extent > 1 else Index((), i.lo) for i in other.loops)
        return Read(self.of(other), index, r.fill)


def matched_again(match: Match, scope: Scope) -> Match | None:
    """The same operator for a scope that reads other ranges; None where it is none."""
    found = next((t.match(scope) for t in TABLES if t.name == match.table), None)
    return found if isinstance(found, Match) and type(found.kernel) is type(match.kernel) else None


@lru_cache(maxsize=1 << 14)
def without_units(s: Scope) -> Scope:
    """The scope without its loops over one place, and without those of what it reads where it reads them."""
    units = {i.name: Index((), i.lo) for i in s.loops if i.extent == 1}
    body = map_reads(s.body, lambda r: _without(r, s))
    return Scope(tuple(i for i in s.loops if i.extent > 1), s.sums, substitute_body(body, units), s.reduce)


def without_ranges(s: Scope) -> Scope:
    """The same whatever the ranges of the loops."""
    plain = without_units(s)
    return replace(plain, loops=tuple(Iter(i.name, 0, ANY) for i in plain.loops))


def _without(r: Read, reader: Scope) -> Read:
    if not isinstance(r.base, Scope) or is_weight(r) or not _inside(r, reader):
        return r
    return Read(without_units(r.base), tuple(ix for ix, i in zip(r.index, r.base.loops) if i.extent > 1), r.fill)


def _inside(r: Read, reader: Scope, everywhere: bool = False) -> bool:
    """What is read along loops over one place is that place; `everywhere`: along all loops a place within the range."""
    assert isinstance(r.base, Scope)
    return all(in_range(ix, i.range, reader.ranges) for ix, i in zip(r.index, r.base.loops) if everywhere or i.extent == 1)
