"""A derivation: an expression and a list of steps, each of which rewrites one scope of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from einnet.expr.nodes import Read, Scope, map_leaves, nested
from einnet.late import Late

Path = tuple[int, ...]
"""From the root down: indices into the sequence of scopes that a scope reads (`nested`)."""

KINDS = ("exact", "reassociation", "precision")
"""Numerical classes: bit-identical; another order of a sum; another algorithm, with an error bound."""


@dataclass(frozen=True, slots=True)
class Step:
    """The scope at `path` is `before` and becomes `after`, by `rule` with `parameters`."""

    rule: str
    parameters: str
    before: Scope
    after: Scope
    path: Path = ()
    kind: str = "exact"
    bound: float | None = None

    def below(self, prefix: Path) -> Step:
        """The same step in a larger expression."""
        return Step(self.rule, self.parameters, self.before, self.after, (*prefix, *self.path), self.kind, self.bound)


@dataclass(frozen=True, slots=True, repr=False)
class Derivation:
    """A start and the steps from it."""

    start: Scope
    steps: tuple[Step, ...] = ()

    def states(self) -> Iterator[Scope]:
        """The whole expression before the first step and after each."""
        state = self.start
        yield state
        for step in self.steps:
            state = replace_at(state, step.path, step.after)
            yield state

    @property
    def end(self) -> Scope:
        """The expression after the last step."""
        *_, last = self.states()
        return last

    @property
    def kind(self) -> str:
        """The worst class among the steps."""
        return KINDS[max((KINDS.index(s.kind) for s in self.steps), default=0)]

    def __repr__(self) -> str:
        rules = ", ".join(dict.fromkeys(s.rule for s in self.steps)) or "nothing yet"
        return f"<derivation of {self.start.text()}: {len(self.steps)} steps, {self.kind}, by {rules}>"

    def __str__(self) -> str:
        """The derivation as a `.ein` file has it."""
        return TEXT(self)

    def _repr_html_(self) -> str:
        return HTML(self)

    def _repr_latex_(self) -> str:
        return f"$${LATEX(self)}$$"


TEXT = Late[[Derivation], str]("the `.ein` text of a derivation")
HTML = Late[[Derivation], str]("HTML of a derivation")
LATEX = Late[[Derivation], str]("LaTeX of a derivation")


def subscope(root: Scope, path: Path) -> Scope:
    """The scope at a path. Raises IndexError where there is none."""
    for n in path:
        root = list(nested(root))[n]
    return root


def replace_at(root: Scope, path: Path, new: Scope) -> Scope:
    """`root` with the scope at `path` replaced; other occurrences of an equal scope stay as they are."""
    if not path:
        return new
    count = -1

    def put(leaf: object) -> object:
        nonlocal count
        if isinstance(leaf, Read) and isinstance(leaf.base, Scope):
            count += 1
            if count == path[0]:
                return Read(replace_at(leaf.base, path[1:], new), leaf.index, leaf.fill)
        return leaf

    body = map_leaves(root.body, put)  # type: ignore[arg-type]
    if count < path[0]:
        raise IndexError(f"no scope {path[0]} in {root.text()}")
    return replace(root, body=body)
