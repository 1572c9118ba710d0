"""taps: sums whose iterators an index of an operand adds up become one sum over the places that they reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import prod

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, bounds, var
from einnet.expr.nodes import Cond, Const, Iter, Read, Scope, Select, fresh, indices, is_weight, make_mul, used_names
from einnet.expr.notation.printing import print_index


@rule(
    "taps", order=180,
    guard="an index adds up iterators of a sum that the operand has nowhere else, at fewer places than they are",
    kind="reassociation",
)  # fmt: skip
def taps(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] A[φ(x)+ρ(y)]*g(y) = L[x] Σ[t] A[φ(x)+t]*{L[t] Σ[y] select(t == ρ(y), g(y), 0)}[t]

    Two filters one after the other are one filter; so are a filter and the mean of its neighbours. All such indices of an operand at once.
    """
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    found = False
    for place, data in enumerate(factors(e.body)):
        if not isinstance(data, Read) or is_weight(data):
            continue
        result, parameters = e, list[str]()
        for d in range(len(data.index)):
            gathered = _gathered(result, place, d)
            if gathered is not None:
                result, place, text = gathered
                parameters.append(text)
        if parameters:
            found = True
            yield Rewrite(result, ", ".join(parameters), "reassociation")
    if not found:
        yield Refused("no index of an operand adds up iterators of the sum that reach fewer places than there are of them")


def _gathered(e: Scope, place: int, d: int) -> tuple[Scope, int, str] | None:
    """The sum with the iterators of one index of the operand at a place as one, and the operand's place in it; None where that index has no such."""
    parts = factors(e.body)
    data = parts[place]
    assert isinstance(data, Read)
    point = _added_up(e, data, d)
    if not point.terms:
        return None
    own = tuple(i for i in e.sums if i.name in point.names())
    lo, hi = bounds(point, e.ranges)
    places = [n for n, f in enumerate(parts) if n != place and used_names(f) & {i.name for i in own}]
    if hi - lo + 1 >= prod(i.extent for i in own) or not places:
        return None
    t = Iter(fresh("t", e.ranges), lo, hi + 1)
    body = Select((Cond(var(t.name) - point, True),), make_mul([parts[n] for n in places]), Const(Fraction(0)))
    rest = tuple(i for i in e.sums if i not in own)
    kept = (*(i for i in (*e.loops, *rest) if i.name in used_names(body)), t)
    read = replace(data, index=tuple(ix - point + var(t.name) if k == d else ix for k, ix in enumerate(data.index)))
    whole = without((*parts[:place], read, *parts[place + 1 :]), *places)
    text = f"{t.name}={print_index(point, [i.name for i in (*e.loops, *e.sums)])}"
    result = Scope(e.loops, (*rest, t), make_mul((*whole, Read(Scope(kept, own, body), indices(kept)))))
    return result, place - sum(n < place for n in places), text


def _added_up(e: Scope, data: Read, d: int) -> Index:
    """ρ: the part of an index of the operand in which iterators of the sum stand that no other of its indices has; 0 where there are others."""
    ix, summed = data.index[d], {i.name for i in e.sums}
    point = Index(tuple((a, c) for a, c in ix.terms if (a in summed if isinstance(a, str) else not summed.isdisjoint(a.num.names()))))
    own = point.names() & summed
    return point if ix.den == 1 and all(k == d or own.isdisjoint(other.names()) for k, other in enumerate(data.index)) else Index()
