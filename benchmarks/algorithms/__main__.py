"""Algorithms derived, not programmed: operations of naive models and of what is found for them, with states, proof and times.

    python -m benchmarks.algorithms                        all cases, 30 s each, into benchmarks/results/algorithms.json
    python -m benchmarks.algorithms retention --budget 10  those with a word in their names, printed only
    python -m benchmarks.algorithms --search               nothing is timed beside other engines

Times are taken in turns, each engine in a process of its own; those of OpenVINO, torch and scipy where they are installed. The file is written
after each case, and the same command goes on where it was ended: rows of the same settings are not measured again. Exit code 1 where a case fails,
its program is not verified, or there was no time for it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from benchmarks.algorithms import CASES
from benchmarks.algorithms.measure import Found, found
from benchmarks.contest.compare import Effort
from benchmarks.contest.machine import description
from benchmarks.contest.programs import commit
from benchmarks.contest.results import keep, known
from benchmarks.contest.worker import EngineError
from einnet.errors import EinNetError
from einnet.runtime.cpu.threads import resolve_threads

ROOT = Path(__file__).resolve().parents[2]

ROUNDS, PATIENCE_S = 7, 12.0
"""In which engines take turns: so many, and none is begun after so many seconds but the first three."""

BESIDE_S = PATIENCE_S + 25.0
"""What a case takes beside its budget: rounds, engines that start, and a last kernel that is compiled."""


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, print a line for each, and write the results."""
    parser = argparse.ArgumentParser("python -m benchmarks.algorithms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only cases with one of these in their names")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="time nothing beside other engines")
    parser.add_argument("--loaded", action="store_true", help="say in the file that other programs ran on the machine")
    parser.add_argument("--seconds-left", type=float, default=math.inf, metavar="S", help="begin no case that would not end in so many seconds")
    parser.add_argument("--again", action="store_true", help="measure again what the file has by the same settings")
    parser.add_argument("-o", "--output", type=Path, help="the JSON; by default benchmarks/results/algorithms.json for all cases, none for some")
    given = parser.parse_args(arguments)
    output = given.output or (None if given.words else ROOT / "benchmarks/results/algorithms.json")
    threads = resolve_threads(given.threads)
    machine, end = description(), time.monotonic() + given.seconds_left
    asked = {"budget_s": given.budget, "threads": threads, "loaded": given.loaded, "timed": not given.search, "cpu": machine["cpu"]}
    failed = 0
    for case in (c for c in CASES if not given.words or any(w in c.name for w in given.words)):
        if output and not given.again and known(output, case.name, asked):
            continue
        if time.monotonic() + given.budget + BESIDE_S > end:
            print(f"no time is left for {case.name}: the same command goes on with it", file=sys.stderr)
            return 1
        try:
            one = found(case, given.budget, threads, None if given.search else Effort(rounds=ROUNDS, patience=PATIENCE_S))
        except (EinNetError, EngineError) as error:
            print(f"{case.name}: {error}", flush=True)
            failed += 1
            continue
        failed += not one.verified
        print(line(one), flush=True)
        if output:
            keep(output, machine, {**one.row(), "asked": asked, "commit": commit()}, (c.name for c in CASES))
    return int(failed > 0)


def line(f: Found) -> str:
    """What there is to say of a case, in a line."""
    ms = ", ".join(f"{name} {value:.3g} ms" for name, value in f.ms.items())
    counts = f"{f.naive_ops:9.3g} to {f.derived_ops:9.3g} operations ({f.naive_ops / max(f.derived_ops, 1):.1f}x), {f.states} states"
    return f"{f.name:28} {counts}, {f.seconds:.1f} s, {f.proof}, {f.runs}; {ms}\n    {', '.join(f.rules)}"


if __name__ == "__main__":
    sys.exit(main())
