"""Derivations as people read them: a numbered proof, what runs because of it, and what else was considered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from einnet.derivation.checker.check import Proof
from einnet.evidence.pages.precision_lines import precision_lines
from einnet.evidence.pages.story_schema import Base, Chapter, DerivationStory, ProofRow, Story
from einnet.evidence.pages.times import time_lines
from einnet.evidence.report.schema import KernelTime, Verification

NEAREST = 6
"""Candidates of a subprogram that are told of beside the one that runs."""


def explain(told: Story) -> str:
    """The story as text: changed subprograms first, each with its derivation, then those that run as the model has them."""
    if told.kept_whole:
        return f"{told.model}: kept whole, ONNX Runtime runs it: {told.kept_whole}"
    chapters = told.subprograms
    changed = [c for c in chapters if c.changed]
    lines = [f"{told.model}: {len(chapters)} distinct subprograms; {len(changed)} run as something else than the model's own operators", ""]
    lines += ["ONNX Runtime runs the whole model: nothing that was found is faster", ""] if told.runs == "whole model" else []
    lines += [*(f"note: {note}" for note in told.notes), ""] if told.notes else []
    lines += [error_line(told.verification), ""] if told.verification.bound is not None else []
    lines += [*precision_lines(told.precision), ""] if told.precision else []
    lines += time_lines(told.kernels, told.cost_model, {c.key: n for n, c in enumerate(changed, 1)})
    return "\n".join([*lines, *chapter_lines(told)]).rstrip()


def chapter_lines(told: Base) -> list[str]:
    """The subprograms: those that changed, each with its derivation, then the others."""
    changed, kept = ([c for c in told.subprograms if c.changed is which] for which in (True, False))
    number = count(len(changed) + 1)
    lines: list[str] = []
    for n, c in enumerate(changed, 1):
        lines += [f"Derivation {n}. {places(c.nodes)}", ""]
        lines += derivation_lines(c.derivation, "  ") if c.derivation else []
        lines += ["", *chosen_because(c)]
        lines += kernel_lines("runs as", c.kernels, c.measured_ms, c.predicted_ms)
        lines += kernel_lines("instead of", c.original_kernels, c.original_ms, c.original_predicted_ms)
        lines += [*candidate_lines(c, number), ""]
    if kept:
        lines += ["Kept as the model has them", ""]
    for c in kept:
        lines += [f"  {places(c.nodes)}", f"    {c.expression}", *normalised(c)]
        lines += kernel_lines("runs as", c.kernels, c.measured_ms, c.predicted_ms)
        lines += [*candidate_lines(c, number), ""]
    return lines


def error_line(v: Verification) -> str:
    """The measured error beside what the derivations let expect."""
    return f"max error {v.max_rel:.2g} of max|y| against ONNX Runtime; a-priori bound {v.bound:.2g} of sums of absolute products"


def places(nodes: Sequence[Sequence[str]]) -> str:
    """The model's nodes of one subprogram, and how many more subprograms are equal to it."""
    first = ", ".join(nodes[0]) or "a part that the program passes made"
    return first + (f" (and {len(nodes) - 1} more like it: {'; '.join(n[0] for n in nodes[1:] if n)})" if len(nodes) > 1 else "")


def derivation_lines(d: DerivationStory, indent: str) -> Iterator[str]:
    """The expression; each step with the scope that it rewrites; the expression at the end; the operators in it.

    A path such as 0.1 names a scope: the second one that the first one reads that the expression reads. What the step before has just
    written is not written again.
    """
    yield f"{indent}   {d.start}"
    shown = d.start
    for s in d.steps:
        at = f" in scope {'.'.join(map(str, s.path))}" if s.path else ""
        bound = f", error bound {s.bound:.2g}" if s.bound is not None else ""
        yield f"{indent}{s.number}. by {s.rule} {s.parameters}{at}".rstrip() + f"   [{s.kind}{bound}; {proof_text(s.proof)}]"
        if s.reason is not None:
            yield f"{indent}   {s.reason}"
        if s.before != shown:
            yield f"{indent}     {s.before}"
        yield f"{indent}   = {s.after}"
        shown = s.after
    whole = d.steps[-1].expression if d.steps else d.start
    if whole != shown:
        yield f"{indent}   so the whole is\n{indent}     {whole}"
    if d.operators:
        yield f"{indent}   which holds {', '.join(d.operators)}"
    yield f"{indent}   a-priori error bound {d.bound:.2g} of the greatest sum of absolute products"


