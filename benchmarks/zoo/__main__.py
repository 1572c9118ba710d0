"""The zoo, optimized, verified and timed beside ONNX Runtime and OpenVINO, by the default class of steps and with `precision`.

    python -m benchmarks.zoo.export -o build/zoo          the models, on a machine with torch, torchvision, timm and transformers
    python -m benchmarks.zoo build/zoo [NAME ...]         the table, benchmarks/results/zoo.json
    python -m benchmarks.zoo build/zoo --untimed          what loads, changes and is verified, without timing: for a busy machine

Every engine runs in a process of its own, the engines of a model interleaved; outputs are compared with ONNX Runtime's before times count. A row for
each model and class; those of other models stay in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.case import OURS
from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, Result, compare, free_memory, noise, outputs_of
from benchmarks.contest.engines import Arrays, version
from benchmarks.contest.machine import description
from benchmarks.contest.programs import Search, optimized
from benchmarks.contest.results import text
from benchmarks.contest.worker import Engine, EngineError
from benchmarks.verified import RESULTS

CLASSES = {"default": "reassociation", "precision": "precision"}
"""The rows of a model, and the worst class of step in each."""

SHARE_OF_MEMORY = 0.9
TIMES = ("ONNX Runtime", "OpenVINO", "own operators", "optimized")
TITLES = ("model", "class", "nodes", "opaque", "parts", "changed", *TIMES, "of the best", "noise", "verified")

Row = dict[str, Any]


def rows_of(path: Path, place: Place, options: argparse.Namespace) -> list[Row]:
    """A row for each class. An engine that fails has no time, and `missing` says why."""
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = {name: stored[name] for name in stored.files}
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "model.onnx"
        here.symlink_to(path.resolve())
        engines, reports, missing = programs(here, place, options)
        others = [Engine(REFERENCE, REFERENCE, here)] + [Engine("openvino", "openvino", here)] * bool(version("openvino"))
        results, noisy = ({}, None) if options.untimed else timed([*others, *engines.values()], inputs, place, options)
    found = []
    for name in CLASSES:
        said = {column: why for column, why in missing.items() if column in (name, "no_derive")}
        found.append({"name": path.stem, "nodes": nodes, "allow": name, **told(reports.get(name), name, results), "noise": noisy, "missing": said})
    return found


def programs(model: Path, place: Place, options: argparse.Namespace) -> tuple[dict[str, Engine], dict[str, Any], dict[str, str]]:
    """Our programs by class, and without derivation; what their reports say; why one is missing."""
    engines: dict[str, Engine] = {}
    reports: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, allow in {"no_derive": "reassociation", **CLASSES}.items():
        if name == "no_derive" and options.untimed:
            continue
        search = Search(options.time_budget, allow, options.seed)
        try:
            engines[name], reports[name] = optimized(model, name, name != "no_derive" and OURS["einnet"], search, place)
        except EngineError as error:
            missing[name] = str(error)
    return engines, reports, missing


def timed(engines: Sequence[Engine], inputs: Arrays, place: Place, options: argparse.Namespace) -> tuple[dict[str, Result], float | None]:
    """Every engine's result, and the noise floor: ONNX Runtime against itself."""
    reference = outputs_of(engines[0], inputs, place)
    results = compare(engines, inputs, reference, place, Effort(options.rounds, options.seconds, options.patience))
    times = {name: r["times_ms"] for name, r in results.items() if "times_ms" in r}
    return results, noise(times[REFERENCE], times[AGAIN]) if REFERENCE in times and AGAIN in times else None


