"""Which evaluator of a model a program is compared with: ONNX Runtime, or that of the standard where ONNX Runtime is known to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from einnet.graph.program import Opaque, Program
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.runtime.machine import cpu_features
from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]
Evaluator = Callable[[Mapping[str, Array]], dict[str, Array]]


def evaluator_of_the_standard(model: Any, program: Program) -> tuple[Evaluator, tuple[str, ...]] | None:
    """The evaluator of the standard, and the outputs of the nodes that ONNX Runtime computes wrongly on this processor.

    None where there is no such node, and where ONNX Runtime runs one of that kind inside of the program, too: both are wrong alike then.
    """
    from einnet.graph.onnx.standard import FACTORS, Standard, cut_short

    def kinds(opaque: bool) -> set[str]:
        return {o.split()[0] for n in program.nodes if isinstance(n, Opaque) == opaque for o in n.origin if o} & FACTORS.keys()

    if not kinds(opaque=False) or kinds(opaque=True):
        return None
    shapes = {program.names.get(t.name, t.name): t.shape for t in program.inputs}
    wrong = cut_short(model, shapes, cpu_features())
    return (Standard(model, shapes), wrong) if wrong else None


def is_whole(plan: Plan) -> bool:
    """ONNX Runtime runs the whole model."""
    (kernel, *rest) = plan.kernels or (None,)
    alone = not rest and isinstance(kernel, OpaqueCall) and kernel.recursion is None
    return alone and all(b.role in ("input", "output") for b in plan.buffers)


class References:
    """A model in ONNX Runtime, for programs to be compared with."""

    def __init__(self, model: bytes | str | Path, threads: int, title: str, rounds: bool) -> None:
        """`rounds` says that ONNX Runtime by default rounds factors of the model's products, by `rounds_factors`."""
        self._model, self._threads, self._title, self._rounds = model, threads, title, rounds
        self.session = Session(model, threads, title=title)

    @cached_property
    def _default(self) -> Session:
        return Session(self._model, self._threads, rounds=True, title=self._title) if self._rounds else self.session

    def of(self, plan: Plan) -> Session:
        """What a program of this plan is compared with: the model's nodes as they are, or as ONNX Runtime's users have them where it runs them."""
        return self._default if is_whole(plan) else self.session
