"""The order of equal elements, which torch leaves open where it sorts, and a program does not: in that in which they stood.

Which of equal elements are among the largest is left open, too. That is no order: what is computed of others is another result, and torch's choice
stays the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

Tensor = Any

aten = torch.ops.aten


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sorted elements and their places, the first of equal ones first."""
    values, places = aten.sort.stable(x, stable=True, dim=dim, descending=descending)
    return values, places


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The elements that torch takes for the largest or smallest in order, also where none is asked for."""
    values, places = aten.topk.default(x, k, dim, largest, True)
    return values, places


SETTLED = {aten.sort.default: sort, aten.topk.default: topk}

SORTED = "sorted"
"""The argument of `topk` that leaves the order of its results open."""


class Settled(torch.fx.Interpreter):  # type: ignore[misc]
    """A part that gives equal elements in the order in which they stood."""

    def of(self, args: Sequence[Any]) -> list[Tensor]:
        """Its results."""
        return outputs(self.run(*args))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An operator's result."""
        return super().call_function(SETTLED.get(target, target), args, kwargs)


def results(module: Any, args: Sequence[Any]) -> list[Tensor]:
    """What a part gives in eager mode, equal elements in the order in which they stood."""
    return Settled(module).of(args) if sorts(module) else outputs(module(*args))


def sorts(module: Any) -> bool:
    """The order of some of what the part computes is left open."""
    return any(node.target in SETTLED for node in module.graph.nodes)


def in_order(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an operator's call that leaves no order open."""
    if target is not aten.topk.default:
        return tuple(args), dict(kwargs)
    place = [a.name for a in target._schema.arguments].index(SORTED)
    return tuple(args[:place]), {name: value for name, value in kwargs.items() if name != SORTED}


def outputs(found: Any) -> list[Tensor]:
    """A submodule's outputs as a list."""
    return list(found) if isinstance(found, (tuple, list)) else [found]
