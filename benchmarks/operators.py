"""E2 (table 3) and E3 (figure 16): each operator case before and after derivation, on vendor kernels and on generated kernels alone.

    python benchmarks/operators.py                    the published sizes, into benchmarks/results/operators.json
    python benchmarks/operators.py conv5x5 --threads 2 --time-budget 60
    python benchmarks/operators.py --quick            reduced sizes, into build/bench

The four programs of a case are timed in turns, with the bytes that they have to move and their operations. "Before" is the operator as
the model has it, "after" the best form whose derivation chose something; whether that is faster is a measurement, not a premise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from benchmarks.contest.compare import difference  # noqa: E402
from benchmarks.contest.machine import description  # noqa: E402
from benchmarks.contest.results import text, write_whole  # noqa: E402
from benchmarks.models import OPERATORS, build  # noqa: E402
from einnet.compile.budget import Schedule  # noqa: E402
from einnet.compile.program_search import search  # noqa: E402
from einnet.errors import EinNetError  # noqa: E402
from einnet.graph.onnx.importer import load  # noqa: E402
from einnet.graph.passes.prepare import prepare  # noqa: E402
from einnet.graph.program import Program  # noqa: E402
from einnet.instantiate.build import Build  # noqa: E402
from einnet.instantiate.build import build as kernels_of  # noqa: E402
from einnet.instantiate.kernels import Conv, Matmul, Plan  # noqa: E402
from einnet.runtime.costs import CpuCost  # noqa: E402
from einnet.runtime.cpu import roofline  # noqa: E402
from einnet.runtime.cpu.program import Executable  # noqa: E402
from einnet.runtime.timing import compare  # noqa: E402
from einnet.search.choosing.candidate import OUT, Candidate  # noqa: E402
from einnet.search.outcome import Result, is_constant  # noqa: E402
from einnet.search.plan import Assembly  # noqa: E402
from einnet.search.settings import Settings  # noqa: E402

QUICK: dict[str, dict[str, int]] = {
    "conv3x3": {"channels": 64},
    "convtranspose": {"batch": 2, "channels": 64, "features": 32},
    "conv5x5": {"batch": 1, "size": 56},
    "g2bmm": {"batch": 2, "sequence": 256, "window": 16},
}


@dataclass(frozen=True)
class Variant:
    """One way to run a case: the kernels, and the derivation's rules."""

    build: Build
    rules: list[str]
    operators: list[str]


def heaviest(results: Iterable[Result]) -> Result:
    """The subprogram with the most operations of its own operators: the case itself, not the layout moves around it."""
    return max(results, key=lambda r: sum(roofline.flops(k) for k in r.choice.original.build.kernels))


def variants(r: Result) -> dict[str, Variant]:
    """before and after, on vendor kernels and generated; a variant that no form gives is left out."""

    def on_vendor(c: Candidate) -> bool:
        return any(isinstance(k, (Matmul, Conv)) for k in c.build.kernels)

    chosen: dict[str, Candidate] = {}
    for name, original in (("before", True), ("after", False)):
        forms = [c for c in r.choice.candidates if c.original == original and on_vendor(c)]
        if forms:
            chosen[name] = min(forms, key=lambda c: (c.measured, c.cost))
    found: dict[str, Variant] = {}
    for name, c in {"before": r.choice.original, **chosen}.items():
        rules = [s.rule for s in c.form.steps] if name == "after" else []
        if on_vendor(c):
            found[f"{name}, vendor"] = Variant(c.build, rules, [str(m) for _, m in c.form.matches])
        found[f"{name}, generated"] = Variant(kernels_of(c.form.tree, {}, OUT), rules, [])
    return found


def plan_of(program: Program, r: Result, made: Build) -> Plan:
    """One subprogram alone as a program: what it reads from outside are the inputs."""
    known, sub = program.tensors(), r.subprogram
    inputs = tuple(known[name] for name in sub.inputs if name not in program.weights)
    part = replace(program, inputs=inputs, nodes=sub.nodes, outputs=((sub.output.name, sub.output.name),))
    assembly = Assembly(part)
    assembly.add(made, r.names, sub.output.name)
    return assembly.finish()


