"""Random scopes of what need not be a number: quotients, masks, infinite fills, choices between them, and scopes that are read beyond their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

from einnet.expr.index import Index, var
from einnet.expr.nodes import INF, Body, Call, Cond, Const, Div, Iter, Read, Scope, Select, Tensor, make_add, make_mul

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))
VECTORS = tuple(Tensor(n, (4,)) for n in "ABM")
SQUARE, SINGLE = Tensor("S", (4, 4)), Tensor("U", (1,))
TABLE = Tensor("C", (4,), weight=True, values=tuple(map(Fraction, (1, -2, 0, 3))))


def loose_scope(rng: Random) -> Scope:
    """Four elements, of sums and maxima or of none."""
    sums = (Iter("k", 0, rng.choice((2, 4))),) if rng.random() < 0.5 else ()
    body = loose_body(rng, ["i", *(i.name for i in sums)], rng.choice((2, 2, 3)))
    return Scope((Iter("i", 0, 4),), sums, body, rng.choice(("sum", "sum", "max")) if sums else "sum")


def loose_body(rng: Random, names: Sequence[str], level: int, scopes: bool = True) -> Body:
    """A body over some iterators."""
    if not level or rng.random() < 0.1:
        return leaf(rng, names)

    def below() -> Body:
        return loose_body(rng, names, level - 1, scopes)

    match rng.randrange(18):
        case 0 | 1 | 2 | 3:
            return make_add((below(), rng.choice((below(), make_mul((Const(-Fraction(1)), below()))))))
        case 4 | 5 | 6 | 7:
            return make_mul((below(), below()))
        case 8:
            return Div(below(), below())
        case 9 | 10 | 11:
            conds = tuple(condition(rng, names) for _ in range(rng.choice((1, 1, 2))))
            return Select(conds, below(), rng.choice((ZERO, Const(-INF), below())))
        case 12:
            return Call(rng.choice(("relu", "abs", "sign", "not")), (below(),))
        case 13:
            return Call(rng.choice(("max", "min", "less", "equal")), (below(), below()))
        case 14:
            return Call("choose", (below(), below(), below()))
    return read_beyond(rng, names, level) if scopes else leaf(rng, names)


def leaf(rng: Random, names: Sequence[str]) -> Body:
    n, m = var(rng.choice(names)), var(rng.choice(names))
    fill = rng.choice((Fraction(0), Fraction(0), Fraction(1), -INF, INF))
    match rng.randrange(9):
        case 0 | 1:
            return Read(rng.choice(VECTORS), (n,))
        case 2:
            return Read(VECTORS[0], (n + rng.choice((1, -1, 2)),), fill)
        case 3:
            return Read(SQUARE, (n, m - rng.choice((0, 1))), fill)
        case 4:
            return Read(TABLE, (m,))
        case 5:
            return Div(ONE, Read(rng.choice(VECTORS), (n,)))
        case 6:
            return Select((condition(rng, names),), Read(rng.choice(VECTORS), (n,)), Const(rng.choice((-INF, INF))))
        case 7:
            return Read(SINGLE, (rng.choice((Index(), n)),))
    return Const(Fraction(rng.choice((0, 1, -1, 2))))


def condition(rng: Random, names: Sequence[str]) -> Cond:
    n, m = var(rng.choice(names)), var(rng.choice(names))
    return rng.choice((
        Cond(n - rng.randrange(4)), Cond(rng.randrange(4) - n), Cond(n - rng.randrange(4), True), Cond(n % 2, True), Cond(n - m - rng.randrange(2)),
    ))  # fmt: skip


def read_beyond(rng: Random, names: Sequence[str], level: int) -> Body:
    """A read of a scope, which may leave its box, with any fill."""
    low, n = rng.choice((0, 0, 1)), var(rng.choice(names))
    loops = (Iter("h", low, rng.choice((2, 3, 4))),)
    sums = (Iter("s", 0, rng.choice((1, 2, 4))),) if rng.random() < 0.6 else ()
    body = loose_body(rng, ["h", *(i.name for i in sums)], level - 1, scopes=False)
    reduce = rng.choice(("sum", "sum", "sum", "max", "min")) if sums else "sum"
    at = rng.choice((n, n - 1, n + 1, 3 - n, n // 2, n / 2))
    return Read(Scope(loops, sums, body, reduce), (at,), rng.choice((Fraction(0), Fraction(1), -INF)))
