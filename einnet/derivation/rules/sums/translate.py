"""translate: a sum over all places of what is moved does not depend on how far it is moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from einnet.derivation.facts import factors, support
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, Range, bounds, simplify, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, index_functions, map_indices, substitute_body
from einnet.expr.normal.totals import total


@rule(
    "translate", order=32,
    guard="h stands in one index function u = (±h + g)/d only, g of other iterators; what is read at u is 0 but where h is in its range for every g",
    kind="reassociation",
)  # fmt: skip
def translate(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[h<H,y] f(u(h,x,y),x,y) = L[x] Σ[u,y] f(u,x,y)

    The sum of a transposed convolution over all of its places is that of its data, whatever the tap. All such sums at once.
    """
    if e.reduce != "sum":
        yield Refused(f"a {e.reduce} reduction has no neutral zeros")
        return
    moved, new, refused = list[str](), e, list[Refused]()
    for h in e.sums:
        place = only_place(new, h)
        result = None if place is None else translated(new, h, place)
        if isinstance(result, Scope):
            moved, new = [*moved, h.name], result
        elif result is not None:
            refused.append(result)
    if moved:
        yield Rewrite(new, ",".join(moved), "reassociation")
    else:
        yield from refused or [Refused("no summed iterator stands in one index function only, beside others")]


def only_place(e: Scope, h: Iter) -> Index | None:
    """The one index function in which the iterator stands, with others and a coefficient of 1 or -1."""
    places = {ix for ix in index_functions(e.body) if h.name in ix.names()}
    if len(places) != 1:
        return None
    (place,) = places
    affine = all(isinstance(a, str) for a, _ in place.terms)
    return place if affine and abs(place.coefficient(h.name)) == 1 and len(place.names()) > 1 else None


def translated(e: Scope, h: Iter, place: Index) -> Scope | Refused:
    """The sum over the values of the index function, which has the iterator's name then."""
    parts, sign, d = factors(e.body), place.coefficient(h.name), place.den
    read = any(isinstance(f, Read) and f.fill == 0 and place in f.index for f in parts)
    if not read or not all(map(total, parts)):
        return Refused(f"nothing that is 0 elsewhere is read at the place of {h.name}, beside numbers")
    rest = substitute(place * d, {h.name: Index()})  # d*u = ±h + rest
    low, high = bounds(rest, e.ranges)
    first, last = (h.lo, h.hi - 1) if sign > 0 else (1 - h.hi, -h.lo)
    wide: Range = (-(-(first + low) // d), (last + high) // d + 1)
    ranges: Mapping[str, Range] = {**e.ranges, h.name: wide}
    body: Body = map_indices(substitute_body(e.body, {h.name: sign * (d * var(h.name) - rest)}), lambda ix: simplify(ix, ranges))
    lo, hi = support(body, h.name, ranges)
    lo, hi = max(lo, wide[0]), min(hi, wide[1])
    if lo >= hi or d * lo < first + high or d * (hi - 1) > last + low:
        return Refused(f"what is read where {h.name} is in its range depends on how far it is moved")
    return replace(e, sums=tuple(Iter(h.name, lo, hi) if i == h else i for i in e.sums), body=body)
