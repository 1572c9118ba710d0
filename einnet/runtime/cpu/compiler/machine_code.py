"""Generated kernels as object code: the only module of the runtime that imports tvm, and only when called. A process of its own calls it
(`einnet.runtime.cpu.compile`), so that whoever wants code holds no compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from einnet.absent import absent
from einnet.errors import BackendError
from einnet.instantiate.kernels import EOperator, anchored
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.native.functions import SUPPORT_IR
from einnet.runtime.cpu.native.link import ObjectFile

_C_CALL = 1
"""Marks a function as lowered to the C calling convention: it is exported under its own name and takes plain words."""


def available() -> str | None:
    """None if TVM can be imported, else why not."""
    try:
        with absent("torch"):
            import tvm  # noqa: F401
    except Exception as e:  # a broken installation raises many things
        return f"TVM cannot be imported ({e}): `pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1`"
    return None


def load() -> None:
    """Import the generator, too."""
    import einnet.instantiate.codegen.cpu  # noqa: F401


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
    """The native functions, compiled."""
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
    lowered = {name: lower(op, name, threads, target=chosen) for name, op in placed.items() if isinstance(op, EOperator)}
    return compile_functions({name: kernel.primfunc for name, kernel in lowered.items()}, cpu)


def compile_stepwise(operators: Mapping[str, EOperator], cpu: str = NATIVE) -> bytes:
    """The same as `compile_operators` for one thread, and addresses of any elements."""
    _require()
    from einnet.instantiate.codegen import lower

    chosen = target(cpu)
    return compile_functions({name: lower(op, name, target=chosen).primfunc for name, op in operators.items()}, cpu)
