"""`einnet verify` of programs for the models at their published sizes: the verdict, and the seconds of processor that it takes.

    python -m benchmarks.certified [resnet18 "resnet18 forced 1" ...] [--time-budget 15] [-o benchmarks/results/certified.json]

Each model is optimized as it is, and with candidates that a seed draws for every part, however slow: derived forms that timing would never keep. A
fresh process verifies each program. Exit code 1 where one is not proven or takes more than MOST_SECONDS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import einnet
from benchmarks.models import SEVEN, build
from benchmarks.verified import Row, command, run, stored

MOST_SECONDS = 60.0
LIMIT_SECONDS = 1500.0
"""By the clock: then a verification is ended."""
SEEDS = (1, 2)
NAMES = [name + how for name in SEVEN for how in ("", *(f" forced {seed}" for seed in SEEDS))]


def one(name: str, options: argparse.Namespace) -> Row:
    """A program that is kept or drawn, and what a fresh process says of it."""
    model, _, seed = name.partition(" forced ")
    with tempfile.TemporaryDirectory() as folder:
        source, program = stored(build(model), folder), Path(folder) / "p.einnet"
        force = int(seed) if seed else None
        result = einnet.optimize(source, time_budget=options.time_budget, threads=options.threads, allow=options.allow, force=force)
        result.save(program)
        seconds, verdict = verified(source, program)
    if verdict is None:
        return {"passed": False, "processor_s": seconds, "error": f"it does not end in {LIMIT_SECONDS:g} s"}
    parts, runs = verdict.get("lifting", {}), result.report["runs"]
    problems = [p for kind in ("certificate", "lifting", "constants", "kernels", "verification") for p in verdict.get(kind, {}).get("problems", [])]
    counts = {key: n for key, n in parts.items() if key in ("subprograms", "derived", "proven", "by_derivation", "tested")}
    proven = bool(verdict["passed"]) and parts.get("proven", 0) + parts.get("by_derivation", 0) == parts.get("subprograms", 0)
    if seconds > MOST_SECONDS:
        problems.append(f"it takes {seconds:g} s of the processor, more than {MOST_SECONDS:g}")
    return {"passed": proven and seconds <= MOST_SECONDS, "processor_s": seconds, "runs": runs, **counts, "problems": problems}


def verified(model: Path, program: Path) -> tuple[float, Row | None]:
    """Seconds of processor that a fresh process takes, and its verdict; None where it does not end."""
    before = os.times()
    try:
        asked = [sys.executable, "-m", "einnet", "verify", str(model), str(program), "--json", "-"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return seconds_since(before), None
    if not told.stdout:
        raise einnet.EinNetError(told.stderr)
    return seconds_since(before), json.loads(told.stdout)


def seconds_since(before: os.times_result) -> float:
    """Of processor that ended child processes have taken."""
    now = os.times()
    return round(now.children_user + now.children_system - before.children_user - before.children_system, 1)


def main() -> int:
    """Print and store the table."""
    parser = command("einnet verify at the published sizes", NAMES, "certified.json", 15.0)
    parser.add_argument("--allow", default="precision")
    return run(parser.parse_args(), NAMES, one)


if __name__ == "__main__":
    sys.exit(main())
