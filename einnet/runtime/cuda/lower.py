"""Plans become CUDA programs: kernels fitted to the libraries, generated code as text, buffers placed in one arena by lifetime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einnet.errors import BackendError
from einnet.instantiate.codegen.cuda.launches import CudaOperator
from einnet.instantiate.kernels import LINE, Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, anchored
from einnet.runtime import arena as memory
from einnet.runtime.cpu.compile import operator_names
from einnet.runtime.cuda import shortened
from einnet.runtime.cuda.fit import fitted
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.program import ALIGNMENT, CudaProgram, Generated, Launch, Place, Step
from einnet.runtime.cuda.text_cache import text_of

ITEM = 4
"""Bytes of an element that generated code reads or writes."""


class Refusal(BackendError):
    """Kernels for which there is no code that runs, each with the reason."""

    def __init__(self, reasons: Mapping[EOperator, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = dict(reasons)


def lower(plan: Plan, channels_last: bool = False) -> CudaProgram:
    """The program that computes the plan, its filters stored as `fit.fitted` says. Needs TVM for what was not generated before, and no CUDA.

    Raises UsageError for a malformed plan, Refusal for a kernel that cannot be generated, as without TVM.
    """
    plan = shortened.stored(fitted(plan, channels_last))
    memory.check_plan(plan)
    kinds = {b.name: b.dtype for b in plan.buffers}
    names = iter(operator_names([k for k in plan.kernels if isinstance(k, EOperator)]))
    named = [next(names) if isinstance(k, EOperator) else "" for k in plan.kernels]
    code = generate(plan.kernels, named)
    scratch = [room(kernel, code.get(name), kinds) for kernel, name in zip(plan.kernels, named, strict=True)]
    arena = memory.place(memory.lifetimes(plan, scratch), ALIGNMENT)
    region = memory.stack({b.name: memory.sizes(plan)[b.name] for b in plan.buffers if b.role == "constant"}, ALIGNMENT)
    places = {b.name: Place(b.name in region.offsets, {**arena.offsets, **region.offsets}.get(b.name, 0), b.size, b.dtype) for b in plan.buffers}
    places = {name: p for name, p in places.items() if p.constant or name in arena.offsets}
    own = {n: own_memory(plan.kernels[n], size) for n, size in enumerate(scratch) if size}
    places |= {f"scratch:{n}": Place(False, arena.offsets[f"scratch:{n}"], *kept) for n, kept in own.items()}
    texts = {name: operator.text for name, operator in code.items()}
    steps: list[Step] = []
    for n, (kernel, name) in enumerate(zip(plan.kernels, named, strict=True)):
        made, more = shortened.step(n, kernel, kinds) if shortened.is_short(kernel) else (step(n, kernel, name, code), {})
        steps.append(made)
        texts.update(more)
    told = plan.inputs, plan.outputs, dict(plan.constants), plan.expressions, plan.places
    return CudaProgram(places, arena.nbytes, region.nbytes, tuple(steps), texts, *told)


def room(kernel: Kernel, code: CudaOperator | None, kinds: Mapping[str, str]) -> int:
    """Bytes of memory that a kernel's step has for itself: between launches, or for factors in 16 bits. `kinds` are the types of buffers."""
    if shortened.is_short(kernel):
        return shortened.room(kernel, kinds)
    return sum(_rounded(size) for _, size in code.stages) if code is not None else 0


def own_memory(kernel: Kernel, nbytes: int) -> tuple[int, str]:
    """So many bytes as elements of a type."""
    return (nbytes // 2, kernel.factors.name) if shortened.is_short(kernel) else (nbytes // ITEM, "f32")


def generate(kernels: Sequence[Kernel], names: Sequence[str]) -> dict[str, CudaOperator]:
    """The code of each distinct eOperator by its name. Raises Refusal, for all that have none."""
    found: dict[str, CudaOperator] = {}
    reasons: dict[EOperator, str] = {}
    for kernel, name in zip(kernels, names, strict=True):
        if isinstance(kernel, EOperator) and name not in found:
            placed = anchored(kernel)
            assert isinstance(placed, EOperator)
            try:
                found[name] = text_of(placed, name)
            except BackendError as e:
                reasons[kernel] = str(e)
    if reasons:
        raise Refusal(reasons)
    return found


def step(n: int, kernel: Kernel, name: str, code: dict[str, CudaOperator]) -> Step:
    """The kernel as a step of the program, its n-th."""
    match kernel:
        case EOperator():
            return Generated(kernel, name, tuple(launches(n, kernel, code[name])))
        case Matmul():
            return gemm(kernel)
        case OpaqueCall() | Conv():
            return kernel
    raise TypeError(f"{kernel.describe()} was not fitted to the libraries")


def launches(n: int, kernel: EOperator, operator: CudaOperator) -> list[Launch]:
    """The operator's functions on the buffers of this kernel: operands by their order, which equal operators share, from the lines they start in."""
    from einnet.instantiate.codegen.resolve import OUT

    pointers = {f"operand {k}": (v.buffer, v.offset - v.offset % LINE) for k, (_, v) in enumerate(kernel.operands)}
    pointers[OUT] = (kernel.out.buffer, kernel.out.offset - kernel.out.offset % LINE)
    at = 0
    for stage, size in operator.stages:
        pointers[stage] = (f"scratch:{n}", at // ITEM)
        at += _rounded(size)
    return [Launch(k.name, k.grid, k.block, tuple(pointers[a] for a in k.arguments)) for k in operator.kernels]


def _rounded(elements: int) -> int:
    """Bytes of an array between two launches."""
    return memory.align_up(max(elements, 1) * ITEM, ALIGNMENT)
