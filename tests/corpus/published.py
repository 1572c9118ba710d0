"""The rules of TASO and Tensat as their projects publish them, read into one form: trees of operators.

TASO publishes a Protocol Buffers file of pairs of graphs (`graph_subst.pb`), Tensat one line of equations `left==right` (`taso_rules.txt`).
A tree is the name of an input, an integer parameter, or an operator with its arguments, parameters first:

    ("conv2d", stride, stride, padding, activation, x, weights)    padding 0 is "same", 1 is "valid"; activations 0 to 3 see ACTIVATIONS
    ("matmul", activation, x, y)    ("concat", axis, x, y)    ("split_0", axis, x)    ("split_1", axis, x)    ("transpose", x)
    ("ewadd", x, y)    ("ewmul", x, y)    ("smul", x, scalar)    ("relu", x)    ("sigmoid", x)    ("tanh", x)
    ("poolavg", kernel, kernel, stride, stride, padding, x)    ("poolmax", ...)    ("enlarge", kernel, kernel, weights)

Constant kernels are leaves: `Cpool_3_3_n` has all elements one over their number, `Iconv_3_3_n` a single 1 at the centre, `Imatmul_n` is
the identity matrix, `Iewmul_n` all ones; n tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, starmap
from pathlib import Path
from typing import Union

Tree = Union[str, int, tuple["Tree", ...]]
Rule = tuple[str, Tree, Tree]
"""A name such as `9.1` (rule 9, output 1), and the two sides."""

ACTIVATIONS = {0: "", 1: "sigmoid", 2: "relu", 3: "tanh"}

_STRIDE, _PADDING, _ACTIVATION, _AXIS, _KERNEL = (6, 7), 8, 9, 11, (4, 5)
"""Keys of the parameters in TASO's file."""

_NAMES = {
    3: "conv2d", 6: "poolmax", 7: "poolavg", 8: "relu", 9: "sigmoid", 10: "tanh", 12: "concat", 13: "split", 15: "transpose", 16: "ewadd",
    17: "ewmul", 18: "matmul", 19: "smul", 20: "enlarge", 23: "Iconv", 25: "Cpool",
}  # fmt: skip
_PARAMETERS = {
    "conv2d": (*_STRIDE, _PADDING, _ACTIVATION), "poolmax": (*_KERNEL, *_STRIDE, _PADDING), "poolavg": (*_KERNEL, *_STRIDE, _PADDING),
    "concat": (_AXIS,), "split": (_AXIS,), "matmul": (_ACTIVATION,), "enlarge": _KERNEL, "Iconv": _KERNEL, "Cpool": _KERNEL,
}  # fmt: skip


def read_taso(path: Path) -> list[Rule]:
    """TASO's file: one rule for each output of a pair of graphs."""
    rules: list[Rule] = []
    for number, (_, pair) in enumerate(_fields(path.read_bytes())):
        assert isinstance(pair, bytes)
        graphs: tuple[list[bytes], list[bytes]] = ([], [])
        outputs: list[dict[int, int]] = []
        for field, value in _fields(pair):
            assert isinstance(value, bytes)
            if field == 3:
                outputs.append(_integers(value))
            else:
                graphs[field - 1].append(value)
        for n, out in enumerate(outputs):
            name = f"{number}.{n}" if len(outputs) > 1 else str(number)
            rules.append((name, *_named(_node(graphs[0], out[1], out[3]), _node(graphs[1], out[2], out[4]))))
    return rules


def _named(left: Tree, right: Tree) -> tuple[Tree, Tree]:
    """With leaves for constant kernels."""
    numbers = count()

    def named(tree: Tree) -> Tree:
        if tree in ("Imatmul", "Iewmul"):
            return f"{tree}_{next(numbers)}"
        if not isinstance(tree, tuple):
            return tree
        if tree[0] in ("Cpool", "Iconv"):
            return "_".join(map(str, (*tree, next(numbers))))
        return (tree[0], *map(named, tree[1:]))

    return named(left), named(right)


def _node(graph: list[bytes], operator: int, output: int) -> Tree:
    if operator < 0:
        return f"input_{-operator}"
    kind, operands, parameters = 0, [], {}
    for field, value in _fields(graph[operator]):
        if field == 1:
            assert isinstance(value, int)
            kind = value
            continue
        assert isinstance(value, bytes)
        pair = _integers(value)
        if field == 2:
            operands.append(_node(graph, pair[1], pair[2]))
        else:
            parameters[pair[1]] = pair[2]
    name = _NAMES[kind]
    values = tuple(parameters[key] for key in _PARAMETERS.get(name, ()))
    return (f"split_{output}" if name == "split" else name, *values, *operands)


def _integers(message: bytes) -> dict[int, int]:
    return {field: value for field, value in _fields(message) if isinstance(value, int)}


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of Protocol Buffers: numbers, and the bytes of what has a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            raise ValueError(f"field {key >> 3} is neither a number nor has it a length")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value - (1 << 64) if value >> 63 else value, at


def read_tensat(path: Path) -> list[Rule]:
    """Tensat's equations, each distinct one once; a name is the place of its first occurrence."""
    reader = _Reader(re.findall(r"\w+|==|[(),]", path.read_text(encoding="utf-8")))
    rules: list[Rule] = []
    seen: set[tuple[Tree, Tree]] = set()
    for number, (left, right) in enumerate(starmap(_named, reader.equations())):
        if (left, right) not in seen:
            seen.add((left, right))
            rules.append((str(number), left, right))
    return rules


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def equations(self) -> Iterator[tuple[Tree, Tree]]:
        while self.at < len(self.tokens):
            left = self.tree()
            self.take("==")
            yield left, self.tree()

    def take(self, text: str) -> None:
        if self.tokens[self.at] != text:
            raise ValueError(f"token {self.at}: expected {text!r}, found {self.tokens[self.at]!r}")
        self.at += 1

    def tree(self) -> Tree:
        name = self.tokens[self.at]
        self.at += 1
        if self.at == len(self.tokens) or self.tokens[self.at] != "(":
            return int(name) if name.isdigit() else name
        arguments: list[Tree] = []
        while self.tokens[self.at] in ("(", ","):
            self.at += 1
            arguments.append(self.tree())
        self.take(")")
        # Matrix products have no activation in this file; the word stands for one everywhere else.
        return (name, 0, *arguments) if name == "matmul" else (name, *arguments)


def inputs(tree: Tree) -> list[str]:
    """The names of the inputs, from left to right, each once."""
    if isinstance(tree, str):
        return [tree]
    if isinstance(tree, int):
        return []
    found: list[str] = []
    for argument in tree[1:]:
        found += [name for name in inputs(argument) if name not in found]
    return found


def operators(tree: Tree) -> set[str]:
    """The names of the operators."""
    if not isinstance(tree, tuple):
        return set()
    return {str(tree[0])}.union(*map(operators, tree[1:]))


def renamed(tree: Tree, names: dict[str, str]) -> Tree:
    """With other names of inputs."""
    if isinstance(tree, str):
        return names.get(tree, tree)
    return tree if isinstance(tree, int) else (tree[0], *(renamed(t, names) for t in tree[1:]))
