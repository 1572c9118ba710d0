"""What counts as the result of eager mode where that has nothing but roundings."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn = torch.nn

from einnet.api.torch.agreement import as_exact, difference, nearer  # noqa: E402

LIMIT = 2e-4


class Cancelled(nn.Module):
    """The mean of numbers whose mean was taken away, and a plain sum beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 1.5, 7))

    def forward(self, x: Any) -> Any:
        y = x * self.weight.to(torch.float32)
        return (y - y.mean(-1, keepdim=True)).mean(-1), y.sum(-1)


@pytest.fixture
def part() -> Any:
    torch.manual_seed(0)
    return torch.fx.symbolic_trace(Cancelled()), (torch.randn(5, 7),)


def test_another_order_of_roundings_passes(part):
    module, args = part
    wanted = module(*args)
    other = wanted[0].flip(0)
    assert difference(other, wanted[0]) > LIMIT
    assert as_exact(module, args, [other, wanted[1]], wanted, LIMIT)
    assert as_exact(module, args, [torch.zeros_like(other), wanted[1]], wanted, LIMIT), "the exact result passes"


def test_what_is_wrong_does_not_pass(part):
    module, args = part
    wanted = module(*args)
    assert not as_exact(module, args, [wanted[0] + 1e-3, wanted[1]], wanted, LIMIT)
    assert not as_exact(module, args, [wanted[0], wanted[1] * 1.001], wanted, LIMIT), "errors of eager mode in one result excuse no other one"


def test_a_single_wrong_element_does_not_pass():
    exact = torch.zeros(4, dtype=torch.float64)
    wanted = torch.full((4,), 1e-8)
    assert nearer(torch.full((4,), 1e-7), wanted, exact)
    assert not nearer(torch.tensor([0.0, 0.0, 1e-6, 0.0]), wanted, exact)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_does_not_pass(value):
    exact, wanted = torch.zeros(2, dtype=torch.float64), torch.tensor([1e-8, value])
    assert not nearer(torch.zeros(2), wanted, exact)
    assert not nearer(wanted, torch.tensor([1e-8, 1e-8]), exact)


def test_integers_have_no_roundings():
    assert not nearer(torch.tensor([1]), torch.tensor([2]), torch.tensor([1]))


def test_what_does_not_compute_in_float64_does_not_pass():
    class Bits(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.view(torch.int32).view(torch.float32) @ torch.eye(3)

    module, args = torch.fx.symbolic_trace(Bits()), (torch.randn(2, 3),)
    assert not as_exact(module, args, [args[0] * 2], [args[0]], LIMIT)


def test_a_program_of_other_roundings_is_used(compile_kept, told, monkeypatch):
    """The negative of a result that is 0 but for roundings is another one by 2 of max|y|."""
    from einnet.api.torch.program import Bound

    right = Bound.__call__
    monkeypatch.setattr(Bound, "__call__", lambda self, args: tuple(-t for t in right(self, args)))
    x = torch.randn(4, 30)
    with torch.no_grad():
        found = compile_kept(lambda x: (x - x.mean(-1, keepdim=True)).mean(-1))(x)
    assert float(found.abs().max()) < 1e-6
    assert [t.runs for t in told()] == ["einnet"]