def proof_text(proof: ProofRow | Proof) -> str:
    """How a step was proven, in a few words."""
    return f"proven: {proof.details}" if proof.method == "inline" else f"tested: {proof.details}"


def normalised(c: Chapter) -> list[str]:
    """The steps that brought a kept subprogram into the form that its own operators match."""
    steps = c.derivation.steps if c.derivation else []
    count = f"{len(steps)} step{'s' if len(steps) > 1 else ''}"
    return [f"    normalised in {count} by {', '.join(dict.fromkeys(s.rule for s in steps))}"] if steps else []


def chosen_because(c: Chapter) -> Iterator[str]:
    """The times that decided."""
    if c.measured_ms is None or c.original_ms is None:
        return
    rest = [k.measured_ms for k in c.candidates if not k.chosen and not k.original and k.measured_ms is not None]
    others = f"the best of {len(rest)} others that were" if len(rest) > 1 else "the one other that was"
    others = f" and {ms(min(rest))} for {others} measured" if rest else ""
    yield f"    chosen for its time: {ms(c.measured_ms)}, against {ms(c.original_ms)} for the model's own operators{others}"


def kernel_lines(title: str, kernels: Sequence[KernelTime], total: float | None, predicted: float | None = None) -> list[str]:
    """Kernels with their times; ~ marks what was predicted and not measured."""
    if not kernels:
        return [f"    {title} nothing: the result is a view of its input"]
    return [f"    {title}  ({known(total, predicted)})", *(f"      {known(k.ms, k.predicted_ms)}  {k.kernel}" for k in kernels)]


def known(measured: float | None, predicted: float | None) -> str:
    """A measured time, else what was predicted."""
    return f"~{ms(predicted)}" if measured is None and predicted is not None else ms(measured)


def candidate_lines(c: Chapter, number: Iterator[int]) -> list[str]:
    """What else was considered, cheapest first: all with derivations where the story has those, else the nearest ones with different operators.

    The original of a changed part is told of before; here it is if it is derived itself, by splits of loops.
    """
    rest = [k for k in c.candidates if not k.chosen and not (k.original and c.changed and k.derivation is None)]
    lines = [f"    considered, of {c.states} states"] if rest else []
    distinct = list({tuple(k.operators): k for k in reversed(rest)}.values())[::-1]
    shown = rest if any(k.derivation for k in rest) else distinct[:NEAREST]
    for k in shown:
        cost = f"{ms(k.measured_ms)} measured" if k.measured_ms is not None else f"{ms(k.predicted_ms)} predicted"
        rules = ", ".join(dict.fromkeys(k.rules)) or "no rule"
        lines.append(f"      {cost}  {' + '.join(k.operators) or 'generated code alone'}   by {rules}")
        if k.derivation:
            lines += [f"        Derivation {next(number)}", *derivation_lines(k.derivation, "        "), ""]
    return [*lines, f"      and {len(rest) - len(shown)} more: einnet explain --all"] if len(rest) > len(shown) else lines


def verdict_word(verification: Verification) -> str:
    """What a verification came to, in a word or two."""
    return "not compared" if verification.passed is None else "passed" if verification.passed else "FAILED"


def ratio(value: float | None) -> str:
    """1.23x; of times that were not taken alike there is none."""
    return "–" if value is None else f"{value:.2f}x"


def ms(value: float | None) -> str:
    """Milliseconds with three significant digits."""
    return "not measured" if value is None else f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


# --------------------------------------------------------------------------------------------------------------------- trees


def tree(parents: Sequence[int], labels: Sequence[str]) -> Iterator[str]:
    """Lines of a tree: node n hangs below `parents[n]` (-1 for the root), children in order."""
    children: dict[int, list[int]] = {}
    for n, parent in enumerate(parents):
        children.setdefault(parent, []).append(n)
    stack = [(n, "", "") for n in reversed(children.get(-1, []))]
    while stack:
        n, own, below = stack.pop()
        yield own + labels[n]
        hanging = children.get(n, [])
        for child in reversed(hanging):
            last = child == hanging[-1]
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
