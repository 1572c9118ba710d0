"""Models of many nodes: whether the time budget of a run holds, and how much memory it takes beside the model's own.

    python -m benchmarks.large [504 3000] [--time-budget 60] [-o benchmarks/results/large.json]

A model is a chain of residual blocks, each with weights of its own: the norm of its input by primitive operators, a product, an activation and a
product. The seconds are those of the whole command `einnet optimize`, which begins a process, reads the file and writes an artifact; memory is
the most that its process held at once, and the most that it and those that it began held together. Exit code 1 where a program is not verified.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models.net import Net, Value
from benchmarks.verified import Row, command, run, told
from einnet.errors import BackendError

ROWS = 32
"""Of the input: what the products have in common."""

NODES = 12
"""Of a block."""

WATCH_S = 0.02
"""Seconds between two looks at the memory of all processes of a command."""


@dataclass(frozen=True)
class Size:
    """Blocks, and the columns of their inputs and of what stands between their products."""

    blocks: int
    columns: int
    inner: int


SIZES = {"504": Size(42, 640, 2048), "3000": Size(250, 320, 704)}
"""Models by their number of nodes; of each the weights take about 450 MB."""


def block(net: Net, x: Value, name: str, inner: int, activation: str) -> Value:
    """x + activation((x - mean) / deviation · W1 + b) · W2, written out."""
    columns, one = x.shape[-1], (*x.shape[:-1], 1)

    def node(op: str, part: str, inputs: list[Value], shape: tuple[int, ...]) -> Value:
        return net.node(op, f"{name}.{part}", inputs, shape)

    last, epsilon = net.constant("last", np.array([-1])), net.constant("epsilon", np.array(1e-5, np.float32))
    centred = node("Sub", "centred", [x, node("ReduceMean", "mean", [x, last], one)], x.shape)
    variance = node("ReduceMean", "variance", [node("Mul", "squared", [centred, centred], x.shape), last], one)
    deviation = node("Sqrt", "deviation", [node("Add", "above_zero", [variance, epsilon], one)], one)
    normal = node("Div", "normal", [centred, deviation], x.shape)
    wide = (*x.shape[:-1], inner)
    first = net.normal(f"{name}.first", (columns, inner), columns**-0.5)
    biased = node("Add", "biased", [node("MatMul", "widened", [normal, first], wide), net.normal(f"{name}.bias", (inner,), 0.1)], wide)
    active = node(activation, "active", [biased], wide)
    narrow = node("MatMul", "narrowed", [active, net.normal(f"{name}.second", (inner, columns), inner**-0.5)], x.shape)
    return node("Add", "added", [narrow, x], x.shape)


def model(size: Size) -> onnx.ModelProto:
    """The chain."""
    net = Net(f"chain of {size.blocks} blocks", 0)
    x = net.input("x", (1, ROWS, size.columns))
    for n in range(size.blocks):
        x = block(net, x, f"block{n}", size.inner, ("Relu", "Sigmoid")[n % 2])
    return net.finish(x)


def write(size: Size, path: Path) -> None:
    """The file of a model."""
    onnx.save(model(size), path)


@dataclass(frozen=True)
class Taken:
    """The exit code of a command, the lines that it wrote, its seconds, the bytes that one process of it held at most, and all of them together."""

    code: int
    lines: list[str]
    seconds: float
    held: int
    together: int


def taken(command: Sequence[str]) -> Taken:
    """What a command takes.

    The system tells no less memory than that of the process that starts a command, which therefore holds no model.
    """
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        most, ended = [0], threading.Event()
        watching = threading.Thread(target=watch, args=(process.pid, most, ended))
        watching.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds, process.returncode = time.monotonic() - begin, os.waitstatus_to_exitcode(status)
        ended.set()
        watching.join()
        said.seek(0)
        held = usage.ru_maxrss * 1024
        return Taken(process.returncode, said.read().strip().splitlines(), seconds, held, max(held, most[0]))


def watch(number: int, most: list[int], ended: threading.Event) -> None:
    """Keep the most bytes that a process and those below it hold; what they share, their libraries, is counted for each."""
    while not ended.wait(WATCH_S):
        most[0] = max(most[0], sum(map(resident, family(number))))


def family(number: int) -> Iterator[int]:
    """The process and those below it, as far as they have not ended."""
    yield number
    with suppress(OSError):
        for path in Path(f"/proc/{number}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from family(int(child))


def resident(number: int) -> int:
    """Bytes that a process holds; 0 where it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def one(name: str, options: argparse.Namespace) -> Row:
    """Optimize a model by the command. Raises BackendError with what it says where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        source, report = Path(folder) / "model.onnx", Path(folder) / "report.json"
        made = multiprocessing.get_context("spawn").Process(target=write, args=(SIZES[name], source))
        made.start()
        made.join()
        arguments = ["optimize", str(source), "--time-budget", str(options.time_budget), "-o", f"{folder}/out.einnet", "--json", str(report)]
        threads = ["--threads", str(options.threads)] if options.threads else []
        took = taken([sys.executable, "-m", "einnet", *arguments, *threads])
        if took.code:
            raise BackendError((took.lines or ["no message"])[-1])
        found, size = json.loads(report.read_text()), source.stat().st_size
        return {
            **told(found), "nodes": NODES * SIZES[name].blocks, "seconds": round(took.seconds, 1),
            "of_the_budget": round(took.seconds / options.time_budget, 2), "model_mb": round(size / 1e6), "peak_mb": round(took.held / 1e6),
            "of_the_model": round(took.held / size, 2), "together_mb": round(took.together / 1e6),
            "together_of_the_model": round(took.together / size, 2), "stages": found.get("stages"),
        }  # fmt: skip


def main() -> int:
    return run(command(__doc__.splitlines()[0] if __doc__ else "", tuple(SIZES), "large.json", 60.0).parse_args(), tuple(SIZES), one)


if __name__ == "__main__":
    sys.exit(main())
