"""The command that the suites share: which problems, which limits, results as they come, and a table at the end."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites.problem import digest, suite
from benchmarks.suites.runner import run
from benchmarks.suites.scores import FAST, fast, kind, mean, scored, speedup, usable
from einnet.records import as_json
from einnet.runtime.machine import description

RESULTS = Path(__file__).resolve().parents[1] / "results"

Row = dict[str, Any]

ASKED = ("threads", "time_budget", "allow", "engines", "timed", "largest", "slower", "longest", "seconds")
"""Orders that a result belongs to."""


def parser(name: str, text: str | None) -> argparse.ArgumentParser:
    """The command's arguments."""
    found = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, help="a copy of the suite, which is not part of this repository")
    found.add_argument("prefixes", nargs="*", metavar="PREFIX", help="problems whose names start so (default: all)")
    found.add_argument("--every", type=int, default=1, metavar="N", help="each N-th of them")
    found.add_argument("--engines", default="inductor,einnet", help="beside eager mode (default: inductor,einnet)")
    found.add_argument("--time-budget", type=float, default=20.0, help="seconds for each part that einnet optimizes (default: 20)")
    found.add_argument("--allow", default="reassociation", help="the worst class of step (default: reassociation)")
    found.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    found.add_argument("--limit", type=float, default=600.0, help="seconds for one problem with all engines (default: 600)")
    found.add_argument("--memory", type=float, default=0.5, help="share of the machine's memory for one problem (default: 0.5)")
    found.add_argument("--longest", type=float, default=20.0, help="seconds in eager mode beyond which a problem is skipped (default: 20)")
    found.add_argument("--seconds", type=float, default=2.0, help="of timing for each engine (default: 2)")
    found.add_argument("--untimed", action="store_true", help="compare results and time nothing")
    found.add_argument("--slower", action="store_true", help="keep programs that are slower than eager mode: for correctness")
    found.add_argument("--largest", type=int, help="cap the sizes that a problem's file names: the table says so, and is no score of the suite")
    found.add_argument("-o", "--output", type=Path, default=RESULTS / f"{name}.json")
    return found


def main(name: str, text: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 where a result is wrong."""
    given = parser(name, text)
    options = given.parse_args(arguments)
    known = suite(name).tasks(options.folder)
    if not known:
        given.error(f"{options.folder} has no problems of {name}: clone the suite's repository, and give its folder")
    chosen = [n for n in known if not options.prefixes or n.startswith(tuple(options.prefixes))][:: options.every]
    if not chosen:
        given.error(f"no problem starts with {', '.join(options.prefixes)}; the first is {next(iter(known))}")
    orders = {
        "suite": name, "threads": options.threads, "time_budget": options.time_budget, "allow": options.allow,
        "engines": options.engines.split(","), "timed": not options.untimed, "largest": options.largest, "slower": options.slower,
        "longest": options.longest, "seconds": options.seconds,
    }  # fmt: skip
    rows: dict[str, Row] = {row["name"]: row for row in json.loads(options.output.read_text())["problems"]} if options.output.exists() else {}
    nbytes = int(options.memory * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for n, problem in enumerate(chosen):
        belongs = {"digest": digest(known[problem]), "asked": {key: orders[key] for key in ASKED}}
        if problem in rows and belongs == {key: rows[problem].get(key) for key in belongs}:
            continue
        row = run({**orders, "name": problem, "path": str(known[problem])}, options.limit, nbytes)
        rows[problem] = {"name": problem, **belongs, **row}
        print(f"{n + 1}/{len(chosen)} {line(rows[problem])}", flush=True)
        write(options.output, name, [rows[p] for p in known if p in rows], {"limit": options.limit, "memory": nbytes})
    wrong = [p for p in chosen if kind(rows[p], "einnet") == "accuracy" and rows[p]["status"] == "done"]
    print(table(name, [rows[p] for p in chosen]))
    return 1 if wrong else 0


def line(row: Row) -> str:
    """One problem in a line."""
    if row["status"] in ("unusable", "skipped", "ended"):
        return f"{row['name']}: {row['status']}: {row['why']}"
    ms = "  ".join(f"{engine} {t[0]:.4g} ms" for engine, t in row.get("ms", {}).items())
    return f"{row['name']}: " + ", ".join(f"{engine} {kind(row, engine)}" for engine in row["engines"]) + (f"  {ms}" if ms else "")


def write(path: Path, name: str, rows: Sequence[Row], limits: dict[str, float]) -> None:
    """The rows so far, and their table beside them, whole or not at all."""
    data = {"suite": name, "machine": as_json(description()), "limits": limits, "problems": list(rows)}
    for file, text in ((path, json.dumps(data, indent=1)), (path.with_suffix(".md"), table(name, rows))):
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(file)


def table(name: str, rows: Sequence[Row]) -> str:
    """What became of the problems, scores, and what was not run, with the reason."""
    lines = [f"{name}: {len(rows)} problems on {description().cpu}"]
    capped = {row["asked"]["largest"] for row in rows} - {None}
    if capped:
        sizes = ", ".join(map(str, sorted(capped)))
        lines += ["", f"**Sizes are capped at {sizes}: these are not the suite's problems, and no scores of the suite.**"]
    ran = usable(rows)
    engines = sorted({engine for row in ran for engine in row["engines"]})
    kinds = ("right", "eager", "accuracy", "failure")
    lines += ["", "| engine | right | right, in eager mode | wrong | failed |", "|---|---|---|---|---|"]
    for engine in engines:
        counts = Counter(kind(row, engine) for row in ran)
        lines.append(f"| {engine} | " + " | ".join(str(counts[k]) for k in kinds) + " |")
    timed = [row for row in ran if row.get("ms")]
    if timed:
        lines += ["", *(scores(name, timed, engines))]
    left = [row for row in rows if row["status"] != "done"]
    if left:
        lines += ["", "| not run, or not to its end | why |", "|---|---|", *(f"| {row['name']} | {row['why']} |" for row in left)]
    return "\n".join(lines)


def scores(name: str, rows: Sequence[Row], engines: Sequence[str]) -> list[str]:
    """The suite's own scores over what was timed, and geometric means."""
    lines = []
    for engine in engines:
        for over in ("eager", *(e for e in engines if e != engine)):
            gains = [g for row in rows if (g := speedup(row, engine, over))]
            if not gains:
                continue
            text = f"{engine} over {over}: geometric mean {mean(gains):.2f}x of {len(gains)}"
            if name == "kernelbench":
                text += "; " + ", ".join(f"fast_{p:g} {fast(rows, engine, over, p):.0%}" for p in FAST)
            lines.append(f"- {text}")
        if name == "graphnet":
            found = ", ".join(f"t={t}: {s:.2f} / {es:.2f}" for t in (-5, -3, -1, 0, 1, 3) for s, es in [scored(rows, engine, t)])
            lines.append(f"- {engine}: S(t) / ES(t) {found}")
    return lines
