"""Scalar expressions over flat addresses: what an eOperator computes once its views are applied. No device, no library.

Loads carry the conditions under which they lie inside their tensor, so that every later choice (which loop to split, where a mask is
needed) is interval arithmetic on index functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Union

from einnet.expr.index import Floor, Index, Range, bounds, in_range, simplify, substitute
from einnet.expr.nodes import Cond, Iter

Ranges = Mapping[str, Range]

Entered = dict["Use", list[Ranges]]
"""Uses whose functions were looked into, with the ranges that held where they stood."""

FEW = 8
"""Iterators with at most this many values are enumerated where interval arithmetic is too coarse."""


@dataclass(frozen=True, slots=True)
class Lit:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Number:
    """The value of an index function as a number."""

    index: Index


@dataclass(frozen=True, slots=True)
class Load:
    """array[address] where all guards hold, else `fill`; the address is valid wherever the guards hold."""

    array: str
    address: Index
    guards: tuple[Cond, ...] = ()
    fill: float = 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """function(index): a nested scope that is worth computing once. Its value is used only where the guards hold."""

    function: Function
    index: tuple[Index, ...]
    guards: tuple[Cond, ...] = ()


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation: "add", "mul", "div" or a scalar function of the language."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """`then` where all conditions hold, else `other`."""

    conds: tuple[Cond, ...]
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Reduce:
    """The reduction ("sum", "max", "min") of the body over the box of the iterators."""

    op: str
    sums: tuple[Iter, ...]
    body: Expr


PICK = "pick"


@dataclass(frozen=True, slots=True)
class Known:
    """A value that was computed further out; `names` are the iterators that it depends on."""

    key: str
    names: frozenset[str]


@dataclass(frozen=True)
class Function:
    """A nested scope: its loops (from their own lower bounds) and its value. Equal by name: one function for each distinct scope."""

    name: str
    loops: tuple[Iter, ...]
    expr: Expr

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.name == other.name


Expr = Union[Lit, Number, Load, Use, Apply, Choose, Reduce, Known]


@dataclass(frozen=True, slots=True)
class Nest:
    """array[address] = expr over the box of the loops, where the guards hold; every element is written at most once.

    `outer` gives the ranges of the iterators that are bound around the nest, `tables` the arrays whose values are known.
    """

    loops: tuple[Iter, ...]
    array: str
    address: Index
    expr: Expr
    guards: tuple[Cond, ...] = ()
    outer: tuple[tuple[str, Range], ...] = ()
    tables: frozenset[str] = frozenset()

    @property
    def ranges(self) -> dict[str, Range]:
        return {**dict(self.outer), **{i.name: i.range for i in self.loops}}


def weights(e: Reduce, tables: Collection[str]) -> tuple[Load, ...]:
    """The factors of the summed product that are entries of known matrices."""
    factors = e.body.args if isinstance(e.body, Apply) and e.body.op == "mul" else ()
    return tuple(a for a in factors if isinstance(a, Load) and a.array in tables) if e.op == "sum" else ()


def picks(e: Expr) -> bool:
    """The reduction takes one of its terms, of which a number says which: Reduce("pick", v, choose(equal(place, v), term, 0))."""
    return isinstance(e, Reduce) and e.op == PICK


def picked(e: Reduce) -> tuple[Expr, Expr]:
    """The place and the term of such a reduction."""
    assert isinstance(e.body, Apply) and isinstance(e.body.args[0], Apply)
    place, own = e.body.args[0].args
    return (own if isinstance(place, Number) else place), e.body.args[1]


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct operands; those of a Use's function are not operands."""
    match e:
        case Apply(_, args):
            return args
        case Choose(_, then, other):
            return then, other
        case Reduce(_, _, body):
            return (body,)
    return ()


