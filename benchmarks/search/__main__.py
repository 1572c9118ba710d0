"""The paper's E4 (speedup by depth), E5 (search time by depth, steps with and without converging) and E6 (fingerprints on and off).

    python -m benchmarks.search                        all cases, into benchmarks/results/search.json
    python -m benchmarks.search G2BMM --depth 4 -o build/bench/search.json
    python -m benchmarks.search --workers 2 -o build/bench/shared.json   one search shared by two processes, beside one process
    python -m benchmarks.search --table build/bench/search.json --plot build/bench

Speedups are predictions: of times in the profile database where a kernel has been measured, of a roofline for the rest. Counts do not
depend on the machine. Searches without fingerprints end at their limits and say at which depth; their states are counted beyond it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.contest.machine import description
from benchmarks.search.cases import CASES
from benchmarks.search.measure import Limits, measured
from benchmarks.search.table import markdown, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "search.json"


def main(arguments: list[str]) -> None:
    """Measure and print, or print and draw what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases whose names contain this (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each search with fingerprints")
    parser.add_argument("--bare", type=float, default=8.0, help="seconds for each search without fingerprints")
    parser.add_argument("--count", type=float, default=15.0, help="seconds for the count of its states")
    parser.add_argument("--workers", type=int, metavar="N", help="only compare one process with N that share a search")
    parser.add_argument("--states", type=int, default=3000, help="of each search that is shared")
    parser.add_argument("--table", type=Path, metavar="JSON", help="only print what this file has")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as markdown")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw the figures into this folder")
    options = parser.parse_args(arguments)
    if options.workers:
        share(options)
        return
    data = json.loads(options.table.read_text(encoding="utf-8")) if options.table else run(options)
    print(table(data))
    if options.markdown:
        options.markdown.write_text(markdown(data), encoding="utf-8")
    if options.plot:
        from benchmarks.search.plot import plot

        for path in plot(data, options.plot):
            print(path)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; the file is written after every case."""
    from einnet.runtime.costs import CpuCost

    cost, limits = CpuCost(measure=False), Limits(options.depth, options.seconds, options.bare, options.count)
    chosen = [c for c in CASES if not options.cases or any(part in c.name for part in options.cases)]
    if not chosen:
        raise SystemExit(f"no case has {' or '.join(options.cases)} in its name; there are {', '.join(c.name for c in CASES)}")
    data: dict[str, Any] = {"machine": description(), "cost": "profile database, else roofline (estimates)", "cases": []}
    for case in chosen:
        print(case.name, file=sys.stderr, flush=True)
        data["cases"].append(measured(case, cost, limits))
        last = data["cases"][-1]["layers"][-1]
        print(f"  {last['states']} states in {last['seconds']:.1f} s, {last['states_per_s']:.0f} states/s", file=sys.stderr, flush=True)
        write(data, options.output)
    return data


def share(options: argparse.Namespace) -> None:
    """Compare, print and write."""
    from benchmarks.search.shared import compared, expressions, line

    data: dict[str, Any] = {"machine": description(), "states": options.states, "cases": []}
    for name, scope in expressions(options.cases).items():
        data["cases"].append(compared(name, scope, options.states, options.workers))
        print(line(data["cases"][-1]), flush=True)
        write(data, RESULTS.with_name("shared.json") if options.output == RESULTS else options.output)


def write(data: dict[str, Any], path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(new, path)


if __name__ == "__main__":
    main(sys.argv[1:])
