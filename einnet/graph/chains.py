"""Groups of nodes that are better looked at as one: chains of contractions, reductions and constants through which sums can pass.

A group joins the only group that uses its value, where nothing between them stops a sum (an activation does), and where the two together could
take fewer operations than one after the other: another order, weights that fold into weights, a reduction pulled through a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from einnet.expr.index import Floor
from einnet.expr.nodes import Mul, Scope, Tensor, is_weight, reads, tensors, walk
from einnet.graph.program import Node, Program
from einnet.graph.promise import Expansion, least, passes, taken
from einnet.graph.rewrite import anonymous

MOST_REDUCTIONS = 8
"""Reductions in a chain; one with more is cut."""

MOST_NODES = 32

GAIN = 0.99
"""A chain is one piece where at best it takes less than this share of what its parts take."""

ALIKE = 1.005
"""What is left over where a chain is cut may be this much more than what the chain takes at best."""

SWOLLEN = 4
"""A value of so many times as many elements as all that goes in and out is not handed from one piece to the next."""

Members = Mapping[int, set[int]]
"""Positions of nodes by the position of the last, which alone is used outside."""


def chained(program: Program, members: Members, expression: Callable[[Iterable[int]], Scope]) -> dict[int, set[int]]:
    """The groups, some of them joined; `expression` gives that of some positions."""
    return _Chains(program, members, expression).joined()


@dataclass(frozen=True)
class Opened:
    """Whether a sum passes a scope, and the names of the tensors that it reads where one does."""

    passes: bool
    names: frozenset[str]


@dataclass
class _Chains:
    program: Program
    members: Members
    expression: Callable[[Iterable[int]], Scope]
    own: dict[int, Scope] = field(default_factory=dict)
    known: dict[Scope, Mapping[Scope, float]] = field(default_factory=dict)
    """What scopes take at best, by what it is computed for, their tensors named by first occurrence: layers have each chain many times."""
    opened: dict[Scope, Opened] = field(default_factory=dict)
    users: dict[int, set[int] | None] = field(default_factory=dict)
    """Groups that use a group's value; None where something else does."""

    def joined(self) -> dict[int, set[int]]:
        """What is left of the groups."""
        self.find_users()
        root: dict[int, int] = {}
        chains: dict[int, list[int]] = {}
        for g in sorted(self.members, reverse=True):
            to = self.link(g, root, chains)
            root[g] = g if to is None else to
            chains.setdefault(root[g], []).append(g)
        found: dict[int, set[int]] = {}
        for chain in chains.values():
            for part in (p for cut in self.cut(sorted(chain)) for p in self.closed(cut)):
                found[max(part)] = set().union(*(self.members[g] for g in part))
        return found

    def find_users(self) -> None:
        owner = {k: last for last, group in self.members.items() for k in group}
        last = {self.program.nodes[g].outputs[0].name: g for g in self.members}
        given_out = self.program.stored()
        self.users = {g: None if name in given_out else set() for name, g in last.items()}
        for k, node in enumerate(self.program.nodes):
            for name in node.inputs:
                g = last.get(name)
                if g is not None and owner.get(k) != g:
                    known = self.users[g]
                    self.users[g] = None if known is None or k not in owner else known | {owner[k]}

    def link(self, g: int, root: Mapping[int, int], chains: Mapping[int, list[int]]) -> int | None:
        """The chain that the group may join: all its users are in it, and a sum passes from them into the group."""
        users = self.users[g]
        roots = {root[u] for u in users} if users else set()
        if len(roots) != 1 or users is None:
            return None
        (to,) = roots
        whole = [*chains[to], g]
        if self.in_digits(g) and any(map(self.reduces, chains[to])) or self.reduces(g) and any(map(self.in_digits, chains[to])):
            return None
        reductions = sum(bool(n.scope.sums) for x in whole for n in self.nodes(x))
        if reductions > MOST_REDUCTIONS or sum(len(self.members[x]) for x in whole) > MOST_NODES or not self.open_in(g).passes:
            return None
        name = self.program.nodes[g].outputs[0].name
        return to if all(self.reads_openly(u, name) for u in users) else None

    def nodes(self, g: int) -> list[Node]:
        return [n for k in self.members[g] if isinstance(n := self.program.nodes[k], Node)]

    def scope(self, g: int) -> Scope:
        if g not in self.own:
            self.own[g] = self.expression(self.members[g])
        return self.own[g]

    def reads_openly(self, g: int, name: str) -> bool:
        """The group reads the tensor of that name where a sum passes."""
        own = list(tensors(self.scope(g)))
        return name in own and f"t{own.index(name)}" in self.open_in(g).names

    def open_in(self, g: int) -> Opened:
        """What sums can pass in a group, and of which tensors, named by first occurrence."""
        scope = anonymous(self.scope(g))
        if scope not in self.opened:
            names = frozenset(f.base.name for f in Expansion(scope).linear if isinstance(f.base, Tensor))
            self.opened[scope] = Opened(passes(scope), names)
        return self.opened[scope]

    def least(self, scope: Scope) -> float:
        """Operations of a scope at best."""
        return least(anonymous(scope), self.known)

    def together(self, chain: Iterable[int]) -> Scope:
        return self.expression(k for g in chain for k in self.members[g])

    def cut(self, chain: list[int]) -> list[list[int]]:
        """The chain in parts that are worth their while, each with one value that is used outside: the greatest position of it."""
        if len(chain) == 1:
            return [chain]
        whole = self.together(chain)
        at_best = self.least(whole)
        if at_best < GAIN * taken(whole):
            for g in chain[:-1]:
                before = self.before(g, chain)
                rest = [x for x in chain if x not in before]
                in_two = self.least(self.together(before)) + self.least(self.together(rest))
                if in_two <= ALIKE * at_best and not self.moves(g) and not self.swells(g, whole):
                    return [*self.cut(before), *self.cut(rest)]
            return [chain]
        (*others, last) = chain
        for g in reversed(others):
            if self.users[g] == {last} and self.reduces(last) and self.reduces(g):
                both = self.together([g, last])
                if self.least(both) < GAIN * taken(both):
                    apart = [x for x in others if x != g]
                    return [[g, last], *self.apart(apart)]
        return [[last], *self.apart(others)]

    def closed(self, part: list[int]) -> list[list[int]]:
        """The part, without what another one uses, too, which is one by itself."""
        (*others, _) = part
        for g in others:
            if not (self.users[g] or set()) <= set(part):
                before = self.before(g, part)
                return [*self.closed(before), *self.closed([x for x in part if x not in before])]
        return [part]

    def apart(self, groups: list[int]) -> list[list[int]]:
        """Groups as chains of their own, again."""
        left, found = list(groups), list[list[int]]()
        while left:
            chain = self.before(left[-1], left)
            left = [x for x in left if x not in chain]
            found += self.cut(chain)
        return found

    def before(self, g: int, chain: list[int]) -> list[int]:
        """The group, and those of the chain that only lead to it."""
        found = {g}
        for x in sorted(chain, reverse=True):
            if x < g and (users := self.users[x]) and users <= found:
                found.add(x)
        return sorted(found)

    def reduces(self, g: int) -> bool:
        return any(n.scope.sums for n in self.nodes(g))

    def swells(self, g: int, whole: Scope) -> bool:
        """The group's value is far larger than all that the chain reads and gives: the states of all times, of which each time asks a little."""
        around = prod(whole.shape) + sum(prod(t.shape) for t in tensors(whole).values())
        return prod(self.scope(g).shape) > SWOLLEN * around

    def in_digits(self, g: int) -> bool:
        """The group has a table that is a product of smaller ones: no sum gains by passing it, what it makes of the table is none."""
        return any(is_product_in_digits(r.base) for s in walk(self.scope(g)) for r in reads(s.body) if isinstance(r.base, Scope))

    def moves(self, g: int) -> bool:
        """The group only moves data."""
        return not self.reduces(g) and all(len(t.factors) == 1 and t.factors[0].base is not None for t in Expansion(self.scope(g)).terms)


def is_product_in_digits(scope: Scope) -> bool:
    """The scope is a table of which the factors are read by digits of its places."""
    indices = [ix for r in reads(scope.body) for ix in r.index]
    return is_weight(scope) and isinstance(scope.body, Mul) and any(isinstance(a, Floor) for ix in indices for a, _ in ix.terms)
