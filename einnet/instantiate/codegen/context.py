"""What a kernel's text is written into: statements, variables, local arrays, values that exist already, and index functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import Buffer, Stmt
from tvm.tirx import Expr as Tir

from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen import mathfunctions, vectors
from einnet.instantiate.codegen.schedule import LANES
from einnet.instantiate.kernels.views import LINE

Value = Union[float, Tir]
"""A number known now, or a scalar or vector of float32."""

REGISTER_FILE = 32 * LANES
"""Elements that the registers of a processor hold, at most."""

STACK = 1 << 14
"""Elements up to which a local array lies on the stack."""

SLOT = 16
"""Elements of a slot, room for the widest vector."""


@dataclass
class Slots:
    """The values of one type that a function body holds in registers."""

    pointer: Tir
    buffer: Buffer
    size: int = 0


class Context:
    """What is being written: statements, variables, arrays, and the values that exist already."""

    def __init__(self, arrays: Mapping[str, Buffer], tables: Mapping[str, Mapping[int, float]], index_type: str) -> None:
        self.arrays = dict(arrays)
        self.tables = tables
        self.index_type = index_type
        self.halves: Mapping[str, str] = {}
        """The element types of the arrays of 16 bits that hold floats."""
        self.widest = LANES
        """So many lanes are loaded and stored under one mask."""
        self.variables: dict[str, Tir] = {}
        self.lane: Iter | None = None
        self.statements: list[Stmt] = []
        self.memo: list[dict[Hashable, Value]] = [{}]
        self.owned: list[list[Tir]] = [[]]
        self.slots: dict[str, Slots] = {}
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Statements of an inner block; values computed in it are forgotten after it."""
        outer, self.statements = self.statements, []
        self.memo.append({})
        self.owned.append([])
        try:
            yield self.statements
            self.release()
        finally:
            self.statements = outer
            self.memo.pop()
            self.owned.pop()

    @contextmanager
    def lanes(self, lane: Iter | None) -> Iterator[None]:
        """Another lane iterator for a while."""
        outer, self.lane = self.lane, lane
        try:
            yield
        finally:
            self.lane = outer

    @contextmanager
    def frame(self) -> Iterator[None]:
        """A function body: the slots that it uses are allocated at its start."""
        outer, self.slots = self.slots, {}
        start = len(self.statements)
        try:
            yield
            head: list[Stmt] = []
            for kind, slots in self.slots.items():
                pointer = PointerType(PrimType(kind))
                head.append(tirx.Bind(slots.pointer, tirx.call_intrin(pointer, "tirx.tvm_stack_alloca", "shape", slots.size // 2)))
                head.append(tirx.DeclBuffer(slots.buffer, data=slots.pointer))
            self.statements[start:start] = head
        finally:
            self.slots = outer

    def bind(self, value: Tir) -> Tir:
        """A value that is computed once and may be used often: stored in a slot, which LLVM turns into a register.

        A `Bind` would be shorter, but TVM's code generator substitutes bound values into each other to reason about them, at exponential length.
        """
        if isinstance(value, (tirx.Var, tirx.FloatImm)):
            return value
        dtype = value.ty.dtype
        kind = "float32" if dtype.is_float else "int32"
        if kind not in self.slots:
            pointer = tirx.Var(self.fresh("slots") + "_data", PointerType(PrimType(kind)))
            buffer = tirx.decl_buffer((1 << 20,), kind, self.fresh("slots"), data=pointer, data_alignment=4)
            self.slots[kind] = Slots(pointer, buffer)
        slots = self.slots[kind]
        if getattr(value, "buffer", None) is not None and value.buffer.same_as(slots.buffer):
            return value
        at = tirx.const(slots.size, "int32")
        place = [tirx.Ramp(at, 1, dtype.lanes) if dtype.lanes > 1 else at]
        slots.size += SLOT
        self.statements.append(tirx.BufferStore(slots.buffer, value, place))
        return tirx.BufferLoad(slots.buffer, place)

    def hold(self, loaded: Tir) -> Tir:
        """A variable for a value from memory."""
        v = tirx.Var(self.fresh("v"), loaded.ty)
        self.statements.append(tirx.Bind(v, loaded))
        return v

    def single(self, array: str, loaded: Tir) -> Tir:
        """What was loaded from an array of another type as float32."""
        width = mathfunctions.lanes(loaded)
        if array in self.halves:
            return mathfunctions.widened(loaded, self.halves[array])
        return loaded.astype(f"float32x{width}" if width > 1 else "float32")

    def offset(self, value: Tir) -> Tir:
        """A variable with the value of an index; TVM may reason about it."""
        v = tirx.Var(self.fresh("i"), value.ty)
        self.statements.append(tirx.Bind(v, value))
        return v

    def local(self, size: int, stem: str, looped: bool = False) -> Buffer:
        """A local array, allocated here: on the stack, or if large on the heap.

        Where all its indices are constant, the compiler may keep it in registers. One that loops index, as those that are `looped` or have more
        elements than registers, begins with a cache line, so that no vector of it lies in two.
        """
        aligned = looped or size > REGISTER_FILE
        name = self.fresh(stem)
        kind = PointerType(PrimType("float32"))
        pointer = tirx.Var(name + "_data", kind)
        room = size + LINE - 1 if aligned else size
        own = tirx.Var(name + "_room", kind) if aligned else pointer
        if size <= STACK:
            place = tirx.call_intrin(kind, "tirx.tvm_stack_alloca", "shape", -(-room // 2))
        else:
            place = tirx.call_extern(kind, "malloc", tirx.const(4 * room, "int64"))
            self.owned[-1].append(own)
        self.statements.append(tirx.Bind(own, place))
        if aligned:
            behind = tirx.call_intrin(kind, "tirx.handle_add_byte_offset", own, tirx.const(4 * (LINE - 1), "int32"))
            line = tirx.call_llvm_pure_intrin(kind, "llvm.ptrmask", behind, tirx.const(-4 * LINE, "int64"))
            self.statements.append(tirx.Bind(pointer, line))
        buffer = tirx.decl_buffer((size,), "float32", name, data=pointer, data_alignment=4)
        self.statements.append(tirx.DeclBuffer(buffer, data=pointer))
        return buffer

    def release(self) -> None:
        """Free the heap arrays of this block."""
        self.statements += [tirx.Evaluate(tirx.call_extern("int32", "free", p)) for p in self.owned[-1]]

    def remembered(self, e: Hashable) -> Value | None:
        for layer in reversed(self.memo):
            if e in layer:
                return layer[e]
        return None

    # ------------------------------------------------------------------------------------------------------- index functions

    def constant(self, value: int) -> Tir:
        return tirx.const(value, self.index_type)

    def scalar(self, e: Index, lane: Tir | None = None) -> Tir:
        """An index function (den 1) as an expression; `lane` stands for the lane iterator."""
        result: Tir | None = None
        width = mathfunctions.lanes(lane) if lane is not None else 1
        for atom, c in e.terms:
            if isinstance(atom, Floor):
                inner = self.scalar(atom.num, lane)
                term = tirx.floordiv(inner, vectors.broadcast(self.constant(atom.den), mathfunctions.lanes(inner)))
            elif self.lane is not None and atom == self.lane.name:
                assert lane is not None
                term = lane
            else:
                term = self.variables[atom]
            if c != 1:
                term = term * vectors.broadcast(self.constant(c), mathfunctions.lanes(term))
            if result is not None:
                both = max(mathfunctions.lanes(result), mathfunctions.lanes(term))
                result, term = vectors.broadcast(result, both), vectors.broadcast(term, both)
            result = term if result is None else result + term
        if result is None:
            return self.constant(e.const)
        return result + vectors.broadcast(self.constant(e.const), min(width, mathfunctions.lanes(result))) if e.const else result

    def without_lane(self, e: Index) -> Index:
        """The terms that are not the lane iterator's own."""
        return Index(tuple(t for t in e.terms if self.lane is None or t[0] != self.lane.name), e.const, e.den)

    def contiguous(self, e: Index) -> bool:
        """Neighbouring lanes are neighbours in memory."""
        return self.lane is not None and e.coefficient(self.lane.name) == 1 and self.lane.name not in self.without_lane(e).names()

    def in_lanes(self, e: Index) -> Tir:
        """An index function as a vector where it depends on the lane, else as a scalar."""
        if self.lane is None or self.lane.name not in e.names():
            return self.scalar(e)
        c = e.coefficient(self.lane.name)
        rest = Index(tuple(t for t in e.terms if t[0] != self.lane.name), e.const)
        if self.lane.name in rest.names():
            return self.scalar(e, tirx.Ramp(self.constant(0), self.constant(1), self.lane.extent))
        return tirx.Ramp(self.scalar(rest), self.constant(c), self.lane.extent)

    def condition(self, c: Cond, lanes: Tir | None = None) -> Tir:
        """A condition; `lanes` are other values of the lane iterator than 0, 1, 2..."""
        value = self.in_lanes(c.index) if lanes is None else self.scalar(c.index, lanes)
        zero = vectors.broadcast(self.constant(0), mathfunctions.lanes(value))
        return tirx.EQ(value, zero) if c.equal else value >= zero
