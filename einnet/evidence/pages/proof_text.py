"""Derivations as people read them: a numbered proof, what runs because of it, and what else was considered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from einnet.derivation.checker.bounds import error_bound
from einnet.derivation.checker.check import Proof
from einnet.derivation.steps import Derivation, Step
from einnet.evidence.pages.times import time_lines

Story = dict[str, Any]
"""Plain data, what `einnet explain --json` writes."""


Reasons = Callable[[Derivation, Sequence[str]], Sequence[str]]
"""Why each step of a derivation that ends in the given operators was taken."""


class Told(Protocol):
    """A derivation of the subprogram `key`, with the vendor operators that its end holds."""

    @property
    def key(self) -> str: ...
    @property
    def derivation(self) -> Derivation: ...
    @property
    def matches(self) -> tuple[str, ...]: ...


class Proven(Told, Protocol):
    """A derivation with a proof for each step."""

    @property
    def proofs(self) -> tuple[Proof, ...]: ...


def story(report: Mapping[str, Any], used: Iterable[Proven], considered: Iterable[tuple[int, Proven]] = (), reasons: Reasons | None = None) -> Story:
    """What a report says about each distinct subprogram, joined with its derivations.

    `considered` are derivations of candidates that do not run, by their place in the report's list of candidates.
    """
    by_key = {t.key: t for t in used}
    others: dict[str, list[tuple[int, Proven]]] = {}
    for n, told in considered:
        others.setdefault(told.key, []).append((n, told))
    chapters: dict[str, Story] = {}
    for s in report["subprograms"]:
        if s["key"] in chapters:
            chapters[s["key"]]["nodes"].append(s["nodes"])
            continue
        chapter = {name: s[name] for name in (*SHOWN, *PREDICTED) if name in s}
        chapter |= {"nodes": [s["nodes"]], "candidates": [dict(c) for c in s["candidates"]]}
        if s["key"] in by_key:
            chapter["derivation"] = derivation_story(by_key[s["key"]], reasons)
        for n, told in others.get(s["key"], ()):
            chapter["candidates"][n]["derivation"] = derivation_story(told, reasons)
        chapters[s["key"]] = chapter
    whole = {name: report[name] for name in ("model", "runs", "totals", "verification", "kernels")}
    more = {"cost_model": report.get("cost_model", {}), "kept_whole": report.get("kept_whole")}
    return {**whole, **more, "notes": list(report["notes"]), "subprograms": list(chapters.values())}


NEAREST = 6
"""Candidates of a subprogram that are told of beside the one that runs."""

SHOWN = ("key", "changed", "expression", "kernels", "original_kernels", "measured_ms", "original_ms", "states")
PREDICTED = ("predicted_ms", "original_predicted_ms")
"""Told where the report has them."""


def derivation_story(told: Proven, reasons: Reasons | None = None) -> Story:
    """A derivation as plain data, its steps numbered from 1; `reasons` says why each was taken."""
    states = list(told.derivation.states())
    parts = zip(told.derivation.steps, states[1:], told.proofs, strict=True)
    steps = [step_story(n, step, state, proof) for n, (step, state, proof) in enumerate(parts, 1)]
    for step, why in zip(steps, reasons(told.derivation, told.matches) if reasons else ()):
        step["reason"] = why
    end = {"kind": told.derivation.kind, "bound": error_bound(told.derivation), "operators": list(told.matches)}
    return {"from": states[0].text(), "steps": steps, **end}


def step_story(number: int, step: Step, after: Any, proof: Proof) -> Story:
    """One step: the rule, where and with what it was applied, the whole expression after it, its class and its proof."""
    proven = {"method": proof.method, "details": proof.details, "points": proof.points}
    told = {"number": number, "rule": step.rule, "parameters": step.parameters, "path": list(step.path), "kind": step.kind, "bound": step.bound}
    return {**told, "before": step.before.text(), "after": step.after.text(), "expression": after.text(), "proof": proven}


# ------------------------------------------------------------------------------------------------------------------- as text


def explain(told: Story) -> str:
    """The story as text: changed subprograms first, each with its derivation, then those that run as the model has them."""
    if told["kept_whole"]:
        return f"{told['model']}: kept whole, ONNX Runtime runs it: {told['kept_whole']}"
    chapters = told["subprograms"]
    changed = [c for c in chapters if c["changed"]]
    lines = [f"{told['model']}: {len(chapters)} distinct subprograms; {len(changed)} run as something else than the model's own operators", ""]
    lines += ["ONNX Runtime runs the whole model: nothing that was found is faster", ""] if told["runs"] == "whole model" else []
    lines += [*(f"note: {note}" for note in told["notes"]), ""] if told["notes"] else []
    lines += [error_line(told["verification"]), ""] if "bound" in told["verification"] else []
    lines += time_lines(told["kernels"], told["cost_model"], {c["key"]: n for n, c in enumerate(changed, 1)})
    return "\n".join([*lines, *chapter_lines(told)]).rstrip()


def chapter_lines(told: Story) -> list[str]:
    """The subprograms: those that changed, each with its derivation, then the others."""
    changed, kept = ([c for c in told["subprograms"] if c["changed"] is which] for which in (True, False))
    number = count(len(changed) + 1)
    lines: list[str] = []
    for n, c in enumerate(changed, 1):
        lines += [f"Derivation {n}. {places(c['nodes'])}", ""]
        lines += derivation_lines(c["derivation"], "  ") if "derivation" in c else []
        lines += ["", *chosen_because(c)]
        lines += kernel_lines("runs as", c["kernels"], c["measured_ms"], c.get("predicted_ms"))
        lines += kernel_lines("instead of", c["original_kernels"], c["original_ms"], c.get("original_predicted_ms"))
        lines += [*candidate_lines(c, number), ""]
    if kept:
        lines += ["Kept as the model has them", ""]
    for c in kept:
        lines += [f"  {places(c['nodes'])}", f"    {c['expression']}", *normalised(c)]
        lines += kernel_lines("runs as", c["kernels"], c["measured_ms"], c.get("predicted_ms"))
        lines += [*candidate_lines(c, number), ""]
    return lines


def error_line(v: Story) -> str:
    """The measured error beside what the derivations let expect."""
    return f"max error {v['max_rel']:.2g} of max|y| against ONNX Runtime; a-priori bound {v['bound']:.2g} of sums of absolute products"


def places(nodes: Sequence[Sequence[str]]) -> str:
    """The model's nodes of one subprogram, and how many more subprograms are equal to it."""
    first = ", ".join(nodes[0]) or "a part that the program passes made"
    return first + (f" (and {len(nodes) - 1} more like it: {'; '.join(n[0] for n in nodes[1:] if n)})" if len(nodes) > 1 else "")


