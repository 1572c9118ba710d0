"""A part of a scope: its loop cut into equal parts, and one of these over tensors that hold no more than that part reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    length = loop.extent // count
    dims: dict[str, int] = {}
    plain: set[str] = set()

    def learn(found: Mapping[str, int], r: Read) -> None:
        if any(dims.setdefault(name, d) != d for name, d in found.items()):
            raise Undivided(f"{r} reads a tensor in two ways")

    def small(r: Read) -> Read:
        where = [d for d, e in enumerate(r.index) if loop.name in e.names()]
        if not where:
            plain.update(t for t in tensors_of(r))
            return r
        if isinstance(r.base, Tensor) and r.base.values is not None:
            return replace(r, index=tuple(substitute(e, {loop.name: var(loop.name) + part * length}) for e in r.index))
        if len(where) > 1 or r.index[where[0]] != var(loop.name) or r.base.box[where[0]] != loop.range:
            raise Undivided(f"{loop.name} does not stand alone in {r}")
        if isinstance(r.base, Scope):
            base, inner = restricted(r.base, where[0], count, part)
            learn(inner, r)
            plain.update(t for t in tensors_of(r) if t not in inner)
            return replace(r, base=base)
        learn({r.base.name: where[0]}, r)
        shape = tuple(n // count if d == where[0] else n for d, n in enumerate(r.base.shape))
        return replace(r, base=replace(r.base, shape=shape))

    body = map_reads(scope.body, small)
    if plain & dims.keys():
        raise Undivided("a tensor is read along the loop and as a whole")
    loops = tuple(Iter(i.name, 0, length) if i is loop else i for i in scope.loops)
    if valued(body, loop.name):
        ranges = {**scope.ranges, loop.name: (0, length)}
        body = tidy(shifted(body, loop.name, part * length), ranges)
    return replace(scope, loops=loops, body=body), dims


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
