"""Cut a program into subprograms: the pieces that derivation works on.

An anchor is a contraction: a sum of products of tensors. Pointwise nodes after it join it. Where what it reads was reduced in some other way
(a softmax) from what another anchor gives, all of that is one piece, since the layout of the tensor in between is free. What is left groups along
chains. Every piece has one output, and nothing inside it is used outside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Union
from weakref import WeakKeyDictionary

from einnet.expr.index import Index, as_index
from einnet.expr.nodes import Mul, Read, Scope, Tensor, exchange_in, reads, tensors
from einnet.graph.chains import chained
from einnet.graph.cuts import bounded
from einnet.graph.program import Node, Opaque, Program, ProgramNode
from einnet.graph.rewrite import anonymous


@dataclass(frozen=True)
class Subprogram:
    """Nodes in order, the last of which gives the output; what they read from outside; the whole as one nested scope."""

    nodes: tuple[Node, ...]
    output: Tensor
    expression: Scope

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors read from outside, by first occurrence."""
        return tuple(tensors(self.expression))

    @cached_property
    def key(self) -> str:
        """The canonical key of the expression with its tensors named t0, t1, ... by first occurrence."""
        return anonymous(self.expression).key

    @property
    def origin(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.origin))


Piece = Union[Subprogram, Opaque]


_KNOWN: WeakKeyDictionary[Program, list[Piece]] = WeakKeyDictionary()


def pieces(program: Program) -> list[Piece]:
    """Subprograms and opaque nodes, producers first. A program, which does not change, is cut once, whoever asks."""
    if program not in _KNOWN:
        _KNOWN[program] = _pieces(program)
    return list(_KNOWN[program])


def _pieces(program: Program) -> list[Piece]:

    def whole(positions: Iterable[int]) -> Subprogram:
        return combine([n for k in sorted(positions) if isinstance(n := program.nodes[k], Node)])

    members = bounded(program, chained(program, bounded(program, _Grouping(program).members), lambda positions: whole(positions).expression))
    found: list[Piece] = []
    for position, node in enumerate(program.nodes):
        if isinstance(node, Opaque):
            found.append(node)
        elif position in members:
            found.append(whole(members[position]))
    return found


def subprograms(program: Program) -> list[Subprogram]:
    """The pieces that are expressions, producers first."""
    return [piece for piece in pieces(program) if isinstance(piece, Subprogram)]


def combine(nodes: Iterable[Node]) -> Subprogram:
    """Nodes, producers first, as one subprogram whose output is that of the last."""
    nodes = tuple(nodes)
    inner: dict[str, Tensor | Scope] = {}
    for node in nodes:
        inner[node.output.name] = exchange_in(node.scope, inner)
    expression = inner[nodes[-1].output.name]
    assert isinstance(expression, Scope)
    return Subprogram(nodes, nodes[-1].output, expression)


def is_contraction(scope: Scope) -> bool:
    """A sum of products of at least two reads, not of one with itself: squares are what normalisations sum."""
    return bool(scope.sums) and scope.reduce == "sum" and isinstance(scope.body, Mul) and len(set(reads(scope.body))) >= 2


def reduces(node: ProgramNode) -> bool:
    """A reduction that is no contraction."""
    return isinstance(node, Node) and bool(node.scope.sums) and not is_contraction(node.scope)


def is_permutation(read: Read, scope: Scope) -> bool:
    """The read takes every loop of the scope once, in any order, over its whole range; a unit loop may be written as its value."""
    box = tuple((0, n) for n in read.base.shape) if isinstance(read.base, Tensor) else read.base.box
    loops = {as_index(i.name): i for i in scope.loops}
    wide = [e for e, (lo, hi) in zip(read.index, box) if hi - lo > 1]
    if len(set(wide)) != len(wide) or len(wide) != sum(i.extent > 1 for i in scope.loops):
        return False
    if any(e not in loops or loops[e].range != side for e, side in zip(read.index, box) if side[1] - side[0] > 1):
        return False
    return all(_unit(e, scope) == lo for e, (lo, hi) in zip(read.index, box) if hi - lo == 1)


def _unit(e: Index, scope: Scope) -> int | None:
    """The value of an index that is a constant or a unit loop."""
    if e.is_const:
        return e.const if e.den == 1 else None
    found = [i.lo for i in scope.loops if i.extent == 1 and as_index(i.name) == e]
    return found[0] if found else None


def follows_pointwise(node: Node, name: str) -> bool:
    """The node has no sum and reads the tensor of that name only at a permutation of its loops, in no nested scope."""
    if node.scope.sums:
        return False
    found = False
    for read in reads(node.scope.body):
        if isinstance(read.base, Scope):
            if name in tensors(read.base):
                return False
        elif read.base.name == name:
            found = True
            if not is_permutation(read, node.scope):
                return False
    return found


MOST_JOINED = 12
"""Nodes between which a value parts and joins again, at most."""


