"""The comparison with other engines: agreement before time, interleaving, failures that stay local, and the torch translation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.baselines.compare import AGAIN, REFERENCE, compare, difference, figures
from benchmarks.baselines.engines import ENGINES, version
from benchmarks.baselines.worker import EngineError, Worker
from tests.models import TINY, random_inputs, tiny

CPU = sorted(os.sched_getaffinity(0))[:1]


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
        times = worker.time(inputs, 0.01)
    assert len(times) >= 3
    assert min(times) > 0
    assert not worker.process.is_alive()


def test_worker_reports_what_the_engine_refused(tmp_path: Path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with Worker(REFERENCE, tmp_path / "bad.onnx", 1, CPU) as worker, pytest.raises(EngineError, match="Protobuf"):
        worker.ready()


def test_reference_is_timed_against_itself_and_a_refusing_engine_is_marked(small):
    path, inputs = small
    absent = next((name for name in ENGINES if not version(name)), None)
    results = compare(path, inputs, [absent] if absent else [], 1, CPU, rounds=2, seconds=0.01)
    assert len(results[REFERENCE]["times_ms"]) == 2
    assert results[REFERENCE]["speedup"] == 1.0
    assert len(results[AGAIN]["speedup_per_round"]) == 2
    assert results[AGAIN]["max_rel"] == 0
    if absent:
        assert results[absent]["status"].startswith("failed: ModuleNotFoundError")


@pytest.mark.parametrize("name", TINY)
def test_torch_translation_agrees(name):
    torch = pytest.importorskip("torch")
    from benchmarks.baselines.torch_model import to_torch

    model = tiny(name)
    inputs = random_inputs(model)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for layout in (torch.contiguous_format, torch.channels_last):
        with torch.inference_mode():
            results = to_torch(model, layout)(*map(torch.from_numpy, inputs.values()))
        assert difference([y.numpy() for y in results], expected) < 1e-5


def test_torch_translation_names_what_it_does_not_know():
    pytest.importorskip("torch")
    from benchmarks.baselines.torch_model import to_torch
    from tests.models import with_opaque

    with pytest.raises(ValueError, match="CumSum 'running': no torch translation"):
        to_torch(with_opaque())
