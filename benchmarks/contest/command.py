"""The command line of comparisons: which models, batches and threads, how long, and where the results go."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import onnx

from benchmarks.contest import table
from benchmarks.contest.case import OURS, Case, measure
from benchmarks.contest.compare import Effort, Place, free_memory
from benchmarks.contest.engines import ENGINES, version
from benchmarks.contest.machine import description, peak_gflops
from benchmarks.contest.plot import plot
from benchmarks.contest.programs import Search
from benchmarks.contest.results import Results, read

SHARE_OF_MEMORY = 0.9
"""Of what is free, the most that one process may take."""

Generators = Mapping[str, Callable[[int, int], onnx.ModelProto]]
"""By name: the model for a batch size and a seed."""


def parser(program: str, about: str, models: Sequence[str], output: str) -> argparse.ArgumentParser:
    """The arguments that every comparison takes."""
    cores = len(os.sched_getaffinity(0))
    found = argparse.ArgumentParser(prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(models)} (default: all)")
    found.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    found.add_argument("--threads", type=int, nargs="+", default=[n for n in (2, 1) if n <= cores])
    found.add_argument("--engines", nargs="+", choices=entering(), metavar="ENGINE", help=f"of {', '.join(entering())} (default: those installed)")
    found.add_argument("--time-budget", type=float, default=120.0, help="seconds for each of our optimizations")
    found.add_argument("--allow", default="precision", choices=("exact", "reassociation", "precision"))
    found.add_argument("--rounds", type=int, default=Effort.rounds)
    found.add_argument("--seconds", type=float, default=Effort.seconds, help="for each engine in each round")
    found.add_argument("--patience", type=float, default=Effort.patience, help="seconds of rounds for an entry")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--fresh", action="store_true", help="measure everything again, although the last run was cut short")
    found.add_argument("--show", action="store_true", help="measure nothing: table and figure from the file")
    found.add_argument("-o", "--output", type=Path, default=Path(output))
    return found


def entering() -> list[str]:
    """The engines by the names that a user gives."""
    return [*(name for name in ENGINES if name != "einnet"), *OURS]


def run(options: argparse.Namespace, generators: Generators) -> dict[str, Any]:
    """Measure every entry that the file's unfinished run does not have, writing after each; the file's content."""
    if options.show:
        return show(read(options.output), options.output)
    engines = options.engines or [name for name in entering() if name in OURS or version(name)]
    effort = Effort(options.rounds, options.seconds, options.patience)
    search = Search(options.time_budget, options.allow, options.seed)
    names = options.models or list(generators)
    settings = {"engines": engines, **vars(effort), **vars(search), "models": names, "batch": options.batch, "threads": options.threads}
    results = Results(options.output, description() | {"peak_gflops": {}}, settings, options.fresh)
    for threads, batch, name in product(options.threads, options.batch, names):
        if results.has((name, batch, threads)):
            continue
        place = Place(threads, tuple(sorted(os.sched_getaffinity(0))[:threads]), int(SHARE_OF_MEMORY * free_memory()))
        peaks = results.data["machine"]["peak_gflops"]
        if str(threads) not in peaks:
            peaks[str(threads)] = peak_gflops(place, effort)
        case = Case(name, lambda b, name=name: generators[name](b, options.seed), batch, options.seed)
        with tempfile.TemporaryDirectory() as folder:
            entry = measure(case, engines, search, place, effort, peaks[str(threads)], Path(folder))
        results.put(entry)
        print("  ".join(table.row(entry)), *table.reasons([entry]), f"({entry['seconds']:.0f} s)", sep="\n    ", flush=True)
    results.finish()
    return show(results.data, options.output)


def show(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Print the table; write it and the figure beside the JSON."""
    path.with_suffix(".md").write_text(table.markdown(data))
    plot(data, path.with_suffix(".svg"))
    print(f"\n{table.text(data)}\n\n{path}, {path.with_suffix('.md')}, {path.with_suffix('.svg')}")
    return data
