"""Graphs of the same weights. Dynamo makes a graph for the prompt of a text, one for its first token and one for all others; or one more for the last
batch of a table. Which of them is called again and again is told by the calls that follow each other."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

Tensor = Any
Key = tuple[Any, ...]


class Family:
    """What is compiled for the same weights, and what of it was called last, with which sizes. `weights` are bytes, by the identity of tensors."""

    def __init__(self, weights: Mapping[int, int] | None = None) -> None:
        self._weights = dict(weights or {})
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: tuple[weakref.ref[Any], Key] | None = None

    def has(self, weights: Mapping[int, int]) -> bool:
        """Most of these are the family's, and most of the family's are these: a table that two halves of a model share makes them no family."""
        common = sum(nbytes for tensor, nbytes in weights.items() if tensor in self._weights)
        return 2 * common >= max(sum(weights.values()), sum(self._weights.values()))

    def further(self, graph: object) -> bool:
        """Another graph is there already; this one is from now on."""
        found = any(member is not graph for member in self._members)
        self._members.add(graph)
        return found

    def again(self, graph: object, key: Key) -> bool:
        """The call before was of this graph with these sizes, as this one is."""
        last, self._last = self._last, (weakref.ref(graph), key)
        return last is not None and last[0]() is graph and last[1] == key


_families: Any = WeakIdKeyDictionary()
"""Lists of them, by the largest weight."""


def family_of(args: Sequence[Any], weights: Collection[int]) -> Family:
    """The family of a graph that is called with these arguments, with its weights at these places; one of its own where it has none."""
    tensors = [args[n] for n in weights if isinstance(args[n], torch.Tensor)]
    if not tensors:
        return Family()
    own = {id(t): int(t.nbytes) for t in tensors}
    known: list[Family] = _families.setdefault(max(tensors, key=torch.Tensor.numel), [])
    for family in known:
        if family.has(own):
            return family
    known.append(Family(own))
    return known[-1]
