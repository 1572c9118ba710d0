"""Parts with numbers of half precision (float16, bfloat16): computed in float32, no farther from what they mean than eager mode is.

Eager mode rounds what every operator gives. Without these roundings a part is the same expression over float32, which has all numbers of both types.
How far they lead eager mode away from it is measured on the call's own inputs, and is what a program may err: products may take their factors in
half precision as eager mode's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor, inf, log2
from typing import Any

import torch

from einnet.api.torch.agreement import AS_NEAR, same_infinities
from einnet.compile.targets.cpu.rounded_products import SPENT
from einnet.search.settings import Settings

Tensor = Any

HALVES = (torch.float16, torch.bfloat16)
WIDE = torch.float32

NOTHING, MOST = 2.0**-14, 0.25
"""Errors of eager mode below which a result says nothing of what a program may err, and the most that one may."""


def widened(x: Any) -> Any:
    """Tensors of half precision in float32, and that type's name in place of theirs; anything else as it is."""
    if isinstance(x, torch.Tensor):
        return x.float() if x.dtype in HALVES else x
    return WIDE if isinstance(x, torch.dtype) and x in HALVES else x


def halved(values: Sequence[Any]) -> bool:
    """Some tensor has numbers of half precision."""
    return any(isinstance(x, torch.Tensor) and x.dtype in HALVES for x in values)


def budgeted(settings: Settings, wanted: Sequence[Tensor], exact: Sequence[Tensor]) -> Settings:
    """The settings of a search for a program that errs no more than eager mode in any result y0, y1, .. on the inputs that are drawn. Where its error
    says nothing, the least of the others holds. An error that the user has named stays."""
    errors = {f"y{n}": apart(w, w, e) for n, (w, e) in enumerate(zip(wanted, exact, strict=True)) if w.dtype.is_floating_point}
    limits = {name: min(e / SPENT, MOST) for name, e in errors.items() if NOTHING <= e < inf}
    if settings.max_error is not None or not limits:
        return settings
    least = min(limits.values())
    return replace(settings, max_error=least, output_errors={name: limit for name, limit in limits.items() if limit > least})


def roughly(asked: Settings, budgeted: Settings) -> Settings:
    """The settings by which a program is stored and found again: other inputs of a process's first call make eager mode err a little more or less, so
    that its error counts as a power of two. What is found is compared with eager mode in any case."""
    if asked.max_error is not None or budgeted.max_error is None:
        return asked
    return replace(asked, max_error=2.0 ** floor(log2(budgeted.max_error)))


def judged(found: Sequence[Tensor], wanted: Sequence[Tensor], exact: Sequence[Tensor], limit: float) -> tuple[float, bool]:
    """The greatest error relative to max|y| of the part in float32, and whether all results are right: within a limit, or no more than twice as far
    from it as eager mode, which overflows at the same places. Integers and booleans are eager mode's, or those of the part in float32."""
    errors, right = [0.0], True
    for f, w, e in zip(found, wanted, exact, strict=True):
        if f.shape != w.shape or f.dtype is not w.dtype:
            return inf, False
        if not w.dtype.is_floating_point:
            right &= torch.equal(f, w) or torch.equal(f, e)
            continue
        if not same_infinities(f, w):
            return inf, False
        errors.append(apart(f, w, e))
        right &= errors[-1] <= max(limit, AS_NEAR * max(apart(w, w, e), float(torch.finfo(w.dtype).eps)))
    return max(errors), right


def apart(found: Tensor, wanted: Tensor, exact: Tensor) -> float:
    """The greatest difference from the exact result relative to its max|y|, of numbers that are finite in eager mode and in it."""
    finite = torch.isfinite(exact) & torch.isfinite(wanted)
    if not bool(finite.any()):
        return 0.0
    y, x = exact[finite].double(), found[finite].double()
    scale, error = float(y.abs().max()), float((x - y).abs().max())
    return error / scale if scale else (0.0 if error == 0 else inf)
