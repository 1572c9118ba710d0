"""Products of several factors in the best order, two at a time: dynamic programming over sets of factors, as einsum libraries do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import NamedTuple

from einnet.expr.nodes import Scope, Tensor

MOST_FACTORS = 9

Names = frozenset[str]
"""Iterators; `k//4` and `k%4` are digits of k."""
NO_NAMES: Names = frozenset()


class Tie(NamedTuple):
    """Iterators that a condition or an index ties, and how many times fewer points that leaves of them; `equal` where it makes two of them equal, as
    they are or divided."""

    names: Names
    fewer: float
    equal: bool = False


@dataclass(frozen=True)
class Factor:
    """`names` are the iterators that it depends on; `base` is the tensor that is read, None where it is more than one read.

    `windows` are iterators that are added up in a dimension, with the number of places that they reach together.
    """

    names: Names
    weight: bool
    base: Tensor | Scope | None = None
    windows: frozenset[tuple[Names, int]] = frozenset()


@dataclass(frozen=True)
class Term:
    """A product, summed over iterators; `partly` are iterators along which it is there at some places only, as a part of a concatenation, as far as
    ranges tell. A window that leaves the box is none."""

    sums: Names = NO_NAMES
    factors: tuple[Factor, ...] = ()
    partly: Names = NO_NAMES
    ties: frozenset[Tie] = frozenset()

    def times(self, other: Term) -> Term:
        return Term(self.sums | other.sums, self.factors + other.factors, self.partly | other.partly, self.ties | other.ties)

    @property
    def whole(self) -> bool:
        """It is there at every point of the result."""
        return self.partly <= self.sums


def digit_of(name: str) -> str:
    """The iterator of which this is a digit, or which it is."""
    return name.partition("//")[0].partition("%")[0]


def closed(ties: Iterable[Tie]) -> frozenset[Tie]:
    """The ties, and those that follow: what equals the same is equal."""
    found = set(ties)
    while True:
        pairs = [(s, t) for s in found for t in found if s.equal and t.equal and len(s.names & t.names) == 1]
        known = {t.names for t in found}
        more = {Tie(s.names ^ t.names, min(s.fewer, t.fewer), equal=True) for s, t in pairs if s.names ^ t.names not in known}
        if not more:
            return frozenset(found)
        found |= more


def fewer(ties: Iterable[Tie]) -> float:
    """How many times fewer points some ties leave: of those that make iterators equal each that does not follow from others."""
    found, classes = 1.0, list[Names]()
    for tie in sorted(ties, key=lambda t: (not t.equal, -t.fewer, sorted(t.names))):
        met = [c for c in classes if c & tie.names]
        if tie.equal and any(tie.names <= c for c in met):
            continue
        if tie.equal:
            classes = [tie.names.union(*met), *(c for c in classes if c not in met)]
        found *= tie.fewer
    return found


def in_digits(term: Term, extents: Mapping[str, int]) -> tuple[Term, Mapping[str, int]]:
    """The term with both digits of an iterator for itself, where some factor depends on one digit of it; not where several numbers divide it."""
    sizes: dict[str, set[int]] = {}
    for name in NO_NAMES.union(*(f.names for f in term.factors)):
        if name != (whole := digit_of(name)):
            sizes.setdefault(whole, set()).add(int(name.removeprefix(whole).strip("/%")))
    both = {n: (f"{n}//{size}", f"{n}%{size}") for n, (size, *more) in sizes.items() if not more}
    if not both:
        return term, extents

    def exchanged(names: Names) -> Names:
        return NO_NAMES.union(*(both.get(n, (n,)) for n in names))

    factors = tuple(replace(f, names=exchanged(f.names), windows=frozenset((exchanged(w), places) for w, places in f.windows)) for f in term.factors)
    ties = frozenset(t._replace(names=exchanged(t.names)) for t in term.ties)
    dens = {n: next(iter(sizes[n])) for n in both}
    parts = {name: extent for n, den in dens.items() for name, extent in zip(both[n], (-(-extents[n] // den), min(extents[n], den)))}
    return replace(term, factors=factors, ties=ties), {**{n: e for n, e in extents.items() if n not in both}, **parts}


def with_one_weight(term: Term, extents: Mapping[str, int]) -> Term:
    """The term with the product of its weights, summed over what they alone depend on, in their place."""
    data, weights = (tuple(f for f in term.factors if f.weight == weight) for weight in (False, True))
    out = frozenset(x for x in extents if digit_of(x) not in term.sums)
    names = NO_NAMES.union(*(f.names for f in weights)) & out.union(*(f.names for f in data))
    return replace(term, factors=(*data, Factor(names, True))) if len(weights) > 1 else term


def ordered(term: Term, extents: Mapping[str, int]) -> float:
    """Operations of a product in the best order; inf for too many factors."""
    if not term.factors:
        return 0.0
    return inf if len(term.factors) > MOST_FACTORS else _Orders(term, extents).cost()


class _Orders:
    """Products of some factors of a term, each as a mask, and what the best order to make them takes."""

    def __init__(self, term: Term, extents: Mapping[str, int]) -> None:
        term, extents = in_digits(term, extents)
        self.factors, self.ties, self.extents = term.factors, closed(term.ties), extents
        self.full = (1 << len(term.factors)) - 1
        self.weights = sum(1 << k for k, f in enumerate(term.factors) if f.weight)
        self.names = [NO_NAMES] * (self.full + 1)
        for mask in range(1, self.full + 1):
            low = (mask & -mask).bit_length() - 1
            self.names[mask] = self.names[mask & (mask - 1)] | term.factors[low].names
        out = frozenset(x for x in extents if digit_of(x) not in term.sums)
        ends = [(t.names, sum(1 << k for k, f in enumerate(term.factors) if t.names <= f.names)) for t in term.ties]
        # a sum over one end of a tie comes after the tie
        kept = [out.union(*(tied for tied, within in ends if not within & m)) for m in range(self.full + 1)]
        self.needed = [self.names[m] & (kept[m] | self.names[self.full ^ m]) for m in range(self.full + 1)]
        self.sizes: dict[tuple[Names, int], float] = {}

    def cost(self) -> float:
        """Operations for all factors. A product of weights takes none, one factor those of the sums that it alone has."""
        cost = [0.0] * (self.full + 1)
        for mask in range(1, self.full + 1):
            if mask & ~self.weights == 0:
                continue
            if mask & (mask - 1) == 0:
                cost[mask] = self.size(self.names[mask], mask) if self.needed[mask] != self.names[mask] else 0.0
            else:
                cost[mask] = self.divided(mask, cost)
        return cost[self.full]

    def divided(self, mask: int, cost: Sequence[float]) -> float:
        """The least that a product of several factors takes as a product of two products."""
        best, part = inf, (mask - 1) & mask
        while part > mask ^ part:
            rest = mask ^ part
            apart = cost[part] + cost[rest]
            if apart < best:
                best = min(best, apart + 2.0 * self.size(self.needed[part] | self.needed[rest], mask))
            part = (part - 1) & mask
        return best

    def size(self, over: Names, mask: int) -> float:
        """Points of some iterators, as a product of the factors in the mask has them: windows that none of them opens are dimensions."""
        known = self.sizes.get((over, mask))
        if known is not None:
            return known
        points = prod(self.extents[x] for x in over) / fewer(t for t in self.ties if t.names <= over)
        inside = [f for k, f in enumerate(self.factors) if mask >> k & 1]
        for names, places in {w for f in inside for w in f.windows}:
            if names <= over and not any(names & f.names for f in inside if (names, places) not in f.windows):
                points *= min(places / prod(self.extents[x] for x in names), 1.0)
        self.sizes[over, mask] = points
        return points
