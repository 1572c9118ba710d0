"""What this machine can do at best, and the least time that a kernel can take on it: estimates for kernels that were not measured."""

from __future__ import annotations

from dataclasses import dataclass

from einnet.derivation.facts import is_transform
from einnet.derivation.rules.transitions import running
from einnet.errors import BackendError
from einnet.expr.nodes import Scope, walk
from einnet.instantiate.codegen.executed import executed
from einnet.instantiate.codegen.operation_counts import flops as scope_flops
from einnet.instantiate.codegen.operation_counts import moved_bytes
from einnet.instantiate.codegen.schedule import LANES
from einnet.instantiate.kernels import EOperator, Kernel, Matmul, VendorKernel, dense_view
from einnet.instantiate.kernels.contractions import Contraction
from einnet.instantiate.kernels.posts import U8
from einnet.instantiate.kernels.views import distinct_elements
from einnet.instantiate.row_fusion import in_rows
from einnet.runtime.cpu.measure import IsConstant, constant_buffers, last_level_cache, measure, own_cache
from einnet.runtime.machine import cpu_features
from einnet.runtime.timing import Timing

VENDOR_SHARE, GENERATED_SHARE = 0.8, 0.1
"""Shares of the multiply-add peak that vendors' products and convolutions, and all else, reach when memory does not bind them.

What multiplies nothing, as pooling, is not taken to be faster in a library than as generated loops: which it is has to be measured.
"""
STEPS_SHARE = 1.0
"""Loads and operations of vectors, for each vector that the peak multiplies and adds."""
CACHED = 2.0
"""How many times faster than from memory operands come that a cache holds from one run to the next."""
NEAR = 6.0
"""The same for what a core's own cache holds from one kernel to the next: a product's result that a softmax reads, say."""
ROWS_SHARE = 0.4
"""Share of the peak that products reach which are computed row by row inside each other."""
WALK_SHARE = 0.5
"""Share of the peak that walks along time reach, whose state stays in registers or in the nearest cache."""
BYTES_AT_ONCE = 4
"""Products of bytes that the instructions add up where they multiply one pair of floats."""
NARROW = 8
"""Output channels below which vendor convolutions lose in proportion."""


BY_HAND = "set by hand; `cost_model` of each report tells how far off"
MEASURED = "three products, measured on each machine and kept in the profile database"

CONSTANTS = (
    ("peak, bandwidth, launch", "", "operations and bytes in a second, seconds to start a kernel", MEASURED),
    ("vendor share", f"{VENDOR_SHARE}", "of the peak, of vendors' products and convolutions", BY_HAND),
    ("generated share", f"{GENERATED_SHARE}", "of the peak, of all else", BY_HAND),
    ("steps share", f"{STEPS_SHARE}", "loads and operations of generated code, for each vector that the peak multiplies and adds", BY_HAND),
    ("rows share", f"{ROWS_SHARE}", "of the peak, of products inside products, row by row", BY_HAND),
    ("walk share", f"{WALK_SHARE}", "of the peak, of walks along time", BY_HAND),
    ("cached", f"{CACHED}", "times as fast as from memory, for what a cache holds", BY_HAND),
    ("near", f"{NEAR}", "times as fast as from memory, for what a core's own cache holds", BY_HAND),
    ("bytes at once", f"{BYTES_AT_ONCE}", "products of bytes in the place of one of floats", BY_HAND),
    ("narrow", f"{NARROW}", "output channels below which vendor convolutions lose in proportion", BY_HAND),
)
"""The constants of the model: name, value, what it is, and where it is from."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Floating-point operations per second, bytes per second read from memory, seconds to start a kernel."""

    peak: float
    bandwidth: float
    launch: float


def _product(m: int, n: int, k: int) -> Matmul:
    return Matmul(dense_view("a", (m, k)), dense_view("b", (k, n)), dense_view("c", (m, n)))


LARGE = _product(768, 768, 768)
"""A product that shows the peak."""


def least(kernel: Kernel, peak: float, bandwidth: float) -> float:
    """Seconds that a kernel takes at least, of so many operations and bytes from memory in a second; caches may be faster than memory."""
    return max(flops(kernel) / peak if peak else float("inf"), moved(kernel) / bandwidth / CACHED)


