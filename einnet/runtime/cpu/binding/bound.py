"""The calls of a program: native segments, and between them nodes that ONNX Runtime runs, with their addresses in memory."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from einnet.instantiate.kernels import LINE, EOperator, Kernel, OpaqueCall, VendorKernel
from einnet.runtime import ort
from einnet.runtime.arena import sizes
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import fallback
from einnet.runtime.cpu.along_time import FLOAT, calls
from einnet.runtime.cpu.binding.asked import Asked
from einnet.runtime.cpu.binding.lending import Lending, Use
from einnet.runtime.cpu.binding.placed import Placed, packed_name, scratch_name, settled_name
from einnet.runtime.cpu.compiler.machine_code import entry_symbol
from einnet.runtime.cpu.dnnl import Arguments
from einnet.runtime.cpu.native.linked import Native, Step
from einnet.runtime.cpu.native.segments import Segments

Array = np.ndarray[Any, np.dtype[Any]]


class Bound:
    """`segments` are called one after the other; `labels` say by place what runs each kernel, and `firsts` which of the steps are its first.

    `inputs` and `outputs` are arrays on the program's memory, by name; `lending` has those that may lie elsewhere. Generated code takes buffers that
    begin at multiples of `alignment` bytes.
    """

    def __init__(self, asked: Asked, placed: Placed, native: Native, threads: int, alignment: int) -> None:
        self._asked, self._placed, self._native, self._threads, self._alignment = asked, placed, native, threads, alignment
        self.plan = plan = asked.plan
        self.keep: list[object] = []
        self._given = {b.name for b in plan.buffers if b.role in ("input", "output")}
        self._uses: dict[str, list[Use]] = {}
        given = {v.buffer for _, v in plan.inputs}
        self._held = {v.buffer for k in plan.kernels for v in k.result_views if v.buffer in given}  # the caller's array is not written
        self.labels: list[tuple[int, str]] = []
        segments = Segments(native, threads)
        symbols = iter(codegen.operator_names([k for k in plan.kernels if isinstance(k, EOperator)]))
        for n, kernel in enumerate(plan.kernels):
            self.labels.append((n, self._add(segments, n, kernel, next(symbols) if isinstance(kernel, EOperator) else "")))
        self.segments, self.firsts = segments.all(), segments.firsts
        self.inputs = [(name, placed.array(v)) for name, v in plan.inputs]
        self.outputs = [(name, placed.array(v)) for name, v in plan.outputs]
        places = {name: (placed.address(name), nbytes) for name, nbytes in sizes(plan).items() if name in self._uses}
        self.lending = Lending(plan, self._uses, self._held, places)

    def _add(self, segments: Segments, n: int, kernel: Kernel, symbol: str) -> str:
        """Add a kernel's calls to the segments; the name of what runs it."""
        name = f"kernel {n} ({type(kernel).__name__})"
        if not isinstance(kernel, EOperator) and n not in self._asked.prepared:
            self._held.update(v.buffer for v in (*kernel.operand_views, *kernel.result_views))
        match kernel:
            case EOperator():
                segments.native(name, [self._generated(kernel, symbol)])
                return "generated"
            case OpaqueCall() if n in self._asked.stepped:
                segments.native(name, self._recursion(n, kernel))
                return "generated"
            case OpaqueCall():
                inputs, outputs = ([self._placed.array(v) for v in views] for views in (kernel.inputs, kernel.outputs))
                alone = len(self.plan.kernels) == 1  # then ONNX Runtime's threads take no core from ours by waiting actively
                segments.other(ort.OpaqueNode(kernel.model, inputs, outputs, self._threads, kernel.origin, spin=alone))
                return "onnxruntime"
            case _ if n in self._asked.prepared:
                segments.native(name, [(self._native.vendor, words) for words in self._vendor_words(n)])
                return self._asked.prepared[n].implementation
            case VendorKernel():
                segments.other(fallback.vendor_call(kernel, self._placed.array, self._threads))
                return "onnxruntime" if fallback.engine(kernel) == fallback.ENGINE else "numpy"
        raise TypeError(f"the processor has nothing to run {kernel.describe()}")

    def only_node(self) -> tuple[ort.OpaqueNode, list[int], list[int]] | None:
        """The node that is the whole program, and where its inputs and outputs stand among the program's; None for any other program."""
        if len(self.plan.kernels) != 1 or not isinstance(self.segments[0], ort.OpaqueNode):
            return None
        (kernel,) = self.plan.kernels
        assert isinstance(kernel, OpaqueCall)
        given, results = [v for _, v in self.plan.inputs], list(kernel.outputs)
        if any(v not in given for v in kernel.inputs) or any(v not in results for _, v in self.plan.outputs):
            return None
        return self.segments[0], [given.index(v) for v in kernel.inputs], [results.index(v) for _, v in self.plan.outputs]

    def model_itself(self) -> ort.OpaqueNode | None:
        """The node that is the whole program, if it takes what the program takes and gives what it gives, in its order."""
        direct = self.only_node()
        if not direct:
            return None
        node, _, outputs = direct
        same = node.takes([(name, target.shape) for name, target in self.inputs]) and outputs == list(range(len(node.outputs)))
        return node if same else None

    def _generated(self, kernel: EOperator, name: str) -> Step:
        """The entry of a generated kernel and what it is called with: its buffers from the line on in which each view begins."""
        views, types = (*(v for _, v in kernel.operands), kernel.out), self._placed.dtypes
        offsets = [types[v.buffer].itemsize * (v.offset - v.offset % LINE) for v in views]
        words = (C.c_int64 * len(views))(*(self._placed.address(v.buffer) + at for v, at in zip(views, offsets, strict=True)))
        for i, (v, at) in enumerate(zip(views, offsets, strict=True)):
            self._used(v.buffer, partial(_write, words, i, at), max(self._alignment, types[v.buffer].itemsize))
        return self._native.image.address(entry_symbol(name)), words

    def _used(self, buffer: str, move: Callable[[int], None], alignment: int) -> None:
        """Note that a call has a buffer's address."""
        if buffer in self._given:
            self._uses.setdefault(buffer, []).append(Use(move, alignment))

    def _recursion(self, n: int, kernel: OpaqueCall) -> list[Step]:
        """The calls of a node that is computed along time. What they read that is made of constants alone is made now."""
        assert kernel.recursion is not None
        placed, once = self._placed, self._asked.once[n]
        views = zip((*(t.name for t in kernel.recursion.inputs), *kernel.recursion.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
        places = {name: placed.address(v.buffer) + FLOAT * v.offset for name, v in views} | placed.inner.get(n, {})
        places |= {t: placed.address(settled_name(n, t)) for t in once}
        steps = calls(self._asked.stepped[n], places, self._native, once)
        self.keep += steps.keep
        self._now(kernel, steps.once)
        return steps.each

    def _now(self, kernel: OpaqueCall, steps: list[Step]) -> None:
        """Run steps that are run once."""
        segments = Segments(self._native, self._threads)
        segments.native(f"constants of {type(kernel).__name__}", steps)
        for segment in segments.all():
            segment()

    def _vendor_words(self, n: int) -> Sequence[Sequence[int]]:
        """The words of the steps of a vendor kernel: operands in its arithmetic, where that is not float32, and the kernel itself."""
        asked, placed = self._asked, self._placed
        prepared = asked.prepared[n]
        packed = placed.address(packed_name(asked.packed_of[n])) if n in asked.packed_of else 0
        scratch = placed.address(scratch_name(n)) if scratch_name(n) in placed else 0
        primitive, arguments = prepared.create(), prepared.bind(placed.address, packed, scratch)
        before = prepared.roundings(placed.address, scratch)
        every = [(arguments, i, view, at) for i, view, at in prepared.reads()]
        every += [(a, 0, p.view, p.source.item * p.view.offset) for (_, a), (_, p) in zip(before, prepared.rounded, strict=True)]
        for a, i, view, at in every:
            self._used(view.buffer, partial(_move, a, i, at), placed.dtypes[view.buffer].itemsize)
        self.keep += [*before, (primitive, arguments)]
        words = [(p.pointer, asked.stream.pointer, a.count, a.address, a.calls) for p, a in (*before, (primitive, arguments))]
        return [*((*one, 1) for one in words[:-1]), (*words[-1], prepared.shares)]


def _write(words: C.Array[C.c_int64], i: int, offset: int, address: int) -> None:
    words[i] = address + offset


def _move(arguments: Arguments, i: int, offset: int, address: int) -> None:
    arguments.move(i, address + offset)