def told(report: Mapping[str, Any] | None, name: str, results: Mapping[str, Result]) -> Row:
    """One row's figures."""
    names = {"onnxruntime": REFERENCE, "openvino": "openvino", "einnet_no_derive": "no_derive", "einnet": name}
    medians = {column: results[engine]["median_ms"] for column, engine in names.items() if "median_ms" in results.get(engine, {})}
    status = results.get(name, {}).get("status")
    if report is None:
        return {"opaque": None, "parts": None, "changed": None, "runs": None, "ms": medians, "verified": False}
    verified = bool(report["verification"]["passed"]) and status in (None, "ok")
    kept = {key: report[key] for key in ("opaque", "parts", "runs")}
    return {**kept, "changed": len(report["changed"]), "ms": medians, "verified": verified, "notes": report["notes"]}


def cells(row: Row) -> list[str]:
    """One row of the table."""
    ms = row["ms"]
    times = [f"{ms[c]:.3g}" if c in ms else "–" for c in ("onnxruntime", "openvino", "einnet_no_derive", "einnet")]
    ratio = of_the_best(ms)
    figures = [str(row[c]) if row[c] is not None else "–" for c in ("nodes", "opaque", "parts", "changed")]
    return [row["name"], row["allow"], *figures, *times, f"{ratio:.2f}x" if ratio else "–", f"{row['noise']:.1%}" if row["noise"] else "–",
            "yes" if row["verified"] else "NO"]  # fmt: skip


def of_the_best(ms: Mapping[str, float]) -> float | None:
    """The time of the faster other engine over ours."""
    others = [ms[c] for c in ("onnxruntime", "openvino") if c in ms]
    return min(others) / ms["einnet"] if others and "einnet" in ms else None


def markdown(data: Mapping[str, Any]) -> str:
    """The table, with the machine above and the geometric means below it."""
    machine, models = data["machine"], data["models"]
    lines = [f"Medians in ms on {machine['cpu']}, {machine['cores']} cores, batch 1, {data['threads']} threads.", ""]
    lines += ["| " + " | ".join(TITLES) + " |", "|---" * len(TITLES) + "|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in models]
    for name in CLASSES:
        ratios = [r for row in models if row["allow"] == name and (r := of_the_best(row["ms"]))]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            found = f"geometric mean {mean:.2f}x, least {min(ratios):.2f}x"
            lines += ["", f"Class {name}, {len(ratios)} models, against the faster of ONNX Runtime and OpenVINO: {found}."]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 where a model is not verified."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the exported models")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--time-budget", type=float, default=40.0, help="seconds for each of our optimizations (default: 40)")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.25, help="for each engine in each round")
    parser.add_argument("--patience", type=float, default=40.0, help="seconds of rounds for a model")
    parser.add_argument("--untimed", action="store_true", help="time nothing")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "zoo.json")
    options = parser.parse_args(arguments)
    there = {path.stem: path for path in sorted(options.folder.glob("*.onnx"))}
    if unknown := [n for n in options.names if n not in there]:
        parser.error(f"{options.folder} has no model {unknown[0]!r}; python -m benchmarks.zoo.export makes them")
    if not there:
        parser.error(f"{options.folder} has no models; python -m benchmarks.zoo.export makes them")
    place = Place(options.threads, tuple(sorted(os.sched_getaffinity(0))[: options.threads]), int(SHARE_OF_MEMORY * free_memory()))
    known = json.loads(options.output.read_text())["models"] if options.output.exists() else []
    rows: dict[tuple[str, str], Row] = {(row["name"], row["allow"]): row for row in known}
    for name in options.names or there:
        for row in rows_of(there[name], place, options):
            rows[name, row["allow"]] = row
            print("  ".join(cells(row)), *row["missing"].values(), flush=True)
        models = [rows[key] for key in sorted(rows)]
        budget = {"time_budget": options.time_budget, "seed": options.seed, "rounds": options.rounds, "seconds": options.seconds}
        data = {"machine": description(), "threads": options.threads, "settings": budget, "models": models}
        options.output.write_text(text(data), encoding="utf-8")
        options.output.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    return 0 if all(rows[n, c]["verified"] for n in options.names or there for c in CLASSES) else 1


if __name__ == "__main__":
    sys.exit(main())
