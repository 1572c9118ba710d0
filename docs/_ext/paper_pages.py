"""Directives for the page about the paper: its figures from saved measurements, its search space drawn from a search made now.

What was not measured is said with the command that measures it; nothing is filled in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from einnet_pages import ROOT, Written, expression_html, raw

RESULTS = ROOT / "benchmarks" / "results"
WIDTH, LEFT = 760, 250
HUES = ("#2f6fde", "#d9822b", "#2a9d6f", "#b5479b", "#c0392b", "#6a5acd")
Json = dict[str, Any]


def text_at(x: float, y: float, content: str, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="currentColor">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.3) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="currentColor" opacity="{opacity}" fill="none"/>'


def picture(height: float, label: str, parts: Sequence[str], width: float = WIDTH, least: float = 0) -> str:
    """An SVG with a caption that shrinks with the page, down to a width of `least`."""
    content = "".join(parts)
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px;width:100%;min-width:{least:.0f}px"'
    return f'<figure><svg role="img" aria-label="{escape(label)}" {box}>{content}</svg><figcaption>{escape(label)}</figcaption></figure>'


def bars(label: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """A bar for each (title, value, words beside it); a line at 1."""
    span = (WIDTH - LEFT - 130) / max(value for _, value, _ in rows)
    parts = []
    for n, (title, value, beside) in enumerate(rows):
        y = 8 + 26 * n
        parts.append(text_at(LEFT - 8, y + 14, title, "end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{span * value:.1f}" height="19" rx="3" fill="{HUES[0]}"/>')
        parts.append(text_at(LEFT + span * value + 8, y + 14, beside))
    parts.append(line(LEFT + span, 2, LEFT + span, 8 + 26 * len(rows), 0.8))
    return picture(12 + 26 * len(rows), label, parts)


def curves(label: str, series: Mapping[str, Sequence[tuple[int, float]]], logarithmic: bool = False) -> str:
    """A line for each series of (depth, value)."""
    values = [v for points in series.values() for _, v in points]
    scale: Callable[[float], float] = log10 if logarithmic else float
    low, high = (floor(log10(min(values))), ceil(log10(max(values)))) if logarithmic else (0, ceil(max(values)))
    depth = max(d for points in series.values() for d, _ in points)

    def at(d: float, v: float) -> tuple[float, float]:
        return 70 + 460 * d / depth, 10 + 200 * (high - v) / (high - low)

    ticks = [(e, f"{10.0**e:g}" if logarithmic else f"{e}") for e in range(low, high + 1)]
    parts = [line(*at(0, e), *at(depth, e)) + text_at(62, at(0, e)[1] + 4, words, "end") for e, words in ticks]
    parts += [text_at(at(d, low)[0], 230, str(d), "middle") for d in range(depth + 1)]
    parts.append(text_at(300, 250, "greatest depth", "middle"))
    for n, (name, points) in enumerate(series.items()):
        path = "L".join("{:.1f} {:.1f}".format(*at(d, scale(v))) for d, v in points)
        parts.append(f'<path d="M{path}" stroke="{HUES[n]}" stroke-width="2.5" fill="none"/>')
        parts.append(f'<rect x="560" y="{14 + 22 * n}" width="12" height="12" fill="{HUES[n]}"/>' + text_at(580, 25 + 22 * n, name))
    return picture(258, label, parts)


# ------------------------------------------------------------------------------------------------------- from the saved files


def models(data: Json) -> Iterator[str]:
    """Figure 12: times of the models and the ratio to the fastest other engine."""
    from benchmarks.contest.table import markdown

    timed = [m for m in data["models"] if m["speedup"] is not None]
    name = {id(m): f"{m['model']}, batch {m['batch']}" + (f", {m['threads']} threads" if m["threads"] > 1 else ", one thread") for m in timed}
    rows = [(name[id(m)], m["speedup"], f"{m['speedup']:.2f}x {m['best_baseline']}") for m in timed]
    if rows:
        yield from raw(bars("Speedup over the fastest other engine", rows))
    yield from markdown(data).splitlines()
    yield ""


def operators(data: Json) -> Iterator[str]:
    """Table 3 and figure 16: each operator case before and after."""
    yield from ("| case | threads | program | ms | MB moved | MFLOP | runs as |", "|---|---|---|---|---|---|---|")
    for case in data["cases"]:
        for program, p in case["programs"].items():
            time = f"{p['median_ms']:.3g}" if "median_ms" in p else p["missing"]
            runs = ", ".join(p["operators"]) or f"{len(p['kernels'])} generated"
            yield f"| {case['case']} | {case['threads']} | {program} | {time} | {p['bytes'] / 1e6:.4g} | {p['flops'] / 1e6:.4g} | `{runs}` |"
    yield ""


def depth(data: Json) -> Iterator[str]:
    """Figures 17 and 18a: predicted speedup and seconds by greatest depth."""
    cases = [c for c in data["cases"] if c.get("published")]
    layers = {c["name"]: [e for e in c["layers"] if not e["stopped"]] for c in cases}
    yield from raw(curves("Predicted speedup by depth", {n: [(e["depth"], e["speedup"]) for e in es] for n, es in layers.items()}))
    yield from raw(curves("Seconds of search by depth", {n: [(e["depth"], e["seconds"]) for e in es] for n, es in layers.items()}, logarithmic=True))
    ended = [c["name"] for c in cases if c["layers"][-1]["stopped"]]
    yield f"Depths that the time budget cut short are left out ({', '.join(ended)})." if ended else ""
    yield ""


def converging(data: Json) -> Iterator[str]:
    """Figure 18b: explorative steps to the target, with and without converging derivation."""
    yield from ("| case | the paper, without | the paper, with | here, without | here, with | target |", "|---|---|---|---|---|---|")
    for c in data["cases"]:
        without, with_it = (c.get("published") or {}).get("steps", ("–", "–"))
        target = c["target"]
        yield f"| {c['name']} | {without} | {with_it} | {target['steps']} | {target['explorative']} | `{', '.join(target['operators'])}` |"
    yield ""


def fingerprints(data: Json) -> Iterator[str]:
    """Figure 19: states with and without fingerprints, in the words of the benchmark's own table."""
    from benchmarks.search.table import HEADER, row, short

    columns = ("default with / without", "isolated with / without", "pruned")
    heads = ("case", "the paper: states with / without", *columns)
    yield from (f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for c in data["cases"]:
        published = c.get("published")
        paper = f"{short(published['states'])} / {short(published['without'])}" if published else "–"
        words = dict(zip(HEADER, row(c), strict=True))
        yield f"| {c['name']} | {paper} | {' | '.join(words[column] for column in columns)} |"
    yield ""


SEARCHED = ("search.json",)
FIGURES = {
    "models": (("cpu-models.json",), "make bench", models),
    "topologies": (("topologies.json",), "make bench-topologies", models),
    "operators": (("operators.json",), "make bench-operators", operators),
    "depth": (SEARCHED, "python -m benchmarks.search", depth),
    "converging": (SEARCHED, "python -m benchmarks.search", converging),
    "fingerprints": (SEARCHED, "python -m benchmarks.search", fingerprints),
}
"""By name: the files that may hold it, the first there is counts; the command that writes it; what shows it."""


def measured(name: str) -> Iterator[str]:
    """The lines of a figure, or that it is missing."""
    files, command, figure = FIGURES[name]
    path = next((RESULTS / f for f in files if (RESULTS / f).exists()), None)
    if path is None:
        yield from (f"*Not measured: there is no `benchmarks/results/{files[0]}` yet. `{command}` writes it.*", "")
        return
    data = json.loads(path.read_text(encoding="utf-8"))
    try:
        lines = list(figure(data))
    except (LookupError, TypeError):
        yield from (f"*Not measured: `benchmarks/results/{path.name}` is of an older benchmark. `{command}` writes it anew.*", "")
        return
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    budget = data.get("run", data).get("settings", {}).get("time_budget")
    limit = f" Time budget of the search: {budget:.0f} s." if budget else ""
    yield from (f"From `benchmarks/results/{path.name}`: {machine['cpu']}, {machine['cores']} cores; {versions}.{limit}", "")
    yield from lines


class Measured(Written):
    """A figure or table of the paper from the file that its benchmark has saved."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        for file in FIGURES[self.arguments[0]][0]:
            self.env.note_dependency(str(RESULTS / file))
        yield from measured(self.arguments[0])


# ------------------------------------------------------------------------------------------------------------ the search space


def space_tree(text: str, depth: int, most: int) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Derivations of an expression that end in different operators, as one tree: (parent, rule, parameters) by node, and what a leaf holds."""
    from einnet.evidence.pages.explore_page import effort
    from einnet.expr.notation.text import parse
    from einnet.search.space import Options, Space

    forms = sorted(Space(Options(max_depth=depth)).forms(parse(text)), key=lambda f: (len(f.steps), effort(f)))
    distinct = list({tuple(f.operators()): f for f in reversed(forms) if f.matches}.values())[::-1][:most]
    nodes: list[tuple[int, str, str]] = [(-1, "start", "")]
    holds = [""]
    known: dict[tuple[int, str], int] = {}
    for form in distinct:
        at = 0
        for step, state in zip(form.steps, list(form.derivation.states())[1:], strict=True):
            key = (at, state.text())
            if key not in known:
                known[key] = len(nodes)
                nodes.append((at, step.rule, step.parameters))
                holds.append("")
            at = known[key]
        holds[at] = " + ".join(form.operators())
    return nodes, holds


def tree_svg(nodes: Sequence[tuple[int, str, str]], holds: Sequence[str]) -> str:
    """The tree from left to right; a row for every leaf."""
    children: dict[int, list[int]] = {}
    for n, (parent, _, _) in enumerate(nodes):
        children.setdefault(parent, []).append(n)
    column, row, leaves = [0] * len(nodes), [0.0] * len(nodes), 0

    def place(n: int, depth: int) -> float:
        nonlocal leaves
        column[n] = depth
        below = [place(c, depth + 1) for c in children.get(n, [])]
        row[n] = sum(below) / len(below) if below else float(leaves)
        leaves += not below
        return row[n]

    place(0, 0)
    wide, high, parts = 128, 44, []
    for n, (parent, rule, parameters) in enumerate(nodes):
        x, y = 4 + column[n] * wide, 4 + row[n] * high
        if parent >= 0:
            parts.append(line(4 + column[parent] * wide + 112, 4 + row[parent] * high + 16, x, y + 16, 0.5))
        fill = f'fill="{HUES[2]}" fill-opacity=".18"' if holds[n] else 'fill="none"'
        tip = f"<title>{escape(f'{rule} {parameters}')}</title>"
        parts.append(f'<g>{tip}<rect x="{x}" y="{y:.1f}" width="112" height="32" rx="6" stroke="currentColor" stroke-opacity=".5" {fill}/>')
        short = parameters if len(parameters) <= 19 else parameters[:18] + "…"
        parts.append(text_at(x + 7, y + 14, rule, size=11) + text_at(x + 7, y + 26, short, size=9) + "</g>")
        if holds[n]:
            parts.append(text_at(*((x, y - 6) if n in children else (x + 118, y + 20)), holds[n], size=11))
    width = max(4 + column[n] * wide + (120 if n in children else 128) + 6.2 * len(holds[n]) for n in range(len(nodes)))
    label = "Derivations found by search; what a derivation ends in stands beside its last step, or above it where others go on"
    return picture(leaves * high + 16, label, parts, width, width)


class Ends(Written):
    """A golden derivation from afar: where it starts and ends, its steps in a line each, what the checker says of them now."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        from collections import Counter

        from einnet.derivation import einfile
        from einnet.derivation.checker.check import check
        from einnet.expr.notation.picture import svg

        path = ROOT / self.arguments[0]
        self.env.note_dependency(str(path))
        file = einfile.parse(path.read_text(encoding="utf-8"))
        proofs = Counter("proven" if p.method == "inline" else "tested" for p in check(file.derivation))
        for title, scope in (("From", file.derivation.start), ("to", file.derivation.end)):
            yield from raw(f"<p>{title}</p>{expression_html(scope.text())}<figure>{svg(scope)}</figure>")
        steps = [f"{s.rule} {s.parameters}".rstrip() for s in file.derivation.steps]
        held = ", ".join(f"{n} {how}" for how, n in proofs.items())
        yield from (f"by {len(steps)} steps ({held}): {'; '.join(f'`{s}`' for s in steps)}.", "")
        yield from (f"It holds {', '.join(f'`{m}`' for m in file.matches)}. All of it: `{self.arguments[0]}`.", "")


class Space(Written):
    """The search space from the expression in the content, as far as it leads to vendor operators."""

    def lines(self) -> Iterator[str]:
        yield from raw(tree_svg(*space_tree("\n".join(self.content), depth=2, most=10)))


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("einnet-measured", Measured)
    app.add_directive("einnet-ends", Ends)
    app.add_directive("einnet-space", Space)
    return {"version": "1", "parallel_read_safe": True}
