"""What is the same but for loops over one place is computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from einnet.expr.index import Index, in_range
from einnet.expr.nodes import Read, Scope, is_weight, map_reads, substitute_body
from einnet.instantiate.matching.types import Match


def one_of_each(tree: Scope, matches: Mapping[Scope, Match]) -> tuple[Scope, dict[Scope, Match]]:
    """The tree in which of scopes that differ by loops over one place, their own or those of what they read, one stands for all: one that is matched
    where there is one; and the matches of these.

    Steps that leave such a loop out are taken where something is read; so what a model reads at several places may stand in a form in several ways,
    of which vendor operators are matched in one. All are laid out alike, {L[n<1,x] f}[0,x] = {L[x] f}[x].
    """
    alike: dict[str, Scope] = {}
    for s in sorted(tree.parts, key=lambda s: s not in matches):
        alike.setdefault(without_units(s).key, s)
    if len(alike) == len(tree.parts):
        return tree, dict(matches)
    found = _Found(alike)
    read = {s: tuple(found.stood_for(o) if isinstance(o, Scope) else o for o in m.operands) for s, m in matches.items()}
    return found.of(tree), {found.of(s): m.reading(read[s]) for s, m in matches.items()}


class _Found:
    """One scope for all that are alike, by the key that these have."""

    def __init__(self, alike: Mapping[str, Scope]) -> None:
        self._alike = alike
        self._known: dict[Scope, Scope] = {}

    def stood_for(self, s: Scope) -> Scope:
        """The one that stands for a scope."""
        return s if is_weight(s) else self.of(self._alike[without_units(s).key])

    def of(self, s: Scope) -> Scope:
        """The scope that reads those that stand for others."""
        if s not in self._known:
            self._known[s] = replace(s, body=map_reads(s.body, lambda r: self._read(r, s)))
        return self._known[s]

    def _read(self, r: Read, reader: Scope) -> Read:
        if not isinstance(r.base, Scope) or is_weight(r):
            return r
        other = self._alike[without_units(r.base).key]
        if other == r.base or not _inside(r, reader):
            return replace(r, base=self.of(r.base))
        left = iter(ix for ix, i in zip(r.index, r.base.loops) if i.extent > 1)
        index = tuple(next(left) if i.extent > 1 else Index((), i.lo) for i in other.loops)
        return Read(self.of(other), index, r.fill)


@lru_cache(maxsize=1 << 14)
def without_units(s: Scope) -> Scope:
    """The scope without its loops over one place, and without those of what it reads where it reads them."""
    units = {i.name: Index((), i.lo) for i in s.loops if i.extent == 1}
    body = map_reads(s.body, lambda r: _without(r, s))
    return Scope(tuple(i for i in s.loops if i.extent > 1), s.sums, substitute_body(body, units), s.reduce)


def _without(r: Read, reader: Scope) -> Read:
    if not isinstance(r.base, Scope) or is_weight(r) or not _inside(r, reader):
        return r
    return Read(without_units(r.base), tuple(ix for ix, i in zip(r.index, r.base.loops) if i.extent > 1), r.fill)


def _inside(r: Read, reader: Scope) -> bool:
    """What is read along loops over one place is that place."""
    assert isinstance(r.base, Scope)
    return all(in_range(ix, i.range, reader.ranges) for ix, i in zip(r.index, r.base.loops) if i.extent == 1)
