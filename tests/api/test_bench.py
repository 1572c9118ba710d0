"""Stored programs timed again: what a ratio follows from, when nothing can be told, and inputs and programs that are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.api.bench import ROUNDS, Timed, Turn, bench, ratio
from einnet.cli.bench import lines, verdict
from einnet.errors import EinNetError, UsageError
from tests.models import two_layers


def timed(name: str, turns: list[float], waited: float = 0.0) -> Timed:
    return Timed(name, "einnet", 2, tuple(Turn((s, s, s), 6 * s, 3, waited) for s in turns))


def spread(around: float, share: float) -> list[float]:
    return [around * (1 + share * d) for d in np.linspace(-1, 1, ROUNDS)]


def told(base: Timed, ours: Timed) -> dict:
    return {"programs": [ours.as_dict(), base.as_dict()], "ratio": ratio(base, ours), "rounds": ROUNDS}


def test_the_ratio_is_that_of_the_printed_medians_and_lies_in_its_interval():
    ours, base = timed("ours", spread(1.0, 0.02)), timed("base", spread(1.5, 0.02))
    found = told(base, ours)
    assert found["ratio"]["speedup"] == pytest.approx(found["programs"][1]["ms"]["p50"] / found["programs"][0]["ms"]["p50"])
    assert found["ratio"]["low"] <= 1.5 <= found["ratio"]["high"]
    assert found["ratio"]["told"]
    assert verdict(found)[0].startswith("1.50x as fast as base (1.")


def test_what_may_be_chance_is_not_told():
    quick, slow = spread(1.0, 0.3), spread(1.05, 0.3)
    found = told(timed("base", slow[::-1]), timed("ours", quick))
    assert not found["ratio"]["told"]
    assert verdict(found)[0].startswith("no difference from base can be told: 1.05x")


def test_disturbed_turns_give_no_headline():
    found = told(timed("base", spread(2.0, 0.01)), timed("ours", spread(1.0, 0.01), waited=0.3))
    assert not found["ratio"]["told"]
    said = verdict(found)
    assert said[0].startswith("not measured well enough: about 2.00x of base")
    assert "for 30% of the time" in said[1]


def test_processor_time_and_throughput_are_of_one_call():
    found = timed("ours", [0.5] * ROUNDS).as_dict()
    assert found["calls"] == 3 * ROUNDS
    assert found["processor_ms"] == pytest.approx(1000.0)
    assert found["inferences_per_s"] == pytest.approx(2.0)


def test_a_stored_program_is_timed_beside_its_model(tmp_path, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    model = two_layers()
    onnx.save(model, tmp_path / "m.onnx")
    path = einnet.optimize(model, derive=False, time_budget=2, threads=1).save(tmp_path / "m.einnet")
    found = bench(path, tmp_path / "m.onnx", {"x": np.ones((1, 8), np.float32)}, seconds=0.2)
    assert [p["runs"] for p in found["programs"]] == ["einnet", "ONNX Runtime"]
    assert all(len(p["turns_ms"]) == ROUNDS and p["ms"]["least"] <= p["ms"]["p50"] <= p["ms"]["p99"] for p in found["programs"])
    assert "1 threads, each in a process of its own" in lines(found)[-1]
    with pytest.raises(EinNetError, match=r"absent\.onnx: there is no such file"):
        bench(path, tmp_path / "absent.onnx", seconds=0.2)
    with pytest.raises(UsageError, match="seconds must be a positive number"):
        bench(path, seconds=0)


def test_cores_that_were_apart_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    turns = (Turn((1.0,), 1.0, 1, 0.0), Turn((3.0,), 3.0, 1, 0.0, apart=True))
    told = {"programs": [Timed("p", "einnet", 2, turns).as_dict()], "seed": 0, "rounds": 2}
    assert told["programs"][0]["apart"] == 0.5
    assert "in 50% of the turns the host had put the cores" in "\n".join(lines(told))
    assert "the host" not in "\n".join(lines({**told, "programs": [Timed("p", "einnet", 2, turns[:1]).as_dict()]}))


def test_ctrl_c_in_a_terminal_ends_it_at_once_and_without_tracebacks(tmp_path):
    """Every process of a terminal gets the signal, those that are being started too."""
    onnx.save(two_layers(), tmp_path / "two.onnx")
    einnet.optimize(tmp_path / "two.onnx", derive=False, time_budget=1, threads=1).save(tmp_path / "two.einnet")
    arguments = [sys.executable, "-m", "einnet", "bench", tmp_path / "two.einnet", "--against", tmp_path / "two.onnx", "--seconds", "60"]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while len(children.read_text().split()) < 2:  # one is the standard library's own
        assert running.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)  # the other one is at its imports
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=30) == ("", "einnet: interrupted\n")
    assert running.returncode == 130
