"""Our programs for one model in one process: by each class of steps, and of the model's own operators.

    python -m benchmarks.zoo.making MODEL --threads 2 --budgets 40,20

What is read, compiled, timed and proven for the first class is at hand for the next one, which is given less time therefore; the program of the
model's own operators is the one that the first class was compared with. Each program stands beside the model as it is made, with its report: what
breaks the process leaves those before it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import einnet
from benchmarks.contest.compare import Place
from benchmarks.contest.programs import ROOT, excerpt
from benchmarks.contest.worker import Engine
from benchmarks.zoo.table import CLASSES, WHOLE
from einnet.compile.target import Optimization
from einnet.compile.targets.cpu.programs import built
from einnet.compile.targets.cpu.target import CpuTarget
from einnet.errors import EinNetError
from einnet.search.outcome import Result
from einnet.search.work import flops

OWN = "no_derive"
"""The program of the model's own operators."""

LATE, START_S = 3.0, 120.0
"""What takes more than so many times its budget, and so many seconds beside it, is ended: a fault, and no reason to wait."""


Made = tuple[dict[str, Engine], dict[str, Any], dict[str, str]]


def programs(model: Path, place: Place, budgets: Mapping[str, float], seed: int, own: bool) -> Made:
    """Our programs by class, and without derivation where `own` is asked for; what their reports say; why one is missing."""
    command = [sys.executable, "-m", "benchmarks.zoo.making", str(model), "--threads", str(place.threads), "--seed", str(seed)]
    command += ["--budgets", ",".join(f"{budgets[name]:g}" for name in CLASSES), *["--own"] * own]

    def confine() -> None:
        os.sched_setaffinity(0, place.cpus)
        if place.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (place.memory, place.memory))

    limit = LATE * sum(budgets.values()) + START_S
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=confine, timeout=limit)
        why = f"ended with status {run.returncode}: {(run.stderr.strip().splitlines() or [''])[-1]}"
    except subprocess.TimeoutExpired:
        why = f"took more than {limit:g} s"
    wanted = [*[OWN] * own, *CLASSES]
    told = {name: json.loads(path.read_text()) for name in wanted if (path := model.with_name(f"{name}.json")).exists()}
    engines = {name: Engine(name, "einnet", model.with_name(f"{name}.einnet")) for name in told if "error" not in told[name]}
    missing = {name: told[name]["error"] if name in told else why for name in wanted if name not in engines}
    return engines, {name: told[name] for name in engines}, missing


def make(model: Path, threads: int, budgets: Mapping[str, float], seed: int, own: bool) -> None:
    """Write the programs and what is told of them beside the model."""
    for name, allow in CLASSES.items():
        try:
            found = einnet.optimize(model, allow=allow, time_budget=budgets[name], threads=threads, seed=seed)
            found.save(model.with_name(f"{name}.einnet"))
            tell(model, name, {**excerpt(found.report), **counts(found), "notes": [without_path(model, n) for n in found.report["notes"]]})
            if own and not model.with_name(f"{OWN}.json").exists():
                own_operators(model, found)
        except EinNetError as error:
            tell(model, name, {"error": without_path(model, str(error).splitlines()[0])})


def without_path(model: Path, said: str) -> str:
    """What is said of a model without where it was read from, which is a place for that run alone."""
    return said.replace(f"{model}: ", "")


def own_operators(model: Path, found: Optimization) -> None:
    """Write the program of the model's own operators, where there is one beside what runs."""
    if isinstance(found.target, CpuTarget):
        plan = found.outcome.original().plan(original=True)
        program = replace(found, executable=built(plan, found.target.cost, program=found.outcome.program))
        program.save(model.with_name(f"{OWN}.einnet"))
        tell(model, OWN, {**excerpt(found.report), "runs": "own operators", "changed": [], "kernels": len(plan.kernels)})


def counts(found: Optimization) -> dict[str, Any]:
    """Kernels of what runs, and operations of all subprograms: as the model has them, and as they run."""
    outcome = found.outcome
    whole = found.report["runs"] == WHOLE
    before = outcome.apart[1] if outcome.apart else outcome.results
    model = sum(operations(r, original=True) for r in before)
    after = model if whole else sum(operations(r, original=False) for r in outcome.results)
    plan = getattr(found.executable, "plan", None)
    return {"kernels": 1 if plan is None else len(plan.kernels), "operations": {"model": model, "runs": after}}


def operations(result: Result, original: bool) -> int:
    """Of a subprogram, weights' own left out."""
    candidate = result.choice.original if original else result.candidate
    return flops(candidate.form.tree)


def tell(model: Path, name: str, what: Mapping[str, Any]) -> None:
    """Write what is known of a program, whole or not at all."""
    path = model.with_name(f"{name}.json")
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(what), encoding="utf-8")
    draft.replace(path)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.making", description=__doc__, formatter_class=shown)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--budgets", required=True, help=f"seconds for {', '.join(CLASSES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own", action="store_true", help="also the model's own operators")
    options = parser.parse_args(arguments)
    budgets = dict(zip(CLASSES, map(float, options.budgets.split(",")), strict=True))
    make(options.model, options.threads, budgets, options.seed, options.own)
    return 0


if __name__ == "__main__":
    sys.exit(main())
