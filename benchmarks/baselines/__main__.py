"""python -m benchmarks.baselines resnet18 infogan --batch 1 16 --threads 2 -o baselines.json"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.baselines.compare import REFERENCE, compare
from benchmarks.baselines.engines import ENGINES, Arrays, version
from benchmarks.baselines.worker import EngineError
from benchmarks.models import MODELS, SEVEN, build
from benchmarks.models.flops import flops
from benchmarks.models.net import Net


def random_inputs(model: onnx.ModelProto, seed: int) -> Arrays:
    """Standard normal values for every input."""
    random = np.random.default_rng(seed)
    return {i.name: random.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in model.graph.input}


def square_product(size: int = 1536) -> onnx.ModelProto:
    """One matrix product that runs at the machine's peak."""
    net = Net("square_product", 0)
    return net.finish(net.node("MatMul", "y", [net.input("x", (size, size)), net.normal("w", (size, size), 1.0)], (size, size)))


def machine(cpus: list[int]) -> dict[str, Any]:
    """What the times depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.processor(), "cpus": cpus, "system": platform.platform(), "python": platform.python_version()}


def save(report: dict[str, Any], path: Path) -> None:
    """Write the report whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.write_text(json.dumps(report, indent=1))
    draft.replace(path)


def measure(model: onnx.ModelProto, engines: list[str], options: argparse.Namespace, cpus: list[int]) -> dict[str, Any]:
    """All engines on one model, and how many GFLOP/s each reached."""
    work = flops(model) / 1e9
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        results = compare(path, random_inputs(model, options.seed), engines, options.threads, cpus, options.rounds, options.seconds)
    for result in results.values():
        if "p20_ms" in result:
            result["gflops"] = work / result["p20_ms"] * 1e3
    return {"gflop": work, "engines": results}


def show(title: str, row: dict[str, Any], peak: float) -> None:
    """One model's engines, fastest first."""
    print(f"\n{title}: {row['gflop']:.3f} GFLOP")
    for name, result in sorted(row["engines"].items(), key=lambda item: item[1].get("p20_ms", float("inf"))):
        if "p20_ms" not in result:
            print(f"  {name:22} {result['status']}")
            continue
        share = result["gflops"] / peak
        print(
            f"  {name:22} {result['p20_ms']:9.3f} ms  median {result['median_ms']:9.3f} ± {result['spread_ms']:.3f}"
            f"  {result['speedup']:5.2f}x  {share:4.0%} of peak  error {result['max_rel']:.1e}"
        )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines", description="Time other engines on the benchmark models, interleaved.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: {', '.join(SEVEN)})")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), metavar="ENGINE", help=f"of {', '.join(ENGINES)} (default: those installed)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each engine in each round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/baselines.json"))
    return parser


def main() -> int:
    """Measure, print, and keep the raw times; 1 when the reference failed on some model."""
    parser = arguments()
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in MODELS]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    cpus = sorted(os.sched_getaffinity(0))[: options.threads]
    engines = options.engines or [name for name in ENGINES if version(name)]
    print(f"engines: {', '.join(engines)}; not installed: {', '.join(n for n in ENGINES if not version(n)) or 'none'}")
    peak = measure(square_product(), [], options, cpus)["engines"][REFERENCE]["gflops"]
    print(f"peak: {peak:.0f} GFLOP/s, by a matrix product on {options.threads} threads")
    report: dict[str, Any] = {
        "machine": machine(cpus),
        "threads": options.threads,
        "seed": options.seed,
        "peak_gflops": peak,
        "versions": {name: version(name) for name in engines},
        "models": [],
    }
    failures = 0
    for name in options.models or SEVEN:
        for batch in options.batch:
            try:
                row = measure(build(name, batch, options.seed), engines, options, cpus)
            except EngineError as error:
                failures += 1
                print(f"\n{name} b{batch}: {REFERENCE} failed: {error}", file=sys.stderr)
                continue
            show(f"{name} b{batch}", row, peak)
            report["models"].append({"model": name, "batch": batch, **row})
            save(report, options.output)
    print(f"\n{options.output}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
