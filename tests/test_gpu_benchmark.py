"""benchmarks/gpu.py without a card: what is measured, in which order, what is kept, and what the samples say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import gpu
from benchmarks.card import lean, measured, programs
from benchmarks.card.crew import LATE, Crew
from benchmarks.card.engines import ENGINES, Running, environment
from benchmarks.card.summary import Item, geometric_mean, items, lines, missing_items, rows, together
from benchmarks.card.worker import Worker
from benchmarks.contest.folded import folded
from benchmarks.models import build
from benchmarks.models.net import Net
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.errors import BackendError
from einnet.search.settings import Settings
from tests.models import TINY, random_inputs, tiny, two_layers
from tests.runtime.cuda.programs import reference, worst
from tests.runtime.cuda.standin import install


def entry(engine: str, hot: list[float], again: int = 0, right: bool = True, math: str = "fp32") -> dict[str, object]:
    more = {"cold": [2 * t for t in hot], "burst": [t / 2 for t in hot], "right": right}
    return {"model": "m", "batch": 1, "math": math, "engine": engine, "again": again, "hot": hot, **more}


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


class Played:
    """Engines that answer at once, and what they were asked. `missing` are reasons by engine, `slow` those that take all their time."""

    def __init__(self, missing: Mapping[str, str] | None = None, slow: Sequence[str] = ()) -> None:
        self.missing, self.slow = missing or {}, slow
        self.log: list[tuple[str, str]] = []
        self.given: list[float] = []

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self, item: Item, seconds: float) -> dict[str, Any]:
        self.log.append(("prepare", item.engine))
        self.given.append(seconds)
        if item.engine in self.slow:
            return {"missing": f"{LATE} {seconds:.0f} s"}
        return {"missing": self.missing[item.engine]} if item.engine in self.missing else {"error": 0.0, "right": True, "versions": {}}

    def sample(self, item: Item, state: str, count: int) -> dict[str, Any]:
        self.log.append((state, item.engine))
        return {"seconds": [1.0] * count}

    def drop(self, item: Item) -> None:
        self.log.append(("drop", item.engine))


def test_engines_of_a_row_are_prepared_first_and_sampled_by_turns():
    (row,) = together(items(["m"], [1], ["fp32"], ["einnet", "torch", "xla"]))
    played = Played({"xla": "not installed: jax"})
    found = gpu.measured(row, played, 60, 60)
    assert {i.engine: e.get("missing") for i, e in found.items()} == {"einnet": None, "torch": None, "xla": "not installed: jax"}
    assert [e for what, e in played.log if what == "prepare"] == ["einnet", "torch", "xla"], "ours is prepared once for both parts"
    turns = [e for what, e in played.log if what == "hot"]
    assert turns[:6] == ["einnet", "torch", "einnet", "torch", "einnet", "einnet"], "another engine begins each turn"
    for state, count in gpu.EACH_TURN.items():
        assert all(len(e[state]) == gpu.TURNS * count for e in found.values() if "missing" not in e)


def test_the_file_is_written_after_every_row_and_gone_on_with(monkeypatch, tmp_path):
    install(monkeypatch)
    out, crews = tmp_path / "r.json", []

    def crew(programs: Path) -> Played:
        crews.append(Played())
        return crews[-1]

    monkeypatch.setattr(gpu, "Crew", crew)
    wanted = items(["m", "n"], [1], ["fp32"], ["einnet", "torch"])

    def interrupted(row, crew, left, each, measured=gpu.measured):
        if row[0].model == "n":
            assert len(json.loads(out.read_text())["entries"]) == 3
            raise KeyboardInterrupt
        return measured(row, crew, left, each)

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "measured", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gpu.run(wanted, tmp_path, out, 60)
    data = gpu.run(wanted, tmp_path, out, 60)
    assert [(e["model"], e["engine"], e["again"]) for e in data["entries"]] == [(i.model, i.engine, i.again) for i in wanted]
    assert [e for what, e in crews[-1].log if what == "prepare"] == ["einnet", "torch"], "what was measured is not measured again"
    assert gpu.run(wanted, tmp_path, out, 0) == data
    install(monkeypatch, versions=1)
    assert gpu.run(wanted, tmp_path, out, 0)["entries"] == [], "another version, another file"


def test_what_the_end_cuts_short_is_left_for_the_next_call_and_what_takes_too_long_is_not(monkeypatch, tmp_path):
    install(monkeypatch)
    played = Played(slow=("torch", "xla"))
    monkeypatch.setattr(gpu, "Crew", lambda programs: played)
    wanted = items(["m"], [1], ["fp32"], ["torch", "xla"])
    assert gpu.run(wanted, tmp_path, tmp_path / "r.json", seconds=30, each=60)["entries"] == []
    assert len(gpu.run(wanted, tmp_path, tmp_path / "r.json", seconds=60, each=5)["entries"]) == 2
    assert played.given[0] <= 30 and played.given[2:] == [5, 5]


def test_what_fails_says_why(tmp_path):
    with Crew(tmp_path) as crew:
        found = crew.prepare(Item("conv3x3", 1, "fp32", "einnet"), 120)
    assert "conv3x3-b1-fp32-derived.lean" in found["missing"]


def test_a_process_that_hangs_or_ends_is_begun_anew(tmp_path, monkeypatch):
    program = """
