"""One model at one batch size on some threads: every engine on it, as an entry of the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, Result, columns, compare, noise, outputs_of, ratios
from benchmarks.contest.engines import Arrays, family
from benchmarks.contest.machine import random_inputs
from benchmarks.contest.programs import Search, optimized
from benchmarks.contest.worker import Engine, EngineError
from benchmarks.models.flops import flops

OURS = {"einnet_no_derive": False, "einnet": True}
"""Our two columns, and whether derivation is on."""

Build = Callable[[int], onnx.ModelProto]
"""The model at a batch size."""


@dataclass(frozen=True)
class Case:
    """A model's name, its generator, batch size and the seed of its inputs."""

    model: str
    build: Build
    batch: int
    seed: int = 0


def measure(case: Case, engines: Sequence[str], search: Search, place: Place, effort: Effort, peak: float, folder: Path) -> dict[str, Any]:
    """The entry: medians by column, spreads, noise, shares of the peak (GFLOP/s) and why a column is missing; raw samples beside them."""
    model = case.build(case.batch)
    inputs, path = random_inputs(model, case.seed), folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=model.ByteSize() > 1 << 30, location="weights.bin")
    gflop = flops(model) / 1e9
    del model
    started = time.monotonic()
    entered, reports, missing = entrants(path, engines, search, place)
    try:
        reference = reference_outputs(case, path, inputs, place, folder)
        results = compare(entered, inputs, reference, place, effort)
    except EngineError as error:
        results = {e.name: {"status": f"onnxruntime gives no reference: {error}"} for e in entered}
    entry = summary(results, missing, gflop, peak)
    told = {"model": case.model, "batch": case.batch, "threads": place.threads, "gflop": gflop, **entry, "reports": reports}
    return {**told, "seconds": round(time.monotonic() - started, 1), "measured": datetime.now(UTC).isoformat(timespec="seconds")}


def entrants(path: Path, engines: Sequence[str], search: Search, place: Place) -> tuple[list[Engine], dict[str, Any], dict[str, str]]:
    """The engines with the files that they load; what our optimizations report; why one of ours is missing."""
    entered = [Engine(name, name, path) for name in engines if name not in OURS]
    reports: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in (n for n in OURS if n in engines):
        try:
            engine, reports[name] = optimized(path, name, OURS[name], search, place)
            entered.append(engine)
        except EngineError as error:
            missing[name] = str(error)
    return entered, reports, missing


def reference_outputs(case: Case, path: Path, inputs: Arrays, place: Place, folder: Path) -> list[np.ndarray]:
    """ONNX Runtime's outputs; where the whole batch does not fit, those of one sample after the other. Raises EngineError."""
    try:
        return outputs_of(Engine(REFERENCE, REFERENCE, path), inputs, place)
    except EngineError:
        if case.batch == 1:
            raise
    single = folder / "single.onnx"
    onnx.save(case.build(1), single)
    engine = Engine(REFERENCE, REFERENCE, single)
    samples = [outputs_of(engine, {k: v[n : n + 1] for k, v in inputs.items()}, place) for n in range(case.batch)]
    return [np.concatenate(parts) for parts in zip(*samples, strict=True)]


def summary(results: Mapping[str, Result], missing: Mapping[str, str], gflop: float, peak: float) -> dict[str, Any]:
    """Figures by column; a column with two layouts has those of the faster one."""
    owner = {name: name if name in OURS else family(name) for name in results if name != AGAIN}
    chosen = columns(results, owner)
    times = {name: result["times_ms"] for name, result in results.items() if "times_ms" in result}
    absent = {column: results[name]["status"] for name, column in owner.items() if column not in chosen} | dict(missing)
    found: dict[str, Any] = {
        "median_ms": {column: results[name]["median_ms"] for column, name in chosen.items()},
        "spread": {column: results[name]["spread_ms"] for column, name in chosen.items()},
        "noise": noise(times[REFERENCE], times[AGAIN]) if AGAIN in times and REFERENCE in times else None,
        "share_of_peak": {column: gflop / results[name]["median_ms"] * 1e3 / peak for column, name in chosen.items()},
        "memory_bytes": {column: results[name]["memory_bytes"] for column, name in chosen.items()},
        "max_rel": {column: results[name]["max_rel"] for column, name in chosen.items()},
        "chosen": {column: name for column, name in chosen.items() if column != name},
        "missing": absent,
    }
    raw = {name: [[round(t, 5) for t in r] for r in rows] for name, rows in times.items()}
    return {**found, **against_best(found["median_ms"], chosen, times), "raw_ms": raw}


def against_best(medians: Mapping[str, float], chosen: Mapping[str, str], times: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Any]:
    """The best column that is not ours, how many times faster ours is by the medians that are printed, and the same round by round."""
    others = [column for column in medians if column not in OURS]
    if not others or "einnet" not in medians:
        return {"best_baseline": None, "speedup": None, "speedup_per_round": []}
    best = min(others, key=lambda column: medians[column])
    found = ratios(times[chosen[best]], times[chosen["einnet"]])
    return {"best_baseline": best, "speedup": medians[best] / medians["einnet"], "speedup_per_round": found}
