"""One artifact for ranges of two dimensions: right at every pair of sizes, also at those whose plan is made later, in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import einnet
from einnet.cli import main
from einnet.compile.grid import beside, target
from einnet.compile.grid.audit_grid import audit_grid
from einnet.compile.grid.domain import Domain, dimensions_of, key, sizes_of
from einnet.compile.grid.served import GridProgram
from einnet.compile.grid.target import GridOptimization
from einnet.errors import ArtifactError, ModelError, UsageError
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import symbolic
from tests.graph.cases import reference

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
mixed (float[batch, seq, 6] x, float[batch, seq] mask) => (float[batch, seq, 4] y) {
    h = MatMul (x, w)
    one = Constant <value_ints = [2]> ()
    wide = Unsqueeze (mask, one)
    kept = Mul (h, wide)
    y = Softmax <axis = 1> (kept)
}
"""


def model(scale: float = 1.0) -> onnx.ModelProto:
    """A product, a mask and a softmax along the sequence."""
    found = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32) * np.float32(scale)
    found.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return found


def inputs(batch: int, seq: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch * 100 + seq)
    return {"x": random.standard_normal((batch, seq, 6)).astype(np.float32), "mask": random.standard_normal((batch, seq)).astype(np.float32)}


def right(program: Any, batch: int, seq: int) -> None:
    given = inputs(batch, seq)
    np.testing.assert_allclose(program(given)["y"], reference(model(), given)["y"], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[GridOptimization, Path]:
    """The model for batches of 1 to 3 and sequences of 2 to 6, and where it is stored, the model beside it."""
    folder = tmp_path_factory.mktemp("grid")
    onnx.save(model(), folder / "model.onnx")
    result = einnet.optimize(folder / "model.onnx", dynamic="batch=1..3 seq=2..6", time_budget=6, max_depth=1, threads=1)
    assert isinstance(result, GridOptimization)
    return result, result.save(folder / "model.einnet")


@pytest.fixture
def path(found: tuple[GridOptimization, Path], tmp_path: Path) -> Path:
    """The artifact where nothing is beside it."""
    (tmp_path / "p.einnet").write_bytes(found[1].read_bytes())
    return tmp_path / "p.einnet"


def test_corners_and_the_middle_are_measured_and_right(found: tuple[GridOptimization, Path]) -> None:
    result, path = found
    assert set(result.known) == {(1, 2), (1, 6), (3, 2), (3, 6), (1, 3)}
    program = einnet.load(path)
    assert isinstance(program, GridProgram) and set(program.known) == set(result.known)
    for sizes in program.known:
        right(result, *sizes)
        right(program, *sizes)
    assert program.inputs == result.inputs == {"x": ("f32", (-1, -1, 6)), "mask": ("f32", (-1, -1))}
    assert list(program.output_names) == list(result.output_names) == ["y"]
    assert not program.beside.folder.exists()


FRESH = """
import sys, json
import numpy as np
import einnet
program = einnet.load(sys.argv[1])
with np.load(sys.argv[2]) as stored:
    given = {name: stored[name] for name in stored.files}
before = program.known
np.savez(sys.argv[3], **program(given))
print(json.dumps([before, program.known]))
"""


def in_a_fresh_process(path: Path, batch: int, seq: int) -> tuple[list[list[int]], list[list[int]]]:
    """Run the program; the sizes that were known before and after."""
    given, out = path.with_name("given.npz"), path.with_name("out.npz")
    np.savez(given, **inputs(batch, seq))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(
        [sys.executable, "-c", FRESH, str(path), str(given), str(out)], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert run.returncode == 0, run.stderr
    with np.load(out) as stored:
        np.testing.assert_allclose(stored["y"], reference(model(), inputs(batch, seq))["y"], rtol=1e-4, atol=1e-5)
    before, after = json.loads(run.stdout)
    return before, after


def test_after_ctrl_c_every_size_gets_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that was cut short is the last that takes its time, and the ranges are served all the same."""
    plan_at, begun = target.plan_at, []

    def cut(model: Any, domain: Domain, sizes: Any, settings: Any, *rest: Any) -> Any:
        begun.append(settings.time_budget)
        made = plan_at(model, domain, sizes, replace(settings, time_budget=2), *rest)
        return replace(made, outcome=replace(made.outcome, interrupted=True))

    monkeypatch.setattr(target, "plan_at", cut)
    result = einnet.optimize(model(), dynamic="batch=1..3 seq=2..6", time_budget=600, max_depth=0, threads=1)
    assert begun[0] > 60
    assert set(begun[1:]) == {float(target.RANGE_LEAST_S)}
    right(result, 3, 2)


def test_a_plan_is_made_when_its_sizes_are_first_used_and_found_by_the_next_process(path: Path) -> None:
    before, after = in_a_fresh_process(path, 2, 5)
    assert [2, 5] not in before and [2, 5] in after
    (file,) = path.with_name("p.einnet.plans").iterdir()
    made = file.stat().st_mtime_ns, file.read_bytes()
    before, after = in_a_fresh_process(path, 2, 5)
    assert [2, 5] in before and before == after
    assert file.read_bytes() == made[1], "it is not made again"
    verdict = audit_grid(model(), einnet.load(path))
    assert verdict["passed"] and set(verdict["sizes"]) == {"1x2", "1x6", "3x2", "3x6", "1x3", "2x5"}


def test_a_plan_beside_it_that_is_damaged_or_of_another_artifact_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = einnet.load(path)
    program.prepare(2, seq=2)
    (file,) = program.beside.folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    other = program.beside.folder / f"{'0' * 16}-3x3.einnet"
    other.write_bytes(b"of another")
    again = einnet.load(path)
    assert (3, 3) not in again.known
    right(again, 2, 2)
    right(again, 3, 3)
    assert {f.name for f in again.beside.folder.iterdir()} == {file.name, other.name, again.beside.file((3, 3)).name}
    monkeypatch.setattr(beside, "MOST", 1)
    again.prepare(seq=4, batch=3)
    assert [f.name for f in again.beside.folder.iterdir()] == [again.beside.file((3, 4)).name], "others go first, then what was not used for longest"


def test_where_nothing_can_be_written_plans_stay_in_the_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = einnet.load(path)
    program.beside.folder.write_text("no folder")
    right(program, 2, 3)
    assert (2, 3) not in program.known


def test_threads_make_one_plan(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = einnet.load(path), []
    honest = program._made
    monkeypatch.setattr(program, "_made", lambda sizes: made.append(sizes) or honest(sizes))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: right(program, 2, 4), range(4)))
    assert made == [(2, 4)]


@pytest.mark.parametrize(("batch", "seq", "why"), [(4, 3, r"batch is 4; the program serves 1\.\.3"), (1, 7, r"seq is 7; the program serves 2\.\.6")])
def test_sizes_out_of_the_ranges_are_refused(found: tuple[GridOptimization, Path], batch: int, seq: int, why: str) -> None:
    for program in (found[0], einnet.load(found[1])):
        with pytest.raises(UsageError, match=why):
            program(inputs(batch, seq))


def test_inputs_that_disagree_or_do_not_tell_are_refused(found: tuple[GridOptimization, Path]) -> None:
    program = einnet.load(found[1])
    mixed = {"x": inputs(2, 3)["x"], "mask": inputs(2, 4)["mask"]}
    with pytest.raises(UsageError, match="disagree about seq: 3 by dimension 1 of input 'x', 4 by dimension 1 of input 'mask'"):
        program(mixed)
    with pytest.raises(UsageError, match="nothing tells batch: it is a dimension of input 'x' or 'mask'"):
        program({})
    with pytest.raises(UsageError, match="expected a size for each of batch, seq"):
        program.prepare(1, batch=2)


def test_another_model_is_not_verified(found: tuple[GridOptimization, Path], path: Path) -> None:
    verdict = audit_grid(model(2.0), einnet.load(path))
    assert not verdict["passed"] and verdict["problems"]
    assert not any(told["passed"] for told in verdict["sizes"].values())
    wrong = einnet.load(path)
    wrong.prepare(2, 2)
    other = einnet.optimize(model(2.0), shapes={"x": (2, 2, 6), "mask": (2, 2)}, time_budget=2, max_depth=1, threads=1)
    other.save(wrong.beside.file((2, 2)))
    verdict = audit_grid(model(), einnet.load(path))
    assert [sizes for sizes, told in verdict["sizes"].items() if not told["passed"]] == ["2x2"], "a plan beside it is verified, too"


def test_commands_know_the_ranges(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = path.with_name("m.onnx")
    onnx.save(model(), source)
    small = ["--time-budget", "3", "--max-depth", "1", "--threads", "1"]
    out = path.with_name("q.einnet")
    assert main(["optimize", str(source), "--dynamic", "batch=1..2", "seq=2..3", "-o", str(out), *small]) == 0
    assert "kept beside the artifact" in capsys.readouterr().out
    files = []
    for name, value in inputs(2, 2).items():
        np.save(path.with_name(f"{name}.npy"), value)
        files += ["--input", f"{name}={path.with_name(name)}.npy"]
    assert main(["run", str(out), *files, "--output-dir", str(path.parent)]) == 0
    np.testing.assert_allclose(np.load(path.with_name("y.npy")), reference(model(), inputs(2, 2))["y"], rtol=1e-4, atol=1e-5)
    assert main(["verify", str(source), str(out), "--json", str(path.with_name("v.json"))]) == 0
    assert json.loads(path.with_name("v.json").read_text())["passed"]
    capsys.readouterr()
    assert main(["explain", str(out)]) == 0
    assert "batch in 1..2, seq in 2..3" in capsys.readouterr().out
    assert main(["bisect", str(source), str(out)]) == 2
    onnx.save(model(2.0), source)
    assert main(["verify", str(source), str(out)]) == 1


def test_one_range_among_words_is_still_one_dimension(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    onnx.save(model(), source)
    with pytest.raises(ModelError, match="dimension 'seq' of input 'x' is unknown beside batch"):
        einnet.optimize(source, dynamic=["batch=1..2"])
    with pytest.raises(ModelError, match="no input has a dimension 'time'; its dimensions are batch, seq"):
        einnet.optimize(source, dynamic="batch=1..2 time=1..2")


def test_how_ranges_are_written() -> None:
    wanted = (Dimension("batch", 1, 8), Dimension("seq", 16, 512))
    assert dimensions_of("batch=1..8 seq=16..512") == wanted == dimensions_of([("batch", 1, 8), "seq=16..512"])
    assert dimensions_of(("batch", 1, 8)) == wanted[:1]
    for given, why in (("a=1..2 a=3..4", "given two ranges"), ("a=1..2 b=1..2 c=1..2 d=1..2", "4 dimensions"), ("a=1..2 b", "is no range")):
        with pytest.raises(UsageError, match=why):
            dimensions_of(given)


def test_what_is_measured() -> None:
    domain = Domain((Dimension("batch", 1, 8), Dimension("seq", 16, 512)), {"x": ("batch", "seq", 3)})
    assert domain.measured() == [(1, 16), (8, 16), (2, 90), (1, 512), (8, 512)]
    assert Domain((Dimension("n", 4, 4), Dimension("m", 2, 2)), {}).measured() == [(4, 2)]
    assert domain.shapes_at((3, 20)) == {"x": (3, 20, 3)}
    assert [sizes_of(key(sizes)) for sizes in domain.measured()] == domain.measured()


def test_other_symbols_want_a_shape() -> None:
    source = symbolic(model(), ["batch"])
    with pytest.raises(ModelError, match="dimension 'seq' of input 'x' is unknown beside batch; give it a range, too"):
        source.known(["batch"], {})
    given = {"x": (9, 5, 6), "mask": (9, 5)}
    assert source.shapes({"batch": 2}, given) == {"x": (2, 5, 6), "mask": (2, 5)}
    with pytest.raises(ModelError, match="input 'mask' has 2 dimensions, and the shape that is given for it has 1"):
        source.known(["batch"], {**given, "mask": (9,)})


def test_a_file_without_plans_or_of_another_kind_is_refused(path: Path) -> None:
    from einnet.compile.targets.stored import load

    with pytest.raises(ArtifactError, match="serves a range of sizes"):
        load(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        einnet.load(path)
