"""One artifact for a range of batch sizes: right at each, proven at each, refused beyond."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

import einnet
from einnet.cli import main
from einnet.cli.ranged import summary
from einnet.compile.ranges import target as dynamic
from einnet.compile.ranges.audit_ranged import audit_ranged
from einnet.compile.ranges.family import shared
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.ranges.sizes import Effort, dimension_of, measured_sizes, nearest
from einnet.compile.ranges.target import DynamicOptimization, optimize_dynamic
from einnet.compile.targets.cpu import contest as decide
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.compile.targets.stored import load
from einnet.errors import ArtifactError, CertificateError, UsageError
from einnet.evidence.report.ranged_schema import RangedReport
from einnet.graph.dimension import Dimension
from einnet.instantiate.kernels import Conv, Matmul, Post
from einnet.records import read
from einnet.runtime import pool
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.roofline import flops
from tests.graph.cases import reference
from tests.models import tiny, two_layers


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> tuple[onnx.ModelProto, DynamicOptimization, Path]:
    """A small network for batches of 1 to 3, and where it is stored."""
    folder = tmp_path_factory.mktemp("dynamic")
    model = two_layers()
    onnx.save(model, folder / "model.onnx")
    result = einnet.optimize(folder / "model.onnx", dynamic="batch=1..3", time_budget=4, max_depth=2)
    return model, result, result.save(folder / "model.einnet")


@pytest.fixture(scope="module")
def made(found) -> tuple[onnx.ModelProto, Path]:
    return found[0], found[2]


def rows(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((size, 8)).astype(np.float32)


def liked(self, kernels, until=float("inf")):
    """Costs that like products, and of these the ones of fewer operations: at every size the same ones."""
    return [1e-12 * flops(k) if isinstance(k, Matmul) else 1.0 if isinstance(k, Conv) else 1e-9 * flops(k) for k in kernels]


def liking(patch: pytest.MonkeyPatch) -> None:
    """Products cost little, and no comparison is lost."""
    patch.setattr(CpuCost, "measured", liked)
    patch.setattr(CpuCost, "within", lambda self, kernel, until, limit: (liked(self, [kernel])[0], True))
    patch.setattr(CpuCost, "estimates", liked)
    patch.setattr(CpuCost, "known", lambda self, kernels: [(t, t) for t in liked(self, kernels)])
    patch.setattr(decide, "slower", lambda times: False)
    patch.setattr(decide, "weighed", lambda *_: InPlace())


@pytest.fixture(scope="module")
def derived(tmp_path_factory) -> tuple[onnx.ModelProto, RangedProgram]:
    """A transposed convolution for batches of 1 to 3 that runs as something derived."""
    model = tiny("convtranspose")
    with pytest.MonkeyPatch.context() as patch:
        liking(patch)
        result = optimize_dynamic(model, ("batch", 1, 3), time_budget=20, max_depth=1, threads=1, fresh=True)
    return model, einnet.load(result.save(tmp_path_factory.mktemp("derived") / "p.einnet"))


def test_a_limit_of_memory_holds_at_sizes_that_follow(derived, monkeypatch):
    """Size 1 is measured, and 2 and 3 do as it does, unless that takes too much."""
    model, program = derived
    taken = [program.ranged.executable(size).nbytes for size in (1, 2, 3)]
    assert taken[0] < taken[1] < taken[2]
    liking(monkeypatch)
    monkeypatch.setattr(dynamic, "measured_sizes", lambda dimension: [1])
    limited = optimize_dynamic(model, ("batch", 1, 3), memory_limit=taken[1], time_budget=20, max_depth=1, threads=1)
    assert [limited.executable(size).nbytes for size in (1, 2)] == taken[:2]
    assert limited.executable(3).nbytes <= taken[1]


def test_what_is_derived_at_one_size_runs_at_all_and_is_proven_at_each(derived):
    model, program = derived
    (text,) = [d for d in program.derivations if d.sizes == (1, 2, 3)]
    assert "t0 : f32[batch," in text.body
    assert sorted(text.check().proofs) == [1, 2, 3]
    assert program.report["sizes"]["2"]["follows"] is not None
    assert "for every batch >= 1, by one proof" in {d["holds"] for d in program.report["derivations"]}
    verdict = audit_ranged(model, program)
    assert verdict["passed"]
    assert verdict["certificate"]["claims"]["for every batch >= 1, by one proof"] >= 1
    for told in verdict["sizes"].values():
        assert told["lifting"]["proven"] + told["lifting"]["by_derivation"] == told["lifting"]["subprograms"] > 0
        assert told["lifting"]["derived"] > 0 and told["kernels"]["exact"] > 0 and told["subprograms"]["subprograms"] > 0


@pytest.mark.parametrize("change", ["a clip", "a weight", "no derivation"])
def test_a_plan_of_one_size_that_is_another_is_refused(derived, monkeypatch, change):
    model, program = derived
    right = program.ranged.executable(2)
    plan, honest = right.plan, program.ranged.executable
    if change == "a clip":
        place = next(n for n, k in enumerate(plan.kernels) if isinstance(k, Matmul))
        clipped = replace(plan.kernels[place], post=(*plan.kernels[place].post, Post("clip", None, -0.01, 0.01)))
        plan = replace(plan, kernels=(*plan.kernels[:place], clipped, *plan.kernels[place + 1 :]))
    if change == "a weight":
        plan = replace(plan, constants={name: values * np.float32(1.00005) for name, values in plan.constants.items()})
    other = RangedProgram(program.path)
    if change == "no derivation":
        monkeypatch.setitem(other.__dict__, "derivations", [])
    wrong = Executable(plan, 1)
    monkeypatch.setattr(other.ranged, "executable", lambda size: wrong if size == 2 else honest(size))
    verdict = audit_ranged(model, other)
    assert not verdict["passed"]
    if change == "no derivation":
        assert verdict["certificate"]["problems"] and any("no derivation" in p for p in verdict["sizes"]["1"]["problems"])
    else:
        assert verdict["sizes"]["2"]["problems"] and not verdict["sizes"]["1"]["problems"]


def test_a_damaged_derivation_is_found_at_every_size(derived):
    model, program = derived
    (text,) = [d for d in program.derivations if d.sizes == (1, 2, 3)]
    lines = text.body.splitlines()
    last = max(n for n, line in enumerate(lines) if line.startswith("   "))
    lines[last] = lines[last].replace("<batch", "<1", 1)
    damaged = replace(text, body="\n".join(lines) + "\n")
    with pytest.raises(CertificateError, match="at batch = 2"):
        damaged.check()
    other = RangedProgram(program.path)
    other.__dict__["derivations"] = [damaged if d is text else d for d in program.derivations]
    assert any("at batch = 3" in problem for problem in audit_ranged(model, other)["certificate"]["problems"])


def test_it_is_right_at_every_size(made):
    model, path = made
    program = einnet.load(path)
    for size in (1, 2, 3, 1):
        x = rows(size)
        (got,) = program(x).values()
        wanted = np.concatenate([next(iter(reference(model, {"x": x[n : n + 1]}).values())) for n in range(size)])
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("bound", "runs"), [(1, 20), (4, 200)])
def test_eight_threads_run_mixed_sizes(made, bound, runs, monkeypatch):
    """With one program bound at a time, it makes room while others run it."""
    monkeypatch.setattr(pool, "BOUND", bound)
    monkeypatch.setattr(pool, "SHARE", 0.0)
    program, alone = einnet.load(made[1]), einnet.load(made[1])
    expected = {size: next(iter(alone(rows(size)).values())) for size in (1, 2, 3)}

    def work(thread: int) -> int:
        rng = Random(thread)
        sizes = [rng.randint(1, 3) for _ in range(runs)]
        return sum(np.array_equal(next(iter(program(rows(size)).values())), expected[size]) for size in sizes)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [runs] * 8


def test_sizes_out_of_the_range_are_refused_with_the_range(found):
    for program in (found[1], einnet.load(found[2])):
        with pytest.raises(UsageError, match=r"batch is 5, by dimension 0 of input 'x'; the program serves 1\.\.3"):
            program(rows(5))


def test_what_was_found_runs_before_it_is_stored(found):
    _, result, path = found
    stored = einnet.load(path)
    assert result.inputs == stored.inputs
    assert result.output_names == stored.output_names
    for size in (3, 1):
        for name, value in stored(rows(size)).items():
            np.testing.assert_array_equal(result(rows(size))[name], value)


def test_weights_and_the_file_are_shared_between_sizes(made):
    program = einnet.load(made[1])
    assert isinstance(program, RangedProgram)
    first, last = (program.ranged.loaded(size).plan for size in (1, 3))
    assert set(first.constants.members.values()) & set(last.constants.members.values())


def test_equal_weights_are_one_array_and_others_stay():
    known = {"a": np.float32([1, 2]), "b": np.float32([0.0])}
    found = shared({"a": np.float32([1, 2]), "b": np.float32([-0.0]), "c": np.float32([3])}, known)
    assert found["a"] is known["a"]
    assert np.signbit(found["b"])
    assert found["c"] == 3


def test_the_inputs_are_told_with_the_free_dimension(made):
    assert einnet.load(made[1]).inputs == {"x": ("f32", (-1, 8))}


def test_every_size_was_verified_and_the_derivations_hold_where_they_run(made):
    program = einnet.load(made[1])
    assert all(found["verification"]["passed"] for found in program.report["sizes"].values())
    for text in program.derivations:
        assert set(text.check().proofs) == set(text.sizes)


def test_the_audit_passes_and_finds_a_foreign_derivation(made):
    model, path = made
    program = einnet.load(path)
    verdict = audit_ranged(model, program)
    assert verdict["passed"]
    assert sorted(verdict["sizes"]) == ["1", "2", "3"]
    from einnet.derivation.ranged import parse

    foreign = parse("batch in 1..3\nholds at 1..2\nA : f32[batch,3]\nfrom L[n<batch,c<3] A[n,c]\n")
    program.__dict__["derivations"] = [foreign]
    problems = [p for p in audit_ranged(model, program)["certificate"]["problems"] if p.startswith("derivation 1,")]
    assert len(problems) == 2
    assert "at batch = 1: it starts from an expression that the model does not have" in problems[0]


def test_commands_know_the_range(made, tmp_path, capsys):
    path = made[1]
    np.save(tmp_path / "x.npy", rows(3))
    assert main(["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path)]) == 0
    assert next(iter(np.load(f) for f in tmp_path.glob("*.npy") if f.name != "x.npy")).shape == (3, 4)
    assert main(["verify", str(path.with_suffix(".onnx")), str(path), "--json", str(tmp_path / "v.json")]) == 0
    assert json.loads((tmp_path / "v.json").read_text())["passed"]
    capsys.readouterr()
    assert main(["explain", str(path)]) == 0
    assert "batch in 1..3" in capsys.readouterr().out
    assert main(["bisect", str(path.with_suffix(".onnx")), str(path)]) == 2


def test_a_budget_that_is_too_small_is_told_with_what_took_so_long(tmp_path, capsys):
    onnx.save(two_layers(), tmp_path / "m.onnx")
    assert main(["optimize", str(tmp_path / "m.onnx"), "--dynamic", "batch=1..2", "--time-budget", "0.1", "--max-depth", "1", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sum(report["seconds"].values()) == pytest.approx(report["total_s"])
    (note,) = report["notes"]
    assert "time budget of 0.1 s was exceeded" in note and "other sizes" in note
    assert f"note: {note}" in summary(read(RangedReport, report))


def test_after_ctrl_c_every_size_gets_the_least_time(tmp_path, monkeypatch):
    """Each size has a search of its own: one that was cut short is the last that takes its time, and the range is served all the same."""
    search, begun = dynamic.search, []

    def cut(program, settings, *rest):
        begun.append(settings.time_budget)
        return replace(search(program, replace(settings, time_budget=1), *rest), interrupted=True)

    def noted(run, target, known):
        begun.append(run.settings.time_budget)
        return compiled(run, target, known)

    compiled = dynamic.compiled
    monkeypatch.setattr(dynamic, "search", cut)
    monkeypatch.setattr(dynamic, "compiled", noted)
    result = einnet.optimize(two_layers(), dynamic="batch=1..3", time_budget=600, max_depth=1)
    assert begun[0] > 60
    assert set(begun[1:]) == {float(dynamic.RANGE_LEAST_S)}
    for size in (1, 2, 3):
        assert {y.shape[0] for y in result(rows(size)).values()} == {size}


def test_static_readers_refuse_it(made):
    with pytest.raises(ArtifactError, match="serves a range of sizes"):
        load(made[1])


def test_a_damaged_file_is_refused(made, tmp_path):
    data = bytearray(made[1].read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.einnet").write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        einnet.load(tmp_path / "bad.einnet")


@pytest.mark.parametrize(("given", "why"), [(("n", 0, 3), "no range"), (("n", 3, 2), "no range"), (("n", 1, 999), "serves 256 at most")])
def test_ranges_that_are_none(given, why):
    with pytest.raises(UsageError, match=why):
        dimension_of(given)


@pytest.mark.parametrize("given", ["batch", "batch=1", "abc", ("batch", 1)])
def test_what_is_no_range_is_quoted(given):
    with pytest.raises(UsageError, match=r"is no range of sizes: expected \"batch=1\.\.32\""):
        einnet.optimize("absent.onnx", dynamic=given)


def test_a_range_is_written_in_two_ways():
    assert dimension_of("batch=1..32") == dimension_of(("batch", 1, 32)) == Dimension("batch", 1, 32)


def test_small_sizes_take_less_and_following_takes_less_than_measuring():
    effort = Effort(reading_s=0.5, compiling_s=1.0, run_s=0.2, at=10, parts=4)
    assert effort.measuring(1) < effort.measuring(32)
    assert effort.following(1) < effort.following(32) < effort.measuring(32)


def test_sizes_that_are_measured():
    assert measured_sizes(Dimension("batch", 1, 32)) == [1, 3, 16, 32]
    assert measured_sizes(Dimension("batch", 4, 4)) == [4]
    assert [nearest(size, [1, 3, 16, 32]) for size in (2, 6, 7, 30)] == [3, 3, 16, 32]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "transformer"])
def test_networks_are_right_at_every_batch(name, tmp_path):
    model = tiny(name)
    path = optimize_dynamic(model, ("batch", 1, 32), time_budget=120, allow="precision").save(tmp_path / "x.einnet")
    program = einnet.load(path)
    assert audit_ranged(model, program)["passed"]
    assert program.report["dynamic"]["problem"] is None
    assert all(found["problem"] is None for found in program.report["sizes"].values())
