"""Terms `coefficient * reduce[sums] [conditions] product`: the unit of the inlining normal form, and what its factors say about the indices.

A term stands inside a scope: its factors may use the scope's iterators. `absorbing` is the value of a factor that makes the whole term
vanish from the reduction: 0 in a sum, -inf in a max, inf in a min.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import gcd, prod

from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Floor, Index, Range, bounds, moduli, simplify, substitute, var
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
    Val,
    index_functions,
    indices,
    map_indices,
    map_leaves,
    map_reads,
    rename_apart,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.expr.normal.totals import partial, total

ONE = Const(Fraction(1))

Divisor = tuple[Index, int]
"""(num, d): d divides num. `num` has coefficients and constant in [0, d)."""


@dataclass(frozen=True, slots=True)
class Term:
    """coefficient * reduce[sums] [all conds hold, all divisors divide] Π factors; the neutral element where they do not."""

    coefficient: Fraction = Fraction(1)
    sums: tuple[Iter, ...] = ()
    conds: tuple[Cond, ...] = ()
    divisors: tuple[Divisor, ...] = ()
    factors: tuple[Body, ...] = ()
    absorbing: Number = Fraction(0)

    def ranges(self, box: Mapping[str, Range]) -> dict[str, Range]:
        """Ranges of the surrounding iterators and of the sums."""
        return {**box, **{i.name: i.range for i in self.sums}}

    def indices(self) -> Iterator[Index]:
        """All index functions: of factors, conditions and divisors."""
        for f in self.factors:
            yield from index_functions(f)
        for c in self.conds:
            yield c.index
        for num, _ in self.divisors:
            yield num

    def names(self) -> frozenset[str]:
        """The iterators that occur."""
        return frozenset().union(*(e.names() for e in self.indices()))

    def map(self, f: Callable[[Index], Index]) -> Term:
        """Apply f to every index function."""
        return replace(
            self,
            factors=tuple(map_indices(b, f) for b in self.factors),
            conds=tuple(dict.fromkeys(inequality(f(c.index)) if not c.equal else equality(f(c.index)) for c in self.conds)),
            divisors=tuple(dict.fromkeys(reduced_divisor(f(num), d) for num, d in self.divisors)),
        )

    def substitute(self, mapping: Mapping[str, Index], sums: tuple[Iter, ...], conds: Iterable[Cond] = ()) -> Term:
        """The same term over other sums; `mapping` gives the old iterators by the new, `conds` what the new box does not say."""
        moved = self.map(lambda e: substitute(e, mapping))
        return replace(moved, sums=sums, conds=tuple(dict.fromkeys((*moved.conds, *conds))))


def inequality(e: Index) -> Cond:
    """e >= 0 with the common factor of its coefficients taken out, and without a floor division that is the only one.

    ⌊y/d⌋ + r >= 0 is y + d·r >= 0, and r - ⌊y/d⌋ >= 0 is d·r + d - 1 - y >= 0.
    """
    g = gcd(*(c for _, c in e.terms))
    if e.den != 1 or g > 1:
        e = Index(tuple((a, c // g) for a, c in e.terms), e.const // max(g, 1))
    floors = [(a, c) for a, c in e.terms if isinstance(a, Floor)]
    if len(floors) == 1 and abs(floors[0][1]) == 1:
        (a, c), rest = floors[0], Index(tuple(t for t in e.terms if t != floors[0]), e.const)
        y = Index(a.num.terms, a.num.const)
        d = a.den * a.num.den
        return inequality(y + d * rest if c > 0 else d * rest + (d - 1) - y)
    return Cond(e)


def equality(e: Index) -> Cond:
    """e == 0 without denominator and common factor."""
    g = gcd(e.const, *(c for _, c in e.terms))
    return Cond(Index(tuple((a, c // g) for a, c in e.terms), e.const // g, 1) if g > 1 else Index(e.terms, e.const, 1), True)


def reduced_divisor(num: Index, d: int) -> Divisor:
    """d divides num, with coefficients modulo d and without their common factors with d. The only coefficient divides d."""
    while num.den != 1:
        num, d = Index(num.terms, num.const, 1), d * num.den
    terms = tuple((a, c % d) for a, c in num.terms if c % d)
    const = num.const % d
    g = gcd(d, const, *(c for _, c in terms))
    terms, const, d = tuple((a, c // g) for a, c in terms), const // g, d // g
    if len(terms) == 1 and d % terms[0][1]:
        ((atom, coefficient),) = terms
        k = gcd(coefficient, d)
        unit = next(u for u in range(pow(coefficient // k, -1, d // k), d, d // k) if gcd(u, d) == 1)
        terms, const = ((atom, k),), const * unit % d
    return Index(terms, const, 1), d


def by_blocks(c: Cond, ranges: Mapping[str, Range]) -> Cond:
    """The condition without what decides nothing: g·x + y >= 0 is x + q >= 0 where ⌊y/g⌋ is q all over the ranges."""
    if c.equal:
        return c
    terms, const = c.index.terms, c.index.const
    for g in accumulate(sorted((abs(k) for _, k in terms), reverse=True), gcd):
        low, high = bounds(Index(tuple((a, k) for a, k in terms if k % g), const), ranges)
        if low // g == high // g:
            return inequality(Index(tuple((a, k // g) for a, k in terms if k % g == 0), low // g))
    return c


def split_conditions(conds: Iterable[Cond]) -> tuple[tuple[Cond, ...], tuple[Divisor, ...]]:
    """Conditions, those of the form `num % d == 0` set apart as divisors."""
    plain: list[Cond] = []
    divisors: list[Divisor] = []
    for c in conds:
        if c.equal:
            found, rest = moduli(Index(c.index.terms, c.index.const, 1))
            if len(found) == 1 and not found[0].quotient and not rest.terms and rest.const % found[0].factor == 0:
                m = found[0]
                shift = rest.const // m.factor
                if -m.den < shift <= 0:
                    divisors.append(reduced_divisor(m.num + shift, m.den))
                    continue
            plain.append(equality(c.index))
        else:
            plain.append(inequality(c.index))
    return tuple(dict.fromkeys(plain)), tuple(dict.fromkeys(divisors))


def divisor_condition(divisor: Divisor) -> Cond:
    """The condition `num % d == 0`."""
    num, d = divisor
    return Cond(num % d, True)


def box_conditions(index: Iterable[Index], box: Iterable[Range], ranges: Mapping[str, Range]) -> tuple[tuple[Cond, ...], tuple[Divisor, ...]]:
    """What must hold for an index to lie in a box, less what the iterators' ranges imply."""
    conds: list[Cond] = []
    divisors: list[Divisor] = []
    for e, (lo, hi) in zip(index, box, strict=True):
        num = Index(e.terms, e.const, 1)
        low, high = bounds(num, ranges)
        if low < lo * e.den:
            conds.append(inequality(num - lo * e.den))
        if high > (hi - 1) * e.den:
            conds.append(inequality((hi - 1) * e.den - num))
        if e.den != 1:
            divisors.append(reduced_divisor(num, e.den))
    return tuple(dict.fromkeys(conds)), tuple(dict.fromkeys(divisors))


