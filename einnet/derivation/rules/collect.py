"""collect: the linearity of a sum, from sums of products to products of sums or to one longer sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby, permutations
from math import prod

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.generalise import Seam, generalise
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.forced.merge import merge_read
from einnet.derivation.rules.join import digits, rewritten
from einnet.expr.index import Index, Range, in_range, substitute, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Number,
    Read,
    Scope,
    Select,
    Tensor,
    children,
    fresh,
    indices,
    is_weight,
    make_add,
    make_mul,
    reads,
    rebuild,
    substitute_body,
    used_names,
)
from einnet.expr.values.cancellation import survives

ONE: Number = Fraction(1)

Pair = tuple[tuple[int, Number, Read], tuple[int, Number, Scope]]
"""A term that is a number times a sum that is read, and another one that a sum over the same box can take in, with their places."""


@rule(
    "collect", order=200,
    guard="terms are one body but for a number; or two sums over one box are added at one point, or parts of sums, and share a factor or their form",
    kind="reassociation", family="inter",
)  # fmt: skip
def collect(e: Scope) -> Iterator[Outcome]:
    """a*{L[x] Σ[y] u*f}[v] + b*{L[x] Σ[y] u*g}[v] = {L[x] Σ[y] u*(a*f+b*g)}[v];  {L[x] Σ[k<K] f}[v] + {L[x] Σ[k<J] g}[v] = {L[x] Σ[k<K+J] h}[v]
    L[x] a*f + b*f = L[x] (a+b)*f for numbers a and b

    h(k) is f(k) for k < K and g(k-K) beyond: operands that differ are concatenated along what is summed. Where g has no sum over some of y, the
    factor u taken at one value c of those stands for it: u(c)*g = Σ[y] u(y)*select(y == c, g, 0); likewise with u over a part of their range.

    Like terms of which one takes something from another may leave a small part of either, which is rounded on the left and not on the right: that is
    of class precision, though nothing grows.
    """
    terms, put = added(e.body)
    like, pairs = like_terms(e), list(_pairs(e, terms))
    found = like is not None
    if like is not None:
        alike = survives(e, like)
        yield Rewrite(like, "like terms", "reassociation" if alike else "precision", None if alike else 1.0)
    elif not pairs:
        yield Refused("no terms are alike, and no two sums over one box are added at the same point")
        return
    groups = gathered(pairs)
    for n, ((a, first, one), (b, second, t)) in enumerate(pairs):
        assert isinstance(one.base, Scope)
        if any({a, b} <= {*places} for places in groups):
            continue  # a way to the group, of which there are many
        for how, whole in together(one.base, _aligned(one.base, t), first, second, once=a < b):
            found = True
            scaled = scale_of(second) if how == "end-to-end" else ()
            total = make_add((make_mul((*scaled, Read(whole, one.index))), *without(terms, a, b)))
            yield Rewrite(replace(e, body=put(total)), f"pair={n} {how}", "reassociation")
    for places, (read, *_) in groups.items():
        found = True
        total = make_add((read, *without(terms, *places)))
        yield Rewrite(replace(e, body=put(total)), "terms=" + ",".join(map(str, places)), "reassociation")
    if not found:
        yield Refused("the two sums have neither a factor nor their form in common")


def gathered(pairs: Sequence[Pair]) -> dict[tuple[int, ...], list[Read]]:
    """Three terms or more as one sum, by their places: as many as a sum takes in one after another. Pairs of pairs lead there, too, on many ways."""
    found: dict[tuple[int, ...], list[Read]] = {}
    for a, own in groupby(pairs, key=lambda pair: pair[0][0]):
        places, whole, number = [a], None, ONE
        for (_, first, one), (b, second, t) in own:
            assert isinstance(one.base, Scope)
            base, scale = (one.base, first) if whole is None else (whole, number)
            ways = together(base, _aligned(base, t), scale, second, once=True)
            joined = next((s for how, s in ways if how != "end-to-end"), None)
            if joined is not None:
                places, whole = [*places, b], joined
        if whole is not None and len(places) > 2:
            found.setdefault(tuple(sorted(places)), []).append(Read(whole, one.index))
    return found


def like_terms(e: Scope) -> Scope | None:
    """The scope in which terms that are one body but for a number are one term, with a number times a sum opened; None where there are none."""
    terms = [part for term in (e.body.args if isinstance(e.body, Add) else ()) for part in scaled_terms(term)]
    numbers: dict[Body, Fraction] = {}
    for number, body in terms:
        numbers[body] = numbers.get(body, Fraction(0)) + number
    left = (Const(number) if is_number(body) else make_mul((*scale_of(number), body)) for body, number in numbers.items() if number)
    return Scope(e.loops, e.sums, make_add(left), e.reduce) if len(numbers) < len(terms) else None


def scaled_terms(term: Body) -> Iterator[tuple[Fraction, Body]]:
    """A term as terms, each a number times a body; a number times a sum as one for each term of that."""
    match term:
        case Const(Fraction() as number):
            yield number, Const(Fraction(1))
        case Div(num, Const(Fraction() as number)) if number:
            yield from ((n / number, body) for n, body in scaled_terms(num))
        case Add(args):
            yield from (part for arg in args for part in scaled_terms(arg))
        case Mul():
            number, rest = scale_and_rest(term)
            inner = scaled_terms(rest[0]) if len(rest) == 1 else [(Fraction(1), make_mul(rest))]
            yield from ((number * n, body) for n, body in inner)
        case _:
            yield Fraction(1), term


def scale_and_rest(term: Body) -> tuple[Fraction, list[Body]]:
    """The number that a product has as factors, and its other factors; what is infinite is one of these."""
    number, rest = Fraction(1), []
    for f in factors(term):
        if isinstance(f, Const) and isinstance(f.value, Fraction):
            number *= f.value
        else:
            rest.append(f)
    return number, rest


def is_number(body: Body) -> bool:
    """A number that is not infinite."""
    return isinstance(body, Const) and isinstance(body.value, Fraction)


def together(s: Scope, t: Scope, first: Number, second: Number, once: bool) -> Iterator[tuple[str, Scope]]:
    """The ways to add two sums in one, the best of them; what is the same for the two in the other order only `once`."""
    if once and t.sums and (common := with_common_factor(s, t, first, second)):
        yield "factor", common
        return
    wide = opened(t) if t.sums else t
    part = within(s, t, first, second) or (within(s, _aligned(s, wide), first, second) if t.sums else None)
    if part is None and once and t.sums:
        again = regrouped(s, {r.base for r in reads(wide.body)})
        part = next((found for around in again if (found := within(around, _aligned(around, wide), first, second))), None)
    if part:
        yield "within", part
    elif once and t.sums and first == second and (whole := end_to_end(s, t)):
        yield "end-to-end", whole


def _scaled_read(term: Body) -> tuple[Number, Read | None]:
    """A term as a number times a read; None where it is something else."""
    number, rest = scale_and_rest(term)
    return (number, rest[0]) if len(rest) == 1 and isinstance(rest[0], Read) else (ONE, None)


def scale_of(value: Number) -> tuple[Body, ...]:
    """A number as a factor, where it is not 1."""
    return () if value == 1 else (Const(value),)


def added(body: Body) -> tuple[tuple[Body, ...], Callable[[Body], Body]]:
    """The terms of the sum that a body is, but for a factor, a divisor or a function of it, and the body with something else in the sum's place.

    No terms where there is no sum, or several.
    """
    if isinstance(body, Add):
        return body.args, lambda new: new
    parts = children(body) if isinstance(body, (Mul, Div, Call)) else ()
    found = [(n, terms, put) for n, (terms, put) in enumerate(map(added, parts)) if terms]
    if len(found) != 1:
        return (), lambda new: body
    ((n, terms, put),) = found
    return terms, lambda new: rebuild(body, (*parts[:n], put(new), *parts[n + 1 :]))


def _pairs(e: Scope, terms: Sequence[Body]) -> Iterator[Pair]:
    """Terms, by their places, that are sums, each with another one over the same box at the same point: a sum, or at the loops of e any product."""
    for a, b in permutations(range(len(terms)), 2):
        (first, one), (second, other) = _scaled_read(terms[a]), _scaled_read(terms[b])
        if one is None or _sum_read(one) is None:
            continue
        if other is not None and isinstance(other.base, Scope) and other.base.sums:
            placed = _at_one_point(e, one, other)
            if placed is not None:
                yield (a, first, placed[0]), (b, second, placed[1])
        elif one.index == indices(e.loops) and one.base.box == e.box and not e.sums:
            yield (a, first, one), (b, ONE, Scope(e.loops, (), terms[b]))


def _sum_read(read: Read) -> Scope | None:
    """The sum that is read, 0 outside of its box; None where something else is."""
    base = read.base
    return base if isinstance(base, Scope) and base.sums and base.reduce == "sum" and read.fill == 0 else None


def _at_one_point(e: Scope, one: Read, other: Read) -> tuple[Read, Scope] | None:
    """Two sums over one box, as the first is read; None where there is no such box.

    Those that are read at several points, as parts of one are, are written over the loops of e, unless they are computed for fewer points than that.
    """
    s, t = _sum_read(one), _sum_read(other)
    if s is None or t is None:
        return None
    if one.index == other.index and s.box == t.box:
        return one, t
    if e.sums or 2 * _points(e.loops) > sum(_points(base.loops) for base in {s, t}):
        return None
    first, second = (merge_read(Scope(e.loops, (), read), read) for read in (one, other))
    return (Read(first, indices(e.loops)), second) if isinstance(first, Scope) and isinstance(second, Scope) else None


def _aligned(s: Scope, t: Scope) -> Scope:
    """t with the loops of s, its sums named apart from them."""
    taken = {i.name for i in (*s.loops, *s.sums, *t.loops)}
    sums: list[Iter] = []
    mapping = {j.name: var(i.name) for i, j in zip(s.loops, t.loops)}
    for k in t.sums:
        name = fresh(k.name, taken)
        taken.add(name)
        mapping[k.name] = var(name)
        sums.append(Iter(name, k.lo, k.hi))
    return Scope(s.loops, tuple(sums), substitute_body(t.body, mapping))


def with_common_factor(s: Scope, t: Scope, first: Number = ONE, second: Number = ONE) -> Scope | None:
    """One sum of u*(a*f+b*g), where the sums have the same ranges, one for one, and both products the factor u."""
    if [i.range for i in s.sums] != [i.range for i in t.sums]:
        return None
    body = substitute_body(t.body, {j.name: var(i.name) for i, j in zip(s.sums, t.sums)})
    left, right = list(factors(s.body)), list(factors(body))
    common: list[Body] = []
    for f in tuple(left):
        if f in right:
            left.remove(f)
            right.remove(f)
            common.append(f)
    both = make_add((make_mul((*scale_of(first), *left)), make_mul((*scale_of(second), *right))))
    return Scope(s.loops, s.sums, make_mul((*common, both))) if common else None


def within(s: Scope, t: Scope, first: Number, second: Number) -> Scope | None:
    """One sum of u(y)*(a*f + select(y == c, b*g, 0)): t is a product with the factor u at y = c, and sums over parts of the ranges of s."""
    ours, theirs = factors(s.body), factors(t.body)
    for m, u in ((m, f) for m, f in enumerate(ours) if isinstance(f, Read)):
        for n, v in ((n, f) for n, f in enumerate(theirs) if isinstance(f, Read) and f.base == u.base and f.fill == u.fill):
            placed = _placed(s, t, u, v)
            if placed is not None:
                conds, mapping = placed
                left = tuple(i for i in t.sums if i.name not in mapping)
                rest = substitute_body(make_mul(without(theirs, n)), mapping)
                other = make_mul((*scale_of(second), _closed(s, left, rest) if left else rest))
                own = make_mul((*scale_of(first), *without(ours, m)))
                return Scope(s.loops, s.sums, make_mul((u, make_add((own, Select(conds, other, Const(Fraction(0))) if conds else other)))))
    return None


def _closed(s: Scope, left: tuple[Iter, ...], body: Body) -> Read:
    """The sum of a body over what is left, over those iterators of s that it uses."""
    used = used_names(body)
    own = tuple(i for i in (*s.loops, *s.sums) if i.name in used)
    return Read(Scope(own, left, body), indices(own))


def opened(t: Scope) -> Scope:
    """A product with the products that it reads merged into it, as far as they do. Its new sums may have names that another scope has, too."""
    for r in factors(t.body):
        if isinstance(r, Read) and isinstance(r.base, Scope) and r.base.sums and not is_weight(r.base):
            merged = merge_read(t, r)
            if isinstance(merged, Scope):
                return opened(merged)
    return t


def regrouped(s: Scope, bases: Collection[Tensor | Scope]) -> Iterator[Scope]:
    """A product with what it reads opened, summed around each data factor of some bases: Σ[y] u*{Σ[z] f}, where others are read over z alone."""
    whole = opened(s)
    parts = factors(whole.body) if whole != s else ()
    for n, u in enumerate(parts):
        if isinstance(u, Read) and u.base in bases and not is_weight(u):
            outer = tuple(i for i in whole.sums if i.name in used_names(u))
            inner = tuple(i for i in whole.sums if i not in outer)
            if outer and inner:
                around = Scope(s.loops, outer, u)
                yield replace(around, body=make_mul((u, _closed(around, inner, make_mul(without(parts, n))))))


def _placed(s: Scope, t: Scope, u: Read, v: Read) -> tuple[tuple[Cond, ...], dict[str, Index]] | None:
    """Where among the sums of s those of t are, so that u is v there: conditions, and the sums of t by those of s. None where not.

    Nor where they are the same, or the same but for their beginnings, and not those of t begin later: what is told of them once is enough.
    """
    places = _Places({i.name: i for i in s.sums}, {i.name: i for i in t.sums}, s.ranges)
    if not all(places.meet(a, b) for a, b in zip(u.index, v.index)):
        return None
    used = places.fixed.keys() | {n for ix in places.mapping.values() for n in ix.names()}
    later = next((ix.const for ix in places.mapping.values() if ix.const), 0) > 0
    everywhere = not places.conds and places.mapping.keys() == places.theirs.keys() and not later
    return (tuple(places.conds), places.mapping) if used == places.ours.keys() and not everywhere else None


@dataclass(slots=True)
class _Places:
    """What is known of the points at which two reads are the same: iterators of ours that have one value, and theirs in terms of ours."""

    ours: dict[str, Iter]
    theirs: dict[str, Iter]
    ranges: Mapping[str, Range]
    fixed: dict[str, Index] = field(default_factory=dict)
    mapping: dict[str, Index] = field(default_factory=dict)
    conds: list[Cond] = field(default_factory=list)

    def meet(self, a: Index, b: Index) -> bool:
        """a = b, solved for the one iterator of ours that is not known yet, if there is one. False where that cannot be."""
        known = {*self.fixed, *(n for ix in self.mapping.values() for n in ix.names())}
        left = [n for n in self.ours if n in a.names() and n not in known]
        right = [n for n in self.theirs if n in b.names() and n not in self.mapping]
        if len(left) > 1 or len(right) > len(left) or left and not self._solve(left[0], right, a, b):
            return False
        return substitute(a, self.fixed) == substitute(b, self.mapping)

    def _solve(self, name: str, right: Sequence[str], a: Index, b: Index) -> bool:
        c = a.coefficient(name)
        if c not in (1, -1) or a.den != 1:
            return False
        known, rest = substitute(b, self.mapping), substitute(a, {**self.fixed, name: Index()})
        value = (substitute(known, dict.fromkeys(right, Index())) - rest) * c
        if not right:
            return self._fix(name, value)
        return b.coefficient(right[0]) == c and self._shift(name, self.theirs[right[0]], value)

    def _shift(self, name: str, i: Iter, value: Index) -> bool:
        """Ours is theirs plus a number: they meet where theirs runs."""
        lo, hi = self.ours[name].range
        if not value.is_const or i.lo + value.const < lo or i.hi + value.const > hi:
            return False
        at = self.mapping[i.name] = var(name) - value
        if i.extent == 1 < hi - lo:
            self.conds.append(Cond(at - i.lo, True))
        else:
            self.conds += [Cond(at - i.lo)] * (i.lo + value.const > lo)
            self.conds += [Cond(i.hi - 1 - at)] * (i.hi + value.const < hi)
        return True

    def _fix(self, name: str, value: Index) -> bool:
        """Ours has one value, which others decide."""
        if value.den != 1 or value.names() & self.ours.keys() or not in_range(value, self.ours[name].range, self.ranges):
            return False
        self.fixed[name] = value
        self.conds.append(Cond(var(name) - value, True))
        return True


def end_to_end(s: Scope, t: Scope) -> Scope | None:
    """One sum over the points of both, one after the other."""
    seam = Seam(fresh("k", {i.name for i in (*s.loops, *s.sums, *t.sums)}), _points(s.sums), _points(t.sums))
    iters = (*s.loops, seam.joined)
    ranges = {i.name: i.range for i in iters}
    first = rewritten(s.body, digits(s.sums, var(seam.name)), ranges)
    second = rewritten(t.body, digits(t.sums, var(seam.name) - seam.first), ranges)
    body = generalise(first, second, seam, iters)
    return Scope(s.loops, (seam.joined,), body) if body is not None else None


def _points(sums: Sequence[Iter]) -> int:
    return prod(i.extent for i in sums)
