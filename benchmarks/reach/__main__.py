"""How far `optimize` reaches on small models whose best known form is known.

    python -m benchmarks.reach                           all probes, 20 s each, into benchmarks/results/reach.json and build/reach.html
    python -m benchmarks.reach repvgg pool --budget 5    those with a word in their names, printed only
    python -m benchmarks.reach --search                  searched, nothing measured

Exit code 1 where a probe fails, or a step of a derivation is refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.reach import PROBES
from benchmarks.reach.measure import Reached, explored, optimized
from benchmarks.reach.page import case, page, text
from benchmarks.reach.probes import Probe
from einnet.errors import EinNetError
from einnet.runtime.cpu.threads import resolve_threads
from einnet.runtime.machine import cpu_name

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the probes, print a line for each, and write the results."""
    parser = argparse.ArgumentParser("python -m benchmarks.reach", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only probes with one of these in their names")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="search only, measure nothing")
    parser.add_argument("--forms", action="store_true", help="print the forms")
    parser.add_argument("-o", "--output", type=Path, help="the JSON; by default benchmarks/results/reach.json for all probes, none for some")
    given = parser.parse_args(arguments)
    chosen = [p for p in PROBES if not given.words or any(w in p.name for w in given.words)]
    cases, failed = [], 0
    for probe in chosen:
        try:
            reached = explored(probe, given.budget) if given.search else optimized(probe, given.budget, given.threads)
        except EinNetError as error:
            print(f"{probe.name}: {error}", flush=True)
            failed += 1
            continue
        cases.append(case(probe, reached))
        print(line(probe, reached), flush=True)
        for form in reached.forms if given.forms else ():
            print(f"    {form}")
    found = sum(c["among"] for c in cases)
    print(f"{sum(c['reached'] for c in cases)} of {len(chosen)} at the best known form; it is among the candidates of {found}")
    output = given.output or (None if given.words else ROOT / "benchmarks/results/reach.json")
    if output:
        machine = {"cpu": cpu_name(), "threads": resolve_threads(given.threads), "budget_s": given.budget, "measured": not given.search}
        output.write_text(text(machine, cases))
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build/reach.html").write_text(page(machine, cases))
    return int(failed > 0)


def line(probe: Probe, r: Reached) -> str:
    """What there is to say of a probe, in a line."""
    mark = "reached" if r.found(probe) else "found  " if r.among(probe) else "       "
    faster = f"{r.ratio:.2f}x ± {r.noise:.0%}" if r.ratio else ""
    counts = f"{r.model:9.3g} to {r.chosen:9.3g}, best {probe.best:9.3g}; {r.states} states"
    return f"{mark} {probe.name:34} {counts}, {r.seconds:.1f} s {r.stopped} {faster} {r.runs} {r.proof}"


if __name__ == "__main__":
    sys.exit(main())
