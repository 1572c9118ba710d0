"""A typed binding of the part of oneDNN's C API (3.x) that inference needs: strided memory, post-ops, matmul, convolution, reorder.

Every object owns its C handle and releases it when it is collected. The library is looked for in `EINNET_DNNL`, then where pip puts the
package `onednn-cpu-gomp` (`lib/` of the environment), then where the system's loader looks. It is loaded with global symbols and on first
use only. Functions raise `Refused` where the library does not support a request and BackendError where it is missing or fails.
"""

from __future__ import annotations

import ctypes as C
import ctypes.util
import os
import site
import sys
import sysconfig
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from einnet import environment
from einnet.errors import BackendError

_MAX_DIMS = 12
_CPU, _FORMAT_ANY, _INFERENCE, _CONV_DIRECT, _DECONV_DIRECT, _IN_ORDER, _SCRATCHPAD_USER = 1, 1, 96, 1, 10, 1, 1
F32 = "f32"
TYPES = {"f16": 1, "bf16": 2, F32: 3, "i8": 5, "u8": 6}
"""Element types of tensors, as arithmetics and the notation call them."""
ITEM = {"f16": 2, "bf16": 2, F32: 4, "i8": 1, "u8": 1}
"""Bytes of an element."""
_QUERY_IMPLEMENTATION = 8
QUERY_SOURCE, QUERY_WEIGHTS, QUERY_SCRATCHPAD = 129, 131, 136
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_SCRATCHPAD = 1, 17, 33, 41, 80
ELTWISE = {
    "relu": 0x20, "tanh": 0x21, "elu": 0x22, "linear": 0x26, "sigmoid": 0x29, "gelu_tanh": 0x2B, "swish": 0x2C, "clip": 0x2F, "gelu": 0x31,
    "gelu_divided": 0x31, "round": 0x32, "mish": 0x33, "hardswish": 0x34,
}  # fmt: skip
BINARY = {"add": 0x1FFF0, "mul": 0x1FFF1}
_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not implemented", 4: "last implementation reached", 5: "runtime error", 6: "not required"}
_REFUSALS = (2, 3, 4)

_P, _I, _N = C.c_void_p, C.c_int, C.c_size_t
_OUT, _DIMS = C.POINTER(C.c_void_p), C.POINTER(C.c_int64)
_CONV = (_OUT, _P, _I, _I, _P, _P, _P, _P, _DIMS, _DIMS, _DIMS, _DIMS, _P)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "engine_create": (_OUT, _I, _N), "stream_create": (_OUT, _P, C.c_uint), "stream_wait": (_P,),
    "memory_desc_create_with_strides": (_OUT, _I, _DIMS, _I, _DIMS), "memory_desc_create_with_tag": (_OUT, _I, _DIMS, _I, _I),
    "memory_desc_clone": (_OUT, _P), "memory_create": (_OUT, _P, _P, _P), "memory_set_data_handle": (_P, _P),
    "primitive_attr_create": (_OUT,), "primitive_attr_set_scratchpad_mode": (_P, _I), "primitive_attr_set_post_ops": (_P, _P),
    "post_ops_create": (_OUT,), "post_ops_append_sum": (_P, C.c_float, C.c_int32, _I),
    "post_ops_append_eltwise": (_P, _I, C.c_float, C.c_float), "post_ops_append_binary": (_P, _I, _P),
    "convolution_forward_primitive_desc_create": _CONV, "deconvolution_forward_primitive_desc_create": _CONV,
    "matmul_primitive_desc_create": (_OUT, _P, _P, _P, _P, _P, _P), "reorder_primitive_desc_create": (_OUT, _P, _P, _P, _P, _P),
    "primitive_desc_query": (_P, _I, _I, _P), "primitive_desc_next_impl": (_P,),
    "primitive_create": (_OUT, _P), "primitive_execute": (_P, _P, _I, _P),
    **{f"{kind}_destroy": (_P,) for kind in
       ("engine", "stream", "memory_desc", "memory", "primitive_attr", "post_ops", "primitive_desc", "primitive")},
}  # fmt: skip


class Refused(BackendError):
    """A request that a vendor library does not support, or only by its reference code (hundreds of times slower)."""


class _Version(C.Structure):
    _fields_ = [("major", _I), ("minor", _I), ("patch", _I), ("hash", C.c_char_p)]


