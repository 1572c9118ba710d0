"""What a run that was allowed less has kept for a model: a run that is allowed more keeps it, too, or what is surely faster.

Two runs are of one model where the model's own operators are one plan: times hang on kernels and where they read and write, and not on the values of
weights. What was derived is made again from what that run has found for the subprograms, and is known only where the same plan comes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from einnet.errors import ModelError
from einnet.search.outcome import canonical
from einnet.search.recall import search_version

if TYPE_CHECKING:
    from einnet.compile.history import Memory
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.costs import CpuCost
    from einnet.search.outcome import Outcome
    from einnet.search.settings import Settings

Json = Any

KEPT = "kept for a model"
"""What the database is asked."""


@dataclass(frozen=True)
class Kept:
    """What ran in the end: the digest of its plan, and the subprograms of other choices that ran as the model has them."""

    plan: str
    without: frozenset[str]


@dataclass(frozen=True)
class Decided:
    """The profile database's decisions on whole programs, by these settings and here."""

    settings: Settings
    cost: CpuCost

    @property
    def applies(self) -> bool:
        """Decisions are looked for: nothing is forced, left out of the search or restrained in memory."""
        s = self.settings
        return s.derive and s.force is None and s.rules is None and s.memory_limit is None

    def remember(self, outcome: Outcome) -> None:
        """Store what runs; not what a budget of error restrains, whose products may round."""
        if self.applies and self.settings.max_error is None and not outcome.interrupted:
            plan = "" if outcome.whole else digest(outcome.plan())
            self.cost.database.remember([(self._what(outcome, self.settings.allow), {"plan": plan, "without": sorted(outcome.kept)})])

    def narrower(self, outcome: Outcome) -> Kept | None:
        """What the run kept that was allowed most of those that were allowed less; None where none is known or it kept ONNX Runtime."""
        if not self.applies or self.settings.fresh:
            return None
        rounds = self.settings.max_error is not None  # then a run of the same class that had no budget was allowed less
        less = [kind for kind in reversed(self.settings.kinds) if rounds or kind != self.settings.allow]
        for value in self.cost.database.recall([self._what(outcome, kind) for kind in less]) if less else ():
            if isinstance(value, Mapping) and isinstance(value.get("plan"), str) and isinstance(value.get("without"), list):
                return Kept(value["plan"], frozenset(map(str, value["without"]))) if value["plan"] else None
        return None

    def _what(self, outcome: Outcome, allow: str) -> Json:
        """What is asked of a model: the same by all classes of steps but for the class."""
        s = self.settings
        asked = {"threads": s.threads, "strict_nan": s.strict_nan, "finite": s.finite, "allow": allow}
        return {KEPT: digest(outcome.plan(original=True)), "place": self.cost.place(), "search": search_version(), **asked}


def digest(plan: Plan) -> str:
    """Of what a plan does: its kernels in order, their views of its buffers, inputs and outputs; constants by their names and sizes."""
    state = hashlib.blake2b(digest_size=16)
    for part in (plan.buffers, plan.inputs, plan.outputs, *plan.kernels):
        state.update(repr(part).encode())
    return state.hexdigest()


def made_again(outcome: Outcome, kept: Kept, memory: Memory | None, cost: CpuCost) -> Outcome | None:
    """The outcome whose plan was kept: this one, as it is or with the model's own operators alone, or of what the narrower run found; None where none
    of these has that plan."""
    for one in candidates(outcome, kept, memory, cost):
        try:
            if digest(one.plan()) == kept.plan:
                return one
        except ModelError:  # a file of weights was written in the meantime
            return None
    return None


def candidates(outcome: Outcome, kept: Kept, memory: Memory | None, cost: CpuCost) -> Iterable[Outcome]:
    """The outcomes that may be what was kept, those at hand first."""
    own = outcome.original()
    yield own
    yield outcome
    yield outcome.keeping(kept.without)
    if memory is not None:
        found = memory.narrower({r.key: canonical(r.subprogram.expression) for r in own.results}, cost.estimates)
        yield own.choosing(found).keeping(kept.without)
