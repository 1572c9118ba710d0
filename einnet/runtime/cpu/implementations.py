"""Which code the vendor library has for a kernel beside what it takes first."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from einnet.instantiate.kernels import Conv, Matmul, VendorKernel
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.dnnl_kernels import by_name, operands_of, overlapping, prepare, unfit, with_layouts

ONE_TAP = "1x1"
"""Stands in the name of code that is made for convolutions of one tap."""


def implementations(kernel: VendorKernel, constants: Collection[str] = ()) -> list[str]:
    """The names of what the library may do a contraction by beside what it takes first: made for the latest instructions, no products of matrices in
    the place of convolutions, of convolutions in the place of products those of one tap, no reference code."""
    if not isinstance(kernel, Contraction) or kernel.arithmetic.whole or (isinstance(kernel, Matmul) and overlapping(kernel)):
        return []
    first = prepare(kernel, constants).implementation
    found: dict[str, str] = {}
    for request in by_name(kernel, constants):
        with suppress(Refused):
            pd = with_layouts(request, *operands_of(request))
            while True:
                name = pd.implementation
                if not unfit(name, request, reference=False) and "gemm" not in name and (isinstance(kernel, Conv) or ONE_TAP in name):
                    found.setdefault(name, instructions(name))
                pd.following()
    widest = max(found.values(), default="")
    return [name for name, kind in found.items() if name != first and kind == widest]


def instructions(name: str) -> str:
    """For which instructions code of that name is made, by a word that sorts as they followed each other."""
    return next((word for word in ("avx512", "avx2", "avx") if word in name), "")
