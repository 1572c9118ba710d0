"""The seven models at full size as programs for a CUDA device, run by the host driver against ONNX Runtime. No card is needed, none is timed.

    python -m benchmarks.host [MODEL ...] [-o benchmarks/results/cuda-host.json]

Each model is taken twice: its own operators, and what a search derives by the profile. The program of kernels is lowered, written, read again,
and executed on the processor: the generated CUDA text through a C++ compiler, calls of libraries by their meaning in numpy. Each row runs in a
process of its own and is written when it is done; a row that is there already, by the same profile and settings, is left out unless `--fresh`.
Exit code 1 where a program does not agree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import rows as by_row
from benchmarks.contest.machine import random_inputs
from benchmarks.contest.results import read, text, write_whole
from benchmarks.models import SEVEN, build
from benchmarks.rows import ROOT, Row

SEED, LONG_S = 1, 30.0
"""Of other inputs than those on which the program was verified when it was made: it runs on these, too, unless a run takes so many seconds."""


def measure(name: str, derive: bool, profile: Path | str, seconds: float, depth: int) -> Row:
    """One row, in this process."""
    from einnet.compile.targets.cuda.launches import steps
    from einnet.compile.targets.cuda.target import optimize_cuda
    from einnet.evidence.comparison.verify import compare_outputs
    from einnet.runtime.cuda.archive import load
    from einnet.runtime.cuda.host import Host
    from einnet.runtime.cuda.profiling import profile as profiles
    from einnet.runtime.ort import Session
    from einnet.search.settings import Settings

    model, settings = build(name), Settings(backend="cuda", derive=derive, allow="precision", time_budget=seconds, max_depth=depth)
    found = optimize_cuda(model, settings, Path(profile))
    with tempfile.TemporaryDirectory() as folder:
        same = load(found.save(Path(folder) / "p.einnet")) == found.program
    first, report = found.record.verification, found.record
    host_s = first.seconds or 0.0
    compared = [first]
    if host_s < LONG_S:
        inputs = random_inputs(model, SEED)
        expected = Session(model.SerializeToString(), 1)(inputs)
        compared.append(compare_outputs(Host(found.program)(inputs), expected, first.tolerance))
    by = Counter(s.by for s in steps(found.program, (), report.kernels))
    return {
        "model": name, "batch": 1, "derived": derive, "steps_by": dict(by), "launches": found.program.launches,
        "arena_bytes": found.program.arena_bytes, "constant_bytes": found.program.constant_bytes,
        "subprograms": len(report.subprograms), "changed": report.changed, "derivation_steps": report.certificate.steps,
        "methods": report.certificate.methods, "states": report.states, "predicted_ms": report.totals.optimized_predicted_ms,
        "max_rel": max(c.max_rel for c in compared), "compared_on": len(compared), "tolerance": first.tolerance, "bound": first.bound,
        "passed": all(c.passed for c in compared), "generated_by": first.generated, "read_again": same,
        "seconds": {"in_all": report.seconds, "host_run": host_s},
        "on": "host driver, no card",
        "by": {"profile": report.profile, "device": report.device, "card": asdict(profiles.load(Path(profile)).card)},
        "settings": {"time_budget": seconds, "max_depth": depth, "allow": "precision"},
    }  # fmt: skip


def apart(name: str, derive: bool, options: argparse.Namespace) -> Row:
    """One row in a process of its own."""
    return by_row.apart("benchmarks.host", [name, derive, str(options.profile.resolve()), options.time_budget, options.max_depth], name)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown: calls of libraries and eOperators, what was changed, steps of derivations that were proven."""
    heads = ("model", "operators", "cuBLASLt, cuDNN, generated", "launches", "arena MB", "constants MB", "changed", "steps", "states", "max error")
    lines = [f"| {' | '.join((*heads, 'seconds'))} |", "|" + "---|" * (len(heads) + 1)]
    for r in rows:
        kinds = ", ".join(str(r["steps_by"].get(by, 0)) for by in ("cuBLASLt", "cuDNN", "generated"))
        sizes = [f"{r[name] / 1e6:.3g}" for name in ("arena_bytes", "constant_bytes")]
        cells = [r["model"], "derived" if r["derived"] else "its own", kinds, r["launches"], *sizes]
        error = f"{r['max_rel']:.1e}" if r["passed"] else f"**{r['max_rel']:.1e}, not within {r['tolerance']:g}**"
        cells += [f"{r['changed']} of {r['subprograms']}", r["derivation_steps"], r["states"], error, f"{r['seconds']['in_all']:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["derived"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, write, print."""
    parser = by_row.parser("benchmarks.host", __doc__, SEVEN, 20.0, "cuda-host.json")
    parser.add_argument("--operators", choices=("own", "derived", "both"), default="both", help="which programs (default: both)")
    parser.add_argument("--profile", type=Path, default=ROOT / "profiles/h200.json", help="costs of the search (default: profiles/h200.json)")
    options = by_row.asked(parser, arguments, SEVEN)
    if options.one:
        return by_row.one(measure, options.one)
    rows = read(options.output)["models"] if options.output.exists() else []
    derives = {"own": (False,), "derived": (True,), "both": (False, True)}[options.operators]
    asked = {"time_budget": options.time_budget, "max_depth": options.max_depth, "allow": "precision"}
    for name in options.models or SEVEN:
        for derive in derives:
            known = next((r for r in rows if key(r) == (name, derive)), None)
            if known and known["settings"] == asked and not options.fresh:
                continue
            row = apart(name, derive, options)
            rows = [r for r in rows if key(r) != key(row)] + [row]
            write(options.output, rows)
            print(f"{name}, {'derived' if derive else 'its own operators'}: {'passed' if row['passed'] else 'FAILED'}, {row['seconds']}", flush=True)
    print(table(sorted(rows, key=lambda r: [*SEVEN].index(r["model"]))))
    return 0 if all(r["passed"] and r["read_again"] for r in rows) else 1


def write(path: Path, rows: Sequence[Row]) -> None:
    """The rows in the order of the models, and their table beside them."""
    ordered = sorted(rows, key=lambda r: ([*SEVEN].index(r["model"]), r["derived"]))
    for target, content in ((path, text({"on": "host driver, no card", "models": ordered})), (path.with_suffix(".md"), table(ordered))):
        write_whole(target, content)


if __name__ == "__main__":
    sys.exit(main())
