"""Exponentials of scores under their maximum, summed with weights: eOperators of that shape, and how a compiler of the host runs their text."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from einnet.instantiate.codegen.cuda.emit import CudaOperator, lower_cuda
from einnet.instantiate.codegen.resolve import OUT
from einnet.instantiate.kernels import EOperator
from einnet.runtime.cuda import shim
from tests.instantiate.cuda_cases import operator

Sizes = tuple[int, int, int, int, int]
"""Heads, queries, keys, terms of a score and columns of a value."""


def attention(sizes: Sizes, score: str = "s", group: int = 1, result: str = "Σ[n<N] weight/total*value", key: str = "K[h//G,n,c]") -> EOperator:
    """Σ[n] exp(score-maximum)/total*value: `group` heads read the same keys, `score` is an expression in the product s, m, n and the tensor R."""
    heads, queries, keys, terms, columns = sizes
    product = f"{{L[h<H,m<M,n<N] Σ[c<C] Q[h,m,c]*{key}}}[h,m,n]"
    scores = f"{{L[h<H,m<M,n<N] {score.replace('s', product, 1) if not score.startswith('select') else score.replace('x', product)}}}[h,m,n]"
    greatest = f"{{L[h<H,m<M] max[n<N] {scores}}}[h,m]"
    weight = f"{{L[h<H,m<M,n<N] exp({scores}-{greatest})}}[h,m,n]"
    total = f"{{L[h<H,m<M] Σ[n<N] {weight}}}[h,m]"
    body = result.replace("weight", weight).replace("total", total).replace("greatest", greatest).replace("value", "V[h//G,n,d]")
    text = f"L[h<H,m<M,d<D] {body}"
    for name, value in {"H": heads, "M": queries, "N": keys, "C": terms, "D": columns}.items():
        text = text.replace(f"<{name}", f"<{value}")
    text = text.replace("h//G", f"h//{group}" if group > 1 else "h")
    shapes = {"Q": (heads, queries, terms), "K": (heads // group, keys, terms), "V": (heads // group, keys, columns), "R": (queries, keys)}
    return operator(text, {n: s for n, s in shapes.items() if f"{n}[" in text})


def executed(made: Sequence[CudaOperator], ops: Sequence[EOperator], given: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
    """What the texts compute, compiled together."""
    arguments = {k.name: len(k.arguments) for m in made for k in m.kernels}
    library = shim.compiled({f"k{n}": m.text for n, m in enumerate(made)}, arguments)
    found = []
    for m, op, values in zip(made, ops, given, strict=True):
        out = np.full(op.out.shape, np.nan, np.float32)
        arrays = {**{f"operand {n}": values[name] for n, (name, _) in enumerate(op.operands)}, OUT: out}
        arrays |= {name: np.full(size, np.nan, np.float32) for name, size in m.stages}
        for k in m.kernels:
            pointers = (ctypes.c_void_p * len(k.arguments))(*(arrays[a].ctypes.data for a in k.arguments))
            assert getattr(library, f"run_{k.name}")(pointers, k.grid[0], k.block[0]) == 0
        found.append(out)
    return found


def run(ops: Sequence[EOperator], given: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
    return executed([lower_cuda(op, f"k{n}") for n, op in enumerate(ops)], ops, given)
