"""Derivation trees of single expressions, for exploring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from einnet.derivation.normalise import normalise
from einnet.derivation.rules import EXPLORED, RULES
from einnet.derivation.steps import Derivation, Step, replace_at
from einnet.errors import UsageError
from einnet.expr.nodes import Scope, nested
from einnet.expr.notation.text import parse
from einnet.search.forms import Form
from einnet.search.space import Options, Space

SHOWN = 60
"""States that a notebook shows."""


@dataclass
class State:
    """One expression of the tree. `parent` is its number, -1 for the start; `step` led from the parent to here."""

    number: int
    expression: Scope
    depth: int
    parent: int
    step: Step | None
    forms: list[Form] = field(default_factory=list)

    def __str__(self) -> str:
        how = f" by {self.step.rule} {self.step.parameters}" if self.step else ""
        return f"{'  ' * self.depth}#{self.number}{how}: {self.expression.text()}"


@dataclass(repr=False)
class DerivationTree:
    """All states that derivations of at most `max_depth` explorative steps reach, each once; `forms` are the ways to run it."""

    start: Scope
    states: list[State]
    forms: list[Form]

    def __iter__(self) -> Iterator[State]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        return f"<derivations of {self.start.text()}: {len(self.states)} states, {len(self.forms)} forms>"

    def derivation(self, number: int) -> Derivation:
        """The steps from the start to a state."""
        steps: list[Step] = []
        at = self.states[number]
        while at.step is not None:
            steps.append(at.step)
            at = self.states[at.parent]
        return Derivation(self.start, tuple(reversed(steps)))

    def text(self, most: int = 200) -> str:
        """The tree as indented lines, and the vendor operators that were reached."""
        lines = [str(s) for s in self.states[:most]]
        if len(self.states) > most:
            lines.append(f"... and {len(self.states) - most} more states")
        reached = list(dict.fromkeys(o for f in self.forms for o in f.operators()))
        return "\n".join([*lines, f"{len(self.states)} states, {len(self.forms)} candidates; operators reached: {', '.join(reached) or 'none'}"])

    def _repr_html_(self) -> str:
        """A table for notebooks: how each state was reached, and the state."""
        from einnet.expr.notation.markup import definitions, rows_html, wrapped
        from einnet.expr.notation.tags import tag

        rows = [
            tag("tr", tag("td", f"#{s.number}") + tag("td", f"{s.step.rule} {s.step.parameters}<br>from #{s.parent}" if s.step else "start")
                + tag("td", rows_html(definitions(s.expression)), style="text-align:left"))
            for s in self.states[:SHOWN]
        ]  # fmt: skip
        more = tag("p", f"and {len(self.states) - SHOWN} more states") if len(self.states) > SHOWN else ""
        return wrapped(tag("table", "".join(rows)) + more)

    def show(self) -> None:
        """Print the tree."""
        print(self.text())


def derive(expression: Scope | str, max_depth: int = 4, *, rules: tuple[str, ...] | None = None, most: int = 5000) -> DerivationTree:
    """Every expression that at most `max_depth` explorative rule applications reach, at any scope, breadth first.

    Raises ParseError for text that is no expression, UsageError for a negative depth or an unknown rule.
    """
    start = parse(expression) if isinstance(expression, str) else expression
    if max_depth < 0:
        raise UsageError(f"max_depth must be 0 or more, not {max_depth}")
    wanted = rules or EXPLORED
    chosen = [r for r in RULES if r.name in wanted]
    if len(chosen) != len(set(wanted)):
        raise UsageError(f"unknown rule among {', '.join(wanted)}; `einnet rules` lists them")
    states = [State(0, start, 0, -1, None)]
    seen = {start.key}
    for state in states:
        if state.depth >= max_depth or len(states) >= most:
            continue
        for path in _paths(state.expression):
            at = state.expression
            for n in path:
                at = list(nested(at))[n]
            for rule in chosen:
                for rewrite in rule.rewrites(at):
                    normal, _ = normalise(rewrite.scope)
                    step = Step(rule.name, rewrite.parameters, at, normal, path, rewrite.kind, rewrite.bound)
                    new = replace_at(state.expression, path, normal)
                    if new.key not in seen and len(states) < most:
                        seen.add(new.key)
                        states.append(State(len(states), new, state.depth + 1, state.number, step))
    space = Space(Options(max_depth=max_depth, rules=tuple(wanted), states=most))
    return DerivationTree(start, states, space.forms(start))


def _paths(scope: Scope) -> Iterator[tuple[int, ...]]:
    yield ()
    for n, s in enumerate(nested(scope)):
        yield from ((n, *p) for p in _paths(s))
