"""Graphs of the same weights. Dynamo makes a graph for the prompt of a text, one for its first token and one for all others; or one more for the last
batch of a table. Which of them is called again and again is told by the calls that follow each other."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

Tensor = Any
Key = tuple[Any, ...]


class Family:
    """What is compiled for the same weights, and what of it was called last, with which sizes."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: tuple[weakref.ref[Any], Key] | None = None

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
"""By the largest weight."""


def family_of(args: Sequence[Any], weights: Collection[int]) -> Family:
    """The family of a graph that is called with these arguments, with its weights at these places; one of its own where it has none."""
    tensors = [args[n] for n in weights if isinstance(args[n], torch.Tensor)]
    if not tensors:
        return Family()
    return _families.setdefault(max(tensors, key=torch.Tensor.numel), Family())  # type: ignore[no-any-return]
