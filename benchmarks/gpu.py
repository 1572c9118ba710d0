"""The seven models and the operator cases on a CUDA card: ours against torch, eager (in a CUDA graph) and compiled, and JAX, in float32 and in TF32.

    python benchmarks/gpu.py --prepare build/card            searches, on any machine: the programs of ours, in minutes each
    python benchmarks/gpu.py --programs build/card           measures on a card; what eight minutes do not hold is left for the next call

An engine runs in a process of its own. Its outputs are compared with ONNX Runtime's before its times count; `einnet` runs twice, which tells the
noise. The results are written after every item; ONNX Runtime's outputs are kept beside the programs, so that they are computed once. An engine that
is not installed has a reason instead of times. JAX has no events: its times are the clock's, launching included. g2bmm is left out unless it is
named: as ONNX it needs 41 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from benchmarks.card.engines import ENGINES, OURS, Job, Running, environment  # noqa: E402
from benchmarks.card.summary import Item, items, lines, missing_items  # noqa: E402
from benchmarks.contest.machine import random_inputs  # noqa: E402
from benchmarks.contest.results import text  # noqa: E402
from benchmarks.models import OPERATORS, SEVEN, build, parameters  # noqa: E402

SAMPLES, WARM = 50, 10
TOLERANCE = {"fp32": 1e-3, "tf32": 3e-2}
"""Largest difference from ONNX Runtime, in units of its largest output, with which a time counts."""


EACH_S = 90.0
"""Seconds that an engine has for one item: loading, compiling, warming up, sampling."""

LATE = "took more than"


def program_of(folder: Path, item: Item) -> Path:
    return folder / f"{item.model}-b{item.batch}-{'derived' if item.engine == OURS[0] else 'plain'}.einnet"


def reference_of(folder: Path, item: Item) -> Path:
    return folder / f"{item.model}-b{item.batch}.npz"


def sample(running: Running, flushed: bool) -> list[float]:
    """Seconds of replays, after some that warm up."""
    found = []
    for n in range(WARM + SAMPLES):
        if flushed:
            running.flush()
        seconds = running.seconds()
        if n >= WARM:
            found.append(seconds)
    return found


def expected(folder: Path, item: Item, model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs, kept for the next engine."""
    import onnxruntime

    path = reference_of(folder, item)
    if path.exists():
        with np.load(path) as kept:
            return [kept[name] for name in sorted(kept, key=lambda name: int(name[1:]))]
    found = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    draft = path.with_suffix(".partial")
    with draft.open("wb") as file:
        np.savez(file, **{f"y{n}": y for n, y in enumerate(found)})
    draft.replace(path)
    return list(found)


