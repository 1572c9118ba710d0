"""Costs of kernels in ONNX Runtime: each one is written as a model of its own and timed there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cache
from math import inf, prod
from pathlib import Path

import numpy as np

from einnet.errors import BackendError
from einnet.expr.nodes import walk
from einnet.graph.in_file import model_bytes
from einnet.instantiate.kernels import EOperator, Kernel, OpaqueCall
from einnet.instantiate.kernels.views import Json
from einnet.runtime import capacity, machine
from einnet.runtime.arena import fill_random
from einnet.runtime.costs import MEASUREMENT, CpuCost, kernel_key
from einnet.runtime.cpu import roofline
from einnet.runtime.cpu.measure import ITEM, Unmeasured, constant_buffers, measure, sample, single
from einnet.runtime.database import describe
from einnet.runtime.onnx.model import export
from einnet.runtime.ort import Session
from einnet.runtime.timing import AtLeast, Timing

COPIES = 5
"""How often what nodes hold at once may be in memory: before and after a Reshape or Transpose, in the model, in the session, and as read."""


@cache
def export_version() -> str:
    """A digest of the source that writes models: times hold for one version of it."""
    state = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        state.update(path.read_bytes())
    return state.hexdigest()


class OnnxCost(CpuCost):
    """Seconds of kernels as ONNX Runtime runs their nodes, with `threads` threads that wait actively as its own do.

    What it computes from weights when it reads a model costs nothing. Times are kept under keys of their own; estimates are those for our own
    kernels on this processor.
    """

    def describe(self, kernel: Kernel) -> Json:
        """The kernel's key in the database."""
        return describe(kernel_key(kernel, constant_buffers(kernel, self.constant)), machine.cpu_name(), self.threads, self._versions())

    def place(self) -> Json:
        """Where times were measured: the device, ONNX Runtime and the version of what writes models."""
        return {"device": machine.cpu_name(), "versions": self._versions()}

    def _versions(self) -> dict[str, str]:
        version = machine.versions().get("onnxruntime", "none")
        return {"target": "onnx", "measurement": str(MEASUREMENT), "onnxruntime": version, "export": export_version()}

    def _measure(self, kernels: Sequence[Kernel], until: float, limit: float) -> list[Timing | Unmeasured | AtLeast]:
        expected = [roofline.estimate(k, self.machine) for k in kernels]

        def timer(kernel: Kernel, constants: frozenset[str]) -> Timing | AtLeast:
            if not fits(kernel):
                return Timing(inf, 0.0, 1)
            try:
                session = Session(model_of(kernel, constants), self.threads, spin=True, rounds=True, title="a kernel")
            except BackendError:
                return Timing(inf, 0.0, 1)
            return time_session(session, self._budget, until, self.patient, limit)

        return measure(kernels, self.threads, self.constant, self._budget, expected=expected, until=until, timer=timer)

    def closely(self, kernels: Sequence[Kernel]) -> list[float]:
        """Nothing is written for a kernel but nodes."""
        return self.estimates(kernels)

    def _estimate(self, kernel: Kernel) -> float:
        return roofline.estimate(kernel, self.machine)


def model_of(kernel: Kernel, constants: frozenset[str]) -> bytes:
    """One kernel as a model: over flat buffers as in a program, so that views which ONNX has to copy cost what they cost there."""
    return model_bytes(kernel.model) if isinstance(kernel, OpaqueCall) else bytes(export(single(kernel, constants)).SerializeToString())


def fits(kernel: Kernel) -> bool:
    """Its nodes do not take more memory than there is."""
    return capacity.fits(COPIES * expanded(kernel))


def expanded(kernel: Kernel) -> int:
    """Bytes that the kernel's nodes may hold at once: ONNX has no strides, so windows that overlap are copied, and what is summed may stand apart."""
    views = [prod(v.shape) for v in (*kernel.operand_views, *kernel.result_views)]
    inner = [prod(i.extent for i in (*s.loops, *s.sums)) for s in walk(kernel.scope)] if isinstance(kernel, EOperator) else []
    return ITEM * (sum(views) + 2 * max(inner, default=0))


def time_session(session: Session, budget_s: float, until: float, patient: bool, limit: float) -> Timing | AtLeast:
    """The time of a run on random inputs, without copies of inputs; no more than that it is longer than a limit, where it is."""
    given = []
    for argument in session.inputs:
        array = np.zeros([n if isinstance(n, int) else 1 for n in argument.shape], argument.dtype)
        if array.dtype.kind == "f" and array.dtype.itemsize == 4:
            fill_random(array)
        given.append(array)
    call = session.bind(given, [None] * len(session.outputs))
    return sample(lambda: seconds(call), budget_s, until=until, patient=patient, limit=limit)


def seconds(call: Callable[[], None]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
