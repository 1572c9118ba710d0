"""How far `optimize` reaches on small models whose best known form is known.

    python -m benchmarks.reach                           all probes, 20 s each, into benchmarks/results/reach.json and build/reach.html
    python -m benchmarks.reach repvgg pool --budget 5    those with a word in their names, printed only
    python -m benchmarks.reach --search                  searched, nothing measured

The file is written after each probe, and the same command goes on where it was ended: first with probes that have no row yet, then with those whose
row has other settings. Exit code 1 where a probe fails, or there was no time for one.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest.machine import description
from benchmarks.contest.programs import commit
from benchmarks.contest.results import keep, known, read
from benchmarks.reach import PROBES
from benchmarks.reach.measure import Reached, explored, optimized
from benchmarks.reach.page import Case, case, page
from benchmarks.reach.probes import Probe
from einnet.errors import EinNetError
from einnet.runtime.cpu.threads import resolve_threads
from einnet.runtime.machine import cpu_name

ROOT = Path(__file__).resolve().parents[2]


MEASURED_S = 12.0
"""What a probe takes beside its budget at most: the start, and a last kernel that is compiled and timed."""


def main(arguments: list[str] | None = None) -> int:
    """Run the probes, print a line for each, and write the results."""
    parser = argparse.ArgumentParser("python -m benchmarks.reach", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only probes with one of these in their names")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="search only, measure nothing")
    parser.add_argument("--forms", action="store_true", help="print the forms")
    parser.add_argument("--loaded", action="store_true", help="say in the file that other programs ran on the machine")
    parser.add_argument("--seconds-left", type=float, default=math.inf, metavar="S", help="begin no probe that would not end in so many seconds")
    parser.add_argument("-o", "--output", type=Path, help="the JSON; by default benchmarks/results/reach.json for all probes, none for some")
    given = parser.parse_args(arguments)
    output = given.output or (None if given.words else ROOT / "benchmarks/results/reach.json")
    threads = resolve_threads(given.threads)
    asked = {"budget_s": given.budget, "threads": threads, "loaded": given.loaded, "timed": not given.search, "cpu": cpu_name()}
    cases, failed, end = [], 0, time.monotonic() + given.seconds_left
    for probe in in_turn([p for p in PROBES if not given.words or any(w in p.name for w in given.words)], output, asked):
        if time.monotonic() + given.budget + MEASURED_S > end:
            print(f"no time is left for {probe.name}: the same command goes on with it", file=sys.stderr)
            failed += 1
            break
        try:
            reached = explored(probe, given.budget) if given.search else optimized(probe, given.budget, threads)
        except EinNetError as error:
            print(f"{probe.name}: {error}", flush=True)
            failed += 1
            continue
        cases.append({**case(probe, reached), "asked": asked, "commit": commit()})
        print(line(probe, reached), flush=True)
        for form in reached.forms if given.forms else ():
            print(f"    {form}")
        if output:
            written(output, cases[-1])
    found = sum(c["among"] for c in cases)
    print(f"{sum(c['reached'] for c in cases)} of {len(cases)} at the best known form; it is among the candidates of {found}")
    return int(failed > 0)


def in_turn(probes: Sequence[Probe], output: Path | None, asked: dict[str, Any]) -> list[Probe]:
    """The probes that the file does not have by these settings, those that it has not at all before the others."""
    if output is None or not output.exists():
        return list(probes)
    there = {c["name"] for c in read(output)["cases"]}
    return sorted((p for p in probes if not known(output, p.name, asked)), key=lambda p: p.name in there)


def written(output: Path, row: Case) -> None:
    """Put a row into the file, and make the page of all rows."""
    machine = description()
    cases = keep(output, machine, row, (p.name for p in PROBES))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/reach.html").write_text(page(machine, cases))


def line(probe: Probe, r: Reached) -> str:
    """What there is to say of a probe, in a line."""
    mark = "reached" if r.found(probe) else "found  " if r.among(probe) else "       "
    faster = f"{r.ratio:.2f}x ± {r.noise:.0%}" if r.ratio else ""
    counts = f"{r.model:9.3g} to {r.chosen:9.3g}, best {probe.best:9.3g}; {r.states} states"
    return f"{mark} {probe.name:34} {counts}, {r.seconds:.1f} s {r.stopped} {faster} {r.runs} {r.proof}"


if __name__ == "__main__":
    sys.exit(main())
