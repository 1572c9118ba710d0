"""What is kept between processes, what is refused, and PyTorch's programs as arguments of `optimize`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einnet
from einnet.errors import ModelError

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn = torch.nn

ROOT = Path(__file__).resolve().parents[2]

FRESH = """
import json, torch, einnet.api.torch
torch.manual_seed({seed})
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
x = torch.randn(1, 3, 8, 8)
options = {{"time_budget": 1.0, "trivial": 0.0, "slower": True, "threads": 1}}
with torch.no_grad():
    found = torch.compile(model, backend="einnet", options=options)(x)
    error = float((found - model(x)).abs().max())
print(json.dumps([[t.runs, t.stored] for t in einnet.api.torch.parts()] + [error]))
"""


def fresh(seed: int, cache: Path) -> Any:
    """What a new process says of a model with weights of this seed."""
    environment = {**os.environ, "EINNET_CACHE": str(cache), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", FRESH.format(seed=seed)], capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_another_process_loads_what_one_has_searched_for_the_same_weights_alone(tmp_path: Path) -> None:
    first, again, other = (fresh(seed, tmp_path) for seed in (0, 0, 1))
    assert first[0] == ["einnet", False]
    assert again[0] == ["einnet", True]
    assert other[0] == ["einnet", False]
    assert max(first[1], again[1], other[1]) < 1e-4
    damaged = sorted((tmp_path / "torch").glob("*.einnet"))[0]
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert all(fresh(seed, tmp_path)[1] < 1e-4 for seed in (0, 1)), "a damaged program counts as none"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    from einnet.api.torch.program_cache import trim

    for age, name in enumerate("abc"):
        (tmp_path / f"{name}.einnet").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{name}.einnet", (1000 - age, 1000 - age))
    trim(tmp_path, 250)
    assert sorted(p.stem for p in tmp_path.iterdir()) == ["a", "b"]
    trim(tmp_path, 10)
    assert [p.stem for p in tmp_path.iterdir()] == ["a"], "the newest stays, however large"


WRONG = [
    ({"time_bugdet": 3}, "no option 'time_bugdet'; did you mean 'time_budget'"),
    ({"weights": "frozen"}, "'frozen' is not one of constant, inputs"),
    ({"programs": 0}, "programs must be 1 or more"),
    ({"sizes": "some"}, "sizes 'some' is not one of recurring, all"),
    ({"graph_budget": 0}, "graph_budget must be more than 0 seconds"),
    ({"backend": "cuda"}, "no option 'backend'"),
    ({"allow": "anything"}, "allow 'anything' is not one of"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_told(options: Any, message: str) -> None:
    import einnet.api.torch  # noqa: F401

    with pytest.raises(Exception, match=message):
        torch.compile(nn.ReLU(), backend="einnet", options=options)(torch.ones(3))


def test_what_cannot_be_optimized_runs_in_eager_mode_with_a_warning(compile_kept: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise einnet.EinNetError("there is no model of it")

    monkeypatch.setattr("einnet.api.torch.frozen.exported", broken)
    model, x = nn.Linear(3, 3).eval(), torch.randn(2, 3)
    with torch.no_grad():
        fast = compile_kept(model)
        with pytest.warns(RuntimeWarning, match=r"part 0 .* runs in eager mode: there is no model of it") as said:
            found = fast(x), fast(x)
        assert all(torch.equal(y, model(x)) for y in found)
        assert len(said) == 1
        assert [t.runs for t in told()] == ["eager"]
        torch._dynamo.reset()
        with pytest.raises(einnet.EinNetError, match="there is no model of it"):
            compile_kept(model, strict=True)(x)


def test_a_program_that_differs_from_eager_mode_is_not_used(compile_kept: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from einnet.api.torch.program import Bound

    right = Bound.__call__
    monkeypatch.setattr(Bound, "__call__", lambda self, args: tuple(t * 1.01 for t in right(self, args)))
    model, x = nn.Linear(3, 3).eval(), torch.randn(2, 3)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="result is another one: 0.01 of max"):
        assert torch.equal(compile_kept(model)(x), model(x))
    assert [t.runs for t in told()] == ["eager"]


def test_the_slower_program_is_not_used(compile_kept: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from einnet.api.torch.program import Bound

    right = Bound.__call__
    monkeypatch.setattr(Bound, "__call__", lambda self, args: (time.sleep(0.2), right(self, args))[1])
    model, x = nn.Linear(3, 3).eval(), torch.randn(2, 3)
    with torch.no_grad():
        fast = compile_kept(model, slower=False)
        torch.testing.assert_close(fast(x), model(x))
        assert torch.equal(fast(x), model(x))
    (one,) = told()
    assert (one.runs, one.why) == ("eager", "it is no slower there") and one.einnet_ms > 200.0 > one.eager_ms


def test_every_single_byte_of_a_small_weight_is_watched_and_the_middle_of_a_large_one() -> None:
    from einnet.api.torch.weights import Watch

    small, large = torch.zeros(16), torch.zeros(1000)
    watch = Watch([(0, small), (1, large)])
    assert watch.current([small, large])
    for n in range(16):
        small.data[n] = 1.0
        assert not watch.current([small, large])
        small.data[n] = 0.0
    assert watch.current([small, large])
    large.data.add_(1.0)
    assert not watch.current([small, large])
    large.data.sub_(1.0)
    assert watch.current([small, large])
    assert not watch.current([small.clone(), large])
    large[0] = 1.0
    assert not watch.current([small, large]), "torch has counted the write"
    large[0] = 0.0
    assert not watch.current([small, large]), "a write back is a write"


def test_weights_that_torch_does_not_count_are_compared_whole() -> None:
    from einnet.api.torch.weights import Watch

    with torch.inference_mode():
        weight = torch.zeros(1000)
        watch = Watch([(0, weight)])
        assert watch.current([weight])
        weight[0] = 1.0
        assert not watch.current([weight])
        weight[0] = 0.0
        assert watch.current([weight])


def test_a_weight_that_moves_in_memory_is_another() -> None:
    from einnet.api.torch.weights import Watch

    weight = torch.nn.Parameter(torch.ones(100))
    watch = Watch([(0, weight)])
    weight.data = torch.ones(100)
    assert not watch.current([weight])


def test_optimize_takes_an_exported_program_and_a_module() -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).eval(), torch.randn(3, 6)
    wanted = model(x).detach().numpy()
    for result in (
        einnet.optimize(torch.export.export(model, (x,)), time_budget=1.0, threads=1),
        einnet.optimize(model, example=(x,), time_budget=1.0, threads=1),
    ):
        (found,) = result(x.numpy()).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    """Two layers of one weight, which one of them has transposed, and a table of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(160, 160))
        self.register_buffer("table", torch.arange(20000).reshape(2, 10000).t())

    def forward(self, x: Any) -> Any:
        return torch.tanh(nn.functional.linear(x, self.w)) @ self.w + self.table[:160, 1].float()


