"""A suite's table: what became of the problems in every engine, scores, why operators and parts stay in eager mode, and each problem in a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.suites.scores import FAST, GRAPH, OURS, PROGRAMS, Row, fast, kind, mean, scored, speedup, usable
from benchmarks.suites.sizes import LIMITS

KINDS = {"right": "right", "eager": "right, in eager mode", "accuracy": "wrong", "failure": "failed", "ended": "ended by a limit"}


def table(name: str, rows: Sequence[Row], machine: str, total: int) -> str:
    """The table in Markdown of some of the suite's `total` problems."""
    lines = [f"{name}: {len(rows)} of {total} problems on {machine}", *sized(rows), "", *counts(rows)]
    timed = [row for row in usable(rows) if row.get("ms")]
    if timed:
        lines += ["", *loads(timed), *scores(name, timed)]
    reasons = stays(rows)
    if reasons:
        most = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
        lines += ["", "| stays in eager mode | problems |", "|---|---|", *(f"| {why} | {n} |" for why, n in most)]
    left = [row for row in rows if row["status"] != "done"]
    if left:
        lines += ["", "| not run, or not to its end | why |", "|---|---|", *(f"| {row['name']} | {row['why']} |" for row in left)]
    return "\n".join([*lines, "", *problems([row for row in rows if row["status"] == "done"])])


def sized(rows: Sequence[Row]) -> Iterator[str]:
    """What was changed of the sizes, if anything was."""
    capped = {row["asked"]["largest"] for row in rows} - {None}
    if capped:
        sizes = ", ".join(map(str, sorted(capped)))
        yield from ("", f"**Sizes are capped at {sizes}: these are not the suite's problems, and no scores of the suite.**")
    if any(row["asked"].get("fit") for row in rows):
        own = sum(row.get("form") == "the suite's own sizes" for row in rows)
        limits = f"{LIMITS.flops / 1e9:g} billion operations of products, {LIMITS.nbytes / 2**20:g} MiB, {LIMITS.calls} operators"
        yield from (
            "",
            f"**Problems are made smaller by one rule (`benchmarks/suites/sizes.py`: at most {limits}): {own} of {len(rows)} have "
            "the suite's own sizes, and these are no scores of the suite.**",
        )


def counts(rows: Sequence[Row]) -> Iterator[str]:
    """How many problems each engine computes rightly."""
    yield from ("| engine | problems | " + " | ".join(KINDS.values()) + " |", "|---|" + "---|" * (len(KINDS) + 1))
    ran = usable(rows)
    for engine in engines(rows):
        asked = [row for row in ran if engine in row["engines"] or engine in row.get("engines_asked", ())]
        found = Counter(kind(row, engine) for row in asked)
        yield f"| {engine} | {len(asked)} | " + " | ".join(str(found[k]) for k in KINDS) + " |"


def engines(rows: Sequence[Row]) -> list[str]:
    """All engines that some problem ran with."""
    return sorted({engine for row in usable(rows) for engine in row["engines"]})


def loads(rows: Sequence[Row]) -> Iterator[str]:
    """How busy the machine was while times were taken."""
    found = sorted(row["load"] for row in rows if "load" in row)
    if found:
        load = f"load of the machine meanwhile: {found[0]:.1f} to {found[-1]:.1f}, median {found[len(found) // 2]:.1f}"
        told = f"Median times in turns, one process, the threads of the other engines asleep, of disturbed rounds the fastest; {load}."
        yield f"{told} Times on a loaded machine are doubtful."
        yield ""


def scores(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """The suite's own scores over what was timed, and geometric means."""
    there = [engine for engine in engines(rows) if engine != PROGRAMS]
    for engine in there:
        asked = [row for row in rows if engine in row["engines"]]
        for over in ("eager", *(e for e in there if e != engine)):
            yield from beside(name, asked, engine, over)
        if name == "graphnet":
            found = ", ".join(f"t={t}: {s:.2f} / {es:.2f}" for t in (-5, -3, -1, 0, 1, 3) for s, es in [scored(asked, engine, t)])
            yield f"- {engine}: S(t) / ES(t) {found}"


def beside(name: str, rows: Sequence[Row], engine: str, over: str) -> Iterator[str]:
    """One engine beside another, where both were timed."""
    gains = [g for row in rows if (g := speedup(row, engine, over))]
    if gains:
        text = f"{engine} over {over}: geometric mean {mean(gains):.2f}x of {len(gains)}"
        shares = ", ".join(f"fast_{p:g} {fast(rows, engine, over, p):.0%}" for p in FAST)
        yield f"- {text}" + (f"; {shares}" if name == "kernelbench" else "")


def stays(rows: Sequence[Row]) -> Counter[str]:
    """Why operators and parts stay in eager mode where every program that can be made is taken, by how many problems it concerns."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(set(reasons(row)))
    return found


def reasons(row: Row) -> Iterator[str]:
    """Of one problem."""
    engine = next((row["engines"][e] for e in (PROGRAMS, *OURS) if e in row["engines"]), {})
    for note in engine.get("notes", ()):
        if note.startswith(OPERATORS):
            yield from note.removeprefix(OPERATORS).split("; ")
    yield from (f"a part: {plain(part['why'])}" for part in engine.get("parts", ()) if part["runs"] == "eager")
    yield from (f"a break of the graph: {plain(text)}" for text in engine.get("breaks", ()))
    if engine.get("right") and not engine.get("parts"):
        yield NOTHING


NOTHING = "all of it: torch hands over no graph that computes with float32 (modules of recurrent layers are not traced)"

OPERATORS = "einnet: operators that stay in eager mode: "


def plain(text: str) -> str:
    """A reason without its numbers, so that like ones are one; what would end a cell is said otherwise."""
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "N", text).replace("|", "/")[:160]


def problems(rows: Sequence[Row]) -> Iterator[str]:
    """Each problem: its sizes, its parts and operators, and the time of a call."""
    there = ["eager", *(e for e in engines(rows) if e != PROGRAMS)]
    columns = ["problem", "sizes", "parts taken", "parts in eager mode", "breaks", "result", *(f"ms {e}" for e in there)]
    yield from (f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")
    for row in rows:
        engine: dict[str, Any] = next((row["engines"][e] for e in (PROGRAMS, *OURS) if e in row["engines"]), {})
        taken = Counter(part["runs"] for part in engine.get("parts", ()) if part.get("part") != GRAPH)
        worst = [kind(row, e) for e in OURS if e in row["engines"]]
        result = next((KINDS[k] for k in ("accuracy", "failure", "right", "eager") if k in worst), "")
        ms = " | ".join(f"{row['ms'][e][0]:.3g}" if e in row.get("ms", {}) else "" for e in there)
        yield f"| {row['name']} | {row.get('form', '')} | {taken['einnet']} | {taken['eager']} | {len(engine.get('breaks', ()))} | {result} | {ms} |"
