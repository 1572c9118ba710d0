"""A program as a sequence of calls: what is native and stands together is one call, a node that ONNX Runtime or a library runs is another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einnet.runtime.cpu.native.linked import Native, Step, Steps

Segment = Steps | Callable[[], None]


class Segments:
    """The steps of a program's kernels, in its order, being gathered."""

    def __init__(self, native: Native, threads: int) -> None:
        self._native, self._threads = native, threads
        self._done: list[Segment] = []
        self._pending: list[Step] = []
        self._names: list[str] = []
        self._count = 0
        self.firsts: list[int] = []
        """The number of the first step of each kernel."""

    def native(self, name: str, steps: Sequence[Step]) -> None:
        """Add a kernel of native steps."""
        self.firsts.append(self._count)
        self._count += len(steps)
        self._pending += steps
        self._names += [name] * len(steps)

    def other(self, step: Callable[[], None]) -> None:
        """Add a kernel that is one step of another kind."""
        self._flush()
        self.firsts.append(self._count)
        self._count += 1
        self._done.append(step)

    def all(self) -> list[Segment]:
        self._flush()
        return self._done

    def _flush(self) -> None:
        if self._pending:
            self._done.append(Steps(self._native, self._pending, self._threads, self._names))
            self._pending, self._names = [], []
