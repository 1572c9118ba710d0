"""ONNX Runtime beside a program: sessions, bound calls, errors that name the node."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from einnet.errors import BackendError, UsageError
from einnet.graph.dtypes import NUMPY
from einnet.instantiate.kernels import dense_view
from einnet.runtime import ort
from einnet.runtime.ort import Baseline, OpaqueNode, Session
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


def test_a_baseline_runs_in_a_session_that_is_there_until_it_rests() -> None:
    inputs = {"v0": VALUES.astype(np.float32)}
    session = Session(TRANSPOSE.model, 1, spin=True)
    run = Baseline(b"no model", inputs, 1, shared=session)
    run()
    run.rest()
    with pytest.raises(BackendError, match="does not accept"):
        run()
