"""Parts of a program are accepted one by one: what gains nothing in its place runs as the model has it."""

from __future__ import annotations

import numpy as np
import pytest

import einnet
from benchmarks.models.net import Net
from einnet.compile.targets.cpu import acceptance as accept
from einnet.compile.targets.cpu import contest as decide
from einnet.compile.targets.cpu.acceptance import InPlace, Rounds, by_part, surely_gain, weighed
from einnet.errors import BackendError
from einnet.evidence.comparison.verify import Trial
from einnet.instantiate.kernels import Conv, Matmul
from einnet.runtime import capacity
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.objects import OBJECTS, Objects
from einnet.runtime.cpu.roofline import flops
from einnet.runtime.ort import Baseline
from einnet.runtime.timing import Comparison
from tests.models import random_inputs


def liked(self, kernels, until=float("inf")):
    """Costs by which products are derived wherever they can be."""
    return [1e-6 if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]


def compared(self, programs, seconds):
    """Times by which a program without the parts that lose is the fastest."""
    given = {"onnxruntime": 9.0, "original": 3.0, "optimized": 2.0, "mixed": 1.0}
    rounds = Comparison({name: (given[name],) * 5 for name in ("onnxruntime", *programs)}, (9.0,) * 5)
    return {**rounds.timings, "noise": rounds.noise, "rounds": rounds, "once": False}


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory):
    """A program in which several distinct subprograms are changed, and its model."""
    net = Net("two_windows", 0)
    x = net.relu(net.conv(net.input("x", (1, 4, 6, 6)), "first", 6, 3, pad=1), "relu")
    model = net.finish(net.conv(x, "second", 5, 3, pad=1))
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(folder))
        patch.setattr(CpuCost, "measured", liked)
        patch.setattr(CpuCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
        patch.setattr(CpuCost, "estimates", liked)
        patch.setattr(decide, "slower", lambda times: False)
        patch.setattr(decide, "weighed", lambda *_: InPlace())
        result = einnet.optimize(model, time_budget=20, max_depth=1, threads=1, fresh=True)
    assert len({r.subprogram.key for r in result.outcome.results if r.changed}) > 1
    return model, result, folder


def test_every_kernel_belongs_to_a_part(derived):
    outcome = derived[1].outcome
    for original in (False, True):
        plan, owners = outcome.assemble(original)
        assert len(owners) == len(plan.kernels)
        assert set(owners) <= {r.subprogram.output.name for r in outcome.results}
    assert by_part([1.0, 2.0, 4.0], ["a", "b", "a"]) == {"a": 5.0, "b": 2.0}


def test_both_programs_run_and_each_part_is_weighed(derived, monkeypatch):
    outcome, objects = derived[1].outcome, Objects(1, derived[2] / OBJECTS)
    changed = {r.subprogram.key for r in outcome.results if r.changed}
    assert weighed(outcome, objects, 0.0).losers <= changed
    monkeypatch.setattr(accept, "in_turns", lambda programs, until: [[[2.0] * len(p.plan.kernels)] * 8 for p in programs])
    counted = dict.fromkeys(changed, 0)
    for sign, original in ((1, False), (-1, True)):
        names = {r.subprogram.output.name: r.subprogram.key for r in outcome.results if r.changed}
        for owner in outcome.assemble(original)[1]:
            if owner in names:
                counted[names[owner]] += sign
    found = weighed(outcome, objects, 0.0)
    assert found.losers == {key for key, more in counted.items() if more >= 0}
    assert found.gains == any(more < 0 for more in counted.values())
    monkeypatch.setattr(capacity, "available_bytes", lambda: 0)
    assert weighed(outcome, objects, 0.0) == InPlace(), "both do not fit into memory"


def in_rounds(part: float, rest: float, noise: float, seed: int) -> Rounds:
    """Twelve rounds of a program of three kernels: two of part `a`, and one that is noisy by so many times what it takes."""
    rng = np.random.default_rng(seed)
    return Rounds([(part / 2, part / 2 * (1 + 0.01 * rng.random()), rest * (1 + noise * rng.random())) for _ in range(12)], ["a", "a", "b"])


def test_what_surely_gains_in_its_place_is_told_from_the_noise_of_the_rest():
    own = in_rounds(1.0, 10.0, 3.0, 1)
    assert surely_gain({"a"}, in_rounds(0.9, 10.0, 3.0, 1), own), "the whole is noisier than the gain, and the parts are not"
    assert not surely_gain({"a"}, in_rounds(0.998, 10.0, 0.0, 1), in_rounds(1.0, 10.0, 0.0, 1)), "within a hundredth"
    assert not surely_gain({"a"}, in_rounds(1.1, 10.0, 0.0, 1), in_rounds(1.0, 10.0, 0.0, 1))
    assert not surely_gain({"a"}, in_rounds(0.9, 10.06, 0.0, 1), in_rounds(1.0, 10.0, 0.0, 1)), "the rest loses more than half of it"
    assert surely_gain({"a"}, in_rounds(0.9, 10.04, 0.0, 1), in_rounds(1.0, 10.0, 0.0, 1))
    assert not surely_gain(set(), own, own)
    assert surely_gain({"a"}, Rounds([[1.0]] * 12, ["b"]), Rounds([[0.5, 1.0]] * 12, ["a", "b"])), "a part that became a view"
    assert not surely_gain({"a"}, Rounds([[0.5, 1.0]] * 12, ["a", "b"]), Rounds([[1.0]] * 12, ["b"])), "a part that was one"


def test_a_program_without_a_part_is_right_and_told_of(derived, tmp_path, monkeypatch):
    model, whole, cache = derived
    victim = next(r.subprogram.key for r in whole.outcome.results if r.changed)
    monkeypatch.setenv("EINNET_CACHE", str(cache))
    monkeypatch.setattr(CpuCost, "measured", liked)
    monkeypatch.setattr(CpuCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
    monkeypatch.setattr(CpuCost, "estimates", liked)
    monkeypatch.setattr(decide, "weighed", lambda *_: InPlace(frozenset({victim})))
    monkeypatch.setattr(decide, "CONTEST_RUNS", 0)
    monkeypatch.setattr(Trial, "compare", compared)
    result = einnet.optimize(model, time_budget=20, max_depth=1, threads=1, fresh=True)
    changed = {s["key"] for s in result.report["subprograms"] if s["changed"]}
    assert changed
    assert victim not in changed
    assert {e.key for e in result.certificate.entries} >= changed
    assert any("gained nothing in its place" in note for note in result.report["notes"])
    assert result.report["verification"]["passed"]
    stored = einnet.load(result.save(tmp_path / "m.einnet"))
    inputs = random_inputs(model, seed=3)
    for name, y in whole(inputs).items():
        np.testing.assert_allclose(stored(inputs)[name], y, rtol=1e-4, atol=1e-5)


def test_a_reference_that_gets_no_memory_any_more_counts_as_it_was(derived, monkeypatch, tmp_path):
    """ONNX Runtime gave the expected outputs, but cannot run beside our programs: what it took then is its time, and that is told."""
    model = derived[0]
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))

    def starved(self):
        raise BackendError("ONNX Runtime cannot run the model: no memory")

    monkeypatch.setattr(Baseline, "__call__", starved)
    result = einnet.optimize(model, time_budget=20, max_depth=1, threads=1, fresh=True)
    assert any("ONNX Runtime was timed once" in note for note in result.report["notes"])
    assert result.report["verification"]["passed"]
    assert not result.outcome.whole and result.report["totals"]["onnxruntime_ms"] > 0
