"""A plan made executable: memory laid out, weights packed, kernels compiled and bound; an inference is one native call.

Where the plan has nodes that ONNX Runtime runs, the program is a sequence of native segments and such nodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.graph.in_file import let_go
from einnet.instantiate.kernels import LINE, EOperator, Kernel, OpaqueCall, Plan, VendorKernel, View
from einnet.instantiate.kernels.arithmetics import F32
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.runtime import arena as memory
from einnet.runtime import ort
from einnet.runtime.contention import CORES
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl, fallback
from einnet.runtime.cpu.affinity import keep_apart
from einnet.runtime.cpu.along_time import FLOAT, Step, calls, settled, stepped
from einnet.runtime.cpu.compiler.machine_code import entry_symbol
from einnet.runtime.cpu.dnnl_kernels import Packed, Prepared, prepare
from einnet.runtime.cpu.forked import on_live_pool, on_live_threads, unlock_in_children
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.native.linked import Native, Steps
from einnet.runtime.cpu.native.segments import Segments
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.threads import limited, resolve_threads
from einnet.runtime.timing import Timing, summarize

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Code:
    """Object code of a program: the support functions, an object for each distinct generated kernel, and for which processors they are."""

    support: bytes
    kernels: tuple[bytes, ...] = ()
    cpu: str = NATIVE


def build_code(plan: Plan, threads: int, objects: Objects | None = None) -> Code:
    """What the plan's eOperators need, taken from `objects` as far as it was compiled before. Raises NotGenerated."""
    objects = objects or Objects(threads)
    return Code(objects.support(), objects_of(plan.kernels, objects), objects.cpu)


def objects_of(kernels: Sequence[Kernel], objects: Objects) -> tuple[bytes, ...]:
    """The object code of those of the kernels that are generated. Raises NotGenerated."""
    along = [o for k in kernels if isinstance(k, OpaqueCall) and (found := stepped(k)) is not None for o in found.operators]
    return (*objects.get([k for k in kernels if isinstance(k, EOperator)]), *objects.stepwise(along))


def settled_name(n: int, tensor: str) -> str:
    """The place of a tensor that a kernel's constants settle."""
    return f"settled:{n}:{tensor}"