def measure(item: Item, programs: Path) -> dict[str, Any]:
    """One item, in this process."""
    import onnx

    model = build(item.model, item.batch)
    inputs = random_inputs(model, 0)
    wanted = expected(programs, item, model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        running = ENGINES[item.engine](Job(path, program_of(programs, item), inputs, item.math))
        error = max(float(np.abs(y - w).max() / np.abs(w).max()) for y, w in zip(running.outputs(), wanted, strict=True))
        times = {state: sample(running, state == "cold") for state in ("hot", "cold")}
    return {"error": error, "right": error <= TOLERANCE[item.math], "versions": running.versions, **times}


def apart(item: Item, programs: Path, seconds: float) -> dict[str, Any]:
    """One item in a process of its own; why there are no times, where there are none."""
    command = [sys.executable, str(Path(__file__).resolve()), "--programs", str(programs), "--one", json.dumps([*as_row(item).values()])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(item.math), timeout=max(seconds, 1.0), check=False)
    except subprocess.TimeoutExpired:
        return {"missing": f"{LATE} {seconds:.0f} s"}
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def as_row(item: Item) -> dict[str, Any]:
    return {"model": item.model, "batch": item.batch, "math": item.math, "engine": item.engine, "again": item.again}


def published(wanted: Sequence[Item]) -> list[Item]:
    """Operator cases have the batch size of the paper's table."""
    return list(dict.fromkeys(replace(i, batch=parameters(i.model)["batch"]) if i.model in OPERATORS else i for i in wanted))


def prepare(folder: Path, wanted: Sequence[Item], profile: Path | None, seconds: float, depth: int) -> None:
    """The stored programs of ours, and ONNX Runtime's outputs, that are not there yet. Needs no card."""
    from einnet.api.cuda import optimize_cuda
    from einnet.api.settings import Settings

    folder.mkdir(parents=True, exist_ok=True)
    for item in wanted:
        path = program_of(folder, item)
        wants_program = item.engine in OURS and not path.exists()
        if not wants_program and reference_of(folder, item).exists():
            continue
        model = build(item.model, item.batch)
        expected(folder, item, model, random_inputs(model, 0))
        if not wants_program:
            continue
        settings = Settings(backend="cuda", derive=item.engine == OURS[0], allow="precision", time_budget=seconds, max_depth=depth)
        found = optimize_cuda(model, settings, profile)
        if not found.report["verification"]["passed"]:
            raise SystemExit(f"{item.name}: wrong on the host")
        print(found.save(path), f"{found.report['totals']['launches']} launches", flush=True)


def properties() -> dict[str, Any]:
    """The card. Raises BackendError where there is none."""
    from einnet.runtime.cuda.driver import Driver

    driver = Driver()
    return {**driver.properties(), **driver.versions()}


def run(wanted: Sequence[Item], programs: Path, output: Path, seconds: float, each: float = EACH_S) -> dict[str, Any]:
    """Measure what the output does not hold, until the time is over, no item longer than `each`; the file is written after every item."""
    card, ends = properties(), time.monotonic() + seconds
    data: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    if data.get("card") != card:
        data = {"card": card, "entries": []}
    output.parent.mkdir(parents=True, exist_ok=True)
    for item in missing_items(wanted, data["entries"]):
        left = ends - time.monotonic()
        if left <= 0:
            break
        found = apart(item, programs, min(left, each))
        if LATE in found.get("missing", "") and left < each:
            break  # the next call gives it the time that it may take
        data["entries"].append({**as_row(item), **found})
        draft = output.with_suffix(".partial")
        draft.write_text(text(data))
        draft.replace(output)
        print(item.name, data["entries"][-1].get("missing", "measured"), flush=True)
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, measure, print."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python benchmarks/gpu.py", description=__doc__, formatter_class=raw)
    known = [*SEVEN, *OPERATORS]
    usual = [name for name in known if name != "g2bmm"]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)} (default: all but g2bmm)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="of the seven models (default: 1); operator cases have their own")
    parser.add_argument("--math", nargs="+", choices=tuple(TOLERANCE), default=list(TOLERANCE))
    parser.add_argument("--engines", nargs="+", choices=tuple(ENGINES), default=list(ENGINES))
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="write the programs of ours there and measure nothing; needs no card")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/card", metavar="DIR", help="where they were written (default: build/card)")
    parser.add_argument("--profile", type=Path, help="of the card, for the searches (default: a recorded H100)")
    parser.add_argument("--time-budget", type=float, default=120.0, help="seconds of each search")
    parser.add_argument("--max-depth", type=int, default=7, help="of each search")
    parser.add_argument("--seconds", type=float, default=460.0, help="of measuring (default: 460)")
    parser.add_argument("--each", type=float, default=EACH_S, help=f"most seconds of one engine on one model (default: {EACH_S:g})")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks/results/gpu.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        try:
            print(json.dumps(measure(Item(*json.loads(options.one)), options.programs)))
        except ModuleNotFoundError as error:
            print(f"not installed: {error.name}", file=sys.stderr)
            return 2
        return 0
    unknown = [name for name in options.models if name not in known]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = published(items(options.models or usual, options.batch, options.math, options.engines))
    if options.prepare:
        prepare(options.prepare, wanted, options.profile, options.time_budget, options.max_depth)
        return 0
    from einnet.errors import EinNetError

    try:
        data = run(wanted, options.programs, options.output, options.seconds, options.each)
    except EinNetError as error:
        print(error, file=sys.stderr)
        return 2
    print(*lines(data["entries"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
