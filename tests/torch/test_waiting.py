"""No call of a graph waits longer for its programs than it was told to."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn = torch.nn

from einnet.api.torch import make, waiting  # noqa: E402
from einnet.api.torch.frozen import Frozen  # noqa: E402
from einnet.api.torch.options import read_options  # noqa: E402
from einnet.api.torch.waiting import LEAST_S, Allowance, NotReady, Stop, Turn, within  # noqa: E402
from einnet.errors import ModelError  # noqa: E402
from einnet.runtime.cpu.affinity import _workers  # noqa: E402
from einnet.runtime.cpu.threads import find_symbol  # noqa: E402
from tests.runtime.test_apart import gone  # noqa: E402


class Stuck:
    """Programs that are made for as long as the test wants. The clock moves when somebody has waited, and not otherwise."""

    def __init__(self) -> None:
        self.seconds, self.begun, self.released = 0.0, 0, threading.Event()

    def program(self, *_: Any) -> Any:
        self.begun += 1
        self.released.wait()
        raise ModelError("nobody waits for this")

    def within(self, make: Any, turn: Turn) -> Any:
        try:
            return within(make, turn)
        finally:
            self.seconds += 1.0

    def end(self) -> int:
        """How many were begun."""
        self.released.set()
        for thread in threading.enumerate():
            if thread.name == "einnet-making":
                thread.join()
        return self.begun


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    found = Stuck()
    monkeypatch.setattr(make, "program", found.program)
    monkeypatch.setattr(make, "within", found.within)
    monkeypatch.setattr(waiting, "now", lambda: found.seconds)
    yield found
    found.end()


def test_what_is_made_in_time_is_given_and_its_errors_are_raised():
    now = time.monotonic()
    assert within(lambda stop: 7, Turn(inf)) == 7
    with pytest.raises(ModelError, match="as it was"):
        within(lambda stop: exec("raise error", {"error": ModelError("as it was")}), Turn(now + 1e6))


@pytest.mark.skipif(not find_symbol("GOMP_parallel"), reason="no OpenMP pool")
def test_nothing_waits_beside_what_is_made():
    """The waiting thread's own pool would keep the program's threads from waiting actively while it is timed."""
    (worker,) = _workers(2)
    assert not gone(worker, seconds=0.0)
    assert within(lambda stop: gone(worker), Turn(inf))


def test_who_is_late_is_told_to_stop():
    released, stopped = threading.Event(), threading.Event()

    def slow(stop: Stop) -> None:
        stop()  # somebody waits
        released.wait()
        try:
            stop()
        except NotReady:
            stopped.set()

    with pytest.raises(NotReady, match="not ready in the time"):
        within(slow, Turn(time.monotonic() + 0.01))
    released.set()
    assert stopped.wait(60)


def test_nothing_is_begun_when_the_time_is_over():
    begun: list[Stop] = []
    with pytest.raises(NotReady, match="is over"):
        within(begun.append, Turn(time.monotonic()))
    assert not begun


def test_parts_share_the_time_after_their_operators():
    allowance = Allowance(1e9, operators=100)
    turns = [allowance.turn(n) for n in (10, 30, 60)]
    assert [t.share for t in turns] == [0.1, 30 / 90, 1.0]
    assert len({t.end for t in turns}) == 1, "one time for the whole call"
    allowance.begin()
    again = allowance.turn(50)
    assert again.share == 0.5 and again.end > turns[0].end, "the next call has a time of its own"


def test_another_thread_has_a_time_of_its_own():
    allowance = Allowance(1e9, operators=2)
    allowance.turn(1)
    found: list[Turn] = []
    thread = threading.Thread(target=lambda: found.append(allowance.turn(1)))
    thread.start()
    thread.join()
    assert found[0].share == 0.5


def test_a_search_has_its_part_of_what_is_left():
    assert Turn(inf, 0.1).searched(30.0) == 30.0
    assert 1.0 < Turn(time.monotonic() + 1e3, 0.01).searched(30.0) <= 8.0
    assert Turn(time.monotonic() + 1.0, 0.01).searched(30.0) == LEAST_S
    assert Turn(time.monotonic(), 1.0).searched(0.5) == 0.5


def test_parts_that_are_not_ready_run_as_they_are(compile_kept, told, stuck):
    def call(x: Any) -> Any:
        y = (x @ x).relu()
        z = (y.double() / 3).float()
        return torch.sigmoid(z @ y)

    x = torch.randn(5, 5)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = compile_kept(call, graph_budget=0.05)
        for _ in range(2):
            torch.testing.assert_close(fast(x), call(x))
    assert [t.runs for t in told()] == ["eager", "eager"]
    assert stuck.end() == 1, "the first part has used up the time of both, and no later call waits again"
    assert len([w for w in said if "when the 0.05 s of the graph were over (graph_budget)" in str(w.message)]) == 2


def test_other_sizes_have_a_time_of_their_own(compile_kept, told, stuck):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = compile_kept(model, dynamic=True, graph_budget=0.05)
        for batch in (2, 3, 2):
            x = torch.randn(batch, 6)
            torch.testing.assert_close(fast(x), model(x))
    assert stuck.end() == 2
    assert [t.runs for t in told()] == ["eager", "eager"]


def test_who_is_strict_hears_of_it(compile_kept, stuck):
    with torch.no_grad(), pytest.raises(NotReady):
        compile_kept(nn.Linear(6, 4).eval(), graph_budget=0.05, strict=True)(torch.randn(2, 6))


@pytest.mark.parametrize("where", ["export", "search"])
def test_what_is_made_ends_where_it_next_says_how_far_it_is(where, monkeypatch):
    stop, passed = Stop(), []

    @contextmanager
    def export(self: Frozen, outputs: int) -> Iterator[None]:
        passed.append("export")
        if where == "export":
            stop.ask()
        yield

    def optimize(model: Any, settings: Any) -> None:
        passed.append("search")
        stop.ask()
        settings.progress(None)

    monkeypatch.setattr("einnet.api.optimize.optimize", optimize)
    monkeypatch.setattr(Frozen, "onnx", export)
    settings = read_options({}, 1)[1]
    with pytest.raises(NotReady):
        make.program(Frozen(None, (), (), {}, ""), 1, None, settings, Turn(inf), stop)
    assert passed == ["export", "search"][: 1 + (where == "search")]
