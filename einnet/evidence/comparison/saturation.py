"""What saturates: numbers of a model's tensors that are beyond the integers that it rounds them to, on inputs of one's own.

The ranges are part of the model: they were taken from inputs of some kind, and those of another kind may be beyond them, which every engine cuts off
in the same way. So it is nothing that a comparison of engines could find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]

WORTH_TELLING = 0.01
"""Share of a tensor's numbers: fewer are what ways to take ranges leave out on purpose."""


def saturated(model: Any, draws: Sequence[Mapping[str, Array]], threads: int = 1) -> dict[str, float]:
    """Of each tensor that a model rounds to few integers the share of its numbers, over these inputs, that are beyond them, the greatest share first.

    Raises BackendError where ONNX Runtime does not take the model with these tensors as outputs.
    """
    from einnet.graph.onnx.byte_ranges import exposed

    shown = exposed(model)
    if shown is None:
        return {}
    session = Session(shown[0], threads, title="the model with its rounded tensors as outputs")
    beyond, count = {r.name: 0 for r in shown[1]}, {r.name: 0 for r in shown[1]}
    for inputs in draws:
        held = session(inputs)
        for r in shown[1]:
            beyond[r.name] += r.beyond(held[r.name])
            count[r.name] += held[r.name].size
    return dict(sorted(((name, n / max(count[name], 1)) for name, n in beyond.items()), key=lambda found: (-found[1], found[0])))


def told(found: Mapping[str, float], inputs: str, least: float = WORTH_TELLING) -> list[str]:
    """A line for people, where a tensor saturates to speak of on such inputs."""
    much = {name: share for name, share in found.items() if share > least}
    if not much:
        return []
    name, share = next(iter(much.items()))
    others = f", and {len(much) - 1} more of {len(found)} tensors saturate" if len(much) > 1 else ""
    return [f"saturation: on {inputs} {share:.2g} of the numbers of {name!r} are beyond the range that the model has for it{others}"]
