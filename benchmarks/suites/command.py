"""The command that the suites share: which problems, which limits, results as they come, and a table at the end."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.suites.problem import digest, suite
from benchmarks.suites.runner import Nursery, run
from benchmarks.suites.scores import OURS, PROGRAMS, kind
from benchmarks.suites.table import table
from einnet.records import as_json
from einnet.runtime.machine import description

RESULTS = Path(__file__).resolve().parents[1] / "results"

Row = dict[str, Any]

ASKED = ("threads", "time_budget", "allow", "largest", "fit", "longest")
"""Orders that a result belongs to. What other engines found of the same stays in its row."""


def parser(name: str, text: str | None) -> argparse.ArgumentParser:
    """The command's arguments."""
    found = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, help="a copy of the suite, which is not part of this repository")
    found.add_argument("prefixes", nargs="*", metavar="PREFIX", help="problems whose names start so (default: all)")
    found.add_argument("--every", type=int, default=1, metavar="N", help="each N-th of them")
    found.add_argument("--sample", type=int, metavar="N", help="N of them, drawn by the seed of --seed: the same ones in every run")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--engines", default="programs,inductor,einnet", help="beside eager mode; programs: ours, however slow (default: all)")
    found.add_argument("--time-budget", type=float, default=20.0, help="seconds for each part that einnet optimizes (default: 20)")
    found.add_argument("--graph-budget", type=float, default=120.0, help="seconds that einnet has for each graph, export and all (default: 120)")
    found.add_argument("--allow", default="reassociation", help="the worst class of step (default: reassociation)")
    found.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    found.add_argument("--limit", type=float, default=600.0, help="seconds for one problem with all engines (default: 600)")
    found.add_argument("--memory", type=float, default=0.5, help="share of the machine's memory for one problem (default: 0.5)")
    found.add_argument("--longest", type=float, default=20.0, help="seconds in eager mode beyond which a problem is skipped (default: 20)")
    found.add_argument("--seconds", type=float, default=2.0, help="of the clock for each engine that is timed (default: 2)")
    found.add_argument("--untimed", action="store_true", help="compare results and time nothing")
    found.add_argument("--seconds-left", type=float, default=math.inf, metavar="S", help="begin no problem after so many seconds")
    found.add_argument("--largest", type=int, help="cap the sizes that a problem's file names: the table says so, and is no score of the suite")
    found.add_argument("--fit", action="store_true", help="make problems smaller by the rule of benchmarks/suites/sizes.py: no score of the suite")
    found.add_argument("-o", "--output", type=Path, default=RESULTS / f"{name}.json")
    return found


def main(name: str, text: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 where a result is wrong."""
    given = parser(name, text)
    options = given.parse_intermixed_args(arguments)
    known = suite(name).tasks(options.folder)
    if not known:
        given.error(f"{options.folder} has no problems of {name}: clone the suite's repository, and give its folder")
    named = [n for n in known if not options.prefixes or n.startswith(tuple(options.prefixes))]
    chosen = drawn(named[:: options.every], options.sample, options.seed)
    if not chosen:
        given.error(f"no problem starts with {', '.join(options.prefixes)}; the first is {next(iter(known))}")
    orders = {
        "suite": name, "threads": options.threads, "time_budget": options.time_budget, "graph_budget": options.graph_budget, "allow": options.allow,
        "engines": options.engines.split(","),
        "timed": not options.untimed, "largest": options.largest, "fit": options.fit, "longest": options.longest, "seconds": options.seconds,
    }  # fmt: skip
    rows: dict[str, Row] = {row["name"]: row for row in json.loads(options.output.read_text())["problems"]} if options.output.exists() else {}
    limits = {"limit": options.limit, "memory": int(options.memory * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))}
    for done, row in ran({problem: known[problem] for problem in chosen}, orders, limits, rows, time.monotonic() + options.seconds_left):
        rows[row["name"]] = row
        print(f"{done}/{len(chosen)} {line(row)}", flush=True)
        write(options.output, name, [rows[p] for p in known if p in rows], limits, len(known))
    there = [rows[p] for p in chosen if p in rows]
    print(table(name, there, description().cpu, len(known)))
    return 1 if any(kind(row, engine) == "accuracy" for row in there for engine in OURS if engine in row["engines"]) else 0


def ran(problems: Mapping[str, Path], orders: Row, limits: Mapping[str, float], rows: Mapping[str, Row], end: float) -> Iterator[tuple[int, Row]]:
    """The rows of problems that are not complete yet, as they come, with their places; none is begun after `end`."""
    nursery = Nursery()
    try:
        for n, (problem, path) in enumerate(problems.items()):
            belongs = {"digest": digest(path), "asked": {key: orders[key] for key in ASKED}}
            before = rows.get(problem, {})
            if belongs != {key: before.get(key) for key in belongs}:
                before = {}
            if complete(before, orders, limits["limit"]):
                continue
            if time.monotonic() > end:
                return
            row = run({**orders, "name": problem, "path": str(path)}, limits["limit"], int(limits["memory"]), nursery)
            row["engines"] = {**before.get("engines", {}), **row["engines"]}
            asked = sorted({*before.get("engines_asked", ()), *orders["engines"]})
            yield n + 1, {"name": problem, **belongs, "engines_asked": asked, "limit": limits["limit"], **row}
    finally:
        nursery.close()


def drawn(problems: list[str], count: int | None, seed: int) -> list[str]:
    """So many of the problems, in an order that any beginning of is a sample, too; all in their order where no number is given.

    A problem's place is drawn from its name: what else the suite has does not matter.
    """
    if count is None:
        return problems
    return sorted(problems, key=lambda name: Random(f"{seed} {name}").random())[:count]


def complete(row: Row, orders: Row, limit: float) -> bool:
    """A row has all that the orders ask for, or the reason why there is no more: that it was ended by a shorter limit of time is none."""
    if not row or not set(orders["engines"]) <= set(row["engines_asked"]):
        return False
    if row["status"] == "ended" and row.get("limit", 0.0) < limit:
        return False
    wanted = {e for e in orders["engines"] if e != PROGRAMS and row["engines"].get(e, {}).get("right")}
    return row["status"] != "done" or not orders["timed"] or wanted <= set(row.get("ms", {}))


def line(row: Row) -> str:
    """One problem in a line."""
    if row["status"] in ("unusable", "skipped", "ended"):
        return f"{row['name']}: {row['status']}: {row['why']}"
    ms = "  ".join(f"{engine} {t[0]:.4g} ms" for engine, t in row.get("ms", {}).items())
    return f"{row['name']}: " + ", ".join(f"{engine} {kind(row, engine)}" for engine in row["engines"]) + (f"  {ms}" if ms else "")


def write(path: Path, name: str, rows: Sequence[Row], limits: dict[str, float], total: int) -> None:
    """The rows so far, and their table beside them, whole or not at all."""
    data = {"suite": name, "machine": as_json(description()), "limits": limits, "of": total, "problems": list(rows)}
    for file, text in ((path, json.dumps(data, indent=1)), (path.with_suffix(".md"), table(name, rows, description().cpu, total))):
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(file)
