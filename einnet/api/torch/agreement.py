"""Whether a program gives what eager mode gives, and where they differ, whether eager mode is as far from the right result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from einnet.search.settings import Settings

Tensor = Any

SLACK = 16.0
"""Times the error of eager mode, against float64, that a program may have where nothing is left of a result but roundings.

Both are sums of many roundings, added up in another order. A wrong program is further away by orders of magnitude.
"""


def tolerance(settings: Settings) -> float:
    """The greatest difference from eager mode that passes, relative to max|y|."""
    return 2 * settings.tolerance


def difference(found: Tensor, wanted: Tensor) -> float:
    """The greatest difference relative to max|y|; infinite where NaN or infinities stand elsewhere, or where other than floats differ at all."""
    if found.shape != wanted.shape or found.dtype is not wanted.dtype:
        return float("inf")
    if not wanted.dtype.is_floating_point:
        return 0.0 if torch.equal(found, wanted) else float("inf")
    finite = torch.isfinite(wanted)
    if not torch.equal(found[~finite].nan_to_num(0.0), wanted[~finite].nan_to_num(0.0)) or not torch.equal(finite, torch.isfinite(found)):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    scale, error = float(wanted[finite].abs().max()), float((found - wanted)[finite].abs().max())
    return error / scale if scale else (0.0 if error == 0 else float("inf"))


def as_exact(module: Any, args: Sequence[Any], found: Sequence[Tensor], wanted: Sequence[Tensor], limit: float) -> bool:
    """Each of the results that differs by more than `limit` is as near to the one in float64 as that of eager mode is, but for `SLACK`.

    The mean of what was normalised to a mean of zero is such a result: all that either has of it are roundings. False where there is nothing to
    compare with: not all operators compute in float64.
    """
    try:
        exact = InDouble(module).run(*(wide(a) for a in args))
    except Exception:  # torch raises many types for what it does not compute
        return False
    results = list(exact) if isinstance(exact, (tuple, list)) else [exact]
    return all(difference(f, w) <= limit or nearer(f, w, e) for f, w, e in zip(found, wanted, results))


def nearer(found: Tensor, wanted: Tensor, exact: Tensor) -> bool:
    """No element of what was found is much further from the exact result than the worst of eager mode. All of them have to be finite numbers."""
    if not wanted.dtype.is_floating_point or found.shape != exact.shape or not all(bool(torch.isfinite(t).all()) for t in (found, wanted, exact)):
        return False
    return bool((found - exact).abs().max() <= SLACK * (wanted - exact).abs().max())


class InDouble(torch.fx.Interpreter):  # type: ignore[misc]
    """A part that computes with float64 where it has float32."""

    def fetch_attr(self, target: str) -> Any:
        """A constant."""
        return wide(super().fetch_attr(target))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator; element types that it is told of are other ones, too."""
        args, kwargs = torch.utils._pytree.tree_map(wide, (args, kwargs))
        return super().call_function(target, args, kwargs)


def wide(value: Any) -> Any:
    """float64 in the place of float32."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype is torch.float32 else value
    return torch.float64 if value is torch.float32 else value
