"""scale: factors and divisors that what is summed does not change leave the sum, out of the scopes that it reads too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import in_range
from einnet.expr.nodes import Body, Const, Div, Read, Scope, indices, inside, make_mul, substitute_body, used_names
from einnet.expr.normal.totals import total

ONE = Const(Fraction(1))

Parts = tuple[list[Body], list[Body]]
"""Factors and divisors."""


@rule(
    "scale",
    order=160,
    guard="a divisor, or a factor of a scope that is read, does not depend on what is summed; where that scope is read outside its box, "
    "it is 0 there, and what leaves it is a number everywhere",
    kind="reassociation",
)
def scale(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] (f/u(x))*g = L[x] {L[x] Σ[y] f*g}[x]/u(x);  Σ[y] {L[z,w] f*u(z)}[Φ(x),Ψ]*g = u(Φ)*{Σ[y] {L[z,w] f}[Φ,Ψ]*g}[x]"""
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    found = _scaled(e)
    why = "all that divides or scales a factor depends on what is summed, or changes what is read outside a box"
    yield Refused(why) if found is None else Rewrite(found, "all", "reassociation")


def _scaled(e: Scope) -> Scope | None:
    """The right-hand side, with all such factors outside; None where there are none."""
    outside: Parts = ([], [])
    within: list[Body] = []
    hidden = False
    for f in factors(e.body):
        multiply, divide, rest = _taken(e, f)
        outside[0].extend(multiply)
        outside[1].extend(divide)
        within += [] if rest == ONE else [rest]
        hidden = hidden or bool(divide) or (rest != f and isinstance(f, Read))
    if not hidden or not within:
        return None
    body = make_mul(within)
    own = tuple(i for i in e.loops if i.name in used_names(body))
    top = make_mul((*outside[0], Read(Scope(own, e.sums, body), indices(own))))
    return Scope(e.loops, (), Div(top, make_mul(outside[1])) if outside[1] else top)


def _taken(e: Scope, f: Body) -> tuple[list[Body], list[Body], Body]:
    """What leaves the sum of a factor, as factors and as divisors, and what stays."""
    summed = {i.name for i in e.sums}
    if isinstance(f, Read) and isinstance(f.base, Scope) and not f.base.sums:
        return _out_of(e, f, f.base)
    if not used_names(f) & summed:
        return [f], [], ONE
    multiply, divide = quotient(f)
    free = [p for p in multiply if not used_names(p) & summed]
    free_divisors = [p for p in divide if not used_names(p) & summed]
    if not free_divisors:
        return [], [], f
    return free, free_divisors, _fraction([p for p in multiply if p not in free], [p for p in divide if p not in free_divisors])


def _out_of(e: Scope, r: Read, s: Scope) -> tuple[list[Body], list[Body], Body]:
    """The same for the read of a scope that reduces nothing: what depends only on dimensions that are read at the loops of e, within their range."""
    loops = {i.name for i in e.loops}
    place = {i.name: ix for i, ix in zip(s.loops, r.index)}
    fixed = {i.name for i in s.loops if place[i.name].names() <= loops and in_range(place[i.name], i.range, e.ranges)}
    if len(fixed) == len(s.loops):
        return [r], [], ONE
    multiply, divide = quotient(s.body)
    free, free_divisors = _free(multiply, divide, fixed)
    if not inside(r, e.ranges):  # what is read there is the fill, not a product: only 0 stays what it is, and only times numbers
        free, free_divisors = _numbers(free, free_divisors) if r.fill == 0 else ([], [])
    if not (free or free_divisors) or set(multiply) <= set(free):
        return [], [], r
    left, left_divisors = ([p for p in parts if p not in out] for parts, out in ((multiply, free), (divide, free_divisors)))
    outside, below = ([substitute_body(p, place) for p in parts] for parts in (free, free_divisors))
    return outside, below, replace(r, base=replace(s, body=_fraction(left, left_divisors)))


def _free(multiply: Sequence[Body], divide: Sequence[Body], fixed: set[str]) -> Parts:
    """Factors and divisors that depend on no other iterator; a constant stays."""
    return [p for p in multiply if used_names(p) <= fixed and not isinstance(p, Const)], [p for p in divide if used_names(p) <= fixed]


def _numbers(multiply: Sequence[Body], divide: Sequence[Body]) -> Parts:
    """Those that are numbers, and by which numbers are divided, for all values."""
    return [p for p in multiply if total(p)], [p for p in divide if total(Div(ONE, p))]


def quotient(f: Body) -> Parts:
    """Factors and divisors of a body, divisions within products and within divided bodies taken apart."""
    if not isinstance(f, Div):
        apart: list[Parts] = [quotient(p) if isinstance(p, Div) else ([p], []) for p in factors(f)]
        return [x for above, _ in apart for x in above], [x for _, below in apart for x in below]
    above, below = quotient(f.num)
    return above, [*below, *factors(f.den)]


def _fraction(above: Sequence[Body], below: Sequence[Body]) -> Body:
    return Div(make_mul(above), make_mul(below)) if below else make_mul(above)
