"""Kernels lowered and compiled to machine code, ready to be timed on a card that is not here (see `pack`). Needs TVM and NVRTC, and no card."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import ceil

import numpy as np

from einnet.errors import BackendError, EinNetError
from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, VendorKernel, dense_view
from einnet.instantiate.kernels.arithmetics import MATHS
from einnet.runtime.arena import span, storage_dtype
from einnet.runtime.cpu.compile import generator_version
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.lower import ITEM, lower
from einnet.runtime.cuda.profiling.costs import in_float32
from einnet.runtime.cuda.profiling.pack import Code, Pack, Packed, PackedStep, buffers
from einnet.runtime.cuda.profiling.profile import key
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Rounded
from einnet.runtime.cuda.shortened import suits

PRODUCT, COPY, LAUNCH = 4096, 1 << 26, 32
"""What a card's figures are measured by: rows of a square product, elements of a large copy and of a small one."""

IsWeight = Callable[[str], bool]
Requests = Mapping[Kernel, Sequence[str]]
"""Kernels with the arithmetics that they are wanted in."""


def plan_of(kernel: Kernel, weight: IsWeight = lambda name: False) -> Plan:
    """The kernel as a program. Filters of a convolution and buffers that are weights are constants, as they are in a model; all else is given."""
    written = {v.buffer for v in kernel.result_views}
    read = {v.buffer for v in kernel.operand_views}
    filters = {v.buffer for v in kernel.weights} if isinstance(kernel, VendorKernel) else set()
    given_too = {v.buffer for v in kernel.inputs if v not in kernel.weights} if isinstance(kernel, VendorKernel) else set()
    fixed = {b for b in read - written if weight(b) or b in filters - given_too}
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 1), span(v))
    roles = {b: "constant" if b in fixed else "output" if b in written else "input" for b in sizes}
    whole = {b: dense_view(b, (n,)) for b, n in sizes.items()}
    given, made = (tuple((b, whole[b]) for b in sorted(names)) for names in (read - fixed, written))
    constants = {b: np.zeros(sizes[b], np.float32) for b in sorted(fixed)}
    return Plan(tuple(Buffer(b, n, "f32", roles[b]) for b, n in sizes.items()), (kernel,), given, made, constants)


def lowered(kernel: Kernel, maths: Sequence[str], weight: IsWeight) -> tuple[Packed, dict[str, str]]:
    """The kernel ready to be packed but for the numbers of its codes, and its texts by name. Raises BackendError."""
    program = lower(plan_of(kernel, weight))
    steps: list[PackedStep] = []
    texts: dict[str, str] = {}
    for s in program.steps:
        if isinstance(s, Generated):
            texts[s.text] = program.texts[s.text]
            steps.append(Code(list(texts).index(s.text), s.launches))
        elif isinstance(s, Rounded):
            for launch in s.launches:
                texts[launch.function] = program.texts[launch.function]
                steps.append(Code(list(texts).index(launch.function), (launch,)))
            steps.append(s.inner)
        else:
            assert not isinstance(s, OpaqueCall)
            steps.append(s)
    used = {b for s in steps for b in buffers(s)}
    sizes = {b: ceil(p.size * storage_dtype(p.dtype).itemsize / ITEM) for b, p in program.places.items() if b in used}
    weights = tuple(b for b in sizes if program.places[b].constant)
    changed = _changed(program)
    read = tuple(b for b in sizes if b not in weights and b not in changed)
    rounded = kernel.factors.name if isinstance(kernel, EOperator) and kernel.factors.rounds else None
    name = key(kernel if rounded else in_float32(kernel))
    return Packed(name, type(kernel).__name__, tuple(maths), sizes, weights, read, tuple(steps), rounded), texts


def _changed(program: CudaProgram) -> set[str]:
    """Buffers that some step writes; of a generated one all but what it only reads."""
    found: set[str] = set()
    for s in program.steps:
        match s:
            case Generated(operator):
                only = {v.buffer for _, v in operator.operands} - {operator.out.buffer}
                found |= {b for x in s.launches for b, _ in x.arguments} - only
            case Gemm():
                found.add(s.c.buffer)
            case Conv():
                found.add(s.y.buffer)
            case Rounded(product):
                found |= {product.c.buffer, *(b for x in s.launches for b, _ in x.arguments[1:])}
            case OpaqueCall():
                found |= {v.buffer for v in s.outputs}
    return found


def figures() -> dict[str, Kernel]:
    """Kernels by which a card's figures are measured."""

    def copy(n: int) -> EOperator:
        return EOperator(parse(f"L[i<{n}] A[i]", {"A": Tensor("A", (n,))}), (("A", dense_view("a", (n,))),), dense_view("b", (n,)))

    a, b, c = (dense_view(name, (PRODUCT, PRODUCT)) for name in "abc")
    return {"product": Matmul(a, b, c), "copy": copy(COPY), "launch": copy(LAUNCH)}


