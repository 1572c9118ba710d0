"""benchmarks/gpu.py without a card: what is measured, in which order, what is kept, and what the samples say."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.card.engines import ENGINES, environment
from benchmarks.card.summary import Item, geometric_mean, items, lines, missing_items, rows
from einnet.errors import BackendError
from tests.models import two_layers
from tests.runtime.cuda.standin import install


def entry(engine: str, hot: list[float], again: int = 0, right: bool = True, math: str = "fp32") -> dict[str, object]:
    return {"model": "m", "batch": 1, "math": math, "engine": engine, "again": again, "hot": hot, "cold": [2 * t for t in hot], "right": right}


def test_a_row_is_measured_together_and_ours_twice():
    found = items(["a", "b"], [1], ["fp32", "tf32"], ["einnet", "torch"])
    assert [(i.model, i.math, i.engine, i.again) for i in found[:4]] == [
        ("a", "fp32", "einnet", 0), ("a", "fp32", "torch", 0), ("a", "fp32", "einnet", 1), ("b", "fp32", "einnet", 0),
    ]  # fmt: skip
    assert len(found) == 12


def test_what_was_measured_is_not_measured_again():
    wanted = items(["m"], [1], ["fp32"], ["einnet", "torch"])
    assert missing_items(wanted, [entry("einnet", [1.0])]) == wanted[1:]


def test_operator_cases_have_their_own_batch():
    found = gpu.published(items(["conv3x3", "convtranspose", "dcgan"], [1, 2], ["fp32"], ["torch"]))
    assert [(i.model, i.batch) for i in found] == [("conv3x3", 1), ("convtranspose", 16), ("dcgan", 1), ("dcgan", 2)]


def test_ratios_are_against_the_best_that_is_right():
    entries = [
        entry("einnet", [1e-3, 2e-3, 3e-3]), entry("einnet_no_derive", [1e-4]), entry("torch", [6e-3]), entry("torch-nhwc", [4e-3]),
        entry("inductor", [1e-3], right=False), entry("einnet", [2.2e-3], again=1),
    ]  # fmt: skip
    (row,) = rows(entries, "hot")
    assert row["best"] == "torch-nhwc"
    assert row["speedup"] == pytest.approx(2)
    assert row["noise"] == pytest.approx(0.1)
    assert "inductor" not in row["ms"]
    assert rows(entries, "cold")[0]["ms"]["einnet"] == pytest.approx(4)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert "fp32: geometric mean 2.00x" in "\n".join(lines(entries))


def test_a_row_without_ours_or_without_others_compares_nothing():
    assert rows([entry("torch", [1.0])], "hot")[0]["speedup"] is None
    assert rows([entry("einnet", [1.0])], "hot")[0]["speedup"] is None
    assert geometric_mean([]) is None
    assert "no comparison" in "\n".join(lines([entry("torch", [1.0])]))


def test_strict_float32_forbids_tf32_to_all_libraries():
    assert environment("fp32")["NVIDIA_TF32_OVERRIDE"] == "0"
    assert environment("tf32")["NVIDIA_TF32_OVERRIDE"] == "1"


def test_without_a_card_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gpu.main(["dcgan", "-o", str(tmp_path / "r.json")]) == 2
    assert "pip install cupy" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()
    with pytest.raises(BackendError):
        gpu.properties()


def test_the_file_is_written_after_every_item_and_gone_on_with(monkeypatch, tmp_path):
    install(monkeypatch)
    out, seen = tmp_path / "r.json", []

    def fake(item: Item, programs: Path, seconds: float) -> dict[str, object]:
        assert len(json.loads(out.read_text())["entries"]) == len(seen) if seen else not out.exists()
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(item)
        return {"hot": [1.0], "cold": [1.0], "right": True}

    monkeypatch.setattr(gpu, "apart", fake)
    wanted = items(["m"], [1], ["fp32"], ["einnet", "torch", "inductor"])
    with pytest.raises(KeyboardInterrupt):
        gpu.run(wanted, tmp_path, out, 60)
    assert len(json.loads(out.read_text())["entries"]) == 2
    monkeypatch.setattr(gpu, "apart", lambda item, programs, seconds: {"missing": "no"})
    data = gpu.run(wanted, tmp_path, out, 60)
    assert [e.get("missing") for e in data["entries"]] == [None, None, "no", "no"]
    assert gpu.run(wanted, tmp_path, out, 0) == data
    install(monkeypatch, versions=1)
    assert gpu.run(wanted, tmp_path, out, 0)["entries"] == [], "another version, another file"


def test_what_the_end_cuts_short_is_left_for_the_next_call_and_what_takes_too_long_is_not(monkeypatch, tmp_path):
    install(monkeypatch)
    given: list[float] = []

    def late(item: Item, programs: Path, seconds: float) -> dict[str, object]:
        given.append(seconds)
        return {"missing": f"{gpu.LATE} {seconds:.0f} s"}

    monkeypatch.setattr(gpu, "apart", late)
    wanted = items(["m"], [1], ["fp32"], ["torch", "xla"])
    assert gpu.run(wanted, tmp_path, tmp_path / "r.json", seconds=30, each=60)["entries"] == []
    assert len(gpu.run(wanted, tmp_path, tmp_path / "r.json", seconds=60, each=5)["entries"]) == 2
    assert given[0] <= 30 and given[1:] == [5, 5]


def test_what_fails_says_why(tmp_path):
    found = gpu.apart(Item("infogan", 1, "fp32", "einnet"), tmp_path, 60)
    assert "cannot be read" in found["missing"]


def test_an_engine_that_is_not_installed_says_so(tmp_path):
    if importlib.util.find_spec("jax") is not None:
        pytest.skip("jax is installed")
    found = gpu.apart(Item("infogan", 1, "fp32", "xla"), tmp_path, 60)
    assert found["missing"] == "not installed: jax"
    row = "\n".join(lines([entry("einnet", [1.0]), {**entry("xla", []), **found}]))
    assert "xla not installed" in row


def torch_here(patch: pytest.MonkeyPatch) -> None:
    """torch's calls for a card on the processor: the run that is captured has computed, replaying does nothing, every launch takes 1 ms."""
    torch = pytest.importorskip("torch")
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda end: 1.0)
    calls = {
        "Event": lambda enable_timing: event, "Stream": lambda: None, "stream": lambda side: nullcontext(), "synchronize": lambda: None,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None), "graph": lambda graph: nullcontext(),
    }  # fmt: skip
    for name, value in calls.items():
        patch.setattr(torch.cuda, name, value)
    patch.setattr(torch.nn.Module, "cuda", lambda module: module)
    patch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    patch.setattr(torch, "compile", lambda module, mode: module)
    patch.setattr(torch.backends.cudnn, "benchmark", False)


