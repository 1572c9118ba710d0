"""Whether a program gives what eager mode gives.

A difference is relative to max|y|, or where that is too large for a program to be used, to the sums of absolute terms that y is made of: the mean of
what was normalised to a mean of zero is nothing but roundings, relative to which any other order of additions gives another result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from einnet.search.settings import Settings

Tensor = Any


def tolerance(settings: Settings) -> float:
    """The greatest difference from eager mode that passes, relative to max|y|."""
    return 2 * settings.tolerance


def difference(found: Tensor, wanted: Tensor, size: Tensor | None = None) -> float:
    """The greatest difference relative to max|y|, or to the greatest element of `size` where that is given; infinite where NaN or infinities stand
    elsewhere, or where other than floats differ at all."""
    if found.shape != wanted.shape or found.dtype is not wanted.dtype:
        return float("inf")
    if not wanted.dtype.is_floating_point:
        return 0.0 if torch.equal(found, wanted) else float("inf")
    finite = torch.isfinite(wanted)
    if not torch.equal(found[~finite].nan_to_num(0.0), wanted[~finite].nan_to_num(0.0)) or not torch.equal(finite, torch.isfinite(found)):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    scale, error = float((wanted.abs() if size is None else size)[finite].max()), float((found - wanted)[finite].abs().max())
    return error / scale if scale else (0.0 if error == 0 else float("inf"))


def differences(module: Any, args: Sequence[Any], found: Sequence[Tensor], wanted: Sequence[Tensor], limit: float) -> float:
    """The greatest difference of all results, relative to max|y| each, or to the terms of those that differ by more than `limit` so."""
    plain = [difference(f, w) for f, w in zip(found, wanted, strict=True)]
    if max(plain, default=0.0) <= limit:
        return max(plain, default=0.0)
    sizes = Sizes(module).of(args)
    return max(d if d <= limit else difference(f, w, s) for d, f, w, s in zip(plain, found, wanted, sizes, strict=True))


aten = torch.ops.aten

MOVING = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.transpose.int, aten.t.default, aten.expand.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.clone.default, aten.slice.Tensor, aten.select.int,
    aten.cat.default, aten.alias.default,
}  # fmt: skip
"""Operators that give their operands' elements, in other places."""

ADDING = {
    aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.mul.Scalar, aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim,
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.convolution.default,
}  # fmt: skip
"""Operators that give sums of products of their operands' elements: of absolute values, sums of absolute products."""

SUBTRACTING = {aten.sub.Tensor: aten.add.Tensor, aten.sub.Scalar: aten.add.Scalar}


class Sizes(torch.fx.Interpreter):  # type: ignore[misc]
    """A part that computes, beside each of its values, the sums of the absolute terms that it is made of since the last function that is no sum."""

    def of(self, args: Sequence[Any]) -> list[Tensor]:
        """Those of the results."""
        self._sizes: dict[Any, Any] = {}
        self.run(*args)
        (output,) = [n for n in self.module.graph.nodes if n.op == "output"]
        results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
        return [self._sizes[n] for n in results]

    def run_node(self, n: Any) -> Any:
        """The node's value; its size is kept."""
        value = super().run_node(n)
        if n.op != "output":
            self._sizes[n] = self._size(n, value)
        return value

    def _size(self, n: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            return value
        operator = SUBTRACTING.get(n.target, n.target)
        if n.op != "call_function" or (operator not in MOVING and operator not in ADDING):
            return value.abs()
        args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda m: self._sizes[m])
        if operator in ADDING:
            args, kwargs = [abs(a) if isinstance(a, float) else a for a in args], {name: abs(a) for name, a in kwargs.items()}
        return operator(*args, **kwargs).abs()