def test_a_program_is_written_from_where_its_weights_are(tmp_path: Path) -> None:
    from einnet.graph.onnx.digest import digest
    from einnet.graph.onnx.exported import exported, exported_to

    program = torch.export.export(Tied().eval(), (torch.randn(3, 160),))
    exported_to(tmp_path / "tied.onnx", program, ["a"], ["b"])
    assert digest(tmp_path / "tied.onnx") == digest(exported(program, ["a"], ["b"])) and (tmp_path / "tied.onnx").stat().st_size < 1 << 16


def test_a_program_of_more_than_a_protobuf_can_be_is_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from einnet.graph.onnx.exported import exported

    program = torch.export.export(Tied().eval(), (torch.randn(3, 160),))
    monkeypatch.setattr("einnet.graph.onnx.exported.LARGEST", 1 << 16)
    with pytest.raises(ModelError, match=r"more than an ONNX model in memory can have, 2 GB; one that torch\.onnx"):
        exported(program)


def test_a_large_part_is_a_file_while_it_is_looked_at(compile_kept, told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program holds what it needs: another call and another process's load do without the file."""
    monkeypatch.setattr("einnet.api.torch.frozen.LARGE_FILE", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    model, x = Tied().eval(), torch.randn(3, 160)
    for stored in (False, True):
        torch._dynamo.reset()
        compiled = compile_kept(model, store=True)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        assert told()[-1].runs == "einnet" and told()[-1].stored is stored
        assert not list((tmp_path / "files").glob("*/part.onnx*"))


def test_a_large_part_that_cannot_be_written_stays_in_eager_mode(compile_kept, told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, mode: str = "r", *args: Any) -> Any:
        if self.name == "part.onnx.data" and "w" in mode:
            raise OSError(28, "No space left on device")
        return opened(self, mode, *args)

    opened = Path.open
    monkeypatch.setattr("einnet.api.torch.frozen.LARGE_FILE", 1)
    monkeypatch.setattr(Path, "open", full)
    model, x = Tied().eval(), torch.randn(3, 160)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="No space left"):
        torch.testing.assert_close(compile_kept(model, store=False)(x), model(x))
    assert told()[-1].runs == "eager"


def test_sizes_have_the_names_that_the_user_gave_them() -> None:
    from einnet.graph.onnx.exported import exported

    class Joined(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(x).sum(-1) + y, torch.cat([y, y], 1)

    def shapes(found: Any) -> list[list[str | int]]:
        return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*found.graph.input, *found.graph.output)]

    given, batch, half = (torch.randn(4, 6, 3), torch.randn(4, 6)), torch.export.Dim("batch", min=1, max=64), torch.export.Dim("half", max=9)
    sizes = {"x": {0: batch, 1: 2 * half}, "y": {0: batch, 1: 2 * half}}
    program = torch.export.export(Joined().eval(), given, dynamic_shapes=sizes)
    assert shapes(exported(program))[:2] == [["batch", "2*half", 3], ["batch", "2*half"]]
    free = {name: {0: torch.export.Dim.AUTO} for name in ("x", "y")}
    assert shapes(exported(torch.export.export(Joined().eval(), given, dynamic_shapes=free)))[0][1:] == [6, 3], "torch's own symbol stands for it"
    only = {"x": {0: batch}, "y": {0: batch}}
    ranged = einnet.optimize(torch.export.export(Joined().eval(), given, dynamic_shapes=only), dynamic="batch=1..2", time_budget=2.0, threads=1)
    assert repr(ranged).endswith("batch in 1..2>")


def test_wrong_examples_are_told() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(einnet.EinNetError, match="wants example inputs"):
        einnet.optimize(model.eval())
    with pytest.raises(einnet.EinNetError, match="training mode"):
        einnet.optimize(model.train(), example=(torch.ones(2),))
    with pytest.raises(einnet.EinNetError, match=r"go with a torch\.nn\.Module, not with str"):
        einnet.optimize("model.onnx", example=(torch.ones(2),))
    with pytest.raises(einnet.EinNetError, match=r"a tuple or a list of them, example=\(x,\), and no Tensor"):
        einnet.optimize(model.eval(), example=torch.ones(1, 2))
    with pytest.raises(einnet.EinNetError, match="Linear: torch cannot export it: "):
        einnet.optimize(model.eval(), example=(torch.ones(3),))


def test_torch_finds_the_backend_by_the_entry_point_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["einnet"].partition(":")
    from einnet.api.torch import compiled

    assert getattr(import_module(module), name) is compiled


def test_importing_einnet_imports_no_torch() -> None:
    code = "import sys, einnet, einnet.api.optimize, einnet.graph.onnx.exported; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout.strip() == "False"
