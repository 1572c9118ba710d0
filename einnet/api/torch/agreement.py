"""Whether a program gives what eager mode gives.

A difference is relative to max|y|, or where that is too large for a program to be used, to the sums of absolute terms that y is made of: the mean of
what was normalised to a mean of zero is nothing but roundings, relative to which any other order of additions gives another result. Where that does
not tell either, what is as near as eager mode is to the part in float64 is as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from einnet.api.torch.order import Settled
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
    if not same_infinities(found, wanted):
        return float("inf")
    finite = torch.isfinite(wanted)
    if not bool(finite.any()):
        return 0.0
    scale, error = float((wanted.abs() if size is None else size)[finite].max()), float((found - wanted)[finite].abs().max())
    return error / scale if scale else (0.0 if error == 0 else float("inf"))


def same_infinities(found: Tensor, wanted: Tensor) -> bool:
    """NaN and infinities stand at the same places in both."""
    finite = torch.isfinite(wanted)
    return torch.equal(finite, torch.isfinite(found)) and bool(torch.equal(found[~finite].nan_to_num(0.0), wanted[~finite].nan_to_num(0.0)))


def differences(module: Any, args: Sequence[Any], found: Sequence[Tensor], wanted: Sequence[Tensor], limit: float) -> float:
    """The greatest difference of all results, relative to max|y| each, or to the terms of those that differ by more than `limit` so; of those whose
    terms do not tell, less than `limit` where eager mode is as far from the result in float64."""
    plain = [difference(f, w) for f, w in zip(found, wanted, strict=True)]
    if max(plain, default=0.0) <= limit:
        return max(plain, default=0.0)
    sizes = Sizes(module).of(args)
    known = [d if d <= limit else difference(f, w, s) for d, f, w, s in zip(plain, found, wanted, sizes, strict=True)]
    exact = in_double(module, args) if max(known) > limit else None
    if exact is None:
        return max(known)
    near = [limit * farther(f, w, e) / AS_NEAR for f, w, e in zip(found, wanted, exact, strict=True)]
    return max(d if d <= limit or n > limit else n for d, n in zip(known, near, strict=True))


AS_NEAR = 2.0
"""Times as far from the result in float64 as eager mode's a program's may be: which of two orders of additions is nearer is chance."""


def farther(found: Tensor, wanted: Tensor, exact: Tensor) -> float:
    """How many times as far from the exact result one is as the other; infinite where that is no number."""
    if found.shape != exact.shape or not wanted.dtype.is_floating_point or not all(bool(torch.isfinite(x).all()) for x in (found, wanted, exact)):
        return float("inf")
    ours, theirs = (float((x.double() - exact).abs().max()) for x in (found, wanted))
    return ours / theirs if theirs else float("inf")


def in_double(module: Any, args: Sequence[Any]) -> list[Tensor] | None:
    """The results of a part that is computed in float64 throughout; None where torch cannot."""
    try:
        return Double(module).of(args)
    except Exception:  # torch raises many types for operators that have no such form
        return None


def doubled(x: Any) -> Any:
    """Tensors of float32 as float64, and that type's name as the other's."""
    if isinstance(x, torch.Tensor):
        return x.double() if x.dtype is torch.float32 else x
    return torch.float64 if x is torch.float32 else x


class Double(Settled):
    """A part whose numbers of float32 are of float64, those that it makes on the way, too."""

    def of(self, args: Sequence[Any]) -> list[Tensor]:
        """Its results."""
        return super().of([doubled(x) for x in args])

    def fetch_attr(self, target: str) -> Any:
        """A constant of the part."""
        return doubled(super().fetch_attr(target))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An operator's result."""
        args, kwargs = tree_map(doubled, (args, kwargs))
        return tree_map(doubled, super().call_function(target, args, kwargs))


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


class Sizes(Settled):
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