class _ExecArg(C.Structure):
    _fields_ = [("arg", _I), ("memory", _P)]


def candidates() -> list[str]:
    """Where the library is looked for, in order."""
    given = environment.dnnl()
    if given:
        return [given]
    folders = dict.fromkeys(Path(p) / "lib" for p in (sys.prefix, sysconfig.get_path("data"), site.getuserbase()))
    found = [str(f / "libdnnl.so.3") for f in folders if (f / "libdnnl.so.3").exists()]
    system = ctypes.util.find_library("dnnl")
    return [*found, system] if system else found


LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables by which the library's user keeps it from instructions that the processor has."""


def limit() -> str:
    """What the library may use of the processor's instructions, where that is less than all of them; else empty."""
    given = next((os.environ[name] for name in LIMITS if os.environ.get(name)), "").upper()
    return "" if given in ("", "ALL", "DEFAULT") else given


SPINS = "10000"
"""How often a waiting OpenMP thread looks before it sleeps: some 100 us, longer than any gap between two kernels."""


def limit_spinning() -> None:
    """Let waiting threads sleep after `SPINS` looks, unless the user has said otherwise (GOMP_SPINCOUNT, OMP_WAIT_POLICY).

    With the OpenMP runtime's own default they wait actively for milliseconds, and where other programs use the cores too, a step of 0.1 ms then
    takes 100 ms. It has to be said before the runtime is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


class Library:
    """The loaded library; `call(name, ...)` is `dnnl_name(...)` with its status checked."""

    def __init__(self, path: str) -> None:
        try:
            limit_spinning()
            self.cdll = C.CDLL(path, mode=C.RTLD_GLOBAL)
        except OSError as e:
            raise BackendError(f"oneDNN cannot be loaded from {path}: {e}") from e
        self.path = path
        version = self.cdll.dnnl_version
        version.restype, version.argtypes = C.POINTER(_Version), ()
        self.version: tuple[int, int, int] = (lambda v: (v.major, v.minor, v.patch))(version().contents)
        if self.version[0] != 3:
            raise BackendError(f"{path} is oneDNN {'.'.join(map(str, self.version))}; version 3 is needed")
        self._functions: dict[str, Callable[..., int]] = {name: self._declare(name, types) for name, types in _SIGNATURES.items()}
        self.query_desc = self._declare("primitive_desc_query_md", (_P, _I, _I), _P)
        self.desc_size = self._declare("memory_desc_get_size", (_P,), _N)
        self.desc_equal = self._declare("memory_desc_equal", (_P, _P), _I)

    def _declare(self, name: str, types: tuple[Any, ...], result: Any = _I) -> Callable[..., Any]:
        function = getattr(self.cdll, "dnnl_" + name)
        function.argtypes, function.restype = types, result
        return function  # type: ignore[no-any-return]

    def descriptor(self, name: str, types: tuple[Any, ...]) -> str:
        """The function that creates descriptors of a primitive, declared with these types between the engine and the attributes."""
        function = f"{name}_primitive_desc_create"
        if function not in self._functions:
            self._functions[function] = self._declare(function, (_OUT, _P, *types, _P))
        return function

    def call(self, name: str, *args: Any) -> None:
        status = self._functions[name](*args)
        if status:
            error = Refused if status in _REFUSALS else BackendError
            raise error(f"oneDNN {name}: {_STATUS.get(status, status)}")

    def make(self, name: str, *args: Any) -> int:
        """Call a function whose first parameter receives the handle that it creates."""
        out = _P()
        self.call(name, C.byref(out), *args)
        assert out.value is not None
        return out.value

    def release(self, kind: str, pointer: int) -> None:
        self._functions[kind + "_destroy"](pointer)


@cache
def library() -> Library:
    """The library, loaded once. Raises BackendError that says what to install."""
    paths = candidates()
    if not paths:
        raise BackendError("oneDNN (libdnnl.so.3) was not found: `pip install onednn-cpu-gomp`, or point EINNET_DNNL at a oneDNN 3 library")
    return Library(paths[0])


def available() -> str | None:
    """None if the library can be used, else why not."""
    try:
        library()
    except BackendError as e:
        return str(e)
    return None


class _Owned:
    """A C handle that is destroyed with its Python object."""

    kind = ""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        weakref.finalize(self, library().release, self.kind, pointer).atexit = False


class Engine(_Owned):
    """The CPU."""

    kind = "engine"


class Stream(_Owned):
    """An in-order queue; on the CPU every call has finished when it returns."""

    kind = "stream"


@cache
def engine() -> Engine:
    return Engine(library().make("engine_create", _CPU, 0))


def new_stream() -> Stream:
    return Stream(library().make("stream_create", engine().pointer, _IN_ORDER))


def _dims(values: Sequence[int]) -> Any:
    return (C.c_int64 * _MAX_DIMS)(*values)


class Desc(_Owned):
    """Shape, layout and element type of a tensor; sizes and strides in elements."""

    kind = "memory_desc"
    item = ITEM[F32]
    """Bytes of an element, where the description was made here."""

    @classmethod
    def strided(cls, shape: Sequence[int], strides: Sequence[int], dtype: str = F32) -> Desc:
        """A tensor where it stands in memory."""
        if len(shape) > _MAX_DIMS:
            raise Refused(f"a tensor of {len(shape)} dimensions; oneDNN has at most {_MAX_DIMS}")
        found = cls(library().make("memory_desc_create_with_strides", len(shape), _dims(shape), TYPES[dtype], _dims(strides)))
        found.item = ITEM[dtype]
        return found

    @classmethod
    def any(cls, shape: Sequence[int], dtype: str = F32) -> Desc:
        """The layout is left to the primitive. Raises Refused for an element type that the library does not have."""
        if dtype not in TYPES:
            raise Refused(f"oneDNN has no numbers of type {dtype}")
        return cls(library().make("memory_desc_create_with_tag", len(shape), _dims(shape), TYPES[dtype], _FORMAT_ANY))

    @property
    def nbytes(self) -> int:
        return int(library().desc_size(self.pointer))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Desc) and bool(library().desc_equal(self.pointer, other.pointer))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Eltwise:
    """y := f(y); `kind` is a name of ELTWISE."""

    kind: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Binary:
    """y := y + operand or y * operand, the operand broadcast where its extent is 1; `kind` is a name of BINARY."""

    kind: str
    operand: Desc


@dataclass(frozen=True, slots=True)
class Sum:
    """y := y + what stood in the destination before."""


PostOp = Eltwise | Binary | Sum


class _PostOps(_Owned):
    kind = "post_ops"


class Attributes(_Owned):
    """Post-ops in order; scratch memory is given by the caller."""

    kind = "primitive_attr"

    @classmethod
    def of(cls, posts: Sequence[PostOp]) -> Attributes:
        lib = library()
        attributes = cls(lib.make("primitive_attr_create"))
        lib.call("primitive_attr_set_scratchpad_mode", attributes.pointer, _SCRATCHPAD_USER)
        ops = _PostOps(lib.make("post_ops_create"))
        for post in posts:
            match post:
                case Eltwise(kind, alpha, beta):
                    lib.call("post_ops_append_eltwise", ops.pointer, ELTWISE[kind], alpha, beta)
                case Binary(kind, operand):
                    lib.call("post_ops_append_binary", ops.pointer, BINARY[kind], operand.pointer)
                case Sum():
                    lib.call("post_ops_append_sum", ops.pointer, 1.0, 0, 0)
        lib.call("primitive_attr_set_post_ops", attributes.pointer, ops.pointer)
        return attributes


def post_argument(n: int) -> int:
    """The argument number of the operand of the n-th post-op."""
    return 32768 * (n + 1) | 2


class PrimitiveDesc(_Owned):
    """An operation, its layouts and the implementation chosen for it."""

    kind = "primitive_desc"

    @property
    def implementation(self) -> str:
        """The library's name of the code it runs, such as `brgconv:avx512_core` or `ref:any`."""
        name = C.c_char_p()
        library().call("primitive_desc_query", self.pointer, _QUERY_IMPLEMENTATION, 0, C.byref(name))
        return (name.value or b"").decode()

    def following(self) -> None:
        """Take the next implementation that the library has for the operation. Raises Refused if there is none."""
        library().call("primitive_desc_next_impl", self.pointer)

    def desc(self, what: int) -> Desc:
        """A layout that the implementation asks for (QUERY_WEIGHTS, QUERY_SCRATCHPAD)."""
        return Desc(library().make("memory_desc_clone", library().query_desc(self.pointer, what, 0)))


