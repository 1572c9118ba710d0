"""Vendor operators of one form computed by one: forms of sibling scopes chosen alike, their cores joined (derivation.md rule 11).

Joining looks at two scopes, each with many forms. Only forms whose operators agree in what is summed can be joined, so siblings are
matched by that, and not every pair of their forms is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations

from einnet.derivation.rules.join import Together, joins
from einnet.derivation.steps import Step, Steps
from einnet.expr.nodes import Scope, is_weight, nested
from einnet.instantiate.matching.types import Match, Table
from einnet.search.converge import Converged, converge
from einnet.search.forms import Form, converged_form, substitute_child
from einnet.search.groups import Kind


def together(form: Form, chosen: Mapping[Scope, Form], tables: tuple[Table, ...]) -> Iterator[Form]:
    """The form with its open siblings computed by these forms of one kind, and operators of these joined, as far as it goes."""
    for sibling, inner in chosen.items():
        form = substitute_child(form, sibling, inner)
    yield form
    yield from joined_operators(form, tables)


def kind_of(form: Form) -> Kind:
    """What forms must share for their operators to be joined."""
    return tuple(sorted(_kind(m) for _, m in form.matches))


@lru_cache(maxsize=1 << 13)
def _kind(m: Match) -> tuple[int, ...]:
    """What operators must share to be joined: batches, the extent that is summed, and the rows of the operand that is no weight; a window's all."""
    return m.kernel.joining([is_weight(b) if isinstance(b, Scope) else b.weight for b in m.operands])


def joined_operators(form: Form, tables: tuple[Table, ...]) -> Iterator[Form]:
    """The form with two of its operators joined, then with two more, until none can be."""
    current = form
    while True:
        following = next(_joined_once(current, tables), None)
        if following is None:
            return
        yield following
        current = following


def _joined_once(form: Form, tables: tuple[Table, ...]) -> Iterator[Form]:
    written = [s for s, _ in form.matches if s in form.tree.inside]  # what an operator's own operand computes may stand nowhere in the tree
    for s, t in combinations(written, 2):
        for parameters, parts in joins(form.tree, s, t):
            (whole,) = nested(parts[s])
            found = _operators(whole, tables)
            if found:
                joined = Together(parts)
                tree = joined(form.tree)
                others = tuple(_moved(x, m, joined) for x, m in form.matches if x not in parts)
                apart = Form(form.start, tree, others, Steps(form.steps, (Step("join", parameters, form.tree, tree),)))
                yield from (substitute_child(apart, whole, f) for f in found)


@lru_cache(maxsize=1 << 12)
def _operators(whole: Scope, tables: tuple[Table, ...]) -> tuple[Form, ...]:
    """The joined scope as each operator that it converges to: many forms join the same two."""
    reached = (converge(whole, table) for table in tables)
    return tuple(converged_form(whole, found) for found in reached if isinstance(found, Converged))


def _moved(scope: Scope, m: Match, joined: Together) -> tuple[Scope, Match]:
    """A matched scope and its operands after the join."""
    operands = tuple(joined(b) if isinstance(b, Scope) else b for b in m.operands)
    return joined(scope), m.reading(operands)
