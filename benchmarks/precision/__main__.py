"""Programs within an error, timed beside ONNX Runtime, OpenVINO in float32 and as it comes, and PyTorch in bfloat16.

    python -m benchmarks.precision                    four models at two errors, into benchmarks/results/precision.json: under eight minutes
    python -m benchmarks.precision --all              the paper's seven and more, at three errors
    python -m benchmarks.precision model.onnx ...     other models of fixed shapes
    python -m benchmarks.precision --int8             models of bytes, into benchmarks/results/precision-int8.json: under eight minutes
    python -m benchmarks.precision --quick            small sizes, into build/bench

A row for each model and error. `ms` are medians of interleaved rounds, `error` the greatest over fresh draws of inputs, relative to max|y|, against
ONNX Runtime in float32, or with `--int8` on the same model of bytes, of which `einnet_f32` is the program without a budget; `bound` is the greatest
a-priori bound of a product that rounds, `noise` what ONNX Runtime shows against itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, compare, difference, noise
from benchmarks.contest.machine import description, random_inputs
from benchmarks.contest.programs import ROOT, Search, optimized
from benchmarks.contest.results import text
from benchmarks.contest.worker import Engine, EngineError, Worker
from benchmarks.models import SEVEN, build
from benchmarks.precision.quantised import in_bytes
from benchmarks.verified import RESULTS
from einnet.runtime import machine

ERRORS, ALL_ERRORS = (1e-3, 1e-2), (1e-5, 1e-3, 1e-2)
MODELS: dict[str, dict[str, int]] = {
    "resnet18": {}, "bert": {"sequence": 128, "hidden": 768, "heads": 12, "layers": 2}, "fsrcnn": {}, "mlp": {"size": 4096, "classes": 1000}
}  # fmt: skip
"""What runs by default, with sizes other than the generator's; `bert` is two of its layers."""

BYTES = ("resnet18", "depthwise", "bert", "mlp")
"""What runs as models of bytes."""

STEPS = (2e-2,)
"""Of models of bytes: engines that are equally right differ by a step of 8 bits, and seldom by two."""

GENERATOR = {"bert": "transformer"}
QUICK: dict[str, dict[str, int]] = {"resnet18": {"size": 32}, "bert": {}, "fsrcnn": {"size": 8}, "mlp": {}, "depthwise": {"size": 32}}
OTHERS = {"openvino_f32": ("openvino", "openvino"), "openvino_default": ("openvino", "benchmarks.precision.engines:openvino_default"),
          "torch_bf16": ("torch", "benchmarks.precision.engines:torch_bf16")}  # fmt: skip
"""Columns of other engines: the package that they need, and the kind of engine."""

COLUMNS = (REFERENCE, *OTHERS, "einnet_f32", "einnet")
WIDEST = 0.5
"""A time counts up to this error, which stands beside it: what errs more computes something else."""

Row = dict[str, Any]


def rows_of(name: str, model: onnx.ModelProto, place: Place, options: argparse.Namespace) -> list[Row]:
    """A row for each error. An engine that fails has no time, and `missing` says why."""
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", random_inputs(model, options.seed)
        onnx.save(model, path)
        engines = [Engine(REFERENCE, REFERENCE, path)]
        engines += [Engine(column, kind, path) for column, (package, kind) in OTHERS.items() if find_spec(package)]
        ours, reports, missing = programs(path, place, options)
        fresh = [random_inputs(model, options.seed + 1 + n) for n in range(options.draws)]
        wanted = answers(engines[0], [inputs, *fresh], place)
        results = compare([*engines, *ours.values()], inputs, wanted[0], place, Effort(options.rounds, options.seconds, options.patience), WIDEST)
        apart = {e.name: worst(e, fresh, wanted[1:], place) for e in (*engines, *ours.values())}
    times = {n: r["times_ms"] for n, r in results.items() if "times_ms" in r}
    noisy = noise(times[REFERENCE], times[AGAIN]) if REFERENCE in times and AGAIN in times else None
    absent = {**missing, **{n: r["status"] for n, r in results.items() if "times_ms" not in r}}
    return [row(name, error, results, apart, reports.get(f"{error:g}"), noisy, absent) for error in options.errors]


def row(
    name: str, error: float, results: Mapping[str, Any], apart: Mapping[str, float | None], report: Mapping[str, Any] | None, noisy: float | None,
    missing: Mapping[str, str],
) -> Row:  # fmt: skip
    """The figures of one model at one error."""
    own = {column: f"{error:g}" if column == "einnet" else column for column in COLUMNS}
    precision = (report or {}).get("precision") or {"products": []}
    rounded = [p for p in precision["products"] if p["runs"]]
    return {
        "name": name, "max_error": error,
        "ms": {column: results[n]["median_ms"] for column, n in own.items() if "median_ms" in results.get(n, {})},
        "error": {column: apart[n] for column, n in own.items() if apart.get(n) is not None},
        "bound": max((p["bound"] for p in rounded if p.get("bound") is not None), default=None),
        "rounded": len(rounded), "products": len(precision["products"]), "runs": (report or {}).get("runs"),
        "noise": noisy, "missing": {column: missing[n] for column, n in own.items() if n in missing},
    }  # fmt: skip


def programs(path: Path, place: Place, options: argparse.Namespace) -> tuple[dict[str, Engine], dict[str, Any], dict[str, str]]:
    """Our programs in float32 and for each error, by name; what their reports say; why one is missing."""
    engines: dict[str, Engine] = {}
    reports: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, error in {"einnet_f32": None, **{f"{e:g}": e for e in options.errors}}.items():
        try:
            search = Search(options.time_budget, "reassociation", options.seed, max_error=error)
            engines[name], reports[name] = optimized(path, name, True, search, place)
        except EngineError as why:
            missing[name] = str(why)
    return engines, reports, missing


