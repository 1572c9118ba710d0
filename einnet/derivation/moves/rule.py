"""What a rule is: an equation with a guard. Rules know no vendor operator, no model, no iterator name and no size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from einnet.derivation.steps import KINDS
from einnet.expr.nodes import Scope


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule that does not apply, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One result of a rule: the whole scope after it, and the parameters that repeat it."""

    scope: Scope
    parameters: str
    kind: str = "exact"
    bound: float | None = None


Outcome = Rewrite | Refused
Apply = Callable[[Scope], Iterator[Outcome]]


Role = Literal["explored", "parallel", "forced", "converging"]
"""What applies a rule: the search, as a choice, for all devices or for those of many processors; normalisation, always;
the derivation towards a vendor operator, where one asks for it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A derivation rule. `equation` and `guard` are what `einnet rules` prints; `kind` is the numerical class of a step.

    The search tries rules by ascending `order`, then by name. Rules of the family "inter" rewrite several scopes as one, or one as several:
    they are tried across parts whatever the intensity of a scope is.
    """

    name: str
    equation: str
    guard: str
    kind: str
    apply: Apply
    family: str = "intra"
    roles: tuple[Role, ...] = ("explored",)
    order: int = 1000

    def __call__(self, scope: Scope) -> Iterator[Outcome]:
        """Results and refusals; a result's class is at least the rule's."""
        for outcome in self.apply(scope):
            if isinstance(outcome, Rewrite) and KINDS.index(outcome.kind) < KINDS.index(self.kind):
                outcome = replace(outcome, kind=self.kind)
            yield outcome

    def rewrites(self, scope: Scope) -> Iterator[Rewrite]:
        """The results, refusals left out."""
        return (r for r in self(scope) if isinstance(r, Rewrite))


def rule(
    name: str, *, guard: str, kind: str = "exact", family: str = "intra", roles: tuple[Role, ...] = ("explored",), order: int = 1000,
) -> Callable[[Apply], Rule]:  # fmt: skip
    """Make a rule of a generator whose docstring's first line is the equation."""

    def wrap(f: Apply) -> Rule:
        equation = (f.__doc__ or "").strip().splitlines()[0]
        return Rule(name, equation, guard, kind, f, family, roles, order)

    return wrap
