"""What a definition sees of the node that it defines, and what it gives: the text of a function body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Union

Value = Union[int, float, str, list[int], list[float], list[str]]


class Undefined(Exception):
    """The node is of a form that the definition does not cover, or that nothing static is known of. It stays as it is."""


@dataclass(frozen=True)
class Call:
    """A node: its attributes, the static shapes of its operands by their formal names, and the formal names of the results that it wants.

    `known` are numbers of operands that are constants of integers.
    """

    attributes: Mapping[str, Value]
    shapes: Mapping[str, tuple[int, ...] | None]
    wanted: frozenset[str]
    known: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def given(self, name: str) -> bool:
        return name in self.shapes

    def shape(self, name: str) -> tuple[int, ...]:
        found = self.shapes.get(name)
        if found is None:
            raise Undefined(f"{name} has no static shape")
        return found

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        assert isinstance(value, int)
        return value

    def real(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        assert isinstance(value, (int, float))
        return float(value)

    def string(self, name: str, default: str = "") -> str:
        value = self.attributes.get(name, default)
        assert isinstance(value, str)
        return value

    def reals(self, name: str) -> list[float]:
        value = self.attributes.get(name, [])
        assert isinstance(value, list)
        return [float(v) for v in value]

    def strings(self, name: str) -> list[str]:
        value = self.attributes.get(name, [])
        assert isinstance(value, list)
        return [str(v) for v in value]

    def integers(self, name: str) -> list[int]:
        value = self.attributes.get(name, [])
        assert isinstance(value, list)
        return [int(v) for v in value]

    def refuse(self, *names: str) -> None:
        """Operands that the definition does not cover."""
        for name in names:
            if self.given(name):
                raise Undefined(f"{name} is given")


@dataclass(frozen=True)
class Definition:
    """An operator: the formal names of its operands and results, and the lines of its body for a node."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Callable[[Call], list[str]]


def definition(inputs: str, outputs: str) -> Callable[[Callable[[Call], list[str]]], Definition]:
    """A function from a node to the lines of a body, as the definition of an operator with these formal names."""
    return lambda body: Definition(tuple(inputs.split()), tuple(outputs.split()), body)


def number(name: str, value: float) -> str:
    """The line that names a number."""
    return f"{name} = Constant <value = float {{{value!r}}}> ()"


def numbers(name: str, *values: int) -> str:
    """The line that names a vector of integers."""
    return f"{name} = Constant <value_ints = [{', '.join(map(str, values))}]> ()"
