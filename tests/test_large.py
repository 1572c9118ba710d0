"""The chains of many nodes are what they are said to be, and a row tells how far a run went beyond its budget."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from benchmarks import large
from benchmarks.large import NODES, SIZES, Size, Taken, model, one, taken
from einnet.errors import BackendError
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque

OPTIONS = argparse.Namespace(time_budget=8.0, threads=1)


def test_a_chain_has_its_nodes_and_no_two_blocks_share_weights() -> None:
    chain = model(Size(3, 8, 12))
    assert len(chain.graph.node) == 3 * NODES
    assert {name: size.blocks * NODES for name, size in SIZES.items()} == {name: int(name) for name in SIZES}
    matrices = [w.name for w in chain.graph.initializer if len(w.dims) == 2]
    assert len(matrices) == 6
    assert not [n for n in load(chain).nodes if isinstance(n, Opaque)]


def test_a_row_tells_seconds_and_memory_beside_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is told the budget and the threads, and writes a report; what it took is told as a share of the budget and of the model."""
    monkeypatch.setitem(SIZES, "36", Size(3, 8, 12))
    asked: list[list[str]] = []

    def command(arguments: list[str]) -> Taken:
        asked.append(arguments)
        totals = {"onnxruntime_ms": 1.0, "optimized_ms": 0.5, "noise": 0.01}
        report = {
            "totals": totals, "verification": {"passed": True, "max_rel": 0.0, "tolerance": 1e-4}, "subprograms": [], "runs": "cpu",
            "certificate": {"derivations": 0, "steps": 0}, "threads": 1, "settings": {"time_budget": 8.0}, "stages": [],
        }  # fmt: skip
        with open(arguments[arguments.index("--json") + 1], "w") as file:
            json.dump(report, file)
        return Taken(0, [], 10.0, 51_200, 2_000_000)

    monkeypatch.setattr(large, "taken", command)
    row = one("36", OPTIONS)
    assert asked[0][asked[0].index("--time-budget") + 1] == "8.0" and asked[0][-2:] == ["--threads", "1"]
    assert (row["nodes"], row["seconds"], row["of_the_budget"]) == (36, 10.0, 1.25)
    assert row["passed"] and row["peak_mb"] == 0 and row["of_the_model"] > 1
    assert row["together_mb"] == 2 and row["together_of_the_model"] > row["of_the_model"]


def test_a_command_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "36", Size(3, 8, 12))
    monkeypatch.setattr(large, "taken", lambda command: Taken(2, ["first", "no oneDNN here"], 1.0, 1, 1))
    with pytest.raises(BackendError, match="no oneDNN here"):
        one("36", OPTIONS)


def test_what_a_command_wrote_and_how_it_ended_is_told() -> None:
    found = taken([sys.executable, "-c", "import sys; print('a\\nb'); sys.exit(3)"])
    assert (found.code, found.lines) == (3, ["a", "b"])
    assert found.seconds > 0


def test_memory_is_that_of_the_command() -> None:
    """And not of commands before it. Asked in a small process: tests may hold more than the command."""
    asked = """
import sys
from benchmarks.large import taken
large = "b = b'x' * 300_000_000"
two = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); {large}; time.sleep(2)"
for program in (large, "pass", two):
    found = taken([sys.executable, "-c", program, large + "; import time; time.sleep(2)"])
    print(found.held, found.together)
"""
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    (large, alone), (small, _), (half, both) = ([int(n) for n in line.split()] for line in told.splitlines())
    assert small < 200_000_000 < 300_000_000 < large <= alone < 400_000_000
    assert 300_000_000 < half < 400_000_000 < 600_000_000 < both
