"""Algorithms derived, not programmed: operations of naive models and of what is found for them, with states, proof and times.

    python -m benchmarks.algorithms                        all cases, 30 s each, into benchmarks/results/algorithms.json
    python -m benchmarks.algorithms retention --budget 10  those with a word in their names, printed only
    python -m benchmarks.algorithms --search               nothing is timed beside other engines

Times are taken in turns, each engine in a process of its own. Exit code 1 where a case fails, or its program is not verified.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.algorithms import CASES
from benchmarks.algorithms.measure import Found, found
from benchmarks.contest.compare import Effort
from benchmarks.contest.machine import description
from benchmarks.contest.results import read, text, write_whole
from einnet.errors import EinNetError
from einnet.runtime.cpu.threads import resolve_threads

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, print a line for each, and write the results."""
    parser = argparse.ArgumentParser("python -m benchmarks.algorithms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only cases with one of these in their names")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="time nothing beside other engines")
    parser.add_argument("--loaded", action="store_true", help="say in the file that other programs ran on the machine")
    parser.add_argument("-o", "--output", type=Path, help="the JSON; by default benchmarks/results/algorithms.json for all cases, none for some")
    given = parser.parse_args(arguments)
    output = given.output or (None if given.words else ROOT / "benchmarks/results/algorithms.json")
    threads = resolve_threads(given.threads)
    machine = {**description(), "threads": threads, "budget_s": given.budget, "loaded": given.loaded}
    failed = 0
    for case in (c for c in CASES if not given.words or any(w in c.name for w in given.words)):
        try:
            one = found(case, given.budget, threads, None if given.search else Effort(rounds=7, patience=30.0))
        except EinNetError as error:
            print(f"{case.name}: {error}", flush=True)
            failed += 1
            continue
        failed += not one.verified
        print(line(one), flush=True)
        if output:
            keep(output, machine, one.row())
    return int(failed > 0)


def keep(path: Path, machine: dict[str, Any], row: dict[str, Any]) -> None:
    """Put a row into the file in the order of the cases; those of other cases stay, and those of cases that are no more go."""
    before = read(path)["cases"] if path.exists() else []
    rows = {r["name"]: r for r in [*before, row]}
    write_whole(path, text({"machine": machine, "cases": [rows[c.name] for c in CASES if c.name in rows]}))


def line(f: Found) -> str:
    """What there is to say of a case, in a line."""
    ms = ", ".join(f"{name} {value:.3g} ms" for name, value in f.ms.items())
    counts = f"{f.naive_ops:9.3g} to {f.derived_ops:9.3g} operations ({f.naive_ops / max(f.derived_ops, 1):.1f}x), {f.states} states"
    return f"{f.name:28} {counts}, {f.seconds:.1f} s, {f.proof}, {f.runs}; {ms}\n    {', '.join(f.rules)}"


if __name__ == "__main__":
    sys.exit(main())
