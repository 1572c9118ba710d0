"""What nobody reads of a tensor is not computed: classes are told from one token, logits from the last one, planes are cropped or sampled.

    T = L[i<n] f(i), which is read at a + s*k only:    T' = L[k<m] f(a + s*k), read at k
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from einnet.expr.decided import decided, reads_where
from einnet.expr.index import Index, Range, bounds, simplify, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, map_indices, tensors
from einnet.graph.passes.places.scopes import written_anew
from einnet.graph.program import Node, Opaque, Program, ProgramNode

LEAST = 0.125
"""The share of a tensor that has to be unread: for less than this, an odd shape is not worth it."""

Places = tuple[range, ...]
"""For each dimension of a tensor, the places that are read."""


def drop_unread(program: Program) -> Program:
    """Tensors between nodes have the places that are read, where that is a good part less than they had.

    What is given out, what an opaque node reads, and bytes stay whole.
    """
    whole = program.stored() | {name for node in program.nodes if isinstance(node, Opaque) for name in node.inputs}
    read: dict[str, Places] = {}
    parts: dict[str, tuple[Tensor, Places]] = {}
    nodes: list[ProgramNode] = []
    for node in reversed(program.nodes):
        if isinstance(node, Node):
            places = read.get(node.output.name)
            if places and node.output.name not in whole and prod(map(len, places)) <= (1.0 - LEAST) * prod(node.output.shape):
                node = replace(node, output=replace(node.output, shape=tuple(map(len, places))), scope=_at(node.scope, places))
                parts[node.output.name] = node.output, places
            for tensor, found in _places(node.scope):
                read[tensor.name] = _joined(read[tensor.name], found) if tensor.name in read else found
        nodes.append(node)
    if not parts:
        return program
    moved = tuple(replace(n, scope=_moved(n.scope, parts)) if isinstance(n, Node) else n for n in reversed(nodes))
    return replace(program, nodes=moved, holds={name: held for name, held in program.holds.items() if name not in parts})


def _at(scope: Scope, places: Places) -> Scope:
    """The scope at some places; what it reads of scopes inside has the places that are read too."""
    mapping = {i.name: var(i.name) * at.step + (i.lo + at.start) for i, at in zip(scope.loops, places)}
    loops = tuple(Iter(i.name, 0, len(at)) for i, at in zip(scope.loops, places))
    ranges = {i.name: i.range for i in (*loops, *scope.sums)}
    body = map_indices(scope.body, lambda ix: simplify(substitute(ix, mapping), ranges))
    return _narrowed(replace(scope, loops=loops, body=decided(body, ranges)))


def _moved(scope: Scope, parts: Mapping[str, tuple[Tensor, Places]]) -> Scope:
    """The scope, and those inside, with reads of parts where there were reads of the whole."""

    def move(r: Read, s: Scope) -> Read:
        if not isinstance(r.base, Tensor) or r.base.name not in parts:
            return r
        part, places = parts[r.base.name]
        return Read(part, tuple(_counted(ix, at, s.ranges) for ix, at in zip(r.index, places)), r.fill)

    if parts.keys().isdisjoint(tensors(scope)):
        return scope
    return written_anew(scope, move, lambda s, body: s if body is s.body else replace(s, body=body))


def _counted(ix: Index, places: range, ranges: Mapping[str, Range]) -> Index:
    """Which of the places an index function takes; where it takes another the result is outside, or fractional."""
    return (simplify(ix, ranges) - places.start) / places.step if places.step > 1 else ix - places.start


def _narrowed(scope: Scope) -> Scope:
    """The same, where scopes inside have the places that are read."""
    asked: dict[Scope, Places] = {}
    for s in readers_first(scope):
        ranges = {**s.ranges, **{i.name: (i.lo + at.start, i.lo + at.stop) for i, at in zip(s.loops, asked.get(s, ()))}}
        for r, where in reads_where(s.body, ranges):
            if isinstance(r.base, Scope):
                found = tuple(range(at.start, at.stop) for at in _asked(r, where))
                asked[r.base] = _joined(asked[r.base], found) if r.base in asked else found
    loops = {s: tuple(Iter(i.name, i.lo + at.start, i.lo + at.stop) for i, at in zip(s.loops, places)) for s, places in asked.items()}

    def finish(s: Scope, body: Body) -> Scope:
        own = loops.get(s, s.loops)
        if own == s.loops:
            return s if body is s.body else replace(s, body=body)
        ranges = {i.name: i.range for i in (*own, *s.sums)}
        return replace(s, loops=own, body=decided(body, ranges))

    return written_anew(scope, lambda r, _: r, finish)


def readers_first(scope: Scope) -> Sequence[Scope]:
    """The scope and those inside, each after all that read it."""
    found: dict[Scope, None] = {}

    def add(s: Scope) -> None:
        for inner in dict.fromkeys(s.nested):
            if inner not in found:
                add(inner)
        found[s] = None

    add(scope)
    return list(reversed(found))


def _places(scope: Scope) -> Iterator[tuple[Tensor, Places]]:
    """The tensors that the scope and those inside read, and where."""
    for s in readers_first(_narrowed(scope)):
        yield from ((r.base, _asked(r, where)) for r, where in reads_where(s.body, s.ranges) if isinstance(r.base, Tensor))


def _asked(r: Read, ranges: Mapping[str, Range]) -> Places:
    """The places inside its base that a read may take, by dimension, counted from where the base begins."""
    return tuple(_taken(ix, box, ranges) for ix, box in zip(r.index, r.base.box))


def _taken(ix: Index, box: Range, ranges: Mapping[str, Range]) -> range:
    """The values of an index function in a range, as steps from its begin; one place where there is none."""
    lowest, highest = bounds(ix, ranges)
    ix = simplify(ix, ranges)
    step = (gcd(*(c for _, c in ix.terms)) or 1) if ix.den == 1 else 1
    lo = max(lowest, box[0])
    lo += (ix.const - lo) % step if ix.den == 1 else 0
    hi = min(highest, box[1] - 1)
    return range(lo - box[0], hi - box[0] + 1, step) if lo <= hi else range(1)


def _joined(a: Places, b: Places) -> Places:
    return tuple(map(_both, a, b))


def _both(a: range, b: range) -> range:
    """The places of both, and such between them as one step reaches."""
    step = gcd(a.step if len(a) > 1 else 0, b.step if len(b) > 1 else 0, abs(a.start - b.start)) or 1
    return range(min(a.start, b.start), max(a[-1], b[-1]) + 1, step)
