"""Derivations by hand: one step after the other, each recorded, so that the checker and a `.ein` file have them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from einnet.derivation.checker.check import Proof, check
from einnet.derivation.einfile import write
from einnet.derivation.moves.rule import Refused, Rewrite, Rule
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import RULES
from einnet.derivation.steps import Derivation, Path, Step, subscope
from einnet.errors import UsageError
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.instantiate.registry import TABLES
from einnet.search.converge import Converged, converge

Where = str | Path


@dataclass(frozen=True)
class Sheet:
    """An expression and what was done to it so far. Every method that does something returns a new sheet.

    `at` names a scope: "0.1" is the second one that the first one reads that the expression reads, "" the whole.
    """

    derivation: Derivation
    matches: tuple[str, ...] = ()

    @property
    def expression(self) -> Scope:
        """What stands there now."""
        return self.derivation.end

    def scope(self, at: Where = "") -> Scope:
        """One scope of it. Raises UsageError where there is none."""
        try:
            return subscope(self.expression, _path(at))
        except (IndexError, ValueError):
            raise UsageError(f"there is no scope {at!r} in {self.expression.text()}") from None

    def ways(self, rule: str | Rule, at: Where = "") -> list[str]:
        """The parameters with which a rule applies. Raises UsageError, with the rule's reasons, where it does not."""
        return [r.parameters for r in self._rewrites(_rule(rule), at)]

    def by(self, rule: str | Rule, parameters: str | None = None, at: Where = "") -> Sheet:
        """The sheet after a rule. The parameters may be left out where there is one way only.

        Raises UsageError where the rule does not apply so.
        """
        chosen, scope = _rule(rule), self.scope(at)
        found = [r for r in self._rewrites(chosen, at) if parameters in (None, r.parameters)]
        if len(found) != 1:
            ways = "; ".join(self.ways(chosen, at))
            raise UsageError(f"{chosen.name} {parameters or ''} applies in {len(found)} ways to {scope.text()}; it can be applied by: {ways}")
        r = found[0]
        return self._after(Step(chosen.name, r.parameters, scope, r.scope, _path(at), r.kind, r.bound))

    def normalised(self, at: Where = "") -> Sheet:
        """After what is forced: identities folded, ranges tightened, copies merged."""
        _, steps = normalise(self.scope(at))
        return self._after(*(s.below(_path(at)) for s in steps))

    def towards(self, operator: str, at: Where = "") -> Sheet:
        """After the steps that make a scope the vendor operator of that name. Raises UsageError, with what differs, where none do."""
        table = next((t for t in TABLES if t.name == operator), None)
        if table is None:
            raise UsageError(f"no operator {operator!r}; there are {', '.join(t.name for t in TABLES)}")
        found = converge(self.scope(at), table)
        if not isinstance(found, Converged):
            raise UsageError(f"{self.scope(at).text()} is no {operator}: {'; '.join(m.why for m in found)}")
        return replace(self._after(*(s.below(_path(at)) for s in found.steps)), matches=(*self.matches, str(found.match)))

    def check(self) -> list[Proof]:
        """A proof of every step, by the checker that knows no rule. Raises CertificateError at the first step that does not hold."""
        return check(self.derivation)

    def text(self) -> str:
        """The sheet as a `.ein` file."""
        return write(self.derivation, self.matches)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.derivation._repr_html_()

    def _repr_latex_(self) -> str:
        return self.derivation._repr_latex_()

    def _rewrites(self, rule: Rule, at: Where) -> list[Rewrite]:
        outcomes = list(rule(self.scope(at)))
        found = [r for r in outcomes if not isinstance(r, Refused)]
        if not found:
            why = "; ".join(dict.fromkeys(r.why for r in outcomes if isinstance(r, Refused))) or "nothing to apply it to"
            raise UsageError(f"{rule.name} does not apply to {self.scope(at).text()}: {why}")
        return found

    def _after(self, *steps: Step) -> Sheet:
        return replace(self, derivation=Derivation(self.derivation.start, (*self.derivation.steps, *steps)))


def by_hand(expression: Scope | str) -> Sheet:
    """A sheet with an expression on it. Raises ParseError for text that is none."""
    return Sheet(Derivation(parse(expression) if isinstance(expression, str) else expression))


def _path(at: Where) -> Path:
    return tuple(map(int, at.split("."))) if isinstance(at, str) and at else tuple(map(int, at))


def _rule(rule: str | Rule) -> Rule:
    if isinstance(rule, Rule):
        return rule
    found = next((r for r in RULES if r.name == rule), None)
    if found is None:
        raise UsageError(f"no rule {rule!r}; there are {', '.join(r.name for r in RULES)}")
    return found
