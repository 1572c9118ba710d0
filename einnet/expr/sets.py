"""Questions about integer points of boxes under quasi-affine conditions. The one module that talks to isl.

Interval arithmetic answers first; isl, memoised and with a bounded number of operations, answers the rest. True means proven; where the
bound is reached the answer is False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import Cond

_OPERATIONS = 200_000

PARAMETER = "#p"
"""A name that no iterator has, for a size that is not known."""

Box = tuple[tuple[str, Range], ...]


@lru_cache(1)
def _isl() -> Any:
    """The library, loaded by the first question that needs it: timing and merging kernels of a card asks none."""
    import islpy

    return islpy


@lru_cache(1)
def _context() -> Any:
    return _isl().Context()


def implied(cond: Cond, given: Iterable[Cond], ranges: Mapping[str, Range]) -> bool:
    """`cond` holds at all points of the box at which `given` holds."""
    lo, hi = bounds(_numerator(cond.index), ranges)
    if (lo == hi == 0) if cond.equal else lo >= 0:
        return True
    known = tuple(given)
    if cond in known:
        return True
    if not cond.equal:
        for k in known:
            gap = _numerator(cond.index) - _numerator(k.index)
            if bounds(gap, ranges)[0] >= 0:
                return True
    if not known and cond.index.is_affine:
        return False
    names = _connected(cond.index.names(), known)
    near = frozenset(k for k in known if k.index.names() & names)
    return _implied(cond, near, _box(names, ranges))


def empty(conds: Iterable[Cond], ranges: Mapping[str, Range]) -> bool:
    """No point of the box satisfies all conditions."""
    known = tuple(conds)
    for c in known:
        lo, hi = bounds(_numerator(c.index), ranges)
        if hi < 0 or (c.equal and lo > 0):
            return True
    if any(hi <= lo for lo, hi in ranges.values()):
        return True
    if len(known) <= 1 and all(c.index.is_affine and not c.equal for c in known):
        return False
    names = frozenset().union(*(c.index.names() for c in known))
    return _empty(frozenset(known), _box(names, ranges))


def sample(conds: Iterable[Cond], ranges: Mapping[str, Range]) -> dict[str, int] | None:
    """A point of the box at which the conditions hold, or None where none is found."""
    return _sample(frozenset(conds), _box(frozenset(ranges), ranges))


def reached(conds: Iterable[Cond], ranges: Mapping[str, Range], over: Iterable[str]) -> bool:
    """For all values of the other names, some of those in `over` satisfy the conditions."""
    return _reached(frozenset(conds), _box(frozenset(ranges), ranges), frozenset(over))


class Relation(NamedTuple):
    """All pairs of a point of Z^domain at which `conds` hold and its `image`, for every integer value of PARAMETER, which indices may name."""

    domain: tuple[str, ...]
    image: tuple[Index, ...]
    conds: frozenset[Cond]


def same_relation(one: Relation, other: Relation) -> bool:
    """The two hold between the same points, whatever the parameter is."""
    return one == other or _same_relation(one, other)


class Image(NamedTuple):
    """The points of a box at which `conds` hold, and the `functions` of each: their numerators, where they are fractions."""

    box: Box
    functions: tuple[Index, ...]
    conds: frozenset[Cond]


def once(image: Image) -> bool:
    """No two of the points have the same values of the functions."""
    return _answered(lambda: _mapped(image).is_injective())


def apart(one: Image, other: Image) -> bool:
    """No values of the functions are those of both."""
    return _answered(lambda: _mapped(one).range().is_disjoint(_mapped(other).range()))


def same_union(some: Iterable[Image], others: Iterable[Image]) -> bool:
    """The values of all functions on one side are those on the other."""

    def compared() -> bool:
        left, right = (reduce(lambda a, b: a.union(b), (_mapped(i).range() for i in side)) for side in (some, others))
        return bool(left.is_equal(right))

    return _answered(compared)


def _answered(question: Callable[[], bool]) -> bool:
    """The answer, or False where it takes too many operations."""
    _start()
    try:
        return bool(question())
    except _isl().Error:
        return False


def _mapped(image: Image) -> Any:
    names = {n: f"x{k}" for k, (n, _) in enumerate(image.box)}
    places = ", ".join(_expression(_numerator(e), names) for e in image.functions)
    found = _isl().Map.read_from_str(_context(), f"{{ [{', '.join(names.values())}] -> [{places}] }}")
    return found.intersect_domain(_set(image.conds, image.box))


def _numerator(e: Index) -> Index:
    return e if e.den == 1 else Index(e.terms, e.const, 1)


def _box(names: frozenset[str], ranges: Mapping[str, Range]) -> Box:
    return tuple((n, ranges[n]) for n in sorted(names))


def _connected(names: frozenset[str], conds: Iterable[Cond]) -> frozenset[str]:
    """The names that conditions tie to `names`, directly or through others."""
    groups = [c.index.names() for c in conds]
    while True:
        wider = names.union(*(g for g in groups if g & names))
        if wider == names:
            return names
        names = wider


def _expression(e: Index, names: Mapping[str, str]) -> str:
    parts = [f"{c}*{names[a]}" if isinstance(a, str) else f"{c}*floor(({_expression(a.num, names)})/{a.den})" for a, c in e.terms]
    return " + ".join((*parts, str(e.const)))


def _condition(c: Cond, names: Mapping[str, str]) -> str:
    text = _expression(_numerator(c.index), names)
    return f"0 = {text}" if c.equal else f"0 <= {text}"


def _set(conds: Iterable[Cond], box: Box) -> Any:
    names = {n: f"x{k}" for k, (n, _) in enumerate(box)}
    parts = [f"{lo} <= {names[n]} < {hi}" for n, (lo, hi) in box] + [_condition(c, names) for c in conds]
    text = f"{{ [{', '.join(names.values())}] : {' and '.join(parts) or '1 = 1'} }}"
    return _isl().Set.read_from_str(_context(), text)


def _relation(relation: Relation) -> Any:
    names = {n: f"x{k}" for k, n in enumerate(relation.domain)} | {PARAMETER: "p"}
    image = ", ".join(_expression(_numerator(e), names) for e in relation.image)
    conds = " and ".join(_condition(c, names) for c in relation.conds) or "1 = 1"
    text = f"[p] -> {{ [{', '.join(names[n] for n in relation.domain)}] -> [{image}] : {conds} }}"
    return _isl().Map.read_from_str(_context(), text)


def _start() -> None:
    _context().set_max_operations(_OPERATIONS)
    _context().reset_operations()


@lru_cache(maxsize=1 << 15)
def _implied(cond: Cond, known: frozenset[Cond], box: Box) -> bool:
    negated = [Cond(-_numerator(cond.index) - 1)]
    if cond.equal:
        negated.append(Cond(_numerator(cond.index) - 1))
    return all(_empty(known | {n}, box) for n in negated)


@lru_cache(maxsize=1 << 15)
def _empty(conds: frozenset[Cond], box: Box) -> bool:
    _start()
    try:
        return bool(_set(conds, box).is_empty())
    except _isl().Error:
        return False


@lru_cache(maxsize=1 << 12)
def _same_relation(one: Relation, other: Relation) -> bool:
    _start()
    try:
        return bool(_relation(one).is_equal(_relation(other)))
    except _isl().Error:
        return False


@lru_cache(maxsize=1 << 12)
def _sample(conds: frozenset[Cond], box: Box) -> dict[str, int] | None:
    _start()
    try:
        point = _set(conds, box).sample_point()
        if point.is_void():
            return None
        return {n: point.get_coordinate_val(_isl().dim_type.set, k).to_python() for k, (n, _) in enumerate(box)}
    except _isl().Error:
        return None


@lru_cache(maxsize=1 << 12)
def _reached(conds: frozenset[Cond], box: Box, over: frozenset[str]) -> bool:
    _start()
    try:
        found, rest = _set(conds, box), _set((), tuple(b for b in box if b[0] not in over))
        for k in reversed([k for k, (n, _) in enumerate(box) if n in over]):
            found = found.project_out(_isl().dim_type.set, k, 1)
        return bool(rest.is_subset(found))
    except _isl().Error:
        return False
