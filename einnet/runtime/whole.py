"""Models that no static program stands for, run by ONNX Runtime as they are: sequences, strings, shapes that depend on data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.graph.dtypes import dtype_name
from einnet.graph.in_file import ModelFile
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.runtime.cpu.program import Code
from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]


class Whole:
    """A program of one opaque call that takes and gives whatever the model does; with the interface of a compiled program.

    `model` is the serialised model, external data included, or the file that it is.
    """

    def __init__(self, model: bytes | ModelFile, threads: int, title: str) -> None:
        self.plan, self.threads, self.code = Plan((), (OpaqueCall(model, (), (), title),), (), ()), threads, Code(b"", ())
        self.model = model
        self.session = Session(model, threads, rounds=True, title=title)
        self._expected = set(self.input_names)

    @property
    def input_names(self) -> list[str]:
        """The model's inputs, in its order."""
        return self.session.input_names

    @property
    def output_names(self) -> list[str]:
        """The model's outputs, in its order."""
        return self.session.output_names

    @property
    def signature(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input that is a tensor of a plain type; a size that is not fixed is -1."""
        plain = [a for a in self.session.inputs if a.dtype is not None]
        return {a.name: (dtype_name(a.dtype) or "", tuple(n if isinstance(n, int) else -1 for n in a.shape)) for a in plain if a.dtype is not None}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name. Raises UsageError for missing and unknown inputs, and for what ONNX Runtime does not take."""
        if inputs.keys() != self._expected:
            names = self.input_names
            unknown, missing = [n for n in inputs if n not in names], [n for n in names if n not in inputs]
            raise UsageError(f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing")
        return self.session(inputs)
