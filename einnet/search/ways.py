"""Ways through the graph of groups: the cheapest of every kind, found without building one of them.

Alternatives add up because a way is a pointer to a base and to ways of the groups that the base opens; an expression is made of it at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, groupby, islice, takewhile, tee
from math import inf
from operator import attrgetter

from einnet.expr.nodes import Scope
from einnet.search.forms import Form, after, substitute_child
from einnet.search.groups import Base, Group, Kind, Member


class Way:
    """A base of a member of a group, and a way for each of its openings. What most ways are never asked for is computed when they are."""

    __slots__ = ("_key", "_kind", "_structure", "base", "cost", "group", "inner", "member")

    def __init__(self, group: Group, member: Member, base: Base, inner: tuple[Way, ...], cost: int) -> None:
        self.group, self.member, self.base, self.inner, self.cost = group, member, base, inner, cost
        self._key = "" if inner else base.form.key
        self._structure = None if inner else base.structure
        self._kind = None if inner else base.kind

    @property
    def key(self) -> str:
        """Equal for equal ways, whatever led to the member."""
        if not self._key:
            self._key = hashlib.blake2b("".join([self.base.form.key, *[w.key for w in self.inner]]).encode(), digest_size=16).hexdigest()
        return self._key

    @property
    def structure(self) -> tuple[str, ...]:
        """What is computed, without what is read."""
        if self._structure is None:
            self._structure = tuple(sorted([*self.base.structure, *[part for w in self.inner for part in w.structure]]))
        return self._structure

    @property
    def kind(self) -> Kind:
        """What its operators must share with others to be joined."""
        if self._kind is None:
            self._kind = tuple(sorted([*self.base.kind, *[part for w in self.inner for part in w.kind]]))
        return self._kind


_cost, _key = attrgetter("cost"), attrgetter("key")

LOOKED_AT = 256
"""Ways of a tensor in which those are looked for that can be joined with others."""

MOST_DEAR = 512
"""Choices of ways that cost more than what is joined of them could save beside the best way: of a small search all, of a large one a part."""

Combine = Callable[[Base, Mapping[Scope, Form]], Iterable[Base]]


class Ways:
    """The best few ways of groups: a group hands `most` to its readers, at most `few` of one structure. `only` says which bases count.

    `combine` gives further bases, with nothing left open, for a base and forms of one kind for its openings, two openings at least; none where it
    is `late`, none of what costs more than `most_apart` apart, and of what costs more than `limit` the first `MOST_DEAR` alone.
    """

    def __init__(
        self, most: int, few: int, only: Callable[[Base], bool] = lambda base: True, combine: Combine | None = None,
        late: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.most, self.few, self._only, self._combine, self._late = most, few, only, combine, late
        self.limit, self.most_apart = inf, inf
        self._dear = 0
        self._known: dict[tuple[int, int], list[Way]] = {}
        self._hasty: dict[tuple[int, int], list[Way]] = {}
        self._states: dict[tuple[Group, int], int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._built: dict[tuple[Group, str], Form] = {}
        self._combined: dict[tuple[str, ...], list[Base]] = {}

    def of(self, group: Group, left: int, most: int | None = None) -> list[Way]:
        """The ways that derivations of at most `left` explorative steps reach: a few of every structure, cheapest first."""
        key = self._state(group, left), self.most if most is None else most
        found = self._known.get(key) or self._hasty.get(key)
        if found is None:
            found = self._best(list(self._of_group(group, left, key[1])), key[1])
            (self._hasty if self._late() else self._known)[key] = found
        return found

    def _state(self, group: Group, left: int) -> int:
        """A number for all that the ways of a group depend on: a group that has not grown, nor what it reads, has the ways that it had."""
        found = self._states.get((group, left))
        if found is None:
            counts = [sum(1 for m in level if m.bases) for level in group.levels[: left + 1]]
            while counts and not counts[-1]:
                counts.pop()
            opened = dict.fromkeys((o.group, m.depth) for m in group.within(left) for b in filter(self._only, m.bases) for o in b.openings)
            inner = (self._state(g, left - depth) for g, depth in opened)
            found = self._states[group, left] = self._numbers.setdefault((group, *counts, None, *inner), len(self._numbers))
        return found

    def _of_group(self, group: Group, left: int, most: int) -> Iterator[Ranked]:
        """The ways of all members: of every base its own, the cheapest first, and each that is made of several."""
        for member in group.within(left):
            for base in filter(self._only, member.bases):
                yield from self._of_base(group, member, base, left - member.depth, most)

    def _best(self, ranked: Sequence[Ranked], most: int) -> list[Way]:
        """Half of them the cheapest, half the best of every base, then the second best: what is cheap here may not be where it is read.

        Beside them, of the `LOOKED_AT` first in both orders, the first of every kind of operators that could be joined.
        """
        kept: dict[str, Way] = {}
        seen: dict[tuple[str, ...], int] = {}
        costs, costs_again = tee(by_cost(ranked))
        places, places_again = tee(by_place(ranked))
        for end, order in ((most - most // 2, costs), (most, places)):
            for way in order:
                if len(kept) >= end:
                    break
                if way.key not in kept and seen.get(way.structure, 0) < self.few:
                    seen[way.structure] = seen.get(way.structure, 0) + 1
                    kept[way.key] = way
        kinds = {w.kind for w in kept.values()}
        for order in (costs_again, places_again) if self._combine else ():
            for way in islice(order, LOOKED_AT):
                if way.kind and way.kind not in kinds:
                    kinds.add(way.kind)
                    kept[way.key] = way
        return list(_sorted(kept.values()))

    def forget(self) -> None:
        """Groups have changed at depths that were asked for: what they depend on is to be looked at anew, and what was found too late to combine."""
        self._states.clear()
        self._hasty.clear()

    def form(self, way: Way) -> Form:
        """The expression that a way stands for, with its derivation from the group's scope."""
        found = self._built.get((way.group, way.key))
        if found is None:
            found = way.base.form
            for opening, inner in zip(way.base.openings, way.inner):
                found = substitute_child(found, opening.scope, self.form(inner))
            found = self._built[way.group, way.key] = after(way.member.steps, way.group.scope, found)
        return found

    def _of_base(self, group: Group, member: Member, base: Base, left: int, most: int) -> Iterator[Ranked]:
        """The cheapest combinations of a base with ways of its openings, `most` of them, and each of those that `combine` adds."""
        if not base.openings:
            yield Ranked((Way(group, member, base, (), base.cost),))
            return
        lists = [self.of(o.group, left) for o in base.openings]
        yield Ranked(_combinations(group, member, base, lists, most))
        if self._combine and len(lists) > 1 and not self._late():
            for chosen in alike(lists):
                for b in self._together(base, chosen, self._combine):
                    yield Ranked((Way(group, member, b, (), b.cost),))

    def _together(self, base: Base, chosen: Sequence[Way], combine: Combine) -> list[Base]:
        """What `combine` makes of the base and these ways, once."""
        key = (base.form.key, *(w.key for w in chosen))
        found = self._combined.get(key)
        if found is None:
            apart = base.cost + sum(w.cost for w in chosen)
            if apart > self.limit and (apart > self.most_apart or self._dear >= MOST_DEAR):
                return []
            self._dear += apart > self.limit
            made = combine(base, {o.scope: self.form(w) for o, w in zip(base.openings, chosen)})
            found = list(takewhile(lambda _: not self._late(), made))
            if not self._late():
                self._combined[key] = found
        return found