def matmul(a: Desc, b: Desc, bias: Desc | None, c: Desc, posts: Sequence[PostOp] = ()) -> PrimitiveDesc:
    """c = a·b (+ bias), all of one rank, batch dimensions first, broadcast where 1."""
    attributes = Attributes.of(posts)
    operands = (a.pointer, b.pointer, bias.pointer if bias else None, c.pointer)
    return PrimitiveDesc(library().make("matmul_primitive_desc_create", engine().pointer, *operands, attributes.pointer))


def convolution(
    x: Desc, w: Desc, bias: Desc | None, y: Desc, strides: Sequence[int], dilations: Sequence[int], pads: tuple[Sequence[int], Sequence[int]],
    posts: Sequence[PostOp] = (), transposed: bool = False,
) -> PrimitiveDesc:  # fmt: skip
    """Logical NC.. by (G)OI.., dilation 1 is dense; `transposed` is the library's deconvolution."""
    name, algorithm = ("deconvolution", _DECONV_DIRECT) if transposed else ("convolution", _CONV_DIRECT)
    operands, attributes = (x.pointer, w.pointer, bias.pointer if bias else None, y.pointer), Attributes.of(posts)
    pointer = library().make(
        name + "_forward_primitive_desc_create", engine().pointer, _INFERENCE, algorithm, *operands,
        _dims(strides), _dims([d - 1 for d in dilations]), _dims(pads[0]), _dims(pads[1]), attributes.pointer,
    )  # fmt: skip
    return PrimitiveDesc(pointer)


