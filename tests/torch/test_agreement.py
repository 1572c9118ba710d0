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
