"""What depends on no input is found and not computed; what only looks so stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.expr.nodes import Const
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.passes import settled
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.settled import MOST_WRITTEN, grown, proven, written_out
from einnet.graph.program import Program
from einnet.runtime.ort import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LAYER = "a = MatMul(x, w) n = LayerNormalization<axis=1>(a, s)"


def model(body: str, inputs: str = "float[8,32] x", output: str = "float[?,?] y", seed: int = 0, **weights: np.ndarray) -> onnx.ModelProto:
    """A graph of some nodes, with a random weight w and others."""
    rng = np.random.default_rng(seed)
    made = onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({output}) {{ {body} }}")
    every = {"w": rng.standard_normal((32, 32)), "k": rng.standard_normal((8, 4, 3, 3)), **weights}
    for name, value in every.items():
        if f"{name}," in body or f"{name})" in body:
            value = value if value.dtype.kind == "i" else value.astype(np.float32)
            made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    return onnx.shape_inference.infer_shapes(made)


def read(made: onnx.ModelProto, **options: bool) -> Program:
    return prepare(load(made), **options)


ONES, ZEROS = np.ones(32), np.zeros(32)

CONSTANT = {
    "the greatest of a row less its mean": "a = MatMul(x, w) m = ReduceMax<axes=[1]>(a) c = ReduceMean<axes=[1]>(m) d = Sub(m, c) y = Tanh(d)",
    "a softmax of one element": "a = MatMul(x, w) m = ReduceMean<axes=[1]>(a) y = Softmax<axis=1>(m)",
    "deviations from a mean, added up": "a = MatMul(x, w) m = ReduceMean<axes=[1]>(a) d = Sub(a, m) y = ReduceMean<axes=[1], keepdims=0>(d)",
    "the mean of a normalised row": f"{LAYER} y = ReduceMean<axes=[1], keepdims=0>(n)",
    "deviations added up": "a = MatMul(x, w) m = ReduceMean<axes=[1]>(a) d = Sub(a, m) y = ReduceSum<keepdims=0>(d, i)",
    "the mean of a normalised row that is moved": "a = MatMul(x, w) n = LayerNormalization<axis=1>(a, s, r) y = ReduceMean<axes=[1], keepdims=0>(n)",
    "clips that meet": "a = MatMul(x, w) b = Min(a, z) y = Clip(b, z, o)",
    "a bounded thing beyond its bound": "a = MatMul(x, w) e = Sigmoid(a) y = Max(e, o)",
    "a thing less itself, by another way": "a = MatMul(x, w) b = Mul(a, t) c = Add(a, a) y = Sub(b, c)",
}

MOVING = {
    "clips that leave a range": "a = MatMul(x, w) b = Max(a, z) y = Clip(b, z, o)",
    "the mean of a normalised row that is scaled": "a = MatMul(x, w) n = LayerNormalization<axis=1>(a, r) y = ReduceMean<axes=[1], keepdims=0>(n)",
    "deviations from the mean of another axis": "a = MatMul(x, w) m = ReduceMean<axes=[0]>(a) d = Sub(a, m) y = ReduceMean<axes=[1], keepdims=0>(d)",
    "quotients that need not be numbers": "a = MatMul(x, w) b = Reciprocal(a) y = Sub(b, b)",
    "products of what need not be numbers":
        "a = MatMul(x, w) b = Reciprocal(a) c = MatMul(b, w) g = MatMul(c, w) d = Mul(g, t) e = Add(g, g) y = Sub(d, e)",
    "a product by zeros": "y = MatMul(x, v)",
    "nearly the same": "a = MatMul(x, w) b = Mul(a, u) y = Sub(a, b)",
}

WEIGHTS = {
    "s": ONES, "r": np.linspace(1, 2, 32), "z": np.zeros(()), "o": np.ones(()), "t": np.full((), 2.0), "u": np.full((), 1 + 2.0**-20),
    "v": np.zeros((32, 32)), "i": np.array([1]),
}  # fmt: skip


@pytest.mark.parametrize("what", CONSTANT)
def test_what_depends_on_no_input_is_not_computed(what: str) -> None:
    made = model(CONSTANT[what], **WEIGHTS)
    program = read(made)
    assert program.settled
    (name,) = [tensor for _, tensor in program.outputs]
    assert not program.nodes
    ours = program.weights[name]
    theirs = Session(made.SerializeToString(), 1)({"x": np.random.default_rng(1).standard_normal((8, 32)).astype(np.float32)})["y"]
    np.testing.assert_allclose(theirs, ours.reshape(theirs.shape), atol=2e-5)


@pytest.mark.parametrize("what", MOVING)
def test_what_depends_on_an_input_or_need_not_be_a_number_stays(what: str) -> None:
    program = read(model(MOVING[what], **WEIGHTS))
    assert not program.settled and program.nodes


@pytest.mark.parametrize("what", CONSTANT)
def test_where_only_numbers_are_promised_it_stays(what: str) -> None:
    program = read(model(CONSTANT[what], **WEIGHTS), finite=False)
    assert not program.settled and program.nodes


def test_what_is_the_same_where_it_was_looked_at_is_proven_or_stays() -> None:
    """x without its fifth row, which no guess looks at, less x."""
    body = "p = Slice(x, l, f, n) q = Slice(x, g, e, n) z = Concat<axis=0>(p, h, q) y = Sub(x, z)"
    ends = {"l": 0, "f": 4, "g": 5, "e": 8, "n": 0}
    made = model(body, h=np.zeros((1, 32)), **{name: np.array([value]) for name, value in ends.items()})
    program = read(made)
    (scope,) = [n.scope for n in program.expression_nodes() if n.output.name == program.outputs[0][1]]
    assert (settled.places(scope)[:, 0] != 4).all() and not program.settled


def test_groups_are_looked_at_through_views() -> None:
    body = """a = Conv(x, k) g = Reshape(a, p) n = InstanceNormalization(g, i, j) f = Reshape(n, q) y = ReduceMean<axes=[1,2,3], keepdims=0>(f)"""
    made = model(body, "float[2,4,6,6] x", i=np.ones(2), j=np.zeros(2))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 2, 64]), "p"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 8, 4, 4]), "q"))
    assert not read(made).nodes


def test_only_what_needs_no_input_goes_and_the_rest_is_what_it_was() -> None:
    body = f"{LAYER} m = ReduceMean<axes=[1]>(n) b = Add(m, a) y = Relu(b)"
    made = model(body, **WEIGHTS)
    program = read(made)
    assert program.settled and 0 < len(program.nodes) < len(read(made, finite=False).nodes)
    assert not any(isinstance(n.scope.body, Const) for n in program.expression_nodes())


def test_a_layer_that_is_repeated_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(settled, "guess", asked.append)

    def layers(count: int) -> int:
        asked.clear()
        given = (f"a{n} = MatMul({f'y{n - 1}' if n else 'x'}, w) y{n} = LayerNormalization<axis=1>(a{n}, s)" for n in range(count))
        read(model(" ".join(given) + f" y = Relu(y{count - 1})", **WEIGHTS))
        return len(asked)

    assert 0 < layers(2) == layers(6)


def test_a_program_of_a_constant_is_verified_by_a_fresh_process_and_told_as_of_numbers_only(tmp_path: Path) -> None:
    onnx.save(model(CONSTANT["the mean of a normalised row"], **WEIGHTS), tmp_path / "m.onnx")
    found = einnet.optimize(tmp_path / "m.onnx", time_budget=5, threads=1, fresh=True)
    assert found.report["settings"]["settled"] and any("depends on no input" in line for line in found.report["assumes_finite"])
    assert found.report["verification"]["passed"] and found.report["runs"] != "whole model"
    found.save(tmp_path / "m.einnet")
    command = [sys.executable, "-m", "einnet", "verify", str(tmp_path / "m.onnx"), str(tmp_path / "m.einnet")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "depend on no input" in run.stdout


def test_strict_programs_compute_it(tmp_path: Path) -> None:
    found = einnet.optimize(model(CONSTANT["a softmax of one element"], **WEIGHTS), time_budget=5, threads=1, strict_nan=True, fresh=True)
    assert not found.report["settings"]["settled"]
    x = np.full((8, 32), np.nan, np.float32)
    assert np.isnan(found(x)["y"]).all()


def test_what_stands_for_a_function_is_no_tensor_of_the_model() -> None:
    named_alike = parse("any0 : f32[4]\nL[m<4] {L[m<4] sigmoid(any0[m])}[m] + (-1)*any0[m]")
    assert not proven(named_alike, parse("L[m<4] 0"))
    assert not proven(parse("A : f32[4]\nB : f32[4]\nL[m<4] {L[m<4] 1/A[m]}[m]*(B[m] + (-1)*B[m])"), parse("L[m<4] 0"))
    assert proven(parse("A : f32[4]\nL[m<4] {L[m<4] sigmoid(A[m])}[m]*(A[m] + (-1)*A[m])"), parse("L[m<4] 0"))


def test_what_reads_twice_in_turn_is_not_written_out_for_ever() -> None:
    lines = [f"v{n + 1} = Mish (v{n})" for n in range(40)]
    text = '<ir_version: 8, opset_import: ["" : 18]>\nmodel (float[2, 3] v0) => (float[2, 3] v40) {\n' + "\n".join(lines) + "\n}"
    makers = {n.output.name: n for n in load(onnx.parser.parse_model(text)).expression_nodes()}
    *_, largest = grown(makers["v40"].scope, makers)
    assert MOST_WRITTEN < written_out(largest) < 4 * MOST_WRITTEN