import sys, time, os
for line in sys.stdin:
    if "SLOW" in line: time.sleep(60)
    if "DIE" in line: os._exit(5)
    print('{"right": true}', flush=True)
"""
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: begin([sys.executable, "-c", program], **more))
    with Crew(tmp_path) as crew:
        assert crew.prepare(Item("SLOW", 1, "fp32", "torch"), 0.5) == {"missing": f"{LATE} 0 s"}
        assert crew.prepare(Item("DIE", 1, "fp32", "torch"), 20) == {"missing": "its process ended with 5"}
        assert crew.prepare(Item("m", 1, "fp32", "torch"), 20) == {"right": True}


def test_an_engine_that_is_not_installed_says_so(tmp_path):
    if importlib.util.find_spec("jax") is not None:
        pytest.skip("jax is installed")
    found = Worker(tmp_path).answer({"do": "prepare", "item": asdict(Item("conv3x3", 1, "fp32", "xla"))})
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


class Here(Crew):
    """All engines in this process."""

    def __init__(self, programs: Path) -> None:
        self.worker = Worker(programs)

    def __exit__(self, *_: object) -> None:
        pass

    def drop(self, item: Item) -> None:
        pass

    def ask(self, item: Item, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return self.worker.answer({**request, "item": asdict(item)})


def test_the_whole_flow_on_stand_ins(monkeypatch, tmp_path, capsys):
    """Prepared, measured by turns, written, told: with libraries that compute on the processor in place of a card's."""
    for place in ("benchmarks.gpu", "benchmarks.card.worker"):
        monkeypatch.setattr(f"{place}.build", lambda name, batch: two_layers())
    monkeypatch.setattr("benchmarks.card.engines.FLUSH", 1 << 16)
    out, folder = tmp_path / "r.json", tmp_path / "programs"
    assert gpu.main(["dcgan", "--math", "fp32", "--prepare", str(folder), "--time-budget", "1", "--max-depth", "1"]) == 0
    made = sorted(p.name for p in folder.iterdir() if p.suffix != ".json")
    assert made == ["dcgan-b1-fp32-derived.lean", "dcgan-b1-fp32-plain.lean", "dcgan-b1.npz"]
    install(monkeypatch)
    if importlib.util.find_spec("torch") is not None:
        torch_here(monkeypatch)
    monkeypatch.setattr(gpu, "Crew", Here)
    assert gpu.main(["dcgan", "--math", "fp32", "--programs", str(folder), "-o", str(out)]) == 0
    found = json.loads(out.read_text())["entries"]
    assert [(e["engine"], e["again"]) for e in found] == [*((name, 0) for name in ENGINES), ("einnet", 1)]
    measured = [e for e in found if not e.get("missing", "").startswith("not installed")]
    assert {e["engine"] for e in measured} >= {"einnet", "einnet_no_derive"}
    assert all(e["right"] and e["error"] < 1e-5 for e in measured)
    assert all(len(e[state]) == count * gpu.TURNS for e in measured for state, count in gpu.EACH_TURN.items())
    ours = found[0]
    assert {*ours["hot"]} == {*ours["cold"]} and ours["hot"][0] == pytest.approx(ours["burst"][0]), "what the flush takes is not the engine's"
    assert "hot: ms of one graph replay" in capsys.readouterr().out


def test_weights_are_computed_again_from_the_model(tmp_path):
    """A program that travels without what is computed of weights is the program that was made."""
    model = tiny("conv3x3")
    found = optimize_cuda(model, Settings(backend="cuda", allow="precision", time_budget=4, max_depth=3))
    lean.write(tmp_path / "p.lean", found.executable.made, False, found.report["settings"]["channels_last"])
    again = lean.read(tmp_path / "p.lean", model)
    assert again == found.program
    assert found.program.constants
    assert (tmp_path / "p.lean").stat().st_size < sum(values.nbytes for values in found.program.constants.values()) / 4
    assert all(np.array_equal(again.constants[name], values) for name, values in found.program.constants.items())
    other = build("conv3x3", seed=1, **TINY["conv3x3"])
    changed = lean.read(tmp_path / "p.lean", other)
    assert any(not np.array_equal(changed.constants[name], values) for name, values in found.program.constants.items())


