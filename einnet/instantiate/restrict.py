"""A part of a scope: its loop cut into equal parts, and one of these over tensors that hold no more than that part reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from einnet.derivation.rules.band import tidy
from einnet.expr.index import substitute, var
from einnet.expr.nodes import Body, Cond, Iter, Read, Scope, Select, Tensor, Val, children, map_reads, reads, rebuild


class Undivided(Exception):
    """The kernels cannot be run part by part; the message says why."""


@lru_cache(maxsize=1 << 12)
def restricted(scope: Scope, position: int, count: int, part: int = 0) -> tuple[Scope, Mapping[str, int]]:
    """The scope over one of `count` parts of a loop, reading tensors as small as that, and the dimension in which each of them is.

    The loop runs from 0 again; where its value counts, in a condition, it is what it was, and conditions that always hold in this part are
    gone. Tables that belong to the expression stay whole: a part reads its own rows of them. Raises Undivided where the loop stands anywhere but
    alone in one dimension of another read.
    """
    loop = scope.loops[position]
    if loop.lo or loop.extent % count:
        raise Undivided(f"{loop.name} cannot be divided")
    reading = _Reading(loop, count, part)
    body = map_reads(scope.body, reading.of_part)
    if reading.whole & reading.dims.keys():
        raise Undivided("a tensor is read along the loop and as a whole")
    length = loop.extent // count
    if valued(body, loop.name):
        ranges = {**scope.ranges, loop.name: (0, length)}
        body = tidy(shifted(body, loop.name, part * length), ranges)
    loops = tuple(Iter(i.name, 0, length) if i is loop else i for i in scope.loops)
    return replace(scope, loops=loops, body=body), reading.dims


@dataclass
class _Reading:
    """What one of `count` parts of a loop reads: tensors that are cut, by the dimension in which each is, and those that are read as a whole."""

    loop: Iter
    count: int
    part: int
    dims: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def of_part(self, r: Read) -> Read:
        """The part's read. Raises Undivided."""
        where = [d for d, e in enumerate(r.index) if self.loop.name in e.names()]
        if not where:
            self.whole.update(tensors_of(r))
            return r
        if isinstance(r.base, Tensor) and r.base.values is not None:
            place = {self.loop.name: var(self.loop.name) + self.part * (self.loop.extent // self.count)}
            return replace(r, index=tuple(substitute(e, place) for e in r.index))
        if len(where) > 1 or r.index[where[0]] != var(self.loop.name) or r.base.box[where[0]] != self.loop.range:
            raise Undivided(f"{self.loop.name} does not stand alone in {r}")
        return self.cut(r, where[0])

    def cut(self, r: Read, dimension: int) -> Read:
        """The read of what is as small as a part in a dimension. Raises Undivided where a tensor is that in another one, too."""
        base: Tensor | Scope
        inner: Mapping[str, int]
        if isinstance(r.base, Scope):
            base, inner = restricted(r.base, dimension, self.count, self.part)
            self.whole.update(t for t in tensors_of(r) if t not in inner)
        else:
            inner = {r.base.name: dimension}
            base = replace(r.base, shape=tuple(n // self.count if d == dimension else n for d, n in enumerate(r.base.shape)))
        if any(self.dims.setdefault(name, d) != d for name, d in inner.items()):
            raise Undivided(f"{r} reads a tensor in two ways")
        return replace(r, base=base)


def shifted(body: Body, name: str, by: int) -> Body:
    """The body where the iterator's value is greater by so much than its place in what is read."""
    mapping = {name: var(name) + by}
    match body:
        case Val(index):
            return Val(substitute(index, mapping))
        case Select(conds, then, other):
            moved = tuple(Cond(substitute(c.index, mapping), c.equal) for c in conds)
            return Select(moved, shifted(then, name, by), shifted(other, name, by))
    args = children(body)
    return rebuild(body, tuple(shifted(a, name, by) for a in args)) if args else body


def valued(body: Body, name: str) -> bool:
    """The iterator's value matters outside of the indices of reads."""
    match body:
        case Val(index):
            return name in index.names()
        case Select(conds) if any(name in c.index.names() for c in conds):
            return True
    return any(valued(a, name) for a in children(body))


def tensors_of(r: Read) -> Iterator[str]:
    """Names of the tensors that a read reaches."""
    if isinstance(r.base, Tensor):
        yield r.base.name
        return
    for inner in reads(r.base.body):
        yield from tensors_of(inner)
