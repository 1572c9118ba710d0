"""Which bodies have a finite value whatever the elements of tensors are: 0 times such a body is 0, and of no other.

A quotient has none where its denominator can be 0, a logarithm where its argument can be 0 or less. What is known of a value is a range that holds
it; sums of squares, exponentials and what is made of them stay above 0. A value that may be -inf, as of a mask, is told from one that may not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import inf, prod

from einnet.expr import sets  # isl is not there where programs only run
from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.record import ABOVE_0, ANY, FROM_0, Span, hull
from einnet.expr.index import Index, substitute
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Div, Mul, Read, Scope, Select, Tensor, Val, children
from einnet.expr.normal.edges import at_own_loops, explicit

BROKEN, BELOW, FINITE = 0, 1, 2
"""A value may not exist, or be inf; it may be -inf; it is a number."""


_ZERO = Fraction(0)


def total(body: Body) -> bool:
    """The body is a number at every place, whatever the elements of tensors are; as for `span`, reads at a scope's own loops stay in its box."""
    if isinstance(body, Read) and isinstance(body.base, Tensor):
        return not isinstance(body.fill, float)
    return state(body) == FINITE


def partial(factors: Iterable[Body]) -> tuple[Body, ...]:
    """Those of some factors that need not be numbers."""
    return tuple(f for f in factors if not total(f))


def vanishes(factors: Sequence[Body]) -> bool:
    """A product is 0 at every place: a factor is, and the others are numbers."""
    return any(map(is_zero, factors)) and not partial(f for f in factors if not is_zero(f))


def is_zero(body: Body) -> bool:
    """The number 0, or the read of a scope that is 0 inside of its box and outside."""
    if isinstance(body, Read):
        return isinstance(body.base, Scope) and body.base.reduce == "sum" and body.fill == 0 and is_zero(body.base.body)
    return isinstance(body, Const) and body.value == 0


@lru_cache(maxsize=1 << 14)
def state(body: Body) -> int:
    """BROKEN, BELOW or FINITE."""
    match body:
        case Const(v):
            return FINITE if isinstance(v, Fraction) else BELOW if v < 0 else BROKEN
        case Val():
            return FINITE
        case Read(base, _, fill):
            own = FINITE if isinstance(base, Tensor) else _state_of(base)
            return min(own, state(Const(fill)))
    states = [state(a) for a in children(body)]
    least = min(states)
    match body:
        case Add() | Select():
            return least
        case Div(_, den):
            return FINITE if least == FINITE and span(den).nonzero else BROKEN
        case Call(name, args):
            return _state_of_call(name, args, states)
    return FINITE if least == FINITE else BROKEN


def _state_of_call(name: str, args: tuple[Body, ...], states: list[int]) -> int:
    function = FUNCTIONS[name]
    if not function.strict and function.below == "finite":
        return FINITE
    if function.below == "chosen":
        known = span(args[0])
        sides = states[1:2] if known.nonzero else states[2:] if known.point == 0 else states[1:]
        return min(sides) if states[0] == FINITE else BROKEN
    least = min(states)
    if least == FINITE:
        return FINITE if function.total(*map(span, args)) else BROKEN
    if least == BELOW and function.below != "none":
        return {"finite": FINITE, "greatest": max(states), "least": least}[function.below]
    return BROKEN


def _reached(where: Iterable[Cond], scope: Scope) -> bool:
    return sets.reached(where, scope.ranges, [i.name for i in scope.sums])


@lru_cache(maxsize=1 << 12)
def _state_of(scope: Scope) -> int:
    if scope.reduce != "sum" and any(i.extent == 0 for i in scope.sums):
        return BELOW if scope.reduce == "max" else BROKEN
    body = explicit(scope.body, scope.ranges)
    found = state(body)
    if found == BELOW and scope.reduce == "max":
        where = _finite_where(body)
        return FINITE if where is not None and _reached(where, scope) else BELOW
    return BROKEN if found == BELOW and scope.reduce == "min" else found


