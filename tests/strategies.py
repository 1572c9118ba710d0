"""Random expressions for property tests: small enough to be evaluated point by point with exact rationals.

An expression is drawn by its seed: hypothesis builds a thousand of them in the time that composite strategies take for ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import INF, Body, Call, Cond, Const, Div, Iter, Read, Scope, Select, Tensor, Val, make_add, make_mul, tensors

TENSORS = (Tensor("A", (4,)), Tensor("B", (3, 4)), Tensor("K", (2, 3), weight=True), Tensor("X", (3, 2, 2)), Tensor("S", ()))
LOOPS, SUMS = ("h", "w", "f", "i'"), ("r", "s", "c'")


def repeatable(examples: int) -> settings:
    """The same examples in every run, no time limit for one."""
    return settings(max_examples=examples, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def scopes(depth: int = 1, level: int = 2) -> st.SearchStrategy[Scope]:
    """Scopes with up to `depth` levels of scopes inside, over the tensors of TENSORS; bodies nest `level` operators."""
    return st.integers(0, 1 << 32).map(lambda seed: random_scope(Random(seed), depth, level))


def random_scope(rng: Random, depth: int = 1, level: int = 2, outermost: bool = True) -> Scope:
    """One random scope. Only the outermost reads -inf outside a box: there, it meets no arithmetic."""
    loops = random_iterators(rng, LOOPS, rng.choice((0, 1, 1, 1, 1, 2, 2, 2)))
    sums = random_iterators(rng, SUMS, rng.randrange(3))
    reduce = rng.choice(("sum",) * 6 + ("max", "min"))
    body = random_body(rng, {i.name: i.range for i in (*loops, *sums)}, depth, level)
    if outermost and reduce == "max" and isinstance(body, Read) and rng.random() < 0.5:
        body = Read(body.base, body.index, -INF)
    return Scope(loops, sums, body, reduce)


def random_iterators(rng: Random, names: Sequence[str], count: int, extent: int = 3) -> tuple[Iter, ...]:
    """Iterators with small ranges, not always from 0."""
    lows = [rng.choice((0, 0, 0, -1, 1)) for _ in range(count)]
    return tuple(Iter(n, lo, lo + rng.randint(1, extent)) for n, lo in zip(names, lows, strict=False))


def random_index(rng: Random, names: Sequence[str]) -> Index:
    """A quasi-affine function of some iterators, mostly a plain one."""
    e = Index((), rng.choice((0, 0, 0, 1, -1)))
    for _ in range(rng.choice((0, 1, 1, 2)) if names else 0):
        e = e + rng.choice((1, 1, 1, 2, -1)) * var(rng.choice(names))
    match rng.randrange(10):
        case 0:
            return e // rng.choice((2, 3))
        case 1:
            return e % rng.choice((2, 3))
        case 2:
            return e / 2
    return e


def random_fraction(rng: Random) -> Fraction:
    return Fraction(rng.randint(-3, 3), rng.choice((1, 1, 2, 3)))


def random_body(rng: Random, ranges: Mapping[str, Range], depth: int, level: int) -> Body:
    """A scalar body over the iterators of `ranges`; `depth` more levels of scopes may stand inside it."""
    names = list(ranges)

    def below() -> Body:
        return random_body(rng, ranges, depth, level - 1)

    match rng.randrange(12) if level else 0:
        case 1 | 2:
            return make_add([below() for _ in range(rng.randint(2, 3))])
        case 3 | 4 | 5 | 6:
            return make_mul([below() for _ in range(rng.randint(2, 3))])
        case 7:
            name = rng.choice(("relu", "abs", "sign", "max", "min"))
            return Call(name, tuple(below() for _ in range(2 if name in ("max", "min") else 1)))
        case 8:
            conds = tuple(Cond(random_index(rng, names), rng.random() < 0.5) for _ in range(rng.randint(1, 2)))
            return Select(conds, below(), below() if rng.random() < 0.5 else Const(Fraction(0)))
        case 9:
            return Val(random_index(rng, names))
        case 10:
            return Const(random_fraction(rng))
        case 11:
            return Div(below(), make_add((Const(Fraction(1)), Call("abs", (below(),)))))
    base: Tensor | Scope = random_scope(rng, depth - 1, outermost=False) if depth and rng.random() < 0.7 else rng.choice(TENSORS)
    fill = random_fraction(rng) if rng.random() < 0.2 else Fraction(0)
    return Read(base, tuple(random_index(rng, names) for _ in base.box), fill)


def integer_values(scope: Scope, seed: int = 0) -> dict[str, np.ndarray]:
    """Small integers for all tensors of a scope."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(-4, 5, t.shape) for name, t in tensors(scope).items()}
