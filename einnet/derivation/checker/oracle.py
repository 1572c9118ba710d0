"""The second oracle: two expressions evaluated over the reals, where an order, a zero or a tie decides what residues cannot tell.

Many draws are compared in doubles. Where those disagree, one point is evaluated exactly, or in intervals, and only a difference that no rounding
can explain refutes; it comes with the values that show it. Agreement is evidence, as it is modulo a prime.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.derivation.checker.draws import GENERIC, SMALL, Choice, Draw, Element, draws
from einnet.errors import UsageError
from einnet.expr.nodes import Body, Call, Const, Div, Read, Scope, Tensor, children, functions_in, nested, tensors, walk
from einnet.expr.values.arithmetic import Arithmetic, Machine, Strict
from einnet.expr.values.intervals import Enclosures, apart
from einnet.expr.values.points import elements_read, values_at, work
from einnet.expr.values.rationals import Rationals

POLYNOMIAL, QUOTIENT, ORDERED = 0, 1, 2

_BUDGET = 150_000
"""Body evaluations per side and draw."""
_EXACT = 3_000
"""Body evaluations per side for exact rationals, above which intervals decide."""
_ENCLOSED = 2_000_000
_SUSPECTS = 6
"""Points of a draw that are looked at again where doubles disagree."""
_TRACED = 200_000
"""Body evaluations per side for which it is seen what one value reads."""
_SINGLED = 40
"""Elements that are singled out at a point."""
_PLACES = 12
_CLOSE = 1e-11

_FLOATS, _IEEE, _RATIONALS, _ENCLOSURES = Strict(), Machine("float64"), Rationals(), Enclosures()
Points = NDArray[np.int64]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Witness:
    """What shows that two expressions differ: a point of the output, values for all tensors, and what the two sides are there."""

    point: Point
    draw: Draw
    left: str
    right: str
    reads: tuple[tuple[str, str], ...] = ()
    """Elements that matter, and their values."""

    def arrays(self, scope: Scope) -> dict[str, NDArray[Any]]:
        """The values of the scope's tensors as exact rationals."""
        return {n: self.draw.array(t) for n, t in tensors(scope).items() if t.values is None}

    def __str__(self) -> str:
        shown = ", ".join(f"{name} = {value}" for name, value in self.reads)
        return f"{self.left} before, {self.right} after" + (f", where {shown}" if shown else "") + f" (values: {self.draw.title})"


@lru_cache(maxsize=1 << 12)
def nature(scope: Scope) -> int:
    """What decides about a scope: POLYNOMIAL where it is sums and products, QUOTIENT with divisions, ORDERED with functions or truth values."""
    own = ORDERED if scope.reduce != "sum" else _nature(scope.body)
    return max((own, *map(nature, nested(scope))))


def _nature(body: Body) -> int:
    match body:
        case Call():
            return ORDERED
        case Const(v) | Read(_, _, v) if isinstance(v, float):
            return ORDERED
        case Read(Tensor(dtype="bool")):  # a power of what is 0 or 1 is that itself
            return ORDERED
        case Div(_, den):
            own = QUOTIENT if not isinstance(den, Const) or not den.value else POLYNOMIAL
            return max((own, *map(_nature, children(body))))
    return max(map(_nature, children(body)), default=POLYNOMIAL)


