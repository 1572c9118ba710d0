"""Generated kernels that were compiled: once for each, whoever asks, and what compiling takes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from einnet.errors import BackendError
from einnet.instantiate.kernels import EOperator
from einnet.runtime.cpu import compile as codegen

FIRST_S = 0.1
"""Seconds that compiling a kernel is expected to take before any was compiled."""


class Objects:
    """Object code for a number of threads, by kernel: what is compiled for measuring is there for the program that it becomes a part of."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._compiled: dict[str, bytes] = {}
        self._failed: dict[str, BackendError] = {}
        self._seconds, self._count = FIRST_S, 1

    def get(self, operators: Sequence[EOperator]) -> tuple[bytes, ...]:
        """An object for each distinct kernel. Raises NotGenerated for one that has no generated code."""
        named = dict(zip(codegen.operator_names(operators), operators))
        return tuple(self._one(name, operator) for name, operator in named.items())

    def seconds(self, operator: EOperator) -> float:
        """What `get` will take for one kernel, from what it has taken."""
        (name,) = codegen.operator_names([operator])
        return 0.0 if name in self._compiled or name in self._failed else self._seconds / self._count

    def _one(self, name: str, operator: EOperator) -> bytes:
        if name in self._failed:
            raise self._failed[name]
        if name not in self._compiled:
            start = time.monotonic()
            try:
                self._compiled[name] = codegen.compile_operators({name: operator}, self.threads)
            except BackendError as error:
                self._failed[name] = error = codegen.NotGenerated(f"no code for {operator.scope.text()}: {error}")
                raise error from None
            finally:
                self._seconds, self._count = self._seconds + time.monotonic() - start, self._count + 1
        return self._compiled[name]
