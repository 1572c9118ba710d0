"""The space of forms: explorative derivation over groups of equal scopes (derivation.md section 4).

The unit of search is the scope. A group is a set of scopes that denote the same tensor, found by applying rules to their roots; the scopes
that they read are groups of their own, searched once wherever they stand, so that alternatives add up instead of multiplying. Converging
derivation is tried towards every table at every member and does not count as depth.

The search goes in layers: layer d has what derivations of d explorative steps reach, the depths of nested groups added up along the way from
the root. A search of depth d+1 is one of depth d and another layer, so it finds no less; and it can stop anywhere, and go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import inf

from einnet.expr.nodes import Scope, is_weight
from einnet.search.ahead.sights import Moves, Sights
from einnet.search.bases import closed_base
from einnet.search.forms import Form, effort, plain
from einnet.search.groups import Base, Group, Member, Opening
from einnet.search.together import together
from einnet.search.trace import AGAIN, CUT, NEW, Observer
from einnet.search.ways import Ways
from einnet.search.work import moved

JOINED = 2.0
"""Times what it takes as one may be taken by what is joined of two operators: they read what they share, and are started, twice."""


@dataclass(frozen=True)
class Options(Moves):
    """What the search may do.

    `deadline` is a time.monotonic() value; `states` bounds the scopes visited. A scope whose intermediate tensors cost more than `slack` times the
    best way found for the root is not visited, and few operators are joined in what costs `JOINED` times the best way. Of the ways to compute a
    tensor the `inner` cheapest are known to its readers, and the `kept` cheapest of every layer are made into forms, `few` of one structure. Layers
    up to `certain` are completed whatever the budget: they hold what one step and converging derivation reach.
    """

    max_depth: int = 7
    fingerprint: bool = True
    deadline: float = float("inf")
    states: int = 20_000
    inner: int = 64
    kept: int = 512
    few: int = 3
    certain: int = -1


@dataclass
class Statistics:
    """Counts that do not depend on the machine; `stopped_at` are the states that there were when a budget ended the search."""

    states: int = 0
    duplicates: int = 0
    cut: int = 0
    converged: int = 0
    stopped: str = ""
    stopped_at: int | None = None


@dataclass
class Root:
    """A search from one scope: the groups that it has reached, with the explorative steps spent on the way there, and the forms kept so far.

    `layer` is the greatest depth that is complete, -1 before any; `partial` are forms of a layer that was left incomplete. What is complete ranks by
    other ways than what was not: so `earlier` are forms of such layers that are kept, too, as a longer search is to lose nothing.
    """

    group: Group
    ways: Ways
    offsets: dict[Group, int] = field(default_factory=dict)
    layer: int = -1
    best: float = float("inf")
    kept: dict[str, Form] = field(default_factory=dict)
    partial: dict[str, Form] = field(default_factory=dict)
    earlier: dict[str, Form] = field(default_factory=dict)


class Space:
    """All forms of scopes, by group. One space serves a whole program: groups are shared between subprograms."""

    def __init__(
        self, options: Options | None = None, progress: Callable[[Statistics], None] | None = None, observer: Observer | None = None,
        sights: Sights | None = None,
    ) -> None:  # fmt: skip
        self.options = options or Options()
        self.statistics = Statistics()
        self.groups: dict[str, Group] = {}
        self.roots: dict[str, Root] = {}
        self._progress = progress
        self._observer = observer
        self._keeping_s = 0.0
        self.sights = sights or Sights(self.options, observer)

    def forms(self, scope: Scope, depth: int | None = None) -> list[Form]:
        """The forms that are kept of those that derivations of at most `depth` explorative steps reach: of every layer the cheapest first.

        The first are the originals: the expression as it stands, with what a vendor operator computes as it stands.
        """
        depth = self.options.max_depth if depth is None else depth
        if scope.key not in self.roots:
            joining = self._together if "join" in self.options.rules else None
            self.roots[scope.key] = Root(self._group(scope), Ways(self.options.inner, self.options.few, combine=joining, late=self._late))
        root = self.roots[scope.key]
        root.ways.forget()
        while root.layer < depth and self._layer(root, root.layer + 1):
            pass
        every = first_of_each(first_of_each(root.kept, root.partial), root.earlier)
        found = [f for f in every.values() if self.sights.allowed(f.steps)] or [plain(scope)]
        return found if found[0].start == scope else [Form(scope, f.tree, f.matches, f.steps) for f in found]

    def resume(self, options: Options, progress: Callable[[Statistics], None] | None = None) -> None:
        """Go on with another budget: `forms` begins where the last one ended it. Of the options only states and deadline may differ."""
        self.options, self._progress = options, progress
        self.statistics.stopped, self.statistics.stopped_at = "", None

    def out_of_budget(self) -> bool:
        """Time or states are used up, the time that it takes to find the best forms set aside; what has been found stays valid."""
        s = self.statistics
        late = not s.stopped and time.monotonic() + self._keeping_s * s.states > self.options.deadline
        self._stop(s.stopped or ("time" if late else "states" if s.states >= self.options.states else ""))
        return bool(s.stopped)

    def _stop(self, why: str) -> None:
        """The first reason, and the states that there were then, are those that count."""
        s = self.statistics
        s.stopped = s.stopped or why
        if s.stopped and s.stopped_at is None:
            s.stopped_at = s.states

    def _late(self) -> bool:
        """The time is over: what has many operators to join is left as it is."""
        return self.options.deadline < inf and time.monotonic() > self.options.deadline

    def _layer(self, root: Root, depth: int) -> bool:
        """Expand the members of the layer before, the cheapest first, and keep the best forms; whether the layer is complete."""
        self._reach(root, root.group, 0)
        due = [(g, m) for g, offset in root.offsets.items() for m in g.at(depth - 1 - offset) if not m.expanded]
        due.sort(key=lambda d: (d[1].cost, d[0].key, d[1].scope.key))
        self.sights.expect(((m.scope, g.limit) for g, m in due if self._promises(root, m)), self.options.deadline)
        complete = True
        for group, member in due:
            complete = complete and (depth <= self.options.certain or not self.out_of_budget())
            if complete and self._promises(root, member):
                self._expand(root, group, member)
        for group, offset in list(root.offsets.items()):
            for member in group.at(depth - offset):
                complete = self._look(root, member, depth) and complete
        self.sights.expect((), self.options.deadline)
        self._keep(root, depth, complete)
        return root.layer == depth

    def _keep(self, root: Root, depth: int, complete: bool) -> None:
        """The best forms of a layer beside those of the layers before; and how long it took to find them, which grows with the states."""
        begin = time.monotonic()
        if depth == 0:
            originals = Ways(self.options.inner, self.options.few, lambda base: base.form.unchanged)
            root.kept = {f.key: f for f in map(originals.form, originals.of(root.group, 0))}
        root.ways.limit = JOINED * root.best
        root.ways.most_apart = self.options.slack * root.ways.limit
        ways = root.ways.of(root.group, depth, self.options.kept)
        root.best = ways[0].cost
        found = {f.key: f for f in map(root.ways.form, ways)}
        best = nsmallest(self.options.kept, (f for f in {**root.earlier, **root.partial}.values() if not f.unchanged), effort)
        root.earlier = {f.key: f for f in best}
        if complete and not self._late():
            root.kept, root.partial, root.layer = first_of_each(root.kept, found), {}, depth
        else:
            root.partial = found
            root.ways.forget()
            self._stop("time")
        self._keeping_s = (time.monotonic() - begin) / self.statistics.states

    def _promises(self, root: Root, member: Member) -> bool:
        """What the member moves leaves room for a way that is not much slower than the best one known, or is no more than the root as it stands does:
        differences of all pairs are far more than goes in and out, and no kernel that adds up their squares stores them."""
        most = max(self.options.slack * root.best, moved(root.group.at(0)[0].scope) * self.options.weights.balance)
        return not is_weight(member.scope) and moved(member.scope) * self.options.weights.balance <= most

    def _group(self, scope: Scope) -> Group:
        """The group of a scope, with its normal form as the first member."""
        key = scope.key if self.options.fingerprint else f"{len(self.groups)}"
        group = self.groups.get(key)
        if group is None:
            start = self.sights.start(scope)
            group = self.groups[key] = Group(key, scope, start.limit)
            self._add(group, Member(start.first, start.steps, 0))
            if self._observer:
                self._observer.started(scope, start.steps, start.first)
        return group

    def _reach(self, root: Root, group: Group, depth: int) -> None:
        """The root's derivations read the group's tensor, after `depth` explorative steps."""
        if group not in root.offsets:
            root.offsets[group] = depth
            self._look(root, group.at(0)[0], depth)

    def _bases(self, scope: Scope) -> tuple[Base, ...]:
        """How a scope can be run; what that reads has one group each."""
        found = self.sights.bases(scope)
        self.statistics.converged += len({id(sight.form) for sight in found}) - 1
        groups: dict[Scope, Group] = {}

        def group_of(read: Scope) -> Group:
            if read not in groups:
                groups[read] = self._group(read)
            return groups[read]

        return tuple(s.base(tuple(Opening(read, group_of(read), fed) for read, fed in s.opens)) for s in found)

    def _together(self, base: Base, chosen: Mapping[Scope, Form]) -> Iterator[Base]:
        """The base with operators of sibling openings joined."""
        for form in together(base.form, chosen, self.options.tables):
            yield closed_base(form, self.options.weights)

    def _expand(self, root: Root, group: Group, member: Member) -> None:
        """Apply every rule to the member."""
        for found in self.sights.successors(member.scope, group.limit):
            if found.cut:
                self.statistics.cut += 1
                outcome = CUT
            elif self._add(group, new := Member(found.scope, (found.step, *found.forced), member.depth + 1, member)):
                self._look(root, new, root.offsets[group] + new.depth)
                outcome = NEW
            else:
                outcome = AGAIN
            if self._observer:
                self._observer.stepped(member.scope, found.step, found.forced, found.scope, outcome)
        member.expanded = True

    def following(self, scope: Scope) -> Iterator[Scope]:
        """The normal forms that one step leads to from a scope, if nothing is cut: one for every result of every rule, equal or not."""
        return (found.scope for found in self.sights.successors(scope, inf))

    def _add(self, group: Group, member: Member) -> bool:
        if not group.add(member.scope.key if self.options.fingerprint else f"{len(group.members)}", member):
            self.statistics.duplicates += 1
            return False
        self.statistics.states += 1
        if self._progress and self.statistics.states % 16 == 0:
            self._progress(self.statistics)
        return True

    def _look(self, root: Root, member: Member, depth: int) -> bool:
        """See how the member can be run, and reach what it reads; the first member of a group even where the budget is used up."""
        if not member.bases:
            if member.depth > max(self.options.certain, 0) and self.out_of_budget():
                return False
            member.bases = self._bases(member.scope)
        for base in member.bases:
            for opening in base.openings:
                self._reach(root, opening.group, depth)
        return True


def first_of_each(known: Mapping[str, Form], more: Mapping[str, Form]) -> dict[str, Form]:
    """The known forms and those of other keys: a round trip of rules that ends in a known form is no other form, and an original stays one."""
    return {**known, **{key: form for key, form in more.items() if key not in known}}


def deepen(
    scope: Scope, options: Options, progress: Callable[[Statistics], None] | None = None, space: Space | None = None
) -> tuple[list[Form], Statistics]:  # fmt: skip
    """The forms of a scope within the options' depth and budget, and what it took to find them; going on in a `space` that knows some already."""
    space = space or Space(options, progress)
    space.resume(options, progress)
    return space.forms(scope), replace(space.statistics)
