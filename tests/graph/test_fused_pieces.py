"""Normalisations are one piece each, and numbers that scale a view are folded into what made it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.graph.split import is_contraction, pieces
from tests.graph.cases import build, ints, node, reference, run_opaque, values


def prepared(nodes: Sequence[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], opset: int = 17) -> Program:
    """The program, which gives what ONNX Runtime gives."""
    model = build(nodes, inputs, constants=constants, opset=opset)
    program = prepare(load(model), permuted=False)
    np.testing.assert_allclose(interpret(program, inputs, run_opaque)["y"], reference(model, inputs)["y"], rtol=1e-4, atol=1e-5)
    return program


W = {"w": values((8,), 1), "b": values((8,), 2)}


@pytest.mark.parametrize(("nodes", "opset"), [
    ([node("Add", ["x", "r"], ["s"]), node("LayerNormalization", ["s", "w", "b"], axis=-1)], 17),
    ([node("Add", ["x", "r"], ["s"]), node("Mul", ["s", "s"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]), node("Add", ["v", "e"], ["t"]),
      node("Sqrt", ["t"], ["d"]), node("Div", ["s", "d"], ["n"]), node("Mul", ["n", "w"])], 17),
    ([node("Add", ["x", "r"], ["s"]), node("Softmax", ["s"], axis=-1)], 17),
    ([node("Add", ["x", "r"], ["s"]), node("InstanceNormalization", ["s", "w3", "b3"])], 17),
])  # fmt: skip
def test_a_normalisation_with_its_residual_is_one_piece(nodes: list[onnx.NodeProto], opset: int) -> None:
    constants = {**W, "e": np.array(1e-5, np.float32), "w3": values((3,), 3), "b3": values((3,), 4)}
    used = {n for one in nodes for n in one.input}
    program = prepared(nodes, {"x": values((2, 3, 8)), "r": values((2, 3, 8), 5)}, {k: v for k, v in constants.items() if k in used}, opset)
    assert len(pieces(program)) == 1


def test_a_square_is_no_contraction() -> None:
    assert not is_contraction(parse("A : f32[4,6]\nL[m<4] Σ[k<6] A[m,k]*A[m,k]"))
    assert is_contraction(parse("A : f32[4,6]\nL[m<4,n<4] Σ[k<6] A[m,k]*A[n,k]"))
    assert is_contraction(parse("A : f32[4,6]\nB : f32[6]\nL[m<4] Σ[k<6] A[m,k]*B[k]"))


HEADS = [
    node("MatMul", ["x", "p"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Reshape", ["a", "s"], ["h"]),
    node("Transpose", ["h"], ["t"], perm=[1, 0, 2]),
    node("Mul", ["t", "c"], ["q"]), node("MatMul", ["q", "k"]),
]  # fmt: skip
GIVEN = {"p": values((8, 8), 6), "b": W["b"], "s": ints(5, 2, 4), "c": np.array(0.25, np.float32)}


def test_a_scale_behind_a_view_is_part_of_the_weights() -> None:
    """Of the product and of what was added to it."""
    program = prepared(HEADS, {"x": values((5, 8)), "k": values((2, 4, 3), 7)}, GIVEN)
    assert "0.25" not in " ".join(n.scope.text() for n in program.expression_nodes())
    assert any(np.allclose(w, 0.25 * GIVEN["p"]) for w in program.weights.values() if w.shape == (8, 8))
    assert any(np.allclose(w, 0.25 * GIVEN["b"]) for w in program.weights.values() if w.shape == (8,))


def test_what_is_read_elsewhere_keeps_its_scale() -> None:
    nodes = [*HEADS[:-1], node("MatMul", ["q", "k"], ["z"]), node("Transpose", ["t"], ["u"], perm=[0, 1, 2]), node("ReduceSum", ["u", "last"], ["v"]),
             node("Add", ["z", "v"])]  # fmt: skip
    prepared(nodes, {"x": values((5, 8)), "k": values((2, 4, 3), 7)}, {**GIVEN, "last": ints(2)})


def test_a_scale_stays_behind_what_is_not_linear() -> None:
    """relu(x)·c is not relu of what the weights are scaled by, if c is negative: the number stays outside of the function."""
    nodes = [*HEADS[:1], node("Relu", ["m"], ["a"]), *HEADS[2:]]
    constants = {**{k: v for k, v in GIVEN.items() if k != "b"}, "c": np.array(-0.25, np.float32)}
    prepared(nodes, {"x": values((5, 8)), "k": values((2, 4, 3), 7)}, constants)


def test_a_padded_read_is_no_view() -> None:
    """Outside of the tensor there is a fill, which is not scaled."""
    nodes = [node("MatMul", ["x", "p"], ["m"]), node("Pad", ["m", "pads", "one"], ["t"]), node("Mul", ["t", "c"])]
    constants = {"p": GIVEN["p"], "c": GIVEN["c"], "pads": ints(1, 0, 0, 1), "one": np.array(1, np.float32)}
    prepared(nodes, {"x": values((5, 8))}, constants)


X, K = values((1, 4, 6, 6)), values((4, 4, 3, 3), 1)
CONV = node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1])
JOINED = {
    "silu": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"])],
    "gelu": [node("Div", ["c", "r"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["f"]), node("Mul", ["c", "f"], ["g"]),
             node("Mul", ["g", "h"])],
    "mish": [node("Softplus", ["c"], ["s"]), node("Tanh", ["s"], ["t"]), node("Mul", ["c", "t"])],
    "twice": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["a"]), node("Tanh", ["a"], ["b"]), node("Add", ["a", "b"])],
}  # fmt: skip
NUMBERS = {"r": np.array(2**0.5, np.float32), "one": np.array(1, np.float32), "h": np.array(0.5, np.float32)}


def joined(nodes: list[onnx.NodeProto]) -> Program:
    used = {n for one in nodes for n in one.input}
    return prepared([CONV, *nodes], {"x": X}, {"k": K, **{n: v for n, v in NUMBERS.items() if n in used}})


def convolution(program: Program) -> list[int]:
    """How many nodes stand in the piece of the convolution, for each."""
    return [len(p.nodes) for p in pieces(program) if any(is_contraction(n.scope) for n in p.nodes)]


@pytest.mark.parametrize("name", JOINED)
def test_what_parts_and_joins_again_is_one_piece(name: str) -> None:
    assert len(pieces(joined(JOINED[name]))) == 1


def test_the_vendor_applies_what_joins_again() -> None:
    pytest.importorskip("tvm")
    from tests.graph.test_not_finite import CpuCost, Options, candidates, plan_of_any

    for name, kind in (("silu", "swish"), ("mish", "mish")):
        cost = CpuCost(1, measure=False)
        plan = plan_of_any(
            joined(JOINED[name]), Options(max_depth=0, states=1),
            lambda forms, cost=cost: next(c for c in candidates(forms, cost.estimates) if c.form.matches),
        )  # fmt: skip
        assert [p.kind for k in plan.kernels for p in getattr(k, "post", ())] == [kind]


def test_what_is_used_elsewhere_too_is_another_piece() -> None:
    """The sigmoid is transposed somewhere: it does not join where the product is."""
    nodes = [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["m"]), node("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2]),
             node("ReduceMax", ["t"], ["u"]), node("Add", ["m", "u"])]  # fmt: skip
    assert convolution(joined(nodes)) == [1]


def test_a_value_that_is_read_elsewhere_in_the_tensor_does_not_join() -> None:
    nodes = [node("Sigmoid", ["c"], ["s"]), node("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2]), node("Mul", ["c", "t"])]
    joined(nodes)


def test_what_is_given_out_stays_outside() -> None:
    model = build([CONV, *JOINED["silu"]], {"x": X}, outputs=("y", "s"), constants={"k": K})
    program = prepare(load(model))
    found, wanted = interpret(program, {"x": X}, run_opaque), reference(model, {"x": X})
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    given_out = {tensor for _, tensor in program.outputs}
    assert all(n.output.name not in given_out for p in pieces(program) for n in p.nodes[:-1])
