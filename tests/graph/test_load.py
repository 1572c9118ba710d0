"""Reading models: constants, shapes, names, what stays opaque, and every way in which a model can be bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from einnet.errors import ModelError
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.naming import Namer, identifier
from einnet.graph.program import Opaque
from tests.graph.cases import build, check, compare, ints, node, values

X = values((2, 3, 4, 5))


def test_sources_agree(tmp_path: Path) -> None:
    model = build([node("Conv", ["x", "w"])], {"x": values((1, 2, 5, 5))}, ("y",), {"w": values((3, 2, 3, 3))})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    programs = [load(model), load(path), load(str(path)), load(ir.from_proto(model))]
    assert len({p.nodes for p in programs}) == 1
    assert programs[1].title == "m"


def test_external_data(tmp_path: Path) -> None:
    model = build([node("MatMul", ["x", "w"])], {"x": values((2, 64))}, ("y",), {"w": values((64, 64))})
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    program = load(path)
    np.testing.assert_array_equal(program.weights["w"], values((64, 64)))
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        load(path)


def test_an_old_file_format_hides_no_shapes() -> None:
    """Where every initialiser must be an input, the shapes behind small ones (a bias) are inferred as they are elsewhere."""
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("MaxPool", ["c"], kernel_shape=[2, 2])]
    model = build(nodes, {"x": values((1, 2, 5, 5))}, ("y",), {"w": values((3, 2, 3, 3)), "b": values((3,))})
    new, model.ir_version = load(model), 3
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.input.extend(helper.make_tensor_value_info(i.name, i.data_type, i.dims) for i in model.graph.initializer)
    old = load(model)
    assert old.nodes == new.nodes
    assert not any(isinstance(n, Opaque) for n in old.nodes)


def test_shape_arithmetic_is_folded() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zeros"], ["n1"]),
        node("Concat", ["n1", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]
    program = check(nodes, {"x": X}, {"zero": np.array(0, np.int64), "zeros": ints(0), "rest": ints(-1)})
    assert len(program.nodes) == 1
    assert not program.weights


def test_constant_nodes_and_folding_of_weights() -> None:
    constant = helper.make_node("Constant", [], ["k"], value=onnx.numpy_helper.from_array(values((3, 4)), "k"))
    program = check([constant, node("Transpose", ["k"], ["kt"]), node("MatMul", ["x", "kt"])], {"x": values((2, 4))})
    assert len(program.nodes) == 1
    np.testing.assert_array_equal(program.weights["kt"], values((3, 4)).T)


def test_random_nodes_are_not_constants() -> None:
    nodes = [node("RandomUniform", [], ["r"], shape=[2, 3], seed=1.0), node("Add", ["x", "r"])]
    program = load(build(nodes, {"x": values((2, 3))}))
    assert [type(n).__name__ for n in program.nodes] == ["Opaque", "Node"]


def test_names_become_identifiers_and_map_back() -> None:
    nodes = [node("Relu", ["/in.0"], ["/a/b"]), node("Neg", ["/a/b"], ["/a_b"]), node("Exp", ["/a_b"], ["max"])]
    model = build(nodes, {"/in.0": X}, ("max", "/a/b"))
    program = load(model)
    assert [n.output.name for n in program.expression_nodes()] == ["a_b", "a_b_2", "max_"]
    assert program.names == {"in_0": "/in.0", "max_": "max", "a_b": "/a/b"}
    assert program.outputs == (("max", "max_"), ("/a/b", "a_b"))
    for n in program.expression_nodes():
        assert parse(str(n.scope)) == n.scope
    compare(program, model, {"/in.0": X})


def test_identifiers() -> None:
    assert [identifier(n) for n in ("a::b", "3x", "", "exp", "L", "__x__")] == ["a_b", "t3x", "t", "exp_", "L_", "x"]
    namer = Namer()
    assert [namer("a.b"), namer("a/b"), namer("a_b_2")] == ["a_b", "a_b_2", "a_b_2_2"]


def test_outputs_that_are_inputs_constants_or_given_twice() -> None:
    nodes = [node("Identity", ["x"], ["a"]), node("Identity", ["w"], ["b"]), node("Relu", ["x"], ["c"]), node("Identity", ["c"], ["d"])]
    model = build(nodes, {"x": X}, ("a", "b", "c", "d"), {"w": values((3,))})
    program = load(model)
    assert program.outputs == (("a", "x"), ("b", "w"), ("c", "c"), ("d", "c"))
    compare(program, model, {"x": X})


@pytest.mark.parametrize("version", [3, 8])
def test_initialisers_that_are_inputs_are_constants(version: int) -> None:
    model = build([node("MatMul", ["x", "w"])], {"x": values((2, 3)), "w": values((3, 4))})
    model.graph.initializer.append(onnx.numpy_helper.from_array(values((3, 4), 5), "w"))
    model.ir_version = version
    program = load(model)
    assert [t.name for t in program.inputs] == ["x"]
    assert list(program.weights) == ["w"]


def test_dead_nodes_and_unused_outputs_are_dropped() -> None:
    program = check([node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["z"]), node("Loop3", ["z"], ["q"])][:2], {"x": X})
    assert len(program.nodes) == 1


def test_local_functions_are_inlined() -> None:
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Add", ["t", "a"], ["b"])]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model = build([helper.make_node("F", ["x"], ["y"], domain="mine", name="f")], {"x": X}, extra_domains={"mine": 1})
    model.functions.append(function)
    program = load(model)
    assert len(list(program.expression_nodes())) == 2
    compare(program, model, {"x": X})


def symbolic() -> onnx.ModelProto:
    nodes = [node("Add", ["x", "z"])]
    model = build(nodes, {"x": X, "z": X})
    for value, dims in zip(model.graph.input, (["batch", 3, "h", 5], ["batch", 3, "h", 5])):
        value.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, dims))
    return model


def test_a_symbol_is_bound_once_for_all_inputs() -> None:
    program = load(symbolic(), {"x": (2, 3, 4, 5)})
    assert [t.shape for t in program.inputs] == [(2, 3, 4, 5)] * 2


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"dimension 0 \('batch'\) of input 'x' is unknown; give it a size, as in --shape x=1x3x1x5"),
        ({"x": (1, 3, 4)}, "input 'x' has 4 dimensions, the given shape 1x3x4 has 3"),
        ({"x": (1, 2, 4, 5)}, "dimension 1 of input 'x' is 3, not 2"),
        ({"q": (1,)}, r"no input 'q' to give a shape to \(inputs: x, z\)"),
        ({"x": (1, 3, 4, 5), "z": (2, 3, 4, 5)}, "dimension 0 of input 'z' is 1, not 2"),
    ],
)
def test_bad_shapes(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(symbolic(), shapes)
    assert "\n" not in str(caught.value)


def test_unknown_rank_can_be_given() -> None:
    model = build([node("Relu", ["x"])], {"x": X})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match=r"the rank of input 'x' is unknown; give its shape, as in --shape x=1x3x224x224"):
        load(model)
    (tensor,) = load(model, {"x": (2, 3)}).inputs
    assert tensor.shape == (2, 3)


@pytest.mark.parametrize("opset", [8, 9])
@pytest.mark.parametrize("made", [node("Concat", ["x", "x"], ["a"], axis=-2), node("Slice", ["x"], ["a"], axes=[-1, 0], starts=[1, 0], ends=[3, 1])])
def test_old_opsets_with_dimensions_counted_from_behind(made: onnx.NodeProto, opset: int) -> None:
    """Their standard counts from the front, exporters did not, and runtimes do not mind. What follows has no shape but by inference."""
    check([made, node("Tanh", ["a"], ["y"])], {"x": values((2, 3, 4))}, opset=opset)


def test_a_branch_that_takes_inputs_is_refused() -> None:
    """The standard gives it none; ONNX Runtime refuses it, too."""
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "s"))
    branches = {f"{name}_branch": helper.make_graph([node("Add", ["x", "x"], ["s"])], name, [given], [result]) for name in ("then", "else")}
    model = build([node("If", ["c"], **branches)], {"x": np.ones(1, np.float32)}, constants={"c": np.array([True])})
    with pytest.raises(ModelError, match=r"node 'Add_s' \(Add\) reads '\w+', to which nothing gives a value"):
        load(model)


def test_a_graph_needs_no_name() -> None:
    model = build([node("Relu", ["x"])], {"x": X})
    model.graph.ClearField("name")
    assert len(load(model).nodes) == 1


def test_bad_files(tmp_path: Path) -> None:
    good = build([node("MatMul", ["x", "w"])], {"x": values((2, 64))}, ("y",), {"w": values((64, 64))}).SerializeToString()
    noise = bytes(range(256)) * 9
    cases = {"cut.onnx": good[: len(good) // 2], "text.onnx": b"hello, this is no model\n" * 9, "empty.onnx": b"", "noise.onnx": noise}
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelError, match=name) as caught:
            load(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"missing.onnx: cannot be read \(No such file"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ModelError, match="not int"):
        load(5)  # type: ignore[arg-type]


def bad(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "bad", [helper.make_tensor_value_info("x", 1, [2, 3])], [helper.make_tensor_value_info("y", 1, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["nowhere"])], "nowhere"),
        ([node("Frobnicate", ["x"])], "Frobnicate"),
        ([node("Conv", ["x"])], "Conv"),
        ([node("Relu", ["z"], ["y"]), node("Relu", ["y"], ["z"])], "not a valid ONNX model"),
        ([node("MatMul", ["x", "x"])], r"MatMul 'MatMul_y': .*[Ii]ncompatible dimensions"),
    ],
)
def test_bad_graphs(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(bad(*nodes))
    assert "\n" not in str(caught.value)


def test_opaque_nodes_keep_their_types_and_constants() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("TopK", ["a", "k"], ["v", "i"], axis=-1), node("Cast", ["i"], ["f"], to=1), node("Add", ["v", "f"])]
    program = check(nodes, {"x": X}, {"k": ints(2)}, opaque=True)
    top = next(n for n in program.nodes if isinstance(n, Opaque))
    assert [t.dtype for t in top.outputs] == ["f32", "i64"]
    assert top.inputs == ("a",)
    assert top.origin == ("TopK 'TopK_v'",)


def test_large_constants_of_opaque_nodes_are_weights() -> None:
    table = np.arange(40000, dtype=np.float32).reshape(400, 100)
    rows = X.reshape(-1)[:100].reshape(1, 100)
    program = check([node("ScatterND", ["t", "i", "x"])], {"x": rows}, {"t": table, "i": ints(3).reshape(1, 1)}, opaque=True)
    np.testing.assert_array_equal(program.weights["t"], table)


def test_conditional_with_constant_condition_is_its_branch() -> None:
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "then", [], [helper.make_tensor_value_info("t", 1, X.shape)])
    other = helper.make_graph([helper.make_node("Exp", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", 1, X.shape)])
    program = check([node("If", ["c"], then_branch=then, else_branch=other)], {"x": X}, {"c": np.array(False)})
    assert "exp(" in next(program.expression_nodes()).scope.text()


def test_conditional_captures_values_of_the_graph() -> None:
    then = helper.make_graph([helper.make_node("Add", ["a", "w"], ["t"])], "then", [], [helper.make_tensor_value_info("t", 1, X.shape)])
    other = helper.make_graph([helper.make_node("Mul", ["b", "x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", 1, X.shape)])
    nodes = [
        node("Relu", ["x"], ["a"]), node("Identity", ["a"], ["b"]), node("ReduceSum", ["x"], ["s"], keepdims=0), node("Cast", ["s"], ["c"], to=9),
        node("If", ["c"], ["q"], then_branch=then, else_branch=other), node("Neg", ["q"]),
    ]  # fmt: skip
    for x in (X, np.zeros_like(X)):
        check(nodes, {"x": x}, {"w": values((5,))}, opaque=True)


def test_loop() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["v", "w"], ["v2"]), helper.make_node("Identity", ["go"], ["go2"])],
        "body",
        [helper.make_tensor_value_info("k", 7, []), helper.make_tensor_value_info("go", 9, []), helper.make_tensor_value_info("v", 1, [2, 3])],
        [helper.make_tensor_value_info("go2", 9, []), helper.make_tensor_value_info("v2", 1, [2, 3])],
    )
    nodes = [node("Relu", ["x"], ["a"]), node("Loop", ["n", "", "a"], ["z"], body=body), node("Exp", ["z"])]
    check(nodes, {"x": values((2, 3)), "n": np.array(3, np.int64)}, {"w": values((3,))}, opaque=True)


def test_sequences_stay_inside_one_opaque_node() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("SplitToSequence", ["a", "one"], ["s"], axis=0),
        node("Identity", ["s"], ["s2"]),
        node("Exp", ["a"], ["e"]),
        node("SequenceAt", ["s2", "i"], ["p"]),
        node("ConcatFromSequence", ["s"], ["q"], axis=0),
        node("Add", ["q", "e"], ["r"]),
        node("Add", ["r", "p"]),
    ]
    program = check(nodes, {"x": X}, {"one": np.array(1, np.int64), "i": np.array(1, np.int64)}, opaque=True)
    (group,) = (n for n in program.nodes if isinstance(n, Opaque))
    assert len(group.origin) == 4  # the sum too: the length of what was concatenated is not known before
    assert group.inputs == ("a", "e")
    assert all(t.dtype == "f32" for t in group.outputs)


def test_data_dependent_shapes_stay_inside_one_opaque_node() -> None:
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Transpose", ["i"], ["t"]),
        node("GatherND", ["x", "t"], ["g"]),
        node("ReduceSum", ["g"], ["s"], keepdims=0),
        node("Mul", ["x", "s"]),
    ]
    program = check(nodes, {"x": np.maximum(values((4, 5)), 0)}, opaque=True)
    assert [type(n).__name__ for n in program.nodes] == ["Opaque", "Node"]


def test_a_path_out_of_a_group_and_back_joins_it() -> None:
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Shape", ["i"], ["s"]),
        node("ReduceMax", ["s"], ["m"], keepdims=0),
        node("Cast", ["m"], ["f"], to=1),
        node("Relu", ["f"], ["r"]),
        node("Cast", ["i"], ["j"], to=1),
        node("Mul", ["j", "r"], ["k"]),
        node("ReduceSum", ["k"], keepdims=0),
    ]
    program = check(nodes, {"x": np.maximum(values((4, 5)), 0)}, opaque=True)
    (only,) = program.nodes
    assert isinstance(only, Opaque)
    assert len(only.origin) == 8


def test_types_that_cannot_cross_stay_inside_too() -> None:
    nodes = [node("Cast", ["x"], ["b"], to=TensorProto.FLOAT8E4M3FN), node("Cast", ["b"], ["f"], to=1), node("Relu", ["f"])]
    program = check(nodes, {"x": X}, opaque=True, opset=19)
    assert [len(n.origin) for n in program.nodes] == [2, 1]


def test_output_of_unknown_shape_is_refused() -> None:
    with pytest.raises(ModelError, match="output 'y' is no static tensor: its shape depends on data"):
        load(build([node("NonZero", ["x"])], {"x": X}))


def test_other_domains_are_opaque() -> None:
    square = X[..., :4, :4] + 4 * np.eye(4, dtype=np.float32)
    model = build([helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft", name="g")], {"x": square}, extra_domains={"com.microsoft": 1})
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, square.shape))
    program = load(model)
    assert isinstance(program.nodes[0], Opaque)
    compare(program, model, {"x": square})


def test_other_float_types_are_opaque() -> None:
    nodes = [node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), node("Exp", ["d"], ["e"]), node("Cast", ["e"], to=1)]
    program = check(nodes, {"x": X}, opaque=True)
    assert [t.dtype for n in program.nodes for t in n.outputs] == ["f64", "f64", "f32"]