def described(name: str, *arguments: Desc | int | float | Sequence[int] | None) -> PrimitiveDesc:
    """A descriptor by the function `dnnl_NAME_primitive_desc_create`: descriptions, numbers and sizes in its order, then attributes without posts."""
    values = [a.pointer if isinstance(a, Desc) else _dims(a) if isinstance(a, Sequence) else a for a in arguments]
    types = [_DIMS if isinstance(a, Sequence) else _I if isinstance(a, int) else C.c_float if isinstance(a, float) else _P for a in arguments]
    create, attributes = library().descriptor(name, tuple(types)), Attributes.of(())
    return PrimitiveDesc(library().make(create, engine().pointer, *values, attributes.pointer))


def reorder(source: Desc, target: Desc) -> PrimitiveDesc:
    """Copy between layouts of one shape."""
    return PrimitiveDesc(library().make("reorder_primitive_desc_create", source.pointer, engine().pointer, target.pointer, engine().pointer, None))


class Primitive(_Owned):
    """Executable code for a primitive descriptor. It keeps the number of threads that was set when it was created."""

    kind = "primitive"

    @classmethod
    def of(cls, desc: PrimitiveDesc) -> Primitive:
        return cls(library().make("primitive_create", desc.pointer))


class _Memory(_Owned):
    kind = "memory"


class Arguments:
    """Addresses bound to the arguments of a primitive; `address` and `count` are what `dnnl_primitive_execute` takes.

    With `more`, of the same length each, the arguments of `calls` executions lie one after the other.
    """

    def __init__(self, bound: Sequence[tuple[int, Desc, int]], *more: Sequence[tuple[int, Desc, int]]) -> None:
        lib = library()
        every = [argument for one in (bound, *more) for argument in one]
        self._memories = [_Memory(lib.make("memory_create", desc.pointer, engine().pointer, address)) for _, desc, address in every]
        self._array = (_ExecArg * len(every))(*(_ExecArg(arg, m.pointer) for (arg, _, _), m in zip(every, self._memories, strict=True)))
        self.address, self.count, self.calls = C.addressof(self._array), len(bound), 1 + len(more)
        assert len(every) == self.count * self.calls

    def move(self, n: int, address: int) -> None:
        """Bind the n-th argument of all to another address."""
        library().call("memory_set_data_handle", self._memories[n].pointer, address)


def execute(primitive: Primitive, stream: Stream, arguments: Arguments) -> None:
    """Run once and wait. Raises BackendError if the library reports a failure."""
    lib = library()
    lib.call("primitive_execute", primitive.pointer, stream.pointer, arguments.count, arguments.address)
    lib.call("stream_wait", stream.pointer)
