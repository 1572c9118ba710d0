"""determine: an operand with one element along a dimension is read there alone, which determines a summation iterator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.band import lies_in
from einnet.expr.index import Index, bounds, in_range, simplify, var
from einnet.expr.nodes import Cond, Const, Iter, Read, Scope, Select, map_indices, substitute_body
from einnet.expr.notation.printing import print_index


@rule("determine", order=190, guard="a factor of the sum is 0 but where an index that holds y is one number", kind="reassociation")
def determine(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y<Y] A[φ(x)-y]*g(y) = L[x] select(φ in Y, A[0]*g(φ), 0), where A has one element

    A transposed convolution of one pixel is a product: each of its taps is written at a place of its own. All such iterators at once.
    """
    result, told, conds = e, list[str](), list[Cond]()
    while (found := equation(result)) is not None:
        i, value = found
        told.append(f"{i.name}={print_index(value, [k.name for k in (*e.loops, *e.sums)])}")
        conds += lies_in(value, i.range, bounds(value, result.ranges))
        body = map_indices(substitute_body(result.body, {i.name: value}), lambda ix: simplify(ix, e.ranges))
        result = replace(result, sums=tuple(k for k in result.sums if k != i), body=body)
    if conds:
        result = replace(result, body=Select(tuple(conds), result.body, Const(Fraction(0))))
    yield Rewrite(result, ", ".join(told)) if told else Refused("no operand with one element along a dimension determines what is summed")


def equation(e: Scope) -> tuple[Iter, Index] | None:
    """An iterator of the sum and what it is where a factor need not be 0; None where no factor says so."""
    for r in factors(e.body) if e.reduce == "sum" else ():
        for ix, (lo, hi) in zip(r.index, r.base.box) if isinstance(r, Read) and r.fill == 0 else ():
            if hi - lo != 1 or in_range(ix, (lo, hi), e.ranges):
                continue
            rest = Index(ix.terms, ix.const) - ix.den * lo
            for i in e.sums:
                c = rest.coefficient(i.name)
                value = (rest - c * var(i.name)) * -c
                if c in (1, -1) and i.name not in value.names():
                    return i, value
    return None
