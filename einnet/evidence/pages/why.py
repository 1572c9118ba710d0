"""Why a derivation took its steps, and why something did not happen: rules that refuse, operators that an expression differs from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from einnet.derivation.moves.rule import Refused, Rule
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import FORCED, RULES
from einnet.derivation.steps import Derivation, Step
from einnet.errors import UsageError
from einnet.evidence.pages.explore_page import declared
from einnet.evidence.report.schema import CandidateRow
from einnet.expr.nodes import Scope, nested
from einnet.instantiate.matching.types import Match, Table
from einnet.instantiate.registry import TABLES
from einnet.search.converge import Converged, converge

if TYPE_CHECKING:
    from einnet.evidence.stored_proofs import Stored

Data = dict[str, Any]
Subject = Rule | Table

FORCED_BY = {
    "fold": "an identity",
    "residue": "all other terms are 0",
    "delta": "an equation leaves one term",
    "drop": "what is the same along a loop is computed once",
    "tighten": "what is left out is 0 or never read",
    "merge": "what only copies needs no tensor of its own",
}
"""Why normalisation takes the steps that are no choice."""
assert set(FORCED_BY) == set(FORCED)


def reasons(derivation: Derivation, operators: Sequence[str]) -> list[str]:
    """The reason of each step: forced, wanted by an operator that the derivation ends in, or a choice of the search."""
    aims = [t for t in TABLES if any(o.startswith(t.name.partition(" ")[0]) for o in operators)]
    return [reason(step, aims) for step in derivation.steps]


def reason(step: Step, aims: Sequence[Table]) -> str:
    """Why one step was taken; `aims` are the operators that the derivation ends in."""
    if step.rule in FORCED_BY and step.parameters in ("all", "scope=0", "scope=1"):
        return f"forced: {FORCED_BY[step.rule]}"
    for table in aims:
        found = table.match(step.before)
        wanted = [] if isinstance(found, Match) else [m for m in found if m.rule == step.rule]
        if wanted:
            nearest = next((m for m in wanted if m.led_to(step)), wanted[0])
            return f"for {table.name}: {nearest.why}"
    return f"forced: {FORCED_BY[step.rule]}" if step.rule in FORCED_BY else "a choice of the search"


# ------------------------------------------------------------------------------------------------------------------- why not


def subject(name: str) -> Subject:
    """The rule or the vendor operator of that name. Raises UsageError where there is none."""
    known: tuple[Subject, ...] = (*RULES, *TABLES)
    for found in known:
        if found.name.lower() == name.lower():
            return found
    raise UsageError(f"no rule and no operator {name!r}; rules: {', '.join(r.name for r in RULES)}; operators: {', '.join(t.name for t in TABLES)}")


def why_not(stored: Stored, name: str) -> list[Data]:
    """For each distinct subprogram of a stored program: where a rule or an operator applies, what stands against it elsewhere, what it would cost."""
    asked = subject(name)
    found: dict[str, Data] = {}
    for s in stored.record.subprograms:
        if s.key in found:
            continue
        places = [
            {"scope": scope.text(), "path": path, **outcome(scope, asked)} for path, scope in asked_of(declared(s, stored), asked)
        ]
        having = [c for c in s.candidates if uses(c, asked)]
        best = min((c.measured_ms for c in having if c.measured_ms is not None), default=None)
        predicted = min((c.predicted_ms for c in having if c.predicted_ms is not None), default=None)
        chosen = next((c for c in s.candidates if c.chosen), None)
        cost = {"candidates": len(having), "best_ms": best, "predicted_ms": predicted, "chosen_ms": s.measured_ms}
        found[s.key] = {"nodes": s.nodes, "runs": bool(chosen and uses(chosen, asked)), "places": places, **cost}
    return list(found.values())


def why_not_expression(scope: Scope, name: str) -> list[Data]:
    """The same for one expression: what a rule or an operator does at each of its scopes."""
    asked = subject(name)
    return [{"scope": s.text(), "path": path, **outcome(s, asked)} for path, s in asked_of(scope, asked)]


def uses(candidate: CandidateRow, asked: Subject) -> bool:
    """The candidate was derived by the rule, or runs the operator."""
    if isinstance(asked, Rule):
        return asked.name in candidate.rules
    return any(o.startswith(asked.name.partition(" ")[0]) for o in candidate.operators)


def asked_of(scope: Scope, asked: Subject) -> list[tuple[str, Scope]]:
    """The scopes that the question is about: for an operator those that sum, where there are any."""
    every = list(scopes(scope))
    return [(path, s) for path, s in every if s.sums or isinstance(asked, Rule)] or every


def scopes(scope: Scope) -> Iterator[tuple[str, Scope]]:
    """The scopes that compute something, as the search sees them: normalised, the outermost first."""
    normal, _ = normalise(scope)
    seen: set[str] = set()

    def walk(s: Scope, path: str) -> Iterator[tuple[str, Scope]]:
        if s.key not in seen:
            seen.add(s.key)
            yield path, s
        for n, inner in enumerate(nested(s)):
            yield from walk(normalise(inner)[0], f"{path}.{n}" if path else str(n))

    return walk(normal, "")


def outcome(scope: Scope, asked: Subject) -> Data:
    """`applies`: the ways a rule applies, or the steps to an operator (None where it is not reached); `against`: the reasons."""
    if isinstance(asked, Rule):
        results = list(asked(scope))
        ways = [r.parameters for r in results if not isinstance(r, Refused)]
        return {"applies": ways or None, "against": list(dict.fromkeys(r.why for r in results if isinstance(r, Refused)))}
    found = converge(scope, asked)
    if isinstance(found, Converged):
        return {"applies": [*(f"{s.rule} {s.parameters}".rstrip() for s in found.steps), str(found.match)], "against": []}
    return {"applies": None, "against": [m.why for m in found]}
