"""eOperators as CUDA text: grids of threads written by `blocks` and `threads`, printed by TVM's CUDA generator. Needs no GPU and no CUDA library."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.target import Target

from einnet.errors import BackendError
from einnet.expr.nodes import tensors
from einnet.graph.dtypes import HALVES
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cpu import reach
from einnet.instantiate.codegen.cuda.launches import CudaOperator, GridKernel
from einnet.instantiate.codegen.cuda.per_thread import Threads
from einnet.instantiate.codegen.cuda.rescaled_sizes import walked
from einnet.instantiate.codegen.cuda.rowwise import divided
from einnet.instantiate.codegen.cuda.thread_blocks import Blocks
from einnet.instantiate.codegen.ir import Load, Nest, expanded, picks
from einnet.instantiate.codegen.resolve import ELEMENTS, OUT, resolve
from einnet.instantiate.codegen.tables import known_tables
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32

__all__ = ["LONGEST", "CudaOperator", "GridKernel", "lower_cuda"]

ARCHITECTURE = "sm_90"

LONGEST = 1 << 16
"""Characters of one kernel's text: compilers take minutes for several times as many, and nearly all texts have a tenth of it."""

_GLOBAL = 'extern "C" __global__'

_SHRINKING = "s_tir.CompactBufferAllocation"
"""TVM's pass that makes buffers as small as what is touched of them: ours are, up to the end of a last row, and it took two thirds of the time
of a text."""


def lower_cuda(op: EOperator, name: str) -> CudaOperator:
    """The kernels `out[loops] = scope`; pointers are those of the buffers, view offsets are applied inside.

    In the arithmetic tf32 sums of products may be of factors that are rounded to 10 bits behind the point, on tensor cores.

    Raises BackendError for views that do not fit the expression, tensors of types that are not read, an arithmetic that no code is in, or what takes
    more than `LONGEST` characters.
    """
    if op.arithmetic not in (F32, ARITHMETICS["tf32"]):
        raise BackendError(f"generated kernels for a card round no factors to {op.arithmetic.name}: {op.scope.text()}")
    tensor_cores = op.arithmetic.rounds
    if op.dtype != "f32":
        raise BackendError(f"generated kernels for a card write no {op.dtype}: {op.scope.text()}")
    views = dict(op.operands)
    tables = known_tables(op, {})
    alias = any(v.buffer == op.out.buffer for v in views.values())
    found = divided(resolve(op, tables.keys()), apart=not alias)
    types = {t.name: t.dtype for t in tensors(op.scope).values()}
    sizes = {**{n: reach(v) for n, v in views.items()}, OUT: reach(op.out), **found.sizes}
    places = {a: f"operand {n}" for n, a in enumerate(views)}
    texts, kernels = [], []
    for n, nest in enumerate(found.nests):
        if any(i.extent <= 0 for i in nest.loops):
            continue
        text, kernel = _written(normalise(nest), f"{name}_{n}", sizes, tables, types, alias and nest.array == OUT, tensor_cores)
        texts.append(text)
        kernels.append(replace(kernel, arguments=tuple(places.get(a, a) for a in kernel.arguments)))
    return CudaOperator("\n".join(texts), tuple(kernels), tuple(sorted(found.sizes.items())))


Tables = dict[str, dict[int, float]]


def _written(
    nest: Nest, name: str, sizes: dict[str, int], tables: Tables, types: dict[str, str], alias: bool, tensor_cores: bool
) -> tuple[str, GridKernel]:
    """The kernel by blocks that share memory; where that is too long a text, or it reads at places that are data, by threads alone."""
    parts = [e for e, _ in expanded(nest.expr, nest.ranges)]
    plain = all(types.get(e.array, "f32") == "f32" for e in parts if isinstance(e, Load)) and not any(map(picks, parts))
    for writer in (Blocks, Threads) if plain or not alias and walked(nest) is not None else (Threads,):
        text, kernel = _emit(nest, name, sizes, tables, types, alias, writer, tensor_cores)
        if len(text) <= LONGEST:
            return text, kernel
    raise BackendError(f"a kernel of {len(text)} characters is not compiled: {LONGEST} are the most")


