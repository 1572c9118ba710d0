"""Large models in files: their weights stay there, and the model is the same."""

from __future__ import annotations

import gc
import subprocess
import sys
from math import inf
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from google.protobuf.message import EncodeError
from onnxruntime import InferenceSession

import einnet
from einnet.errors import ModelError
from einnet.graph import in_file
from einnet.graph.in_file import ModelFile, file_memory, let_go, memory_of, model_bytes, model_key, still_there
from einnet.graph.onnx import mapped as module
from einnet.graph.onnx.digest import digest
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.mapped import InFile, beside, mapped, parted, serialised_in_pieces, tensor, write
from einnet.graph.onnx.read import bytes_of, kept, read, serialised


def model() -> onnx.ModelProto:
    """Weights of several types, small ones and large ones, and one that is written as numbers, not as bytes."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((128, 128)).astype(np.float32), "small": rng.standard_normal(128).astype(np.float32),
        "h": rng.standard_normal((128, 256)).astype(np.float16), "empty": np.zeros((0, 4), np.float32), "i": np.arange(9000),
    }  # fmt: skip
    held = [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()]
    held.append(onnx.helper.make_tensor("listed", onnx.TensorProto.FLOAT, [128, 128], rng.standard_normal(1 << 14).tolist()))
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"]), onnx.helper.make_node("Add", ["a", "small"], ["b"]),
        onnx.helper.make_node("Cast", ["h"], ["c"], to=1), onnx.helper.make_node("MatMul", ["b", "c"], ["d"]),
        onnx.helper.make_node("MatMul", ["b", "listed"], ["e"]), onnx.helper.make_node("Concat", ["d", "e"], ["y"], axis=1),
        onnx.helper.make_node("Add", ["i", "k"], ["z"]), onnx.helper.make_node("Identity", ["empty"], ["n"]),
    ]  # fmt: skip
    value = onnx.helper.make_tensor_value_info
    given = [value("x", 1, [4, 128]), value("k", 7, [1])]
    results = [value("y", 1, [4, 384]), value("z", 7, [9000]), value("n", 1, [0, 4])]
    graph = onnx.helper.make_graph(nodes, "g", given, results, held, doc_string="a note")
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model in a file that counts as large."""
    monkeypatch.setattr(module, "LARGE_FILE", 1)
    monkeypatch.setattr("einnet.graph.onnx.read.LARGE_FILE", 1)
    onnx.save(model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_values_of_large_weights_stay_in_the_file(path: Path) -> None:
    found = mapped(path)
    assert found is not None and found.values.keys() == {"w", "h", "i"}
    assert found.proto.ByteSize() < path.stat().st_size - sum(map(len, found.values.values()))
    whole = onnx.ModelProto()
    whole.CopyFrom(found.proto)
    for weight in whole.graph.initializer:
        if weight.name in found.values:
            weight.raw_data = bytes(found.values[weight.name])
    assert whole == model()
    protos = {w.name: w for w in found.proto.graph.initializer}
    for weight in model().graph.initializer:
        if weight.name in found.values:
            np.testing.assert_array_equal(tensor(protos[weight.name], found.values[weight.name]).numpy(), onnx.numpy_helper.to_array(weight))


def test_what_is_read_of_it_is_the_model(path: Path) -> None:
    constants = read(path).graph.initializers
    assert {name for name, value in constants.items() if isinstance(value.const_value, InFile)} == {"w", "h", "i"}
    one, other = load(path), load(model())
    assert (one.nodes, one.outputs) == (other.nodes, other.outputs)
    for name, value in other.weights.items():
        np.testing.assert_array_equal(one.weights[name], value)
    (w,) = (value for value in one.weights.values() if value.shape == (128, 128) and file_memory(value) is not None)
    before = w.copy()
    let_go(w)
    np.testing.assert_array_equal(w, before)
    assert digest(path) == digest(model())


def test_what_is_no_large_model_is_read_as_a_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path.read_bytes()
    for name, content in {"cut.onnx": data[: len(data) // 2], "other.onnx": b"\xff" * 100, "plain.pb": data, "none.onnx": b""}.items():
        (path.parent / name).write_bytes(content)
        assert name == "none.onnx" or mapped(path.parent / name) is None
    with pytest.raises(ModelError, match="not an ONNX file"):
        read(path.parent / "cut.onnx")
    assert mapped(stored_apart(path.parent)) is None and digest(path.parent / "apart.onnx") == digest(path)
    monkeypatch.setattr(module, "LARGE_FILE", len(data) + 1)
    assert mapped(path) is None


def stored_apart(folder: Path) -> Path:
    """The model in a file whose weights are in another one."""
    onnx.save(model(), folder / "apart.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return folder / "apart.onnx"


def test_weights_in_another_file_stay_there(tmp_path: Path) -> None:
    path = stored_apart(tmp_path)
    constants = read(path).graph.initializers
    assert {name for name, value in constants.items() if isinstance(value.const_value, InFile)} == {"w", "small", "h", "i", "empty"}
    one, other = load(path), load(model())
    assert (one.nodes, one.outputs) == (other.nodes, other.outputs)
    for name, value in other.weights.items():
        np.testing.assert_array_equal(one.weights[name], value)
    held = [memory for value in one.weights.values() if (memory := file_memory(value)) is not None]
    assert held and {memory.path.name for memory in held} == {"weights"}
    with (tmp_path / "weights").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ModelError, match="weights has changed since"):
        still_there(one.weights.values())


def told(proto: onnx.ModelProto, **changes: str) -> onnx.ModelProto:
    """The model, of whose first weight something else is said."""
    for entry in proto.graph.initializer[0].external_data:
        entry.value = changes.get(entry.key, entry.value)
    return proto


@pytest.mark.parametrize(
    "changes", [{"location": "none"}, {"location": "../weights"}, {"location": "link"}, {"location": "void"}, {"offset": "999999999"}]
)
def test_what_cannot_be_found_in_another_file_is_told(changes: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = stored_apart(tmp_path / "in")
    (tmp_path / "weights").write_bytes((tmp_path / "in" / "weights").read_bytes())
    (tmp_path / "in" / "link").symlink_to(tmp_path / "weights")
    (tmp_path / "in" / "void").touch()
    proto = told(onnx.load(path, load_external_data=False), **changes)
    path.write_bytes(proto.SerializeToString())
    assert "w" not in dict(beside(proto, path.parent)) and "w" not in dict(beside(told(proto, location="weights", length="4"), path.parent))
    with pytest.raises(ModelError, match=r"apart\.onnx"):
        load(path)


def test_a_weight_of_no_type_is_told(tmp_path: Path) -> None:
    path = stored_apart(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].data_type = 99
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        load(path)


def test_the_digest_of_weights_in_other_files_is_that_of_the_model_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = stored_apart(tmp_path), digest(model())
    assert digest(path) == whole
    monkeypatch.setattr("einnet.graph.onnx.digest.LARGEST", model().ByteSize() - 1)
    assert digest(path) == whole and digest(model()) is None


def test_a_model_is_written_into_two_files(tmp_path: Path) -> None:
    proto, values = parted(ir.from_proto(model()))
    write(proto, values, tmp_path / "m.onnx")
    found, given = onnx.load(tmp_path / "m.onnx"), {"x": np.ones((4, 128), np.float32), "k": np.array([3])}
    wanted, had = (InferenceSession(m) for m in (model().SerializeToString(), str(tmp_path / "m.onnx")))
    for one, other in zip(had.run(None, given), wanted.run(None, given), strict=True):
        np.testing.assert_array_equal(one, other)
    in_bytes = model()
    in_bytes.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(in_bytes.graph.initializer[-1]), "listed"))
    assert digest(found) == digest(in_bytes) == digest(tmp_path / "m.onnx")
    weights = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    places = [int(e.value) for w in weights for e in w.external_data if e.key == "offset"]
    assert len(places) == 4 and not any(place % 4096 for place in places)


def test_a_model_in_memory_is_written_from_where_its_weights_are() -> None:
    given = ir.from_proto(model())
    transposed = np.arange(4e4, dtype=np.float32).reshape(100, 400).T
    given.graph.initializers["w"].const_value = ir.Tensor(transposed, name="w")
    before = {name: value.const_value for name, value in given.graph.initializers.items()}
    proto, values = parted(given)
    assert values.keys() == {"w", "h", "i", "listed"} and proto.ByteSize() < 20000
    assert {name: value.const_value for name, value in given.graph.initializers.items()} == before
    found = onnx.ModelProto.FromString(b"".join(serialised_in_pieces(proto, values)))
    wanted = ir.to_proto(given)
    arrays = [{w.name: onnx.numpy_helper.to_array(w) for w in m.graph.initializer} for m in (found, wanted)]
    for name, value in arrays[1].items():
        np.testing.assert_array_equal(arrays[0].pop(name), value)
    for one in (found, wanted):
        one.graph.ClearField("initializer")
    assert found == wanted and not arrays[0]


def test_of_two_weights_of_one_name_the_second_is_in_the_model(path: Path) -> None:
    doubled = model()
    doubled.graph.initializer.add().CopyFrom(doubled.graph.initializer[0])
    onnx.save(doubled, path)
    found = mapped(path)
    assert found is not None and [len(w.raw_data) > 0 for w in found.proto.graph.initializer if w.name == "w"] == [False, True]


def test_a_large_model_is_kept_as_its_file(path: Path) -> None:
    found = kept(path)
    assert isinstance(found, ModelFile) and model_bytes(found) == path.read_bytes()
    assert model_key(found) == model_key(path.read_bytes())
    data, other = path.read_bytes(), path.with_name("other.onnx")
    assert found.source() == path
    other.write_bytes(data + b"more")
    other.replace(path)
    assert found.source() == found.read() == data and model_key(found) == model_key(data)
    path.unlink()
    assert found.source() == data


def test_a_large_model_in_two_files_is_kept_as_these(path: Path) -> None:
    path = stored_apart(path.parent)
    found = kept(path)
    assert isinstance(found, ModelFile) and found.source() == path
    data = model_bytes(found)
    assert digest(onnx.load_model_from_string(data)) == digest(model()) and model_key(found) == model_key(data)
    other = path.with_name("others")
    other.write_bytes(path.with_name("weights").read_bytes() + b"more")
    other.replace(path.with_name("weights"))
    assert found.source() == data
    path.with_name("weights").unlink()
    assert found.source() == data and model_key(found) == model_key(data)


def test_a_large_model_whose_weights_were_written_over_is_no_longer_kept(path: Path) -> None:
    found = kept(stored_apart(path.parent))
    assert isinstance(found, ModelFile)
    with path.with_name("weights").open("ab") as file:
        file.write(b"more")
    for ask in (found.source, found.read, lambda: model_key(found)):
        with pytest.raises(ModelError, match="weights has changed since"):
            ask()


def test_no_model_of_more_bytes_than_a_protobuf_can_have_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = stored_apart(path.parent)
    monkeypatch.setattr("einnet.graph.onnx.read.LARGEST", model().ByteSize() - 1)
    assert kept(apart) is None and serialised(apart) is None


def test_a_large_model_that_was_written_over_is_no_longer_kept(path: Path) -> None:
    found = kept(path)
    assert isinstance(found, ModelFile)
    with path.open("ab") as file:
        file.write(b"more")
    for ask in (found.source, found.read, lambda: model_key(found)):
        with pytest.raises(ModelError, match="has changed since"):
            ask()


def test_no_plan_is_made_of_weights_that_were_written_over(path: Path) -> None:
    """They would be others, or the process would end where the file is shorter now."""
    outcome = einnet.optimize(path, derive=False, time_budget=5, threads=1).outcome
    assert outcome.plan().constants
    with path.open("r+b") as file:
        file.truncate(1000)
    for ask in (outcome.plan, lambda: still_there(outcome.program.weights.values())):
        with pytest.raises(ModelError, match="has changed since"):
            ask()


LARGE = """
import sys
from pathlib import Path
from einnet.evidence.comparison.verdicts import model_digest
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.read import kept
from einnet.graph.in_file import let_go, model_key
from einnet.graph.passes.prepare import prepare
from einnet.runtime.capacity import give_back, growth

def run(path):
    with growth() as reading:
        program = prepare(load(path))
    for value in program.weights.values():
        let_go(value)
    give_back()
    with growth() as digest:
        model_digest(path), kept(path) and model_key(kept(path))
    return reading.nbytes or 0, digest.nbytes or 0

run(sys.argv[1])
print(*run(sys.argv[2]))
"""


def test_a_large_model_is_in_memory_once_while_it_is_read_and_hardly_while_its_digest_is_taken(tmp_path: Path) -> None:
    """In a process of its own, which has read a small model before: what a library takes when it is first used does not count."""
    rng, sizes = np.random.default_rng(0), {"small.onnx": 64, "large.onnx": 1536}
    for name, n in sizes.items():
        held = [onnx.numpy_helper.from_array(rng.standard_normal((n, n), dtype=np.float32), f"w{k}") for k in range(7)]
        nodes = [onnx.helper.make_node("MatMul", [f"t{k}", f"w{k}"], [f"t{k + 1}"]) for k in range(7)]
        ends = [onnx.helper.make_tensor_value_info(t, 1, [2, n]) for t in ("t0", "t7")]
        graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / name)
    command = [sys.executable, "-c", LARGE, *(str(tmp_path / name) for name in sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    weights = 7 * 4 * 1536**2
    reading, rest = (int(n) / weights for n in done.stdout.split())
    assert reading < 1.7 and rest < 0.7, done.stdout


def test_a_file_is_closed_when_nothing_of_it_is_in_use(path: Path, recwarn: pytest.WarningsRecorder) -> None:
    memory = memory_of(path)
    values, file = np.frombuffer(memoryview(memory)[:8], np.uint8), memory.file
    del memory
    assert not file.closed and values.sum() > 0
    del values
    gc.collect()
    assert file.closed and not [w for w in recwarn if w.category is ResourceWarning]


def test_only_memory_of_a_file_is_let_go(path: Path) -> None:
    values = np.ones(1 << 16, np.float32)
    let_go(values)
    assert values.all() and file_memory(values) is None
    data = memoryview(memory_of(path))
    seen = bytes(data)
    let_go(data)
    assert bytes(data) == seen and in_file.file_memory(data[5:9]) is not None


def test_how_many_bytes_a_model_has_is_told_where_the_library_does_not_count_them() -> None:
    class Large:
        def ByteSize(self) -> int:
            raise EncodeError("Failed to serialize proto")

    assert bytes_of(Large()) == inf and bytes_of(model()) == len(model().SerializeToString())
