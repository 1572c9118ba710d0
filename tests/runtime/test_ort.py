"""ONNX Runtime beside a program: sessions, bound calls, errors that name the node."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from einnet.errors import BackendError, UsageError
from einnet.graph.dtypes import NUMPY
from einnet.instantiate.kernels import dense_view
from einnet.runtime import machine, ort
from einnet.runtime.ort import STOP, Baseline, OpaqueNode, Session
from tests.runtime.plans import opaque

X, Y = dense_view("x", (3, 4)), dense_view("y", (4, 3))
TRANSPOSE = opaque("Transpose", (X,), (Y,), (TensorProto.FLOAT, TensorProto.FLOAT), perm=[1, 0])
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_session_tells_its_arguments_and_runs() -> None:
    session = Session(TRANSPOSE.model, 1)
    assert [(a.name, a.shape, a.dtype) for a in (*session.inputs, *session.outputs)] == [("v0", (3, 4), np.float32), ("v1", (4, 3), np.float32)]
    np.testing.assert_array_equal(session({"v0": VALUES})["v1"], VALUES.T)


def test_a_bound_call_reads_and_writes_in_place(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(TRANSPOSE.model)
    x, y = VALUES.copy(), np.zeros((4, 3), np.float32)
    call = Session(tmp_path / "m.onnx", 2).bind([x], [y])
    call()
    np.testing.assert_array_equal(y, VALUES.T)
    x += 1
    call()
    np.testing.assert_array_equal(y, VALUES.T + 1)
    (given,) = Session(tmp_path / "m.onnx", 1)({"v0": VALUES.astype(np.float32)}).values()
    assert given.flags.owndata, "what is given out must not keep the session's memory alive"


def test_a_baseline_rests_and_wakes() -> None:
    run = Baseline(TRANSPOSE.model, {"v0": VALUES.astype(np.float32)[:, ::-1]}, 1, frugal=True)
    for _ in range(2):
        run()
        run.rest()


def test_an_opaque_node_rests_and_wakes() -> None:
    x, y = VALUES.astype(np.float32), np.zeros((4, 3), np.float32)
    node = OpaqueNode(TRANSPOSE.model, [x], [y], 1, "Transpose")
    node.rest()
    node()
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("name", NUMPY)
def test_element_types_cross(name: str) -> None:
    kind = {"f": "FLOAT", "i": "INT", "u": "UINT", "b": "BOOL"}[name[0]]
    number = getattr(TensorProto, {"f32": "FLOAT", "f64": "DOUBLE", "f16": "FLOAT16", "bool": "BOOL"}.get(name, kind + name[1:]))
    call = opaque("Transpose", (X,), (Y,), (number, number), perm=[1, 0])
    x, y = (np.arange(12) % 2).reshape(3, 4).astype(NUMPY[name]), np.zeros((4, 3), NUMPY[name])
    assert Session(call.model, 1).inputs[0].dtype == x.dtype
    OpaqueNode(call.model, [x], [y], 1, "Transpose")()
    np.testing.assert_array_equal(y, x.T)


def shared_weight() -> bytes:
    """Two products of bytes that read one weight."""
    held = {"w": np.arange(-8, 8, dtype=np.int8).reshape(4, 4) * 15, "s": np.float32(0.125), "z": np.int8(0), "u": np.uint8(128)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "u"], ["x0q"]), helper.make_node("DequantizeLinear", ["x0q", "s", "u"], ["x0"])]
    for n in range(2):
        nodes += [
            helper.make_node("DequantizeLinear", ["w", "s", "z"], [f"w{n}"]),
            helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"y{n}"]),
            helper.make_node("QuantizeLinear", [f"y{n}", "s", "u"], [f"x{n + 1}q"]),
            helper.make_node("DequantizeLinear", [f"x{n + 1}q", "s", "u"], [f"x{n + 1}"]),
        ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in ("x", "x2")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(a), name) for name, a in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("features", [{"avx2"}, {"avx2", "avx512_vnni"}])
def test_a_weight_that_two_products_of_bytes_read(features: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = shared_weight(), {"x": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)}
    wanted = Session(model, 1, as_written=True)(x)["x2"]
    monkeypatch.setattr(machine, "cpu_features", lambda: frozenset(features))
    np.testing.assert_array_equal(Session(model, 1)(x)["x2"], wanted)


def test_sums_of_bytes_are_asked_to_be_whole_only_where_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, asked in (({"avx2"}, (ort.WHOLE_SUMS,)), ({"avx2", "avx512_vnni"}, ()), ({"sse2"}, ())):
        monkeypatch.setattr(machine, "cpu_features", lambda found=frozenset(features): found)
        assert ort.whole_sums() == asked


def weight_of_few_bits(*, zero: bool) -> bytes:
    """A product of floats and bytes with a scale for each column, and with zero points or without."""
    rng = np.random.default_rng(0)
    held = {"w": rng.integers(-127, 128, (64, 32)).astype(np.int8), "s": rng.uniform(0.001, 0.01, 32).astype(np.float32)}
    held |= {"z": np.zeros(32, np.int8)} if zero else {}
    nodes = [helper.make_node("DequantizeLinear", [*held], ["v"], axis=1), helper.make_node("MatMul", ["x", "v"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name, size in (("x", 64), ("y", 32))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(a, name) for name, a in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("zero", [False, True])
def test_a_weight_of_few_bits_has_no_rounded_factor(zero: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor does it end a run where sums of bytes are to be whole: ONNX Runtime gives scales of columns one zero point there, and refuses that."""
    monkeypatch.setattr(machine, "cpu_features", lambda: frozenset({"avx2"}))
    model, x = weight_of_few_bits(zero=zero), {"x": np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)}
    wanted = Session(model, 1, as_written=True)(x)["y"]
    np.testing.assert_allclose(Session(model, 1)(x)["y"], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    assert Session(model, 1, rounds=True)(x)["y"].shape == wanted.shape
    y = np.zeros((4, 32), np.float32)
    call = Session(model, 1).bind([x["x"]], [y])
    for _ in range(2):
        y[...] = 0
        call()
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    assert "onnxruntime" not in capfd.readouterr().err


def test_errors() -> None:
    with pytest.raises(BackendError, match="does not accept the model"):
        Session(b"no model", 1)
    with pytest.raises(BackendError, match="does not accept Conv 'stem'"):
        OpaqueNode(b"no model", [], [], 1, "Conv 'stem'")
    with pytest.raises(BackendError, match="Transpose 'n': the node has 1 inputs, the program gives 0"):
        OpaqueNode(TRANSPOSE.model, [], [], 1, "Transpose 'n'")
    with pytest.raises(UsageError, match="cannot run the model"):
        Session(TRANSPOSE.model, 1)({"v0": VALUES[:2]})


def test_a_node_that_fails_is_named() -> None:
    table, places, picked = dense_view("t", (4,)), dense_view("p", (2,)), dense_view("o", (2,))
    gather = opaque("Gather", (table, places), (picked,), (TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT))
    at = np.array([1, 2], np.int64)
    out = np.zeros(2, np.float32)
    call = OpaqueNode(gather.model, [np.arange(4, dtype=np.float32), at], [out], 1, "Gather 'embedding'")
    call()
    np.testing.assert_array_equal(out, [1, 2])
    at[1] = 77
    with pytest.raises(BackendError, match="Gather 'embedding' failed"):
        call()


def test_a_large_model_is_read_from_a_file_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ort, "LARGE", len(TRANSPOSE.model))
    session = Session(TRANSPOSE.model, 1)
    assert session.session._model_path.startswith(str(tmp_path)), "of bytes it would keep these"
    assert not list(tmp_path.iterdir())
    assert session.outputs
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no folder"))
    assert Session(TRANSPOSE.model, 1).outputs, "where nothing can be written it takes the bytes"


@pytest.mark.parametrize("stops", [False, True])
def test_threads_of_a_node_wait_within_a_run_alone_where_others_compute_beside_it(stops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpaqueNode, "stops", stops)
    inputs, outputs = [VALUES.astype(np.float32)], [np.zeros(VALUES.T.shape, np.float32)]
    for spin in (False, True):
        node = OpaqueNode(TRANSPOSE.model, inputs, outputs, 1, "Transpose", spin=spin)
        assert node.session is not None
        options = node.session.session.get_session_options()
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == str(int(spin))
        if spin and stops:
            assert options.get_session_config_entry(STOP[0]) == "1"
        else:
            with pytest.raises(RuntimeError, match=STOP[0]):
                options.get_session_config_entry(STOP[0])


def test_a_baseline_runs_in_a_session_that_is_there_until_it_rests() -> None:
    inputs = {"v0": VALUES.astype(np.float32)}
    session = Session(TRANSPOSE.model, 1, spin=True)
    run = Baseline(b"no model", inputs, 1, shared=session)
    run()
    run.rest()
    with pytest.raises(BackendError, match="does not accept"):
        run()
