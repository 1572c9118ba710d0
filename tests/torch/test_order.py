"""Where torch leaves the order of equal elements open, a program's is theirs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")


def traced(model: Any, *args: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(model)(*args)


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_are_sorted_as_they_stood(descending: bool) -> None:
    from einnet.api.torch.order import results

    x = torch.randint(0, 4, (3, 200))
    values, places = results(traced(lambda x: tuple(torch.sort(x, -1, descending)), x), [x])
    assert torch.equal(values, x.gather(1, places))
    step = values[:, 1:] - values[:, :-1]
    assert bool(((step <= 0) if descending else (step >= 0)).all())
    assert bool((places[:, 1:] > places[:, :-1])[step == 0].all())


@pytest.mark.parametrize(("largest", "wanted"), [(True, [1, 3, 4, 0]), (False, [5, 2, 0, 4])])
def test_the_largest_are_in_order_though_none_is_asked_for(largest: bool, wanted: list[int]) -> None:
    from einnet.api.torch.order import results

    x = torch.tensor([[2.0, 5.0, 1.0, 4.0, 3.0, 0.0]])
    values, places = results(traced(lambda x: tuple(torch.topk(x, 4, 1, largest, sorted=False)), x), [x])
    assert places.tolist() == [wanted] and torch.equal(values, x.gather(1, places))


def test_of_equal_elements_torch_chooses_the_largest(compile_kept: Any) -> None:
    """What is computed of another choice is another result."""
    from einnet.api.torch.order import results

    x = torch.randint(0, 2, (64, 40)).float()
    chosen = results(traced(lambda x: torch.topk(x, 3).indices, x), [x])[0]
    assert torch.equal(chosen, torch.topk(x, 3).indices)

    def rows(x: Any) -> Any:
        return (torch.sin(torch.arange(40.0))[torch.topk(x * 2.0, 3, sorted=False).indices].sum(-1) + 4.0).sqrt()

    with torch.no_grad():
        assert torch.allclose(compile_kept(rows)(x), rows(x), atol=1e-5)


def test_no_order_is_left_open() -> None:
    from einnet.api.torch.order import in_order

    aten = torch.ops.aten
    assert in_order(aten.topk.default, ("x", 4, 1, True, False), {}) == (("x", 4, 1, True), {})
    assert in_order(aten.topk.default, ("x", 4), {"dim": 1, "sorted": False}) == (("x", 4), {"dim": 1})
    assert in_order(aten.sort.default, ("x", 1), {"descending": True}) == (("x", 1), {"descending": True})


def test_the_only_element_is_the_largest() -> None:
    from einnet.api.torch.order import results

    x = torch.tensor(3.0)
    values, places = results(traced(lambda x: tuple(torch.topk(x, 1)), x), [x])
    assert values.shape == places.shape == () and int(places) == 0


class Routed(torch.nn.Module):  # type: ignore[misc]
    """Rows by the expert that each goes to, as mixtures of experts lay them out."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        share, expert = torch.topk(self.router(x).softmax(-1), 2, dim=-1, sorted=False)
        experts, order = torch.sort(expert.reshape(-1))
        rows = x[order // 2] * share.reshape(-1)[order].unsqueeze(1) + experts.unsqueeze(1)
        return torch.zeros_like(x).index_add(0, order // 2, rows), experts


@pytest.mark.parametrize("half", [False, True])
def test_a_part_that_sorts_equal_numbers_is_a_program(compile_kept: Any, told: Any, half: bool) -> None:
    model, x = Routed().eval(), torch.randn(64, 16)
    if half:
        model, x = model.bfloat16(), x.bfloat16()
    with torch.no_grad():
        fast = compile_kept(model)
        for _ in range(2):
            rows, experts = fast(x)
            wanted, sorted_experts = model(x)
            assert torch.equal(experts, sorted_experts)
            assert torch.allclose(rows.float(), wanted.float(), rtol=0.05, atol=0.05 if half else 1e-4)
    (part,) = told()
    assert part.runs == "einnet" and part.operators > 5 and part.error < 0.02, part


def test_who_is_given_the_order_gets_torchs(compile_kept: Any) -> None:
    x = torch.randint(0, 4, (300,))

    def sorted_rows(x: Any) -> Any:
        order = torch.sort(x)[1]
        return order, (torch.arange(300.0) * 0.5)[order] + x

    fast = compile_kept(sorted_rows)
    for _ in range(2):
        assert all(torch.equal(f, w) for f, w in zip(fast(x), sorted_rows(x), strict=True))


class Counting(torch.nn.Module):  # type: ignore[misc]
    """Sorts, and writes what it has beside its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Any
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1.0)
        return torch.sort(x)[0] * self.calls.sum()


@pytest.mark.parametrize("slower", [True, False])
def test_a_graph_that_goes_by_torchs_order_runs_in_eager_mode(slower: bool, compile_kept: Any, told: Any, monkeypatch: Any) -> None:
    from einnet.api.torch import eager_contest

    monkeypatch.setattr(eager_contest, "in_turns", lambda eager, ours, awake_s: (True, 1.0, 0.5))
    monkeypatch.setattr(eager_contest, "difference", lambda found, wanted: 1.0)
    model, x = Counting().eval(), torch.randn(4, 64)
    with torch.no_grad():
        fast = compile_kept(model, slower=slower)
        for n in range(1, 4):
            assert torch.allclose(fast(x), torch.sort(x)[0] * 3.0 * n) and model.calls.tolist() == [float(n)] * 3
    assert [part.why for part in told() if part.part == "the graph"] == ["equal elements that it sorts are in another order there"]


def test_other_sizes_of_a_graph_that_sorts_have_programs_at_once_too(compile_kept: Any, told: Any) -> None:
    model = Routed().eval()
    with torch.no_grad():
        fast = compile_kept(model, dynamic=True)
        for rows in (64, 40):
            x = torch.randn(rows, 16)
            assert torch.allclose(fast(x)[0], model(x)[0], rtol=1e-3, atol=1e-4)
    assert [part.runs for part in told()] == ["einnet", "einnet"]
