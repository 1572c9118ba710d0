"""The kernels that no library has: generated code, and nodes of the model that stay as they are; and any kernel as generated code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from einnet.expr.integers import BYTES, holds
from einnet.expr.nodes import Read, Scope, Tensor, exchange_in, indices, tensors
from einnet.expr.notation.text import parse
from einnet.expr.recursions.recursion import Recursion
from einnet.expr.recursions.recursion_text import parse_recursion, recursion_text
from einnet.expr.remember import hashed_once
from einnet.graph.in_file import ModelFile, model_bytes
from einnet.instantiate.kernels import arithmetics
from einnet.instantiate.kernels.arithmetics import Arithmetic
from einnet.instantiate.kernels.contractions import arithmetic_json, read_arithmetic, told_arithmetic
from einnet.instantiate.kernels.kernel import Kernel, NotLifted, ReadModel, Shown, StoreModel, Value, VendorKernel, loops_of
from einnet.instantiate.kernels.views import Json, View, read_view, view_json

F32 = arithmetics.F32.name
STORED = (F32, *BYTES)
"""Element types that generated kernels write."""


@hashed_once
@dataclass(frozen=True, slots=True)
class EOperator(Kernel):
    """A generated kernel: `out[loops] = scope`. Operand views follow the dimensions of the scope's tensors, out those of its loops.

    Scopes nested in `scope` are computed inside the kernel, not stored in a buffer of the program. The result is stored as elements of `dtype`; of
    integers the expression has to show that it is never another number. Code may round the factors of products to numbers of the `arithmetic`.
    """

    scope: Scope
    operands: tuple[tuple[str, View], ...]
    out: View
    dtype: str = F32
    arithmetic: Arithmetic = arithmetics.F32
    kind: ClassVar[str] = "eoperator"

    @property
    def operand_views(self) -> tuple[View, ...]:
        return tuple(v for _, v in self.operands)

    @property
    def result_views(self) -> tuple[View, ...]:
        return (self.out,)

    @property
    def factors(self) -> Arithmetic:
        return self.arithmetic

    def in_arithmetic(self, arithmetic: Arithmetic) -> Self:
        """The same with factors that may be rounded to numbers of another arithmetic."""
        return replace(self, arithmetic=arithmetic)

    @property
    def elements(self) -> tuple[tuple[View, str], ...]:
        declared = tensors(self.scope)
        return (*((v, declared[n].dtype) for n, v in self.operands if n in declared), (self.out, self.dtype))

    def map_views(self, change: Callable[[View], View]) -> Self:
        return replace(self, operands=tuple((n, change(v)) for n, v in self.operands), out=change(self.out))

    def meaning(self, shown: Shown) -> Scope:
        """The scope over what its operands' views show; tensors that carry their values stay."""
        declared = tensors(self.scope)
        views = dict(self.operands)
        if declared.keys() - views.keys() or self.scope.shape != self.out.shape:
            raise NotLifted("a generated kernel without a view for each tensor, or with a result of another shape")
        if self.dtype != F32 and not holds(self.dtype, self.scope):
            raise NotLifted(f"a generated kernel that stores as {self.dtype} what may be another number")
        given: dict[str, Value] = {}
        for name, tensor in declared.items():
            if tensor.shape != views[name].shape:
                raise NotLifted(f"tensor {name}{list(tensor.shape)} is given {views[name]}")
            if tensor.values is None:
                given[name] = shown(views[name])
        return from_zero(exchange_in(self.scope, given))

    def json(self, store: StoreModel) -> dict[str, Json]:
        kind: dict[str, Json] = ({} if self.dtype == F32 else {"dtype": self.dtype}) | arithmetic_json(self.arithmetic)
        return {"scope": _text(self.scope), "operands": [[n, view_json(v)] for n, v in self.operands], "out": view_json(self.out), **kind}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        if not isinstance(value["scope"], str):
            raise ValueError(f"expected an expression, found {value['scope']!r}")
        dtype = value.get("dtype", F32)
        if dtype not in STORED:
            raise ValueError(f"a generated kernel that stores elements of type {dtype!r}")
        operands = tuple((str(n), read_view(v)) for n, v in value["operands"])
        return cls(parse(value["scope"]), operands, read_view(value["out"]), dtype, read_arithmetic(value))

    def storing(self, dtype: str) -> EOperator:
        return replace(self, dtype=dtype) if dtype in STORED else self

    def describe(self) -> str:
        return f"eOperator{told_arithmetic(self.arithmetic)} {self.scope.text()}"


@lru_cache(maxsize=4096)
def _text(scope: Scope) -> str:
    return str(scope)


def from_zero(scope: Scope) -> Scope:
    """The scope over loops that start at 0."""
    if all(i.lo == 0 for i in scope.loops):
        return scope
    loops = loops_of(scope.shape)
    return Scope(loops, (), Read(scope, tuple(i + lo for i, (lo, _) in zip(indices(loops), scope.box))))


@dataclass(frozen=True, slots=True)
class OpaqueCall(Kernel):
    """A serialised ONNX model run by ONNX Runtime; views are dense and row-major, in the order of the model's inputs and outputs.

    A `recursion` over tensors in these orders computes the same: who can generate code for it runs that.
    """

    model: bytes | ModelFile
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    origin: str
    recursion: Recursion | None = None
    kind: ClassVar[str] = "opaque"

    @property
    def operand_views(self) -> tuple[View, ...]:
        return self.inputs

    @property
    def result_views(self) -> tuple[View, ...]:
        return self.outputs

    @property
    def elements(self) -> tuple[tuple[View, str], ...]:
        return ()

    def map_views(self, change: Callable[[View], View]) -> Self:
        return replace(self, inputs=tuple(map(change, self.inputs)), outputs=tuple(map(change, self.outputs)))

    def meaning(self, shown: Shown) -> Scope:
        raise NotLifted("a node that ONNX Runtime runs has no expression")

    def json(self, store: StoreModel) -> dict[str, Json]:
        views = {"inputs": [view_json(v) for v in self.inputs], "outputs": [view_json(v) for v in self.outputs]}
        along = {} if self.recursion is None else {"recursion": recursion_text(self.recursion)}
        return {"model": store(model_bytes(self.model)), "origin": self.origin, **views, **along}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        inputs, outputs = (tuple(read_view(v) for v in value[key]) for key in ("inputs", "outputs"))
        recursion = parse_recursion(value["recursion"]) if "recursion" in value else None
        if recursion is not None and [t.shape for t in (*recursion.inputs, *recursion.results)] != [v.shape for v in (*inputs, *outputs)]:
            raise ValueError("a recursion over tensors of other shapes than those of the node")
        return cls(model(value["model"]), inputs, outputs, str(value["origin"]), recursion)

    def describe(self) -> str:
        if self.recursion is not None:
            return f"{self.recursion.count} times {len(self.recursion.steps)} equations: {self.origin}"
        return f"ONNX Runtime: {self.origin}"


def expressed(kernel: VendorKernel) -> EOperator:
    """A vendor kernel without posts as a generated one: what a backend runs whose library does not have the operator."""
    named: dict[View, Tensor] = {}

    def shown(view: View) -> Tensor:
        return named.setdefault(view, Tensor(f"x{len(named)}", view.shape))

    assert not kernel.posts
    scope = kernel.meaning(Shown(shown))
    return EOperator(scope, tuple((t.name, view) for view, t in named.items()), kernel.result)