def supports(factors: Iterable[Body], absorbing: Number) -> tuple[list[Cond], list[Divisor]]:
    """Conditions and divisors that hold wherever no factor is absorbing.

    0 times what may not exist is not 0: of a product with factors that need not be numbers, only what those say themselves is known.
    """
    given = tuple(factors)
    loose = partial(given) if absorbing == 0 else ()
    conds: list[Cond] = []
    divisors: list[Divisor] = []
    for f in loose[:1] or given:
        _extend(conds, divisors, _supports(f, absorbing))
    for f in loose[1:]:
        more, apart = _supports(f, absorbing)
        conds, divisors = [c for c in conds if c in more], [d for d in divisors if d in apart]
    return conds, divisors


@lru_cache(maxsize=1 << 14)
def _supports(factor: Body, absorbing: Number) -> tuple[tuple[Cond, ...], tuple[Divisor, ...]]:
    conds: list[Cond] = []
    divisors: list[Divisor] = []
    match factor:
        case Read(Tensor() as base, index, fill) if fill == absorbing:
            for e, (lo, hi) in zip(index, base.box, strict=True):
                num = Index(e.terms, e.const, 1)
                conds += [inequality(num - lo * e.den), inequality((hi - 1) * e.den - num)]
                if e.den != 1:
                    divisors.append(reduced_divisor(num, e.den))
        case Read(Scope(reduce="sum") as inner, index, fill) if fill == absorbing == 0:
            _extend(conds, divisors, _of_sum(inner, index))
        case Mul(args) if absorbing == 0:
            _extend(conds, divisors, supports(args, absorbing))
        case Add(args) if absorbing == 0:
            _extend(conds, divisors, _of_all(args))
        case Div(num_body, den) if absorbing == 0 and total(Div(ONE, den)):
            _extend(conds, divisors, supports((num_body,), absorbing))
        case Call(name, (arg,)) if absorbing == 0 and name in KEEPS_ZERO:
            _extend(conds, divisors, supports((arg,), absorbing))
        case Select(where, then, Const(v)) if v == absorbing:
            _extend(conds, divisors, split_conditions(where))
            _extend(conds, divisors, supports((then,), absorbing))
    return tuple(conds), tuple(divisors)


def _of_all(args: tuple[Body, ...]) -> tuple[list[Cond], list[Divisor]]:
    """What holds wherever a sum of some bodies is not 0: what all of them want."""
    (conds, divisors), *others = (_supports(a, 0) for a in args)
    return [c for c in conds if all(c in o[0] for o in others)], [d for d in divisors if all(d in o[1] for o in others)]