@lru_cache(maxsize=1 << 12)
def _span_of(scope: Scope) -> Span:
    """Of a sum of n terms n times the span of one; of greatest and least elements the span of all."""
    body = explicit(scope.body, scope.ranges)
    found = span(body)
    count = prod(i.extent for i in scope.sums)
    if scope.reduce != "sum":
        return found if count else ANY
    if count and found.lo == 0 and not found.lo_open:
        where = _positive_where(body)
        if where is not None and _reached(where, scope):
            return ABOVE_0
    return _scaled(found, Fraction(count)) if count else Span(_ZERO, False, _ZERO)


def _positive_where(body: Body) -> tuple[Cond, ...] | None:
    """Conditions under which a body that is nowhere below 0 is above it; None where none are known."""
    match body:
        case Select(conds, then, other) if span(other).lo >= 0:
            inner = _positive_where(then)
            return None if inner is None else (*conds, *inner)
        case Mul(args):
            parts = [_positive_where(a) for a in args]
            return None if None in parts else tuple(c for p in parts if p is not None for c in p)
        case Call("exp", (arg,)):
            return _finite_where(arg)
        case Read(Scope() as s, _, _) if not s.sums and s.reduce == "sum" and not span(body).positive:
            return _where_read(body, s, _positive_where(explicit(s.body, s.ranges)))
    return () if span(body).positive else None


def _finite_where(body: Body) -> tuple[Cond, ...] | None:
    """Conditions under which a body is not -inf."""
    match body:
        case Add(args):
            parts = [_finite_where(a) for a in args]
            return None if None in parts else tuple(c for p in parts if p is not None for c in p)
        case Select(conds, then, _):
            inner = _finite_where(then)
            return None if inner is None else (*conds, *inner)
        case Read(base, _, _) if isinstance(base, Tensor) or _state_of(base) == FINITE:
            return _in_box(body)
        case Read(Scope() as s, _, _) if not s.sums and s.reduce == "sum":
            return _where_read(body, s, _finite_where(explicit(s.body, s.ranges)))
    return () if state(body) == FINITE else None


def _in_box(read: Read) -> tuple[Cond, ...]:
    """Conditions under which a read is one of an element, and none of what is beyond."""
    ends = ((Index(e.terms, e.const) - lo * e.den, e.den, hi - lo) for e, (lo, hi) in zip(read.index, read.base.box, strict=True))
    return tuple(c for e, d, n in ends for c in (Cond(e), Cond((n - 1) * d - e), *((Cond(e % d, True),) if d > 1 else ())))


def _where_read(read: Read, scope: Scope, inside: tuple[Cond, ...] | None) -> tuple[Cond, ...] | None:
    """Conditions on what a scope computes, where it is read; None where none are known, or places between elements are read."""
    if inside is None or any(e.den > 1 for e in read.index):
        return None
    at = {i.name: e for i, e in zip(scope.loops, read.index, strict=True)}
    return (*_in_box(read), *(Cond(substitute(c.index, at), c.equal) for c in inside))


def _scaled(s: Span, by: Fraction) -> Span:
    if by < 0:
        return _scaled(s.negated(), -by)
    return Span(_ZERO, False, _ZERO) if by == 0 else Span(s.lo * by, s.lo_open, s.hi * by, s.hi_open)


@lru_cache(maxsize=1 << 14)
def span(body: Body) -> Span:
    """A range that holds every value of the body that exists; a read of a scope at its own loops is one that stays in its box (`edges.explicit`)."""
    match body:
        case Const(v):
            return Span(v, False, v)
        case Read(base, _, fill):
            if isinstance(base, Scope):
                return hull(_span_of(base), Span(fill, False, fill)) if not at_own_loops(body) else _span_of(base)
            if base.values:
                return hull(Span(min(base.values), False, max(base.values)), Span(fill, False, fill))
            return ANY
        case Add(args):
            found, args = _bends(args)
            for s in map(span, args):
                found = Span(found.lo + s.lo, found.lo_open or s.lo_open, found.hi + s.hi, found.hi_open or s.hi_open)
            return found
        case Mul(args):
            return _product(args)
        case Div(num, den):
            return _product((num,)) if den == Const(Fraction(1)) else _signs(span(num), span(den))
        case Select(_, then, other):
            return hull(span(then), span(other))
        case Call(name, args):
            return _of_call(name, args)
    return ANY


