"""Box facts about scopes that guards ask for: where a body can be nonzero, whether a read stays inside, which factors a product has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TypeVar

from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    children,
    reads,
    used_names,
)  # fmt: skip
from einnet.expr.normal.totals import total

B = TypeVar("B", bound=Body)

ONE = Const(Fraction(1))

EVERYWHERE: Range = (-(1 << 60), 1 << 60)
NOWHERE: Range = (0, 0)


def factors(body: Body) -> tuple[Body, ...]:
    """The factors of a product; a body that is no product is its own factor."""
    return body.args if isinstance(body, Mul) else (body,)


def without(items: Sequence[B], *places: int) -> tuple[B, ...]:
    """What stands at other places. A place tells a factor or term from another: one object may well stand at two, as in A[x]*A[x]."""
    return tuple(item for n, item in enumerate(items) if n not in places)


def product_reads(body: Body) -> tuple[Read, ...] | None:
    """The reads of a pure product of reads, or None."""
    parts = factors(body)
    found = tuple([f for f in parts if isinstance(f, Read)])
    return found if len(found) == len(parts) else None


def box_of(read: Read) -> tuple[Range, ...]:
    """The box of what is read."""
    return read.base.box


def support(body: Body, name: str, ranges: Mapping[str, Range]) -> Range:
    """An enclosure of the values of iterator `name` at which the body can be nonzero, the others ranging over their boxes."""
    match body:
        case Read(base, index, fill) if not fill:
            found = EVERYWHERE
            if name in used_names(body):
                for e, box in zip(index, base.box):
                    found = _meet(found, _solve(e, box, name, ranges))
            return found
        case Mul(args):
            loose = [a for a in args if not total(a)]
            if loose:  # where all of them are read outside their boxes they are numbers, and 0
                return _join(support(a, name, ranges) for a in loose) if all(isinstance(a, Read) for a in loose) else EVERYWHERE
            found = EVERYWHERE
            for a in args:
                found = _meet(found, support(a, name, ranges))
            return found
        case Div(num, den) if name not in used_names(den) and total(Div(ONE, den)):
            return support(num, name, ranges)
        case Call(function, (arg,)) if function in KEEPS_ZERO:
            return support(arg, name, ranges)
        case Add(args):
            return _join(support(a, name, ranges) for a in args)
        case Select():
            return _support_of_choice(body, name, ranges)
        case Const(v) if v == 0:
            return NOWHERE
    return EVERYWHERE


@lru_cache(maxsize=1 << 14)
def reach(scope: Scope) -> tuple[Range, ...]:
    """For every loop of the scope an enclosure of the values at which its body can be nonzero."""
    return supports(scope.body, [i.name for i in scope.loops], scope.ranges)


def supports(body: Body, names: Sequence[str], ranges: Mapping[str, Range]) -> tuple[Range, ...]:
    """`support` for several iterators: an index function is looked at once for all of them."""
    if isinstance(body, Mul) and all(map(total, body.args)):
        parts = [supports(a, names, ranges) for a in body.args]
        return tuple(reduce(_meet, found) for found in zip(*parts))
    if not isinstance(body, Read) or body.fill:
        return tuple(support(body, name, ranges) for name in names)
    found = dict.fromkeys(names, EVERYWHERE)
    for e, box in zip(body.index, body.base.box):
        if not all(isinstance(a, str) for a, _ in e.terms):
            found |= {name: _meet(found[name], _solve(e, box, name, ranges)) for name in found.keys() & e.names()}
            continue
        wanted = [(a, c) for a, c in e.terms if isinstance(a, str) and a in found]
        if wanted:
            ends = bounds(Index(e.terms, e.const), ranges)
            for name, c in wanted:
                found[name] = _meet(found[name], _between(e, box, c, ends, ranges[name]))
    return tuple(found.values())


def _between(e: Index, box: Range, c: int, reach: tuple[int, int], own: Range) -> Range:
    """Values of an iterator with coefficient c for which e can lie in the box; e times its denominator reaches from `reach` to `reach`."""
    lo, hi = (reach[0] - c * own[0], reach[1] - c * (own[1] - 1)) if c > 0 else (reach[0] - c * (own[1] - 1), reach[1] - c * own[0])
    return _divided(box[0] * e.den - hi, (box[1] - 1) * e.den - lo, c)


def _meet(a: Range, b: Range) -> Range:
    lo, hi = a[0] if a[0] > b[0] else b[0], a[1] if a[1] < b[1] else b[1]
    return (lo, hi) if lo < hi else NOWHERE


def _join(parts: Iterable[Range]) -> Range:
    full = [p for p in parts if p[0] < p[1]]
    return (min(p[0] for p in full), max(p[1] for p in full)) if full else NOWHERE


def _support_of_choice(body: Select, name: str, ranges: Mapping[str, Range]) -> Range:
    """Each side where it is taken."""
    holding = (_solve(c.index, (0, 1 if c.equal else 1 << 60), name, ranges) for c in body.conds)
    then = reduce(_meet, holding, support(body.then, name, ranges))
    return _join((then, _meet(_failing(body.conds, name, ranges), support(body.other, name, ranges))))


def _failing(conds: Sequence[Cond], name: str, ranges: Mapping[str, Range]) -> Range:
    """Values of `name` for which one of the conditions can fail."""
    only = conds[0] if len(conds) == 1 else None
    return _solve(only.index, (-(1 << 60), 0), name, ranges) if only and not only.equal and only.index.den == 1 else EVERYWHERE


def _solve(e: Index, box: Range, name: str, ranges: Mapping[str, Range]) -> Range:
    """Values of `name` for which e can lie in the box."""
    if name not in e.names():
        return EVERYWHERE
    c = e.coefficient(name)
    rest = Index(tuple((a, k) for a, k in e.terms if a != name), e.const)
    if not c or name in rest.names():
        return EVERYWHERE
    lo, hi = bounds(rest, ranges)
    return _divided(box[0] * e.den - hi, (box[1] - 1) * e.den - lo, c)


def _divided(low: int, high: int, c: int) -> Range:
    """The integers y with low <= c*y <= high."""
    if c < 0:
        low, high, c = -high, -low, -c
    return -((-low) // c), high // c + 1


def zero_outside(body: Body, name: str, wanted: Range, ranges: Mapping[str, Range]) -> bool:
    """The body is 0 wherever `name` leaves `wanted`, be that within its own range or not: of `ranges` those of the others are asked."""
    lo, hi = support(body, name, ranges)
    return lo >= hi or (wanted[0] <= lo and hi <= wanted[1])


def fractions_left(body: Body, names: Collection[str]) -> list[str]:
    """Those of `names` for which the body need not be 0 where they are no integers; [] if it is 0 wherever any of them is none.

    A factor that reads at an index with exactly one fractional iterator, of coefficient ±1, is 0 there. Two of them can add up to an
    integer, so an iterator counts beside another only once that other is known to be an integer.
    """
    found = factors(body)
    left = list(names)
    if not all(map(total, found)):
        return left
    exact = [e for f in found if isinstance(f, Read) and f.fill == 0 for e in f.index if e.den == 1]
    while left:
        settled = next((n for n in left if any(_alone(e, n, left) for e in exact)), None)
        if settled is None:
            break
        left.remove(settled)
    return left


def _alone(e: Index, name: str, fractional: Collection[str]) -> bool:
    """e is ±name + rest, and the rest has none of the fractional iterators."""
    rest = Index(tuple((a, k) for a, k in e.terms if a != name))
    return e.coefficient(name) in (1, -1) and rest.names().isdisjoint(fractional) and name not in rest.names()


def hull(functions: Iterable[Index], ranges: Mapping[str, Range]) -> tuple[Range, ...]:
    """The box hull of the image of index functions, half-open."""
    return tuple((lo, hi + 1) for lo, hi in (bounds(e, ranges) for e in functions))


def rounds(body: Body) -> bool:
    """Writing the body flat, with its constants folded, groups + or × otherwise or computes with constants: it can round otherwise."""
    args = children(body)
    if isinstance(body, (Add, Mul)):
        numbers = [a for a in args if isinstance(a, Const) and a.value != (0 if isinstance(body, Add) else 1)]
        if len(numbers) > 1 or any(type(a) is type(body) for a in args):
            return True
    if isinstance(body, Div) and all(isinstance(a, Const) for a in args):
        return True
    return any(map(rounds, args))


def is_copy(scope: Scope) -> bool:
    """L[x] A[f(x)]: moves data, computes nothing."""
    return not scope.sums and isinstance(scope.body, Read) and scope.reduce == "sum"


def linear_reads(body: Body) -> list[Read]:
    """Reads that stand in a linear position: factors of a term, with no other scope between."""
    match body:
        case Read():
            return [body]
        case Mul(args):
            return [a for a in args if isinstance(a, Read)]
        case Add(args):
            return [r for a in args for r in linear_reads(a)]
        case Div(num, _):
            return linear_reads(num)
    return []


def has_values(r: Read) -> bool:
    """What is read is a constant matrix of an algorithm, which carries its values."""
    return isinstance(r.base, Tensor) and r.base.values is not None


def is_transform(scope: Scope) -> bool:
    """A linear transform of one operand by constant matrices: a sum of products in which all factors but one carry their values."""
    given = [has_values(r) for r in reads(scope.body)]
    return bool(scope.sums) and any(given) and given.count(False) == 1
