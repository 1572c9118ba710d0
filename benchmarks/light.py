"""The light topologies of the onnx package with random weights: optimized in a short time, and verified against ONNX Runtime.

    python -m benchmarks.light [light_resnet50 ...] [--time-budget 60] [-o benchmarks/results/light.json]

The package stores these networks without weights: constants of one value stand in their place. Here each of those becomes random values of a
scale that keeps activations near unit scale. Exit code 1 where a network is not verified.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.verified import Row, command, run, stored, told
from einnet.runtime.ort import Session

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = sorted(path.stem for path in LIGHT.glob("*.onnx"))
POSITIVE = {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 1)}
"""Operands that scale: operator and place."""


def randomised(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with random initialisers for its ConstantOfShape nodes; nothing of it is changed in place."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph, random = model.graph, np.random.default_rng(seed)
    sizes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    filled = {n.output[0]: tuple(int(k) for k in sizes[n.input[0]]) for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in sizes}
    kept = [n for n in graph.node if n.output[0] not in filled]
    scales = scaling(kept)
    values = {name: weight(random, shape, name in scales) for name, shape in filled.items()}
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    if model.ir_version < 4:  # before, initialisers are inputs, too
        graph.input.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in filled.items())
    return model


def scaling(nodes: list[onnx.NodeProto]) -> set[str]:
    """Values that scale others, directly or through an Unsqueeze."""
    found: set[str] = set()
    for n in reversed(nodes):
        if n.op_type == "Unsqueeze" and n.output[0] in found:
            found.add(n.input[0])
        found.update(name for place, name in enumerate(n.input) if (n.op_type, place) in POSITIVE)
    return found


def weight(random: np.random.Generator, shape: tuple[int, ...], scales: bool) -> np.ndarray:
    """Values between 0.5 and 1.5 that scale; small offsets; or a matrix or window that keeps the variance behind a ReLU."""
    if scales:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    spread = np.sqrt(2 / prod(shape[1:])) if len(shape) > 1 else 0.1
    return (spread * random.standard_normal(shape)).astype(np.float32)


def calibrated(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with the weights before its Softmax scaled to scores of unit spread: one that saturates would hide every difference."""
    nodes = {n.output[0]: n for n in model.graph.node}
    softmax = next((n for n in model.graph.node if n.op_type == "Softmax"), None)
    if softmax is None:
        return model
    last = nodes[softmax.input[0]]
    while last.op_type not in ("Gemm", "Conv"):
        last = nodes[last.input[0]]
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    probe.graph.output.append(helper.make_empty_tensor_value_info(softmax.input[0]))
    session = Session(probe.SerializeToString(), 1)
    held = {i.name for i in model.graph.initializer}
    random = np.random.default_rng(seed)
    given = {a.name: random.standard_normal(a.shape).astype(np.float32) for a in session.inputs if a.name not in held}
    spread = float(session(given)[softmax.input[0]].std())
    for i in model.graph.initializer:
        if i.name in last.input[1:]:
            i.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(i) / spread).astype(np.float32), i.name))
    return model


def one(name: str, options: argparse.Namespace) -> Row:
    """Optimize and verify one network."""
    import einnet

    with tempfile.TemporaryDirectory() as folder:
        path = stored(calibrated(randomised(onnx.load(LIGHT / f"{name}.onnx"))), folder)
        return told(einnet.optimize(path, time_budget=options.time_budget, threads=options.threads).report)


if __name__ == "__main__":
    sys.exit(run(command(__doc__ or "", NAMES, "light.json", 60.0).parse_args(), NAMES, one))
