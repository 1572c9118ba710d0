"""Stored programs for a CUDA device without one: explained, proven again, run by the host driver, bisected, explored; written the same each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from benchmarks.models import SEVEN
from einnet.cli import main
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.instantiate.kernels import Conv
from einnet.runtime.cuda import archive
from einnet.runtime.cuda.program import Gemm
from einnet.search.settings import Settings
from tests.models import random_inputs, tiny, two_layers
from tests.runtime.cuda.programs import reference, worst
from tests.runtime.cuda.standin import install

ROOT = Path(__file__).parents[3]
H200 = ROOT / "profiles/h200.json"
WIDE = {"rows": 256, "width": 1024}
"""Of layers that a library computes faster than generated code does."""

NOT_ON_A_CARD = "run on the processor, by the host driver: not on a card"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a derived program of it."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(tiny("convtranspose", channels=448, features=128), folder / "m.onnx")
    found = optimize_cuda(folder / "m.onnx", Settings(backend="cuda", max_depth=2, time_budget=10.0, allow="precision"), H200)
    assert found.report["changed"] > 0
    return folder / "m.onnx", found.save(folder / "p.einnet")


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Path, Path]:
    """A model of two products, and its own operators as a program."""
    onnx.save(two_layers(**WIDE), tmp_path / "m.onnx")
    return tmp_path / "m.onnx", optimize_cuda(two_layers(**WIDE), Settings(backend="cuda", derive=False)).save(tmp_path / "p.einnet")


def test_explain_tells_every_step_and_every_derivation(made, tmp_path, capsys):
    _, path = made
    assert main(["explain", str(path), "--json", str(tmp_path / "e.json")]) == 0
    out, told, program = capsys.readouterr().out, json.loads((tmp_path / "e.json").read_text()), einnet.load(path).program
    assert "for NVIDIA H200" in out
    assert "nothing was measured (~)" in out
    assert "not on a card: passed" in out
    assert len(told["steps"]) == len(program.steps)
    for n, (row, step) in enumerate(zip(told["steps"], program.steps, strict=True)):
        launches = getattr(step, "launches", ())
        assert [(tuple(g["grid"]), tuple(g["block"])) for g in row["grids"]] == [(x.grid, x.block) for x in launches]
        assert row["bytes"] > 0
        (line,) = [text for text in out.splitlines() if text.split()[:1] == [str(n)] and row["by"] in text]
        assert f"{row['bytes'] / 1e6:.3g}" in line
        assert f"~{row['predicted_ms']:.3g}" in line
    changed = [s for s in told["subprograms"] if s["changed"]]
    assert changed
    assert all(s["derivation"]["steps"] for s in changed)
    assert all(f"Derivation {n}. " in out for n in range(1, len(changed) + 1))
    assert {row["key"] for row in told["steps"]} >= {s["key"] for s in changed}


def test_explain_all_and_why_not(made, capsys):
    assert main(["explain", str(made[1]), "--all"]) == 0
    assert "Derivation 2" in capsys.readouterr().out
    assert main(["explain", str(made[1]), "--why-not", "bilinear"]) == 0
    assert "bilinear" in capsys.readouterr().out


def test_explain_names_the_algorithms_that_were_chosen(plain, capsys, monkeypatch):
    _, path = plain
    assert main(["explain", str(path)]) == 0
    calls = sum(isinstance(s, (Gemm, Conv)) for s in einnet.load(path).program.steps)
    assert calls
    assert f"the algorithm of {calls} library calls is chosen by time on the card" in capsys.readouterr().out
    install(monkeypatch)
    stored = einnet.load(path)
    stored(random_inputs(two_layers(**WIDE)))
    stored.keep_tuning()
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert "is chosen by time" not in out
    assert out.count(f"({stored.device.tuning.device}, fp32)") == calls


def test_verify_proves_and_compares_on_the_host_and_says_so(made, tmp_path, capsys):
    assert main(["verify", *map(str, made), "--json", str(tmp_path / "v.json")]) == 0
    out, verdict = capsys.readouterr().out, json.loads((tmp_path / "v.json").read_text())
    assert NOT_ON_A_CARD in out
    assert out.startswith("passed\n")
    assert verdict["lifting"]["proven"] == verdict["lifting"]["subprograms"] and verdict["kernels"]["problems"] == []
    assert verdict["certificate"]["steps"] > 0
    assert not verdict["certificate"]["problems"]
    assert 0 <= verdict["verification"]["max_rel"] < 1e-3


def test_verify_runs_on_the_card_where_there_is_one(plain, capsys, monkeypatch):
    install(monkeypatch)
    assert main(["verify", *map(str, plain)]) == 0
    out = capsys.readouterr().out
    assert "not on a card" not in out
    assert "(fp32)" in out


def test_verify_rejects_other_weights_and_another_model(made, tmp_path, capsys):
    _, path = made
    onnx.save(tiny("convtranspose", channels=448, features=128, seed=1), tmp_path / "other.onnx")
    assert main(["verify", str(tmp_path / "other.onnx"), str(path)]) == 1
    assert capsys.readouterr().out.startswith("FAILED\n")
    onnx.save(two_layers(**WIDE), tmp_path / "another.onnx")
    assert main(["verify", str(tmp_path / "another.onnx"), str(path)]) in (1, 2)


def test_a_derivation_that_does_not_hold_is_rejected(made, tmp_path, capsys):
    model, path = made
    kept = archive.read(path)
    wrong = ["w1[c-1".join(text.rsplit("w1[c", 1)) for text in kept.derivations]
    assert all(w != text for w, text in zip(wrong, kept.derivations, strict=True))
    archive.write(tmp_path / "bad.einnet", replace(kept, derivations=tuple(wrong)))
    assert main(["check", str(tmp_path / "bad.einnet")]) == 1
    assert "derivation 1" in capsys.readouterr().err
    assert main(["verify", str(model), str(tmp_path / "bad.einnet")]) == 1
    assert main(["check", str(path)]) == 0
    assert "steps hold" in capsys.readouterr().out


def test_bisect_finds_what_moves_the_result(made, tmp_path, capsys):
    assert main(["bisect", *map(str, made), "--json", str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())
    assert [s["nodes"] for s in found["subprograms"]] == [s["nodes"] for s in einnet.load(made[1]).report["subprograms"] if s["changed"]]
    assert all(0 < s["moved"] < 1e-3 for s in found["subprograms"])
    assert "of max|y|" in capsys.readouterr().out


def test_bisect_refuses_where_nothing_was_derived(plain, capsys):
    assert main(["bisect", *map(str, plain)]) == 2
    assert "nothing in it was derived" in capsys.readouterr().err


def test_explore_shows_the_steps_and_repeats_the_search(made, tmp_path):
    page = tmp_path / "x.html"
    assert main(["explore", str(made[1]), "-o", str(page), "--time-budget", "5"]) == 0
    text = page.read_text()
    assert "NVIDIA H200" in text
    assert "generated" in text
    assert 'data-open-key="' in text


def test_run_by_the_host_driver(made, tmp_path, capsys):
    model, path = made
    inputs = random_inputs(onnx.load(model))
    given = []
    for name, value in inputs.items():
        np.save(tmp_path / f"{name}.npy", value)
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    assert main(["run", str(path), *given, "--host", "--output-dir", str(tmp_path / "out")]) == 0
    assert NOT_ON_A_CARD in capsys.readouterr().out
    wanted = reference(onnx.load(model), inputs)
    assert worst({n: np.load(tmp_path / "out" / f"{n}.npy") for n in wanted}, wanted) < 1e-3
    assert main(["run", str(path), *given, "--host", "--keep-tuning"]) == 2
    assert "--host runs on none" in capsys.readouterr().err


def test_a_program_without_a_report_can_only_be_run(made, tmp_path, capsys):
    model, path = made
    archive.save(tmp_path / "bare.einnet", archive.load(path))
    for command in (["explain"], ["verify", str(model)], ["bisect", str(model)], ["check"], ["explore"]):
        assert main([*command, str(tmp_path / "bare.einnet")]) == 2
        assert "no report of an optimization" in capsys.readouterr().err


def timeless(value: object) -> object:
    """A report without what it tells of the time that its making took, and of where the model lay."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "search_s", "model")}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def written(model: Path, folder: Path, hash_seed: int, *options: str) -> tuple[bytes, object]:
    """The artifact and the report of a process of its own."""
    folder.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(hash_seed), "EINNET_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "einnet", "optimize", os.path.relpath(model, folder), "--backend", "cuda", "--quiet", *options]
    command += ["--profile", str(H200), "-o", "p.einnet", "--json", "r.json"]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    return (folder / "p.einnet").read_bytes(), timeless(json.loads((folder / "r.json").read_text()))


def test_another_process_writes_the_same_bytes(made, tmp_path):
    model, path = made
    data, _ = written(model, tmp_path / "a", 1, "--max-depth", "2", "--time-budget", "10", "--allow", "precision")
    assert data == path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVEN)
def test_another_process_writes_the_same_bytes_for_each_model(name, tmp_path):
    """And what was written is read as the same program, and written again as the same bytes."""
    onnx.save(tiny(name), tmp_path / "m.onnx")
    options = ("--time-budget", "6", "--allow", "precision")
    first = written(tmp_path / "m.onnx", tmp_path / "a", 1, *options)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:  # less of the machine for the second
        try:
            second = written(tmp_path / "m.onnx", tmp_path / "b" / "c", 2, *options)
        finally:
            busy.kill()
    assert first == second
    path = tmp_path / "a" / "p.einnet"
    kept = archive.read(path)
    archive.write(tmp_path / "again.einnet", kept)
    assert (tmp_path / "again.einnet").read_bytes() == path.read_bytes()
    assert archive.load(tmp_path / "again.einnet") == kept.program
