"""Interleaved rounds over engines that agree with ONNX Runtime, and the figures made of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.baselines.engines import Arrays
from benchmarks.baselines.worker import EngineError, Worker

REFERENCE = "onnxruntime"
AGAIN = "onnxruntime (again)"
"""A second process of the reference engine: its ratio to the first is the noise floor."""

TOLERANCE = 1e-3
"""Largest difference from the reference, in units of its largest output, with which a time counts."""

Result = dict[str, Any]


def difference(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """max|y - r| / max|r|, the worst over the outputs; inf where shapes differ or a value is not finite."""
    worst = 0.0
    for y, r in zip(outputs, reference, strict=True):
        if y.shape != r.shape or not np.isfinite(y).all():
            return float("inf")
        worst = max(worst, float(np.abs(y - r).max() / max(np.abs(r).max(), 1e-30)))
    return worst


def figures(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Milliseconds over all rounds: median, 20th percentile, and the spread of the rounds' medians (90th less 10th percentile)."""
    medians = [float(np.median(r)) for r in rounds]
    pooled = np.concatenate([np.asarray(r) for r in rounds])
    return {
        "median_ms": float(np.median(pooled)),
        "p20_ms": float(np.percentile(pooled, 20)),
        "spread_ms": float(np.percentile(medians, 90) - np.percentile(medians, 10)),
    }


def compare(path: Path, inputs: Arrays, engines: Sequence[str], threads: int, cpus: Sequence[int], rounds: int, seconds: float) -> dict[str, Result]:
    """Every engine's agreement and times on one model; an engine that fails or disagrees has a `status` that says so and no times.

    Raises EngineError when the reference itself cannot run the model.
    """
    results: dict[str, Result] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        reference: list[np.ndarray] | None = None
        for name in (REFERENCE, AGAIN, *(e for e in engines if e != REFERENCE)):
            worker = Worker(REFERENCE if name == AGAIN else name, path, threads, cpus)
            stack.enter_context(worker)
            try:
                worker.ready()
                outputs = worker.run(inputs)
            except EngineError as error:
                if reference is None:
                    raise
                results[name] = {"status": f"failed: {error}"}
                continue
            reference = outputs if reference is None else reference
            error_size = difference(outputs, reference)
            agrees = error_size <= TOLERANCE
            results[name] = {"status": "ok" if agrees else "disagrees with onnxruntime", "max_rel": error_size}
            if agrees:
                workers[name] = worker
        times = _interleave(workers, inputs, rounds, seconds, results)
    base = times[REFERENCE]
    for name, samples in times.items():
        ratios = [float(np.median(b) / np.median(s)) for b, s in zip(base, samples, strict=True)]
        results[name] |= {**figures(samples), "times_ms": samples, "speedup_per_round": ratios, "speedup": float(np.median(ratios))}
    return results


def _interleave(workers: dict[str, Worker], inputs: Arrays, rounds: int, seconds: float, results: dict[str, Result]) -> dict[str, list[list[float]]]:
    """A B C A B C ...: the times of each engine by round. An engine that fails on the way is left out and marked."""
    times: dict[str, list[list[float]]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name in list(times):
            try:
                times[name].append(workers[name].time(inputs, seconds))
            except EngineError as error:
                if name == REFERENCE:
                    raise
                results[name] = {"status": f"failed: {error}"}
                del times[name]
    return times
