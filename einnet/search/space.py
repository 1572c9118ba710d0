"""The space of forms: explorative derivation over groups of equal scopes (derivation.md section 4).

The unit of search is the scope. A group is a set of scopes that denote the same tensor, found by applying rules to their roots; the scopes
that they read are groups of their own, searched once wherever they stand, so that alternatives add up instead of multiplying. Converging
derivation is tried towards every table at every member and does not count as depth.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from einnet.derivation.normalise import normalise
from einnet.derivation.rule import Refused, Rewrite, Rule
from einnet.derivation.rules import RULES
from einnet.derivation.steps import Step
from einnet.expr.nodes import Scope, is_weight, walk
from einnet.instantiate.match import match
from einnet.instantiate.tables import TABLES, Table
from einnet.search.converge import Converged, converge
from einnet.search.forms import Form, after, converged_form, distinct, plain, substitute_child
from einnet.search.together import together
from einnet.search.trace import AGAIN, CUT, NEW, Observer
from einnet.search.work import BYTES, applies_algorithm, elements, flops, intensity, moved

EXPLORED = ("sum-split", "substitute", "substitute-sum", "tile", "merge", "relax", "bilinear", "divide", "distribute", "join", "collect")
"""Rules that are a choice. tighten and fold are applied always, reorder and relayout where converging derivation wants them."""


@dataclass(frozen=True)
class Options:
    """What the search may do.

    `deadline` is a time.monotonic() value; `states` bounds the scopes visited. `balance` is the machine's FLOPs per byte moved: a scope whose
    intermediate tensors cost more than `slack` times the whole of what it computes at that balance is not visited. Scopes under `intensity` FLOPs
    per element moved are left to code generation (paper section 5).
    """

    max_depth: int = 7
    rules: tuple[str, ...] = EXPLORED
    tables: tuple[Table, ...] = TABLES
    converge: bool = True
    fingerprint: bool = True
    kinds: tuple[str, ...] = ("exact", "reassociation", "precision")
    deadline: float = float("inf")
    states: int = 20_000
    balance: float = 10.0
    slack: float = 4.0
    intensity: float = 4.0


@dataclass
class Statistics:
    """Counts that do not depend on the machine."""

    states: int = 0
    duplicates: int = 0
    cut: int = 0
    converged: int = 0
    stopped: str = ""


@dataclass
class Member:
    """A scope of a group, with the steps from the group's first scope and the depth they count."""

    scope: Scope
    steps: tuple[Step, ...]
    depth: int


@dataclass
class Group:
    """Scopes that denote the same tensor."""

    members: dict[str, Member] = field(default_factory=dict)
    depth: int = -1
    forms: list[Form] = field(default_factory=list)
    busy: bool = False


