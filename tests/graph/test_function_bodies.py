"""Operators of the standard that have no expression of their own but a function body: through it, beside ONNX Runtime or the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.operators.registry import OPERATORS
from einnet.graph.program import Node, Opaque
from tests.graph.cases import build, check, node, values

Arrays = dict[str, np.ndarray]

ATTENTION: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...] | None]] = [
    ((2, 3, 4, 8), (2, 3, 6, 8), {}, None),
    ((2, 3, 4, 8), (2, 3, 6, 8), {"scale": 0.3}, (4, 6)),
    ((2, 6, 4, 8), (2, 3, 6, 8), {}, (2, 1, 4, 6)),
    ((2, 3, 4, 8), (2, 3, 4, 8), {"is_causal": 1}, None),
    ((2, 3, 4, 8), (2, 3, 6, 8), {"softcap": 2.0}, None),
    ((2, 4, 24), (2, 6, 24), {"q_num_heads": 3, "kv_num_heads": 3}, None),
    ((2, 4, 24), (2, 6, 8), {"q_num_heads": 3, "kv_num_heads": 1}, (4, 6)),
]


def alone(program_nodes: tuple[Any, ...], op: str) -> None:
    """Everything stands for the one node, and is an expression."""
    assert all(isinstance(n, Node) for n in program_nodes), [n.why for n in program_nodes if isinstance(n, Opaque)]
    assert {name.split()[0] for n in program_nodes for name in n.origin} == {op}


@pytest.mark.parametrize(("query", "key", "attributes", "mask"), ATTENTION)
def test_attention(query: tuple[int, ...], key: tuple[int, ...], attributes: dict[str, Any], mask: tuple[int, ...] | None) -> None:
    assert "Attention" not in OPERATORS
    inputs = {"q": values(query), "k": values(key, 1), "v": values(key, 2)} | ({"m": values(mask, 3)} if mask else {})
    program = check([node("Attention", list(inputs), **attributes)], inputs, opset=23)
    alone(program.nodes, "Attention")


def test_attention_with_truth_values_as_a_mask() -> None:
    inputs = {"q": values((2, 3, 4, 8)), "k": values((2, 3, 6, 8), 1), "v": values((2, 3, 6, 8), 2), "m": values((4, 6), 3) < 0.5}
    inputs["m"][:, 0] = True
    check([node("Attention", list(inputs))], inputs, opset=23)


def test_attention_with_earlier_keys() -> None:
    new, earlier = (2, 3, 4, 8), (2, 3, 5, 8)
    inputs = {"q": values(new), "k": values(new, 1), "v": values(new, 2), "pk": values(earlier, 3), "pv": values(earlier, 4)}
    check([node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "a", "b"])], inputs, outputs=("y", "a", "b"), opset=23)


@pytest.mark.parametrize("attributes", [{}, {"interleaved": 1}, {"rotary_embedding_dim": 4}], ids=str)
@pytest.mark.parametrize("rows", [False, True])
def test_rotary_embedding(attributes: dict[str, int], rows: bool) -> None:
    turned = attributes.get("rotary_embedding_dim", 8)
    angles = np.outer(np.arange(9), 1 / 10 ** np.arange(turned // 2)).astype(np.float32)
    inputs = {"x": values((2, 5, 24) if rows else (2, 3, 5, 8)), "p": np.array([[0, 3, 1, 4, 2], [8, 7, 6, 5, 4]], np.int64)}
    told = {**attributes, **({"num_heads": 3} if rows else {})}
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    check([node("RotaryEmbedding", ["x", "cos", "sin", "p"], **told)], inputs, tables, opset=23)


def evaluated(op: str, inputs: Arrays, opset: int, **attributes: Any) -> None:
    """The node through its body gives what the reference evaluator gives."""
    assert op not in OPERATORS
    model = build([node(op, list(inputs), **attributes)], inputs, opset=opset)
    program = load(model)
    alone(program.nodes, op)
    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(interpret(program, inputs)["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attributes", [{}, {"lambd": 0.2}, {"lambd": 0.3, "bias": 0.1}], ids=str)
def test_shrink(attributes: dict[str, float]) -> None:
    evaluated("Shrink", {"x": values((3, 4))}, 9, **attributes)


@pytest.mark.parametrize("attributes", [{}, {"axes": [1, 2]}], ids=str)
def test_mean_variance_normalization(attributes: dict[str, Any]) -> None:
    evaluated("MeanVarianceNormalization", {"x": values((2, 3, 4, 4))}, 13, **attributes)


def test_a_cast_like_another_tensor_is_a_cast() -> None:
    inputs = {"x": values((3, 4)), "n": np.array([[1], [0], [-2]], np.int64)}
    program = check([node("CastLike", ["n", "x"], ["c"]), node("Mul", ["x", "c"])], inputs, opset=19)
    assert len(program.nodes) == 2
    check([node("CastLike", ["two", "x"], ["c"]), node("Mul", ["x", "c"])], inputs, {"two": np.array(2, np.int64)}, opset=19)


def test_what_has_no_elements_is_known() -> None:
    inputs = {"x": values((3, 4))}
    nodes = [node("Split", ["x", "sizes"], ["a", "none"], axis=1), node("Concat", ["none", "a", "none"], axis=1)]
    check(nodes, inputs, {"sizes": np.array([4, 0], np.int64)})


def test_a_body_with_a_node_that_has_no_expression_leaves_the_operator_whole() -> None:
    inputs = {"x": values((4, 4)), "n": np.array([2, 6], np.int64)}
    model = build([node("CenterCropPad", ["x", "n"])], inputs, opset=18)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (2, 6)))
    (kept,) = load(model).nodes
    assert isinstance(kept, Opaque)
    assert "in its function body" in kept.why
