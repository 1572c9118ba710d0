"""What a step of class exact may change: where numbers stand, never which of them are added or multiplied together.

Every sum, + and × is made to depend on its grouping by a function f of which nothing is known but f(0) = 0 and that it is a number: a product
becomes f(a·b), a + b becomes a + b + f(a)·f(b), which is -inf where a mask makes one of them so, and Σ a becomes f(Σ a), or where that is too coarse
Σ a + f((Σ a)² - Σ a²). The forms with squares are what they were where no more than one term is not 0, as adding zeros rounds nothing. Two scopes
that are equal with that in place, as the checker proves like any other equality, add and multiply the same numbers in the same groups. The order
within one sum, + or × is not told, as in the notation.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from einnet.expr.nodes import Add, Body, Call, Const, Mul, Read, Scope, children, indices, make_mul, map_reads, negate, number_read, rebuild
from einnet.expr.normal.totals import vanishes

SUM, PRODUCT = "erf", "tanh"
"""The functions, one for sums and one for products: any that are 0 at 0 and that normal forms and evaluation modulo a prime know no more of."""

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


@lru_cache(maxsize=1 << 12)
def marked(scope: Scope, squares: bool = False) -> Scope:
    """The scope with its sums and operations marked, and those of the scopes that it reads."""
    body = map_reads(scope.body, lambda r: number_read(r, scope.ranges) or r)  # a factor 1 is none, wherever it stands
    inner = replace(scope, body=_marked(body, squares))
    if scope.reduce != "sum" or all(i.extent == 1 for i in scope.sums):
        return inner
    total = Read(inner, indices(scope.loops))
    if not squares:
        return Scope(scope.loops, (), Call(SUM, (total,)))
    square = Read(replace(inner, body=make_mul((inner.body, inner.body))), indices(scope.loops))
    return Scope(scope.loops, (), Add((total, Call(SUM, (Add((Mul((total, total)), negate(square))),)))))


def _marked(body: Body, squares: bool) -> Body:
    if isinstance(body, Read):
        return Read(marked(body.base, squares), body.index, body.fill) if isinstance(body.base, Scope) else body
    if isinstance(body, Mul) and vanishes(body.args):
        return ZERO  # told before the other factors are marked, of which it is then not known that they are numbers
    args = tuple(_marked(a, squares) for a in children(body))
    if isinstance(body, Mul):
        left = tuple(a for a in args if a != ONE)
        return Call(PRODUCT, (Mul(left),)) if len(left) > 1 else left[0] if left else ONE
    if isinstance(body, Add):
        left = tuple(a for a in args if a != ZERO)
        pairs = (Mul(pair) for pair in combinations([Call(SUM, (a,)) for a in left], 2))
        return Add((*left, *pairs)) if len(left) > 1 else left[0] if left else ZERO
    return rebuild(body, args) if args else body
