"""The report of an optimization as one HTML page: what changed, times, kernels under the roofline, errors, derivations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from einnet.evidence.pages.page import asset
from einnet.evidence.pages.plots import HUES, roofline, share_of_roof, time_bars, time_shares
from einnet.evidence.pages.precision_lines import precision_lines
from einnet.evidence.pages.proof_text import ms, places, proof_text, ratio, verdict_word
from einnet.evidence.pages.story_schema import CandidateStory, Chapter, Story
from einnet.evidence.pages.verdict import opaque_line, reasons, verdict
from einnet.evidence.report.ranged_schema import RangedReport
from einnet.evidence.report.schema import KernelRow, KernelTime, Report
from einnet.expr.notation.markup import Names, Row, definitions, rows_html, unchanged
from einnet.expr.notation.tags import tag
from einnet.expr.notation.text import parse
from einnet.records import as_json


def report_page(report: Report, told: Story) -> str:
    """The page. `told` is `einnet.evidence.pages.story.story` of the same report."""
    return whole_page(report.model, program_html(report, told))


def whole_page(title: str, body: str) -> str:
    """A page of its own around a program's report."""
    parts = {"TITLE": escape(f"{title} · einnet"), "STYLE": asset("style.css"), "BODY": body}
    return re.sub("@([A-Z]+)@", lambda m: parts[m[1]], asset("report.html"))


def program_fragment(report: Report, told: Story) -> str:
    """The report with its styles, for a notebook."""
    return fragment(program_html(report, told))


def fragment(html: str) -> str:
    """A report's HTML with its styles, so that nothing around it changes."""
    return f"<div><style>{scoped(asset('style.css'))}</style>{html}</div>"


def sizes_fragment(report: RangedReport) -> str:
    """A program for a range of sizes, for a notebook: times of the sizes that were measured, and how many others do as each."""
    told = report.dynamic
    heads = (told.name, "ONNX Runtime", "own operators", "optimized", "speedup", "runs", "followers")
    rows = [tag("tr", "".join(tag("th", escape(head)) for head in heads))]
    for size, found in report.sizes.items():
        if whole := found.report:
            t = whole.totals
            followers = sum(1 for other in report.sizes.values() if other.follows == int(size))
            times = (ms(t.onnxruntime_ms), ms(t.original_ms), ms(t.optimized_ms), ratio(t.speedup))
            rows.append(tag("tr", "".join(tag("td", escape(str(cell))) for cell in (size, *times, whole.runs, followers))))
    heading = tag("h1", escape(report.model)) + tag("p", escape(f"{told.name} in {told.lowest}..{told.highest}"), class_="meta")
    return fragment(tag("article", heading + tag("table", "".join(rows)), class_="report"))


def scoped(style: str) -> str:
    """Of the page's styles those of the report, so that nothing around a fragment changes."""
    kept = (line for line in style.splitlines() if line.startswith((":root", "  --", ".", "h3.name")) and not line.startswith((".split", ".tools")))
    return re.sub(r"(?m)^:root( \{)", ".report\\1", "\n".join(kept))


def program_html(report: Report, told: Story, linked: bool = False) -> str:
    """The model before and after; `linked`: with buttons that the explorer answers."""
    chapters = ordered(told)
    hues: dict[str | None, str] = {s.key: HUES[n % len(HUES)] for n, s in enumerate(chapters)}
    told_of = [*report.notes, *(f"assumes finite inputs: {what}" for what in report.assumes_finite or ())]
    notes = "".join(tag("p", escape(note), class_="chip warn") for note in told_of)
    said = tag("p", tag("b", escape(verdict(report)))) + "".join(tag("p", escape(line)) for line in reasons(report))
    said += "".join(tag("p", escape(line)) for line in (precision_lines(report.precision) if report.precision else ()))
    opaque = opaque_line(report)
    notes = (tag("p", escape(opaque), class_="meta") if opaque else "") + notes
    parts = [tag("h1", escape(report.model)), said, tag("p", f"{report.backend}, {report.threads} threads", class_="meta"), notes]
    parts += [facts_html(report), tag("h2", "Time"), time_bars(report.totals, report.spread_ms)]
    if chapters:
        shares = [(places(s.nodes), (s.original_ms or 0.0) * len(s.nodes), (s.measured_ms or 0.0) * len(s.nodes)) for s in chapters]
        about = "Each colour is a subprogram; its kernels were measured alone, so the sums are not the program's time."
        parts += [tag("h2", "Where it goes"), tag("p", about, class_="meta"), time_shares(shares)]
    if report.kernels:
        about = "Every kernel of the program timed in its place. Its size is its time, its colour its subprogram."
        parts += [tag("h2", "Kernels under the roofline"), tag("p", about, class_="meta"), roofline(report.kernels, hues)]
    placed: dict[str | None, list[KernelRow]] = {}
    for k in report.kernels:
        placed.setdefault(k.key, []).append(k)
    whole = ": what was found, though ONNX Runtime runs the whole model" if report.runs == "whole model" else ""
    parts += [tag("h2", f"Subprogram by subprogram{whole}")] if chapters else []
    parts += [chapter_html(s, hues[s.key], placed.get(s.key, []), linked) for s in chapters]
    return tag("article", "".join(parts) + settings_html(report), class_="report")


