"""A form: one way to compute an expression, as an equal expression some of whose scopes are vendor operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from einnet.derivation.facts import is_copy
from einnet.derivation.markup import derivation_html
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.join import Exchanging
from einnet.derivation.steps import Derivation, Step, Steps, kinds_of, rules_of
from einnet.expr.nodes import Read, Scope, nested, walk_repeated
from einnet.expr.notation.markup import wrapped
from einnet.expr.notation.picture import svg
from einnet.expr.remember import kept
from einnet.instantiate.build import Matches
from einnet.instantiate.row_fusion import in_one_kernel
from einnet.search.converge import Converged, unchanged
from einnet.search.work import MACHINE, Weights, cost, in_one


@dataclass(frozen=True, repr=False)
class Form:
    """`tree` equals `start`; the scopes among `matches` are vendor operators, all others are generated."""

    start: Scope
    tree: Scope
    matches: Matches
    steps: Sequence[Step]

    @kept
    def key(self) -> str:
        """Equal for forms that give the same kernels, whatever derivation led to them."""
        return self.tree.key + "".join(sorted({m.table[0] + s.key for s, m in self.matches}))

    @kept
    def stored(self) -> frozenset[Scope]:
        """The scopes that vendor operators read."""
        return frozenset(b for _, m in self.matches for b in m.operands if isinstance(b, Scope))

    @kept
    def computed(self) -> tuple[Scope, ...]:
        """The scopes that are computed, outermost first, repeated where read again: inside of a vendor operator its operands alone."""
        if self._operands is None:
            return tuple(walk_repeated(self.tree))

        def within(s: Scope) -> tuple[Scope, ...]:
            return (s, *(t for inner in self.reads(s) for t in within(inner)))

        return within(self.tree)

    def reads(self, s: Scope) -> tuple[Scope, ...]:
        """The scopes that are computed for one of them: all that it reads, or the operands of a vendor operator."""
        return (self._operands or {}).get(s, nested(s))

    @kept
    def each(self) -> tuple[Scope, ...]:
        """The scopes that are computed, outermost first, each once."""
        return self.tree.parts if self._operands is None else tuple(dict.fromkeys(self.computed))

    @kept
    def parts(self) -> frozenset[Scope]:
        """The scopes that are computed, each once."""
        return frozenset(self.each)

    @kept
    def _operands(self) -> dict[Scope, tuple[Scope, ...]] | None:
        """The scopes that each operator reads; None where these are all that are read within it."""
        found = {s: tuple(b for b in m.operands if isinstance(b, Scope)) for s, m in self.matches}
        return None if all(set(inner) == set(nested(s)) for s, inner in found.items()) else found

    @kept
    def unchanged(self) -> bool:
        """No derivation step but normalisation and the numbering of loops: the operators as the model has them."""
        return unchanged(self.steps)

    @kept
    def efforts(self) -> tuple[int, int]:
        """What the form costs in all, as the search counts, and what of that is not starting its kernels: as one kernel, where it may be one that
        stores nothing between its sums."""
        costs, one = _costs(self, frozenset(), MACHINE), inf
        if in_one_kernel(self.tree, bool(self.matches)):
            one = in_one(self.tree, MACHINE)
        apart = sum(max(c, 0) for c in costs), sum(max(c - int(MACHINE.launch), 0) for c in costs)
        return int(min(apart[0], one)), int(min(apart[1], one - int(MACHINE.launch)))

    @property
    def derivation(self) -> Derivation:
        return Derivation(self.start, tuple(self.steps))

    def __repr__(self) -> str:
        return f"<form {self}>"

    def __str__(self) -> str:
        return f"{' + '.join(self.operators()) or 'generated code alone'}, {len(self.steps)} steps: {self.tree.text()}"

    def _repr_html_(self) -> str:
        return wrapped(f"<b>{' + '.join(self.operators()) or 'generated code alone'}</b>{derivation_html(self.derivation)}{svg(self.tree)}")

    def _repr_latex_(self) -> str:
        return self.derivation._repr_latex_()

    def operators(self) -> list[str]:
        """The vendor operators, for people."""
        return [str(m) for _, m in self.matches]


def plain(scope: Scope) -> Form:
    """The scope as it is, all of it generated."""
    return Form(scope, scope, (), ())


def converged_form(scope: Scope, found: Converged) -> Form:
    """The form that a converging derivation leads to."""
    return Form(scope, found.tree, ((found.core, found.match),), found.steps)


def after(step: Sequence[Step], start: Scope, form: Form) -> Form:
    """A form of the expression that `step` leads to, as a form of `start`."""
    return Form(start, form.tree, form.matches, Steps(step, form.steps) if step else form.steps)


def substitute_child(form: Form, child: Scope, inner: Form) -> Form:
    """Compute the scope `child`, wherever the tree reads it, by `inner`; copies at the seam are merged away."""
    tree, matches, more = _substituted(form.tree, form.matches, child, inner.tree, inner.matches)
    return Form(form.start, tree, matches, Steps(form.steps, Below(form.tree, child, inner.steps), more))


@dataclass(frozen=True, eq=False, slots=True)
class Below:
    """Steps of a scope, wherever a tree reads it."""

    tree: Scope
    scope: Scope
    steps: Sequence[Step]

    @property
    def kinds(self) -> frozenset[str]:
        """The numerical classes of the steps."""
        return kinds_of(self.steps)

    @property
    def rules(self) -> frozenset[str]:
        """The names of their rules."""
        return rules_of(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return (s.below(path) for path in occurrences(self.tree, self.scope) for s in self.steps)


@lru_cache(maxsize=1 << 14)
def _substituted(tree: Scope, matches: Matches, child: Scope, inner: Scope, more: Matches) -> tuple[Scope, Matches, tuple[Step, ...]]:
    """The tree with `inner` for the child, in normal form but for the operators and what they read; these operators; the forced steps."""
    if inner != child:
        replaced = Replacing(child, inner)
        tree = replaced(tree)
        matches = tuple((replaced(s), m.reading(tuple(replaced(b) if isinstance(b, Scope) else b for b in m.operands))) for s, m in matches)
    matches = (*matches, *more)
    kept = frozenset((*(s for s, _ in matches), *(b for _, m in matches for b in m.operands if isinstance(b, Scope))))
    if tree in kept:
        return tree, matches, ()
    tree, steps = normalise(tree, kept)
    return tree, matches, steps


class Replacing:
    """Replaces every occurrence of a scope, in one expression after another."""

    def __init__(self, old: Scope, new: Scope) -> None:
        self._old, self._new = old, new
        self._exchanging = Exchanging({old: new})

    def __call__(self, root: Scope) -> Scope:
        return self._new if root == self._old else self._exchanging.within(root)


def occurrences(root: Scope, wanted: Scope) -> Iterator[tuple[int, ...]]:
    """Paths of all occurrences below the root."""
    for n, s in enumerate(nested(root)) if wanted in root.inside else ():
        if s == wanted:
            yield (n,)
        else:
            yield from ((n, *p) for p in occurrences(s, wanted))


def effort(form: Form, launches: bool = True) -> int:
    """What the form costs in all, with or without starting its kernels."""
    return form.efforts[0 if launches else 1]


def spent(form: Form, inside: Set[Scope], weights: Weights) -> int:
    """What all scopes of a form cost but those `inside` others, in FLOPs."""
    return sum(_costs(form, inside, weights))


def _costs(form: Form, inside: Set[Scope], weights: Weights) -> list[int]:
    """What each scope costs; a generated reader reads through copies, which are then not made."""
    vendor, stored, tree = {s for s, _ in form.matches}, form.stored, form.tree
    own = [s for s in form.each if s not in inside] if inside else form.each
    return [cost(s, s in vendor, weights) for s in own if s is tree or not reads_through(s) or s in stored]


def reads_through(scope: Scope) -> bool:
    """A copy of a scope: a generated reader reads what it copies."""
    return is_copy(scope) and isinstance(scope.body, Read) and isinstance(scope.body.base, Scope)


def distinct(forms: Iterable[Form]) -> list[Form]:
    """The first form of every key, in order."""
    found: dict[str, Form] = {}
    for f in forms:
        found.setdefault(f.key, f)
    return list(found.values())
