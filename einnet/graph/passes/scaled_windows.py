"""Numbers by which windows of one tensor are scaled, folded into the weights that make it.

    c·T[f(x)] = (s·T)[f(x)]  where s is c in the window that f reaches along one dimension, and 1 where others read T

Queries and keys that are scaled behind a product that gives the values, too, are the usual case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from einnet.expr.index import bounds, var
from einnet.expr.nodes import Body, Cond, Const, Read, Scope, Select, Tensor, indices, reads
from einnet.graph.passes.affine import ONE, affine_in, data_inputs, mentions, product, scale_weights, scaled_read
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh


@dataclass(frozen=True, slots=True)
class Window:
    """Places [lo, hi) along a dimension of a tensor, and the number by which its reader scales them."""

    lo: int
    hi: int
    scale: Const


def fold_scaled_windows(program: Program) -> Program:
    """Scales of disjoint windows become part of the contraction that is read, where a weight of it varies along the windows."""
    given_out = {tensor for _, tensor in program.outputs}
    users, fresh = program.users(), Fresh(program)
    made = {n.output.name: n for n in program.expression_nodes()}
    weights: dict[str, Node] = {}
    changed: set[str] = set()
    for name in list(made):
        node = made[name]
        wanted = name not in given_out and any(isinstance(u, Node) and scaled(u.scope, name) for u in users.get(name, ()))
        source = contraction(node, made, users, given_out) if wanted else None
        if source is None:
            continue
        for dimension, windows in scaled_windows(users[name], node.output):
            parts = scale_weights(source, scale(windows, source.scope, dimension), fresh)
            if parts is not None:
                weights[source.output.name], made[source.output.name] = parts
                if source is not node:
                    made[name] = rescaled(node, scale(windows, node.scope, dimension), source.output.name)
                made |= {u.output.name: unscaled(made[u.output.name], name) for u in users[name] if isinstance(u, Node)}
                changed |= {name, source.output.name}
                given_out |= changed
                break
    nodes = [n for old in program.nodes for n in (weights.get(old.outputs[0].name), made.get(old.outputs[0].name, old)) if n]
    return replace(program, nodes=tuple(nodes), holds={name: held for name, held in program.holds.items() if name not in changed})


def scaled(scope: Scope, name: str) -> bool:
    """The scope is a number other than 1 times a read of the tensor of that name."""
    found = scaled_read(scope)
    return found is not None and found[2] == name


def scaled_windows(users: Iterable[ProgramNode], tensor: Tensor) -> Iterator[tuple[int, list[Window]]]:
    """The dimensions along which those who scale a tensor by different numbers read different places, and these places."""
    found: list[tuple[Scope, Read, Const]] = []
    for user in users:
        if not isinstance(user, Node) or any(isinstance(r.base, Scope) and mentions(r, tensor.name) for r in reads(user.scope.body)):
            return
        factor = scaled_read(user.scope)
        own = factor[0] if factor and factor[2] == tensor.name else ONE
        found += [(user.scope, r, own) for r in reads(user.scope.body) if r.base == tensor]
    for d in range(len(tensor.shape)):
        reached = [(bounds(r.index[d], scope.ranges), factor) for scope, r, factor in found]
        windows = sorted({Window(lo, hi + 1, factor) for (lo, hi), factor in reached}, key=lambda w: (w.lo, w.hi))
        if all(a.hi <= b.lo for a, b in pairwise(windows)):
            yield d, windows


def contraction(node: Node, made: Mapping[str, Node], users: Mapping[str, Sequence[ProgramNode]], given_out: set[str]) -> Node | None:
    """The contraction that gives a tensor, but for a scale and a shift by weights; nobody else reads it."""
    if node.scope.sums:
        return node
    names = data_inputs(node)
    before = made.get(names[0]) if len(names) == 1 else None
    if before is None or not before.scope.sums or before.output.name in given_out or len(users[names[0]]) > 1 or node.scope.box != before.scope.box:
        return None
    return before if affine_in(node.scope.body, names[0], indices(node.scope.loops)) else None


def scale(windows: Iterable[Window], scope: Scope, dimension: int) -> Body:
    """What a scope is scaled by, over its loops."""
    at = var(scope.loops[dimension].name)
    body: Body = ONE
    for w in windows:
        if w.scale != ONE:
            body = Select((Cond(at - w.lo), Cond(w.hi - 1 - at)), w.scale, body)
    return body


def rescaled(node: Node, factor: Body, name: str) -> Node:
    """The node that shifts a contraction, which is scaled now: its own scale stays, its shift is scaled as well."""
    form = affine_in(node.scope.body, name, indices(node.scope.loops))
    (read,) = (r for r in reads(node.scope.body) if isinstance(r.base, Tensor) and r.base.name == name)
    assert form is not None
    return replace(node, scope=replace(node.scope, body=replace(form, shift=product(factor, form.shift)).body(read)))


def unscaled(node: Node, name: str) -> Node:
    """The reader without its factor."""
    found = scaled_read(node.scope)
    return replace(node, scope=replace(node.scope, body=found[1])) if found and found[2] == name else node