def alike(lists: Sequence[Sequence[Way]]) -> Iterator[tuple[Way, ...]]:
    """Ways of one kind, one from each list: of every kind that all lists have the first, which is the cheapest; none is built for that."""
    first = [_first_of_kinds(found) for found in lists]
    for kind in first[0]:
        if kind and all(kind in f for f in first):
            yield tuple(f[kind] for f in first)


def _first_of_kinds(ways: Iterable[Way]) -> dict[Kind, Way]:
    found: dict[Kind, Way] = {}
    for way in ways:
        found.setdefault(way.kind, way)
    return found


class Ranked:
    """Ways of one base, the cheapest first, each made when its place is asked for."""

    def __init__(self, ways: Iterable[Way]) -> None:
        self._following, self._made = iter(ways), list[Way]()

    def at(self, place: int) -> Way | None:
        """The way at a place; None beyond the last one."""
        while len(self._made) <= place:
            following = next(self._following, None)
            if following is None:
                return None
            self._made.append(following)
        return self._made[place]


def _combinations(group: Group, member: Member, base: Base, lists: Sequence[Sequence[Way]], most: int) -> Iterator[Way]:
    """A base with a way from each list, the cheapest first."""
    costs = [[w.cost - (0 if o.fed else w.base.spare) for w in found] for o, found in zip(base.openings, lists)]
    if len(lists) == 1:
        (own,), (found,) = costs, lists
        for n in sorted(range(len(own)), key=own.__getitem__)[:most]:
            yield Way(group, member, base, (found[n],), base.cost + own[n])
        return
    for places in cheapest(costs, most):
        inner = tuple(found[n] for found, n in zip(lists, places))
        yield Way(group, member, base, inner, base.cost + sum(c[n] for c, n in zip(costs, places)))


