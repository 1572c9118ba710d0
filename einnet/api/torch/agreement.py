"""Whether a program gives what eager mode gives."""

from __future__ import annotations

from typing import Any

import torch

from einnet.search.settings import Settings

Tensor = Any


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
