"""Vendor operators of one form computed by one: forms of sibling scopes chosen alike, their cores joined (derivation.md rule 11).

Joining looks at two scopes, each with many forms. Only forms whose operators agree in what is summed can be joined, so siblings are
matched by that, and not every pair of their forms is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from einnet.derivation.rules.join import joins, put_together
from einnet.derivation.steps import Step
from einnet.expr.nodes import Scope, is_weight, nested
from einnet.instantiate.matching.types import Match, Table
from einnet.search.converge import Converged, converge
from einnet.search.forms import Form, converged_form, effort, substitute_child

REPRESENTATIVES = 2
"""Forms of one kind that are tried for each of two siblings; of more siblings, one."""

Kind = tuple[tuple[int, ...], ...]


def together(form: Form, siblings: Sequence[Scope], alternatives: Mapping[Scope, Sequence[Form]], tables: Sequence[Table]) -> Iterator[Form]:
    """The form with its open siblings computed by forms of one kind, and operators of these joined, as far as it goes."""
    if len(siblings) < 2:
        return
    vendor = {s: [f for f in alternatives[s] if f.matches] for s in siblings}
    if all(vendor.values()):
        yield _mixed(form, {s: min(found, key=effort) for s, found in vendor.items()})
    kinds = [_by_kind(vendor[s]) for s in siblings]
    most = REPRESENTATIVES if len(siblings) == 2 else 1
    for kind in kinds[0]:
        if all(kind in k for k in kinds):
            for chosen in product(*(k[kind][:most] for k in kinds)):
                mixed = _mixed(form, dict(zip(siblings, chosen)))
                yield mixed
                yield from joined_operators(mixed, tables)


def _mixed(form: Form, chosen: Mapping[Scope, Form]) -> Form:
    for s, choice in chosen.items():
        form = substitute_child(form, s, choice)
    return form


def _by_kind(forms: Sequence[Form]) -> dict[Kind, list[Form]]:
    found: dict[Kind, list[Form]] = {}
    for f in forms:
        found.setdefault(tuple(sorted(_kind(m) for _, m in f.matches)), []).append(f)
    return found


def _kind(m: Match) -> tuple[int, ...]:
    """What operators must share to be joined: batches, the extent that is summed, and the rows of the operand that is no weight; a window's all."""
    return m.kernel.joining([is_weight(b) if isinstance(b, Scope) else b.weight for b in m.operands])


def joined_operators(form: Form, tables: Sequence[Table]) -> Iterator[Form]:
    """The form with two of its operators joined, then with two more, until none can be."""
    current = form
    while True:
        following = next(_joined_once(current, tables), None)
        if following is None:
            return
        yield following
        current = following


def _joined_once(form: Form, tables: Sequence[Table]) -> Iterator[Form]:
    written = [s for s, _ in form.matches if s in form.tree.inside]  # what an operator's own operand computes may stand nowhere in the tree
    for s, t in combinations(written, 2):
        for parameters, parts in joins(form.tree, s, t):
            tree = put_together(form.tree, parts)
            step = Step("join", parameters, form.tree, tree)
            (whole,) = nested(parts[s])
            others = tuple(_moved(x, m, parts) for x, m in form.matches if x not in parts)
            apart = Form(form.start, tree, others, (*form.steps, step))
            for table in tables:
                found = converge(whole, table)
                if isinstance(found, Converged):
                    yield substitute_child(apart, whole, converged_form(whole, found))


def _moved(scope: Scope, m: Match, parts: Mapping[Scope, Scope]) -> tuple[Scope, Match]:
    """A matched scope and its operands after the join."""
    operands = tuple(put_together(b, parts) if isinstance(b, Scope) else b for b in m.operands)
    return put_together(scope, parts), Match(m.table, m.kernel, operands, m.roles)
