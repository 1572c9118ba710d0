"""What the explorer shows, as plain data: the states of a search and the steps between them, derivations, and the program they belong to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from einnet.derivation import einfile
from einnet.derivation.checker.check import check
from einnet.derivation.rules import EXPLORED, RULES
from einnet.derivation.steps import KINDS
from einnet.errors import UsageError
from einnet.evidence.certificate import Entry
from einnet.evidence.pages.story import derivation_story
from einnet.evidence.report.schema import Asked, SubprogramRow
from einnet.expr.nodes import Scope, Tensor, is_weight, nested, tensors, walk
from einnet.expr.notation.text import parse
from einnet.records import as_json
from einnet.search.converge import Converged
from einnet.search.forms import Form
from einnet.search.settings import explored
from einnet.search.space import Options, Space
from einnet.search.trace import AGAIN, CUT, NEW, Trace
from einnet.search.work import BYTES, flops, moved

if TYPE_CHECKING:
    from einnet.evidence.stored_proofs import Stored
Data = dict[str, Any]
OUTCOMES = (NEW, AGAIN, CUT)
PROVEN_FORMS = 24
"""Ways to run an expression that are proven and shown, those that compute and move least."""

BALANCE = 10.0
"""Operations that cost as much as moving a byte, for ordering what was never measured."""


def explore_expression(
    text: str | Scope, max_depth: int = 3, states: int = 20_000, seconds: float = 60.0, rules: Sequence[str] | None = None, everything: bool = False
) -> Data:  # fmt: skip
    """The search from one expression. `everything` visits scopes of any arithmetic intensity and size.

    Raises ParseError for text that is no expression, UsageError for a negative depth or an unknown rule.
    """
    scope = parse(text) if isinstance(text, str) else text
    if max_depth < 0:
        raise UsageError(f"max_depth must be 0 or more, not {max_depth}")
    unknown = sorted(set(rules or ()) - {r.name for r in RULES})
    if unknown:
        raise UsageError(f"no rule {unknown[0]!r}; `einnet rules` lists them")
    options = Options(max_depth=max_depth, rules=tuple(rules or EXPLORED), states=states, deadline=seconds)
    if everything:
        options = replace(options, slack=float("inf"), intensity=0.0)
    return {"title": scope.text(), "rules": rule_data(), "graphs": [graph(scope, options)]}


def explore_derivation(text: str, max_depth: int = 2, states: int = 2000, seconds: float = 60.0) -> Data:
    """A `.ein` file, proven and replayed, and the search from where it starts. Raises ParseError, CertificateError."""
    file = einfile.parse(text)
    entry = Entry("", file.derivation, tuple(check(file.derivation)), file.matches)
    data = explore_expression(file.derivation.start, max_depth, states, seconds)
    first = data["graphs"][0]
    end = file.derivation.end
    first["tensors"] |= {t.name: {"shape": t.shape, "weight": t.weight or t.values is not None} for t in tensors(end).values()}
    first["derivations"].insert(0, {**as_json(derivation_story(entry)), "flops": flops(end), "moved": moved(end)})
    return {**data, "replay": 0}


def explore_program(stored: Stored, max_depth: int | None = None, states: int | None = None, seconds: float = 60.0) -> Data:
    """A stored program: what it runs, the derivations it stands on, and the search of each distinct expression of the model.

    The search is not stored but repeated: by the same rules, to the same depth, to as many states as it had when it ended, it meets the same
    states again. With `max_depth` or `states` it is another search, of every expression that far.
    """
    considered = [(c.candidate, Entry(c.key, c.derivation, tuple(check(c.derivation)), c.matches)) for c in stored.considered]
    report = stored.record
    distinct = {s.key: s for s in report.subprograms}
    starts = {key: declared(s, stored) for key, s in distinct.items()}
    wanted = {key: scope for key, scope in starts.items() if any(s.sums for s in walk(scope))}
    again = max_depth is None and states is None and all(s.depth is not None for s in distinct.values())
    end = time.monotonic() + seconds
    graphs = []
    for n, (key, scope) in enumerate(wanted.items()):
        share = max((end - time.monotonic()) / (len(wanted) - n), 0.1)
        asked = Options(max_depth=2 if max_depth is None else max_depth, states=2000 if states is None else states, deadline=share)
        found = repeated(scope, report.settings, distinct[key], share, report.backend) if again else graph(scope, asked)
        graphs.append({**found, "key": key, "title": ", ".join(distinct[key].nodes) or scope.text()})
    return {"title": str(stored.path.name), "rules": rule_data(), "graphs": graphs, "program": stored.story(considered), "report": report}


def repeated(scope: Scope, asked: Asked, subprogram: SubprogramRow, seconds: float, backend: str) -> Data:
    """The search that the optimizer made from an expression of the model, once more."""
    stopped, depth = subprogram.stopped_at, subprogram.depth or 0
    options = Options(
        max_depth=depth,
        rules=tuple(asked.rules or explored(backend)),
        converge=asked.converge and asked.derive and depth == asked.max_depth,
        fingerprint=asked.fingerprint,
        kinds=KINDS[: KINDS.index(asked.allow) + 1],
        deadline=seconds,
    )
    return {**graph(scope, options if stopped is None else replace(options, states=stopped)), "asked": subprogram.states}


def declared(subprogram: SubprogramRow, stored: Stored) -> Scope:
    """A reported expression with the tensors that the report, or else its derivation, declares; else with those that its reads suggest."""
    text = subprogram.expression
    if subprogram.tensors is not None:
        return parse("\n".join([*subprogram.tensors, text]))
    for entry in stored.certificate.entries:
        if entry.derivation.start.text() == text:
            return entry.derivation.start
    guessed = parse(text)
    return parse(text, {t.name: Tensor(t.name, t.shape, t.dtype, weight=t.name.startswith("w")) for t in tensors(guessed).values()})


def rule_data() -> list[dict[str, str]]:
    """The rules: equation, guard, numerical class."""
    return [{"name": r.name, "equation": r.equation, "guard": r.guard, "kind": r.kind} for r in RULES]


def graph(scope: Scope, asked: Options) -> Data:
    """Search one expression and keep all that happened; the deadline is in seconds from now."""
    trace, began = Trace(), time.monotonic()
    options = replace(asked, deadline=began + asked.deadline)
    space = Space(options, observer=trace)
    forms = space.forms(scope)
    counts = space.statistics
    return {
        "title": scope.text(),
        "expression": scope.text(),
        "depth": options.max_depth,
        "counts": {"states": counts.states, "duplicates": counts.duplicates, "cut": counts.cut, "converged": counts.converged},
        "stopped": counts.stopped,
        "seconds": time.monotonic() - began,
        "forms": len(forms),
        **trace_data(trace, scope),
        "derivations": [form_data(f) for f in sorted(forms, key=effort)[:PROVEN_FORMS]],
    }


def effort(form: Form) -> float:
    """Operations, and bytes moved between scopes at a typical balance."""
    return flops(form.tree) + BALANCE * moved(form.tree)


def form_data(form: Form) -> Data:
    """One way to run the expression: its derivation, proven step by step."""
    entry = Entry(form.key, form.derivation, tuple(check(form.derivation)), tuple(form.operators()))
    return {**as_json(derivation_story(entry)), "flops": flops(form.tree), "moved": moved(form.tree)}


# ------------------------------------------------------------------------------------------------------- the trace in columns


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def trace_data(trace: Trace, start: Scope) -> Data:
    """States and steps as columns; states by number, in the order in which they were met; every text is written once."""
    number = {key: n for n, key in enumerate(trace.states)}
    why = Names()
    scopes = list(trace.states.values())
    attempts = [trace.attempts.get(key, {}) for key in trace.states]
    edges = [
        (number[e.before], number[e.after], e.rule, e.parameters, e.kind, OUTCOMES.index(e.outcome), ",".join(e.forced)) for e in trace.edges.values()
    ]
    named = {name: t for s in scopes for name, t in tensors(s).items()}
    return {
        "tensors": {name: {"shape": t.shape, "weight": t.weight or t.values is not None} for name, t in named.items()},
        "start": number[trace.starts[start.key]],
        "state": {
            **measures(scopes),
            "cut": [int(key in trace.cut) for key in trace.states],
            "refused": [[(rule, why(reason)) for rule, reason in trace.refusals.get(key, ())] for key in trace.states],
            "reached": [[reached(table, f) for table, f in a.items() if isinstance(f, Converged)] for a in attempts],
            "missed": [[(table, why(f[0].why)) for table, f in a.items() if not isinstance(f, Converged)] for a in attempts],
        },
        "edges": edges,
        "parts": parts(trace, number),
        "why": list(why.numbers),
    }


def measures(scopes: Sequence[Scope]) -> Data:
    """What is known of scopes by themselves."""
    return {
        "text": [s.text() for s in scopes],
        "flops": [flops(s) for s in scopes],
        "moved": [moved(s) + BYTES * sum(prod(t.shape) for t in tensors(s).values()) for s in scopes],
        "weight": [int(is_weight(s)) for s in scopes],
    }


def reached(table: str, found: Converged) -> tuple[str, str, str, list[tuple[str, str]]]:
    """Table, the operator with its roles, the expression that holds it, and the steps there: as many as the distance was."""
    return table, str(found.match), found.tree.text(), [(s.rule, s.parameters) for s in found.steps]


def parts(trace: Trace, number: Mapping[str, int]) -> list[tuple[int, str, int, str]]:
    """Which states hold a scope that is searched for itself: (state, path of the scope, its state, table of the converged tree or "")."""
    found: dict[tuple[int, str, int, str], None] = {}

    def visit(root: int, scope: Scope, path: str, table: str) -> None:
        for n, inner in enumerate(nested(scope)):
            at = f"{path}.{n}" if path else str(n)
            if inner.key in trace.starts:
                found[root, at, number[trace.starts[inner.key]], table] = None
            else:
                visit(root, inner, at, table)

    for key, scope in trace.states.items():
        visit(number[key], scope, "", "")
        for table, attempt in trace.attempts.get(key, {}).items():
            if isinstance(attempt, Converged):
                visit(number[key], attempt.tree, "", table)
    return list(found)
