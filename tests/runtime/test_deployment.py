"""Stored programs where nothing is installed but numpy, msgspec and oneDNN's library: a process that can import nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import einnet
from einnet.compile.grid.making import making
from einnet.records import as_json
from einnet.runtime import artifact, pool
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.program import Executable, build_code
from einnet.search.settings import Settings
from tests.mutated import with_manifest
from tests.runtime.plans import two_layers

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))

SCRIPT = """
import sys
sys.path[:] = [{library!r}, *(p for p in sys.path if p and "site-packages" not in p and {source!r} not in p)]
import numpy as np, einnet
for name in ("tvm", "tvm_ffi", "onnx", "onnxruntime", "islpy", "sympy", "rich"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{{name}} can be imported: this tests nothing")
try:
    program = einnet.load(sys.argv[1])
    for rows in map(int, sys.argv[2:]):
        x = np.linspace(-1, 1, 32 * rows, dtype=np.float32).reshape(rows, 32)
        print(*next(iter(program(x).values())).ravel().view(np.uint32))
except einnet.EinNetError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from that holds einnet, numpy and msgspec, and nothing else."""
    folder = tmp_path_factory.mktemp("library")
    numpy = Path(np.__file__).parent
    for source in (Path(einnet.__file__).parent, Path(msgspec.__file__).parent, numpy, *numpy.parent.glob("numpy.libs")):
        (folder / source.name).symlink_to(source)
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program for 4 rows, one for processors of a level, one for 1 to 3 rows, and one that has plans for two of them."""
    folder = tmp_path_factory.mktemp("stored")
    metadata = {"report": {}, "certificate": [], "considered": []}
    found = {name: folder / f"{name}.einnet" for name in ("static", "level", "ranged", "grid")}
    artifact.save(found["static"], two_layers(), build_code(two_layers(), 1), metadata, threads=1)
    artifact.save(found["level"], two_layers(), build_code(two_layers(), 1, Objects(1, cpu="x86-64-v3")), metadata, threads=1)
    collected = pool.Pool()
    members = {rows: collected.add(two_layers(rows), build_code(two_layers(rows), 1)) for rows in (1, 2, 3)}
    report = {"model": "m", "dynamic": {"name": "rows", "lowest": 1, "highest": 3}, "sizes": {"1": {}, "2": {}, "3": {}}}
    pool.save(found["ranged"], collected, members, {"report": report}, [], 1)
    told = {str(rows): replace(members[rows], metadata=metadata) for rows in (1, 3)}
    (name,) = (name for name, _ in two_layers().inputs)
    ranges = {"dynamic": [report["dynamic"]], "shapes": {name: ["rows", 32]}, "making": as_json(making(Settings(threads=1), 1.0))}
    pool.save(found["grid"], collected, told, {"report": {"model": "m", **ranges, "sizes": {"1": {}, "3": {}}}, "model": 0}, [], 1, pool.GRID)
    return found


def alone(library: Path, *arguments: object, **environment: str) -> list[str]:
    """What the script prints in an interpreter without site packages."""
    script = SCRIPT.format(library=str(library), source=str(Path(einnet.__file__).parents[1]))
    variables = {"EINNET_DNNL": dnnl.library().path, "PATH": os.defpath, **environment}
    command = [sys.executable, "-S", "-c", script, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=library, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def expected(rows: int) -> str:
    x = np.linspace(-1, 1, 32 * rows, dtype=np.float32).reshape(rows, 32)
    (y,) = Executable(two_layers(rows), 1).run(x)
    return " ".join(map(str, y.ravel().view(np.uint32)))


@pytest.mark.parametrize(("name", "rows"), [("static", (4,)), ("level", (4,)), ("ranged", (1, 3, 2, 1)), ("grid", (1, 3, 1))])
def test_programs_run_without_anything_else(name: str, rows: tuple[int, ...], library: Path, stored: dict[str, Path]) -> None:
    assert alone(library, stored[name], *rows) == [expected(n) for n in rows]


@pytest.mark.parametrize("name", ["static", "ranged"])
def test_code_for_another_processor_is_refused_with_a_word(name: str, library: Path, stored: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "other.einnet"
    path.write_bytes(with_manifest(stored[name].read_bytes(), lambda manifest: manifest["machine"]["features"].append("avx999")))
    (line,) = alone(library, path, 3)
    assert line.startswith("refused: built for")
    assert "this processor lacks avx999; it cannot be built again: TVM cannot be imported" in line


def test_a_plan_that_nobody_can_make_is_told(library: Path, stored: dict[str, Path]) -> None:
    (line,) = alone(library, stored["grid"], 2)
    assert line.startswith("refused: ") and "holds no plan for rows = 2, and none can be made here: " in line and line.endswith("is not installed")


def test_without_onednn_it_says_what_is_missing(library: Path, stored: dict[str, Path]) -> None:
    (line,) = alone(library, stored["static"], 4, EINNET_DNNL="/nowhere/libdnnl.so.3")
    assert line.startswith("refused: oneDNN cannot be loaded from /nowhere/libdnnl.so.3")
    assert "ONNX Runtime would stand in for it" in line
