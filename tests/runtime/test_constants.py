"""Constants in an archive: what comes back, what is read for it, and what is refused."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import ArtifactError, ModelError
from einnet.graph.dtypes import NUMPY
from einnet.graph.in_file import memory_of
from einnet.runtime.cpu.program import Executable
from einnet.runtime.sealed import open_sealed, sealed_archive
from einnet.runtime.stored_constants import StoredConstants, array_bytes, array_from, write_array
from tests.runtime.plans import two_layers


def archive(path: Path, *members: bytes) -> StoredConstants:
    """An archive with these members, as constants a, b..."""
    with zipfile.ZipFile(path, "w") as file:
        for n, data in enumerate(members):
            file.writestr(f"constants/{n}.npy", data)
    return StoredConstants(zipfile.ZipFile(path), {chr(ord("a") + n): n for n in range(len(members))})


def numpy_file(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


@pytest.mark.parametrize("name", NUMPY)
def test_values_come_back(name: str, tmp_path: Path) -> None:
    values = np.random.default_rng(4).integers(0, 2, (3, 5)).astype(NUMPY[name])
    found = archive(tmp_path / "a.zip", array_bytes(values), array_bytes(values[:0]))
    assert list(found) == ["a", "b"]
    assert [found.count(n) for n in found] == [15, 0]
    assert found["a"].dtype == values.dtype
    np.testing.assert_array_equal(found["a"], values.reshape(-1))
    assert found["b"].shape == (0,)


REFUSED = {
    "junk": b"junk",
    "nothing": b"",
    "two dimensions": numpy_file(np.zeros((2, 3), np.float32)),
    "complex numbers": numpy_file(np.zeros(3, np.complex64)),
    "the other byte order": numpy_file(np.zeros(3, ">f4")),
    "too short": array_bytes(np.zeros(3, np.float32))[:-1],
    "too long": array_bytes(np.zeros(3, np.float32)) + b"\0",
    "another version of the format": b"\x93NUMPY\x02\x00" + array_bytes(np.zeros(3, np.float32))[8:],
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_constant_is_refused_by_head_and_by_value(what: str, tmp_path: Path) -> None:
    found = archive(tmp_path / "a.zip", REFUSED[what])
    with pytest.raises(ArtifactError, match="constant a of a stored program cannot be read"):
        found.count("a")
    with pytest.raises(ArtifactError, match="constant a of a stored program cannot be read"):
        found["a"]
    with pytest.raises(ValueError):
        array_from(REFUSED[what])


def test_a_count_reads_no_values(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    found = archive(path, array_bytes(np.full(4096, 7, np.uint8)))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\7" * 4096, b"\7" * 4095 + b"\6"))
    assert found.count("a") == 4096
    with pytest.raises(ArtifactError, match="CRC"):
        found["a"]


def test_a_program_reads_each_constant_once(tmp_path: Path) -> None:
    plan, read = two_layers(), []

    class Counted(StoredConstants):
        def __getitem__(self, name: str) -> np.ndarray:
            read.append(name)
            return super().__getitem__(name)

    archive(tmp_path / "a.zip", *map(array_bytes, plan.constants.values()))
    stored = Counted(zipfile.ZipFile(tmp_path / "a.zip"), {name: n for n, name in enumerate(plan.constants)})
    Executable(replace(plan, constants=stored), 1)
    assert sorted(read) == sorted(plan.constants)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.bool_, np.int64, np.uint8])
def test_what_is_written_without_a_copy_is_the_same(tmp_path: Path, dtype: type[np.generic]) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for n, given in enumerate((values, values.T, values[:0])):
        with sealed_archive(tmp_path / f"{n}") as made:
            write_array(made, "constants/0.npy", given)
        assert open_sealed(tmp_path / f"{n}").read("constants/0.npy") == array_bytes(given)


def test_values_of_a_file_that_has_changed_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(range(64)))
    values = np.frombuffer(memoryview(memory_of(tmp_path / "weights"))[3:19], np.float32)
    with sealed_archive(tmp_path / "first") as made:
        write_array(made, "constants/0.npy", values)
    assert open_sealed(tmp_path / "first").read("constants/0.npy") == array_bytes(values)
    with (tmp_path / "weights").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ModelError, match="has changed since"), sealed_archive(tmp_path / "second") as made:
        write_array(made, "constants/0.npy", values)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "weights"]


def held(path: Path) -> int:
    """Bytes of a file that this process holds by its memory."""
    rows = Path("/proc/self/smaps").read_text().splitlines()
    starts = [n for n, row in enumerate(rows) if row.endswith(str(path))]
    return sum(1024 * int(next(row for row in rows[n:] if row.startswith("Rss:")).split()[1]) for n in starts)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system tells no memory")
@pytest.mark.parametrize("before", [0, 1])
def test_a_program_lets_go_of_what_it_has_read_of_a_file(before: int, tmp_path: Path) -> None:
    """Also where the values lie there at odd bytes, so that they are copied before they are packed."""
    plan = two_layers(4, 512, 512, 512)
    path = tmp_path / "values"
    path.write_bytes(b"x" * before + b"".join(values.tobytes() for values in plan.constants.values()))
    memory, constants, at = memory_of(path), {}, before
    for name, values in plan.constants.items():
        constants[name] = np.frombuffer(memory, np.float32, values.size, at)
        at += values.nbytes
    assert sum(float(values[0]) for values in constants.values()) == sum(float(values[0]) for values in plan.constants.values())
    assert held(path) > 0
    program = Executable(replace(plan, constants=constants), 1)
    assert held(path) < path.stat().st_size / 8
    np.testing.assert_array_equal(program.run(np.ones((4, 512), np.float32))[0], Executable(plan, 1).run(np.ones((4, 512), np.float32))[0])
