"""Groups of nodes that would be written out too long: a value that several nodes of a group read is written once for each, and theirs again.

Two blocks that read their input thirty times each are an expression of nine hundred reads together, and of sixty apart. Every pass over expressions
follows what is written, so that such a group is cut where the least is written in the longer part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from einnet.expr.nodes import Scope, reads
from einnet.graph.program import Node, Program

MOST_READS = 512
"""Reads in the expression of a group, those of nested scopes as often as these are read; what models have mostly is a tenth of it."""

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
        if len(group) == 1 or self.length(group) <= MOST_READS:
            return [group]
        before = self.best(group)
        if before is None:
            return self.trees(group)
        return [*self.parts(before), *self.parts(group - before)]

    def best(self, group: set[int]) -> set[int] | None:
        """A node with all that leads to it and to nothing else, such that the longer part of the two is as short as it can be."""
        found = [(max(self.length(b), self.length(group - b)), k, b) for k in sorted(group)[:-1] if (b := self.before(k, group))]
        return min(found, key=lambda f: f[:2])[2] if found else None

    def before(self, last: int, group: set[int]) -> set[int] | None:
        """The node and what leads to it in the group; None where something of that is read elsewhere, too."""
        found, pending = {last}, [last]
        while pending:
            new = self.read_by(pending.pop(), group) - found
            found |= new
            pending += new
        inner = found - {last}
        return None if any(self.read_by(k, group) & inner for k in group - found) else found

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

    def read_by(self, k: int, group: set[int]) -> set[int]:
        """Nodes of the group that a node reads."""
        return {self.producer[name] for name in self.program.nodes[k].inputs if self.producer.get(name) in group}

    def length(self, group: set[int]) -> int:
        """Reads in the expression that the nodes are together."""
        total: dict[str, int] = {}
        for k in sorted(group):
            node = self.program.nodes[k]
            if isinstance(node, Node):
                total[node.output.name] = sum(many * (1 + total.get(name, 0)) for name, many in self.reads(node.scope).items())
        return max(total.values(), default=0)

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

