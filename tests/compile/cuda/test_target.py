"""`optimize_cuda`: derived programs for a device that is not there, checked on the host."""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import einnet
from benchmarks.models import build
from einnet.cli import main
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.errors import BackendError, UsageError
from einnet.evidence.certificate import proofs
from einnet.instantiate.kernels import Conv, Matmul
from einnet.runtime import child
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.archive import load
from einnet.runtime.cuda.program import Generated
from einnet.search.settings import Settings
from tests.compile.cuda.test_artifacts import WIDE
from tests.models import random_inputs, tiny, two_layers
from tests.runtime.cuda.programs import reference, worst
from tests.runtime.cuda.standin import install
from tests.runtime.cuda.test_models import SEVEN

PROFILE = Path(__file__).parents[3] / "profiles" / "h200.json"


def test_the_same_profile_gives_the_same_program(tmp_path):
    model, settings = tiny("convtranspose"), Settings(backend="cuda", max_depth=2, time_budget=60)
    first, again = (optimize_cuda(model, settings, PROFILE) for _ in range(2))
    assert first.report["verification"]["passed"]
    assert first.program == again.program
    assert first.report["profile"] == "estimate"
    assert first.report["totals"]["optimized_predicted_ms"] <= first.report["totals"]["original_predicted_ms"]
    assert load(first.save(tmp_path / "p")) == first.program
    stored = einnet.load(tmp_path / "p")
    assert stored.report["totals"] == first.report["totals"]
    assert len(stored.report["kernels"]) == len(first.program.steps)
    assert stored.certificate == first.certificate
    assert all(proofs(e.derivation) == e.proofs for e in stored.certificate.entries)


def test_a_slow_machine_finds_the_same(monkeypatch):
    model, settings = tiny("convtranspose"), Settings(backend="cuda", max_depth=2, time_budget=1)
    first = optimize_cuda(model, settings, PROFILE)
    monkeypatch.setattr(time, "monotonic", count(0.0, 1e3).__next__)
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=time.perf_counter, sleep=time.sleep))  # the compiler's limit is a limit of real time
    slow = optimize_cuda(model, settings, PROFILE)
    assert slow.program == first.program
    assert slow.report["states"] == first.report["states"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVEN)
def test_derived_programs_of_the_seven_models(name):
    model = tiny(name)
    found = optimize_cuda(model, Settings(backend="cuda", max_depth=3, time_budget=40, allow="precision"))
    inputs = random_inputs(model)
    assert found.report["verification"]["passed"]
    assert worst(found.on_host(inputs), reference(model, inputs)) < 1e-3


@pytest.mark.slow
def test_transposed_convolutions_become_products():
    found = optimize_cuda(build("infogan"), Settings(backend="cuda", max_depth=4, time_budget=60), PROFILE)
    assert found.report["changed"] > 0
    assert found.report["verification"]["passed"]
    assert found.report["totals"]["optimized_predicted_ms"] < found.report["totals"]["original_predicted_ms"]


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    onnx.save(two_layers(), tmp_path / "m.onnx")
    report = tmp_path / "r.json"
    model = str(tmp_path / "m.onnx")
    arguments = ["optimize", model, "--backend", "cuda", "--profile", str(PROFILE), "--no-derive", "--json", str(report)]
    assert main([*arguments, "-o", str(tmp_path / "p.einnet")]) == 0
    out = capsys.readouterr().out
    assert "nothing was measured" in out
    assert ", 0 of 2 subprograms changed\n" in out
    assert json.loads(report.read_text())["verification"]["on"] == "host"
    assert main(["explain", str(tmp_path / "p.einnet")]) == 0
    assert "for NVIDIA H200" in capsys.readouterr().out
    assert main(["optimize", model, "--profile", str(PROFILE)]) == 2
    assert "--backend cuda" in capsys.readouterr().err


def test_the_door_for_cuda_refuses_a_processor():
    with pytest.raises(UsageError, match="not for cpu"):
        optimize_cuda(two_layers(), Settings())


@pytest.mark.parametrize("wrong", [{"target": "onnx"}, {"cpu": "x86-64-v3"}, {"memory_limit": 1000}])
def test_what_is_about_a_processor_is_refused(wrong):
    with pytest.raises(UsageError, match="do not go with backend cuda"):
        optimize_cuda(two_layers(), Settings(backend="cuda", **wrong))


