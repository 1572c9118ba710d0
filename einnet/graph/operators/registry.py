"""Which operator types have expressions, and the one way from a node to its scopes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod

import numpy as np

from einnet.expr.nodes import Scope, Tensor, reads, tensors, used_names
from einnet.graph.dtypes import HALVES
from einnet.graph.operators.activation import ACTIVATIONS
from einnet.graph.operators.choice import CHOICE
from einnet.graph.operators.contraction import einsum, gemm, matmul
from einnet.graph.operators.convolution import conv, conv_transpose
from einnet.graph.operators.elementwise import ELEMENTWISE
from einnet.graph.operators.fourier import FOURIER
from einnet.graph.operators.gathering import GATHERING
from einnet.graph.operators.interpolation import RESIZE
from einnet.graph.operators.movement import MOVEMENT
from einnet.graph.operators.normalization import NORMALIZATION
from einnet.graph.operators.op import Function, Inexpressible, Op, Operand, Unsupported
from einnet.graph.operators.pooling import POOLING
from einnet.graph.operators.quantised import QUANTISED
from einnet.graph.operators.reduction import PLACES, REDUCTIONS
from einnet.graph.operators.slicing import SLICING
from einnet.graph.operators.truth import TRUTH
from einnet.graph.rewrite import is_copy

OPERATORS: dict[str, Function] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
    **ELEMENTWISE,
    **ACTIVATIONS,
    **REDUCTIONS,
    **PLACES,
    **POOLING,
    **NORMALIZATION,
    **MOVEMENT,
    **SLICING,
    **RESIZE,
    **GATHERING,
    **CHOICE,
    **TRUTH,
    **FOURIER,
    **QUANTISED,
}
"""Operators of the ONNX standard domain by type."""


MOVING = frozenset({*MOVEMENT, *SLICING, *GATHERING, "MaxPool", "Where", "Identity"})
"""Operators that only move elements, or choose among them, of whatever type."""

ONE_SOURCE = frozenset({*MOVEMENT, *SLICING} - {"Concat", "Pad"})
"""Operators of whose operands the first alone has the elements."""

EXTREMES = ("ReduceMax", "ReduceMin")
"""Operators that give one of the elements that they read: of truth values whether one of them is true, and whether all are."""

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")

ELEMENTS = ("f32", "bool", *HALVES, *INTEGERS)
"""Types of which expressions are."""

MOST_ELEMENTS = 1 << 36
"""Of a tensor: more fits into no memory."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A node as expressions: intermediate tensors and outputs in order, and arrays that are new."""

    chain: tuple[tuple[Tensor, Scope], ...]
    weights: dict[str, np.ndarray]


def reads_type(op_type: str, operand: Operand) -> bool:
    """The operator's expression takes elements of the operand's type. Integers are read where float32 is enough for what is asked of them."""
    if operand.element in ("f32", "bool"):
        return operand.element == "f32" or op_type in TRUTH or op_type in MOVING or op_type in EXTREMES
    return operand.element in INTEGERS and (op_type in TRUTH or op_type in MOVING or op_type in QUANTISED)


def moves_small(op: Op) -> bool:
    """All that the result's elements can be is small; the second operand of a gathering operator says where they stand.

    An operator on quantised tensors gives integers of few bits, or refuses sums that may be larger; one that gives places refuses too many of them.
    """
    if op.op_type in QUANTISED or op.op_type in PLACES:
        return True
    places = (1,) if op.op_type in GATHERING else (0,) if op.op_type == "Where" else range(1, len(op.inputs)) if op.op_type in ONE_SOURCE else ()
    return all(operand.small for n, operand in enumerate(op.inputs) if operand is not None and n not in places)


def lower(op: Op) -> Lowered | Unsupported:
    """The expressions of a node, or why there are none. Numbers of float32 have expressions, truth values in such, and floats of shorter types.

    An expression gives numbers that are rounded to the shorter type where they leave the program.
    """
    function = OPERATORS.get(op.op_type)
    if function is None:
        return Unsupported(f"{op.op_type} has no expression")
    foreign = _foreign(op)
    if foreign is not None:
        return foreign
    try:
        result = function(op)
    except Inexpressible as reason:
        return Unsupported(str(reason))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a node beyond the standard, of which nothing else is known
        return Unsupported(f"it is no valid {op.op_type}: {error}")
    if isinstance(result, Unsupported):
        return result
    for tensor, scope in zip_longest(op.outputs, result if isinstance(result, tuple) else (result,)):
        if tensor is not None:
            given = _result(op, tensor, scope)
            if isinstance(given, Unsupported):
                return given
            op.chain.append(given)
    return _invalid(op) or Lowered(tuple(op.chain), dict(op.weights))


def _foreign(op: Op) -> Unsupported | None:
    """The first operand or result of a type or size of which there is no expression."""
    for operand in op.inputs:
        if operand is not None and operand.value is None and not reads_type(op.op_type, operand):
            return Unsupported(f"it reads a tensor of type {operand.element}")
    for tensor in op.outputs:
        if tensor is not None and (op.element not in ELEMENTS or min(tensor.shape, default=1) < 1 or prod(tensor.shape) > MOST_ELEMENTS):
            return Unsupported(f"its result is {op.element}{list(tensor.shape)}")
    return None


def _result(op: Op, tensor: Tensor, scope: Scope | None) -> tuple[Tensor, Scope] | Unsupported:
    """An output and its expression. A copy of integers has integers; what else gives them has to be small enough for float32."""
    if scope is None:
        return Unsupported("an optional result is used")
    if scope.shape != tensor.shape:
        return Unsupported(f"its result has shape {list(scope.shape)}, not {list(tensor.shape)}")
    if op.element in INTEGERS:
        copied = is_copy(scope)
        if copied is not None and copied.dtype == op.element:
            return replace(tensor, dtype=op.element), scope
        if not moves_small(op):
            return Unsupported(f"its result is {op.element}{list(tensor.shape)}")
    return tensor, scope


def _invalid(op: Op) -> Unsupported | None:
    """What an expression of the node says that no tensor can give."""
    for _, scope in op.chain:
        if not well_formed(scope):
            return Unsupported(f"it is no valid {op.op_type}: the ranks of its operands do not fit")
        for read in tensors(scope).values():
            if read.dtype not in ELEMENTS:
                return Unsupported(f"it reads a tensor of type {read.dtype}")
    return None


def well_formed(scope: Scope) -> bool:
    """Every read has as many index functions as its tensor has dimensions, of iterators of the scope."""
    known = {i.name for i in (*scope.loops, *scope.sums)}
    return used_names(scope.body) <= known and all(
        len(read.index) == len(read.base.shape) and (isinstance(read.base, Tensor) or well_formed(read.base)) for read in reads(scope.body)
    )
