"""The command bench: a stored program timed again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from einnet.cli.arguments import assignment
from einnet.cli.files import write_json


def register(commands: Any) -> None:
    """Add the command."""
    one = commands.add_parser("bench", help="time a stored program again, in a process of its own, beside a model or another program")
    one.add_argument("program", metavar="OUT.einnet", type=Path)
    one.add_argument("--against", metavar="MODEL.onnx|OTHER.einnet", type=Path, help="what to compare with: a model in ONNX Runtime, or a program")
    one.add_argument("--input", dest="inputs", action="append", default=[], type=assignment, metavar="NAME=X.npy", help="an input (default: random)")
    one.add_argument("--seconds", type=float, default=10.0, help="for each program (default: 10)")
    one.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    one.add_argument("--json", metavar="FILE", help="write what was measured as JSON; - is standard output")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Time and print."""
    from einnet.api.bench import bench
    from einnet.api.load import load
    from einnet.cli.artifacts import read_inputs

    given = read_inputs(load(options.program), options.inputs, partial=True)
    told = bench(options.program, options.against, given, options.seconds, options.seed)
    if options.json:
        write_json(options.json, told)
    if options.json != "-":
        print("\n".join(lines(told)))
    return 0


def lines(told: Mapping[str, Any]) -> Sequence[str]:
    """What was measured, for people: the verdict first."""
    rows: list[tuple[str, ...]] = [("", "median ms", "p90", "p99", "least", "inferences/s", "processor ms", "calls", "by")]
    for p in told["programs"]:
        ms = p["ms"]
        figures = (f"{ms[k]:.4g}" for k in ("p50", "p90", "p99", "least"))
        rows.append((p["name"], *figures, f"{p['inferences_per_s']:.4g}", f"{p['processor_ms']:.4g}", str(p["calls"]), p["runs"]))
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    table = ["  ".join(v.ljust(w) if c in (0, 8) else v.rjust(w) for c, (v, w) in enumerate(zip(r, widths))).rstrip() for r in rows]
    threads = told["programs"][0]["threads"]
    return [*verdict(told), "", *table, "", f"{threads} threads, each in a process of its own, {told['rounds']} turns"]


def verdict(told: Mapping[str, Any]) -> list[str]:
    """One sentence: which is faster, or that it cannot be told."""
    from einnet.api.bench import APART, DISTURBED

    found = told.get("ratio")
    waits = max(p["waited"] for p in told["programs"])
    busy = [f"other programs disturbed this: threads waited for a core for {waits:.0%} of the time"] if waits > DISTURBED else []
    far = max(p["apart"] for p in told["programs"])
    busy += [f"in {far:.0%} of the turns the host had put the cores of this machine far from each other, or on one core"] if far > APART else []
    if not found:
        return busy
    span = f"{found['low']:.2f} to {found['high']:.2f} in {found['confidence']:.0%} of such measurements"
    if busy:
        return [f"not measured well enough: about {found['speedup']:.2f}x of {found['of']} ({span})", *busy]
    if not found["told"]:
        return [f"no difference from {found['of']} can be told: {found['speedup']:.2f}x ({span})"]
    return [f"{found['speedup']:.2f}x as fast as {found['of']} ({span})"]
