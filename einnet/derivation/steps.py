"""A derivation: an expression and a list of steps, each of which rewrites one scope of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import overload

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


class Steps(Sequence[Step]):
    """Steps of several sequences, one after the other, put together when they are asked for: few of the forms that a search makes are looked at."""

    __slots__ = ("_all", "_kinds", "_parts", "_rules")

    def __init__(self, *parts: Iterable[Step]) -> None:
        self._parts = parts
        self._all: tuple[Step, ...] | None = None
        self._kinds: frozenset[str] | None = None
        self._rules: frozenset[str] | None = None

    @property
    def all(self) -> tuple[Step, ...]:
        if self._all is None:
            self._all = tuple(chain.from_iterable(self._parts))
            self._parts = (self._all,)
        return self._all

    @property
    def kinds(self) -> frozenset[str]:
        """The numerical classes of the steps."""
        if self._kinds is None:
            self._kinds = frozenset[str]().union(*map(kinds_of, self._parts))
        return self._kinds

    @property
    def rules(self) -> frozenset[str]:
        """The names of the rules."""
        if self._rules is None:
            self._rules = frozenset[str]().union(*map(rules_of, self._parts))
        return self._rules

    def __iter__(self) -> Iterator[Step]:
        return chain.from_iterable(self._parts) if self._all is None else iter(self._all)

    def __len__(self) -> int:
        return len(self.all)

    @overload
    def __getitem__(self, place: int) -> Step: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Step, ...]: ...

    def __getitem__(self, place: int | slice) -> Step | tuple[Step, ...]:
        return self.all[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Steps, tuple)) and self.all == tuple(other)

    def __hash__(self) -> int:
        return hash(self.all)


def kinds_of(steps: Iterable[Step]) -> frozenset[str]:
    """The numerical classes of steps, which are put together for that no more than they were."""
    found = getattr(steps, "kinds", None)
    return found if isinstance(found, frozenset) else frozenset(s.kind for s in steps)


def rules_of(steps: Iterable[Step]) -> frozenset[str]:
    """The names of the rules, without putting together the steps."""
    found = getattr(steps, "rules", None)
    return found if isinstance(found, frozenset) else frozenset(s.rule for s in steps)


def worst(kinds: Iterable[str]) -> str:
    """The worst of some numerical classes."""
    return KINDS[max(map(KINDS.index, kinds), default=0)]


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
        return worst(kinds_of(self.steps))

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
