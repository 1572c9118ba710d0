"""The time of single kernels: weights cold, as in a network whose weights do not fit the cache; activations as warm as their size lets them be.

Every sample is taken inside native code. Between samples the cache lines of the constant operands are dropped; where they are larger than
the last-level cache anyway, they are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from einnet.errors import BackendError
from einnet.expr.nodes import tensors
from einnet.graph.dtypes import dtype_name
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, OpaqueCall, Plan, View, operand_views, result_views
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.program import Code, Executable
from einnet.runtime.cpu.support import Native
from einnet.runtime.load import waited
from einnet.runtime.memory import span, storage_dtype
from einnet.runtime.ort import Session
from einnet.runtime.timing import TOLERATED, Timing, summarize

IsConstant = Callable[[str], bool]

BUDGET_S = 0.04
BATCH = 24
"""Generated kernels compiled together."""
_FEWEST, _MOST, _PATIENCE = 5, 300, 4
_FORBIDDEN = Timing(float("inf"), 0.0, 1)


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache of the first core, 32 MB where the system does not tell."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) * 1024)
    return max(sizes, default=32 << 20)


def constant_buffers(kernel: Kernel, constant: IsConstant | None = None) -> frozenset[str]:
    """The buffers of a kernel that hold weights: those that `constant` says, a convolution's weights, and an eOperator's weight tensors."""
    found = {v.buffer for v in operand_views(kernel) if constant and constant(v.buffer)}
    match kernel:
        case Conv(w=w):
            found.add(w.buffer)
        case EOperator(scope, operands):
            declared = tensors(scope)
            found |= {v.buffer for name, v in operands if name in declared and declared[name].weight}
    return frozenset(found - {v.buffer for v in result_views(kernel)})


def single(kernel: Kernel, constants: frozenset[str], dtypes: Mapping[str, str] | None = None) -> Plan:
    """A plan of one kernel over random constants; its other operands are inputs and its results outputs."""
    sizes: dict[str, int] = {}
    for v in (*operand_views(kernel), *result_views(kernel)):
        sizes[v.buffer] = max(sizes.get(v.buffer, 1), span(v))
    written = {v.buffer for v in result_views(kernel)}
    role = {name: "constant" if name in constants else "output" if name in written else "input" for name in sizes}
    kind = {name: (dtypes or {}).get(name, "f32") for name in sizes}
    rng = np.random.default_rng(0)
    views = {name: View(name, (size,), (1,)) for name, size in sizes.items()}
    read = {v.buffer for v in operand_views(kernel)}
    values = {name: rng.uniform(-1, 1, sizes[name]).astype(storage_dtype(kind[name])) for name in constants}
    return Plan(
        tuple(Buffer(name, size, kind[name], role[name]) for name, size in sizes.items()), (kernel,),
        tuple((name, v) for name, v in views.items() if role[name] == "input" or (role[name] == "output" and name in read)),
        tuple((name, v) for name, v in views.items() if role[name] == "output"),
        values,
    )  # fmt: skip


def measure(kernels: Sequence[Kernel], threads: int, constant: IsConstant | None = None, budget_s: float = BUDGET_S) -> list[Timing]:
    """The time of each kernel; infinite for one that is refused or that cannot be generated. Generated kernels are compiled in batches."""
    found: list[Timing] = [_FORBIDDEN] * len(kernels)
    for at in range(0, len(kernels), BATCH):
        batch = kernels[at : at + BATCH]
        native = Native(codegen.support_object(), _compile([k for k in batch if isinstance(k, EOperator)], threads))
        for n, kernel in enumerate(batch):
            try:
                found[at + n] = _time(kernel, threads, constant_buffers(kernel, constant), native, budget_s)
            except (Refused, codegen.NotGenerated):
                continue
    return found


def _compile(operators: Sequence[EOperator], threads: int) -> list[bytes]:
    """One object with all kernels that can be generated; where the batch does not compile, one object for each that does alone."""
    names = dict(zip(codegen.operator_names(operators), operators, strict=True))
    if not names:
        return []
    try:
        return [codegen.compile_operators(names, threads)]
    except BackendError:
        found = []
        for name, operator in names.items():
            try:
                found.append(codegen.compile_operators({name: operator}, threads))
            except BackendError:
                continue
        return found


def _time(kernel: Kernel, threads: int, constants: frozenset[str], native: Native, budget_s: float) -> Timing:
    if isinstance(kernel, EOperator) and not native.image.defines(codegen.entry_symbol(codegen.operator_names([kernel])[0])):
        raise codegen.NotGenerated(f"no code for {kernel.scope.text()}")
    program = Executable(single(kernel, constants, _types(kernel, threads)), threads, code=Code(b"", None), native=native)
    program.randomize()
    cold = program.constant_bytes < 2 * last_level_cache()
    return sample(lambda: float(sum(program.sample())), budget_s, lambda: program.settle(cold))


def _types(kernel: Kernel, threads: int) -> dict[str, str]:
    """Element types of an opaque node's buffers, as its model declares them."""
    if not isinstance(kernel, OpaqueCall):
        return {}
    session = Session(kernel.model, threads, title=kernel.origin)
    pairs = zip((*session.inputs, *session.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
    return {view.buffer: dtype_name(a.dtype) or "f32" for a, view in pairs if a.dtype is not None}


def sample(run: Callable[[], float], budget_s: float, before: Callable[[], None] = lambda: None) -> Timing:
    """The median of as many samples as the budget allows, after a warm-up; `before` is called before each and not timed.

    Samples during which other programs kept the threads of this one from running do not count, if there are others: the budget is then
    exceeded up to fourfold. If there are too few, the fastest sample counts and the timing is not clean.
    """
    start = time.perf_counter()
    before()
    run()
    clean: list[float] = []
    disturbed: list[float] = []
    while len(clean) + len(disturbed) < _FEWEST or time.perf_counter() - start < budget_s * (1 if len(clean) >= _FEWEST else _PATIENCE):
        before()
        waited_before, began = waited(), time.perf_counter()
        seconds = run()
        disturbance = (waited() - waited_before) / (time.perf_counter() - began)
        (disturbed if disturbance > TOLERATED else clean).append(seconds)
        if len(clean) >= _MOST or time.perf_counter() - start > 20 * budget_s:
            break
    if len(clean) >= 3:
        return summarize(clean)
    every = sorted(clean + disturbed)
    return Timing(every[0], every[len(every) // 2] - every[0], len(every), clean=False)
