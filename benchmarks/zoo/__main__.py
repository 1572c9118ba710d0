"""The zoo, optimized, verified and timed beside ONNX Runtime and OpenVINO, by the default class of steps and with `precision`.

    python -m benchmarks.zoo.export -o build/zoo          the models, on a machine with torch, torchvision, timm and transformers
    python -m benchmarks.zoo build/zoo [NAME ...]         the table, benchmarks/results/zoo.json
    python -m benchmarks.zoo build/zoo --untimed          what loads, changes and is verified, without timing: for a busy machine

Every engine runs in a process of its own, the engines of a model interleaved; outputs are compared with ONNX Runtime's before times count. A row for
each model and class; equal programs are timed once. Our programs of a model are made in one process, the second class with what the first has
compiled and proven. The file is written after each model, and the same command goes on where it was ended: rows of other models stay, and what was
measured with the same settings is not measured again. The models that are named come in that order; else those that most people bring come first, and
then those of which the file tells that parts changed (by `--untimed`, say).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, Result, compare, free_memory, noise
from benchmarks.contest.engines import Arrays, version
from benchmarks.contest.machine import description
from benchmarks.contest.programs import commit, content
from benchmarks.contest.results import text
from benchmarks.contest.worker import Engine
from benchmarks.verified import RESULTS
from benchmarks.zoo.making import OWN, programs
from benchmarks.zoo.table import CLASSES, WHOLE, Row, cells, markdown

ASKED = ("threads", "time_budget", "seed", "rounds", "seconds", "patience", "untimed")
"""Settings that a row belongs to."""

SHARE_OF_MEMORY = 0.9

STARTING_S = 15.0
"""What it takes beside budgets and rounds: starting the processes, and the program of the model's own operators."""

FIRST = (
    "bert", "mobilenet_v3_small", "gpt2", "resnet18", "repvgg_a0", "vit_tiny_patch16_224", "llama_gqa", "whisper_encoder", "efficientnet_b0",
    "minilm", "unet2d", "hifigan", "resnet50", "convnext_tiny", "distilbert", "wav2vec2", "yolo", "squeezenet1_1", "shufflenet_v2_x1_0",
    "mamba_block", "vocos", "swin_t", "mobilevit_xs", "edsr", "lstm_tagger", "regnet_y_400mf",
)  # fmt: skip
"""The models that most people bring, in the order in which time is given to them."""


def rows_of(path: Path, place: Place, options: argparse.Namespace, asked: Row) -> list[Row]:
    """A row for each class. An engine that fails has no time, and `missing` says why."""
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = {name: stored[name] for name in stored.files}
    belongs = {"name": path.stem, "nodes": len(onnx.load(path, load_external_data=False).graph.node), "asked": asked, "digest": digest(path),
               "commit": commit()}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "model.onnx"
        here.symlink_to(path.resolve())
        engines, reports, missing = programs(here, place, budgets(options), options.seed, own=not options.untimed)
        others = [Engine(REFERENCE, REFERENCE, here)] + [Engine("openvino", "openvino", here)] * bool(version("openvino"))
        twins = timed_as(engines, reports)
        distinct = [engine for name, engine in engines.items() if twins[name] == name]
        results, noisy = ({}, None) if options.untimed else timed([*others, *distinct], inputs, place, options)
        results |= {name: results[twin] for name, twin in twins.items() if twin in results}
    failed = {engine: found["status"] for engine, found in results.items() if found["status"] != "ok" and engine not in (AGAIN, *CLASSES)}
    rows = []
    for name in CLASSES:
        said = {column: why for column, why in missing.items() if column in (name, OWN)} | failed
        rows.append({**belongs, "allow": name, **told(reports.get(name), name, results), "noise": noisy, "missing": said})
    return rows


def timed_as(engines: Mapping[str, Engine], reports: Mapping[str, Any]) -> dict[str, str]:
    """For each of our programs the engine whose times are its own: ONNX Runtime where that runs the whole model, else the first of equal programs."""
    first: dict[str, str] = {}
    whole = {name: REFERENCE for name in engines if reports[name]["runs"] == WHOLE}
    return {name: whole.get(name) or first.setdefault(content(engine.path), name) for name, engine in engines.items()}


