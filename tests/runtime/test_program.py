"""Executables: one native call, opaque nodes between native segments, errors of callers, concurrent calls."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import prod

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from einnet.errors import UsageError
from einnet.instantiate.kernels import Buffer, Matmul, Plan, Post, View, dense_view
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.native import linked
from einnet.runtime.cpu.native.linked import Native, Steps
from einnet.runtime.cpu.program import Code, Executable, build_code
from einnet.runtime.cpu.threads import find_symbol
from tests.runtime.plans import expected_two_layers, finish, opaque, residual_block, rng_constants, two_layers, with_opaque_nodes
from tests.runtime.reference import compute


@pytest.fixture(scope="module")
def code() -> Code:
    return build_code(two_layers(), 1)


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_two_layers_are_one_native_call(code: Code, threads: int) -> None:
    plan = two_layers()
    program = Executable(plan, threads, code=code)
    (segment,) = program._segments
    assert isinstance(segment, Steps)
    for seed in range(3):
        x = random((4, 32), seed)
        np.testing.assert_allclose(program({"x": x})["y"], expected_two_layers(plan, x), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(program.run(x)[0], program({"x": x})["y"])


def test_a_shared_weight_is_packed_once_and_its_plain_copy_is_not_kept(code: Code) -> None:
    plan = residual_block()
    program = Executable(plan, 2, code=code)
    if dnnl.available() is None:
        assert program.constant_bytes <= plan.constants["w"].nbytes + 64
    x = random((1, 12, 12, 16))
    buffers = {b.name: np.zeros(b.size, np.float32) for b in plan.buffers}
    buffers["x"][:] = x.reshape(-1)
    buffers["w"][:] = plan.constants["w"]
    for kernel in plan.kernels:
        np.lib.stride_tricks.as_strided(buffers[kernel.y.buffer], kernel.y.shape, [4 * s for s in kernel.y.strides])[...] = compute(kernel, buffers)
    np.testing.assert_allclose(program({"x": x})["y"], buffers["y"].reshape(1, 12, 12, 16), rtol=1e-3, atol=1e-3)


def test_the_arena_reuses_memory(code: Code) -> None:
    deep, shallow = (Executable(residual_block(layers=n), 1, code=code) for n in (10, 4))
    assert deep.arena_bytes == shallow.arena_bytes


def test_a_program_is_taken_apart_by_its_outputs_and_its_pieces_share_its_constants(code: Code) -> None:
    """`y` needs one input and one weight, `z` others and what `y` is made of, too."""
    constants = rng_constants({"w1": 32 * 48, "w2": 48 * 16, "w3": 8 * 16})
    views = {"x": (4, 32), "t": (4, 48), "y": (4, 16), "u": (4, 8), "z": (4, 16)}
    x, t, y, u, z = (dense_view(name, shape) for name, shape in views.items())
    w1, w2, w3 = dense_view("w1", (32, 48)), dense_view("w2", (48, 16)), dense_view("w3", (8, 16))
    kernels = (Matmul(x, w1, t), Matmul(t, w2, y), Matmul(u, w3, z, (Post("add", y),)))
    roles = {"x": "input", "u": "input", "t": "temporary"}
    buffers = [Buffer(name, prod(shape), "f32", roles.get(name, "output")) for name, shape in views.items()]
    plan = finish(buffers, kernels, constants, {"x": x, "u": u}, {"y": y, "z": z})
    whole = Executable(plan, 2, code=code)
    given = {"x": random((4, 32)), "u": random((4, 8), 1)}
    wanted = whole(given)
    for names, inputs, count in ((("y",), ("x",), 2), (("z",), ("x", "u"), 3), (("y", "z"), ("x", "u"), 3)):
        piece = Executable(plan.giving(names), 2, code=code, native=whole.native, beside=[whole])
        assert (piece.input_names, piece.output_names, len(piece.plan.kernels)) == (inputs, names, count)
        assert piece.constant_bytes == 0
        found = piece({name: given[name] for name in inputs})
        assert all(np.array_equal(found[name], wanted[name]) for name in names)


def test_other_constants_of_the_same_names_are_not_shared(code: Code) -> None:
    plan, other = two_layers(), two_layers()
    other = replace(other, constants={name: 2 * values for name, values in other.constants.items()})
    piece = Executable(other.giving(["y"]), 1, code=code, beside=[Executable(plan, 1, code=code)])
    x = random((4, 32))
    np.testing.assert_allclose(piece({"x": x})["y"], expected_two_layers(other, x), rtol=1e-4, atol=1e-4)


def test_opaque_nodes_of_other_types_between_segments(code: Code) -> None:
    plan = with_opaque_nodes()
    program = Executable(plan, 1, code=code)
    assert [isinstance(s, Steps) for s in program._segments] == [True, False, False, True]
    x = random((4, 8))
    result = program({"x": x})
    t = x.astype(np.float64) @ plan.constants["w"].reshape(8, 10)
    places = np.argsort(-t, axis=1)[:, :3]
    np.testing.assert_array_equal(result["places"], places)
    assert result["places"].dtype == np.int64
    assert result["mask"].dtype == np.bool_
    assert not result["mask"].any()
    np.testing.assert_allclose(result["y"], np.take_along_axis(t, places, 1) @ plan.constants["w2"].reshape(3, 5), rtol=1e-4, atol=1e-4)


def test_outputs_may_be_inputs_constants_and_views(code: Code) -> None:
    plan = two_layers()
    outputs = (*plan.outputs, ("same", dense_view("x", (4, 32))), ("bias", dense_view("b1", (48,))), ("row", View("y", (16,), (1,), 16)))
    program = Executable(replace(plan, outputs=outputs), 1, code=code)
    x = random((4, 32))
    result = program({"x": x})
    np.testing.assert_array_equal(result["same"], x)
    np.testing.assert_array_equal(result["bias"], plan.constants["b1"])
    np.testing.assert_array_equal(result["row"], result["y"][1])


def test_results_are_copies(code: Code) -> None:
    program = Executable(two_layers(), 1, code=code)
    first = program({"x": random((4, 32), 1)})["y"]
    kept = first.copy()
    program({"x": random((4, 32), 2)})
    np.testing.assert_array_equal(first, kept)


def test_a_caller_is_told_what_is_wrong(code: Code) -> None:
    program = Executable(two_layers(), 1, code=code)
    with pytest.raises(UsageError, match="'x' is missing"):
        program({})
    with pytest.raises(UsageError, match="unknown input 'z'"):
        program({"x": random((4, 32)), "z": random((1,))})
    with pytest.raises(UsageError, match=r"float32\[4, 31\]; expected float32\[4, 32\]"):
        program({"x": random((4, 31))})
    with pytest.raises(UsageError, match="float64"):
        program({"x": np.zeros((4, 32))})
    with pytest.raises(UsageError, match="takes 1"):
        program.run()


def one_node(names: tuple[str, str] = ("v0", "v1"), size: int | str = 4, back: bool = False) -> Plan:
    """What is largest in each row, and where: a program that is one node, with its inputs by these names and its outputs in its order or turned."""
    x, k, values, places = dense_view(names[0], (4, 6)), dense_view(names[1], (1,)), dense_view("v2", (4, 1)), dense_view("v3", (4, 1))
    call = opaque("TopK", (x, k), (values, places), 2 * (TensorProto.FLOAT, TensorProto.INT64))
    model = onnx.load_from_string(call.model)
    model.graph.input[0].type.tensor_type.shape.dim[0].CopyFrom(onnx.TensorShapeProto.Dimension(**{"dim_value" if size == 4 else "dim_param": size}))
    buffers = (
        Buffer(names[0], 24, "f32", "input"), Buffer(names[1], 1, "i64", "input"),
        Buffer("v2", 4, "f32", "output"), Buffer("v3", 4, "i64", "output"),
    )  # fmt: skip
    outputs = (("v2", values), ("v3", places))
    return Plan(buffers, (replace(call, model=model.SerializeToString()),), ((names[0], x), (names[1], k)), outputs[:: -1 if back else 1])


@pytest.mark.parametrize(
    ("plan", "named"), [(one_node(), True), (one_node(("x", "k")), False), (one_node(size="rows"), False), (one_node(back=True), False)],
    ids=["as it is", "other names", "any size", "turned"],
)  # fmt: skip
def test_a_program_that_is_one_node_gives_what_it_gives_and_refuses_what_another_would(plan: Plan, named: bool) -> None:
    program = Executable(plan, 1)
    assert (program._named is not None) == named
    (data, k), x = program.input_names, random((4, 6))
    one = np.array([1], np.int64)
    for given in (x, x[:, ::-1], np.asfortranarray(x)):
        made = program({data: given, k: one})
        assert list(made) == [name for name, _ in plan.outputs]
        np.testing.assert_array_equal(made["v2"][:, 0], given.max(axis=1))
        np.testing.assert_array_equal(made["v3"][:, 0], given.argmax(axis=1))
    wrong = {
        "is missing": {data: x}, "unknown input 'z'": {data: x, k: one, "z": x}, r"float32\[3, 6\]; expected float32\[4, 6\]": {data: x[:3], k: one},
        r"float64\[4, 6\]": {data: x.astype(np.float64), k: one}, r"int64\[2\]": {data: x, k: np.array([1, 1])},
    }  # fmt: skip
    for words, inputs in wrong.items():
        with pytest.raises(UsageError, match=words):
            program(inputs)
    program.release()
    np.testing.assert_array_equal(program({data: x, k: one})["v2"][:, 0], x.max(axis=1))


def test_concurrent_calls_are_correct(code: Code) -> None:
    plan = two_layers(m=16, k=64, h=256, n=64)
    program = Executable(plan, 2, code=code)
    failures: list[str] = []

    def work(seed: int) -> None:
        x = random((16, 64), seed)
        expected = expected_two_layers(plan, x)
        results = [program.run(x)[0] for _ in range(50)]
        failures.extend(f"thread {seed}" for y in results if not np.allclose(y, expected, rtol=1e-3, atol=1e-3))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def test_native_code_links_without_onednn(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "find_symbol", lambda name: None if name.startswith("dnnl") else find_symbol(name))
    Steps(Native(code.support), [], 1)()


def test_profile_has_every_kernel(code: Code) -> None:
    program = Executable(with_opaque_nodes(), 1, code=code)
    rows = program.profile(repeats=3)
    assert [r.kernel for r in rows] == list(program.plan.kernels)
    assert all(r.timing.median > 0 and r.timing.n == 3 for r in rows)
    assert [r.implementation for r in rows][1:3] == ["onnxruntime", "onnxruntime"]


@pytest.mark.parametrize("plan", [two_layers(), residual_block(size=6), with_opaque_nodes()], ids=["matmul", "conv", "opaque"])
def test_without_onednn_onnx_runtime_runs_the_vendor_kernels(plan: Plan, code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    if dnnl.available():
        pytest.skip("nothing to compare with")
    name, view = plan.inputs[0]
    x = random(view.shape)
    expected = Executable(plan, 1, code=code)({name: x})
    monkeypatch.setattr(dnnl, "available", lambda: "taken away by a test")
    result = Executable(plan, 1, code=code)({name: x})
    for key, value in expected.items():
        np.testing.assert_allclose(result[key], value, rtol=1e-4, atol=1e-4)


BAD = {
    "beyond buffer x": lambda p: replace(p, inputs=(("x", dense_view("x", (5, 32))),)),
    "does not declare": lambda p: replace(p, buffers=tuple(b for b in p.buffers if b.name != "t")),
    "before anything is written": lambda p: replace(p, kernels=p.kernels[1:]),
    "needs 48 values": lambda p: replace(p, constants={k: v for k, v in p.constants.items() if k != "b1"}),
    "one name": lambda p: replace(p, buffers=(*p.buffers, p.buffers[0])),
    "writes to the constant": lambda p: replace(p, kernels=(*p.kernels, replace(p.kernels[1], c=dense_view("w1", (4, 16))))),
    "no storage": lambda p: replace(p, buffers=(*p.buffers, Buffer("s", 1, "string", "temporary"))),
    "nothing is written": lambda p: replace(p, kernels=()),
}


@pytest.mark.parametrize("message", BAD)
def test_malformed_plans_are_refused(message: str, code: Code) -> None:
    with pytest.raises(UsageError, match=message):
        Executable(BAD[message](two_layers()), 1, code=code)