def measure_machine(threads: int) -> tuple[Machine, bool]:
    """Measure with three products: a square one for the peak, a vector by a large cold matrix for the bandwidth, a tiny one for the launch.

    Also whether no other program disturbed it.
    """
    square, vector, tiny = LARGE, *(_product(*shape) for shape in ((1, 4096, 4096), (1, 8, 8)))
    timings = [t for t in measure([square, vector, tiny], threads, lambda name: name == "b") if isinstance(t, Timing)]
    if len(timings) < 3:
        raise BackendError("there is no memory for the three small products that tell how fast this machine is")
    times = [t.median for t in timings]
    return Machine(flops(square) / times[0], moved(vector) / times[1], times[2]), all(t.clean for t in timings)


def moved(kernel: Kernel) -> int:
    """Bytes that are read and written at least."""
    if isinstance(kernel, EOperator):
        return moved_bytes(kernel.scope)
    saved = 0
    if isinstance(kernel, Contraction):
        saved = (4 - kernel.arithmetic.nbytes) * sum(map(distinct_elements, kernel.inputs))
        saved += 3 * distinct_elements(kernel.result) if kernel.stored == U8 else 0
    return 4 * sum(distinct_elements(v) for v in (*kernel.operand_views, *kernel.result_views)) - saved


def flops(kernel: Kernel) -> int:
    """Floating-point operations, two for a multiply-add; 0 for an opaque node."""
    if isinstance(kernel, EOperator):
        return scope_flops(kernel.scope)
    return kernel.flops if isinstance(kernel, VendorKernel) else 0


def traffic(kernel: Kernel, machine: Machine, constant: IsConstant | None = None) -> float:
    """Seconds that what a kernel reads and writes takes to move: weights from memory, the rest from the smallest cache that holds all of it, where
    the kernels before and after leave it and look for it."""
    constants = constant_buffers(kernel, constant)
    total = moved(kernel)
    weights = min(4 * sum(distinct_elements(v) for v in kernel.operand_views if v.buffer in constants), total)
    return (weights + (total - weights) / _times_faster(total - weights)) / machine.bandwidth


def _times_faster(nbytes: int) -> float:
    """How many times as fast as from memory so many bytes move."""
    return NEAR if nbytes <= own_cache() else CACHED if nbytes <= last_level_cache() else 1.0


def estimate(kernel: Kernel, machine: Machine, constant: IsConstant | None = None) -> float:
    """Seconds: the largest of launch, computation and traffic; `constant` says of a buffer's name whether it holds weights.

    The transforms of bilinear algorithms are generated as straight-line code over few distinct sums, which traffic binds.
    """
    if isinstance(kernel, EOperator) and _only_transforms(kernel.scope):
        return max(machine.launch, traffic(kernel, machine, constant))
    rows = isinstance(kernel, EOperator) and in_rows(kernel.scope)
    walks = isinstance(kernel, EOperator) and running(kernel.scope) is not None
    share = VENDOR_SHARE if isinstance(kernel, Contraction) else ROWS_SHARE if rows else WALK_SHARE if walks else GENERATED_SHARE
    if isinstance(kernel, Contraction) and kernel.arithmetic.whole:
        share *= BYTES_AT_ONCE
    if isinstance(kernel, VendorKernel) and kernel.filters is not None:
        share *= min(1.0, kernel.filters / NARROW)
    return max(machine.launch, flops(kernel) / (share * machine.peak), traffic(kernel, machine, constant))


def counted(kernel: Kernel, machine: Machine, constant: IsConstant | None = None) -> float:
    """The same from what is written for a generated kernel: its steps, of which an expression does not tell how often the code computes a part."""
    if not isinstance(kernel, EOperator) or _only_transforms(kernel.scope):
        return estimate(kernel, machine, constant)
    try:
        steps = executed(kernel, floats())
    except BackendError:
        return estimate(kernel, machine, constant)
    return max(machine.launch, steps * 2 * LANES / (STEPS_SHARE * machine.peak), traffic(kernel, machine, constant))


def floats() -> int:
    """Floats of this processor's vectors."""
    return LANES if "avx512f" in cpu_features() else LANES // 2


def _only_transforms(scope: Scope) -> bool:
    """All that is summed are transforms by constant matrices, and there is such a sum."""
    sums = [s for s in walk(scope) if s.sums]
    return bool(sums) and all(is_transform(s) for s in sums)
