"""Programs within an error, timed beside ONNX Runtime, OpenVINO in float32 and as it comes, and PyTorch in bfloat16.

    python -m benchmarks.precision                    the paper's seven and more at three errors, into benchmarks/results/precision.json
    python -m benchmarks.precision --zoo build/zoo    the zoo, too (`python -m benchmarks.zoo.export` makes it)
    python -m benchmarks.precision resnet18 m.onnx    these models, by name or from files of fixed shapes, with inputs in a .npz beside them
    python -m benchmarks.precision --int8             models of bytes, into benchmarks/results/precision-int8.json
    python -m benchmarks.precision --quick            small sizes, into build/bench

A row for each model and error, and one at the error that OpenVINO as it comes shows on the same draws, where that is no error of float32: a program
that errs no more than what it is compared with. `ms` are medians of interleaved rounds, `error` the greatest over fresh draws of inputs, relative to
max|y|, against ONNX Runtime in float32, or with `--int8` on the same model of bytes, of which `einnet_f32` is the program without a budget; `bound`
is the greatest a-priori bound of a product that rounds, `noise` what ONNX Runtime shows against itself, `missing` why an engine has no time. What
answers is ONNX Runtime with sums of products of bytes in whole integers; what is timed is ONNX Runtime as it comes, which cuts such sums at 16 bits
on processors with AVX2 that lack VNNI, and its `error` says by how much.

A model takes about two minutes on a quiet machine: a budget below the roundoff of every arithmetic has the program of float32, where that leaves
room for other inputs and no program that rounds errs so little, one process makes all programs, the widest error first, and takes over for the next
what it has found for one, each engine is loaded once, while another answers.
Ours answer all draws, other engines as many as they can in `OTHERS_S` seconds. The file is written after each model, and the same command goes on
where it was ended: rows of other models stay, and what was measured with the same settings and engines is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, compare, difference, noise
from benchmarks.contest.machine import description
from benchmarks.contest.programs import ROOT, Search
from benchmarks.contest.results import text, write_whole
from benchmarks.contest.worker import Engine, EngineError, Worker
from benchmarks.precision.cases import MODELS, Case, Draw, chosen, digest
from benchmarks.precision.making import Maker
from benchmarks.precision.table import OTHERS, Row, asked_for, cells, markdown, row
from benchmarks.verified import RESULTS
from benchmarks.zoo.table import WHOLE
from einnet.compile.targets.cpu.rounded_products import ALONE_SHARE, likely
from einnet.runtime import machine
from einnet.search.settings import Settings

ERRORS = (1e-5, 1e-3, 1e-2)
STEPS = (5e-2,)
"""Of models of bytes: engines that are equally right differ by a step of 8 bits, and seldom by two, which outputs far below their range show most."""

ASKED = ("threads", "time_budget", "seed", "draws", "rounds", "seconds", "patience", "matched")
"""Settings that a row belongs to, beside its error and the other engines."""

WIDEST = 0.5
"""A time counts up to this error, which stands beside it: what errs more computes something else."""

FEWER = 4.0
"""Times as much as a budget: where programs err no more, some of their products may round within it."""

LATE, START_S = 2.0, 20.0
"""An optimization is ended after so many times its budget, and so many seconds beside it."""

LATER = 0.5
"""Share of the budget that the second program has, and those after it: they take over what the widest error has found, where they may."""

FLOAT32 = "einnet_f32"
"""The program without a budget of error."""

FINISHING_S, BESIDE_S = 1.5, 12.0
"""Seconds that an optimization takes beside its budget, and that processes take to begin and engines to give their answers."""

OTHERS_S = 2.0
"""Seconds that another engine answers draws; the first three in any case."""

ANSWERS = "benchmarks.precision.engines:onnxruntime_whole"
"""The engine whose answers are right."""

MATCHED, PLAIN = "openvino_default", "openvino_f32"
"""The engine whose own error is a budget, too, and the same engine in float32."""

BEYOND_FLOAT32 = 1.5
"""Times what it errs in float32: what errs more rounds."""

CLASS = "reassociation"
"""The class of steps that is named beside every budget of error."""

Allowed = tuple[str, float | None]


def rows_of(name: str, model: onnx.ModelProto, draw: Draw, place: Place, options: argparse.Namespace, others: Mapping[str, str]) -> list[Row]:
    """A row for each error, and for that of OpenVINO as it comes. An engine that fails has no time, and `missing` says why. Where ONNX Runtime runs
    the whole model, its time is ours."""
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", draw(options.seed)
        onnx.save(model, path)
        engines = [Engine(REFERENCE, REFERENCE, path)]
        engines += [Engine(column, kind, path) for column, (package, kind) in OTHERS.items() if package in others]
        fresh = [draw(options.seed + 1 + n) for n in range(options.draws)]
        try:
            wanted = answers(Engine(REFERENCE, ANSWERS, path), [inputs, *fresh], place)
        except EngineError as why:
            return [row(name, error, {}, {}, None, None, {REFERENCE: str(why)}) for error in options.errors]
        alike = matched(engines, fresh, wanted[1:], place) if options.matched else None
        errors = sorted({*options.errors, *([alike] if alike else [])})
        ours, reports, missing = programs(path, place, options, errors)
        effort = Effort(options.rounds, options.seconds, options.patience, fresh_s=OTHERS_S)
        twins = timed_as(ours, reports, shared=not options.int8)
        distinct = [e for name, e in ours.items() if twins[name] == name]
        results = compare([*engines, *distinct], inputs, wanted[0], place, effort, WIDEST, list(zip(fresh, wanted[1:], strict=True)))
    found = {name: results[twins.get(name, name)] for name in {*results, *twins}}
    return rows_from(name, options.errors, alike, found, reports, {**lacking(others), **missing})


def rows_from(
    name: str, errors: Sequence[float], alike: float | None, results: Mapping[str, Any], reports: Mapping[str, Any], missing: Mapping[str, str]
) -> list[Row]:  # fmt: skip
    """The rows of a model, by what was measured of each engine."""
    apart = {name: found["worst"] for name, found in results.items() if "times_ms" in found and "worst" in found}
    times = {n: r["times_ms"] for n, r in results.items() if "times_ms" in r}
    noisy = noise(times[REFERENCE], times[AGAIN]) if REFERENCE in times and AGAIN in times else None
    absent = {**missing, **{n: r["status"] for n, r in results.items() if "times_ms" not in r}}
    found = [row(name, error, results, apart, reports.get(f"{error:g}"), noisy, absent) for error in errors]
    return [*found, {**row(name, alike, results, apart, reports.get(f"{alike:g}"), noisy, absent), "like": MATCHED}] if alike else found


def matched(
    engines: Sequence[Engine], fresh: Sequence[Mapping[str, np.ndarray]], wanted: Sequence[Sequence[np.ndarray]], place: Place
) -> float | None:  # fmt: skip
    """What OpenVINO as it comes errs on some draws, rounded down to two digits; None where it is not there or fails, and where it computes in
    float32: it errs no more than when it is told to."""

    def error_of(name: str) -> float | None:
        engine = next((e for e in engines if e.name == name), None)
        try:
            given = answers(engine, fresh, place) if engine else None
        except EngineError:
            return None
        return max(difference(own, right) for own, right in zip(given, wanted, strict=True)) if given else None

    error = error_of(MATCHED)
    if error is None or not (BEYOND_FLOAT32 * (error_of(PLAIN) or 0.0) < error < WIDEST):
        return None
    unit = 10.0 ** (math.floor(math.log10(error)) - 1)
    return float(f"{math.floor(error / unit) * unit:.2g}")


def lacking(others: Mapping[str, str]) -> dict[str, str]:
    """Why engines are missing whose packages are not installed."""
    return {column: f"{package} is not installed" for column, (package, _) in OTHERS.items() if package not in others}


def timed_as(engines: Mapping[str, Engine], reports: Mapping[str, Any], shared: bool) -> dict[str, str]:
    """For each of our programs the engine whose times are its own: ONNX Runtime where that runs the whole model, else the first of one file.

    Not `shared` with ONNX Runtime are models of bytes, which it adds up otherwise as it comes than as a part of our programs.
    """
    first: dict[tuple[str, Path], str] = {}
    whole = {name: REFERENCE for name in engines if shared and reports[name].get("runs") == WHOLE}
    return {name: whole.get(name) or first.setdefault((e.kind, e.path), name) for name, e in engines.items()}


def programs(
    path: Path, place: Place, options: argparse.Namespace, errors: Sequence[float]
) -> tuple[dict[str, Engine], dict[str, Any], dict[str, str]]:
    """Our programs in float32 and for each error, by name; what their reports say; why one is missing. Errors that allow the same share one."""
    engines: dict[str, Engine] = {}
    reports: dict[str, Any] = {}
    missing: dict[str, str] = {}
    made: dict[Allowed, str] = {}
    with Maker(path, place) as maker:
        for error in in_turn(errors):
            name, alike = FLOAT32 if error is None else f"{error:g}", made.get(allowed(error))
            rounding = error is not None and any(rounded_within(report, error) for report in reports.values())
            if error is not None and alike is not None and errs(reports[alike]) <= ALONE_SHARE * error and not rounding:
                engines[name], reports[name] = replace(engines[alike], name=name), reports[alike]
                continue
            try:
                budget = options.time_budget * (LATER if made else 1.0)
                search = Search(budget, CLASS, options.seed, LATE * budget + START_S, max_error=error)
                engines[name], reports[name] = maker.optimized(name, search)
                made.setdefault(allowed(error), name)
            except EngineError as why:
                missing[name] = str(why)
    return engines, reports, missing


def in_turn(errors: Sequence[float]) -> list[float | None]:
    """The budgets of error, the widest first, as each knows what wider ones found; the program without one before those in which nothing rounds."""
    found: list[float | None] = sorted(errors, reverse=True)
    rounding = sum(bool(allowed(e)[1]) for e in errors)
    return [*found[:rounding], None, *found[rounding:]]


def allowed(error: float | None) -> Allowed:
    """What a program within an error is made of: a class of steps, and the error itself where it decides which products round. Below the roundoff
    of every arithmetic it decides nothing, but for models that are hardly moved by it (`rounded_within`)."""
    settings = Settings(allow=CLASS, max_error=error)
    return settings.allow, error if likely(settings) else None


def errs(report: Mapping[str, Any]) -> float:
    """What a program was found to err by when it was verified."""
    return float((report.get("verification") or {}).get("max_rel", math.inf))


def rounded_within(report: Mapping[str, Any], error: float) -> bool:
    """A program has products that round, and errs about so little all the same, so that one with fewer of them may: outputs may depend on them
    little."""
    told = report.get("precision") or {"products": []}
    return any(p["runs"] for p in told["products"]) and float(told["error"]) <= FEWER * error


def answers(engine: Engine, draws: Sequence[Mapping[str, np.ndarray]], place: Place) -> list[list[np.ndarray]]:
    """What an engine gives for each of some inputs. Raises EngineError."""
    with Worker(engine.kind, engine.path, place.threads, place.cpus, place.memory) as worker:
        worker.ready()
        return [worker.run(dict(inputs)) for inputs in draws]


def installed() -> dict[str, str]:
    """The versions of the other engines' packages."""
    found = {}
    for package, _ in OTHERS.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def longest(options: argparse.Namespace) -> float:
    """The seconds that a model is expected to take at most, where budgets are kept."""
    searches = len({allowed(error) for error in (None, *options.errors)}) + options.matched
    budgets = 1 + LATER * (searches - 1)
    return options.time_budget * budgets + FINISHING_S * searches + options.patience + BESIDE_S


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"names or files (default: {', '.join(MODELS)})")
    parser.add_argument("--zoo", type=Path, metavar="FOLDER", help="of exported models: all of them, too")
    parser.add_argument("--quick", action="store_true", help="small sizes, into build/bench")
    parser.add_argument("--int8", action="store_true", help="the models quantised to bytes, at an error of 5e-2")
    parser.add_argument("--errors", type=float, nargs="+", help="budgets (default: 1e-5 1e-3 1e-2)")
    parser.add_argument("--matched", action=argparse.BooleanOptionalAction, help="a row at OpenVINO's own error (default: unless --int8 or --quick)")
    parser.add_argument("--time-budget", type=float, help="seconds for an optimization, the second and later ones half (default: 30, of bytes 60)")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=20, help="fresh inputs on which errors are measured (default: 20)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each engine in each round")
    parser.add_argument("--patience", type=float, default=8.0, help="seconds of rounds for a model")
    parser.add_argument("--seconds-left", type=float, default=math.inf, metavar="S", help="begin no model that would not end in so many seconds")
    parser.add_argument("--again", action="store_true", help="measure again what the file has by the same settings")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    options.time_budget = options.time_budget or (60.0 if options.int8 else 30.0)
    options.matched = not (options.int8 or options.quick) if options.matched is None else options.matched
    options.errors = options.errors or (STEPS if options.int8 else ERRORS)
    name = "precision-int8.json" if options.int8 else "precision.json"
    options.output = options.output or (ROOT / "build" / "bench" if options.quick else RESULTS) / name
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 where a program of ours errs by more than its budget on fresh inputs, or is missing, or was not measured."""
    options = parsed(arguments)
    place, end = Place(options.threads, tuple(sorted(os.sched_getaffinity(0))[: options.threads])), time.monotonic() + options.seconds_left
    arithmetics = sorted(f for f in machine.cpu_features() if f in ("avx512_bf16", "avx512_fp16") or f.startswith("amx"))
    others = installed()
    about = {**description(), "arithmetics": arithmetics, "engines": others}
    asked = {name: getattr(options, name) for name in ASKED} | {"cpu": about["cpu"], "engines": others}
    rows = earlier(options.output)
    cases = chosen(options)
    for n, case in enumerate(cases):
        model, draw = case.made()
        belongs = {"asked": asked, "digest": digest(model)}
        if not options.again and known(case, rows, belongs, options.errors):
            continue
        if time.monotonic() + longest(options) > end:
            print(f"{len(cases) - n} models are left for want of time: the same command goes on with {case.name}", file=sys.stderr)
            return 1
        rows.pop((case.name, MATCHED), None)
        for one in rows_of(case.name, model, draw, place, options, others):
            rows[case.name, asked_for(one)] = {**one, **belongs}
            print("  ".join(cells(one)), *one["missing"].values(), flush=True)
        data = {"machine": about, "threads": options.threads, "models": list(rows.values())}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(options.output, text(data))
        write_whole(options.output.with_suffix(".md"), markdown(data))
    names = {case.name for case in cases}
    return 0 if all(one["within"] for (name, _), one in rows.items() if name in names) else 1


def earlier(path: Path) -> dict[tuple[str, float | str], Row]:
    """The rows of an earlier run, by model and error."""
    found = json.loads(path.read_text())["models"] if path.exists() else []
    return {(one["name"], asked_for(one)): one for one in found}


def known(case: Case, rows: Mapping[tuple[str, float | str], Row], belongs: Row, errors: Sequence[float]) -> bool:
    """The rows of a model are there: of this model, with these settings and engines."""
    return all(rows.get((case.name, error), {}).get(key) == value for error in errors for key, value in belongs.items())


if __name__ == "__main__":
    sys.exit(main())
