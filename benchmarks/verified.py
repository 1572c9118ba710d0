"""Models optimized and verified one after the other, each in a process of its own; a row for each, written as soon as it is there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import onnx

from einnet.errors import EinNetError
from einnet.runtime.machine import cpu_name, versions

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"


def command(title: str, names: Sequence[str], output: str, seconds: float) -> argparse.ArgumentParser:
    """The arguments that such a script takes."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--time-budget", type=float, default=seconds, metavar="SECONDS", help=f"for each model (default: {seconds:g})")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / output, metavar="FILE.json")
    return parser


def run(options: argparse.Namespace, names: Sequence[str], one: Callable[[str, argparse.Namespace], Row]) -> int:
    """Make and print a row for each model; exit code 1 where one is not verified. Rows of other models stay in the file."""
    unknown = [name for name in options.models if name not in names]
    if unknown:
        print(f"no model {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    known = json.loads(options.output.read_text())["models"] if options.output.exists() else []
    rows: dict[str, Row] = {row["model"]: row for row in known}
    for name in options.models or names:
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            try:
                rows[name] = alone.submit(attempted, one, name, options).result()
            except BrokenProcessPool:
                rows[name] = {"model": name, "passed": False, "error": "the process was ended: it may have taken more memory than there is"}
        print(json.dumps(rows[name]), flush=True)
        ordered = [rows[n] for n in names if n in rows]
        write(options.output, {"machine": cpu_name(), "versions": versions(), "models": ordered})
    return 0 if all(rows[name]["passed"] for name in options.models or names) else 1


def attempted(one: Callable[[str, argparse.Namespace], Row], name: str, options: argparse.Namespace) -> Row:
    """A model's row; one that says why where there is none."""
    try:
        return {"model": name, **one(name, options)}
    except EinNetError as error:
        return {"model": name, "passed": False, "error": str(error).splitlines()[0]}


def told(report: Mapping[str, Any]) -> Row:
    """What a report says of a program, in one row."""
    totals, verification = report["totals"], report["verification"]
    return {
        "passed": bool(verification["passed"]),
        "max_rel": verification["max_rel"],
        "tolerance": verification["tolerance"],
        "subprograms": len(report["subprograms"]),
        "changed": sum(s["changed"] for s in report["subprograms"]),
        "runs": report["runs"],
        "derivations": report["certificate"]["derivations"],
        "steps": report["certificate"]["steps"],
        "onnxruntime_ms": totals["onnxruntime_ms"],
        "optimized_ms": totals["optimized_ms"],
        "noise": totals["noise"],
        "threads": report["threads"],
        "time_budget": report["settings"]["time_budget"],
    }


def stored(model: onnx.ModelProto, folder: str) -> Path:
    """The model in a file, its weights beside it: they may be large. The model loses them."""
    path = Path(folder) / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights")
    return path


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(path)
