"""Products of factors that lie in 16 bits: weights as they are stored, all else rounded by a kernel of its own into memory of the step's own.

What is read is copied as it lies, gaps included, so that the copy is the same matrix: strides stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeGuard

import numpy as np

from einnet.instantiate.kernels import Kernel, Matmul, Plan, View
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, Arithmetic
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.program import ALIGNMENT, Gemm, Launch, Rounded
from einnet.runtime.rounded import encoded, rounded

TF32 = ARITHMETICS["tf32"]
THREADS = 256
TOGETHER = 8
"""Numbers that lie in 16 bytes: libraries have kernels for tensor cores where every row begins at a multiple of that."""

TEXT = """extern "C" __global__ void __launch_bounds__({threads}) {name}(const float* __restrict__ from, uint* __restrict__ to) {{
  int at = ((int)blockIdx.x * {threads} + (int)threadIdx.x) * 2;
  if (at < {count}) to[at / 2] = einnet_{kind}(from[at]) | (at + 1 < {count} ? einnet_{kind}(from[at + 1]) : 0u) << 16;
}}
"""


def is_short(kernel: Kernel) -> TypeGuard[Matmul]:
    """A product whose factors lie in 16 bits."""
    return isinstance(kernel, Matmul) and kernel.arithmetic.short


def stored(plan: Plan) -> Plan:
    """The plan with those constants in 16 bits that are nothing but factors of such products."""
    kinds = constants(plan)
    buffers = tuple(replace(b, dtype=kinds[b.name].name) if b.name in kinds else b for b in plan.buffers)
    return replace(plan, buffers=buffers, constants={n: encoded(x, kinds[n]) if n in kinds else x for n, x in plan.constants.items()})


def constants(plan: Plan) -> dict[str, Arithmetic]:
    """The constants that are nothing but factors of products in one shorter arithmetic, which reads them from multiples of 16 bytes on."""
    read: dict[str, set[Arithmetic | None]] = {}
    for k in plan.kernels:
        own = k.inputs if is_short(k) else ()
        for v in k.operand_views:
            fits = v in own and v.offset % TOGETHER == 0
            read.setdefault(v.buffer, set()).add(k.factors if fits else None)
    given_out = {v.buffer for _, v in plan.outputs}
    alone = {n: next(iter(found)) for n, found in read.items() if n in plan.constants and n not in given_out and len(found) == 1}
    return {n: a for n, a in alone.items() if a is not None}


def settled(plan: Plan) -> Plan:
    """The plan with those products in TF32 whose constants cannot lie in 16 bits: others read them otherwise, they begin between two multiples of 16
    bytes, or hold numbers beyond the arithmetic's largest. No constant is rounded in an inference."""
    while True:
        kinds = constants(plan)
        kinds = {n: a for n, a in kinds.items() if np.array_equal(np.isinf(rounded(np.asarray(plan.constants[n]), a)), np.isinf(plan.constants[n]))}
        kernels = tuple(k.in_arithmetic(TF32) if _unsettled(k, plan, kinds) else k for k in plan.kernels)
        if kernels == plan.kernels:
            return plan
        plan = replace(plan, kernels=kernels)


def _unsettled(kernel: Kernel, plan: Plan, kinds: Mapping[str, Arithmetic]) -> TypeGuard[Matmul]:
    """Some constant factor of a product in 16 bits is none of those."""
    return is_short(kernel) and any(v.buffer in plan.constants and v.buffer not in kinds for v in kernel.operand_views[:2])


@dataclass(frozen=True)
class Copy:
    """A factor's copy: `count` elements from the view's first on, `begin` elements after the begin of the step's memory."""

    view: View
    begin: int
    count: int


def copies(kernel: Matmul, kinds: Mapping[str, str]) -> list[Copy]:
    """The factors that are rounded in an inference. `kinds` are the element types of buffers."""
    found: list[Copy] = []
    at = 0
    for v in dict.fromkeys(kernel.inputs):
        if kinds[v.buffer] != kernel.arithmetic.name:
            count = 1 + sum(s * (n - 1) for n, s in zip(v.shape, v.strides, strict=True))
            found.append(Copy(v, at, count))
            at += ceil(2 * count / ALIGNMENT) * ALIGNMENT // 2
    return found


def room(kernel: Matmul, kinds: Mapping[str, str]) -> int:
    """Bytes of the step's own memory."""
    return sum(ceil(2 * c.count / ALIGNMENT) * ALIGNMENT for c in copies(kernel, kinds))


def step(number: int, kernel: Matmul, kinds: Mapping[str, str]) -> tuple[Rounded, dict[str, str]]:
    """The product as the plan's step of that number, and its texts by name."""
    whole, made, texts = gemm(kernel), copies(kernel, kinds), dict[str, str]()
    inner, launches = whole, list[Launch]()
    own = f"scratch:{number}"
    for c in made:
        name = f"round_{kernel.arithmetic.name}_{c.count}"
        texts[name] = TEXT.format(name=name, kind=kernel.arithmetic.name, threads=THREADS, count=c.count)
        launches.append(Launch(name, (ceil(c.count / (2 * THREADS)), 1, 1), (THREADS, 1, 1), ((c.view.buffer, c.view.offset), (own, c.begin // 2))))
    for side, view in (("a", kernel.a), ("b", kernel.b)):
        copy = next((c for c in made if c.view == view), None)
        if copy is not None:
            inner = _with(inner, side, own, copy.begin)
    return Rounded(whole, inner, tuple(launches)), texts


def _with(product: Gemm, side: str, buffer: str, offset: int) -> Gemm:
    """The product with one factor elsewhere."""
    if side == "a":
        return replace(product, a=replace(product.a, buffer=buffer, offset=offset))
    return replace(product, b=replace(product.b, buffer=buffer, offset=offset))


def suits(kernel: Matmul) -> bool:
    """Every row of both factors begins at a multiple of 16 bytes where it lies in 16 bits a number, and no stride leads backwards."""
    steps = [s for v in kernel.inputs for n, s in zip(v.shape, v.strides, strict=True) if n > 1 and s != 1]
    return all(s >= 0 and s % TOGETHER == 0 for s in steps)
