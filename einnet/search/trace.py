"""What a search tells while it runs, for whoever wants to see it: states, the steps between them, what was refused and why.

A search that nobody watches builds none of this: every call stands behind a test for an observer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from einnet.derivation.steps import Step
from einnet.expr.nodes import Scope
from einnet.instantiate.matching.types import Mismatch
from einnet.search.converge import Converged

NEW, AGAIN, CUT = "new", "again", "cut"
"""Where a step led: to a state that was not known, to one that was, to one that moves too much data to be visited."""


class Observer(Protocol):
    """Callbacks of a search. A scope may be told of more than once: iterative deepening visits it at every depth."""

    def started(self, scope: Scope, steps: Sequence[Step], normal: Scope) -> None:
        """A group begins: forced steps lead from the scope that was asked for to its normal form, the group's first state."""

    def stepped(self, before: Scope, step: Step, forced: Sequence[Step], after: Scope, outcome: str) -> None:
        """A rule was applied to the state `before`; forced steps follow; `outcome` is NEW, AGAIN or CUT."""

    def refused(self, scope: Scope, rule: str, why: str) -> None:
        """A rule does not apply to a state."""

    def tried(self, scope: Scope, table: str, found: Converged | list[Mismatch]) -> None:
        """Converging derivation towards a vendor operator: how it got there, or what cannot be mended."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A step between two states, by key."""

    before: str
    after: str
    rule: str
    parameters: str
    kind: str
    outcome: str
    forced: tuple[str, ...] = ()


@dataclass
class Trace:
    """An observer that keeps everything, each thing once. States are known by their keys, in the order in which they were met."""

    states: dict[str, Scope] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)
    edges: dict[tuple[str, str, str, str], Edge] = field(default_factory=dict)
    refusals: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    attempts: dict[str, dict[str, Converged | list[Mismatch]]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)

    def started(self, scope: Scope, steps: Sequence[Step], normal: Scope) -> None:
        self._met(normal)
        self.starts[scope.key] = normal.key

    def stepped(self, before: Scope, step: Step, forced: Sequence[Step], after: Scope, outcome: str) -> None:
        self._met(after)
        (self.cut.add if outcome == CUT else self.cut.discard)(after.key)
        edge = Edge(before.key, after.key, step.rule, step.parameters, step.kind, outcome, tuple(s.rule for s in forced))
        self.edges.setdefault((before.key, after.key, step.rule, step.parameters), edge)

    def refused(self, scope: Scope, rule: str, why: str) -> None:
        self.refusals.setdefault(scope.key, {})[rule, why] = None

    def tried(self, scope: Scope, table: str, found: Converged | list[Mismatch]) -> None:
        self._met(scope)
        self.attempts.setdefault(scope.key, {})[table] = found

    def _met(self, scope: Scope) -> None:
        self.states.setdefault(scope.key, scope)
