"""eOperators as TVM functions for CPUs: one private function on raw pointers for each, many in one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.target import Target, codegen

from einnet.derivation.rules.transitions import running
from einnet.errors import BackendError
from einnet.expr.nodes import Scope, Tensor, reads, tensors
from einnet.graph.dtypes import HALVES
from einnet.instantiate.codegen.beforehand import beforehand
from einnet.instantiate.codegen.executed import repeats
from einnet.instantiate.codegen.nests import sequence
from einnet.instantiate.codegen.operation_counts import flops, moved_bytes
from einnet.instantiate.codegen.repeats import factored
from einnet.instantiate.codegen.resolve import ELEMENTS, OUT, resolve
from einnet.instantiate.codegen.schedule import LANES
from einnet.instantiate.codegen.tables import known_tables
from einnet.instantiate.codegen.time_loops import RunningNests, resolved
from einnet.instantiate.kernels import EOperator, View
from einnet.instantiate.row_fusion import in_rows


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel as a TVM function on the base pointers of its operands' buffers, `params` in order, the output last.

    The function returns int32 0. It has no global symbol: it may be called by other functions of its module; `exported` gives it its name.
    The output may share a buffer with an operand only if they do not overlap, or if each output element is computed from the operand's
    element at the same place alone. Its masks are those of the processors of `target`: it is compiled for no other.
    """

    name: str
    primfunc: Any
    target: Any
    params: tuple[str, ...]
    flops: int
    bytes: int
    parallel: bool

    @property
    def exported(self) -> Any:
        return self.primfunc.with_attr("global_symbol", self.name)


def lower(
    op: EOperator, name: str, threads: int = 1, constants: Mapping[str, NDArray[Any]] | None = None, target: Any = None
) -> LoweredKernel:
    """Generate the kernel `out[loops] = scope`; view offsets are applied inside. Buffers may start at any element.

    `constants` gives values of operands known at compile time, in the shape of their tensors. `target` is TVM's name of the processor for which the
    code is compiled; without one it is this processor.

    Raises BackendError for views that do not fit the expression, types that are not read, and code that computes its parts again and again.
    """
    if op.arithmetic.rounds:
        raise BackendError(f"code for a processor rounds no factors to {op.arithmetic.name}")
    if repeats(op):
        raise BackendError("the code would compute its parts again and again")
    target = target or Target.from_device("cpu")
    handles, arrays, index_type = declared(op)
    tables = known_tables(op, constants or {})
    writer = RunningNests(arrays, tables, index_type)
    writer.threads, writer.halves, writer.widest = threads, halves(op.scope), under_one_mask(target)
    with writer.frame():
        recurrence = running(op.scope) if all(isinstance(r.base, Tensor) for r in reads(op.scope.body)) else None
        if recurrence is None:
            whole = op if in_rows(op.scope) else replace(op, scope=factored(op.scope))
            fills, nest = beforehand(resolve(whole, tables.keys()))
            writer.fill(fills)
            writer.nest(nest)
        else:
            fills, walk = resolved(op, recurrence, tables.keys())
            writer.fill(fills)
            writer.run(walk)
        writer.release()
    body = sequence([*(tirx.DeclBuffer(b, data=handles[p]) for p, b in arrays.items()), *writer.statements, tirx.Return(tirx.const(0, "int32"))])
    function = tirx.PrimFunc([*handles.values()], body, ret_type=PrimType("int32"))
    if all(v.buffer != op.out.buffer for _, v in op.operands):
        function = function.with_attr("tirx.noalias", True)
    params = ("out" if p == OUT else p for p in handles)
    return LoweredKernel(name, function, target, (*params,), flops(op.scope), moved_bytes(op.scope), writer.parallel)


def declared(op: EOperator) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The pointers of the operands and, last, of the output, what lies behind each, and the type of indices into it."""
    views = {**dict(op.operands), OUT: op.out}
    types = {**dict.fromkeys(views, "float32"), **element_types(op.scope), OUT: ELEMENTS[op.dtype]}
    handles = {p: tirx.Var("out" if p == OUT else f"operand{n}", PointerType(PrimType(types[p]))) for n, p in enumerate(views)}
    sizes = {p: reach(v) for p, v in views.items()}
    items = {p: np.dtype(kind).itemsize for p, kind in types.items()}
    arrays = {
        p: tirx.decl_buffer((max(1, sizes[p]),), types[p], handle.name + "_data", data=handle, data_alignment=items[p])
        for p, handle in handles.items()
    }
    return handles, arrays, "int32" if max(sizes.values()) < 1 << 30 else "int64"


def under_one_mask(target: Any) -> int:
    """The float32 lanes that the target's processor loads under one mask (vectors.masked_load says why it matters)."""
    return LANES if codegen.llvm_cpu_has_features("avx512f", target) else LANES // 2


def element_types(scope: Scope) -> dict[str, str]:
    """What the code calls the element type of each tensor that has one."""
    return {t.name: ELEMENTS[t.dtype] for t in tensors(scope).values() if t.dtype in ELEMENTS}


def halves(scope: Scope) -> dict[str, str]:
    """The element types of the tensors of which the code sees the bits."""
    return {t.name: t.dtype for t in tensors(scope).values() if t.dtype in HALVES}


def reach(view: View) -> int:
    """The buffer elements up to the last one that the view holds."""
    return view.offset + sum(max(0, s) * (n - 1) for s, n in zip(view.strides, view.shape)) + 1


def build(kernels: Sequence[LoweredKernel]) -> Any:
    """Compile kernels of one target into one module; `module[name]` takes pointers (ctypes.c_void_p) in the order of `params`."""
    return tvm.compile(tvm.IRModule({k.name: k.exported for k in kernels}), target=kernels[0].target)
