"""Operators of other domains through the function bodies that are written here: each over its attributes, beside ONNX Runtime's own execution."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.sequential import transformer
from einnet.graph.onnx.contributed.registry import CONTRIBUTED, DOMAIN
from einnet.graph.onnx.importer import load
from einnet.graph.program import Node, Opaque, Program
from tests.graph.cases import compare, values
from tests.models import random_inputs

Arrays = dict[str, np.ndarray]


def one(op: str, inputs: Arrays, order: str, outputs: str = "y", constants: Arrays | None = None, **attributes: Any) -> onnx.ModelProto:
    """A model of one contributed node; `order` names its operands, `-` is an absent one."""
    names = ["" if name == "-" else name for name in order.split()]
    given = ["" if name == "-" else name for name in outputs.split()]
    graph = helper.make_graph(
        [helper.make_node(op, names, given, name="it", domain=DOMAIN, **attributes)],
        "test",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in given if n],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(op: str, inputs: Arrays, order: str, outputs: str = "y", constants: Arrays | None = None, tolerance: float = 2e-5, **more: Any) -> Program:
    """The node has expressions alone, and they give what ONNX Runtime gives."""
    model = one(op, inputs, order, outputs, constants, **more)
    program = load(model)
    assert not [n.why for n in program.nodes if isinstance(n, Opaque)]
    assert {n.origin for n in program.nodes} == {(f"{op} 'it'",)}
    compare(program, model, inputs, tolerance)
    return program


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu(op: str) -> None:
    check(op, {"x": values((2, 3, 4), high=3)}, "x")


def test_gelu_with_bias_and_slope() -> None:
    check("BiasGelu", {"x": values((2, 3, 4)), "b": values((4,), 1)}, "x b")
    check("FastGelu", {"x": values((2, 3, 4)), "b": values((4,), 1)}, "x b")
    check("QuickGelu", {"x": values((2, 3, 4))}, "x", alpha=0.7)


@pytest.mark.parametrize(("rank", "flags"), [(r, f) for r in (2, 3, 4) for f in product((0, 1), repeat=2)])
def test_fused_matmul(rank: int, flags: tuple[int, int]) -> None:
    outer = (2, 3)[: rank - 2]
    a, b = ((4, 5), (5, 4))[flags[0]], ((5, 6), (6, 5))[flags[1]]
    inputs = {"a": values((*outer, *a)), "b": values((*outer, *b), 1)}
    check("FusedMatMul", inputs, "a b", transA=flags[0], transB=flags[1], alpha=0.25)


@pytest.mark.parametrize("flags", [f for f in product((0, 1), repeat=4) if any(f[2:])])
def test_fused_matmul_with_the_batch_inside(flags: tuple[int, int, int, int]) -> None:
    turn_a, turn_b, inner_a, inner_b = flags
    a, b = ((4, 5), (5, 4))[turn_a], ((5, 6), (6, 5))[turn_b]
    shapes = [(s[0], 3, s[1]) if inner else (3, *s) for s, inner in ((a, inner_a), (b, inner_b))]
    inputs = {"a": values(shapes[0]), "b": values(shapes[1], 1)}
    check("FusedMatMul", inputs, "a b", transA=turn_a, transB=turn_b, transBatchA=inner_a, transBatchB=inner_b)


def test_transposed_matmul() -> None:
    check("TransposeMatMul", {"a": values((2, 5, 4)), "b": values((2, 5, 3), 1)}, "a b", transA=1, alpha=2.0)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu"])
def test_fused_gemm(activation: str) -> None:
    inputs = {"a": values((5, 4)), "b": values((6, 5), 1), "c": values((6,), 2)}
    parameters = {"activation_alpha": 0.3} if activation in ("LeakyRelu", "Elu") else {}
    check("FusedGemm", inputs, "a b c", transA=1, transB=1, alpha=0.5, beta=2.0, activation=activation, **parameters)
    check("FusedGemm", inputs, "a b", transA=1, transB=1, activation=activation, **parameters)


CONVOLUTIONS: list[dict[str, Any]] = [
    {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"activation": "Tanh", "strides": [2, 1], "auto_pad": "SAME_UPPER"},
    {"activation": "Sigmoid", "dilations": [2, 2], "pads": [2, 1, 0, 1]},
    {"activation": "LeakyRelu", "activation_params": [0.2]},
    {"activation": "Clip", "activation_params": [-0.25, 0.5]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS, ids=lambda a: a["activation"])
def test_fused_conv(attributes: dict[str, Any]) -> None:
    inputs = {"x": values((2, 4, 7, 6))}
    check("FusedConv", inputs, "x w b", constants={"w": values((6, 2, 3, 3), 1), "b": values((6,), 2)}, group=2, **attributes)
    check("FusedConv", inputs, "x w", constants={"w": values((6, 4, 3, 3), 1)}, **attributes)


def test_fused_conv_with_something_added() -> None:
    inputs = {"x": values((1, 4, 7, 6)), "z": values((1, 6, 7, 6), 3)}
    constants = {"w": values((6, 4, 3, 3), 1), "b": values((6,), 2)}
    check("FusedConv", inputs, "x w b z", constants=constants, activation="Relu", pads=[1, 1, 1, 1])


@pytest.mark.parametrize(("skip", "optional"), list(product(((2, 3, 8), (1, 3, 8), (3, 8)), ("g", "g b", "g b c", "g - c"))))
def test_skip_layer_normalization(skip: tuple[int, ...], optional: str) -> None:
    inputs = {"x": values((2, 3, 8)), "s": values(skip, 1)}
    constants = {name: values((8,), n + 2) for n, name in enumerate("gbc") if name in optional}
    check("SkipLayerNormalization", inputs, f"x s {optional}", "y - - sum", constants, epsilon=1e-3)
    check("SkipLayerNormalization", inputs, f"x s {optional}", "y", constants)


@pytest.mark.parametrize(("skip", "optional"), list(product(((2, 3, 8), (3, 8)), ("g", "g c"))))
def test_skip_rms_normalization(skip: tuple[int, ...], optional: str) -> None:
    inputs = {"x": values((2, 3, 8)), "s": values(skip, 1)}
    constants = {name: values((8,), n + 2) for n, name in enumerate("gc") if name in optional}
    check("SkipSimplifiedLayerNormalization", inputs, f"x s {optional}", "y - - sum", constants, epsilon=1e-3)


@pytest.mark.parametrize(("segments", "positions", "total"), list(product((False, True), (False, True), (False, True))))
def test_embedding(segments: bool, positions: bool, total: bool) -> None:
    rng = np.random.default_rng(0)
    inputs = {"ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    tables = {"word": values((9, 4)), "place": values((7, 4), 1), "g": values((4,), 3), "b": values((4,), 4)}
    if segments:
        inputs["segments"] = rng.integers(0, 2, (2, 5)).astype(np.int32)
        tables["segment"] = values((2, 4), 2)
    if positions:
        inputs["places"] = rng.integers(0, 7, (2, 5)).astype(np.int32)
    order = f"ids {'segments' if segments else '-'} word place {'segment' if segments else '-'} g b - {'places' if positions else ''}"
    outputs = "y - sum" if total else "y -"
    check("EmbedLayerNormalization", inputs, order.removesuffix(" - "), outputs, tables, epsilon=1e-5)


ATTENTION: list[tuple[str, dict[str, Any], tuple[int, ...] | None]] = [
    ("bias", {}, None), ("-", {}, None), ("bias", {"unidirectional": 1}, None), ("bias", {"scale": 0.4}, None),
    ("bias", {}, (2, 5)), ("bias", {}, (2, 5, 5)), ("bias", {"unidirectional": 1}, (2, 5)), ("bias", {"mask_filter_value": -50.0}, (2, 5)),
    ("bias", {"qkv_hidden_sizes": [8, 8, 4]}, None),
]  # fmt: skip


@pytest.mark.parametrize(("bias", "attributes", "mask"), ATTENTION)
@pytest.mark.parametrize("added", [False, True])
def test_attention(bias: str, attributes: dict[str, Any], mask: tuple[int, ...] | None, added: bool) -> None:
    width = sum(attributes.get("qkv_hidden_sizes", [8, 8, 8]))
    inputs = {"x": values((2, 5, 6))}
    constants = {"w": values((6, width), 1), "bias": values((width,), 2)}
    if mask is not None:
        inputs["mask"] = (np.random.default_rng(3).random(mask) < 0.7).astype(np.int32)
    if added:
        inputs["more"] = values((2, 2, 5, 5), 4)
    order = f"x w {bias} {'mask' if mask else '-'} - {'more' if added else '-'}"
    check("Attention", inputs, order, "y", constants, num_heads=2, **attributes)


@pytest.mark.parametrize("back", [0, 1])
def test_attention_with_earlier_places(back: int) -> None:
    inputs = {"x": values((2, 3, 6)), "past": values((2, 2, 2, 4, 4), 5)}
    constants = {"w": values((6, 24), 1), "bias": values((24,), 2)}
    check("Attention", inputs, "x w bias - past", "y present", constants, num_heads=2, unidirectional=back)


HEADS = {
    "bias": values((22,), 9), "more": values((2, 2, 3, 5), 4), "one": values((1, 1, 3, 5), 4),
    "mask": np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]], np.int32),
}  # fmt: skip


@pytest.mark.parametrize("order", ["q k v", "q k v bias", "q k v bias mask", "q k v - mask", "q k v - - more", "q k v bias mask one"])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}, {"mask_filter_value": -20.0}], ids=str)
def test_multi_head_attention(order: str, attributes: dict[str, Any]) -> None:
    inputs = {"q": values((2, 3, 8)), "k": values((2, 5, 8), 1), "v": values((2, 5, 6), 2)}
    inputs |= {name: HEADS[name] for name in order.split() if name in HEADS}
    check("MultiHeadAttention", inputs, order, "y", num_heads=2, **attributes)


def test_multi_head_attention_that_looks_back() -> None:
    inputs = {"q": values((2, 5, 8)), "k": values((2, 5, 8), 1), "v": values((2, 5, 6), 2)}
    check("MultiHeadAttention", inputs, "q k v", "y", num_heads=2, unidirectional=1)


def test_multi_head_attention_of_heads() -> None:
    inputs = {"q": values((2, 3, 8)), "k": values((2, 2, 5, 4), 1), "v": values((2, 2, 5, 4), 2)}
    check("MultiHeadAttention", inputs, "q k v", "y", num_heads=2)


def test_multi_head_attention_with_earlier_places() -> None:
    inputs = {"q": values((2, 3, 8)), "k": values((2, 3, 8), 1), "v": values((2, 3, 8), 2)}
    inputs |= {"pk": values((2, 2, 4, 4), 3), "pv": values((2, 2, 4, 4), 4)}
    check("MultiHeadAttention", inputs, "q k v - - - pk pv", "y a b", num_heads=2)


@pytest.mark.parametrize(("interleaved", "rank", "offset"), list(product((0, 1), (3, 4), (False, True))))
def test_rotary_embedding(interleaved: int, rank: int, offset: bool) -> None:
    x = values((2, 5, 24)) if rank == 3 else values((2, 3, 5, 8))
    angles = np.outer(np.arange(9), 1 / 10 ** np.arange(4)).astype(np.float32)
    places = np.array([2], np.int64) if offset else np.array([[0, 3, 1, 4, 2], [8, 7, 6, 5, 4]], np.int64)
    constants = {"cos": np.cos(angles), "sin": np.sin(angles)} | ({"p": places} if offset else {})
    check("RotaryEmbedding", {"x": x} | ({} if offset else {"p": places}), "x p cos sin", "y", constants, interleaved=interleaved)


def test_rotary_embedding_of_a_part() -> None:
    angles = np.outer(np.arange(9), [1, 0.1]).astype(np.float32)
    constants = {"cos": np.cos(angles), "sin": np.sin(angles), "p": np.arange(10).reshape(2, 5).astype(np.int64) % 9}
    check("RotaryEmbedding", {"x": values((2, 5, 24))}, "x p cos sin", "y", constants, num_heads=3, rotary_embedding_dim=4)


REFUSED: list[tuple[str, Arrays, str, dict[str, Any]]] = [
    ("FusedGemm", {"a": values((2, 3)), "b": values((3, 4), 1)}, "a b", {"activation": "Softmax"}),
    ("Attention", {"x": values((2, 5, 6)), "w": values((6, 24)), "b": values((24,)), "m": np.array([5, 3], np.int32)}, "x w b m", {"num_heads": 2}),
    ("Inverse", {"x": values((2, 3, 3))}, "x", {}),
]


SHAPES = {"FusedGemm": (2, 4), "Attention": (2, 5, 8), "Inverse": (2, 3, 3)}


@pytest.mark.parametrize(("op", "inputs", "order", "attributes"), REFUSED)
def test_what_is_not_covered_stays_as_it_is(op: str, inputs: Arrays, order: str, attributes: dict[str, Any]) -> None:
    program = load(declared(one(op, inputs, order, **attributes), SHAPES[op]))
    assert [type(n) for n in program.nodes] == [Opaque]


def declared(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model, which says of what shape its result is."""
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    return model


def test_every_definition_is_tested() -> None:
    files = (Path(__file__), Path(__file__).with_name("test_contributed_quantised.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert not [name for name in CONTRIBUTED if f'"{name}"' not in text]


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_what_onnx_runtime_makes_of_a_transformer_has_expressions(level: str, tmp_path: Path) -> None:
    model = transformer(sequence=8, hidden=16, heads=2, layers=1)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert any(n.domain == DOMAIN for n in optimized.graph.node)
    program = load(optimized)
    assert all(isinstance(n, Node) for n in program.nodes)
    compare(program, model, random_inputs(model))
