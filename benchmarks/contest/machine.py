"""What times depend on, and the most that the machine does: the peak that shares are taken of."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contest.compare import REFERENCE, Effort, Place, compare, outputs_of
from benchmarks.contest.engines import ENGINES, family, version
from benchmarks.contest.worker import Engine
from benchmarks.models.flops import flops
from benchmarks.models.net import Net
from einnet.runtime.machine import cpu_name


def square_product(size: int = 1536) -> onnx.ModelProto:
    """One matrix product that runs at the machine's peak."""
    net = Net("square_product", 0)
    return net.finish(net.node("MatMul", "y", [net.input("x", (size, size)), net.normal("w", (size, size), 1.0)], (size, size)))


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Standard normal values for every input."""
    random = np.random.default_rng(seed)
    return {i.name: random.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in model.graph.input}


def peak_gflops(place: Place, effort: Effort) -> float:
    """GFLOP/s of a large matrix product in ONNX Runtime, the best sample."""
    model = square_product()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        onnx.save(model, path)
        engine, inputs = Engine(REFERENCE, REFERENCE, path), random_inputs(model, 0)
        found = compare([engine], inputs, outputs_of(engine, inputs, place), place, effort)
    return flops(model) / 1e6 / min(min(sample) for r in found.values() for sample in r.get("times_ms", ()))


def description() -> dict[str, Any]:
    """The processor, its memory, the system, and the versions of the engines that are installed."""
    versions = {family(name): found for name in ENGINES if (found := version(name))}
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "memory_gb": round(total / 2**30, 1),
        "system": platform.platform(), "python": platform.python_version(), "versions": versions,
    }  # fmt: skip
