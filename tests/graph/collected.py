"""The cases of the operator tests as values: what each of their calls of `check` is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from tests.graph.cases import build

MODULES = ("contraction", "movement", "pointwise", "truth", "data", "fourier", "recurrences")


@dataclass(frozen=True)
class Case:
    """A small model and inputs for it."""

    name: str
    operators: str
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]


@cache
def collected(families: tuple[str, ...] = MODULES) -> tuple[Case, ...]:
    """A case for each call of `check` in the tests of operators, under all parameters that they have."""
    found: list[Case] = []
    for family in families:
        module = import_module(f"tests.graph.test_operators_{family}")
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test):
                found += of_test(module, name, test)
    return tuple(found)


def of_test(module: ModuleType, name: str, test: Callable[..., None]) -> list[Case]:
    found: list[Case] = []

    def record(nodes: Any, inputs: Any, constants: Any = None, outputs: Any = ("y",), opset: int = 17, **_: Any) -> None:
        operators = "+".join(n.op_type for n in nodes)
        found.append(Case(f"{name}-{len(found)}", operators, build(nodes, inputs, outputs, constants, opset), inputs))
        raise _Recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "check", record, raising=False)
        for arguments in parameters(test):
            try:
                test(**arguments)
            except _Recorded:
                continue
    return found


class _Recorded(Exception):
    """What follows in the test is about a result that is not there."""


def parameters(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The arguments that pytest would call the test with; none where it asks for something else."""
    marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    axes = []
    for mark in marks:
        names = mark.args[0] if not isinstance(mark.args[0], str) else [n.strip() for n in mark.args[0].split(",")]
        rows = [v.values if hasattr(v, "values") and hasattr(v, "marks") else v if len(names) > 1 else (v,) for v in mark.args[1]]
        axes.append([dict(zip(names, row)) for row in rows])
    for choice in product(*axes):
        arguments = {k: v for part in choice for k, v in part.items()}
        if set(signature(test).parameters) <= arguments.keys():
            yield arguments