def _never(name: str) -> bool:
    return False


def _attempt(item: tuple[Kernel, Sequence[str], IsWeight]) -> tuple[Packed, dict[str, str]] | str:
    """The kernel lowered, or why it is not. What a generator raises of its own is a reason, too: one kernel of thousands ends nothing."""
    try:
        return lowered(*item)
    except (EinNetError, AssertionError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as e:
        return f"{type(e).__name__}: {e}"


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterator[tuple[Packed, dict[str, str]] | str]]]:
    if workers < 2:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda f, items: pool.map(f, items, chunksize=4)


def prepare(
    requests: Requests, architecture: str, weight: IsWeight = _never, workers: int = 1, tell: Callable[[str], None] = lambda line: None
) -> Pack:
    """The kernels as a pack for an architecture. What is not lowered or not compiled has its reason in it. Raises BackendError without a compiler."""
    missing = nvrtc.available()
    if missing:
        raise BackendError(missing)
    own = figures()
    wanted = {**{name: (k, ["fp32"], _never) for name, k in own.items()}, **{name: (*found, weight) for name, found in distinct(requests).items()}}
    made, failed = _lowered_all(wanted, workers, tell)
    texts = {name: text for _, more in made.values() for name, text in more.items()}
    tell(f"{len(made)} kernels are lowered, {len(failed)} cannot be; {len(texts)} texts are to be compiled")
    codes, refused = _compiled(texts, architecture, workers)
    failed |= {name: str(refused[t]) for name, (_, more) in made.items() for t in more if t in refused}
    numbers = {text: n for n, text in enumerate(codes)}
    ready = {name: _numbered(k, [numbers[t] for t in more]) for name, (k, more) in made.items() if name not in failed}
    absent = next((name for name in own if name not in ready), None)
    if absent:
        raise BackendError(f"the kernel that measures a card's {absent} is not made: {failed[absent]}")
    made_by = {"generator": generator_version(), "nvrtc": nvrtc.version()}
    kernels = tuple(k for name, k in ready.items() if name not in own)
    return Pack(architecture, kernels, {n: ready[n] for n in own}, tuple(codes.values()), made_by, failed)


def _compiled(texts: Mapping[str, str], architecture: str, workers: int) -> tuple[dict[str, bytes], dict[str, BackendError]]:
    """The machine code of texts, and why there is none of others."""
    codes: dict[str, bytes] = {}
    refused: dict[str, BackendError] = {}
    for text, code in nvrtc.compiled_or_refused(texts, architecture, workers):
        if isinstance(code, bytes):
            codes[text] = code
        else:
            refused[text] = code
    return codes, refused


def distinct(requests: Requests) -> dict[str, tuple[Kernel, list[str]]]:
    """One of each by its key, with all arithmetics that it is wanted in; without opaque nodes, which run on the host.

    Only products whose factors can lie in 16 bits are wanted in such arithmetics, each in a form of its own.
    """
    found: dict[str, tuple[Kernel, list[str]]] = {}
    for kernel, maths in requests.items():
        if not isinstance(kernel, OpaqueCall):
            for math in maths:
                short = MATHS[math].short and isinstance(kernel, Matmul) and suits(kernel)
                run = kernel.in_arithmetic(MATHS[math]) if short and isinstance(kernel, Matmul) else kernel
                known = found.setdefault(f"{key(run)} {math}" if short else key(run), (run, []))[1]
                known += [math] if math not in known and (short or not MATHS[math].short) else []
    return {name: item for name, item in found.items() if item[1]}


def _lowered_all(
    wanted: Mapping[str, tuple[Kernel, Sequence[str], IsWeight]], workers: int, tell: Callable[[str], None]
) -> tuple[dict[str, tuple[Packed, dict[str, str]]], dict[str, str]]:
    """What was lowered with its texts, and why the rest was not."""
    made: dict[str, tuple[Packed, dict[str, str]]] = {}
    failed: dict[str, str] = {}
    with _mapping(workers) as each:
        for n, (name, found) in enumerate(zip(wanted, each(_attempt, wanted.values()), strict=True)):
            if isinstance(found, str):
                failed[name] = found
            else:
                made[name] = found
            if (n + 1) % 200 == 0:
                tell(f"{n + 1} of {len(wanted)} kernels")
    return made, failed


def _numbered(kernel: Packed, numbers: Sequence[int]) -> Packed:
    """The kernel with the numbers of its codes in the pack for those among its own texts."""
    return replace(kernel, steps=tuple(replace(s, number=numbers[s.number]) if isinstance(s, Code) else s for s in kernel.steps))