def weighted(args: Iterable[Body]) -> dict[Body, Fraction]:
    """Terms of a sum by what they are but for their coefficients; numbers under 1."""
    found: dict[Body, Fraction] = {}
    for a in args:
        coefficient, rest = Fraction(1), a
        match a:
            case Const(Fraction() as v):
                coefficient, rest = v, Const(Fraction(1))
            case Mul((Const(Fraction() as v), *others)):
                coefficient, rest = v, others[0] if len(others) == 1 else Mul(tuple(others))
        found[rest] = found.get(rest, _ZERO) + coefficient
    return found


def _multiple(left: Mapping[Body, Fraction], own: Mapping[Body, Fraction]) -> Fraction:
    """d where the first sum holds d times all terms of the other that are no numbers; 0 where it holds no such multiple."""
    terms = {t: k for t, k in own.items() if t != Const(Fraction(1))}
    first = next(iter(terms), None)
    if first is None or not terms[first]:
        return _ZERO
    d = left.get(first, _ZERO) / terms[first]
    return d if all(left.get(t, _ZERO) == d * k for t, k in terms.items()) else _ZERO


def _bends(args: tuple[Body, ...]) -> tuple[Span, tuple[Body, ...]]:
    """c·relu(y) + d·y is 0 or more for -c <= d <= 0, and 0 or less for 0 <= d <= -c: a range for such parts, and the terms that are left."""
    found = Span(_ZERO, False, _ZERO)
    left = weighted(args)
    for bend in [f for f in left if isinstance(f, Call) and f.name == "relu"]:
        (inner,) = bend.args
        own = weighted(inner.args if isinstance(inner, Add) else (inner,))
        c, d = left[bend], _multiple(left, own)
        if not d or not (-c <= d <= 0 or 0 <= d <= -c):
            continue
        for t, k in {**own, bend: c / d}.items():
            left[t] = left.get(t, _ZERO) - d * k
        found = Span(found.lo, False, inf) if c > 0 else Span(-inf, False, found.hi)
    if found == Span(_ZERO, False, _ZERO):
        return found, args
    return found, tuple(Mul((Const(k), t)) for t, k in left.items() if k)


def _product(args: tuple[Body, ...]) -> Span:
    """Equal factors in pairs are squares."""
    coefficient, found = Fraction(1), Span(Fraction(1), False, Fraction(1))
    for factor, count in Counter(args).items():
        if isinstance(factor, Const) and isinstance(factor.value, Fraction):
            coefficient *= factor.value**count
            continue
        own = span(factor)
        if count % 2 == 0:
            own = ABOVE_0 if own.nonzero else FROM_0
        elif count > 1:
            own = _signs(own, Span(_ZERO, own.nonzero))
        found = own if found == Span(Fraction(1), False, Fraction(1)) else _signs(found, own)
    return _scaled(found, coefficient)


def _signs(a: Span, b: Span) -> Span:
    """Of a product or quotient, its sign."""
    if a.lo >= 0 and b.lo >= 0:
        return Span(_ZERO, a.positive and b.positive)
    if a.lo >= 0 and b.hi <= 0:
        return _signs(a, b.negated()).negated()
    if a.hi <= 0 and a.lo < 0:
        return _signs(a.negated(), b).negated()
    return ANY


def _of_call(name: str, args: tuple[Body, ...]) -> Span:
    function = FUNCTIONS[name]
    if name == "isnan" and state(args[0]) != BROKEN:
        return Span(_ZERO, False, _ZERO)
    found = function.range(*map(span, args))
    if function.below == "finite" and function.strict and any(state(a) != FINITE for a in args):
        return found._replace(lo_open=False)
    return found