def packed_name(n: int) -> str:
    """The place of a packed copy."""
    return f"packed:{n}"


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a program, what runs it, and how long it takes inside the program."""

    kernel: Kernel
    implementation: str
    timing: Timing


class Executable:
    """A program for the CPU. Calls from several threads are safe and run one after the other.

    `code` is what `build_code` gave for the same plan and threads, where it is at hand, and `native` the same linked. A vendor kernel that has no
    fast implementation here is run by ONNX Runtime, or by the library's reference code, and `notes` says so; a `strict` program has none such.
    Constants that programs `beside` it have alike are read where these have them, if all have the very same constants: nothing is packed twice. Then
    `constant_bytes` are those of its own.

    Raises UsageError for a malformed plan, Refused for a kernel that cannot be run, or for a strict program not fast, BackendError where a library is
    missing.
    """

    def __init__(
        self, plan: Plan, threads: int | None = None, *, code: Code | None = None, native: Native | None = None, strict: bool = False,
        beside: Sequence[Executable] = (),
    ) -> None:  # fmt: skip
        memory.check_plan(plan)
        self.plan, self.threads = plan, resolve_threads(threads)
        self.code = code or build_code(plan, self.threads)
        self.unlock()
        unlock_in_children(self)
        self.native = native or Native(self.code.support, self.code.kernels)
        self.notes: list[str] = []
        self._bound(strict, beside)
        if self.threads > 1:
            CORES.watch(partial(self.native.together, self.threads), partial(self.native.sharing, self.threads))

    @on_live_pool
    def _bound(self, strict: bool, beside: Sequence[Executable]) -> None:
        """Ask for the kernels, take memory and write the constants."""
        with limited(self.threads):
            self._prepare(strict)
            self._allocate(beside)
            self._bind()

    def unlock(self) -> None:
        """Nobody holds the program: so it is when it is made, and in a child that is forked while a thread of the parent runs it."""
        self._lock = threading.Lock()

    # -------------------------------------------------------------------------------------------------------------- building

    def _prepare(self, strict: bool) -> None:
        """Ask for the vendor kernels' implementations. What is refused is left to ONNX Runtime, or without that to the reference code."""
        constants = {b.name for b in self.plan.buffers if b.role == "constant"}
        self._prepared: dict[int, Prepared] = {}
        if dnnl.available() is None:
            self._stream = dnnl.new_stream()
            for n, kernel in enumerate(self.plan.kernels):
                if not isinstance(kernel, VendorKernel):
                    continue
                try:
                    self._prepared[n] = prepare(kernel, constants)
                except dnnl.Refused as reason:
                    if strict or arithmetic_of(kernel) != F32:
                        raise
                    missing = fallback.missing(kernel)
                    if missing:
                        self._prepared[n] = prepare(kernel, constants, reference=True)
                    what = f"{fallback.engine(kernel)} runs it" if not missing else f"its reference code runs it, slowly ({missing})"
                    self.notes.append(f"kernel {n} ({type(kernel).__name__}): {what}, because {reason}")

    def _allocate(self, beside: Sequence[Executable]) -> None:
        """One arena by lifetimes, scratch memory included; constants that are read as they are, and one packed copy per layout, in a region."""
        plan, inner = self.plan, self._along_time()
        scratch = [
            inner[n].nbytes if n in inner else self._prepared[n].scratch_bytes if n in self._prepared else 0 for n in range(len(plan.kernels))
        ]
        arena = memory.place(memory.lifetimes(plan, scratch))
        self._packed, kept = self._share_packed(), self._kept()
        once = {settled_name(n, t): FLOAT * self._stepped[n].sizes[t] for n, found in self._once.items() for t in found}
        packed = {packed_name(n): p.target.nbytes for n, p in enumerate(self._packed)}
        lent = self._lent(beside, kept)
        region = memory.stack({name: size for name, size in {**kept, **once, **packed}.items() if name not in lent})
        self.arena_bytes, self.constant_bytes = arena.nbytes, region.nbytes
        self._arena, self._region = memory.Block(arena.nbytes), memory.Block(region.nbytes)
        self._places = lent | {name: (self._arena, offset) for name, offset in arena.offsets.items()}
        self._places.update({name: (self._region, offset) for name, offset in region.offsets.items()})
        self._inner = {n: {t: self._address(f"scratch:{n}") + at for t, at in found.offsets.items()} for n, found in inner.items() if found.nbytes}
        self._fill([name for name in kept if name not in lent], {n: p for n, p in enumerate(self._packed) if packed_name(n) not in lent})

    def _lent(self, beside: Sequence[Executable], kept: Mapping[str, int]) -> dict[str, tuple[memory.Block, int]]:
        """Where programs with the same constants have those that are `kept` as they are, and copies that are packed as this one's are."""
        found: dict[str, tuple[memory.Block, int]] = {}
        for other in beside:
            if other.plan.constants is not self.plan.constants or other.plan.buffers != self.plan.buffers:
                continue
            places = {name: name for name in kept}
            same = ((n, p.among(other._packed)) for n, p in enumerate(self._packed))
            places |= {packed_name(n): packed_name(i) for n, i in same if i is not None}
            found |= {own: other._places[name] for own, name in places.items() if name in other._places}
        return found

    def _along_time(self) -> dict[int, memory.Arena]:
        """Where the nodes that are computed along time keep what is inside them, but for what their constants settle."""
        self._stepped = {n: found for n, k in enumerate(self.plan.kernels) if isinstance(k, OpaqueCall) and (found := stepped(k)) is not None}
        self._once = {n: settled(found, self._constants(self.plan.kernels[n])) for n, found in self._stepped.items()}
        return {n: memory.stack({t: FLOAT * k for t, k in s.sizes.items() if t not in self._once[n]}) for n, s in self._stepped.items()}

    def _constants(self, kernel: Kernel) -> set[str]:
        """What a recursion calls those of its inputs that are constants."""
        assert isinstance(kernel, OpaqueCall) and kernel.recursion is not None
        held = {b.name for b in self.plan.buffers if b.role == "constant"}
        return {t.name for t, v in zip(kernel.recursion.inputs, kernel.inputs, strict=True) if v.buffer in held}

    def _share_packed(self) -> list[Packed]:
        """The distinct packed operands; `_packed_of` maps steps to them."""
        found: list[Packed] = []
        self._packed_of: dict[int, int] = {}
        for n, prepared in self._prepared.items():
            if prepared.packed:
                known = prepared.packed.among(found)
                self._packed_of[n] = len(found) if known is None else known
                if known is None:
                    found.append(prepared.packed)
        return found

    def _kept(self) -> dict[str, int]:
        """Bytes of the constants that are read as they are."""
        nbytes, read = memory.sizes(self.plan), self._read_unpacked()
        return {b.name: nbytes[b.name] for b in self.plan.buffers if b.role == "constant" and b.name in read}

    def _read_unpacked(self) -> set[str]:
        """Buffers that some step reads where they lie, or that are given out."""
        read = {v.buffer for _, v in self.plan.outputs}
        for n, kernel in enumerate(self.plan.kernels):
            prepared = self._prepared.get(n)
            if prepared:
                read.update(view.buffer for _, _, view in prepared.operands)
                read.update(one.view.buffer for _, one in prepared.rounded)
            else:
                read.update(v.buffer for v in kernel.operand_views)
        return read

    def _fill(self, kept: Sequence[str], packed: Mapping[int, Packed]) -> None:
        """Write the constants and the packed copies."""
        types = {b.name: memory.storage_dtype(b.dtype) for b in self.plan.buffers}
        for name in kept:
            values = self.plan.constants[name].reshape(-1)
            self._array(View(name, (values.size,), (1,)), types[name])[...] = values
            let_go(values)
        for n, p in packed.items():
            values = self.plan.constants[p.view.buffer]
            source = np.require(values, types[p.view.buffer], ["C", "A"]).reshape(-1)  # a copy where a file has them at any byte
            p.fill(source.ctypes.data, self._address(packed_name(n)))
            let_go(values)

    def _address(self, name: str) -> int:
        block, offset = self._places[name]
        return block.address + offset

    def _array(self, view: View, dtype: np.dtype[Any]) -> Array:
        """A view as a numpy array on the program's memory."""
        block, offset = self._places[view.buffer]
        flat = block.bytes[offset : offset + (len(block.bytes) - offset) // dtype.itemsize * dtype.itemsize].view(dtype)[view.offset :]
        return np.lib.stride_tricks.as_strided(flat, view.shape, [s * dtype.itemsize for s in view.strides])

    def _bind(self) -> None:
        types = {b.name: memory.storage_dtype(b.dtype) for b in self.plan.buffers}
        self._keep: list[object] = []
        self._labels: list[tuple[int, str]] = []
        segments = Segments(self.native, self.threads)
        operators = [k for k in self.plan.kernels if isinstance(k, EOperator)]
        alone = len(self.plan.kernels) == 1  # then ONNX Runtime's threads take no core from ours by waiting actively
        symbols = iter(codegen.operator_names(operators))
        for n, kernel in enumerate(self.plan.kernels):
            name = f"kernel {n} ({type(kernel).__name__})"
            match kernel:
                case EOperator():
                    segments.native(name, [self._generated(kernel, next(symbols), types)])
                    label = "generated"
                case OpaqueCall() if n in self._stepped:
                    segments.native(name, self._recursion(n, kernel))
                    label = "generated"
                case OpaqueCall():
                    inputs, outputs = ([self._array(v, types[v.buffer]) for v in views] for views in (kernel.inputs, kernel.outputs))
                    segments.other(ort.OpaqueNode(kernel.model, inputs, outputs, self.threads, kernel.origin, spin=alone))
                    label = "onnxruntime"
                case _ if n in self._prepared:
                    segments.native(name, [(self.native.vendor, words) for words in self._vendor_words(n)])
                    label = self._prepared[n].implementation
                case VendorKernel():
                    segments.other(fallback.vendor_call(kernel, lambda v: self._array(v, types[v.buffer]), self.threads))
                    label = "onnxruntime" if fallback.engine(kernel) == fallback.ENGINE else "numpy"
                case _:
                    raise TypeError(f"the processor has nothing to run {kernel.describe()}")
            self._labels.append((n, label))
        self._segments, self._firsts = segments.all(), segments.firsts
        self._input_names, self._output_names = tuple(n for n, _ in self.plan.inputs), tuple(n for n, _ in self.plan.outputs)
        self._expected = set(self._input_names)
        self._inputs = [(name, self._array(v, types[v.buffer])) for name, v in self.plan.inputs]
        self._outputs = [(name, self._array(v, types[v.buffer])) for name, v in self.plan.outputs]
        self._direct = self._only_node()
        self._named = self._model_itself()

    def _only_node(self) -> tuple[ort.OpaqueNode, list[int], list[int]] | None:
        """The node that is the whole program, and where its inputs and outputs stand among the program's; None for any other program."""
        if len(self.plan.kernels) != 1 or not isinstance(self._segments[0], ort.OpaqueNode):
            return None
        (kernel,) = self.plan.kernels
        assert isinstance(kernel, OpaqueCall)
        given, results = [v for _, v in self.plan.inputs], list(kernel.outputs)
        if any(v not in given for v in kernel.inputs) or any(v not in results for _, v in self.plan.outputs):
            return None
        return self._segments[0], [given.index(v) for v in kernel.inputs], [results.index(v) for _, v in self.plan.outputs]

    def _model_itself(self) -> ort.OpaqueNode | None:
        """The node that is the whole program, if it takes what the program takes and gives what it gives, in its order."""
        if not self._direct:
            return None
        node, _, outputs = self._direct
        same = node.takes([(name, target.shape) for name, target in self._inputs]) and outputs == list(range(len(node.outputs)))
        return node if same else None

    def _generated(self, kernel: EOperator, name: str, types: Mapping[str, np.dtype[Any]]) -> tuple[int, Sequence[int]]:
        """The entry of a generated kernel and what it is called with: its buffers from the line on in which each view begins."""
        views = (*(v for _, v in kernel.operands), kernel.out)
        words = [self._address(v.buffer) + types[v.buffer].itemsize * (v.offset - v.offset % LINE) for v in views]
        return self.native.image.address(entry_symbol(name)), words

    def _recursion(self, n: int, kernel: OpaqueCall) -> list[tuple[int, Sequence[int]]]:
        """The calls of a node that is computed along time. What they read that is made of constants alone is made now."""
        assert kernel.recursion is not None
        views = zip((*(t.name for t in kernel.recursion.inputs), *kernel.recursion.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
        places = {name: self._address(v.buffer) + FLOAT * v.offset for name, v in views} | self._inner.get(n, {})
        places |= {t: self._address(settled_name(n, t)) for t in self._once[n]}
        steps = calls(self._stepped[n], places, self.native, self._once[n])
        self._keep += steps.keep
        self._now(kernel, steps.once)
        return steps.each

    def _now(self, kernel: OpaqueCall, steps: list[Step]) -> None:
        """Run steps that are run once."""
        segments = Segments(self.native, self.threads)
        segments.native(f"constants of {type(kernel).__name__}", steps)
        for segment in segments.all():
            segment()

    def _vendor_words(self, n: int) -> Sequence[Sequence[int]]:
        """The words of the steps of a vendor kernel: operands in its arithmetic, where that is not float32, and the kernel itself."""
        prepared = self._prepared[n]
        packed = self._address(packed_name(self._packed_of[n])) if n in self._packed_of else 0
        scratch = self._address(f"scratch:{n}") if f"scratch:{n}" in self._places else 0
        primitive, arguments = prepared.create(), prepared.bind(self._address, packed, scratch)
        before = prepared.roundings(self._address, scratch)
        self._keep += [*before, (primitive, arguments)]
        words = [(p.pointer, self._stream.pointer, a.count, a.address, a.calls) for p, a in (*before, (primitive, arguments))]
        return [*((*one, 1) for one in words[:-1]), (*words[-1], prepared.shares)]

    # -------------------------------------------------------------------------------------------------------------- running

    @property
    def input_names(self) -> tuple[str, ...]:
        return self._input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        return self._output_names

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for a missing or unknown name, a wrong shape or element type."""
        if self._named and on_live_threads() and (made := self._named.named(inputs)) is not None:
            return dict(zip(self._output_names, made))
        if inputs.keys() != self._expected:
            raise UsageError(self._misnamed(inputs))
        return dict(zip(self._output_names, self.run(*[np.asarray(inputs[n]) for n in self._input_names]), strict=True))

    def _misnamed(self, inputs: Mapping[str, Array]) -> str:
        unknown, missing = sorted(inputs.keys() - self._expected), [n for n in self._input_names if n not in inputs]
        problem = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
        return f"{problem}; the program takes {', '.join(self._input_names) or 'no inputs'}"

    def run(self, *arrays: Array) -> list[Array]:
        """Outputs in order, for inputs in order: copy in, run, copy out. Where one node is the whole program, it reads the arrays themselves."""
        made = self._run(arrays, None)
        assert made is not None
        return made

    def into(self, arrays: Sequence[Array], results: Sequence[Array]) -> list[Array] | None:
        """The same with the outputs written into `results`, arrays of the outputs' shapes and types in any order of memory.

        Where one node is the whole program, ONNX Runtime makes the outputs: they are given back, and `results` are left as they are.
        """
        return self._run(arrays, results)

    @on_live_pool
    def _run(self, arrays: Sequence[Array], results: Sequence[Array] | None) -> list[Array] | None:
        if len(arrays) != len(self._inputs):
            raise UsageError(f"{len(arrays)} inputs given; the program takes {len(self._inputs)}: {', '.join(self.input_names)}")
        for (name, target), array in zip(self._inputs, arrays):
            if array.shape != target.shape or array.dtype != target.dtype:
                raise UsageError(f"input {name!r} is {array.dtype}{list(array.shape)}; expected {target.dtype}{list(target.shape)}")
        if self._direct:
            node, inputs, outputs = self._direct
            made = node.direct([arrays[n] for n in inputs])
            return [made[n] for n in outputs]
        with self._lock:
            for (_, target), array in zip(self._inputs, arrays):
                target[...] = array
            keep_apart(self.threads)
            for segment in self._segments:
                segment()
            if results is None:
                return [source.copy() for _, source in self._outputs]
            for (_, source), result in zip(self._outputs, results, strict=True):
                result[...] = source
        return None

    @on_live_pool
    def execute(self) -> None:
        """Run on what is in memory already, without copies: what timing measures."""
        with self._lock:
            keep_apart(self.threads)
            for segment in self._segments:
                segment()

    def randomize(self, seed: int = 0) -> None:
        """Fill float inputs with random values that repeat, so that a timing does not run on zeros; and take all memory now."""
        with self._lock:
            self._arena.touch()
            for _, target in self._inputs:
                if target.dtype.kind == "f":
                    memory.fill_random(target, seed)

    @property
    def session(self) -> ort.Session | None:
        """The session of ONNX Runtime that is the whole program; None for any other program, and where it has given its memory back."""
        return self._direct[0].session if self._direct else None

    @property
    def nbytes(self) -> int:
        """Bytes that the program holds when it has run: the arena and the constants."""
        return self.arena_bytes + self.constant_bytes

    def release(self) -> None:
        """Give the arena's memory back until the next run, which takes it again."""
        with self._lock:
            self._arena.release()

    def rest(self) -> None:
        """Give the memory of the opaque nodes back, too; the next run takes longer."""
        self.release()
        for segment in self._segments:
            if isinstance(segment, ort.OpaqueNode):
                segment.rest()

    @on_live_pool
    def settle(self, cold: bool) -> None:
        """Before a sample: drop the constants from all caches if `cold`, and wake the pool, which runs on between a program's kernels."""
        with self._lock:
            if cold and self.constant_bytes:
                self.native.flush(self._region.address, self.constant_bytes)
            keep_apart(self.threads)
            self.native.wake(self.threads)

    @on_live_pool
    def sample(self) -> list[float]:
        """Run on what is in memory; seconds of every kernel."""
        times: list[float] = []
        with self._lock:
            keep_apart(self.threads)
            for segment in self._segments:
                if isinstance(segment, Steps):
                    times.extend(segment.profile())
                else:
                    start = time.perf_counter()
                    segment()
                    times.append(time.perf_counter() - start)
        return [float(t) for t in np.add.reduceat(times, self._firsts)] if len(times) > len(self._firsts) else times

    def profile(self, repeats: int = 20) -> list[KernelTime]:
        """The time of every kernel, run in the program's order, so that operands are as warm or cold as they are in an inference."""
        self.sample()
        samples = [self.sample() for _ in range(repeats)]
        return [KernelTime(self.plan.kernels[n], label, summarize([s[i] for s in samples])) for i, (n, label) in enumerate(self._labels)]
