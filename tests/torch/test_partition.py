"""The parts into which a graph is divided."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")

aten = torch.ops.aten


class Relus:
    """All but sines are taken."""

    def is_node_supported(self, modules: Any, node: Any) -> bool:
        return node.op == "call_function" and node.target is not aten.sin.default


@st.composite
def graphs(draw: Any) -> Any:
    """Random graphs of additions, sines and splits, whose last values are results."""
    graph = torch.fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(draw(st.integers(1, 25))):
        a, b = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["add", "sin", "split"]))
        if kind == "split":
            pieces = graph.call_function(aten.split.Tensor, (a, 2))
            values += [graph.call_function(operator.getitem, (pieces, n)) for n in range(draw(st.integers(1, 2)))]
            values[-1] = graph.call_function(aten.repeat.default, (values[-1], [2]))
            values[-2] = graph.call_function(aten.repeat.default, (values[-2], [2])) if values[-2].target is operator.getitem else values[-2]
        else:
            values.append(graph.call_function(aten.add.Tensor, (a, b)) if kind == "add" else graph.call_function(aten.sin.default, (a,)))
    graph.output(tuple(v for v in values if not v.users))
    return torch.fx.GraphModule({}, graph)


@given(graphs())
def test_parts_follow_one_another(module: Any) -> None:
    from einnet.api.torch.partition import in_parts

    support = Relus()
    parts = in_parts(module, support)
    place = {node: n for n, part in enumerate(parts) for node in part}
    taken = [node for node in module.graph.nodes if support.is_node_supported({}, node)]
    assert sorted(map(str, place)) == sorted(map(str, taken)) and sum(map(len, parts)) == len(taken)
    before: dict[Any, int] = {}
    for node in module.graph.nodes:
        least = max((before[i] for i in node.all_input_nodes), default=0)
        if node in place:
            assert place[node] >= least, "a part reads what a later one gives"
            least = place[node]
        elif any(i in place for i in node.all_input_nodes):
            least = max(least, 1 + max(place[i] for i in node.all_input_nodes if i in place))
        before[node] = least
        if node.target is operator.getitem:
            assert place[node] == place[node.args[0]]


@given(graphs())
def test_there_are_no_more_parts_than_the_longest_path_changes_between_what_is_taken_and_not(module: Any) -> None:
    from einnet.api.torch.partition import in_parts

    support, longest = Relus(), {}
    for node in module.graph.nodes:
        mine = support.is_node_supported({}, node)
        longest[node] = max((longest[i] + (mine and not support.is_node_supported({}, i)) for i in node.all_input_nodes), default=0)
    assert len(in_parts(module, support)) <= max(longest.values())


@given(graphs())
def test_a_graph_in_parts_computes_the_same(module: Any) -> None:
    from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

    from einnet.api.torch.partition import in_parts

    x, y = torch.rand(4), torch.rand(4)
    wanted = module(x, y)
    found = fuse_by_partitions(module, [dict.fromkeys(part) for part in in_parts(module, Relus())])(x, y)
    assert all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))
