"""Groups of nodes that would be written out too long or too deep: what several nodes of a group read is written once for each, and theirs again.

Two blocks that read their input thirty times each are an expression of nine hundred reads together, and of sixty apart. Every pass over expressions
follows what is written, so that such a group is cut where the least is written in the longer part. Passes follow it inwards by calls, too, of which
Python allows a thousand: a long chain of nodes is cut as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from einnet.expr.nodes import Body, Read, Scope, children, reads
from einnet.graph.program import Node, Program

MOST_READS = 512
"""Reads in the expression of a group, those of nested scopes as often as these are read; what models have mostly is a tenth of it."""

MOST_DEEP = 280
"""Levels of the expression of a group, some of a node in which another one is read: a pass takes about two calls for each."""

NESTED = 3
"""Levels that a read of a nested scope counts for, beside those of this."""

Members = Mapping[int, set[int]]
"""Positions of nodes by the position of the last, which alone is used outside."""


def bounded(program: Program, members: Members) -> dict[int, set[int]]:
    """The groups, those that would be written out too long in parts, as far as they can be cut."""
    cuts = _Cuts(program)
    return {max(part): part for group in members.values() for part in cuts.parts(group)}


@dataclass
class _Cuts:
    program: Program
    producer: dict[str, int] = field(default_factory=dict)
    written_out: dict[Scope, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer = {t.name: k for k, node in enumerate(self.program.nodes) for t in node.outputs}

    def parts(self, group: set[int]) -> list[set[int]]:
        """The group, or parts of it, each with one value that is used outside: that of its last node."""
        if len(group) == 1 or (self.length(group) <= MOST_READS and self.deep(group) <= MOST_DEEP):
            return [group]
        before = self.best(group)
        if before is None:
            return self.trees(group)
        return [*self.parts(before), *self.parts(group - before)]

    def best(self, group: set[int]) -> set[int] | None:
        """A node with all that leads to it and to nothing else, such that the longer part of the two is as short as it can be."""
        leading, total = self.leading(group), self.totals(group)
        written = dict.fromkeys(group, 0)  # how often a node's value is, in that of the last
        written[max(group)] = 1
        for k in sorted(group, reverse=True):
            for made, many in self.read_by(k, group).items():
                written[made] += many * written[k]
        most = max(total.values(), default=0)
        found = [(max(total.get(k, 0), most - written[k] * total.get(k, 0)), k) for k in sorted(group)[:-1] if k in leading]
        if not found:
            return None
        bits = leading[min(found)[1]]
        return {k for k in group if bits >> k & 1}

    def leading(self, group: set[int]) -> dict[int, int]:
        """By node the set of itself and what leads to it in the group, as bits; without nodes of which something of that is read elsewhere, too."""
        users = dict.fromkeys(group, 0)
        for k in group:
            for made in self.read_by(k, group):
                users[made] |= 1 << k
        before: dict[int, int] = {}
        after: dict[int, int] = {}
        for k in sorted(group):
            before[k], after[k] = 1 << k, 0
            for made in self.read_by(k, group):
                before[k] |= before[made]
                after[k] |= after[made] | users[made]
        return {k: found for k, found in before.items() if not after[k] & ~found}

    def trees(self, group: set[int]) -> list[set[int]]:
        """The group in parts in which every value is read by one node: what several read is the last of its part."""
        users: dict[int, set[int]] = {k: set() for k in group}
        for k in group:
            for made in self.read_by(k, group):
                users[made].add(k)
        part: dict[int, int] = {}
        for k in sorted(group, reverse=True):
            part[k] = part[next(iter(users[k]))] if len(users[k]) == 1 else k
        return [{k for k in group if part[k] == last} for last in sorted(set(part.values()))]

    def read_by(self, k: int, group: set[int]) -> dict[int, int]:
        """Nodes of the group that a node reads, and how often its expression does."""
        node = self.program.nodes[k]
        many = self.reads(node.scope) if isinstance(node, Node) else {}
        return {self.producer[name]: many.get(name, 0) for name in node.inputs if self.producer.get(name) in group}

    def length(self, group: set[int]) -> int:
        """Reads in the expression that the nodes are together."""
        return max(self.totals(group).values(), default=0)

    def deep(self, group: set[int]) -> int:
        """Levels of the expression that the nodes are together."""
        found: dict[int, int] = {}
        for k in sorted(group):
            node = self.program.nodes[k]
            own = NESTED + levels(node.scope.body) if isinstance(node, Node) else 0
            found[k] = own + max((found[made] for made in self.read_by(k, group)), default=0)
        return max(found.values(), default=0)

    def totals(self, group: set[int]) -> dict[int, int]:
        """Reads in the expression of each node with what leads to it in the group."""
        total: dict[int, int] = {}
        for k in sorted(group):
            node = self.program.nodes[k]
            if isinstance(node, Node):
                reads = self.reads(node.scope).items()
                total[k] = sum(many * (1 + (total.get(self.producer[name], 0) if name in self.producer else 0)) for name, many in reads)
        return total

    def reads(self, scope: Scope) -> Mapping[str, int]:
        """How often the tensors are read in a scope, written out, by name."""
        if scope not in self.written_out:
            found: dict[str, int] = {}
            for read in reads(scope.body):
                inner = self.reads(read.base) if isinstance(read.base, Scope) else {read.base.name: 1}
                for name, many in inner.items():
                    found[name] = found.get(name, 0) + many
            self.written_out[scope] = found
        return self.written_out[scope]


def levels(body: Body) -> int:
    """How deep an expression is."""
    if isinstance(body, Read):
        return NESTED + levels(body.base.body) if isinstance(body.base, Scope) else 0
    return 1 + max(map(levels, children(body)), default=0)
