"""Groups of equal scopes, their members, and what a member leaves to be chosen (an AND/OR graph, derivation.md section 4).

A group is an OR: any of its members computes the tensor. A base of a member is an AND: it needs a choice for every scope that it opens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from einnet.derivation.steps import Step
from einnet.expr.nodes import Scope
from einnet.search.forms import Form

Kind = tuple[tuple[int, ...], ...]
"""What vendor operators must share with others to be joined with them."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A scope that a base reads and that is computed by any choice of a group; `fed`: a vendor operator reads it, so it is stored."""

    scope: Scope
    group: Group
    fed: bool


@dataclass(frozen=True, slots=True)
class Base:
    """A member as it is run: generated throughout, or with a vendor operator in it. `cost` is that of everything but the openings, in FLOPs.

    `spare` is the part of it that a generated reader saves, by reading through a copy at the root. `structure` names what is computed, without
    what is read: bases of one structure differ in layout and in what they copy. `kind` is what its operators must share with others to be joined.
    """

    form: Form
    openings: tuple[Opening, ...]
    cost: int
    spare: int
    structure: tuple[str, ...]
    kind: Kind = ()


@dataclass(eq=False)
class Member:
    """A scope of a group. `own` are the steps from its parent, or from the group's scope; `depth` counts the explorative ones from there."""

    scope: Scope
    own: tuple[Step, ...]
    depth: int
    parent: Member | None = None
    bases: tuple[Base, ...] = ()
    expanded: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps from the group's scope."""
        return (*self.parent.steps, *self.own) if self.parent else self.own

    @property
    def cost(self) -> int:
        """The least cost of its bases: what the member cannot avoid, as far as it has been looked at."""
        return min((b.cost for b in self.bases), default=0)


@dataclass(eq=False)
class Group:
    """Scopes that denote the tensor of `scope`, by canonical key, shortest derivation first. A rewritten member may cost `limit` at most."""

    key: str
    scope: Scope
    limit: float
    members: dict[str, Member] = field(default_factory=dict)
    levels: list[list[Member]] = field(default_factory=list)

    def add(self, key: str, member: Member) -> bool:
        """Whether the member is new."""
        if key in self.members:
            return False
        self.members[key] = member
        while len(self.levels) <= member.depth:
            self.levels.append([])
        self.levels[member.depth].append(member)
        return True

    def at(self, depth: int) -> list[Member]:
        """The members of a depth."""
        return self.levels[depth] if 0 <= depth < len(self.levels) else []

    def within(self, depth: int) -> Iterator[Member]:
        """The members of at most a depth that have been looked at."""
        return (m for level in self.levels[: depth + 1] for m in level if m.bases)
