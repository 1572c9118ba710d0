"""The order of a program's data is what its convolutions want, or the other one where that is predicted to be faster."""

from __future__ import annotations

import onnx
import pytest

import einnet
from benchmarks.models.net import Net
from einnet.cli import main
from einnet.compile.targets.cuda import layout
from einnet.compile.targets.cuda.layout import in_order
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.profile import shipped
from einnet.search.settings import Settings
from tests.models import two_layers

SETTINGS = Settings(backend="cuda", allow="precision", max_depth=2, time_budget=1e-6)


def upwards() -> onnx.ModelProto:
    """One position and many channels, which a transposed convolution makes an image of."""
    net = Net("upwards", 0)
    x = net.input("x", (1, 64, 2, 2))
    return net.finish(net.conv_transpose(net.relu(net.conv_transpose(x, "a", 32, 4, stride=2, pad=1), "r"), "b", 3, 4, stride=2, pad=1))


def chosen(monkeypatch: pytest.MonkeyPatch, first: float, second: float, wanted: bool) -> tuple[Program, bool]:
    """The choice where the wanted order takes `first` seconds, and the other one `second`."""
    program = load(upwards())
    times = {texts(prepare(program, permuted=last)): first if last == wanted else second for last in (False, True)}
    assert len(times) == 2
    monkeypatch.setattr(layout, "seconds", lambda given, settings, cost: times[texts(given)])
    return in_order(program, SETTINGS, CudaCost(shipped()), wanted)


def texts(program: Program) -> str:
    return "; ".join(str(n.scope) for n in program.expression_nodes())


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize(("first", "second", "other"), [(1.0, 0.5, True), (1.0, 0.98, False), (1.0, 2.0, False)])
def test_the_faster_order_is_taken_and_the_wanted_one_where_they_are_alike(monkeypatch, wanted, first, second, other):
    program, last = chosen(monkeypatch, first, second, wanted)
    assert last == (wanted != other)
    assert texts(program) == texts(prepare(load(upwards()), permuted=last))


def test_nothing_is_searched_where_there_is_one_order(monkeypatch):
    def never(*given: object) -> float:
        raise AssertionError("searched")

    monkeypatch.setattr(layout, "seconds", never)
    cost = CudaCost(shipped())
    assert in_order(load(two_layers()), SETTINGS, cost, True)[1] is True
    assert in_order(load(upwards()), Settings(backend="cuda", derive=False), cost, False)[1] is False


def test_what_a_search_in_a_share_of_the_budget_finds_decides():
    """The order that is taken is predicted to take no longer than the other one, and costs less than its own operators."""
    program, cost = load(upwards()), CudaCost(shipped())
    taken = {last: layout.seconds(prepare(program, permuted=last), SETTINGS, cost) for last in (False, True)}
    assert taken[False] != taken[True]
    _, last = in_order(program, SETTINGS, cost, False)
    assert last == (taken[True] < (1 - layout.GAIN) * taken[False])


@pytest.mark.parametrize("last", [False, True])
def test_a_program_in_either_order_is_the_model_and_says_which_it_is(monkeypatch, tmp_path, last):
    monkeypatch.setattr("einnet.compile.targets.cuda.target.in_order", lambda program, *_: (prepare(program, permuted=last), last))
    onnx.save(upwards(), tmp_path / "m.onnx")
    found = optimize_cuda(tmp_path / "m.onnx", SETTINGS)
    assert found.report["settings"]["channels_last"] is last
    assert found.report["verification"]["passed"]
    found.save(tmp_path / "p.einnet")
    assert einnet.load(tmp_path / "p.einnet").report["settings"]["channels_last"] is last
    assert main(["verify", str(tmp_path / "m.onnx"), str(tmp_path / "p.einnet")]) == 0, "it is proven in the order that it says"
