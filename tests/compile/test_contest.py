"""Which program runs, by interleaved times: what is surely faster, and ONNX Runtime where nothing can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import einnet
from einnet.compile.targets.cpu import contest as decide
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.compile.targets.cpu.contest import Contest, best_of, gaining, slower_of
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.errors import UsageError
from einnet.evidence.comparison.verify import WHOLE, Trial
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from einnet.runtime.timing import Comparison, Timing
from tests.models import two_layers, two_outputs
from tests.runtime.plans import two_layers as two_layers_plan

BEHIND = decide.behind


def times(noise: float = 0.01, **medians: float) -> dict[str, object]:
    """Twenty rounds in which every program takes its time, more or less by the noise; ONNX Runtime what it takes in a program, unless told."""
    if WHOLE in medians:
        medians.setdefault("onnxruntime", medians[WHOLE])
    rng = np.random.default_rng(0)
    samples = {name: tuple(m * (1 + noise * rng.uniform(-1, 1, 20))) for name, m in medians.items()}
    rounds = Comparison(samples, tuple(next(iter(medians.values())) * (1 + noise * rng.uniform(-1, 1, 20))))
    return {**rounds.timings, "noise": rounds.noise, "rounds": rounds}


CASES = [
    ("what led stays where nothing is faster", "optimized", times(optimized=1.0, mixed=1.0)),
    ("what led stays within a hundredth", "optimized", times(0.001, optimized=1.0, mixed=0.995)),
    ("another that is surely faster", "mixed", times(optimized=1.0, mixed=0.9)),
    ("another that may be faster by chance", "optimized", times(0.3, optimized=1.0, mixed=0.97)),
    ("the whole model, faster", WHOLE, times(optimized=1.0, whole=0.9)),
    ("the whole model, slower", "optimized", times(optimized=1.0, whole=1.2)),
    ("the whole model, as fast", WHOLE, times(0.004, optimized=1.0, whole=0.998)),
    ("nothing can be told: what the user has already", WHOLE, times(0.9, optimized=1.0, whole=1.05)),
    ("much noise, and surely faster even so", "optimized", times(0.5, optimized=1.0, whole=9.0)),
    ("of three the fastest", "mixed", times(optimized=1.0, mixed=0.7, whole=0.9)),
]


def test_a_program_that_is_kept_beats_the_faster_samples_of_onnx_runtime() -> None:
    """Inside a program it is the same session: where that seems slower, other programs were in the way."""
    for session in (0.9, 1.0):
        assert best_of(["optimized", WHOLE], "optimized", times(0.01, optimized=1.0, whole=1.3, onnxruntime=session)) == WHOLE
    assert best_of(["optimized", WHOLE], "optimized", times(0.01, optimized=0.9, whole=1.3, onnxruntime=1.0)) == "optimized"
    assert best_of(["optimized", WHOLE], "optimized", times(0.01, optimized=0.9, whole=0.8, onnxruntime=1.0)) == WHOLE


@pytest.mark.parametrize(("runs", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_runs(runs: str, found: dict[str, object]) -> None:
    assert best_of([name for name in ("optimized", "mixed", WHOLE) if name in found], "optimized", found) == runs


def test_onnx_runtime_is_held_only_where_it_is_what_the_user_has_already() -> None:
    names, ahead = ["optimized", WHOLE], times(0.5, optimized=0.8, whole=1.0, onnxruntime=1.0)
    assert best_of(names, "optimized", ahead) == WHOLE
    assert best_of(names, "optimized", ahead, held=False) == "optimized"
    assert best_of(names, "optimized", times(0.01, optimized=1.0, whole=0.95), held=False) == "optimized", "by less than its calls take longer"
    assert best_of(names, "optimized", times(0.01, optimized=1.0, whole=0.85), held=False) == WHOLE
    assert best_of(names, "optimized", times(0.01, optimized=1.0, whole=0.95, onnxruntime=0.85), held=False) == "optimized"
    assert best_of(names, "optimized", times(0.5, optimized=1.1, whole=0.95), held=False) == "optimized", "by chance"


@pytest.mark.parametrize(("role", "theirs", "runs"), [("kept", 0.95, WHOLE), ("candidate", 0.95, "optimized"), ("candidate", 0.85, WHOLE)])
def test_where_there_is_no_time_to_try_it_the_reference_stands_for_it(role: str, theirs: float, runs: str) -> None:
    contest = SimpleNamespace(trial=SimpleNamespace(again_s=1e9), settings=SimpleNamespace(whole=role))
    found = {**times(optimized=1.0, onnxruntime=theirs), "runs": "optimized"}
    assert Contest.again(contest, {"optimized": None, WHOLE: None}, found, 0.0)["runs"] == runs


@pytest.mark.parametrize(("role", "runs"), [("kept", "whole model"), ("candidate", "own operators"), ("never", "own operators")])
def test_what_onnx_runtime_with_the_whole_model_is(role: str, runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(trial: Trial, programs: Mapping[str, object], seconds: float) -> dict[str, object]:
        ours = {name: (1.0,) * 12 if name == WHOLE else (0.5, 0.97, 1.5) * 4 for name in programs}
        rounds = Comparison({"onnxruntime": (1.0,) * 12, **ours}, (0.7, 1.0, 1.4) * 4)
        return {**rounds.timings, "noise": rounds.noise, "rounds": rounds, "once": None}

    monkeypatch.setattr(Trial, "compare", compare)
    monkeypatch.setattr(decide, "CONTEST_RUNS", 0)
    monkeypatch.setattr(decide, "behind", BEHIND)
    assert einnet.optimize(two_outputs(), max_depth=1, time_budget=3, threads=1, whole=role).report["runs"] == runs


def test_a_role_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="whole 'always' is not one of kept, candidate, never"):
        einnet.optimize(two_outputs(), whole="always")


NOISY_WHOLE = times(0.3, original=1.0, mixed=0.99)


def test_parts_that_surely_gain_are_not_lost_to_the_noise_of_the_whole() -> None:
    names = ["original", "mixed"]
    assert best_of(names, "original", NOISY_WHOLE) == "original"
    assert best_of(names, "original", NOISY_WHOLE, gains=True) == "mixed"
    assert best_of(names, "original", times(0.01, original=1.0, mixed=1.1), gains=True) == "original", "surely slower"
    assert best_of(["original"], "original", times(original=1.0), gains=True) == "original"
    assert best_of([*names, WHOLE], "original", times(0.01, original=1.0, mixed=0.99, whole=0.9), gains=True) == WHOLE
    noisy = times(0.3, original=1.0, optimized=1.0)
    assert gaining(InPlace(gains=True), noisy)
    assert not gaining(InPlace(), noisy)
    assert not gaining(InPlace(frozenset("a"), gains=True), noisy), "a program without what loses is made and timed"
    assert not gaining(InPlace(gains=True), times(0.01, original=1.0, optimized=1.1))


def rounds(count: int, **seconds: float) -> Comparison:
    """So many rounds, of which every third is a fifth slower for all but ONNX Runtime."""
    theirs = ("onnxruntime", WHOLE)
    samples = {name: tuple(s * (1.2 if n % 3 == 2 and name not in theirs else 1.0) for n in range(count)) for name, s in seconds.items()}
    return Comparison(samples, tuple(seconds["onnxruntime"] * (1.3 if n % 2 else 1.0) for n in range(count)))


def told(found: Comparison) -> dict[str, object]:
    return {**found.timings, "noise": found.noise, "rounds": found}


def test_the_rounds_of_both_comparisons_tell_together_what_two_rounds_do_not() -> None:
    names = ["optimized", WHOLE]
    last = told(rounds(2, onnxruntime=1.0, whole=1.01, optimized=0.85))
    before = rounds(6, onnxruntime=1.0, optimized=0.85, original=1.1)
    assert best_of(names, "optimized", last) == WHOLE, "two rounds have no spread"
    assert best_of(names, "optimized", last, earlier=before) == "optimized"
    assert best_of(names, "optimized", last, earlier=rounds(6, onnxruntime=1.0, optimized=0.99, original=1.1)) == WHOLE
    slow = told(rounds(2, onnxruntime=1.0, whole=0.7, optimized=0.85))
    assert best_of(names, "optimized", slow, earlier=rounds(2, onnxruntime=0.9, optimized=0.85)) == WHOLE
    assert best_of(names, "optimized", last, earlier=rounds(6, onnxruntime=1.0, original=1.1)) == WHOLE, "it was not there"
    faster = told(rounds(2, onnxruntime=1.0, whole=1.01, optimized=0.9, mixed=0.6))
    assert best_of([*names, "mixed"], "optimized", faster, earlier=rounds(6, onnxruntime=1.0, optimized=0.85)) == "mixed", "what led stands for it"


def test_of_two_that_are_one_thing_the_faster_sample_of_each_round_counts() -> None:
    found = Comparison({"a": (1.0, 4.0), "b": (3.0, 2.0), "c": (5.0, 6.0)}, (1.0, 1.0))
    merged = found.merged(("a", "b"), "b")
    assert dict(merged.samples) == {"b": (1.0, 2.0), "c": (5.0, 6.0)}
    both = merged.after(Comparison({"c": (7.0,), "d": (8.0,), "b": (9.0,)}, (2.0,), clean=False))
    assert (dict(both.samples), both.again, both.clean) == ({"b": (9.0, 1.0, 2.0), "c": (7.0, 5.0, 6.0)}, (2.0, 1.0, 1.0), False)


def test_what_onnx_runtime_takes_inside_a_program_is_no_less_than_what_it_takes() -> None:
    fast, slow = Timing(1.0, 0.1, 5), Timing(2.0, 0.1, 5)
    assert slower_of(fast, slow) is slower_of(slow, fast) is slow


@pytest.mark.parametrize("held_s", [0.0, 1e9], ids=["held", "loaded again"])
def test_where_the_model_runs_whole_nothing_is_gained(held_s: float, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the samples of the session and of the same session in a program fall out; a session that is kept stands for that in a program."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    monkeypatch.setattr("einnet.evidence.comparison.verify.HELD_S", held_s)
    monkeypatch.setattr("einnet.evidence.comparison.verify.HELD_SHARE", 0.0)
    monkeypatch.setattr("einnet.evidence.comparison.verify.fits", lambda _: True)
    timed: list[set[str]] = []

    def compared(_: Trial, programs: dict[str, Executable], __: float) -> dict[str, object]:
        given = {"onnxruntime": 2e-6, "original": 4e-6, "optimized": 4e-6, WHOLE: 1e-6}
        timed.append(set(programs))
        return {**times(**{name: given[name] for name in ("onnxruntime", *programs)}), "once": False}

    monkeypatch.setattr(Trial, "compare", compared)
    monkeypatch.setattr(decide, "weighed", lambda *_: InPlace())
    monkeypatch.setattr(decide, "behind", BEHIND)  # the tests' own setting is that no program gives way to ONNX Runtime
    result = einnet.optimize(two_layers(), time_budget=20, max_depth=0, threads=1)
    report = result.report
    assert report["runs"] == "whole model", report["notes"]
    assert [WHOLE in programs for programs in timed] == [False, held_s > 0]
    assert all(np.isfinite(y).all() for y in result.executable({"x": np.ones((1, 8), np.float32)}).values())
    assert report["totals"]["speedup"] <= 1.0
    assert report["totals"]["optimized_ms"] >= report["totals"]["onnxruntime_ms"]


def test_a_session_that_is_kept_stands_for_none_where_ours_is_surely_faster(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded for a program of the whole model, which would run nowhere."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    monkeypatch.setattr("einnet.evidence.comparison.verify.HELD_S", 0.0)
    monkeypatch.setattr("einnet.evidence.comparison.verify.HELD_SHARE", 0.0)
    monkeypatch.setattr("einnet.evidence.comparison.verify.fits", lambda _: True)
    monkeypatch.setattr(Trial, "compare", lambda *_: {**times(original=4e-6, optimized=4e-6, onnxruntime=9e-6), "once": False})
    monkeypatch.setattr(decide, "weighed", lambda *_: InPlace())
    monkeypatch.setattr(decide, "behind", lambda _: True)
    made: list[str] = []
    built = decide.built
    monkeypatch.setattr(decide, "built", lambda plan, *rest, **more: (made.append("whole"), built(plan, *rest, **more))[1])
    report = einnet.optimize(two_layers(), time_budget=20, max_depth=0, threads=1).report
    assert report["runs"] != "whole model" and not made


def whole() -> tuple[Executable, Session]:
    """A model in ONNX Runtime as a program, and by itself."""
    model = two_layers()
    session = Session(model.SerializeToString(), 1)
    given = Executable(two_layers_plan(1, 8, 8, 4), 1).plan
    (x,), (y,) = session.inputs, session.outputs
    named = replace(given, inputs=((x.name, given.inputs[0][1]),), outputs=((y.name, given.outputs[0][1]),))
    plan = whole_model(model, named, [x.name])
    assert plan is not None
    return Executable(plan, 1), session


def test_a_program_of_one_node_reads_the_callers_arrays() -> None:
    program, session = whole()
    (name,) = program.input_names
    before = [target.copy() for _, target in program._inputs]
    results = []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32)
        (y,) = program.run(x)
        np.testing.assert_array_equal(y, next(iter(session({name: x}).values())))
        np.testing.assert_array_equal(y, program({name: np.asfortranarray(x)})[program.output_names[0]])
        results.append((y, y.copy()))
        program.release()
        if seed == 1:
            program.rest()
    assert all(np.array_equal(kept, copy) for kept, copy in results), "results are the caller's own"
    assert all(np.array_equal(a, b) for a, (_, b) in zip(before, program._inputs, strict=True)), "nothing was copied into the program's memory"
    program.execute()
    with pytest.raises(UsageError, match=r"expected float32\[1, 8\]"):
        program.run(np.zeros((2, 8), np.float32))
    with pytest.raises(UsageError, match="expected float32"):
        program.run(np.zeros((1, 8)))