def test_the_whole_flow_on_stand_ins(monkeypatch, tmp_path, capsys):
    """Prepared, measured engine by engine, written after each, told: with libraries that compute on the processor in place of a card's."""
    monkeypatch.setattr(gpu, "build", lambda name, batch: two_layers())
    monkeypatch.setattr("benchmarks.card.engines.FLUSH", 1 << 16)
    out, programs = tmp_path / "r.json", tmp_path / "programs"
    assert gpu.main(["dcgan", "--math", "fp32", "--prepare", str(programs), "--time-budget", "1", "--max-depth", "1"]) == 0
    assert sorted(p.name for p in programs.iterdir()) == ["dcgan-b1-derived.einnet", "dcgan-b1-plain.einnet", "dcgan-b1.npz"]
    install(monkeypatch)
    torch_here(monkeypatch)

    def here(item: Item, folder: Path, seconds: float) -> dict[str, object]:
        try:
            return gpu.measure(item, folder)
        except ModuleNotFoundError as error:
            return {"missing": f"not installed: {error.name}"}

    monkeypatch.setattr(gpu, "apart", here)
    assert gpu.main(["dcgan", "--math", "fp32", "--programs", str(programs), "-o", str(out)]) == 0
    found = json.loads(out.read_text())["entries"]
    assert [(e["engine"], e["again"]) for e in found] == [*((name, 0) for name in ENGINES), ("einnet", 1)]
    measured = [e for e in found if not e.get("missing", "").startswith("not installed")]
    assert len(measured) >= 7
    assert all(e["right"] and len(e["hot"]) == len(e["cold"]) == gpu.SAMPLES for e in measured)
    assert "hot: ms of one graph replay" in capsys.readouterr().out


def test_our_programs_are_prepared_and_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu, "build", lambda name, batch: two_layers())
    assert gpu.main(["dcgan", "--prepare", str(tmp_path), "--engines", "einnet_no_derive", "torch"]) == 0
    assert [p.name for p in tmp_path.glob("*.npz")] == ["dcgan-b1.npz"]
    assert [p.name for p in tmp_path.glob("*.einnet")] == ["dcgan-b1-plain.einnet"]
    install(monkeypatch)
    item = Item("dcgan", 1, "fp32", "einnet_no_derive")
    found = gpu.measure(item, tmp_path)
    assert found["right"]
    assert found["error"] < 1e-5
    assert len(found["hot"]) == len(found["cold"]) == gpu.SAMPLES
    assert found["hot"] == found["cold"], "what the flush takes is not the engine's"

