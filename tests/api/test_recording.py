"""`einnet profile`: which kernels are asked for, and what is written of their times; on stand-ins for the card, whose clock counts work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from einnet.cli import main
from einnet.expr.nodes import Tensor
from einnet.expr.text import parse
from einnet.instantiate.kernels import Conv, EOperator, Matmul, View, dense_view
from einnet.runtime.cuda import profile, record
from einnet.runtime.cuda.costs import CudaCost
from einnet.runtime.cuda.profile import H200, key, load
from tests.models import two_layers
from tests.runtime.cuda.standin import install


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a search of a small model asks for, written without a card."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(record, "card", lambda math: H200.card)
    monkeypatch.setitem(sys.modules, "cupy", None)
    onnx.save(two_layers(), tmp_path / "m.onnx")
    path = tmp_path / "requests.json"
    assert main(["profile", "--requests", str(tmp_path / "m.onnx"), "-o", str(path), "--list", "--max-depth", "1", "--time-budget", "20"]) == 0
    return path


def test_without_a_card_it_says_so_and_writes_nothing(requests, tmp_path, capsys):
    assert main(["profile", "--requests", str(requests), "-o", str(tmp_path / "p.json")]) == 2
    assert "pip install cupy" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


def test_times_are_recorded_once(requests, tmp_path, monkeypatch, capsys):
    card, out = install(monkeypatch), tmp_path / "p.json"
    command = ["profile", "--requests", str(requests), "-o", str(out)]
    assert main(command) == 0
    found = load(out)
    count = len(json.loads(requests.read_text())["kernels"])
    assert (found.measured, found.device, len(found.seconds), dict(found.failed)) == (True, "Stand-in", count, {})
    assert all(len(d["hot"]) == len(d["cold"]) == 3 for d in found.details.values())
    assert found.properties["multiProcessorCount"] == 132
    assert not list(tmp_path.glob(".*partial"))
    text, card.log[:] = out.read_text(), []
    assert main(command) == 0
    assert out.read_text() == text
    assert card.log.count("fill") == 0, "something was measured again"
    install(monkeypatch, versions=1)
    assert main(command) == 0
    assert load(out).versions != found.versions


def test_a_search_reads_what_was_recorded(requests, tmp_path, monkeypatch):
    install(monkeypatch)
    out = tmp_path / "p.json"
    main(["profile", "--requests", str(requests), "-o", str(out)])
    report = tmp_path / "r.json"
    command = ["optimize", str(tmp_path / "m.onnx"), "--backend", "cuda", "--profile", str(out), "--no-derive", "--json", str(report)]
    assert main(command) == 0
    assert json.loads(report.read_text())["profile"] == "measured"
    assert not any(k["estimated"] for k in json.loads(report.read_text())["kernels"])


def test_hot_and_cold_are_told_apart(monkeypatch):
    """The stand-in's matmul costs 1 ms after tuning, hot and cold: what the flush takes is not the kernel's."""
    install(monkeypatch)
    found = record.timed(Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8))), "fp32")
    assert found["hot"].median == pytest.approx(1e-3)
    assert found["cold"].median == pytest.approx(1e-3)


def test_filters_are_constants_and_what_cannot_run_has_its_reason(monkeypatch):
    install(monkeypatch)
    conv = Conv(dense_view("x", (1, 4, 5, 5)), dense_view("w", (1, 6, 4, 3, 3)), dense_view("y", (1, 6, 5, 5)), (1, 1), (1, 1), (1, 1), (1, 1))
    assert {b.name: b.role for b in record.plan_of(conv).buffers} == {"x": "input", "w": "constant", "y": "output"}
    monkeypatch.setattr("tests.runtime.cuda.standin.dnn.PLANS", ())
    kept: list[profile.Profile] = []
    found = record.record(profile.Profile("d", H200.card, True), [conv], kept.append)
    assert kept == [found]
    assert "cuDNN has no fp32 plan" in found.failed[key(conv)]
    assert CudaCost(found).seconds(conv) == float("inf")


def test_time_that_is_over_leaves_the_rest_out(monkeypatch):
    install(monkeypatch)
    product = Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8)))
    assert not record.record(profile.Profile("d", H200.card, True), [product], lambda found: None, until=0.0).seconds


def test_the_cards_figures_are_positive(monkeypatch):
    install(monkeypatch)
    monkeypatch.setattr(record, "timed", lambda kernel, math: {"hot": record.summarize([1e-3])})
    found = record.card("fp32")
    assert found.peak == pytest.approx(2 * 4096**3 / 1e-3)
    assert min(found.bandwidth, found.host_bandwidth, found.launch, found.wait) > 0


@pytest.mark.parametrize("text", ["", "{}", '{"requests": 9, "kernels": []}', '{"requests": 1, "kernels": [{"kind": "dance"}]}'])
def test_files_that_are_no_requests(text, tmp_path, capsys):
    (tmp_path / "r.json").write_text(text)
    assert main(["profile", "--requests", str(tmp_path / "r.json"), "-o", str(tmp_path / "p.json"), "--list"]) == 2
    assert "holds no requests" in capsys.readouterr().err


def test_the_processor_is_not_profiled_so(tmp_path, capsys):
    assert main(["profile", "--backend", "cpu", "--requests", "x", "-o", str(tmp_path / "p.json")]) == 2
    assert "measures a CUDA card" in capsys.readouterr().err


def test_kernels_in_place_are_given_what_they_overwrite():
    scope = parse("L[i<8] relu(A[i])", {"A": Tensor("A", (8,))})
    plan = record.plan_of(EOperator(scope, (("A", View("x", (8,), (1,), 4)),), View("x", (8,), (1,), 4)))
    assert [name for name, _ in plan.inputs] == [name for name, _ in plan.outputs] == ["x"]
    assert plan.buffers[0].size == 12