def witness(before: Scope, after: Scope, points: Points, every: Points) -> Witness | int:
    """A difference, or how many values were compared and agreed: at `points` for all draws, at `every` point for one.

    Raises UsageError for index functions beyond 62 bits.
    """
    named = {**tensors(before), **tensors(after)}
    reads = _reads(before, after, points)
    counts: dict[str, int] = {}
    for at in reads.values():
        for side in at:
            for name, _ in side:
                counts[name] = counts.get(name, 0) + 1
    average = {n: max(1, c // (2 * len(reads))) for n, c in counts.items()}
    here = _affordable(before, after, points)
    agreed = 0
    if len(every) > len(here):
        found = _compared(before, after, every, Draw("generic", Choice(GENERIC, "every")))
        if isinstance(found, Witness):
            return _told(found, before, after, named)
    for draw in draws(before, after, tuple(named.values()), average):
        found = _compared(before, after, here, draw)
        if isinstance(found, Witness):
            return _told(found, before, after, named)
        agreed += found
        if not any(t.values is None for t in named.values()):
            break
    singled = _singled(before, after, reads, named)
    return _told(singled, before, after, named) if singled else agreed


def reproduced(before: Scope, after: Scope, point: Point) -> Witness | None:
    """Real values for a difference at a point that is known modulo a prime; None where none is found soon."""
    at = np.asarray(point, dtype=np.int64)
    for title, palette in (("small whole numbers", SMALL), ("generic", GENERIC)):
        for seed in range(4):
            draw = Draw(f"{title} {seed}", Choice(palette, f"again {seed}"))
            found = _decided(before, after, at, draw)
            if isinstance(found, Witness):
                return _told(found, before, after, {**tensors(before), **tensors(after)})
    return None


def _cost(before: Scope, after: Scope) -> int:
    """Body evaluations per side for one value: at least one, as none are needed where nothing is summed."""
    return max(1, work(before, 1), work(after, 1))


def _affordable(before: Scope, after: Scope, points: Points) -> Points:
    """As many of the points as the budget of a draw allows, spread over all."""
    count = len(points)
    while count > 1 and max(work(before, count), work(after, count)) > _BUDGET:
        count //= 2
    if count == len(points):
        return points
    generator = random.Random(0)
    first = generator.sample(range(min(len(points), 2 * count)), count // 2)
    chosen = sorted({*first, *generator.sample(range(len(points)), count - len(first))})
    return np.asarray(points[np.asarray(chosen)])


def _values(scope: Scope, points: Points, draw: Draw, system: Arithmetic = _FLOATS) -> NDArray[np.float64]:
    return np.asarray(values_at(scope, points, system, draw.floats), dtype=np.float64)


@lru_cache(maxsize=1 << 12)
def _asks(scope: Scope) -> bool:
    """It asks whether a value is NaN, which only IEEE 754 says of what does not exist."""
    return any("isnan" in functions_in(s.body) for s in walk(scope))


def _compared(before: Scope, after: Scope, points: Points, draw: Draw) -> Witness | int:
    """A difference under a draw, or how many points agree."""
    left, right = _values(before, points, draw), _values(after, points, draw)
    close = _close(left, right)
    suspects = _suspects(left, right, close)
    if _asks(before) or _asks(after):
        one, other = (_values(s, points, draw, _IEEE) for s in (before, after))
        suspects += [k for k in _suspects(one, other, _close(one, other)) if k not in suspects]
    for k in suspects:
        found = _decided(before, after, points[k], draw)
        if isinstance(found, Witness):
            return found
    return int((close & np.isfinite(left)).sum())


def _close(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where doubles agree but for rounding, or both are NaN."""
    with np.errstate(all="ignore"):
        gap = np.abs(left - right)
        near = np.isfinite(gap) & (gap <= _CLOSE * np.maximum(np.abs(left), np.abs(right)))
        return np.asarray(near | (left == right) | (np.isnan(left) & np.isnan(right)))


def _suspects(left: NDArray[np.float64], right: NDArray[np.float64], close: NDArray[np.bool_]) -> list[int]:
    """A few points where doubles do not agree, those that are furthest apart first."""
    found = np.flatnonzero(~close)
    with np.errstate(all="ignore"):
        share = np.abs(left - right)[found] / np.maximum(np.abs(left), np.abs(right))[found]
    order = np.argsort(-np.nan_to_num(share, nan=2.0), kind="stable")
    return [int(k) for k in found[order][:_SUSPECTS]]


def _decided(before: Scope, after: Scope, point: Points, draw: Draw) -> Witness | None:
    """A difference at a point that no rounding explains: by exact rationals where all is rational and there is little of it, else by intervals."""
    at, cost = point[np.newaxis], _cost(before, after)
    if cost <= _EXACT:
        try:
            one, other = (values_at(s, at, _RATIONALS, draw.rationals)[0] for s in (before, after))
        except UsageError:
            pass
        else:
            if one == other or (one != one and other != other):
                return None
            return Witness(_point(point), draw, _number(one), _number(other))
    if cost > _ENCLOSED:
        return None
    left, right = (values_at(s, at, _ENCLOSURES, draw.enclosures) for s in (before, after))
    if not apart(left, right)[0]:
        return None
    return Witness(_point(point), draw, _between(complex(left[0])), _between(complex(right[0])))


def _point(point: Points) -> Point:
    return tuple(int(x) for x in point)


def _number(value: object) -> str:
    return "undefined" if value != value else str(value)


def _between(value: complex) -> str:
    if value != value:
        return "undefined"
    return repr(value.real) if value.real == value.imag else f"{value.real:.12g}" if isinf(value.imag) else f"{(value.real + value.imag) / 2:.12g}"


def _reads(before: Scope, after: Scope, points: Points) -> dict[Point, tuple[frozenset[Element], frozenset[Element]]]:
    """What the two sides read at a few points: the first, the last and some between."""
    count = min(_PLACES, _TRACED // _cost(before, after))
    if not count or not len(points):
        return {}
    chosen = np.unique(np.linspace(0, len(points) - 1, count).astype(np.int64))
    return {_point(points[k]): (elements_read(before, _point(points[k])), elements_read(after, _point(points[k]))) for k in chosen}


def _singled(
    before: Scope, after: Scope, reads: Mapping[Point, tuple[frozenset[Element], frozenset[Element]]], named: Mapping[str, Tensor]
) -> Witness | None:
    """Differences that one element makes: greatest, least, or 0 among the others. Elements that only one side reads come first."""
    budget = 8 * _BUDGET
    for point, (left, right) in reads.items():
        at = np.asarray([point], dtype=np.int64).reshape(1, len(point))
        cost = _cost(before, after)
        single, shared = sorted(left ^ right), sorted(left & right)
        some = random.Random(len(shared)).sample(shared, min(len(shared), _SINGLED))
        for n, element in enumerate((*single[:_SINGLED], *some)):
            for draw in _spikes(element, n < len(single)):
                budget -= cost
                if budget < 0:
                    return None
                found = _compared(before, after, at, draw)
                if isinstance(found, Witness):
                    return found
    return None


def _spikes(element: Element, alone: bool) -> Iterator[Draw]:
    """Values among which one element stands out; more of them where one side alone reads it."""
    name = f"{element[0]} at {element[1]}"
    generic, negative = Choice(GENERIC, "spike"), Choice(tuple(-abs(c) - 1 for c in GENERIC), "spike")
    yield Draw(f"{name} is greatest", generic, apart={element: Fraction(64)})
    yield Draw(f"{name} is least", generic, apart={element: Fraction(-64)})
    if alone:
        yield Draw(f"{name} is 0 among negative", negative, apart={element: Fraction(0)})
        yield Draw(f"{name} is greatest of negative", negative, apart={element: Fraction(-1, 2)})
        yield Draw(f"{name} is least of positive", Choice(tuple(abs(c) + 1 for c in GENERIC), "spike"), apart={element: Fraction(1, 2)})
        yield Draw(f"{name} is the only one", Choice(), apart={element: Fraction(3)})
        yield Draw(f"{name} is the only one, negative", Choice(), apart={element: Fraction(-3)})
        yield Draw(f"{name} is 0", generic, apart={element: Fraction(0)})


_SHOWN = 8


def _told(found: Witness, before: Scope, after: Scope, named: Mapping[str, Tensor]) -> Witness:
    """The witness with the elements that are read there, where they are few enough to name."""
    if _cost(before, after) > _TRACED:
        return found
    both = sorted(elements_read(before, found.point) | elements_read(after, found.point))
    both.sort(key=lambda e: e not in found.draw.apart)
    shown = tuple((_element(named[n], a), str(found.draw.exact(named[n], a))) for n, a in both[:_SHOWN])
    more = (("and", f"{len(both) - _SHOWN} elements more"),) if len(both) > _SHOWN else ()
    return replace(found, reads=(*shown, *((f"{k} {v}", "...") for k, v in more)))


def _element(t: Tensor, address: int) -> str:
    index: list[str] = []
    for extent in reversed(t.shape):
        address, at = divmod(address, extent)
        index.append(str(at))
    return f"{t.name}[{','.join(reversed(index))}]"