class _Grouping:
    """Which nodes stand together: `members` maps the position of a group's last node to the positions of all.

    The tail of an anchor is found once. It ends before the first node that some group has taken: `length` says where that is by now.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.outputs = program.stored()
        self.position = {t.name: k for k, node in enumerate(program.nodes) for t in node.outputs}
        self.users: dict[str, list[int]] = {}
        for k, node in enumerate(program.nodes):
            for name in node.inputs:
                self.users.setdefault(name, []).append(k)
        self.members: dict[int, set[int]] = {}
        anchors = [k for k, node in enumerate(program.nodes) if isinstance(node, Node) and is_contraction(node.scope)]
        self.taken = set(anchors)
        self.joints: dict[int, list[int]] = {}
        """For each node of a tail, where the tail may end before it: nodes between which a value parts and joins again stay together."""
        self.tails = {k: self._tail(k) for k in anchors}
        self.length = {k: len(tail) for k, tail in self.tails.items()}
        self.places: dict[int, list[tuple[int, int]]] = {}
        for anchor, tail in self.tails.items():
            for n, k in enumerate(tail):
                self.places.setdefault(k, []).append((anchor, self.joints[anchor][n]))
        self.grouped: set[int] = set()
        for k in reversed(anchors):
            if k not in self.grouped:
                self.add(self.with_source(self.with_tail(k)))
        for k in reversed(range(len(program.nodes))):
            if k not in self.taken and isinstance(program.nodes[k], Node):
                self.add(self.cone({k}))

    def add(self, group: set[int]) -> None:
        self.taken.update(group)
        self.grouped.update(group)
        self.members[max(group)] = group
        for k in group:
            for anchor, n in self.places.get(k, ()):
                self.length[anchor] = min(self.length[anchor], max(n, 1))

    def _tail(self, anchor: int) -> list[int]:
        """The anchor and the pointwise nodes after it, as long as each value has a single user, or parts and joins again as in x·sigmoid(x)."""
        tail, joints = [anchor], [0]
        while (more := self._joined(tail[-1])) is not None:
            joints += [len(tail)] * len(more)
            tail += more
        self.joints[anchor] = joints
        return tail

    def _joined(self, last: int) -> list[int] | None:
        """The fewest pointwise nodes after a node of which the last alone is used elsewhere; None where there are none, or too many."""
        found: set[int] = set()
        open_names = {self.program.nodes[last].outputs[0].name}
        while len(found) < MOST_JOINED:
            for name in sorted(open_names):
                if name in self.outputs or not self.users.get(name):
                    return None
                for k in self.users[name]:
                    user = self.program.nodes[k]
                    if k in self.taken or not isinstance(user, Node) or not follows_pointwise(user, name):
                        return None
                    found.add(k)
            made = {self.program.nodes[k].outputs[0].name for k in found}
            ends = {name for name in made if name in self.outputs or not set(self.users.get(name, [])) <= found}
            if len(ends) == 1 and self.position[next(iter(ends))] == max(found):
                return sorted(found) if all(self._pointwise(k, made) for k in found) else None
            open_names = {name for name in ends if self.position[name] != max(found)}
            if not open_names:
                return None
        return None

    def _pointwise(self, k: int, names: set[str]) -> bool:
        """The node reads those of some values that it reads at a permutation of its loops."""
        node = self.program.nodes[k]
        return isinstance(node, Node) and all(follows_pointwise(node, name) for name in node.inputs if name in names)

    def with_tail(self, anchor: int) -> set[int]:
        """The anchor and those pointwise nodes after it that no group has."""
        return set(self.tails[anchor][: self.length[anchor]])

    def waiting(self, k: int, group: Collection[int]) -> list[int]:
        """Anchors that are in no group yet, nor in this one, and have the node in their tails."""
        return [a for a, n in self.places.get(k, ()) if n < self.length[a] and a not in self.grouped and a not in group]

    def with_source(self, group: set[int]) -> set[int]:
        """The group; and, where other reductions stand between it and anchors before it, all from those anchors on."""
        between = self.cone(group, lambda k: bool(self.waiting(k, group)))
        waiting = [k for k in between - group if reduces(self.program.nodes[k])]
        reduced: set[int] = set()
        while waiting:
            k = waiting.pop()
            if k not in reduced:
                reduced.add(k)
                waiting += [p for name in self.program.nodes[k].inputs if (p := self.position.get(name)) is not None and p in between]
        needed = {name for k in reduced for name in self.program.nodes[k].inputs}
        before = (self.position[name] for name in needed if name in self.position)
        sources = {a for k in before for a in self.waiting(k, group) if self.ends_in(a, between, needed)}
        if not sources:
            return group
        found = between.union(*(self.with_tail(a) for a in sources))
        return self.cone(found, lambda k: any(a not in sources for a in self.waiting(k, group)))

    def ends_in(self, anchor: int, group: set[int], names: set[str]) -> bool:
        """The last node of the anchor's tail gives one of the names, and the group alone uses it."""
        name = self.program.nodes[self.tails[anchor][self.length[anchor] - 1]].outputs[0].name
        return name in names and name not in self.outputs and all(user in group for user in self.users[name])

    def cone(self, start: set[int], without: Callable[[int], bool] = lambda k: False) -> set[int]:
        """Some nodes and all free nodes before them, except some, whose values are used inside the group only."""
        group = set(start)
        waiting = [name for k in start for name in self.program.nodes[k].inputs]
        while waiting:
            name = waiting.pop()
            k = self.position.get(name)
            if k is None or k in group or k in self.taken or name in self.outputs or not isinstance(self.program.nodes[k], Node) or without(k):
                continue
            if all(user in group for user in self.users[name]):
                group.add(k)
                waiting.extend(self.program.nodes[k].inputs)
        return group