def _of_sum(scope: Scope, index: tuple[Index, ...]) -> tuple[list[Cond], list[Divisor]]:
    """What holds wherever a sum that is read inside its box is not 0: what its body wants of its loops, whatever the summation iterators are."""
    loops = {i.name: e for i, e in zip(scope.loops, index, strict=True)}
    conds, divisors = supports((scope.body,), 0)
    free = [c for c in (_projected(c, scope) for c in conds) if c.index.terms and c.index.names() <= loops.keys()]
    own = [Cond(substitute(c.index, loops), c.equal) for c in free]
    return own, [reduced_divisor(substitute(num, loops), d) for num, d in divisors if num.names() <= loops.keys()]


def _projected(c: Cond, scope: Scope) -> Cond:
    """The condition without the scope's summation iterators, each at its best."""
    sums = {i.name for i in scope.sums}
    if c.equal or not c.index.is_affine or not c.index.names() & sums:
        return c
    best = Index(tuple((a, k) for a, k in c.index.terms if a in sums))
    rest = Index(tuple((a, k) for a, k in c.index.terms if a not in sums), c.index.const)
    return inequality(rest + bounds(best, scope.ranges)[1])


def _extend(conds: list[Cond], divisors: list[Divisor], more: tuple[Iterable[Cond], Iterable[Divisor]]) -> None:
    conds += more[0]
    divisors += more[1]


def simplified(term: Term, box: Mapping[str, Range]) -> Term:
    """Floors that are constant over the ranges evaluated, iterators of one value replaced, and their sums dropped; nested scopes closed again.

    Indices that are then numbers are part of the coefficient.
    """
    ranges = term.ranges(box)
    done = term.map(lambda e: simplify(e, ranges))
    numbers = [f for f in done.factors if isinstance(f, Val) and f.index.is_const] if term.absorbing == 0 else []
    if numbers:
        value = prod((Fraction(f.index.const, f.index.den) for f in numbers), start=done.coefficient)
        done = replace(done, coefficient=value, factors=tuple(f for f in done.factors if f not in numbers))
    return replace(done, sums=tuple(i for i in done.sums if i.extent != 1), factors=closed_factors(done.factors, ranges))


def closed_factors(factors: Iterable[Body], ranges: Mapping[str, Range]) -> tuple[Body, ...]:
    """The factors with their nested scopes closed over just the iterators that occur in them."""
    return tuple(map_reads(f, lambda r: closed_again(r, ranges)) for f in factors)


def closed_again(r: Read, ranges: Mapping[str, Range]) -> Read:
    """A read of a nested scope, inside its box wherever that matters, as the read of one over just the iterators that then occur in it."""
    scope = r.base
    if isinstance(scope, Tensor):
        return r
    if all(e == var(i.name) for e, i in zip(r.index, scope.loops, strict=True)) and _in_order([i.name for i in scope.loops], ranges):
        return r
    inner = rename_apart(scope, frozenset().union(*(e.names() for e in r.index)))
    body = substitute_body(inner.body, {i.name: e for i, e in zip(inner.loops, r.index, strict=True)})
    own = {i.name for i in inner.sums}
    within = {**ranges, **inner.ranges}
    body = map_reads(map_indices(body, lambda e: simplify(e, {n: within[n] for n in e.names()})), lambda nested: closed_again(nested, within))
    used = used_names(body) - own
    loops = tuple(Iter(n, *ranges[n]) for n in ranges if n in used)
    return Read(Scope(loops, inner.sums, body, scope.reduce), indices(loops))


def _in_order(names: list[str], ranges: Mapping[str, Range]) -> bool:
    order = {n: k for k, n in enumerate(ranges)}
    return all(order[a] < order[b] for a, b in pairwise(names))


def with_plain_fills(body: Body, ranges: Mapping[str, Range]) -> Body:
    """Reads that never leave their box get the fill 0, which is then irrelevant."""

    def plain(leaf: Body) -> Body:
        if isinstance(leaf, Read) and leaf.fill != 0:
            conds, divisors = box_conditions(leaf.index, leaf.base.box, ranges)
            if not conds and not divisors:
                return Read(leaf.base, leaf.index)
        return leaf

    return map_leaves(body, plain)


def product_body(term: Term) -> Body:
    """The factors and conditions of a term as one body, without its coefficient."""
    factors = term.factors
    body: Body = factors[0] if len(factors) == 1 else Mul(factors) if factors else Const(Fraction(1))
    conds = (*term.conds, *map(divisor_condition, term.divisors))
    return Select(conds, body, Const(term.absorbing)) if conds else body


def scaled(coefficient: Fraction, body: Body) -> Body:
    """coefficient * body, flat."""
    if coefficient == 1:
        return body
    if isinstance(body, Const) and not isinstance(body.value, float):
        return Const(coefficient * body.value)
    return Mul((Const(coefficient), *(body.args if isinstance(body, Mul) else (body,))))


def added(parts: list[Body]) -> Body:
    """The sum of some bodies."""
    return parts[0] if len(parts) == 1 else Add(tuple(parts)) if parts else Const(Fraction(0))