def test_a_stored_program_runs_and_keeps_what_was_chosen(tmp_path, capsys, monkeypatch):
    model = two_layers()
    inputs, path = random_inputs(model), tmp_path / "p"
    optimize_cuda(model, Settings(backend="cuda", derive=False)).save(path)
    given = [x for name, value in inputs.items() for x in ("--input", f"{name}={saved(tmp_path / 'in.npy', value)}")]
    command = ["run", str(path), *given, "--output-dir", str(tmp_path), "--keep-tuning"]
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main(command) == 2
    assert "pip install cupy" in capsys.readouterr().err
    install(monkeypatch)
    assert main(command) == 0
    stored = einnet.load(path)
    assert [t.math for t in stored.tunings] == ["fp32"]
    assert worst(stored(inputs), reference(model, inputs)) < 1e-5
    assert stored.device.tuned == 0, "what was chosen is not chosen again"
    assert worst(stored.on_host(inputs), reference(model, inputs)) < 1e-5
    assert stored.report["backend"] == "cuda"
    assert main([*command, "--math", "tf32"]) == 0
    assert sorted(t.math for t in einnet.load(path).tunings) == ["fp32", "tf32"]


def saved(path: Path, value: np.ndarray) -> Path:
    np.save(path, value)
    return path


def refusing(bad: set[str]):
    """A compiler that refuses some texts."""
    return lambda texts, *more: ((name, BackendError("NVRTC ends with signal 11") if name in bad else b"code") for name in texts)


def test_a_kernel_that_the_compiler_refuses_is_searched_around(monkeypatch):
    """What cannot be compiled costs infinitely much: the next search has another program, of a library's kernel here."""
    model, settings = tiny("conv3x3"), Settings(backend="cuda", max_depth=1, time_budget=4)
    monkeypatch.setattr(nvrtc, "available", lambda: None)
    monkeypatch.setattr(nvrtc, "compiled_or_refused", refusing(set()))
    first = optimize_cuda(model, settings, PROFILE)
    sums = {s.text for s in first.program.steps if isinstance(s, Generated) and "Σ" in str(s.operator.scope)}
    assert sums
    monkeypatch.setattr(nvrtc, "compiled_or_refused", refusing(sums))
    second = optimize_cuda(model, settings, PROFILE)
    assert not sums & second.program.texts.keys()
    assert second.report["verification"]["passed"]


def test_where_nothing_can_be_compiled_it_says_why(monkeypatch):
    monkeypatch.setattr(nvrtc, "available", lambda: None)
    monkeypatch.setattr(nvrtc, "compiled_or_refused", lambda texts, *more: ((name, BackendError("NVRTC ends with signal 11")) for name in texts))
    with pytest.raises(BackendError, match="NVRTC ends with signal 11"):
        optimize_cuda(tiny("fsrcnn"), Settings(backend="cuda", derive=False), PROFILE)


def test_a_program_in_tf32_says_so_runs_so_and_is_verified_with_its_bound(tmp_path, capsys):
    model = two_layers(**WIDE)
    onnx.save(model, tmp_path / "m.onnx")
    made = optimize_cuda(model, Settings(backend="cuda", derive=False, time_budget=1), math="tf32")
    made.save(tmp_path / "p.einnet")
    stored = einnet.load(tmp_path / "p.einnet")
    assert {k.factors.name for k in stored.plan.kernels if isinstance(k, (Conv, Matmul))} == {"tf32"}
    assert made.record.verification.tolerance == 8 * 2.0**-11
    inputs = random_inputs(model)
    strict = optimize_cuda(model, Settings(backend="cuda", derive=False, time_budget=1))
    apart = worst(stored.on_host(inputs), strict.on_host(inputs))
    assert 2.0**-16 < apart < 8 * 2.0**-11, "the host rounds as the card does"
    assert main(["verify", str(tmp_path / "m.onnx"), str(tmp_path / "p.einnet")]) == 0
    out = capsys.readouterr().out
    assert "round their factors to tf32" in out and "allowed 0.00390" in out
