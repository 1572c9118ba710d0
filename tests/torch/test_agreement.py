"""When a part's results are eager mode's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn, F = torch.nn, torch.nn.functional

DIFFERENT = [
    ([1.0, 2.0], [1.0, 2.0], 0.0),
    ([1.0, 2.0], [1.0, 4.0], 0.5),
    ([float("nan"), 1.0], [float("nan"), 1.0], 0.0),
    ([float("inf"), 1.0], [float("inf"), 1.0], 0.0),
    ([float("nan"), 1.0], [float("inf"), 1.0], float("inf")),
    ([float("-inf"), 1.0], [float("inf"), 1.0], float("inf")),
    ([float("nan"), 1.0], [0.0, 1.0], float("inf")),
    ([0.0, 1e-30], [0.0, 0.0], float("inf")),
    ([float("nan")], [float("nan")], 0.0),
]


@pytest.mark.parametrize(("found", "wanted", "error"), DIFFERENT)
def test_how_results_differ(found: list[float], wanted: list[float], error: float) -> None:
    from einnet.api.torch.agreement import difference

    assert difference(torch.tensor(found), torch.tensor(wanted)) == error


def test_integers_and_types_differ_wholly_or_not_at_all() -> None:
    from einnet.api.torch.agreement import difference

    assert difference(torch.tensor([1, 2]), torch.tensor([1, 2])) == 0.0
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == float("inf")
    assert difference(torch.tensor([1.0]), torch.tensor([1])) == float("inf")


class Centred(nn.Module):
    """The mean of what was normalised to a mean of zero, beside a plain result."""

    def forward(self, x: Any) -> Any:
        y = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
        return torch.nn.functional.relu(y), (2.0 * y).mean(0) - 0.5 * y.sum(0)


def traced(model: Any, *args: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(model)(*args)


def test_what_is_nothing_but_roundings_differs_by_its_terms() -> None:
    from einnet.api.torch.agreement import difference, differences

    x = torch.randn(64, 8)
    module = traced(Centred(), x)
    wanted = module(x)
    assert float(wanted[1].abs().max()) < 1e-5
    other = [wanted[0], wanted[1] + 1e-6]
    assert difference(other[1], wanted[1]) > 0.01
    assert differences(module, [x], other, wanted, 1e-4) < 1e-5
    assert differences(module, [x], [wanted[0] * 1.01, wanted[1]], wanted, 1e-4) == pytest.approx(0.01, rel=1e-3)
    assert differences(module, [x], [wanted[0], wanted[1] + 1.0], wanted, 1e-4) > 0.01


class Alone(nn.Module):
    """What is taken away from itself, much enlarged: nothing but roundings, behind a function that is no sum."""

    def forward(self, x: Any, w: Any) -> Any:
        y = x @ w
        return F.leaky_relu(y * 320.3125 - y * 3.203125 * 100.0) + torch.full((1,), 0.0, dtype=torch.float32)


def test_what_is_as_near_to_the_result_in_float64_as_eager_mode_is_right() -> None:
    from einnet.api.torch.agreement import difference, differences

    args = torch.randn(16, 64), torch.randn(64, 8)
    module = traced(Alone(), *args)
    wanted = module(*args)
    assert 0 < float(wanted.abs().max()) < 1e-2
    assert difference(torch.zeros_like(wanted), wanted) == 1.0
    assert differences(module, args, [torch.zeros_like(wanted)], [wanted], 1e-4) < 1e-4
    assert differences(module, args, [-1.5 * wanted], [wanted], 1e-4) < 1e-4
    assert differences(module, args, [wanted * 3], [wanted], 1e-4) > 1e-4
    assert differences(module, args, [wanted * float("nan")], [wanted], 1e-4) > 1e-4


def test_what_float64_tells_of_a_wrong_result_is_how_far_it_is_from_eager_mode() -> None:
    from einnet.api.torch.agreement import differences

    args = torch.randn(16, 64), torch.randn(64, 8)
    module = traced(lambda x, w: torch.sigmoid(x @ w), *args)
    wanted = module(*args)
    assert differences(module, args, [wanted + 0.01], [wanted], 1e-4) == pytest.approx(0.01 / float(wanted.max()), rel=1e-3)


@pytest.mark.parametrize("model", [lambda x: x.to(torch.float32) * 0.1, lambda x: torch.arange(4, dtype=torch.float32) / 3 + x, lambda x: x.sum(0)])
def test_numbers_that_a_part_makes_on_the_way_are_of_float64_too(model: Any) -> None:
    from einnet.api.torch.agreement import in_double

    x = torch.randn(4, 4)
    found = in_double(traced(model, x), [x])
    assert found is not None and found[0].dtype is torch.float64
    assert 0 < float((found[0] - model(x)).abs().max()) < 1e-6, "more digits of the same"


TERMS = [
    (lambda x, w: x @ w, lambda x, w: x.abs() @ w.abs()),
    (lambda x, w: -3 * (x - 2 * x).sum(1), lambda x, w: 9 * x.abs().sum(1)),
    (lambda x, w: torch.relu(x @ w) @ w.T, lambda x, w: torch.relu(x @ w) @ w.T.abs()),
    (lambda x, w: (x.T.reshape(-1)[2:] * -0.5)[None], lambda x, w: (0.5 * x.abs()).T.reshape(-1)[2:][None]),
    (lambda x, w: F.conv1d(x[None], w.T[:, :, None]), lambda x, w: F.conv1d(x.abs()[None], w.T.abs()[:, :, None])),
]


@pytest.mark.parametrize(("model", "terms"), TERMS)
def test_sizes_are_sums_of_absolute_terms_since_the_last_other_function(model: Any, terms: Any) -> None:
    from einnet.api.torch.agreement import Sizes

    x, w = torch.randn(6, 6), torch.randn(6, 4)
    torch.testing.assert_close(Sizes(traced(model, x, w)).of([x, w])[0], terms(x, w))
