"""What all commands share: exit codes, one-line errors, files that are whole or not there; doctor and db."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import einnet as package
from einnet.cli import files, inspect, optimize
from einnet.errors import UsageError
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import Timing

COMMANDS = ("optimize", "run", "verify", "explain", "derive", "rules", "check", "doctor", "db")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(einnet, command):
    code, out, _ = einnet(command, "--help")
    assert code == 0
    assert f"usage: einnet {command}" in out


def test_help_names_every_command(einnet):
    out = einnet("--help").out
    assert all(f"    {command}" in out for command in COMMANDS)


def test_a_command_ends_without_looking_through_its_memory():
    """What is alive at the end is frozen before the interpreter is taken down, and not before."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); from einnet.cli import main; main(['rules', '--json']); "
    code += "print(gc.get_freeze_count() > 0)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[-2:] == ["False", "True"]


def test_version(einnet):
    assert einnet("--version") == (0, f"einnet {package.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("fly",), ("rules", "--fast"), ("derive",), ("db", "burn")])
def test_wrong_usage_is_one_line(einnet, arguments):
    code, out, err = einnet(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "--help" in err


def test_a_bug_is_told_apart_and_debug_shows_the_traceback(einnet, monkeypatch):
    def fail(*_: object) -> int:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(inspect, "rules", fail)
    code, _, err = einnet("rules")
    assert code == 3
    assert err == "einnet: internal error: ZeroDivisionError: two (EINNET_DEBUG=1 shows the traceback)\n"
    monkeypatch.setenv("EINNET_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        einnet("rules")


def test_a_missing_library_is_named(einnet, monkeypatch):
    def miss(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'islpy'", name="islpy")

    monkeypatch.setattr(inspect, "rules", miss)
    code, _, err = einnet("rules")
    assert code == 2
    assert err.startswith("einnet: this needs islpy, which is not installed")


def test_debug_shows_the_traceback_of_a_users_error(einnet, monkeypatch):
    monkeypatch.setenv("EINNET_DEBUG", "1")
    with pytest.raises(UsageError):
        einnet("derive", "L[i<2] A[i]", "--max-depth", -1)
    monkeypatch.setenv("EINNET_DEBUG", "loud")
    assert einnet("rules") == (2, "", "einnet: EINNET_DEBUG=loud: expected an integer from 0 to 1\n")


def test_interruption(einnet, monkeypatch):
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "rules", interrupt)
    assert einnet("rules") == (130, "", "einnet: interrupted\n")
    monkeypatch.setattr(optimize, "optimize", interrupt)
    code, out, err = einnet("optimize", "model.onnx")
    assert (code, out) == (130, "")
    assert err == "einnet: interrupted: no file is half written, and what was explored is there for the next run\n"


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "einnet", "rules"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_the_help_is_light():
    heavy = ("tvm", "onnx", "onnxruntime", "rich", "sympy", "islpy")
    code = f"import sys, einnet.cli as c; c.build_parser(); print(*(m for m in {heavy} if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_a_file_is_whole_or_not_there(tmp_path):
    target = tmp_path / "x.json"
    target.write_text("old")

    def fail(file):
        file.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.write_whole(target, fail)
    assert target.read_text() == "old"
    files.write_json(str(target), {"a": float("inf"), "b": (1, 2.5, float("nan")), "c": Path("p")})
    assert json.loads(target.read_text()) == {"a": None, "b": [1, 2.5, None], "c": "p"}
    assert os.listdir(tmp_path) == ["x.json"]
    (tmp_path / "other").touch()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("place", ["missing/x", "file/x", ".", "fifo"])
def test_paths_that_cannot_be_written(tmp_path, place):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="cannot be written"):
        files.check_writable(tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "file"]


def test_doctor(einnet):
    code, out, _ = einnet("doctor")
    assert code == 0
    assert package.__version__ in out
    data = json.loads(einnet("doctor", "--json", "-").out)
    assert data["backends"]["cpu"] == {"works": True, "problems": []}
    assert data["backends"]["cuda"]["works"] is False
    assert all(f"- {problem}\n" in out for problem in data["backends"]["cuda"]["problems"])
    assert all("pip install" in problem or "install it" in problem for problem in data["backends"]["cuda"]["problems"])
    assert "einnet[cuda]" in out
    assert "measured on one card so far" in out
    assert data["cache"] == os.environ["EINNET_CACHE"]
    assert data["cpu"]["default_threads"] >= 1
    assert data["versions"]["numpy"] in out
    assert data["environment"]["EINNET_CACHE"] == os.environ["EINNET_CACHE"]


def test_doctor_says_what_is_missing(einnet, monkeypatch):
    from einnet.runtime import ort
    from einnet.runtime.cpu import compile as generated
    from einnet.runtime.cpu import dnnl

    monkeypatch.setattr(dnnl, "available", lambda: "oneDNN was not found")
    code, out, _ = einnet("doctor")
    assert code == 0
    assert "oneDNN was not found (without it vendor kernels run in ONNX Runtime)" in out
    monkeypatch.setattr(generated, "available", lambda: "TVM is not installed")
    monkeypatch.setattr(ort, "available", lambda: "no ONNX Runtime")
    code, out, _ = einnet("doctor")
    assert "stored programs run" not in out
    assert code == 1
    assert "cpu    does not work:\n         - TVM: TVM is not installed\n         - ONNX Runtime: no ONNX Runtime\n" in out
    monkeypatch.setattr(dnnl, "available", lambda: None)
    monkeypatch.setattr(dnnl, "library", lambda: SimpleNamespace(version=(3, 2, 0), path="libdnnl.so"))
    assert "stored programs run that have no opaque nodes" in einnet("doctor").out


def test_doctor_says_whether_models_of_torch_come_in(einnet, monkeypatch):
    from importlib import metadata

    from einnet.cli import system

    there = {"torch": "2.14.1", "onnxscript": "0.7.2"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(system, "metadata", SimpleNamespace(version=version, PackageNotFoundError=metadata.PackageNotFoundError))
    assert "PyTorch         torch 2.14.1, onnxscript 0.7.2\n" in einnet("doctor").out
    del there["onnxscript"]
    assert "no torch.compile: onnxscript is not installed: `pip install 'einnet[torch]'`\n" in einnet("doctor").out


def test_doctor_says_what_runs_programs_for_cuda_without_a_card(einnet, monkeypatch):
    from einnet.runtime.cuda import shim

    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(shim, "compiler", lambda: "/opt/c++")
    assert "their CUDA text through /opt/c++" in einnet("doctor").out
    monkeypatch.setattr(shim, "compiler", lambda: None)
    assert "install a C++ compiler: g++" in einnet("doctor").out


def test_db(einnet, tmp_path, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "new"))
    path = tmp_path / "new" / "profile.sqlite"
    assert einnet("db") == (0, f"{path}: not there yet\n", "")
    assert not path.parent.exists()
    ProfileDatabase().put({"kernel": "x"}, Timing(1e-3, 1e-5, 7))
    assert f"{path}: 1 entries" in einnet("db").out
    (entry,) = json.loads(einnet("db", "--json", "-").out)["entries"]
    assert (json.loads(entry["what"]), entry["median_ms"], entry["samples"]) == ({"kernel": "x"}, 1.0, 7)
    assert einnet("db", "clear") == (0, f"{path}: 1 entries removed\n", "")
    assert ProfileDatabase().rows() == []
    assert einnet("db", "clear").out == f"{path}: 0 entries removed\n"
