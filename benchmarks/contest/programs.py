"""`einnet optimize` on a model file, in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contest.compare import Place
from benchmarks.contest.worker import Engine, EngineError

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("totals", "certificate", "verification", "notes", "settings", "memory", "cost_model", "runs", "precision")
"""Parts of the optimization's report that the results repeat."""


@dataclass(frozen=True)
class Search:
    """How to optimize: seconds of budget, the worst class of step, the seed of the inputs that verify; seconds after which it is ended; and a budget
    of error."""

    time_budget: float = 120.0
    allow: str = "precision"
    seed: int = 0
    limit: float | None = None
    max_error: float | None = None


def optimized(model: Path, name: str, derive: bool, search: Search, place: Place) -> tuple[Engine, dict[str, Any]]:
    """The stored program as an engine of that name, and what its report says. Raises EngineError with the last line of what went wrong."""
    program, report = model.with_name(f"{name}.einnet"), model.with_name(f"{name}.json")
    command = [sys.executable, "-m", "einnet", "optimize", str(model), "-o", str(program), "--json", str(report), "--quiet"]
    command += ["--allow", search.allow, "--time-budget", str(search.time_budget), "--threads", str(place.threads), "--seed", str(search.seed)]
    command += [] if derive else ["--no-derive"]
    command += [] if search.max_error is None else ["--max-error", str(search.max_error)]

    def confine() -> None:
        os.sched_setaffinity(0, place.cpus)
        if place.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (place.memory, place.memory))

    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=confine, timeout=search.limit)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"einnet optimize took more than {search.limit:g} s with a budget of {search.time_budget:g} s") from error
    if run.returncode or not program.exists():
        last = (run.stderr.strip().splitlines() or [""])[-1]
        raise EngineError(f"einnet optimize ended with status {run.returncode}: {last}")
    return Engine(name, "einnet", program), excerpt(json.loads(report.read_text()))


def content(program: Path) -> str:
    """Equal for stored programs that run the same kernels over the same constants, whatever search led to them."""
    with zipfile.ZipFile(program) as archive:
        plan = json.loads(archive.read("manifest.json"))["plan"]
        files = sorted((f.filename, f.CRC) for f in archive.infolist() if f.filename.startswith(("constants/", "models/", "code/")))
    return json.dumps([plan, files], sort_keys=True)


def commit() -> str | None:
    """The state of the project that a row was measured at; None where that is in no repository."""
    found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def excerpt(report: dict[str, Any]) -> dict[str, Any]:
    """What the results keep of a report: totals, proofs, and the subprograms that were changed."""
    kept = {key: report[key] for key in KEPT if key in report}
    opaque = report.get("opaque") or []
    kept["parts"], kept["opaque"] = len(report["subprograms"]), len(opaque)
    kept["why_opaque"] = [f"{', '.join(o['nodes'])}: {o['why']}" for o in opaque]
    kept["changed"] = [
        {"nodes": s["nodes"], "operators": s["operators"], "measured_ms": s["measured_ms"], "original_ms": s["original_ms"]}
        for s in report["subprograms"]
        if s["changed"]
    ]
    return kept
