"""What contractions could take at best if they were one expression: whether it pays to look at them together.

An expression is read as sums of products: nested sums are opened where they stand in a linear position, and what functions of it are taken of stays
closed. A product takes what its factors take in the best order, two at a time (`graph.orders`); products of weights are free. It is an estimate to
cut programs by: nothing is derived, index functions count by the iterators that they use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import inf, prod

from einnet.expr.index import Floor, Index, Range, bounds, moduli
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    index_functions,
    is_weight,
    reads,
    used_names,
    walk,
)
from einnet.graph.orders import NO_NAMES, Factor, Names, Term, Tie, digit_of, ordered, with_one_weight

MOST_TERMS = 24

Bases = tuple[list[Tensor | Scope], list[Tensor | Scope]]
"""The tensors of data and of weights that a term reads."""

TRIANGLE = 1.5
"""How many times fewer points blocks of a triangle have than the whole."""


@dataclass
class Expansion:
    """The products of a scope; `closed` are the scopes that functions are taken of."""

    scope: Scope
    extents: dict[str, int] = field(default_factory=dict)
    closed: dict[Scope, None] = field(default_factory=dict)

    @cached_property
    def terms(self) -> list[Term]:
        """None of them is opened beyond `MOST_TERMS`."""
        own = {i.name: self._named(i.name, i.extent) for i in self.scope.loops}
        return self._of_scope(self.scope, own) if self.scope.reduce == "sum" else self._closed(self.scope.body, {**own, **self._sums(self.scope)})

    @property
    def linear(self) -> Iterator[Factor]:
        """The factors that sums can pass, in closed scopes too."""
        yield from (f for t in self.terms for f in t.factors if f.base is not None)
        for s in self.closed:
            yield from Expansion(s).linear

    def _named(self, name: str, extent: int) -> Names:
        if extent == 1:
            return NO_NAMES
        own = f"{name}#{len(self.extents)}"
        self.extents[own] = extent
        return frozenset((own,))

    def _sums(self, s: Scope) -> dict[str, Names]:
        return {i.name: self._named(i.name, i.extent) for i in s.sums}

    def _of_scope(self, s: Scope, loops: Mapping[str, Names]) -> list[Term]:
        sums = self._sums(s)
        over = NO_NAMES.union(*sums.values())
        return [replace(t, sums=t.sums | over) for t in self._open(s.body, {**loops, **sums}, s)]

    def _open(self, body: Body, env: Mapping[str, Names], s: Scope) -> list[Term]:
        """The products that a body is the sum of; itself, where they are none or many."""
        found = self._products(body, env, s)
        return found if 0 < len(found) <= MOST_TERMS else self._closed(body, env)

    def _products(self, body: Body, env: Mapping[str, Names], s: Scope) -> list[Term]:
        found: list[Term] = []
        match body:
            case Const() | Val():
                found = [Term()]
            case Read(Tensor() as base, index, _):
                found = [self._read(base, index, env, s.ranges)]
            case Read(Scope() as base, index, _) if base.reduce == "sum" and (not is_weight(base) or isinstance(base.body, Select)):
                found = self._inside(base, index, env, s)
            case Add(args):
                found = [t for a in args for t in self._open(a, env, s)]
            case Mul(args):
                found = [Term()]
                for a in args:
                    found = [left.times(right) for right in self._open(a, env, s) for left in found]
            case Div(num, den):
                (below,) = self._closed(den, env)
                found = [t.times(below) for t in self._open(num, env, s)]
            case Select():
                found = self._chosen(body, env, s)
            case Call("exp", (power,)):
                found = self._power(power, env, s)
        return found

    def _chosen(self, body: Select, env: Mapping[str, Names], s: Scope) -> list[Term]:
        """The products of a region outside which there is nothing; and of both sides of one condition, each of which is there in part."""
        if body.other == Const(Fraction(0)):
            also = self._ties(body.conds, env)
            return [replace(t, ties=t.ties | also) for t in self._open(body.then, env, s)] if also else []
        if len(body.conds) > 1 or body.conds[0].equal or body.conds[0].index.den != 1:
            return []
        ix = body.conds[0].index
        along, sides = NO_NAMES.union(*(env[n] for n in ix.names())), zip((body.then, body.other), _shares(ix, s.ranges))
        parts = ((t, {Tie(along, 1.0 / share)} if share < 1.0 else set()) for side, share in sides if share for t in self._open(side, env, s))
        return [replace(t, partly=t.partly | along, ties=t.ties | tie) for t, tie in parts]

    def _ties(self, conds: Iterable[Cond], env: Mapping[str, Names]) -> frozenset[Tie]:
        """What conditions tie."""
        return frozenset(pair for c in conds if (pair := self._tied(c, env)))

    def _power(self, power: Body, env: Mapping[str, Names], s: Scope) -> list[Term]:
        """exp(x[t] + y[s]) where t and s are ordered, and 0 elsewhere, as the product of exp(x[t]) and exp(y[s]); nothing for any other exponent.

        Recurrences decay so: it is no obstacle to sums over s.
        """
        if isinstance(power, Read) and isinstance(power.base, Scope) and not power.base.sums:
            around = {i.name: NO_NAMES.union(*(env[n] for n in ix.names())) for i, ix in zip(power.base.loops, power.index)}
            return self._power(power.base.body, around, power.base)
        if not isinstance(power, Select) or power.other != Const(-inf):
            return []
        tied = self._ties(power.conds, env)
        opened = self._open(power.then, env, s)
        parts = {NO_NAMES.union(*(f.names for f in t.factors), *(tie.names for tie in t.ties)) - t.sums for t in opened}
        if not tied or any(tie.names <= part for tie in tied for part in parts):
            return []
        self._closed(power.then, env)
        return [Term(factors=tuple(Factor(part, False) for part in sorted(parts, key=sorted)), ties=tied)]

    def _inside(self, base: Scope, index: Sequence[Index], env: Mapping[str, Names], s: Scope) -> list[Term]:
        """The products of a sum that is read at index functions of the scope s."""
        loops = {i.name: NO_NAMES.union(*(env[n] for n in ix.names())) for i, ix in zip(base.loops, index)}
        sums = {i.name for i in s.sums}
        placed = [(ix, bounds(ix, s.ranges), side) for ix, side in zip(index, base.box) if len(ix.names()) == 1 or not ix.names() & sums]
        partly = NO_NAMES.union(*(env[n] for ix, (low, high), (lo, hi) in placed if low < lo or hi <= high for n in ix.names()))
        return [replace(t, partly=t.partly | partly) for t in self._of_scope(base, loops)]

    def _read(self, base: Tensor, index: Sequence[Index], env: Mapping[str, Names], ranges: Mapping[str, Range]) -> Term:
        """A read, by the iterators that it depends on."""
        found, tied = NO_NAMES, set[Tie]()
        for ix in index:
            lows = remainders(ix)
            if ix.den > 1 and ix.terms:  # what is read between elements is 0
                tied.add(Tie(NO_NAMES.union(*(env[n] for n in ix.names())), float(ix.den)))
            for atom, _ in ix.terms:
                own = (atom,) if isinstance(atom, str) else tuple(atom.num.names())
                names = NO_NAMES.union(*(env[n] for n in own))
                if len(own) == 1 and own[0] in lows and len(names) == 1:
                    names = self._digit(names, "%", lows[own[0]])
                elif isinstance(atom, Floor):
                    names, fewer = self._divided(names, atom)
                    tied |= fewer
                found |= names
        for low in [n for n in found if "%" in n]:
            if any(digit_of(n) == digit_of(low) for n in found - {low}):  # with another digit it is the whole
                found = found - {low} | {digit_of(low)}
        windows = frozenset(w for ix in index if (w := self._window(ix, env, ranges)))
        return Term(factors=(Factor(found, base.weight, base, windows),), ties=frozenset(tied))

    def _digit(self, names: Names, which: str, den: int) -> Names:
        """A digit of the one iterator that is named: its quotient, `//`, or its remainder, `%`."""
        (name,) = names
        digit = f"{name}{which}{den}"
        self.extents[digit] = min(self.extents[name], den) if which == "%" else -(-self.extents[name] // den)
        return frozenset((digit,))

    def _divided(self, names: Names, quotient: Floor) -> tuple[Names, set[Tie]]:
        """What a quotient of iterators depends on: that of one stands for itself, one of several takes fewer values than they do."""
        if len(names) == 1 and quotient.num.is_affine:
            return self._digit(names, "//", quotient.den), set()
        if not names:
            return names, set()
        least_extent = min(self.extents[n] for n in names)
        return names, {Tie(names, max(least_extent / (-(-(least_extent - 1) // quotient.den) + 1), 1.0))}

    def _window(self, ix: Index, env: Mapping[str, Names], ranges: Mapping[str, Range]) -> tuple[Names, int] | None:
        """The iterators that an index adds up, if they are several, and how many places they reach; those of a loop reach no more than it has."""
        names = NO_NAMES.union(*(env[n] for n in ix.names()))
        if len(names) < 2 or any(not isinstance(a, str) for a, _ in ix.terms):
            return None
        return names, 1 + sum(abs(c) * (ranges[a][1] - ranges[a][0] - 1) for a, c in ix.terms if isinstance(a, str))

    def _tied(self, c: Cond, env: Mapping[str, Names]) -> Tie | None:
        """Two iterators, each alone or divided, that a condition makes equal; where it only orders them, a triangle is left in blocks."""
        if len(c.index.terms) != 2 or any(k not in (1, -1) for _, k in c.index.terms):
            return None
        names = [env[n] for n in sorted(c.index.names())]
        if len(names) != 2 or any(len(n) != 1 for n in names):
            return None
        if not c.equal:
            return Tie(names[0] | names[1], TRIANGLE)
        den = max(a.den if isinstance(a, Floor) else 1 for a, _ in c.index.terms)
        least_extent = min(self.extents[n] for own in names for n in own)
        return Tie(names[0] | names[1], float(max(least_extent // den, 1)), equal=True)

    def _closed(self, body: Body, env: Mapping[str, Names]) -> list[Term]:
        """A body as one factor."""
        self.closed.update((r.base, None) for r in reads(body) if isinstance(r.base, Scope) and not is_weight(r.base))
        base = body.base if isinstance(body, Read) and is_weight(body) else None
        return [Term(factors=(Factor(_names(body, env), is_weight(body), base),))] if used_names(body) or not isinstance(body, Const) else [Term()]


def _shares(ix: Index, ranges: Mapping[str, Range]) -> tuple[float, float]:
    """The shares of an iterator's range where an index function of it alone is not negative, and where it is; 1 for both where it is one of several,
    or of digits."""
    match ix.terms:
        case ((str() as name, c),):
            lo, hi = ranges[name]
            first, last = (max(lo, -(ix.const // c)), hi - 1) if c > 0 else (lo, min(hi - 1, ix.const // -c))
            share = max(last - first + 1, 0) / (hi - lo)
            return share, 1.0 - share
    return 1.0, 1.0


def remainders(ix: Index) -> dict[str, int]:
    """The iterators of which an index has a remainder and nothing else, and by which number."""
    found, rest = moduli(Index(ix.terms, ix.const))
    used = [*rest.names(), *(name for one in found for name in one.num.names())]
    whole = [(one.num.terms, one.den) for one in found if not one.quotient]
    return {name: den for ((name, k), *more), den in whole if isinstance(name, str) and k == 1 and not more and used.count(name) == 1}


def _names(body: Body, env: Mapping[str, Names]) -> Names:
    return NO_NAMES.union(*(env[n] for ix in index_functions(body) for n in ix.names()))


def passes(scope: Scope) -> bool:
    """A sum around a read of the scope could pass into it: it is more than one function of something."""
    return any(t.sums or len(t.factors) > 1 or any(f.base is not None for f in t.factors) for t in Expansion(scope).terms)


def taken(scope: Scope) -> float:
    """Operations of the reductions as they stand."""
    return float(sum(_own(s) for s in walk(scope) if s.sums and not is_weight(s)))


def least(scope: Scope, known: dict[Scope, Mapping[Scope, float]] | None = None) -> float:
    """Operations of the reductions in the best order that is seen, no more than as they stand."""
    return sum(at_best(scope, {} if known is None else known).values())


def at_best(scope: Scope, known: dict[Scope, Mapping[Scope, float]]) -> Mapping[Scope, float]:
    """Operations by the scopes that they are computed for: the scope in the best order that is seen, and those inside that functions are taken of.

    These are in an order of their own, once where several read one of them. As they stand, where that takes no more.
    """
    if scope not in known:
        expansion = Expansion(scope)
        together = sum(_alike(expansion)) + (_own(scope) if scope.sums and scope.reduce != "sum" else 0)
        found: dict[Scope, float] = {}
        for inner in expansion.closed:
            found |= at_best(inner, known)
        found[scope] = together
        stands = {s: float(_own(s)) for s in walk(scope) if s.sums and not is_weight(s)}
        known[scope] = found if sum(found.values()) < sum(stands.values()) else stands
    return known[scope]


def _own(s: Scope) -> int:
    return prod(i.extent for i in (*s.loops, *s.sums)) * (2 if isinstance(s.body, Mul) else 1)


def _alike(expansion: Expansion) -> list[float]:
    """What the terms take, those together that may become one: each reads the same tensors as another, but for one of several or for weights.

    What differs in weights alone is one product with the sum of these, each a product of its own before, or as many products as there are terms.
    Terms that are there along a part of what is summed read weights, and one of several tensors, at places of their own.
    """
    groups: list[tuple[list[Bases], list[Term]]] = []
    for t in expansion.terms:
        data = [f.base for f in t.factors if f.base is not None and not f.weight]
        bases = data, [f.base for f in t.factors if f.base is not None and f.weight]
        if t.whole and data:
            found = next((g for g in groups if any(_join(one, bases, bool(t.partly)) for one in g[0])), None)
            if found:
                found[0].append(bases)
                found[1].append(t)
                continue
        groups.append(([bases] if t.whole and data else [], [t]))
    return [_cost(read, terms, expansion.extents) for read, terms in groups]


def _cost(read: Sequence[Bases], terms: Sequence[Term], extents: Mapping[str, int]) -> float:
    """What terms take that may become one."""
    costs = [ordered(t, extents) for t in terms]
    if len(terms) > 1 and all(_differ(read[0][0], data) == 0 for data, _ in read[1:]):
        return min(sum(costs), max(ordered(with_one_weight(t, extents), extents) for t in terms))
    return max(costs)


def _join(one: Bases, other: Bases, partly: bool) -> bool:
    """Two terms may become one: they differ in weights, or in one tensor and nothing else where each is there everywhere."""
    apart = _differ(one[0], other[0])
    return apart == 0 or apart == 1 and not partly and (len(one[0]) > 1 or bool(one[1]) and _differ(one[1], other[1]) == 0)


def _differ(left: Sequence[Tensor | Scope], right: Sequence[Tensor | Scope]) -> float:
    """How many of the tensors are others; inf where there are not as many."""
    rest = list(right)
    for x in left:
        if x in rest:
            rest.remove(x)
    return len(rest) if len(left) == len(right) else inf
