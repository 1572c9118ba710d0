"""Small scopes over a few tensors, all of them: products and sums of reads, with a scope inside, reduced over every choice of iterators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations
from typing import NamedTuple

from einnet.expr.index import var
from einnet.expr.nodes import Body, Call, Cond, Const, Div, Iter, Read, Scope, Select, Tensor, make_add, make_mul, used_names

EXTENTS = {"i": 5, "j": 7, "k": 11, "l": 3}
"""Extents of the iterators by name. Different ones, so that no two orders of contraction cost the same."""


class Bounds(NamedTuple):
    """How large expressions become: factors of a product, of one with a scope inside, of that scope, and of each term of a sum."""

    factors: int = 3
    beside: int = 2
    inside: int = 2
    term: int = 2


def plain_read(name: str, *names: str) -> Read:
    """A tensor with a dimension for each iterator, read by them."""
    return Read(Tensor(name, tuple(EXTENTS[n] for n in names)), tuple(map(var, names)))


READS: tuple[Read, ...] = (
    plain_read("A", "i", "k"), plain_read("B", "k", "j"), plain_read("C", "k", "l"), plain_read("D", "l", "j"),
    plain_read("u", "i"), plain_read("v", "k"), plain_read("w", "j"), Read(Tensor("p", (EXTENTS["i"] + EXTENTS["k"] - 1,)), (var("i") + var("k"),)),
)  # fmt: skip
"""What is read, and how: matrices, vectors, a window."""


MASKS = 2
"""So many of the atoms, the last ones, are conditions on iterators."""


def atoms() -> tuple[Body, ...]:
    """Factors: reads, functions of reads, a mask and an equation of iterators."""
    functions = tuple(Call("relu", (r,)) for r in READS[:2])
    past = var("i") - var("k")
    one, zero = Const(Fraction(1)), Const(Fraction(0))
    masks = (Select((Cond(past),), one, zero), Select((Cond(past, equal=True),), one, zero))
    return (*READS, *functions, *masks)


def bodies(factors: Sequence[Body], most: int) -> Iterator[Body]:
    """Products of up to so many different factors, and a quotient for each of their last."""
    for count in range(1, most + 1):
        for chosen in combinations(factors, count):
            yield make_mul(chosen)
            if count == 2 and isinstance(chosen[1], Read):
                yield Div(chosen[0], chosen[1])


def scopes(body: Body, reduces: Sequence[str] = ("sum", "max")) -> Iterator[Scope]:
    """Every choice of what is reduced, and how. Loops stand in the order of their names; a scope that reads nothing but iterators is none."""
    used = [Iter(n, 0, e) for n, e in EXTENTS.items() if n in used_names(body)]
    for count in range(len(used) + 1):
        for sums in combinations(used, count):
            loops = tuple(i for i in used if i not in sums)
            for reduce in reduces if sums else ("sum",):
                yield Scope(loops, sums, body, reduce)


def expressions(bounds: Bounds) -> Iterator[Scope]:
    """All expressions within the bounds, the small ones first."""
    plain = atoms()
    yield from chain.from_iterable(scopes(b) for b in bodies(plain, bounds.factors) if _reads(b))
    terms = [b for b in bodies(READS, bounds.term) if not isinstance(b, Div)]
    for pair in combinations(terms, 2):
        yield from scopes(make_add(pair), ("sum",))
    others = [b for b in bodies((*READS, *plain[-MASKS:]), bounds.beside) if not isinstance(b, Div)]
    for body in bodies(READS, bounds.inside):
        for inner in scopes(body, ("sum",)):
            if inner.loops and inner.sums:
                here = Read(inner, tuple(var(i.name) for i in inner.loops))
                yield from chain.from_iterable(scopes(make_mul((other, here)), ("sum",)) for other in others)


def size(scope: Scope) -> int:
    """Characters of the notation: what a person has to read."""
    return len(scope.text())


def _reads(body: Body) -> bool:
    return bool(used_names(body)) and any(isinstance(b, (Read, Call)) for b in _parts(body))


def _parts(body: Body) -> tuple[Body, ...]:
    return body.args if hasattr(body, "args") and not isinstance(body, Call) else (body.num, body.den) if isinstance(body, Div) else (body,)
