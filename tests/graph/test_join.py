"""Opaque nodes joined into one model."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from einnet.graph.onnx.importer import load
from einnet.graph.onnx.opaque_joins import join_opaque, ordered
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node, Opaque
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from einnet.search.choosing.making import candidates
from einnet.search.forms import plain
from einnet.search.plan import Assembly
from tests.models import with_opaque


def model(nodes: list[onnx.NodeProto], outputs: tuple[str, ...]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 4]) for n in outputs]
    axis = onnx.numpy_helper.from_array(np.array(1, np.int64), "axis")
    graph = helper.make_graph(nodes, "g", [x], results, [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def running(source: str, target: str, **attributes: int) -> onnx.NodeProto:
    return helper.make_node("LpNormalization", [source], [target], name=target, **attributes)


def test_chains_and_branches_become_one_model():
    nodes = [
        running("x", "a"),
        running("a", "b", p=1),
        running("x", "c", axis=0),
        helper.make_node("Add", ["b", "c"], ["y"]),
        running("y", "z"),
    ]
    made = model(nodes, ("b", "z"))
    program = join_opaque(load(made))
    assert [type(n) for n in program.nodes] == [Opaque, Node, Opaque]
    first = program.nodes[0]
    assert {t.name for t in first.outputs} == {"b", "c"}, "a is read inside only"
    assert len(first.origin) == 3
    plan = assembled(program)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    wanted = Session(made.SerializeToString(), 1)({"x": x})
    got = Executable(plan, 1)({"x": x})
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6)


def assembled(program):
    assembly = Assembly(program)
    for node in program.nodes:
        if isinstance(node, Opaque):
            assembly.opaque(node)
        else:
            build = candidates([plain(node.scope)], lambda kernels: [1.0] * len(kernels))[0].build
            assembly.add(build, {n: n for n in node.inputs}, node.output.name)
    return assembly.finish()


def test_order_keeps_producers_first():
    nodes = [running("x", "a"), helper.make_node("Relu", ["a"], ["r"]), running("r", "b"), helper.make_node("Neg", ["x"], ["n"]), running("n", "z")]
    program = load(model(nodes, ("b", "z")))
    runs = ordered(program)
    assert sum(map(len, runs)) == len(program.nodes)
    seen = {"x"}
    for node in (n for run in runs for n in run):
        assert all(name in seen or name in program.weights for name in node.inputs)
        seen |= {t.name for t in node.outputs}
    assert [type(run[0]) for run in runs] == [Node, Opaque, Node, Opaque]


def test_parts_of_a_model_that_have_nothing_in_common_stay_apart():
    """Each can be run without the other; a weight is nothing that they have in common."""
    nodes = [running("x", "a"), running("u", "b"), helper.make_node("Add", ["a", "w"], ["y"]), helper.make_node("Mul", ["b", "w"], ["v"]),
             running("y", "z"), running("y", "zz", p=1), running("v", "t")]  # fmt: skip
    made = model(nodes, ("z", "zz", "t"))
    made.graph.input.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [3, 4]))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    program = join_opaque(load(made))
    assert [sorted(t.name for t in n.outputs) for n in program.nodes if isinstance(n, Opaque)] == [["a"], ["b"], ["z", "zz"], ["t"]]
    plan = assembled(program)
    given = {name: np.random.default_rng(n).standard_normal((3, 4)).astype(np.float32) for n, name in enumerate("xu")}
    wanted = Session(made.SerializeToString(), 1)(given)
    for names, inputs in ((["z", "zz"], "x"), (["t"], "u")):
        found = Executable(plan.giving(names), 1)({name: given[name] for name in inputs})
        assert all(np.allclose(found[name], wanted[name], rtol=1e-6) for name in names)


def test_a_recursion_beside_nodes_that_are_joined_is_kept():
    """It was left out of the program, and its result was missing."""
    rng = np.random.default_rng(0)
    steps, width = 300, 4
    w, r = (rng.standard_normal((1, 4 * width, width)).astype(np.float32) / 4 for _ in range(2))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, width])
    shapes = {"y": [steps, 1, 1, width], "a": [steps, 1, width], "b": [steps, 1, width]}
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [running("x", "a", axis=0), helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=width), running("x", "b", p=1)]
    graph = helper.make_graph(nodes, "g", [x], results, [onnx.numpy_helper.from_array(v, n) for n, v in (("w", w), ("r", r))])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = join_opaque(load(made))
    assert [sorted(t.name for t in n.outputs) for n in program.nodes] == [["y"], ["a", "b"]]
    assert isinstance(program.nodes[0], Opaque) and program.nodes[0].recursion is not None
    given = {"x": rng.standard_normal((steps, 1, width)).astype(np.float32)}
    found, wanted = Executable(assembled(program), 1)(given), Session(made.SerializeToString(), 1)(given)
    assert all(np.allclose(found[name], value, rtol=1e-4, atol=1e-6) for name, value in wanted.items())


def test_a_single_node_stays_as_it_is():
    program = prepare(load(with_opaque()))
    assert sum(isinstance(n, Opaque) for n in program.nodes) == 1
