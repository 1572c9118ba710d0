"""Generated kernels as object code: TVM's part of the CPU runtime. The only module of the runtime that imports tvm, and only when called."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from einnet.absent import absent
from einnet.errors import BackendError
from einnet.expr.nodes import exchange_in, tensors
from einnet.instantiate.kernels import LINE, EOperator, View, anchored
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.link import ObjectFile
from einnet.runtime.cpu.support import SUPPORT_IR
from einnet.runtime.serial import canonical, kernel_json

_C_CALL = 1
"""Marks a function as lowered to the C calling convention: it is exported under its own name and takes plain words."""


@cache
def generator_version() -> str:
    """A digest of the code generator's source: code of generated kernels, and their times, hold for one version of it."""
    import einnet.instantiate as package

    state = hashlib.blake2b(digest_size=8)
    for path in (*sorted((Path(str(package.__file__)).parent / "codegen").rglob("*.py")), Path(__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()


class NotGenerated(BackendError):
    """An eOperator for which there is no generated code."""


def available() -> str | None:
    """None if TVM can be imported, else why not."""
    try:
        with absent("torch"):
            import tvm  # noqa: F401
    except Exception as e:  # a broken installation raises many things
        return f"TVM cannot be imported ({e}): `pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1`"
    return None


def _require() -> None:
    reason = available()
    if reason:
        raise BackendError(reason)


def _object(module: Any) -> bytes:
    """The module's object file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.o"
        module.write_to_file(str(path), "o")
        data = path.read_bytes()
    ObjectFile(data)
    return data


@cache
def support_object() -> bytes:
    """The functions of `support`, compiled."""
    _require()
    import tvm_ffi

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "support.ll"
        path.write_text(SUPPORT_IR)
        return _object(tvm_ffi.load_module(str(path)))


def entry_symbol(name: str) -> str:
    """The exported function of the kernel `name`: `int(int64*)` over the addresses of its operands and then its result."""
    return f"einnet_kernel_{name}"


def target(cpu: str = NATIVE) -> Any:
    """TVM's target: this processor, or one of the levels of `levels`."""
    from tvm.target import Target

    here = Target.from_device("cpu")
    return here if cpu == NATIVE else Target({"kind": "llvm", "mtriple": here.attrs["mtriple"], "mcpu": cpu})


def compile_functions(functions: Mapping[str, Any], cpu: str = NATIVE) -> bytes:
    """One object file that exports `entry_symbol(name)` for each TVM PrimFunc on raw pointers."""
    return _object(compile_module(functions, cpu))


def compile_module(functions: Mapping[str, Any], cpu: str = NATIVE) -> Any:
    """The functions as TVM's module of machine code. Raises BackendError."""
    _require()
    import tvm

    module = tvm.IRModule()
    for name, function in functions.items():
        callee = tvm.ir.GlobalVar(name)
        module[callee] = function.without_attr("global_symbol")
        module[tvm.ir.GlobalVar(entry_symbol(name))] = _entry(name, module.get_global_var(name), function)
    try:
        return tvm.compile(module, target=target(cpu)).mod
    except RuntimeError as e:  # TVM's own errors are RuntimeErrors; the last line says what failed
        said = str(e).strip().splitlines() or [type(e).__name__]
        raise BackendError(f"TVM cannot compile {', '.join(functions)}: {said[-1]}") from e


def _entry(name: str, callee: Any, function: Any) -> Any:
    """int entry(int64* words): call the kernel with the words as pointers, return 0."""
    from tvm import ir, tirx

    words = tirx.Var("words", ir.PointerType(ir.PrimType("int64")))
    table = tirx.decl_buffer((max(len(function.params), 1),), "int64", "table")
    arguments = [tirx.call_intrin("handle", "tirx.reinterpret", table[n]) for n in range(len(function.params))]
    call = ir.Call(callee, arguments, ret_ty=function.ret_type)
    body = tirx.SeqStmt([tirx.stmt.DeclBuffer(table, data=words), tirx.Evaluate(call), tirx.stmt.Return(tirx.const(0, "int32"))])
    attributes = {"global_symbol": entry_symbol(name), "calling_conv": _C_CALL}
    return tirx.PrimFunc([words], body, ret_type=ir.PrimType("int32")).with_attr(attributes)


def compile_operators(operators: Mapping[str, EOperator], threads: int, cpu: str = NATIVE) -> bytes:
    """One object file with the kernels of the eOperators, for that number of threads and those processors.

    They take the addresses of the lines in which their views start, and apply only the rest of the offsets.
    """
    _require()
    from einnet.instantiate.codegen import lower

    chosen = target(cpu)
    placed = {name: anchored(op) for name, op in operators.items()}
    lowered = {name: lower(op, name, threads, aligned=True, target=chosen) for name, op in placed.items() if isinstance(op, EOperator)}
    return compile_functions({name: kernel.primfunc for name, kernel in lowered.items()}, cpu)


def stepwise_names(operators: Sequence[EOperator]) -> tuple[str, ...]:
    """A name for each eOperator whose views may begin at any element."""
    return tuple(f"u{name}" for name in operator_names(operators))


def compile_stepwise(operators: Mapping[str, EOperator], cpu: str = NATIVE) -> bytes:
    """The same as `compile_operators` for one thread, and addresses of any elements."""
    _require()
    from einnet.instantiate.codegen import lower

    chosen = target(cpu)
    return compile_functions({name: lower(op, name, target=chosen).primfunc for name, op in operators.items()}, cpu)


def operator_names(operators: Sequence[EOperator]) -> tuple[str, ...]:
    """A name for each eOperator, equal for those with equal code: names and whole lines of offsets do not count, what is shared does."""
    return tuple("e" + hashlib.blake2b(canonical(kernel_json(_nameless(op), _no_blob)).encode(), digest_size=12).hexdigest() for op in operators)


def _nameless(op: EOperator) -> EOperator:
    """The eOperator with tensors and buffers named by their place."""
    names = {name: f"T{n}" for n, (name, _) in enumerate(op.operands)}
    scope = exchange_in(op.scope, {name: replace(t, name=names[name]) for name, t in tensors(op.scope).items()})
    buffers: dict[str, str] = {}

    def view(v: View) -> View:
        return replace(v, buffer=buffers.setdefault(v.buffer, f"b{len(buffers)}"), offset=v.offset % LINE)

    return replace(op, scope=scope, operands=tuple((names[name], view(v)) for name, v in op.operands), out=view(op.out))


def _no_blob(_: bytes) -> int:
    raise AssertionError("an eOperator has no model")