def facts_html(report: Report) -> str:
    """The numbers that matter, each with what it is."""
    t, v, c = report.totals, report.verification, report.certificate
    facts = [
        (ratio(t.speedup), "over ONNX Runtime"),
        (ratio(t.speedup_over_original), "over the model's own operators"),
        (f"{t.noise:.1%}", "noise: the same program against itself"),
        (f"{v.max_rel:.1e}", f"error of max|y|: {verdict_word(v)}, allowed {v.tolerance:g}"),
        (f"{v.bound or 0.0:.1e}", "a-priori error bound of sums of absolute products, all parts together"),
        (str(c.steps), f"derivation steps checked: {c.methods.get('inline', 0)} proven, {c.methods.get('random', 0)} tested"),
        (str(t.states), f"states in {t.search_s:.0f} s of search"),
    ]
    return tag("div", "".join(tag("div", tag("b", number) + tag("span", escape(text)), class_="fact") for number, text in facts), class_="facts")


def ordered(told: Story) -> list[Chapter]:
    """The distinct subprograms, the most expensive first."""
    return sorted(told.subprograms, key=lambda s: -(s.original_ms or 0.0) * len(s.nodes))


def chapter_html(s: Chapter, hue: str, placed: Sequence[KernelRow], linked: bool) -> str:
    """One subprogram: before and after side by side, its derivation, what else was considered. `placed` are its kernels in the program."""
    before, after = s.original_ms, s.measured_ms
    gain = f"{before / after:.2f}x" if s.changed and before and after else "kept as the model has it"
    sides = kernel_table("before", s.original_kernels, before) if s.changed else ""
    sides += kernel_table("after" if s.changed else "runs as", s.kernels, after, {k.kernel: k for k in placed})
    buttons = tag("button", "its search", data_open_key=s.key) + tag("button", "replay", data_replay_key=s.key)
    links = tag("div", buttons, class_="controls") if linked else ""
    count = f"{len(s.nodes)}×, " if len(s.nodes) > 1 else ""
    name = tag("i", style=f"background:{hue}") + escape(places(s.nodes)) + tag("span", count + gain, class_="gain")
    body = links + tag("div", sides, class_="two") + derivation_details(s) + considered_html(s)
    return tag("section", tag("h3", name, class_="name") + body, class_="chapter")


def kernel_table(
    title: str, kernels: Sequence[KernelTime], total: float | None, placed: Mapping[str, KernelRow] | None = None
) -> str:  # fmt: skip
    """Kernels with their times alone; where they run, also in their place and as a share of what the machine allows."""
    heads = ["alone", *(("in place", "of roofline") if placed else ()), "kernel"]
    rows = [tag("tr", "".join(tag("th", head) for head in heads))]
    for k in kernels:
        there = (placed or {}).get(k.kernel)
        cells = [ms(k.ms), *((ms(there.ms), f"{share_of_roof(there):.0%}") if there else ("–", "–") if placed else ())]
        rows.append(tag("tr", "".join(tag("td", cell) for cell in cells) + tag("td", tag("code", escape(k.kernel)))))
    body = tag("table", "".join(rows)) if kernels else tag("p", "nothing: a view of its input", class_="meta")
    return tag("div", tag("h4", f"{title}, {ms(total)}") + body)


def derivation_details(s: Chapter) -> str:
    """The derivation, folded: after each step the definitions that changed."""
    d = s.derivation
    if not d or not d.steps:
        return f"<details><summary>expression</summary>{expression_html(s.expression)}</details>"
    names: Names = {}
    rows = definitions(parse(d.start), names)
    parts = [rows_html(rows)]
    for step in d.steps:
        after: list[Row] = definitions(parse(step.expression), names, rows)
        changed = [r for r in after if not unchanged(r, rows)]
        bound = f", error bound {step.bound:.2g} ε" if step.bound is not None else ""
        title = f'<div class="step"><b>{step.number}. by {escape(step.rule)}</b> <code>{escape(step.parameters)}</code>'
        parts.append(f'{title} <span class="meta">{step.kind}{bound}; {escape(proof_text(step.proof))}</span></div>{rows_html(changed, rows)}')
        rows = after
    held = f"<p>It holds <b>{escape(', '.join(d.operators))}</b>.</p>" if d.operators else ""
    return f'<details><summary>derivation, {len(d.steps)} steps</summary><div class="math">{"".join(parts)}</div>{held}</details>'


def expression_html(text: str) -> str:
    """An expression as definitions."""
    return f'<div class="math">{rows_html(definitions(parse(text)))}</div>'


def considered_html(s: Chapter) -> str:
    """The candidates that do not run, cheapest first."""
    rest = [k for k in s.candidates if not k.chosen]
    rows = "".join(
        f"<tr><td>{cost(k)}</td><td>{escape(' + '.join(k.operators) or 'generated code alone')}</td>"
        f"<td class='meta'>{escape(', '.join(dict.fromkeys(k.rules)))}</td></tr>"
        for k in rest
    )
    return f"<details><summary>{len(rest)} other candidates, of {s.states} states</summary><table>{rows}</table></details>" if rest else ""


def cost(k: CandidateStory) -> str:
    """A candidate's measured time, else the predicted one."""
    return ms(k.measured_ms) if k.measured_ms is not None else f"{ms(k.predicted_ms)} predicted"


def settings_html(report: Report) -> str:
    """What would repeat the run."""
    asked = ", ".join(f"{k}={v}" for k, v in as_json(report.settings).items())
    versions = ", ".join(f"{k} {v}" for k, v in report.versions.items())
    return f"<h2>Settings</h2><p class='meta'>{escape(asked)}</p><p class='meta'>{escape(versions)}</p>"