def answers(engine: Engine, draws: Sequence[Mapping[str, np.ndarray]], place: Place) -> list[list[np.ndarray]]:
    """What an engine gives for each of some inputs. Raises EngineError."""
    with Worker(engine.kind, engine.path, place.threads, place.cpus, place.memory) as worker:
        worker.ready()
        return [worker.run(dict(inputs)) for inputs in draws]


def worst(engine: Engine, draws: Sequence[Mapping[str, np.ndarray]], wanted: Sequence[list[np.ndarray]], place: Place) -> float | None:
    """The greatest difference from what is wanted over all draws; None for an engine that fails."""
    try:
        return max((difference(y, r) for y, r in zip(answers(engine, draws, place), wanted, strict=True)), default=None)
    except EngineError:
        return None


def cells(found: Row) -> list[str]:
    """One row of the table: each time with its error."""
    figures = [f"{ms:.3g} ({found['error'].get(c, float('nan')):.1g})" if (ms := found["ms"].get(c)) else "–" for c in COLUMNS]
    ratio = against(found)
    bound = "–" if found["bound"] is None else f"{found['bound']:.1g}"
    noisy = "–" if found["noise"] is None else f"{found['noise']:.1%}"
    rounded = f"{found['rounded']} of {found['products']}"
    return [found["name"], f"{found['max_error']:g}", *figures, f"{ratio:.2f}x" if ratio else "–", rounded, bound, noisy]


def against(found: Row) -> float | None:
    """The time of OpenVINO as it comes over ours."""
    ms = found["ms"]
    return ms["openvino_default"] / ms["einnet"] if {"openvino_default", "einnet"} <= ms.keys() else None


def markdown(data: Mapping[str, Any]) -> str:
    """The table, with the machine above it and geometric means below."""
    titles = ("model", "max error", *COLUMNS, "of OpenVINO's default", "rounded", "bound", "noise")
    found = data["machine"]
    about = f"{found['cpu']}, {data['threads']} threads, batch 1. {instructions(found)}"
    lines = [f"Medians in ms, and in brackets the error on fresh inputs; {about}", ""]
    lines += ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|", *("| " + " | ".join(cells(r)) + " |" for r in data["models"])]
    for error in sorted({r["max_error"] for r in data["models"]}):
        ratios = [r for one in data["models"] if one["max_error"] == error and (r := against(one))]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            told = f"{mean:.2f}x of OpenVINO's default in the geometric mean of {len(ratios)} models, least {min(ratios):.2f}x"
            lines += ["", f"Error {error:g}: {told}."]
    return "\n".join(lines) + "\n"


def instructions(found: Mapping[str, Any]) -> str:
    """What the processor has for arithmetics other than float32."""
    return f"Instructions for other arithmetics: {', '.join(found['arithmetics']) or 'none'}."


def chosen(options: argparse.Namespace) -> dict[str, Callable[[], onnx.ModelProto]]:
    """Models by name: those that are named, or all, or the default."""
    sizes = QUICK if options.quick else MODELS
    usual = BYTES if options.int8 else [*SEVEN, *(n for n in MODELS if n not in SEVEN)] if options.all else list(MODELS)

    def make(name: str) -> onnx.ModelProto:
        found = onnx.load(name) if name.endswith(".onnx") else build(GENERATOR.get(name, name), seed=options.seed, **sizes.get(name, {}))
        return in_bytes(found, options.seed) if options.int8 else found

    return {Path(name).stem: partial(make, name) for name in options.models or usual}


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 where a program of ours errs by more than its budget on fresh inputs, or is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"names or files (default: {', '.join(MODELS)})")
    parser.add_argument("--all", action="store_true", help="the paper's seven, too, at errors 1e-5, 1e-3 and 1e-2")
    parser.add_argument("--quick", action="store_true", help="small sizes, into build/bench")
    parser.add_argument("--int8", action="store_true", help="the models quantised to bytes, at an error of 2e-2")
    parser.add_argument("--errors", type=float, nargs="+", help="budgets (default: 1e-3 1e-2)")
    parser.add_argument("--time-budget", type=float, default=18.0, help="seconds for each of our optimizations (default: 18)")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=20, help="fresh inputs on which errors are measured (default: 20)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25, help="for each engine in each round")
    parser.add_argument("--patience", type=float, default=9.0, help="seconds of rounds for a model")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    options.errors = options.errors or (STEPS if options.int8 else ALL_ERRORS if options.all else ERRORS)
    name = "precision-int8.json" if options.int8 else "precision.json"
    output = options.output or (ROOT / "build" / "bench" if options.quick else RESULTS) / name
    output.parent.mkdir(parents=True, exist_ok=True)
    place, began = Place(options.threads, tuple(sorted(os.sched_getaffinity(0))[: options.threads])), time.monotonic()
    about = {**description(), "arithmetics": sorted(f for f in machine.cpu_features() if f in ("avx512_bf16", "avx512_fp16") or f.startswith("amx"))}
    found: list[Row] = []
    for name, model in chosen(options).items():
        found += rows_of(name, model(), place, options)
        for one in found[-len(options.errors) :]:
            print("  ".join(cells(one)), *one["missing"].values(), flush=True)
        settings = {"time_budget": options.time_budget, "seed": options.seed, "draws": options.draws, "seconds": round(time.monotonic() - began)}
        data = {"machine": about, "threads": options.threads, "settings": settings, "models": found}
        output.write_text(text(data), encoding="utf-8")
        output.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    return 0 if all(r["error"].get("einnet", float("inf")) <= r["max_error"] for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