def derivation_lines(d: Story, indent: str) -> Iterator[str]:
    """The expression; each step with the scope that it rewrites; the expression at the end; the operators in it.

    A path such as 0.1 names a scope: the second one that the first one reads that the expression reads. What the step before has just
    written is not written again.
    """
    yield f"{indent}   {d['from']}"
    shown = d["from"]
    for s in d["steps"]:
        at = f" in scope {'.'.join(map(str, s['path']))}" if s["path"] else ""
        bound = f", error bound {s['bound']:.2g}" if s["bound"] is not None else ""
        yield f"{indent}{s['number']}. by {s['rule']} {s['parameters']}{at}".rstrip() + f"   [{s['kind']}{bound}; {proof_text(s['proof'])}]"
        if "reason" in s:
            yield f"{indent}   {s['reason']}"
        if s["before"] != shown:
            yield f"{indent}     {s['before']}"
        yield f"{indent}   = {s['after']}"
        shown = s["after"]
    whole = d["steps"][-1]["expression"] if d["steps"] else d["from"]
    if whole != shown:
        yield f"{indent}   so the whole is\n{indent}     {whole}"
    if d["operators"]:
        yield f"{indent}   which holds {', '.join(d['operators'])}"
    yield f"{indent}   a-priori error bound {d['bound']:.2g} of the greatest sum of absolute products"


def proof_text(proof: Story) -> str:
    """How a step was proven, in a few words."""
    return f"proven: {proof['details']}" if proof["method"] == "inline" else f"tested: {proof['details']}"


def normalised(c: Story) -> list[str]:
    """The steps that brought a kept subprogram into the form that its own operators match."""
    steps = c["derivation"]["steps"] if "derivation" in c else []
    count = f"{len(steps)} step{'s' if len(steps) > 1 else ''}"
    return [f"    normalised in {count} by {', '.join(dict.fromkeys(s['rule'] for s in steps))}"] if steps else []


def chosen_because(c: Story) -> Iterator[str]:
    """The times that decided."""
    if c["measured_ms"] is None or c["original_ms"] is None:
        return
    rest = [k["measured_ms"] for k in c["candidates"] if not k["chosen"] and not k["original"] and k["measured_ms"] is not None]
    others = f"the best of {len(rest)} others that were" if len(rest) > 1 else "the one other that was"
    others = f" and {ms(min(rest))} for {others} measured" if rest else ""
    yield f"    chosen for its time: {ms(c['measured_ms'])}, against {ms(c['original_ms'])} for the model's own operators{others}"


def kernel_lines(title: str, kernels: Sequence[Story], total: float | None, predicted: float | None = None) -> list[str]:
    """Kernels with their times; ~ marks what was predicted and not measured."""
    if not kernels:
        return [f"    {title} nothing: the result is a view of its input"]
    return [f"    {title}  ({known(total, predicted)})", *(f"      {known(k['ms'], k.get('predicted_ms'))}  {k['kernel']}" for k in kernels)]


def known(measured: float | None, predicted: float | None) -> str:
    """A measured time, else what was predicted."""
    return f"~{ms(predicted)}" if measured is None and predicted is not None else ms(measured)


def candidate_lines(c: Story, number: Iterator[int]) -> list[str]:
    """What else was considered, cheapest first: all with derivations where the story has those, else the nearest ones with different operators."""
    rest = [k for k in c["candidates"] if not k["chosen"] and not (k["original"] and c["changed"])]
    lines = [f"    considered, of {c['states']} states"] if rest else []
    distinct = list({tuple(k["operators"]): k for k in reversed(rest)}.values())[::-1]
    shown = rest if any("derivation" in k for k in rest) else distinct[:NEAREST]
    for k in shown:
        cost = f"{ms(k['measured_ms'])} measured" if k["measured_ms"] is not None else f"{ms(k['predicted_ms'])} predicted"
        rules = ", ".join(dict.fromkeys(k["rules"])) or "no rule"
        lines.append(f"      {cost}  {' + '.join(k['operators']) or 'generated code alone'}   by {rules}")
        if "derivation" in k:
            lines += [f"        Derivation {next(number)}", *derivation_lines(k["derivation"], "        "), ""]
    return [*lines, f"      and {len(rest) - len(shown)} more: einnet explain --all"] if len(rest) > len(shown) else lines


def verdict_word(verification: Mapping[str, Any]) -> str:
    """What a verification came to, in a word or two."""
    return "not compared" if verification["passed"] is None else "passed" if verification["passed"] else "FAILED"


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