def rebuild(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same node over other operands."""
    match e:
        case Apply(op, _):
            return Apply(op, args)
        case Choose(conds, _, _):
            return Choose(conds, *args)
        case Reduce(op, sums, _):
            return Reduce(op, sums, args[0])
    return e


def map_conds(conds: tuple[Cond, ...], f: Callable[[Index], Index]) -> tuple[Cond, ...]:
    return tuple(Cond(f(c.index), c.equal) for c in conds)


def map_indices(e: Expr, f: Callable[[Index], Index]) -> Expr:
    """Apply f to every index function and condition."""
    match e:
        case Number(index):
            return Number(f(index))
        case Load(array, address, guards, fill):
            return Load(array, f(address), map_conds(guards, f), fill)
        case Use(function, index, guards):
            return Use(function, tuple(map(f, index)), map_conds(guards, f))
        case Choose(conds, then, other):
            return Choose(map_conds(conds, f), map_indices(then, f), map_indices(other, f))
        case Lit() | Known():
            return e
    return rebuild(e, tuple(map_indices(a, f) for a in children(e)))


def substitute_expr(e: Expr, mapping: Mapping[str, Index]) -> Expr:
    """Replace iterators by index functions."""
    return map_indices(e, lambda i: substitute(i, mapping)) if mapping else e


def expand(use: Use) -> Expr:
    """The value of the nested scope at the use's index; its loads carry the use's guards."""
    mapping = {i.name: ix for i, ix in zip(use.function.loops, use.index)}
    return protect(substitute_expr(use.function.expr, mapping), use.guards)


def protect(e: Expr, conds: tuple[Cond, ...], only: str | None = None) -> Expr:
    """Add conditions to the guards of every load (of those that depend on iterator `only`)."""
    if not conds:
        return e
    match e:
        case Load(array, address, guards, fill):
            free = only is not None and only not in address.names()
            return e if free else Load(array, address, (*guards, *(c for c in conds if c not in guards)), fill)
        case Use(function, index, guards):
            free = only is not None and all(only not in i.names() for i in index)
            return e if free else Use(function, index, (*guards, *(c for c in conds if c not in guards)))
    args = children(e)
    return rebuild(e, tuple(protect(a, conds, only) for a in args)) if args else e


def guarded(e: Expr, conds: tuple[Cond, ...], fill: float) -> Expr:
    """e where the conditions hold, else fill; nothing outside is loaded."""
    if not conds:
        return e
    if isinstance(e, Load) and e.fill == fill:
        return protect(e, conds)
    return Choose(conds, protect(e, conds), Lit(fill))


def own_names(e: Expr) -> Iterator[str]:
    match e:
        case Number(index):
            yield from index.names()
        case Load(_, address, guards, _):
            yield from address.names()
            for c in guards:
                yield from c.index.names()
        case Use(_, index, guards):
            for i in index:
                yield from i.names()
            for c in guards:
                yield from c.index.names()
        case Choose(conds, _, _):
            for c in conds:
                yield from c.index.names()
        case Known(_, known):
            yield from known
    for a in children(e):
        yield from own_names(a)


def names(e: Expr) -> frozenset[str]:
    """The iterators that occur, without those bound by reductions inside."""
    bound = {i.name for r in walk(e) if isinstance(r, Reduce) for i in r.sums}
    return frozenset(own_names(e)) - bound


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and everything in it, not entering functions."""
    yield e
    for a in children(e):
        yield from walk(a)


def expanded(e: Expr, ranges: Ranges, entered: Entered | None = None) -> Iterator[tuple[Expr, Ranges]]:
    """Every node with the ranges that hold there; uses are followed into their functions, and equal ones once: how often a function is used is not
    how often it is computed."""
    entered = {} if entered is None else entered
    yield e, ranges
    if isinstance(e, Use) and ranges not in (known := entered.setdefault(e, [])):
        known.append(ranges)
        yield from expanded(expand(e), ranges, entered)
    inner = {**ranges, **{i.name: i.range for i in e.sums}} if isinstance(e, Reduce) else ranges
    for a in children(e):
        yield from expanded(a, inner, entered)


def conditions(e: Expr) -> tuple[Cond, ...]:
    """The node's own conditions."""
    match e:
        case Load(guards=conds) | Use(guards=conds) | Choose(conds=conds):
            return conds
    return ()


def enclosure(e: Index, ranges: Ranges) -> Range:
    """Least and greatest value (both inclusive) over the box, exact where few values stand inside floor divisions."""
    inside = sorted({n for a, _ in e.terms if isinstance(a, Floor) for n in a.num.names()})
    return _enclosure(e, tuple((n, ranges[n]) for n in sorted(e.names())), tuple(inside)) if inside else bounds(e, ranges)


@lru_cache(1 << 16)
def _enclosure(e: Index, box: tuple[tuple[str, Range], ...], inside: tuple[str, ...]) -> Range:
    ranges = dict(box)
    few = [n for n in inside if ranges[n][1] - ranges[n][0] <= FEW]
    if not few or prod(ranges[n][1] - ranges[n][0] for n in few) > FEW * FEW:
        return bounds(e, ranges)
    found = [
        bounds(substitute(e, {n: Index((), v) for n, v in zip(few, values)}), ranges)
        for values in product(*(range(*ranges[n]) for n in few))
    ]
    return min(lo for lo, _ in found), max(hi for _, hi in found)


def decide(cond: Cond, ranges: Ranges) -> bool | None:
    """Whether the condition holds everywhere (True), nowhere (False), or interval arithmetic cannot tell (None)."""
    lo, hi = enclosure(cond.index, ranges)
    if cond.equal:
        if lo == hi == 0:
            return True
        return False if lo > 0 or hi < 0 else None
    if lo >= 0:
        return True
    return False if hi < 0 else None


def pruned(conds: Iterable[Cond], ranges: Ranges) -> tuple[Cond, ...] | None:
    """The conditions that remain undecided, simplified; None if one holds nowhere."""
    left: dict[Cond, None] = {}
    for c in conds:
        known = decide(c, ranges)
        if known is False:
            return None
        if known is None:
            left[Cond(simplify(c.index, ranges), c.equal)] = None
    return tuple(left)


def simplified(e: Expr, ranges: Ranges) -> Expr:
    """The same value over the box, with decided conditions and dead branches removed and literals folded."""
    match e:
        case Lit() | Known():
            return e
        case Number(index):
            index = simplify(index, ranges)
            return Lit(index.const / index.den) if index.is_const else Number(index)
        case Load(array, address, guards, fill):
            left = pruned(guards, ranges)
            return Lit(fill) if left is None else Load(array, simplify(address, ranges), left, fill)
        case Use(function, index, _):
            left = needed(e, ranges)
            return Lit(0.0) if left is None else Use(function, tuple(simplify(i, ranges) for i in index), left)
        case Choose(conds, then, other):
            left = pruned(conds, ranges)
            if left is None:
                return simplified(other, ranges)
            then = simplified(then, ranges)
            return guard_or_choose(left, then, simplified(other, ranges)) if left else then
        case Reduce(op, sums, body):
            body = simplified(body, {**ranges, **{i.name: i.range for i in sums}})
            return Lit(0.0) if op == "sum" and body == Lit(0.0) else Reduce(op, sums, body)
        case Apply(op, args):
            return fold(op, tuple(simplified(a, ranges) for a in args))
    raise TypeError(e)


def needed(use: Use, ranges: Ranges) -> tuple[Cond, ...] | None:
    """The guards of a use that are left; none where there is a value in any case: it then depends on less, and can be computed further out."""
    left = pruned(use.guards, ranges)
    everywhere = bool(left) and all(in_range(i, loop.range, ranges) for i, loop in zip(use.index, use.function.loops, strict=True))
    return () if everywhere else left


def guard_or_choose(conds: tuple[Cond, ...], then: Expr, other: Expr) -> Expr:
    """Choose, as a guarded load where that is the same."""
    if isinstance(then, Load) and other == Lit(then.fill):
        return protect(then, conds)
    return Choose(conds, then, other)


def fold(op: str, args: tuple[Expr, ...]) -> Expr:
    """Apply with the units of sums and products removed."""
    if op == "add":
        kept = tuple(a for a in args if a != Lit(0.0))
        return Apply(op, kept) if len(kept) > 1 else kept[0] if kept else Lit(0.0)
    if op == "mul":
        if Lit(0.0) in args:
            return Lit(0.0)
        kept = tuple(a for a in args if a != Lit(1.0))
        return Apply(op, kept) if len(kept) > 1 else kept[0] if kept else Lit(1.0)
    return Apply(op, args)