class Space:
    """All forms of scopes, by group. One space serves a whole program: groups are shared between subprograms."""

    def __init__(
        self, options: Options | None = None, progress: Callable[[Statistics], None] | None = None, observer: Observer | None = None
    ) -> None:  # fmt: skip
        self.options = options or Options()
        self.statistics = Statistics()
        self.groups: dict[str, Group] = {}
        self._progress = progress
        self._observer = observer
        self._rules: tuple[Rule, ...] = tuple(r for r in RULES if r.name in self.options.rules and r.kind in self.options.kinds)

    def forms(self, scope: Scope, depth: int | None = None) -> list[Form]:
        """Every form of the scope that derivations of at most `depth` explorative steps reach, the plain ones first."""
        depth = self.options.max_depth if depth is None else depth
        group = self.groups.setdefault(scope.key if self.options.fingerprint else scope.text(), Group())
        if group.busy:
            return []
        if group.depth < depth:
            group.busy = True
            try:
                self._explore(group, scope, depth)
                group.forms = distinct(self._of_group(scope, group, depth))
                group.depth = depth
            finally:
                group.busy = False
        return group.forms if not group.forms or group.forms[0].start == scope else [Form(scope, f.tree, f.matches, f.steps) for f in group.forms]

    def out_of_budget(self) -> bool:
        """Time or states are used up; what has been found stays valid."""
        if self.statistics.stopped:
            return True
        if time.monotonic() > self.options.deadline:
            self.statistics.stopped = "time"
        elif self.statistics.states >= self.options.states:
            self.statistics.stopped = "states"
        return bool(self.statistics.stopped)

    def _explore(self, group: Group, scope: Scope, depth: int) -> None:
        """Breadth first over the rules at the root, so that every member is known by its shortest derivation."""
        group.members.clear()
        first, steps = normalise(scope)
        self._add(group, Member(first, steps, 0))
        if self._observer:
            self._observer.started(scope, steps, first)
        queue = deque(group.members.values())
        limit = self.options.slack * (flops(first) + self.options.balance * BYTES * elements(first))
        while queue and not self.out_of_budget():
            member = queue.popleft()
            if member.depth >= depth or is_weight(member.scope):
                continue
            for rule, rewrite in self._rewrites(member.scope):
                step = Step(rule.name, rewrite.parameters, member.scope, rewrite.scope, (), rewrite.kind, rewrite.bound)
                normal, more = normalise(rewrite.scope)
                if moved(normal) * self.options.balance > limit:
                    self.statistics.cut += 1
                    outcome = CUT
                elif self._add(group, new := Member(normal, (*member.steps, step, *more), member.depth + 1)):
                    queue.append(new)
                    outcome = NEW
                else:
                    outcome = AGAIN
                if self._observer:
                    self._observer.stepped(member.scope, step, more, normal, outcome)

    def worth(self, scope: Scope) -> bool:
        """Exploring can pay: the scope itself computes much for what it moves, and is no algorithm's transform (those are generated)."""
        return not is_weight(scope) and intensity(scope) >= self.options.intensity and not applies_algorithm(scope)

    def _rewrites(self, scope: Scope) -> Iterator[tuple[Rule, Rewrite]]:
        worth = self.worth(scope)
        for rule in (r for r in self._rules if worth or r.family == "inter"):
            for found in rule(scope):
                if isinstance(found, Refused):
                    if self._observer:
                        self._observer.refused(scope, rule.name, found.why)
                elif found.kind in self.options.kinds:
                    yield rule, found

    def _add(self, group: Group, member: Member) -> bool:
        key = member.scope.key if self.options.fingerprint else f"{member.scope.text()}@{len(group.members)}"
        if key in group.members:
            self.statistics.duplicates += 1
            return False
        group.members[key] = member
        self.statistics.states += 1
        if self._progress and self.statistics.states % 64 == 0:
            self._progress(self.statistics)
        return True

    def _of_group(self, start: Scope, group: Group, depth: int) -> Iterator[Form]:
        """The forms of all members; of the first alone where the budget is used up."""
        for n, member in enumerate(list(group.members.values())):
            if n and self.out_of_budget():
                return
            yield from self._of_member(start, member, depth)

    def _of_member(self, start: Scope, member: Member, depth: int) -> Iterator[Form]:
        left = depth - member.depth
        for form in (plain(member.scope), *self._converged(member.scope)):
            for complete in self._close(form, left):
                yield after(member.steps, start, complete)

    def _converged(self, scope: Scope) -> Iterator[Form]:
        if not scope.sums:
            return
        for table in self.options.tables:
            if self.options.converge:
                found = converge(scope, table)
            else:
                result = match(scope, table)
                found = result if isinstance(result, list) else Converged(scope, (), result, ())
            if self._observer:
                self._observer.tried(scope, table.name, found)
            if isinstance(found, Converged):
                self.statistics.converged += 1
                yield converged_form(scope, found)

    def _close(self, form: Form, depth: int) -> Iterator[Form]:
        """Choose a form for every scope that the generated parts read: all alternatives of one, with the first of the others."""
        vendor = {s for s, _ in form.matches}
        inner = (s for s in walk(form.tree) if s is not form.tree and s not in vendor)
        open_scopes = dict.fromkeys(s for s in inner if any(t.sums for t in walk(s)) and not is_weight(s))
        top = [s for s in open_scopes if not any(s is not t and s in walk(t) for t in open_scopes)]
        top = [s for s in top if not any(s != v and v in walk(s) for v in vendor)]
        if not top:
            yield form
            return
        alternatives = {s: self.forms(s, 0 if self.out_of_budget() else depth) or [plain(s)] for s in top}
        best = form
        for s in top:
            best = substitute_child(best, s, alternatives[s][0])
        yield best
        for s in top:
            for choice in alternatives[s][1:]:
                mixed = form
                for other in top:
                    mixed = substitute_child(mixed, other, choice if other is s else alternatives[other][0])
                yield mixed
        if "join" in self.options.rules and not self.out_of_budget():
            yield from together(form, top, alternatives, self.options.tables)


def deepen(scope: Scope, options: Options, progress: Callable[[Statistics], None] | None = None) -> tuple[list[Form], Statistics]:
    """All forms of a scope by iterative deepening, so that a search that is stopped has all of the depths before.

    Ends early at the depth from which on nothing new is found.
    """
    found: list[Form] = []
    statistics = Statistics()
    for depth in range(options.max_depth + 1):
        space = Space(replace(options, max_depth=depth), progress)
        forms = space.forms(scope)
        more = distinct((*found, *forms))
        same = depth > 1 and space.statistics.states == statistics.states and len(more) == len(found)
        statistics, found = space.statistics, more
        if statistics.stopped or same:
            break
    return found, statistics
