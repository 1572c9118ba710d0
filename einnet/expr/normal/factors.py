"""Single factors and bodies of normal forms: numbers, functions of numbers, quotients, masks, and what is infinite. None is expanded here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from einnet.expr.index import Index, var
from einnet.expr.nodes import (
    INF,
    Add,
    Body,
    Call,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    Val,
    bodies_in,
    children,
    fresh,
    indices,
    used_names,
    walk,
)  # fmt: skip
from einnet.expr.normal.terms import Term
from einnet.expr.values.rationals import folded

ONE = Const(Fraction(1))


def lone(factor: Body) -> list[Term]:
    """A factor as a term."""
    if isinstance(factor, Const) and not isinstance(factor.value, float):
        return [Term(factor.value)] if factor.value else []
    return [Term(factors=(factor,))]


def evaluated(name: str, args: tuple[Body, ...]) -> Body:
    """The function of some normal forms, evaluated where they are numbers and its value is rational."""
    numbers = tuple(a.value for a in args if isinstance(a, Const) and isinstance(a.value, Fraction))
    value = folded(name, numbers) if len(numbers) == len(args) else None
    return Call(name, args) if value is None else Const(value)


def inverted(den: Body) -> Body:
    """1 / den."""
    return Const(1 / den.value) if isinstance(den, Const) and not isinstance(den.value, float) and den.value else Div(ONE, den)


def infinite(body: Body) -> bool:
    """The body is, or may be through a fill, infinite."""
    match body:
        case Const(v):
            return isinstance(v, float)
        case Read(_, _, fill):
            return isinstance(fill, float)
        case Add(args) | Mul(args) | Call(_, args):
            return any(map(infinite, args))
        case Div(num, den):
            return infinite(num) or infinite(den)
        case Select(_, then, other):
            return infinite(then) or infinite(other)
    return False


def joint(body: Body) -> bool:
    """There is the value of a place that is more than one iterator, or a reduction read where several make one, or where values of such places would
    stand in it: normal forms have a sum of values, and no such place."""
    if isinstance(body, Val):
        return not _alone(body.index)
    if isinstance(body, Read):
        return isinstance(body.base, Scope) and (
            any(len(ix.terms) > 1 for ix in body.index) or (not all(map(_alone, body.index)) and tells_places(body.base))
        )
    return any(map(joint, children(body)))


def _alone(ix: Index) -> bool:
    """The index function is one iterator, or a floor division, and nothing more."""
    return ix.den == 1 and ix.const == 0 and [c for _, c in ix.terms] == [1]


@lru_cache(maxsize=1 << 14)
def tells_places(scope: Scope) -> bool:
    """A value of a place stands in the scope, or in those that it reads."""
    return any(isinstance(b, Val) for s in walk(scope) for b in bodies_in(s.body))


def mask(term: Term) -> Select | None:
    """The term is c ? y : -inf for a finite y."""
    if len(term.factors) != 1:
        return None
    (factor,) = term.factors
    found = isinstance(factor, Select) and factor.other == Const(-INF) and not infinite(factor.then)
    return factor if found and isinstance(factor, Select) else None


def scale(name: str, coefficient: Fraction) -> Fraction:
    """By what an argument is divided: f(c·x) is c·f(x) of relu and c > 0, |c|·f(x) of abs, f(x) of sign and c > 0."""
    return coefficient if name == "abs" else abs(coefficient) if name in ("relu", "sign") else Fraction(1)


def holds(term: Term, other: Term) -> bool:
    """The factors of the other term are among those of the first."""
    return set(other.factors) <= set(term.factors)


def as_read(done: Scope) -> Scope:
    """A maximum or minimum as what only reads it is written: read at its own loops, over those that it uses."""
    used = used_names(done.body)
    loops = tuple(i for i in done.loops if i.name in used)
    return Scope(done.loops, (), Read(replace(done, loops=loops), indices(loops)))


def apart(term: Term, taken: Iterable[str]) -> Term:
    """The term with its sums named differently from `taken`."""
    used = set(taken)
    if all(i.name not in used for i in term.sums):
        return term
    own = {i.name for i in term.sums}
    renamed: dict[str, str] = {}
    for i in term.sums:
        if i.name in used:
            renamed[i.name] = fresh(i.name, used | own)
            own.add(renamed[i.name])
    sums = tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in term.sums)
    return term.substitute({old: var(new) for old, new in renamed.items()}, sums)
