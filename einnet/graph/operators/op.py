"""What an operator's function sees of its node, and what it gives back. No ONNX type occurs here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import Union

import numpy as np

from einnet.expr.index import Index
from einnet.expr.nodes import INF, Body, Const, Number, Read, Scope, Tensor, is_weight

EXACT_INTEGERS = 1 << 24
"""Below, float32 has every integer."""

ENDS = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767)}
"""The least and the greatest number of types of which float32 has all."""

Attribute = Union[int, float, str, tuple[int, ...], tuple[float, ...], np.ndarray]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The node has no expression in the language; the reason is for the user. It becomes an opaque node."""

    why: str


class Inexpressible(Exception):
    """Raised by helpers below an operator's function, where returning `Unsupported` through every caller would hide the mathematics."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the node reads, with its value where that is known at compile time."""

    tensor: Tensor
    value: np.ndarray | None = None
    element: str = "f32"
    """The element type of the ONNX value; truth values that an expression gives are float32 tensors of 0 and 1."""

    @property
    def small(self) -> bool:
        """Numbers that float32 has, as it has all integers up to them: truth values, small constants, and what an expression makes of such."""
        if self.value is None:
            return self.element == "bool" or self.element in ENDS or (self.tensor.dtype == "f32" and self.element != "f32")
        return bool((np.abs(self.value.astype(np.float64)) < EXACT_INTEGERS).all())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def scalar(self) -> Const | None:
        """The operand as a number: a constant of one finite element."""
        if self.value is None or self.value.size != 1 or not isfinite(float(self.value.reshape(-1)[0])):
            return None
        if self.element != "f32" and not self.small:
            return None
        return Const(number(float(self.value.reshape(-1)[0])))


@dataclass(eq=False)
class Op:
    """One node on its way to expressions.

    `inputs` and `outputs` hold None where an optional one is absent or unused; `shapes` are those of all outputs. Functions append
    intermediate tensors through `step` and new compile-time arrays through `weight`, and return the scope of each output.
    """

    op_type: str
    version: int
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Attribute]
    fresh: Callable[[str], str]
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    element: str = "f32"
    """The element type of the first output."""
    chain: list[tuple[Tensor, Scope]] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    # attributes

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        assert isinstance(value, int)
        return value

    def real(self, name: str, default: float) -> Fraction:
        """A float attribute as the shortest decimal that rounds to the same float32."""
        value = self.attributes.get(name, default)
        assert isinstance(value, (int, float))
        if not isfinite(value):
            raise Inexpressible(f"attribute {name} is {value}")
        return Fraction(number(float(value)))

    def string(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        assert isinstance(value, str)
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self.attributes.get(name)
        if value is None:
            return None
        assert isinstance(value, tuple)
        return tuple(int(v) for v in value)

    # operands

    def given(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> Operand:
        operand = self.inputs[position] if position < len(self.inputs) else None
        if operand is None:
            raise Inexpressible(f"input {position} is missing")
        return operand

    def constant(self, position: int) -> np.ndarray:
        """The value of an input that must be known; raises Inexpressible where it is computed at run time."""
        value = self.input(position).value
        if value is None:
            raise Inexpressible(f"input {position} ({self.input(position).tensor.name}) is not constant")
        return value

    def integers_of(self, position: int, name: str) -> tuple[int, ...] | None:
        """Integers that are an attribute in old versions of an operator and an input in new ones; None if neither is given."""
        if self.given(position):
            return tuple(int(v) for v in self.constant(position).reshape(-1))
        return self.integers(name)

    def read(self, position: int, index: Sequence[Index]) -> Body:
        """The operand at an index: a number if it is a constant of one element, else a read."""
        operand = self.input(position)
        if operand.scalar is not None:
            return operand.scalar
        if operand.value is not None and operand.value.size == 1 and np.isinf(operand.value).all():
            return Const(number(float(operand.value.reshape(-1)[0])))
        if operand.value is not None and operand.tensor.dtype != "f32":
            if not operand.small:
                raise Inexpressible(f"input {position} has integers that float32 has not")
            return Read(self.weight(operand.value, f"input{position}"), tuple(index))
        return Read(operand.tensor, tuple(index))

    @property
    def out(self) -> Tensor:
        """The first output."""
        tensor = self.outputs[0]
        assert tensor is not None
        return tensor

    def wants(self, position: int) -> bool:
        """An optional output is used."""
        return position < len(self.outputs) and self.outputs[position] is not None

    # results

    def step(self, scope: Scope, hint: str) -> Tensor:
        """Compute an intermediate tensor. Its loops start at 0. It is known at compile time if all that it reads is."""
        tensor = Tensor(self.fresh(f"{self.out.name}_{hint}"), scope.shape, "f32", is_weight(scope))
        self.chain.append((tensor, scope))
        return tensor

    def weight(self, value: np.ndarray, hint: str) -> Tensor:
        """A new array that is known at compile time."""
        array = np.ascontiguousarray(value, dtype=np.float32)
        tensor = Tensor(self.fresh(f"{self.out.name}_{hint}"), array.shape, "f32", True)
        self.weights[tensor.name] = array
        return tensor


Result = Union[Scope, tuple[Scope | None, ...], Unsupported]
Function = Callable[[Op], Result]


def number(value: float) -> Number:
    """A float32 as the shortest decimal that rounds back to it; infinities as they are."""
    if not isfinite(value):
        return INF if value > 0 else -INF
    return Fraction(str(np.float32(value)))
