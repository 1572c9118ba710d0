"""Functions of a byte as tables: the same numbers, one table for a chain, and none where another number is read or little is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
import pytest

from benchmarks.contest.machine import random_inputs
from benchmarks.models import build as benchmark
from benchmarks.precision.quantised import in_bytes
from einnet.expr.integers import holds, integers
from einnet.expr.notation.text import parse
from einnet.expr.selection import selection
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.integers.as_bytes import as_bytes
from einnet.graph.passes.integers.byte_tables import byte_tables
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from tests.graph.cases import build, node, values
from tests.graph.quantised_networks import quantised

RNG = np.random.default_rng(5)
CONSTANTS = {"s": np.array(0.05, np.float32), "z": np.array(131, np.uint8), "c": np.array(0.3, np.float32), "k": values((16,), 3)}
Build = Callable[[], Sequence[onnx.NodeProto]]


def stage(name: str, inputs: Sequence[str], output: str) -> list[onnx.NodeProto]:
    """A node and its result rounded to bytes."""
    return [node(name, list(inputs), [f"{output}_n"]), *quantised(f"{output}_n", output, "s", "z")]


START = quantised("x", "q", "s", "z")
CHAIN = [*START, *stage("Erf", ["q"], "e"), *stage("Add", ["e", "c"], "a"), *stage("Mul", ["a", "q"], "y")]

CASES: dict[str, tuple[list[onnx.NodeProto], int]] = {
    "a chain of two branches is one table": (CHAIN, 1),
    "a costly function": ([*START, *stage("Exp", ["q"], "y")], 1),
    "two cheap ones": ([*START, *stage("Add", ["q", "c"], "a"), *stage("Mul", ["a", "q"], "y")], 1),
    "a cheap function is computed": ([*START, *stage("Mul", ["q", "c"], "y")], 0),
    "another number for each column": ([*START, *stage("Add", ["q", "k"], "a"), *stage("Exp", ["a"], "y")], 1),
    "two tensors": ([*START, *quantised("x2", "p", "s", "z"), *stage("Mul", ["q", "p"], "a"), *stage("Add", ["a", "q"], "y")], 0),
    "another place": ([*START, node("Transpose", ["q"], ["t"], perm=[1, 0]), *stage("Add", ["q", "t"], "a"), *stage("Add", ["a", "c"], "y")], 0),
}


def programs(nodes: Sequence[onnx.NodeProto]) -> tuple[Program, Program, Mapping[str, np.ndarray]]:
    """A program of bytes without tables and with them, and inputs far beyond what bytes have."""
    used = {name for n in nodes for name in n.input}
    inputs = {name: (RNG.standard_normal((16, 16)) * 5).astype(np.float32) for name in ("x", "x2") if name in used}
    model = build(nodes, inputs, outputs=("y",), constants={n: v for n, v in CONSTANTS.items() if n in used}, opset=21)
    plain = as_bytes(prepare(load(model)))
    return plain, byte_tables(plain), inputs


def tables(program: Program) -> int:
    return sum(selection(n.scope) is not None for n in program.expression_nodes())


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_same(case: str) -> None:
    nodes, count = CASES[case]
    plain, found, inputs = programs(nodes)
    assert (tables(plain), tables(found)) == (0, count)
    (wanted,), (got,) = (interpret(p, inputs).values() for p in (plain, found))
    assert len(np.unique(wanted)) > 10
    assert np.array_equal(got, wanted)
    if not count:
        assert found is plain


def test_what_nobody_else_reads_is_gone() -> None:
    """The bytes of the input, the table, and the numbers that the output's bytes stand for."""
    _, found, _ = programs(CHAIN)
    assert [n.output.dtype for n in found.expression_nodes()] == ["u8", "u8", "f32"]
    (weight,) = (v for name, v in found.weights.items() if "table" in name)
    assert weight.dtype == np.uint8 and weight.shape == (256,)


def test_what_is_looked_up_is_an_integer_of_its_table() -> None:
    text = "X : u8[9]\nT : weight u8[256]\nL[i<9] Σ[v<256] choose(equal(X[i], val(v)), T[v], 0)"
    assert holds("u8", parse(text)) and integers(parse(text)) == (0, 255)
    assert integers(parse(text.replace("T[v], 0", "T[v]+3, 0"))) == (0, 258)
    assert integers(parse(text.replace("weight u8", "weight f32"))) is None
    assert not holds("u8", parse(text.replace("choose(equal(X[i], val(v)), T[v], 0)", "T[v]")))


def test_gelu_of_a_quantised_model_is_one_table() -> None:
    model = benchmark("transformer", sequence=8, hidden=16, heads=2, layers=1)
    found = prepare(load(in_bytes(model, partial(random_inputs, model), 0)), in_bytes=True)
    assert tables(found) == 1
    assert "erf" not in " ".join(str(n.scope) for n in found.expression_nodes())
