"""The comparison with other engines: agreement before time, interleaving, failures that stay local, and the torch translation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

import benchmarks.contest.compare as contest
from benchmarks.contest import cores, table
from benchmarks.contest.case import summary
from benchmarks.contest.compare import AGAIN, REFERENCE, Effort, Place, compare, difference, figures, noise, outputs_of, ratios
from benchmarks.contest.results import Results
from benchmarks.contest.worker import Engine, EngineError, Worker
from tests.docs.blocks import ROOT
from tests.models import TINY, random_inputs, tiny

RESULTS = ROOT / "benchmarks" / "results"
CPU = sorted(os.sched_getaffinity(0))[:1]
PLACE = Place(1, tuple(CPU))
EFFORT = Effort(rounds=2, seconds=0.01, least=2)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    model = tiny("small")
    onnx.save(model, tmp_path / "small.onnx")
    return tmp_path / "small.onnx", random_inputs(model)


def test_difference_is_relative_to_the_largest_output():
    reference = [np.array([10.0, -20.0]), np.array([1.0])]
    assert difference(reference, reference) == 0
    assert difference([np.array([10.0, -20.5]), np.array([1.0])], reference) == pytest.approx(0.025)
    assert difference([np.array([10.0, -20.0]), np.array([1.1])], reference) == pytest.approx(0.1)
    assert difference([np.array([10.0, np.nan]), np.array([1.0])], reference) == np.inf
    assert difference([np.array([10.0]), np.array([1.0])], reference) == np.inf


def test_figures_pool_rounds_and_spread_their_medians():
    found = figures([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0]])
    assert found["median_ms"] == 2.0
    assert found["p20_ms"] == 1.0
    assert found["spread_ms"] == pytest.approx(0.8)


def test_worker_runs_and_times_in_its_own_process(small):
    path, inputs = small
    with Worker(REFERENCE, path, 1, CPU) as worker:
        worker.ready()
        expected = onnxruntime.InferenceSession(str(path)).run(None, inputs)
        assert difference(worker.run(inputs), expected) < 1e-5
        times, share = worker.time(inputs, 0.01)
        assert worker.memory(inputs) > sum(x.nbytes for x in inputs.values())
    assert min(times) > 0
    assert share >= 0
    assert not worker.process.is_alive()


def test_worker_reports_what_the_engine_refused(tmp_path: Path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with Worker(REFERENCE, tmp_path / "bad.onnx", 1, CPU) as worker, pytest.raises(EngineError, match="Protobuf"):
        worker.ready()


def test_memory_beyond_the_limit_is_the_reason(tmp_path: Path):
    onnx.save(tiny("longformer", sequence=4096, window=256, heads=4, hidden=256), tmp_path / "large.onnx")
    inputs = random_inputs(onnx.load(tmp_path / "large.onnx"))
    with Worker(REFERENCE, tmp_path / "large.onnx", 1, CPU, 1 << 30) as worker:
        worker.ready()
        with pytest.raises(EngineError, match="more than the 1 GB of memory"):
            worker.run(inputs)


def small_engines(path: Path, *names: str) -> list[Engine]:
    return [Engine(name, name, path) for name in names]


def test_reference_is_timed_against_itself_and_a_refusing_engine_is_marked(small):
    path, inputs = small
    reference = outputs_of(small_engines(path, REFERENCE)[0], inputs, PLACE)
    results = compare(small_engines(path, "einnet", REFERENCE), inputs, reference, PLACE, EFFORT)
    assert len(results[REFERENCE]["times_ms"]) == 2
    assert len(results[AGAIN]["times_ms"]) == 2
    assert results[AGAIN]["max_rel"] == 0
    assert results["einnet"]["status"].startswith("failed: ArtifactError")


def test_an_engine_that_disagrees_is_not_timed(small):
    path, inputs = small
    reference = outputs_of(small_engines(path, REFERENCE)[0], inputs, PLACE)
    results = compare(small_engines(path, REFERENCE), inputs, [2 * y for y in reference], PLACE, EFFORT)
    assert results[REFERENCE]["status"] == "disagrees with onnxruntime"
    assert "times_ms" not in results[REFERENCE]


def test_scarce_memory_leaves_one_process_at_a_time(small, monkeypatch):
    path, inputs = small
    monkeypatch.setattr(contest, "free_memory", lambda: 1 << 20)
    started: list[int] = []

    class Counted(Worker):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            started.append(1)

    monkeypatch.setattr(contest, "Worker", Counted)
    reference = [np.asarray(y) for y in onnxruntime.InferenceSession(str(path)).run(None, inputs)]
    results = compare(small_engines(path, REFERENCE), inputs, reference, PLACE, EFFORT)
    assert len(started) == 2 + 2 * 2  # both are admitted, then each starts anew in two rounds
    assert len(results[AGAIN]["times_ms"]) == 2


def test_ratios_and_noise_are_those_of_rounds():
    base, other = [[2.0, 2.0], [4.0], [6.0]], [[1.0], [2.0], [3.0]]
    assert ratios(base, other) == [2.0, 2.0, 2.0]
    assert noise(base, base) == 0.01
    assert noise(base, other) == pytest.approx(1.0)


def made(name: str, median: float, agrees: bool = True) -> dict[str, object]:
    if not agrees:
        return {"status": "disagrees with onnxruntime", "max_rel": 1.0, "memory_bytes": 1}
    figure = {"median_ms": median, "p20_ms": median, "spread_ms": 0.1}
    return {"status": "ok", "max_rel": 0.0, "memory_bytes": 7, **figure, "times_ms": [[median], [2 * median]]}


def test_entry_has_the_faster_layout_and_the_reasons_of_what_is_missing():
    results = {
        "onnxruntime": made("onnxruntime", 4.0), AGAIN: made(AGAIN, 4.1), "torch": made("torch", 9.0), "torch-nhwc": made("torch-nhwc", 3.0),
        "openvino": made("openvino", 1.0, agrees=False), "einnet": made("einnet", 2.0),
    }  # fmt: skip
    entry = summary(results, {"einnet_no_derive": "no program"}, gflop=0.1, peak=100.0)
    assert entry["median_ms"] == {"onnxruntime": 4.0, "torch": 3.0, "einnet": 2.0}
    assert entry["chosen"] == {"torch": "torch-nhwc"}
    assert entry["missing"] == {"openvino": "disagrees with onnxruntime", "einnet_no_derive": "no program"}
    assert (entry["best_baseline"], entry["speedup"]) == ("torch", entry["median_ms"]["torch"] / entry["median_ms"]["einnet"])
    assert entry["share_of_peak"]["einnet"] == pytest.approx(0.5)
    assert entry["noise"] == pytest.approx(0.1 / 4.1, rel=0.1)


def test_ratios_that_are_printed_follow_from_the_columns_beside_them():
    for path in RESULTS.glob("*.json"):
        held = json.loads(path.read_text(encoding="utf-8"))
        for entry in held.get("models", []) if isinstance(held, dict) else []:
            if isinstance(entry, dict) and entry.get("best_baseline"):
                times = entry["median_ms"]
                assert entry["speedup"] == pytest.approx(times[entry["best_baseline"]] / times["einnet"]), (path.name, entry["model"])


def entry_of(model: str, threads: int = 2) -> dict[str, object]:
    entry = summary({"onnxruntime": made("", 4.0), AGAIN: made("", 4.0), "einnet": made("", 5.0)}, {}, gflop=0.1, peak=100.0)
    return {"model": model, "batch": 1, "threads": threads, "gflop": 0.1, **entry}


def test_an_unfinished_run_goes_on_and_a_finished_one_starts_anew(tmp_path: Path):
    path, machine = tmp_path / "r.json", {"cpu": "one", "cores": 2, "peak_gflops": {}}
    first = Results(path, machine, {"rounds": 3})
    first.put(entry_of("a"))
    first.put(entry_of("b"))
    again = Results(path, machine, {"rounds": 3})
    assert again.has(("a", 1, 2))
    assert not again.has(("a", 1, 1))
    assert not Results(path, machine, {"rounds": 4}).has(("a", 1, 2))
    assert not Results(path, {**machine, "cpu": "two"}, {"rounds": 3}).has(("a", 1, 2))
    again.finish()
    later = Results(path, machine, {"rounds": 3})
    assert later.data["run"]["complete"] is False
    assert len(later.data["models"]) == 2
    assert json.loads(path.read_text())["models"][0]["median_ms"]["onnxruntime"] == 4.0


def test_table_and_figure_come_from_the_data_alone(tmp_path: Path):
    data = {"machine": {"cpu": "one", "cores": 2, "peak_gflops": {"2": 100.0}}, "models": [entry_of("a"), entry_of("b", threads=1)]}
    assert "4*" in table.text(data)
    assert "a b1 t2: slower than onnxruntime: 0.80x" in table.markdown(data)
    pytest.importorskip("matplotlib")
    from benchmarks.contest.plot import plot

    plot(data, tmp_path / "f.svg")
    assert "batch 1" in (tmp_path / "f.svg").read_text() or (tmp_path / "f.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", TINY)
def test_torch_translation_agrees(name):
    torch = pytest.importorskip("torch")
    from benchmarks.contest.torch_model import to_torch

    model = tiny(name)
    inputs = random_inputs(model)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for layout in (torch.contiguous_format, torch.channels_last):
        with torch.inference_mode():
            results = to_torch(model, layout)(*map(torch.from_numpy, inputs.values()))
        assert difference([y.numpy() for y in results], expected) < 1e-5


def test_torch_translation_names_what_it_does_not_know():
    pytest.importorskip("torch")
    from benchmarks.contest.torch_model import to_torch
    from tests.models import with_opaque

    with pytest.raises(ValueError, match="LpNormalization 'running': no torch translation"):
        to_torch(with_opaque())


def test_rounds_wait_for_cores_that_are_near_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so long; where they come apart in a round, that does not count."""
    slept: list[float] = []
    clock = {"now": 0.0}
    monkeypatch.setattr(cores.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(cores.time, "sleep", lambda s: slept.append(s) or clock.__setitem__("now", clock["now"] + s))
    answers = iter([True, True, False])
    assert cores.near(SimpleNamespace(apart=lambda: next(answers)), 5.0) and len(slept) == 2
    assert not cores.near(SimpleNamespace(apart=lambda: True), 1.0)
    assert clock["now"] == pytest.approx(1.0 + 2 * cores.BETWEEN_S)


def test_a_look_at_the_cores_is_tried_until_it_tells() -> None:
    """A thread that was woken is on the core of the other one for a while, and the probe is 0 until it is moved."""
    answers = iter([0.0, 0.0, 0.0, 3e-5, 4e-5])
    assert cores.told(lambda: next(answers)) == 3e-5
    asked: list[int] = []
    assert cores.told(lambda: asked.append(1) or 0.0) == 0.0 and len(asked) == cores.TRIES