def test_filters_in_another_order_are_moved_again_from_the_model(tmp_path):
    model = build("conv3x3", channels=64)
    found = optimize_cuda(model, Settings(backend="cuda", derive=False, allow="precision", time_budget=1), math="tf32")
    assert any(name.startswith("cuda:") for name in found.program.constants)
    lean.write(tmp_path / "p.lean", found.executable.made, True, found.report["settings"]["channels_last"])
    again = lean.read(tmp_path / "p.lean", model)
    assert all(np.array_equal(again.constants[name], values) for name, values in found.program.constants.items())
    assert (tmp_path / "p.lean").stat().st_size < sum(values.nbytes for values in found.program.constants.values()) / 4


@pytest.mark.parametrize("name", ["dcgan", "resnet18"])
def test_batch_norms_are_folded(name):
    model = tiny(name)
    plain = folded(model)
    assert any(n.op_type == "BatchNormalization" for n in model.graph.node)
    assert not any(n.op_type == "BatchNormalization" for n in plain.graph.node)
    onnx.checker.check_model(plain)
    inputs = random_inputs(model)
    assert worst(reference(plain, inputs), reference(model, inputs)) < 1e-5


def test_a_batch_norm_whose_input_others_read_stays():
    net = Net("two_readers", 0)
    y = net.conv(net.input("x", (1, 4, 6, 6)), "conv", 4, 3)
    model = net.finish(net.add(net.batch_norm(y, "norm"), y, "sum"))
    assert [n.op_type for n in folded(model).graph.node] == ["Conv", "BatchNormalization", "Add"]


def test_weights_in_16_bits_are_made_again_of_the_model(tmp_path):
    model = two_layers(rows=256, width=1024)
    found = optimize_cuda(model, Settings(backend="cuda", derive=False, allow="precision", time_budget=1), math="bf16")
    short = [n for n, p in found.program.places.items() if p.constant and p.dtype == "bf16"]
    assert short
    lean.write(tmp_path / "p.lean", found.executable.made, True, found.report["settings"]["channels_last"])
    assert (tmp_path / "p.lean").stat().st_size < 1 << 16
    again = lean.read(tmp_path / "p.lean", model)
    assert all(np.array_equal(again.constants[n], x) and again.constants[n].dtype == x.dtype for n, x in found.program.constants.items())


def test_references_of_a_batch_are_those_of_its_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "build", lambda name, batch: tiny(name, batch=batch))
    model = tiny("infogan", batch=3)
    inputs = random_inputs(model)
    (found,) = programs.expected(tmp_path, Item("infogan", 3, "fp32", "einnet"), model, inputs)
    (wanted,) = reference(model, inputs).values()
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    (kept,) = programs.expected(tmp_path, Item("infogan", 3, "bf16", "einnet"), None, {})
    assert np.array_equal(kept, found)


def test_predicted_times_stand_beside_measured_ones_of_the_same_program(tmp_path):
    item = Item("dcgan", 1, "fp32", "einnet")
    assert gpu.foretold(tmp_path, item) == {}
    report = {
        "predicted_us": 30.0,
        "launches": 3,
        "steps": [{"kernel": "a", "us": 10.0, "from": "record"}, {"kernel": "b", "us": 20.0, "from": "law"}],
    }
    programs.program_of(tmp_path, item).with_suffix(".json").write_text(json.dumps(report))
    assert gpu.foretold(tmp_path, item) == {"predicted_us": 30.0, "steps": 2, "recorded": 1, "launches": 3}
    assert gpu.foretold(tmp_path, Item("dcgan", 1, "fp32", "torch")) == {}
    ours = {**entry("einnet", [50e-6]), **gpu.foretold(tmp_path, item), "model": "dcgan", "error": 1e-6}
    other = {**entry("xla", [150e-6]), "model": "dcgan", "error": 1e-6}
    page = measured.told({"card": {"name": "A card", "cuda": "13", "driver": "580"}, "entries": [ours, other]})
    assert "| dcgan | 50.0 | 25.0 | 150.0 | 3.00 | 1e-06 |" in page
    assert "| dcgan | 1 | fp32 | 25.0 | 30 | 1.20 | 2 | 1 |" in page
    assert "0 of 1 are within 15 %" in page


def test_what_takes_long_is_sampled_less_often():
    spans = []

    def burst(count: int) -> float:
        spans.append(count)
        return 0.06

    worker = Worker(Path("."))
    item = Item("m", 1, "fp32", "torch")
    worker.running[item] = Running(list, lambda: None, lambda: burst(1), burst, {})
    assert worker.sample(item, "hot", 5) == [0.06]
    assert worker.sample(item, "burst", 1) == [0.06]
    assert spans == [1, 1, 1, 1]
