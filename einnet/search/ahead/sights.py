"""What a search learns of one scope by looking at it alone: where a step leads, how it can be run, where its group starts.

These are functions of the scope and of what the search may do. So they can be found in any order, ahead, by another process: the search asks for
them in its own order, and becomes what it would have been alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from einnet.derivation.facts import is_copy
from einnet.derivation.moves.rule import Refused, Rewrite, Rule
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import EXPLORED, RULES
from einnet.derivation.steps import Step, kinds_of
from einnet.expr.nodes import Scope, is_weight, nested, walk
from einnet.instantiate.matching.types import Table
from einnet.instantiate.registry import TABLES
from einnet.search.bases import Sight, converged_forms, sights_of
from einnet.search.forms import plain
from einnet.search.trace import Observer
from einnet.search.work import BYTES, MACHINE, Weights, applies_algorithm, elements, flops, intensity, moved


@dataclass(frozen=True)
class Moves:
    """What may be done with a scope.

    `weights` compares FLOPs, bytes and launches: a scope whose intermediate tensors cost more than `slack` times the whole of what it computes is
    not visited. Scopes under `intensity` FLOPs per element moved are left to code generation (paper section 5).
    """

    rules: tuple[str, ...] = EXPLORED
    tables: tuple[Table, ...] = TABLES
    converge: bool = True
    kinds: tuple[str, ...] = ("exact", "reassociation", "precision")
    weights: Weights = MACHINE
    slack: float = 4.0
    intensity: float = 4.0


@dataclass(frozen=True, slots=True)
class Successor:
    """Where a step leads: to the normal `scope` after `forced` steps, which is `cut` where it moves too much to be visited."""

    step: Step
    forced: tuple[Step, ...]
    scope: Scope
    cut: bool


@dataclass(frozen=True, slots=True)
class Start:
    """The first member of a group, the steps to it, and what a rewritten member may cost."""

    first: Scope
    steps: tuple[Step, ...]
    limit: float


class Sights:
    """Looks at scopes. Whoever has found something ahead is asked the same."""

    def __init__(self, moves: Moves, observer: Observer | None = None) -> None:
        self.moves, self._observer = moves, observer
        self._kinds = frozenset(moves.kinds)
        self._rules: tuple[Rule, ...] = tuple(r for r in RULES if r.name in moves.rules and r.kind in moves.kinds)

    def expect(self, due: Iterable[tuple[Scope, float]], until: float) -> None:
        """The successors of these scopes within these limits will be asked for in this order, before `until`, a time.monotonic() value."""

    def start(self, scope: Scope) -> Start:
        """Where the group of a scope starts."""
        first, steps = normalise(scope)
        if not self.allowed(steps):
            first, steps = scope, ()
        return Start(first, steps, self.moves.slack * (flops(first) + self.moves.weights.balance * BYTES * elements(first)))

    def bases(self, scope: Scope) -> Sequence[Sight]:
        """How it can be run: generated throughout, and with each vendor operator that is reached."""
        reached = converged_forms(scope, self.moves.tables, self.moves.converge, self._observer)
        converged = [form for form in reached if self.allowed(form.steps)]
        return [sight for form in (plain(scope), *converged) for sight in sights_of(form, self.moves.weights)]

    def successors(self, scope: Scope, limit: float) -> Iterable[Successor]:
        """Where every rule leads.

        An algorithm within another is for products so large that what it moves is less than what they compute, and its transforms stay apart. What
        moves no more than the scope did is visited, however much that is.
        """
        for rule, rewrite in self._rewrites(scope):
            step = Step(rule.name, rewrite.parameters, scope, rewrite.scope, (), rewrite.kind, rewrite.bound)
            normal, forced = normalise(rewrite.scope)
            if self.allowed(forced):
                inner = rule.name == "bilinear" and any(map(applies_algorithm, walk(scope)))
                undone = rule.name == "merge" and applies_algorithm(normal) and not applies_algorithm(scope)
                costly = moved(normal) * self.moves.weights.balance > limit / (self.moves.slack if inner else 1.0) and moved(normal) > moved(scope)
                yield Successor(step, forced, normal, undone or costly)

    def allowed(self, steps: Iterable[Step]) -> bool:
        """All steps are of the numerical classes that are allowed."""
        return kinds_of(steps) <= self._kinds

    def worth(self, scope: Scope) -> bool:
        """Exploring can pay: the scope computes much for what it moves, or reads what another one reduces, and is no algorithm's transform.

        What reads something computed may pass into it, so that much is computed there or nothing: its own arithmetic tells nothing of that.
        """
        if is_weight(scope) or applies_algorithm(scope):
            return False
        return intensity(scope) >= self.moves.intensity or reads_computed(scope)

    def _rewrites(self, scope: Scope) -> Iterator[tuple[Rule, Rewrite]]:
        worth = self.worth(scope)
        for rule in (r for r in self._rules if worth or r.family == "inter"):
            for found in rule(scope):
                if isinstance(found, Refused):
                    if self._observer:
                        self._observer.refused(scope, rule.name, found.why)
                elif found.kind in self.moves.kinds:
                    yield rule, found


def reads_computed(scope: Scope) -> bool:
    """Something is read that is no copy of a tensor, nor known at compile time."""
    return any(not is_weight(s) and (not is_copy(s) or reads_computed(s)) for s in nested(scope))
