"""Two bodies as one over a joined iterator: what they have in common stays, what differs is concatenated (anti-unification).

A read outside a box is 0, so a concatenation is a sum of shifted reads: `{L[n<N] f}[n] + {L[n<M] g}[n-N]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einnet.derivation.moves.rule import Refused
from einnet.derivation.rules.forced.merge import merge_read
from einnet.expr.index import Index, Range, simplify, substitute, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    children,
    indices,
    is_weight,
    make_add,
    map_indices,
    reads,
    rebuild,
    substitute_body,
    used_names,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seam:
    """The iterator `name` runs over `first` + `second` values: below `first` one body holds, from there on the other."""

    name: str
    first: int
    second: int

    @property
    def joined(self) -> Iter:
        return Iter(self.name, 0, self.first + self.second)


def generalise(a: Body, b: Body, seam: Seam, iters: Sequence[Iter], concatenate: bool = True) -> Body | None:
    """A body that is a where seam.name < seam.first and b beyond, or None where only a copy of the bodies themselves would do.

    `iters` are all iterators in scope, the joined one among them. With `concatenate` False nothing may be copied.
    """
    if a == b:
        return a
    if isinstance(a, Read) and isinstance(b, Read) and (a.base, a.fill) == (b.base, b.fill):
        ranges = {i.name: i.range for i in iters}
        index = tuple(common_index(x, y, seam, ranges) for x, y in zip(a.index, b.index, strict=True))
        if None not in index:
            return Read(a.base, tuple(ix for ix in index if ix is not None), a.fill)
    if isinstance(a, Read) and isinstance(b, Read):
        return concatenated(a, b, seam, iters) if concatenate else None
    if not _same_node(a, b):
        return None
    pairs = _paired(a, b) if isinstance(a, (Add, Mul)) else tuple(zip(children(a), children(b), strict=True))
    args = tuple(generalise(x, y, seam, iters, concatenate) for x, y in pairs)
    return None if None in args or not args else rebuild(a, tuple(x for x in args if x is not None))


def _same_node(a: Body, b: Body) -> bool:
    """The same operation on as many operands."""
    match a, b:
        case (Add(), Add()) | (Mul(), Mul()) | (Div(), Div()):
            return len(children(a)) == len(children(b))
        case Call(name, args), Call(other, more):
            return name == other and len(args) == len(more)
        case Select(conds, _, _), Select(others, _, _):
            return conds == others
    return False


def _paired(a: Body, b: Body) -> tuple[tuple[Body, Body], ...]:
    """The operands of a with those of b: equal ones, then those that use the same iterators and are as constant, then as they stand."""
    left = list(children(b))
    chosen: dict[int, Body] = {}
    for alike in (lambda x, y: x == y, _alike, lambda x, y: True):
        for n, x in enumerate(children(a)):
            found = next((y for y in left if alike(x, y)), None) if n not in chosen else None
            if found is not None:
                chosen[n] = found
                left.remove(found)
    return tuple((x, chosen[n]) for n, x in enumerate(children(a)))


def _alike(x: Body, y: Body) -> bool:
    constant = [all(is_weight(r.base) if isinstance(r.base, Scope) else r.base.weight for r in reads(z)) for z in (x, y)]
    return type(x) is type(y) and constant[0] == constant[1] and used_names(x) == used_names(y)


def common_index(a: Index, b: Index, seam: Seam, ranges: dict[str, Range]) -> Index | None:
    """An index that is a below the seam and b beyond. A part of one value lets its side follow the other's."""
    if a == b:
        return a
    at_start, at_seam = {seam.name: Index()}, {seam.name: Index((), seam.first)}
    if seam.second == 1 and substitute(a, at_seam) == substitute(b, at_seam):
        return a
    if seam.first == 1 and substitute(a, at_start) == substitute(b, at_start):
        return b
    if seam.first == seam.second == 1:
        step = simplify(substitute(b, at_seam) - substitute(a, at_start), ranges)
        return substitute(a, at_start) + step.const * var(seam.name) if step.is_const and step.den == 1 else None
    return None


def concatenated(a: Body, b: Body, seam: Seam, iters: Sequence[Iter]) -> Read:
    """The read of a scope that holds a, and after it b, along the seam."""
    used = used_names(a) | used_names(b) | {seam.name}
    loops = tuple(i for i in iters if i.name in used)
    shifted = substitute_body(b, {seam.name: var(seam.name) + seam.first})
    parts = [_part(a, loops, seam.name, seam.first), _part(shifted, loops, seam.name, seam.second)]
    moved = tuple(var(i.name) - seam.first if i.name == seam.name else var(i.name) for i in loops)
    whole = Scope(loops, (), make_add((Read(parts[0], indices(loops)), Read(parts[1], moved))))
    for part in parts:
        read = next(r for r in reads(whole.body) if r.base == part)
        merged = merge_read(whole, read)
        whole = whole if isinstance(merged, Refused) else merged
    return Read(whole, indices(loops))


def _part(body: Body, loops: Sequence[Iter], name: str, extent: int) -> Scope:
    own = tuple(Iter(name, 0, extent) if i.name == name else i for i in loops)
    ranges = {i.name: i.range for i in own}
    return Scope(own, (), map_indices(body, lambda ix: simplify(ix, ranges)))
