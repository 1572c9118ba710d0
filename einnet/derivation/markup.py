"""Derivations as HTML: every step with its rule, what stood before it and what stands after, the changed parts marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from einnet.derivation.steps import HTML, LATEX, Derivation, Step
from einnet.expr.notation.latex import latex
from einnet.expr.notation.markup import Names, definitions, rows_html, wrapped
from einnet.expr.notation.tags import tag


def derivation_html(derivation: Derivation, proofs: Sequence[str] = ()) -> str:
    """The start, and each step with the whole expression after it; `proofs` say how each step was proven."""
    names: Names = {}
    rows = definitions(derivation.start, names)
    parts = [rows_html(rows)]
    for n, (step, state) in enumerate(zip(derivation.steps, list(derivation.states())[1:])):
        after = definitions(state, names, rows)
        parts += [step_title(n + 1, step, proofs[n] if n < len(proofs) else ""), rows_html(after, rows)]
        rows = after
    return "".join(parts)


def step_title(number: int, step: Step, proof: str = "") -> str:
    """`3. by sum-split outside=r,s`, the class, the proof."""
    at = f" in scope {'.'.join(map(str, step.path))}" if step.path else ""
    told = ", ".join(filter(None, (step.kind, proof)))
    title = f"<b>{number}. by {escape(step.rule)}</b> <code>{escape(step.parameters)}</code>{at} "
    return tag("div", title + tag("span", escape(told), class_="meta"), class_="step")


@LATEX.define
def derivation_latex(derivation: Derivation) -> str:
    """Aligned equations, a rule over each sign."""
    states = list(derivation.states())
    lines = [f"& {latex(states[0])}"]
    lines += [rf"\overset{{\text{{{s.rule}}}}}{{=}}\; & {latex(state)}" for s, state in zip(derivation.steps, states[1:])]
    return r"\begin{aligned} " + r" \\ ".join(lines) + r" \end{aligned}"


@HTML.define
def derivation_document(derivation: Derivation) -> str:
    """The derivation on its own, with its styles."""
    return wrapped(derivation_html(derivation))