def by_cost(ranked: Sequence[Ranked]) -> Iterator[Way]:
    """All ways, the cheapest first, those that cost the same by their keys: so the order is one of content, not of discovery. No other is made."""
    heap = [(way.cost, n, 0, way) for n, r in enumerate(ranked) if (way := r.at(0)) is not None]
    heapify(heap)
    while heap:
        cost, alike = heap[0][0], list[Way]()
        while heap and heap[0][0] == cost:
            _, n, place, way = heap[0]
            alike.append(way)
            following = ranked[n].at(place + 1)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following.cost, n, place + 1, following))
        yield from sorted(alike, key=_key) if len(alike) > 1 else alike


def by_place(ranked: Sequence[Ranked]) -> Iterator[Way]:
    """The best way of every base, the cheapest first, then the second best of every base, and so on."""
    left = ranked
    for place in count():
        found = [(r, way) for r in left if (way := r.at(place)) is not None]
        if not found:
            return
        left = [r for r, _ in found]
        yield from _sorted([way for _, way in found])


def _sorted(ways: Iterable[Way]) -> Iterator[Way]:
    """The ways by their cost, those that cost the same by their keys."""
    for _, same in groupby(sorted(ways, key=_cost), key=_cost):
        alike = list(same)
        yield from sorted(alike, key=_key) if len(alike) > 1 else alike


def cheapest(costs: Sequence[Sequence[int]], most: int) -> Iterator[tuple[int, ...]]:
    """Places in some lists of numbers, one in each, by their sum: the `most` least sums, each from the ones before (lazy k-best)."""
    orders = [sorted(range(len(c)), key=c.__getitem__) for c in costs]
    if not all(orders):
        return
    first = (0,) * len(costs)
    heap = [(sum(c[o[0]] for c, o in zip(costs, orders)), first)]
    seen = {first}
    for _ in range(most):
        if not heap:
            return
        total, at = heappop(heap)
        yield tuple(o[n] for o, n in zip(orders, at))
        for axis, (c, o) in enumerate(zip(costs, orders)):
            n = at[axis] + 1
            new = (*at[:axis], n, *at[axis + 1 :])
            if n < len(o) and new not in seen:
                seen.add(new)
                heappush(heap, (total + c[o[n]] - c[o[n - 1]], new))