def measured(plans: Mapping[str, Plan], threads: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Times in turns, counts, and how far the results are from the first program's; a program that cannot run says why."""
    programs: dict[str, Executable] = {}
    found: dict[str, dict[str, Any]] = {}
    outputs: list[np.ndarray] = []
    for name, plan in plans.items():
        counts = {"flops": sum(map(roofline.flops, plan.kernels)), "bytes": sum(map(roofline.moved, plan.kernels))}
        found[name] = {**counts, "kernels": [k.describe() for k in plan.kernels]}
        try:
            programs[name] = Executable(plan, threads)
        except EinNetError as error:
            found[name]["missing"] = str(error)
            continue
        rng = np.random.default_rng(0)
        result = programs[name].run(*(rng.standard_normal(view.shape).astype(np.float32) for _, view in plan.inputs))
        outputs = outputs or result
        found[name]["max_rel"] = difference(result, outputs)
    times = compare({name: p.execute for name, p in programs.items()}, seconds, least=3, warm_s=0.02, sample_s=0.005)
    for name, t in times.timings.items():
        found[name] |= {"median_ms": t.median * 1e3, "spread_ms": t.spread * 1e3, "noise": times.noise}
        found[name] |= {"gflops": found[name]["flops"] / t.median / 1e9, "gbs": found[name]["bytes"] / t.median / 1e9}
    return found


def case(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Search one operator, then run its four programs."""
    program = prepare(load(build(name, seed=options.seed, **(QUICK[name] if options.quick else {}))))
    settings = Settings(time_budget=options.time_budget, threads=threads, allow=options.allow)
    cost = CpuCost(threads, constant=is_constant)
    outcome = search(program, settings, cost, Schedule(time.monotonic(), options.time_budget))
    r = heaviest(outcome.results)
    ways = variants(r)
    runs = measured({n: plan_of(program, r, v.build) for n, v in ways.items()}, threads, options.seconds)
    for n, v in ways.items():
        runs[n] |= {"rules": v.rules, "operators": v.operators}
    states = {"states": r.choice.states, "candidates": len(r.choice.candidates), "search_s": r.choice.seconds}
    return {"case": name, "threads": threads, "expression": r.choice.expression.text(), **states, "programs": runs}


def lines(entry: Mapping[str, Any]) -> list[str]:
    """The entry as a table."""
    found = [f"{entry['case']}, {entry['threads']} threads: {entry['states']} states, {entry['candidates']} candidates"]
    base = entry["programs"].get("before, vendor", {}).get("median_ms") or entry["programs"]["before, generated"].get("median_ms")
    for name, p in entry["programs"].items():
        if "median_ms" not in p:
            found.append(f"  {name:18} {p['missing']}")
            continue
        runs_on = " + ".join(p["operators"]) or f"{len(p['kernels'])} generated"
        ratio = f"{base / p['median_ms']:6.2f}x" if base else ""
        rates = f"{p['gflops']:7.1f} GFLOP/s {p['gbs']:6.1f} GB/s"
        found.append(
            f"  {name:18} {p['median_ms']:9.3f} ms ±{p['spread_ms']:.3f} {ratio} {p['flops'] / 1e6:10.1f} MFLOP {p['bytes'] / 1e6:9.2f} MB {rates}"
            f"  error {p['max_rel']:.0e}  {runs_on}"
        )
    return found


def main() -> int:
    """Measure, print and keep."""
    raw = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(prog="python benchmarks/operators.py", description=__doc__, formatter_class=raw)
    arguments.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(OPERATORS)} (default: all)")
    arguments.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    arguments.add_argument("--time-budget", type=float, default=60.0, help="seconds for the search of each case")
    arguments.add_argument("--allow", default="precision", choices=("exact", "reassociation", "precision"))
    arguments.add_argument("--seconds", type=float, default=5.0, help="of comparing for each case")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--quick", action="store_true", help="reduced sizes")
    arguments.add_argument("-o", "--output", type=Path)
    options = arguments.parse_args()
    unknown = [name for name in options.cases if name not in OPERATORS]
    if unknown:
        arguments.error(f"no case {', '.join(unknown)}; there are {', '.join(OPERATORS)}")
    output = options.output or ROOT / ("build/bench/operators-quick.json" if options.quick else "benchmarks/results/operators.json")
    settings = {key: getattr(options, key) for key in ("time_budget", "allow", "seconds", "seed", "quick")}
    data: dict[str, Any] = {"machine": description(), "settings": settings, "cases": []}
    output.parent.mkdir(parents=True, exist_ok=True)
    for threads in options.threads:
        for name in options.cases or OPERATORS:
            data["cases"].append(case(name, threads, options))
            print(*lines(data["cases"][-1]), sep="\n", flush=True)
            write_whole(output, text(json.loads(json.dumps(data))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
