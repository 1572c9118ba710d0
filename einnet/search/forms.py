"""A form: one way to compute an expression, as an equal expression some of whose scopes are vendor operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from einnet.derivation.normalise import normalise
from einnet.derivation.steps import Derivation, Step, replace_at
from einnet.expr.nodes import Scope, is_weight, nested, walk
from einnet.instantiate.match import Match
from einnet.search.converge import Converged
from einnet.search.work import flops, moved


@dataclass(frozen=True, repr=False)
class Form:
    """`tree` equals `start`; the scopes among `matches` are vendor operators, all others are generated."""

    start: Scope
    tree: Scope
    matches: tuple[tuple[Scope, Match], ...]
    steps: tuple[Step, ...]

    @cached_property
    def key(self) -> str:
        """Equal for forms that give the same kernels, whatever derivation led to them."""
        return self.tree.key + "".join(sorted({m.table[0] + s.key for s, m in self.matches}))

    @property
    def derivation(self) -> Derivation:
        return Derivation(self.start, self.steps)

    def __repr__(self) -> str:
        return f"<form {self}>"

    def __str__(self) -> str:
        return f"{' + '.join(self.operators()) or 'generated code alone'}, {len(self.steps)} steps: {self.tree.text()}"

    def _repr_html_(self) -> str:
        from einnet.derivation.markup import derivation_html
        from einnet.expr.markup import wrapped
        from einnet.expr.picture import svg

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
    return Form(start, form.tree, form.matches, (*step, *form.steps))


def substitute_child(form: Form, child: Scope, inner: Form) -> Form:
    """Compute the scope `child`, wherever the tree reads it, by `inner`; copies at the seam are merged away."""
    tree, steps = form.tree, list(form.steps)
    for path in occurrences(form.tree, child):
        steps += [s.below(path) for s in inner.steps]
        tree = replace_at(tree, path, inner.tree)
    matches = form.matches
    if inner.tree != child:
        matches = tuple((replace_everywhere(s, child, inner.tree), rebase(m, child, inner.tree)) for s, m in matches)
    kept = {s for s, _ in (*matches, *inner.matches)} | {b for _, m in (*matches, *inner.matches) for b in m.operands if isinstance(b, Scope)}
    if tree not in kept:
        tree, more = normalise(tree, kept.__contains__)
        steps += more
    return Form(form.start, tree, (*matches, *inner.matches), tuple(steps))


def rebase(m: Match, old: Scope, new: Scope) -> Match:
    """The match with an operand replaced."""
    operands = tuple(replace_everywhere(b, old, new) if isinstance(b, Scope) else b for b in m.operands)
    return Match(m.table, m.kernel, operands, m.roles)


def replace_everywhere(root: Scope, old: Scope, new: Scope) -> Scope:
    """Every occurrence of a scope replaced."""
    if root == old:
        return new
    for path in list(occurrences(root, old)):
        root = replace_at(root, path, new)
    return root


def occurrences(root: Scope, wanted: Scope) -> Iterator[tuple[int, ...]]:
    """Paths of all occurrences below the root."""
    for n, s in enumerate(nested(root)):
        if s == wanted:
            yield (n,)
        else:
            yield from ((n, *p) for p in occurrences(s, wanted))


def effort(form: Form) -> float:
    """Operations, and bytes of intermediate tensors at a typical balance of 10 operations per byte."""
    return flops(form.tree) + 10.0 * sum(moved(s) for s in dict.fromkeys(walk(form.tree)) if not is_weight(s))


def distinct(forms: Iterable[Form]) -> list[Form]:
    """The first form of every key, in order."""
    found: dict[str, Form] = {}
    for f in forms:
        found.setdefault(f.key, f)
    return list(found.values())