def _emit(
    nest: Nest, name: str, sizes: dict[str, int], tables: Tables, types: dict[str, str], alias: bool, kind: type[Blocks | Threads], tensor: bool
) -> tuple[str, GridKernel]:
    order = tuple(sizes)
    of = {a: ELEMENTS[types.get(a, "f32")] for a in order}
    handles = {a: tirx.Var(f"array{n}", PointerType(PrimType(of[a]))) for n, a in enumerate(order)}
    arrays = {a: tirx.decl_buffer((max(1, sizes[a]),), of[a], f"array{n}_data", data=handles[a], data_alignment=4) for n, a in enumerate(order)}
    index_type = "int32" if max(sizes.values()) < 1 << 30 else "int64"
    writer = kind(arrays, tables, index_type)
    if isinstance(writer, Blocks):
        writer.tensor_cores = tensor
    writer.halves = {a: t for a, t in types.items() if t in HALVES}
    body = tirx.SeqStmt([*(tirx.DeclBuffer(arrays[a], data=handles[a]) for a in order), writer.grid(nest, exact=alias)])
    function = tirx.PrimFunc([handles[a] for a in order], body).with_attr("global_symbol", name)
    text, device = _device_text(tvm.IRModule({name: function}))
    text = clustered(aligned(text), writer)
    if alias:
        text = text.replace(" __restrict__", "")
    extents = {k: int(v) for k, v in re.findall(r'launch_thread\("([\w.]+)", (\d+)\)', device.script())}
    grid, block = ((extents.get(f"{kind}.x", 1), extents.get(f"{kind}.y", 1), extents.get(f"{kind}.z", 1)) for kind in ("blockIdx", "threadIdx"))
    arguments = tuple(order[_position(p.name)] for p in device.params)
    symbol = re.search(r"\b(\w+)\(", text.split("__launch_bounds__", 1)[-1].split(")", 1)[-1])
    assert symbol is not None, text
    return text, GridKernel(symbol[1], grid, block, arguments)


def aligned(text: str) -> str:
    """The function told that its arrays start at multiples of 16 bytes, as those of a program do: neighbouring accesses become one."""
    start = text.index(") {\n", text.rindex(_GLOBAL)) + len(") {\n")
    arrays = re.findall(r"float\* (?:__restrict__ )?(\w+)", text[text.rindex(_GLOBAL) : start])
    return text[:start] + "".join(f"  einnet_aligned({name});\n" for name in arrays) + text[start:]


def clustered(text: str, writer: Threads) -> str:
    """The function told how many of its blocks are a cluster."""
    stages = writer.stages if isinstance(writer, Blocks) else None
    if stages is None or stages.cluster == 1:
        return text
    return text.replace(_GLOBAL, f"{_GLOBAL} __cluster_dims__({stages.cluster}, 1, 1)")


def _position(parameter: str) -> int:
    """The number of the array that a device function's parameter points to: TVM reorders parameters and adds to their names."""
    match = re.match(r"array(\d+)_", parameter + "_")
    if match is None:
        raise BackendError(f"TVM made a kernel with the parameter {parameter}, which is no array")
    return int(match[1])


def _device_text(module: Any) -> tuple[str, Any]:
    """The module's only kernel as text from its first line on, and as TVM's device function."""
    from tvm.tirx.build import split_host_device_mods

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", lambda code: b"\0", override=True)  # the text is all that is wanted
    target = Target({"kind": "cuda", "arch": ARCHITECTURE}, host=Target("llvm"))
    lower, _, finish = tirx.get_default_tir_pipeline(target)
    with tvm.transform.PassContext(disabled_pass=[_SHRINKING]):
        _, devices = split_host_device_mods(lower(tirx.transform.BindTarget(target)(module)))
    if not devices:
        raise BackendError("TVM made no device function of a kernel")
    ((where, device),) = devices.items()
    device = finish()(device)
    source = tvm.get_global_func("target.build.cuda")(device, where).inspect_source()
    ((_, function),) = device.functions.items()
    return source[source.index(_GLOBAL) :], function
