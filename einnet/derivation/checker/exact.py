"""What a step of class exact may change: where numbers stand, never which of them are added or multiplied together.

Every sum, + and × is made to depend on its grouping by a function f of which nothing is known but f(0) = 0: a product becomes f(a·b), a + b becomes
a + b + f(a·b), and Σ a becomes f(Σ a), or where that is too coarse Σ a + f((Σ a)² - Σ a²). The forms with squares are what they were where no
more than one term is not 0, as adding zeros rounds nothing. Two scopes that are equal with that in place, as the checker proves like any other
equality, add and multiply the same numbers in the same groups. The order within one sum, + or × is not told, as in the notation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from einnet.expr.nodes import Add, Body, Call, Const, Mul, Read, Scope, Tensor, children, indices, make_mul, negate, rebuild, walk
from einnet.expr.normal.totals import total

SUM, PRODUCT = "erf", "tanh"
"""The functions, one for sums and one for products: any that are 0 at 0 and that normal forms and evaluation modulo a prime know no more of."""

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


Pair = tuple[Scope, Scope]


def apart(before: Scope, after: Scope, *, numbers: bool = False, evenly: bool = False, only: Callable[[Scope], bool] = lambda _: True) -> Pair:
    """The two scopes with what both of them read, unchanged, as tensors: what is equal then is equal.

    With `numbers` only what is a number at every place: a tensor is one, and 0 times what may not exist is not 0. Without, for scopes that are
    known to be equal, and asked how they group. With `evenly` only what both read equally often: what one side reads more often, the other one may
    read in another way. `only` says which scopes are cut away.
    """
    left, right = _read_within(before), _read_within(after)
    common = (s for s, often in left.items() if (often == right.get(s) if evenly else s in right))
    cut = frozenset(s for s in common if only(s) and (not numbers or total(Read(s, indices(s.loops)))))
    return (_cut(before, cut), _cut(after, cut)) if cut else (before, after)


def name_apart(scope: Scope) -> str:
    """The name of the tensor that stands for a scope which is cut away."""
    return f"scope_{scope.key}"


@lru_cache(maxsize=1 << 8)
def _read_within(scope: Scope) -> Mapping[Scope, int]:
    """How often each scope is read inside a scope."""
    return Counter(s for s in walk(scope) if s is not scope)


def partings(before: Scope, after: Scope, *, numbers: bool = False) -> tuple[Pair, ...]:
    """The two scopes with more and more of them left: without what both read, without what both read equally often, and as they are."""
    cut = (apart(before, after, numbers=numbers, evenly=evenly) for evenly in (False, True))
    return tuple(dict.fromkeys((*cut, (before, after))))


def _cut(scope: Scope, common: frozenset[Scope]) -> Scope:
    return replace(scope, body=_cut_body(scope.body, common))


def _cut_body(body: Body, common: frozenset[Scope]) -> Body:
    if isinstance(body, Read) and isinstance(body.base, Scope):
        if body.base not in common:
            return Read(_cut(body.base, common), body.index, body.fill)
        index = tuple(e - lo for e, (lo, _) in zip(body.index, body.base.box, strict=True))
        return Read(Tensor(name_apart(body.base), body.base.shape), index, body.fill)
    args = tuple(_cut_body(a, common) for a in children(body))
    return rebuild(body, args) if args else body


@lru_cache(maxsize=1 << 12)
def marked(scope: Scope, squares: bool = False) -> Scope:
    """The scope with its sums and operations marked, and those of the scopes that it reads."""
    inner = replace(scope, body=_marked(scope.body, squares))
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
    args = tuple(_marked(a, squares) for a in children(body))
    if isinstance(body, Mul):
        left = tuple(a for a in args if a != ONE)
        return Call(PRODUCT, (Mul(left),)) if len(left) > 1 else left[0] if left else ONE
    if isinstance(body, Add):
        left = tuple(a for a in args if a != ZERO)
        return Add((*left, *(Call(SUM, (Mul(pair),)) for pair in combinations(left, 2)))) if len(left) > 1 else left[0] if left else ZERO
    return rebuild(body, args) if args else body
