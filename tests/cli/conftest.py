"""The command line run in this process, and one small model optimized by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from einnet.cli import main
from tests.models import tiny, with_opaque


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests measure into a database of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("EINNET_CACHE", str(folder))
        for name in ("EINNET_DEBUG", "EINNET_BACKEND"):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def einnet(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command: its exit code, standard output and error stream."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small.onnx and opaque.onnx."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(tiny("small", size=8), folder / "small.onnx")
    onnx.save(with_opaque(), folder / "opaque.onnx")
    return folder


@pytest.fixture(scope="session")
def optimized(models: Path, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A folder with small.einnet and report.json, as the command made them, in time for the whole search: what is cut by time is repeated in part."""
    folder = tmp_path_factory.mktemp("optimized")
    arguments = ["optimize", models / "small.onnx", "-o", folder / "small.einnet", "--json", folder / "report.json"]
    assert main([str(a) for a in (*arguments, "--time-budget", 20, "--max-depth", 1, "--threads", 1, "--quiet")]) == 0
    return folder
