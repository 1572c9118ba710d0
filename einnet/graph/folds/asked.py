"""What asks a state together with something else, asked of each: Σ[k] q*(h + n) is Σ[k] q*h + Σ[k] q*n.

The first sum is one walk with the state that it asks, which is then not written for all times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from einnet.expr.index import in_range, substitute, var
from einnet.expr.nodes import Add, Body, Cond, Mul, Read, Scope, Select, Tensor, fresh, indices, make_add, make_mul, reads, substitute_body
from einnet.graph.onnx.naming import Namer
from einnet.graph.program import Node

EVER = 1 << 62
"""Before all times."""


def asked_apart(nodes: Sequence[Node], states: Set[str], namer: Namer) -> list[Node]:
    """The nodes, with sums over a state and something else as a sum for each of these, and one more that adds them."""
    known = {n.output.name: n for n in nodes}
    return [part for node in nodes for part in (apart(node, known, states, namer) or [node])]


def apart(node: Node, known: Mapping[str, Node], states: Set[str], namer: Namer) -> list[Node]:
    """The sums of a node for each term that it asks, and their sum; none where it asks no state beside something else."""
    s = node.scope
    if not s.sums or s.reduce != "sum" or not isinstance(s.body, Mul):
        return []
    for n, factor in enumerate(s.body.args):
        terms = list(terms_of(factor, s, known))
        if len(terms) < 2 or not any(names(t) & states for t in terms):
            continue
        others = (*s.body.args[:n], *s.body.args[n + 1 :])
        asked = [replace(s, body=make_mul((*others, t))) for t in terms]
        parts = [Node(replace(node.output, name=namer(node.output.name)), walked(a, known, states)) for a in asked]
        total = Scope(s.loops, (), make_add(Read(p.output, indices(s.loops)) for p in parts))
        return [*parts, Node(node.output, total)]
    return []


def walked(s: Scope, known: Mapping[str, Node], states: Set[str]) -> Scope:
    """A sum over a state at a time, Σ[k] q*h[t-c,k] where h is Σ[s<=t] d*k, with that sum as part of its own; other sums as they are.

    Before the first time no s is, and the sum is 0, as what is read there.
    """
    parts = s.body.args if isinstance(s.body, Mul) else (s.body,)
    found = [p for p in parts if isinstance(p, Read) and isinstance(p.base, Tensor) and p.base.name in states and p.fill == 0]
    if len(found) != 1 or sum(len(names(p) & states) for p in parts) != 1:
        return s
    (read,) = found
    walk = known[read.base.name].scope if isinstance(read.base, Tensor) else s
    own = {i.name: ix for i, ix in zip(walk.loops, read.index)}
    box = ((-EVER, walk.loops[0].hi), *walk.box[1:])
    if not all(in_range(ix, b, s.ranges) for ix, b in zip(read.index, box)) or not isinstance(walk.body, Select) or len(walk.sums) != 1:
        return s
    (over,) = walk.sums
    place = {**own, over.name: var(name := fresh(over.name, {*s.ranges, *walk.ranges}))}
    conds = tuple(Cond(substitute(c.index, place), c.equal) for c in walk.body.conds)
    body = make_mul((*(p for p in parts if p is not read), substitute_body(walk.body.then, place)))
    return Scope(s.loops, (*s.sums, over._replace(name=name)), Select(conds, body, walk.body.other))


def terms_of(factor: Body, s: Scope, known: Mapping[str, Node]) -> Iterator[Body]:
    """The terms of what a factor reads, at its place; none where that is no sum of terms, or not all of it is read."""
    if not isinstance(factor, Read) or not isinstance(factor.base, Tensor) or factor.base.name not in known:
        return
    inner = known[factor.base.name].scope
    if inner.sums or not all(in_range(ix, box, s.ranges) for ix, box in zip(factor.index, inner.box)):
        return
    place = {i.name: ix for i, ix in zip(inner.loops, factor.index)}
    if isinstance(inner.body, Add):
        yield from (substitute_body(t, place) for t in inner.body.args)
    elif isinstance(inner.body, Read):
        yield from terms_of(substitute_body(inner.body, place), s, known)


def names(body: Body) -> set[str]:
    """The tensors that a body reads itself."""
    return {r.base.name for r in reads(body) if isinstance(r.base, Tensor)}
