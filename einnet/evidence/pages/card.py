"""Programs for a CUDA device as people read them: their steps, what was reckoned for each and why, and the derivations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from einnet.evidence.pages.plots import HUES
from einnet.evidence.pages.proof_text import chapter_lines, error_line, ms, verdict_word
from einnet.evidence.pages.report_page import chapter_html
from einnet.evidence.pages.story_schema import CardStep, CardStory
from einnet.evidence.pages.times import maker, shortened
from einnet.expr.notation.tags import tag

UNTUNED = "chosen by time on the card"


def explain(told: CardStory) -> str:
    """The story of a program for a CUDA device as text: what runs, step by step, then what was derived."""
    lines = [*heading(told), "", *step_lines(told), ""]
    lines += [*(f"note: {note}" for note in told.notes), ""] if told.notes else []
    return "\n".join([*lines, *chapter_lines(told)]).rstrip()


def heading(told: CardStory) -> Iterator[str]:
    """For what, from which times, and what was seen of it without a card."""
    chapters, v, t, memory = told.subprograms, told.verification, told.totals, told.memory
    changed = sum(c.changed for c in chapters)
    subprograms = f"{len(chapters)} distinct subprograms; {changed} run as something else than the model's own operators"
    yield f"{told.model} for {told.device}: {subprograms}"
    source = "recorded on the card" if told.profile == "measured" else "estimated from the card's data sheet; nothing was measured (~)"
    yield f"times are {source}: {ms(t.original_predicted_ms)} -> {ms(t.optimized_predicted_ms)} predicted"
    yield f"{t.launches} launches; arena {memory.arena / 1e6:.4g} MB, constants {memory.constants / 1e6:.4g} MB"
    yield f"verified on the host when it was made, not on a card: {verdict_word(v)}, {error_line(v)}"


def step_lines(told: CardStory) -> list[str]:
    """A table: number, what runs it, launches, blocks and threads of each, bytes, reckoned time, kernel and what made it."""
    changed = [c.key for c in told.subprograms if c.changed]
    numbers = {key: n for n, key in enumerate(changed, 1)}
    rows: list[tuple[str, ...]] = [("", "run by", "launches", "grid x block", "MB", "ms", "kernel and what made it")]
    for n, s in enumerate(told.steps):
        told_by = f"{shortened(s.kernel)}   {maker(s, numbers)}"
        rows.append((str(n), s.by, str(s.launches), grids(s), f"{s.bytes / 1e6:.3g}", reckoned(s), told_by))
        rows += [("", "", "", "", "", "", f"  {p.plan} ({p.device}, {p.math})") for p in s.plans]
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]) - 1)]
    lines = ["  " + "  ".join([*(v.rjust(w) for v, w in zip(r, widths)), r[-1]]).rstrip() for r in rows]
    unknown = sum(s.by in ("cuBLASLt", "cuDNN") and not s.plans for s in told.steps)
    return [*lines, f"  the algorithm of {unknown} library calls is {UNTUNED}"] if unknown else lines


def grids(step: CardStep) -> str:
    """Blocks and threads of every launch of generated code."""
    return " + ".join(f"{extent(g.grid)}x{extent(g.block)}" for g in step.grids) or "–"


def extent(sizes: Sequence[int]) -> str:
    """Sizes in one number, where only the first is not 1."""
    return str(sizes[0]) if set(sizes[1:]) <= {1} else "(" + ",".join(map(str, sizes)) + ")"


def reckoned(step: CardStep) -> str:
    """The time of a step; ~ marks an estimate."""
    return "–" if step.predicted_ms is None else f"{'~' if step.estimated else ''}{step.predicted_ms:.3g}"


def program_html(told: CardStory) -> str:
    """The view of the program on the explorer's page: the same heading and table, then subprogram by subprogram."""
    about = "".join(tag("p", escape(line), class_="meta") for line in heading(told))
    notes = "".join(tag("p", escape(note), class_="chip warn") for note in told.notes)
    table = tag("pre", escape("\n".join(step_lines(told))))
    chapters = "".join(chapter_html(s, HUES[n % len(HUES)], [], linked=True) for n, s in enumerate(told.subprograms))
    parts = [tag("h1", escape(told.model)), about, notes, tag("h2", "Steps"), table, tag("h2", "Subprogram by subprogram"), chapters]
    return tag("article", "".join(parts), class_="report")
