"""Sizes other than the first: programs are made for those that come again."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")

from einnet.api.torch import eager_contest  # noqa: E402
from einnet.api.torch.families import family_of  # noqa: E402


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[eager_contest.Whole]:
    """The graphs that are compiled in the test."""
    found: list[eager_contest.Whole] = []
    begin = eager_contest.Whole.__init__

    def noted(self: eager_contest.Whole, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        found.append(self)

    monkeypatch.setattr(eager_contest.Whole, "__init__", noted)
    return found


def made(graph: eager_contest.Whole) -> int:
    """How many sets of sizes programs were made for."""
    return sum(len(part.told) for part in graph.parts)


def waits(graph: eager_contest.Whole) -> list[str]:
    return [told.why for told in graph.told if "further sets" in told.why]


def rows(n: int) -> Any:
    return torch.randn(n, 64)


def test_other_sizes_wait_until_they_have_paid_for_programs(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)).eval()
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = compile_kept(model, dynamic=True, slower=False, trivial=0.0)
        for n in (4, 4, 5, 5, 6):
            x = rows(n)
            torch.testing.assert_close(fast(x), model(x))
        (graph,) = graphs
        assert made(graph) == 1 and graph._price_s > 0
        assert [str(w.message).count("sizes='all'") for w in said if "sizes that differ" in str(w.message)] == [1]
        assert len(waits(graph)) == 1 and waits(graph)[0].startswith("for 2 further sets of sizes")
        graph._eager_s = dict.fromkeys(graph._eager_s, graph._price_s)
        x = rows(5)
        torch.testing.assert_close(fast(x), model(x))
        assert made(graph) == 2 and waits(graph)[0].startswith("for 1 further sets of sizes")
        fast(rows(7))
        assert made(graph) == 2


def test_all_sizes_have_programs_at_once_where_that_is_asked_for(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    model = torch.nn.Linear(64, 64).eval()
    with torch.no_grad():
        fast = compile_kept(model, dynamic=True, slower=False, trivial=0.0, sizes="all")
        for n in (4, 5):
            fast(rows(n))
    assert made(graphs[0]) == 2 and not waits(graphs[0])


def test_a_further_graph_of_the_same_weights_waits_until_two_calls_follow_each_other(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    """Dynamo makes another graph for the second sizes, and calls it with the first ones, too. A smaller last batch comes once in each round."""
    model = torch.nn.Linear(64, 64).eval()
    with torch.no_grad():
        fast = compile_kept(model, slower=False, trivial=0.0)
        for _ in range(3):
            for n in (8, 8, 8, 5):
                x = rows(n)
                torch.testing.assert_close(fast(x), model(x))
            chosen = {shape for graph in graphs for key in graph._chosen for shape in key}
            assert (5, 64) not in chosen and [len(waits(graph)) for graph in graphs] == [0, 1]


def test_a_further_graph_has_programs_when_two_calls_follow_each_other(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    model = torch.nn.Linear(64, 64).eval()
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = compile_kept(model, slower=False, trivial=0.0)
        for n, count, told in ((8, [1], 0), (5, [1, 0], 0), (6, [1, 0], 0), (6, [1, 1], 0), (7, [1, 1], 1), (9, [1, 1], 1)):
            x = rows(n)
            torch.testing.assert_close(fast(x), model(x))
            assert [made(graph) for graph in graphs] == count
            assert sum("sizes that differ" in str(w.message) for w in said) == told
        assert "or to follow each other" not in waits(graphs[1])[0]


def test_a_further_graph_that_is_called_often_enough_has_programs(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    model = torch.nn.Linear(64, 64).eval()
    with torch.no_grad():
        fast = compile_kept(model, slower=False, trivial=0.0)
        fast(rows(8))
        fast(rows(5))
        (key,) = graphs[1]._eager_s
        graphs[1]._eager_s[key] = graphs[1]._made_s
        fast(rows(8))
        fast(rows(5))
    assert [made(graph) for graph in graphs] == [1, 1]


def test_graphs_of_the_same_weights_that_are_called_in_turn_wait(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    """Neither has symbolic sizes: a call of the one is none of the other."""
    model = torch.nn.Linear(64, 64).eval()
    with torch.no_grad():
        fast = compile_kept(model, slower=False, trivial=0.0)
        for _ in range(3):
            for x in (rows(8), rows(8).view(2, 4, 64), rows(8).view(2, 2, 2, 64)):
                torch.testing.assert_close(fast(x), model(x))
    assert [made(graph) for graph in graphs] == [1, 0, 0]


def test_a_family_shares_most_of_its_weights() -> None:
    table, one, other = torch.zeros(9, 9), torch.zeros(3), torch.zeros(3)
    assert family_of([one, table], [0, 1]) is family_of([None, table, other], [1, 2])
    assert family_of([one, table], [0]) is not family_of([table, other], [1])
    assert family_of([one], []) is not family_of([one], [])
    more = [torch.zeros(5, 9), torch.zeros(5, 9)]
    assert family_of([table, *more], range(3)) is not family_of([one, table], [0, 1]), "most of the first are others"
    assert family_of([table, *more], range(3)) is family_of([*more, table, one], range(4))


def test_two_graphs_of_a_model_that_share_a_table_wait_for_nothing(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    """A break between the table and the scores by the same table: each graph follows the other."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(40, 32)
            self.one, self.two = (torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.Tanh(), torch.nn.Linear(256, 32)) for _ in range(2))

        def forward(self, tokens: Any) -> Any:
            x = self.one(self.table(tokens))
            torch._dynamo.graph_break()
            return self.two(x) @ self.table.weight.T

    model, tokens = Tied().eval(), torch.arange(8)
    with torch.no_grad():
        torch.testing.assert_close(compile_kept(model, slower=False, trivial=0.0)(tokens), model(tokens))
    assert [made(graph) for graph in graphs] == [1, 1]


def test_modules_of_other_weights_wait_for_nothing(compile_kept, graphs: list[eager_contest.Whole]) -> None:
    """Each layer is compiled by itself, and they are called in turn."""
    layers = [torch.nn.Linear(64, 64).eval(), torch.nn.Linear(64, 48).eval()]
    with torch.no_grad():
        fast = compile_kept(lambda layer, x: layer(x), slower=False, trivial=0.0)
        for _ in range(2):
            for layer in layers:
                x = rows(4)
                torch.testing.assert_close(fast(layer, x), layer(x))
    assert [made(graph) for graph in graphs] == [1, 1]


def test_programs_of_a_store_cost_what_making_them_may_take(compile_kept, graphs: list[eager_contest.Whole], tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    model = torch.nn.Linear(64, 64).eval()
    for _ in range(2):
        torch._dynamo.reset()
        with torch.no_grad():
            fast = compile_kept(model, dynamic=True, slower=False, trivial=0.0, store=True, time_budget=1000.0, graph_budget=700.0)
            for _ in range(2):  # the second graph has the same weights
                fast(rows(4))
    first, second = graphs
    assert first._price_s < 700 <= second._price_s
