"""distribute: the linearity of a sum, from products of sums to sums of products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from einnet.derivation.facts import factors, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.forced.tighten import tightened
from einnet.derivation.rules.transitions import ONE, ZERO, masked
from einnet.expr.decided import contrary
from einnet.expr.index import Range, var
from einnet.expr.nodes import Add, Body, Cond, Div, Iter, Read, Scope, Select, indices, is_weight, make_add, make_div, make_mul, used_names
from einnet.expr.values.cancellation import survives


@rule(
    "distribute", order=150,
    guard="a factor of a sum is a sum, a choice by one condition, or a quotient of such; or it does not depend on what is summed",
    kind="reassociation",
)  # fmt: skip
def distribute(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] u*(f + g) = {L[x] Σ[y] u*f}[x] + {L[x] Σ[y] u*g}[x];  L[x] Σ[y] u(x)*f = L[x] u(x)*{L[x] Σ[y] f}[x]

    Terms within one region, select(c, u*(f + g), 0), are terms of which each has it. A choice is a sum, too, of what is 0 on one side and what is 0
    on the other: select(c, f, g) = select(c, f, 0) + select(not c, g, 0), as a concatenation that is read along what is summed. (f + g)/d
    is f/d + g/d.

    Where u is a difference, and so is f + g, nearly equal numbers cancel on the left and do not on the right: that is of class precision, though no
    more is added up in absolute value.
    """
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    found = False
    conds, body = (e.body.conds, e.body.then) if isinstance(e.body, Select) and e.body.other == ZERO else ((), e.body)
    parts = factors(body)
    for n in range(len(parts)):
        opened = opened_at(e, conds, parts, n)
        if opened is not None:
            found, alike = True, survives(e, opened)
            yield Rewrite(opened, f"factor={n}", "reassociation" if alike else "precision", None if alike else 1.0)
    summed = {i.name for i in e.sums}
    free = [] if conds else [f for f in parts if not used_names(f) & summed]
    if free and len(free) < len(parts):
        found = True
        rest = make_mul(f for f in parts if used_names(f) & summed)
        yield Rewrite(Scope(e.loops, (), make_mul((*free, _closed(e, rest)))), "free", "reassociation")
    if not found:
        yield Refused("no factor is a sum or a choice by one condition, and all depend on what is summed")


def opened_at(e: Scope, conds: tuple[Cond, ...], parts: Sequence[Body], n: int) -> Scope | None:
    """A sum for each term of the n-th factor, over the places where it can be more than 0 for each part of a choice; None where it has no terms."""
    products = [masked(conds, make_mul((*parts[:n], term, *parts[n + 1 :]))) for term in terms_of(parts[n], e.ranges)]
    sums = [_closed(e, product) for product in products]
    return Scope(e.loops, (), make_add(sums if isinstance(parts[n], Add) else map(narrowed, sums))) if sums else None


def terms_of(f: Body, ranges: Mapping[str, Range]) -> tuple[Body, ...]:
    """The terms of a sum, and of a choice by one condition, its sides opened, too, and of a quotient of either; none of anything else."""
    if isinstance(f, Add):
        return f.args
    if isinstance(f, Div):
        return tuple(quotient(term, f.den) for term in terms_of(f.num, ranges))
    if not isinstance(f, Select) or f.other == ZERO or not contrary(f.conds):
        return ()
    sides = zip((*f.conds, *contrary(f.conds)), (f.then, f.other), strict=True)
    return tuple(within(holds, term, ranges) for holds, side in sides for term in terms_of(side, ranges) or (side,))


def quotient(num: Body, den: Body) -> Body:
    """num / den; as a product with what is known of weights, so that of two such the weights are multiplied with each other."""
    return make_mul((num, make_div(ONE, den))) if is_weight(den) else make_div(num, den)


def within(c: Cond, body: Body, ranges: Mapping[str, Range]) -> Body:
    """The body where the condition holds, else 0; the body itself where that is 0 beyond, as what is read there is."""
    (name, *others) = c.index.names()
    sign, edge = c.index.coefficient(name), c.index.const
    if not others and sign in (1, -1) and c.index == sign * var(name) + edge:
        lo, hi = ranges[name]
        if zero_outside(body, name, (max(lo, -edge), hi) if sign > 0 else (lo, min(hi, edge + 1)), ranges):
            return body
    return masked((c,), body)


def narrowed(r: Read) -> Read:
    """The read of a sum over the places where it can be more than 0: that of a part of a choice, and not of all of it."""
    return replace(r, base=tightened(r.base)) if isinstance(r.base, Scope) else r


def _closed(e: Scope, body: Body) -> Read:
    """The sum of one product, over the loops that it uses."""
    loops: tuple[Iter, ...] = tuple(i for i in e.loops if i.name in used_names(body))
    return Read(Scope(loops, e.sums, body), indices(loops))