def digest(path: Path) -> str:
    """Of a model's file: what a row belongs to."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def in_order(names: Sequence[str], rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """What most people bring, then the models of which earlier rows tell that parts changed, those with most of them before the others."""
    changed = {name: sum(rows[name, c]["changed"] or 0 for c in CLASSES if (name, c) in rows) for name in names}
    place = {name: n for n, name in enumerate(FIRST)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), -changed[name]))


def budgets(options: argparse.Namespace) -> dict[str, float]:
    """Seconds for each class."""
    return dict.fromkeys(CLASSES, options.time_budget)


def known(name: str, path: Path, rows: Mapping[tuple[str, str], Row], asked: Row) -> bool:
    """The rows of a model are there: of this file, with these settings."""
    found = [rows.get((name, c), {}) for c in CLASSES]
    return all(row.get("asked") == asked for row in found) and all(row["digest"] == digest(path) for row in found)


def timed(engines: Sequence[Engine], inputs: Arrays, place: Place, options: argparse.Namespace) -> tuple[dict[str, Result], float | None]:
    """Every engine's result, and the noise floor: ONNX Runtime against itself."""
    results = compare(engines, inputs, None, place, Effort(options.rounds, options.seconds, options.patience))
    times = {name: r["times_ms"] for name, r in results.items() if "times_ms" in r}
    return results, noise(times[REFERENCE], times[AGAIN]) if REFERENCE in times and AGAIN in times else None


def told(report: Mapping[str, Any] | None, name: str, results: Mapping[str, Result]) -> Row:
    """One row's figures."""
    names = {"onnxruntime": REFERENCE, "openvino": "openvino", "einnet_no_derive": OWN, "einnet": name}
    medians = {column: results[engine]["median_ms"] for column, engine in names.items() if "median_ms" in results.get(engine, {})}
    status = results.get(name, {}).get("status")
    if report is None:
        return {"opaque": None, "parts": None, "changed": None, "runs": None, "ms": medians, "verified": False}
    passed, fine = bool(report["verification"]["passed"]), status in (None, "ok")
    itself = report["runs"] == WHOLE and fine and not passed  # nothing was compared: what runs is the reference
    changed = 0 if report["runs"] == WHOLE else len(report["changed"])
    kept = {key: report[key] for key in ("opaque", "why_opaque", "parts", "runs", "kernels", "operations") if key in report}
    return {**kept, "changed": changed, "ms": medians, "verified": None if itself else passed and fine, "notes": report["notes"]}


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 where a model is not right, or missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the exported models")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--time-budget", type=float, default=40.0, help="seconds for each class (default: 40)")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.25, help="for each engine in each round")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds of rounds for a model")
    parser.add_argument("--untimed", action="store_true", help="time nothing")
    parser.add_argument("--seconds-left", type=float, default=math.inf, metavar="S", help="begin no model that would not end in so many seconds")
    parser.add_argument("--again", action="store_true", help="measure again what the file has by the same settings")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "zoo.json")
    options = parser.parse_args(arguments)
    there = {path.stem: path for path in sorted(options.folder.glob("*.onnx"))}
    if unknown := [n for n in options.names if n not in there]:
        parser.error(f"{options.folder} has no model {unknown[0]!r}; python -m benchmarks.zoo.export makes them")
    if not there:
        parser.error(f"{options.folder} has no models; python -m benchmarks.zoo.export makes them")
    place = Place(options.threads, tuple(sorted(os.sched_getaffinity(0))[: options.threads]), int(SHARE_OF_MEMORY * free_memory()))
    earlier = json.loads(options.output.read_text())["models"] if options.output.exists() else []
    rows: dict[tuple[str, str], Row] = {(row["name"], row["allow"]): row for row in earlier}
    machine, end = description(), time.monotonic() + options.seconds_left
    asked = {name: getattr(options, name) for name in ASKED} | {"cpu": machine["cpu"], "budgets": budgets(options)}
    names = options.names or in_order(list(there), rows)
    for n, name in enumerate(names):
        if not options.again and known(name, there[name], rows, asked):
            continue
        if time.monotonic() + longest(options) > end:
            print(f"{len(names) - n} models are left for want of time: the same command goes on with {name}", file=sys.stderr)
            return 1
        for row in rows_of(there[name], place, options, asked):
            rows[name, row["allow"]] = row
            print("  ".join(cells(row)), *row["missing"].values(), flush=True)
        write(options.output, {"machine": machine, "threads": options.threads, "models": [rows[key] for key in sorted(rows)]})
    return 0 if all(rows[n, c]["verified"] is not False for n in names for c in CLASSES) else 1


def longest(options: argparse.Namespace) -> float:
    """The seconds that a model is expected to take at most, where budgets are kept."""
    return sum(budgets(options).values()) + STARTING_S + (0.0 if options.untimed else options.patience)


def write(path: Path, data: Row) -> None:
    """The rows so far, and their table beside them, whole or not at all."""
    for file, wanted in ((path, text(data)), (path.with_suffix(".md"), markdown(data))):
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(wanted, encoding="utf-8")
        draft.replace(file)


if __name__ == "__main__":
    sys.exit(main())
