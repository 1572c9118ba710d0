"""Programs on disk: round trip, damage, machines that do not fit, paths that cannot be written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import ArtifactError
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import EOperator, Plan, dense_view
from einnet.records import changed
from einnet.runtime import artifact, machine
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import fallback
from einnet.runtime.cpu.binding import asked
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.program import Code, Executable, build_code
from einnet.runtime.serial import canonical, kernel_json, plan_from_json, plan_json
from tests.runtime.plans import residual_block, two_layers, with_opaque_nodes


@pytest.fixture(scope="module")
def code() -> Code:
    return build_code(two_layers(), 1)


@pytest.fixture(scope="module")
def stored(code: Code, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "program.einnet"
    artifact.save(path, two_layers(), code, {"model": "two layers", "gain": 1.5}, ["L[i<4] A[i]", "Σ"], threads=2)
    return path


@pytest.mark.parametrize("plan", [two_layers(), residual_block(), with_opaque_nodes()], ids=["matmul", "conv", "opaque"])
def test_round_trip(plan: Plan, code: Code, tmp_path: Path) -> None:
    artifact.save(tmp_path / "p.einnet", plan, code, threads=1)
    loaded = artifact.load(tmp_path / "p.einnet")
    assert loaded.plan.buffers == plan.buffers
    assert loaded.plan.kernels == plan.kernels
    assert (loaded.plan.inputs, loaded.plan.outputs) == (plan.inputs, plan.outputs)
    name, view = plan.inputs[0]
    x = np.random.default_rng(3).uniform(-1, 1, view.shape).astype(np.float32)
    expected = Executable(plan, 1, code=code)({name: x})
    for key, value in loaded.executable()({name: x}).items():
        np.testing.assert_array_equal(value, expected[key])


def test_what_steps_have_in_common_is_stored_once(code: Code, tmp_path: Path) -> None:
    texts = ["by split at 0.1\n   L[i<4] {L[i<4] A[i]}[i]\n" * 5000, "another"]
    path = tmp_path / "p.einnet"
    artifact.save(path, two_layers(), code, None, texts[1:], threads=1)
    without = path.stat().st_size
    artifact.save(path, two_layers(), code, None, texts, threads=1)
    assert path.stat().st_size - without < len(texts[0]) / 20
    assert list(artifact.load(path).derivations) == texts


def test_metadata_and_derivations(stored: Path) -> None:
    loaded = artifact.load(stored)
    assert loaded.metadata == {"model": "two layers", "gain": 1.5}
    assert loaded.derivations == ("L[i<4] A[i]", "Σ")
    assert loaded.threads == 2
    assert loaded.problem is None
    assert "einnet" in loaded.versions or "numpy" in loaded.versions


def test_expressions_travel_as_text() -> None:
    scope = parse("A : f32[4,5]\nK : weight f32[5]\nL[i<4] Σ[j<5] relu({L[p<4,q<7] A[p,q-1]|0.5}[i,j])*K[j]")
    operator = EOperator(scope, (("A", dense_view("a", (4, 5))), ("K", dense_view("k", (5,)))), dense_view("y", (4,)))
    plan = Plan((), (operator,), (), ())
    value = json.loads(canonical(plan_json(plan, lambda _: 0)))
    assert plan_from_json(value, lambda _: b"", {}).kernels == (operator,)
    assert codegen.operator_names([operator]) == codegen.operator_names(plan_from_json(value, lambda _: b"", {}).kernels)
    assert "Σ[j<5]" in canonical(kernel_json(operator, lambda _: 0))


def test_damage_is_an_error(stored: Path, tmp_path: Path) -> None:
    whole, rng, path = stored.read_bytes(), random.Random(5), tmp_path / "damaged.einnet"
    for n in range(200):
        data = bytearray(whole)
        at = rng.randrange(80) if n < 40 else rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ArtifactError):
            artifact.load(path)
    for n in (0, 1, 7, 39, 40, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(ArtifactError):
            artifact.load(path)


def forged(stored: Path, target: Path, member: str, change: object) -> Path:
    """A file with one member changed and a digest that matches."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(stored.read_bytes()[40:])) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == member:
                data = change(data)
            if data is not None:
                new.writestr(name, data)
    target.write_bytes(stored.read_bytes()[:8] + hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    return target


def edited(path: tuple[object, ...], value: object):
    def change(data: bytes) -> bytes:
        manifest = json.loads(data)
        place = manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return json.dumps(manifest).encode()

    return change


FORGERIES = {
    "no manifest": ("manifest.json", lambda _: None),
    "no JSON": ("manifest.json", lambda d: d[:-5]),
    "another format": ("manifest.json", edited(("format",), 99)),
    "a missing constant": ("constants/0.npy", lambda _: None),
    "a short constant": ("constants/0.npy", lambda d: d[:-8]),
    "no array": ("constants/0.npy", lambda _: b"junk"),
    "a view beyond its buffer": ("manifest.json", edited(("plan", "kernels", 0, "a", 1), [1000, 32])),
    "a negative stride": ("manifest.json", edited(("plan", "kernels", 0, "a", 2), [-32, 1])),
    "ranks that differ": ("manifest.json", edited(("plan", "kernels", 0, "a", 1), [4])),
    "an unknown kernel": ("manifest.json", edited(("plan", "kernels", 0, "kind"), "magic")),
    "text for a number": ("manifest.json", edited(("plan", "buffers", 0, 1), "4")),
    "an unknown post": ("manifest.json", edited(("plan", "kernels", 0, "post"), [["zelu", None, 0, 0]])),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_wrong_content_with_a_right_digest_is_an_error(name: str, stored: Path, tmp_path: Path) -> None:
    member, change = FORGERIES[name]
    with pytest.raises(ArtifactError):
        artifact.load(forged(stored, tmp_path / "forged.einnet", member, change))


def test_another_machine_builds_again_or_says_why_not(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = forged(stored, tmp_path / "other.einnet", "manifest.json", edited(("machine", "features"), ["avx1024"]))
    loaded = artifact.load(path)
    assert loaded.code is None
    assert "avx1024" in str(loaded.problem)
    assert loaded.executable().run(np.zeros((4, 32), np.float32))
    monkeypatch.setattr(codegen, "available", lambda: "TVM is not installed")
    with pytest.raises(ArtifactError, match=r"avx1024.*TVM is not installed"):
        loaded.executable()


def test_features_of_this_machine_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.misfit(machine.description()) is None
    assert "Plan 9" in str(machine.misfit(changed(machine.description(), system="Plan 9")))


def test_another_library_that_lacks_a_kernel_is_told_of(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = artifact.load(forged(stored, tmp_path / "other.einnet", "manifest.json", edited(("versions", "onednn"), "2.7.1")))
    assert loaded.executable().run(np.zeros((4, 32), np.float32)), "what the library here can do, it does"

    def refuse(*_: object, **__: object) -> None:
        raise Refused("only its reference code")

    monkeypatch.setattr(asked, "prepare", refuse)
    with pytest.warns(RuntimeWarning, match=r"made with oneDNN 2\.7\.1; 2 of 2 kernels .*reference code"):
        assert loaded.executable().run(np.zeros((4, 32), np.float32)), "ONNX Runtime does the rest"
    monkeypatch.setattr(fallback, "missing", lambda _: "onnx is not installed")
    with pytest.raises(ArtifactError, match=r"made with oneDNN 2\.7\.1; here is .*reference code.*optimize the model again"):
        loaded.executable()


def test_eight_threads_run_one_program_two_hundred_times(stored: Path) -> None:
    executable = artifact.load(stored).executable()
    inputs = [np.random.default_rng(seed).uniform(-1, 1, (4, 32)).astype(np.float32) for seed in range(8)]
    expected = [executable.run(x)[0] for x in inputs]
    start = threading.Barrier(8)

    def work(n: int) -> int:
        start.wait()
        return sum(np.array_equal(executable.run(inputs[n])[0], expected[n]) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [200] * 8


def test_a_path_that_cannot_be_written_leaves_nothing(code: Code, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        artifact.save(tmp_path / "missing" / "p.einnet", two_layers(), code, threads=1)
    (tmp_path / "folder.einnet").mkdir()
    with pytest.raises(ArtifactError):
        artifact.save(tmp_path / "folder.einnet", two_layers(), code, threads=1)
    assert os.listdir(tmp_path) == ["folder.einnet"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="No such file"):
        artifact.load(tmp_path / "none.einnet")


def test_a_fresh_process_runs_it_without_tvm_and_onnx(stored: Path) -> None:
    script = (
        "import sys, numpy as np\n"
        "from einnet.runtime import artifact\n"
        f"y = artifact.load({str(stored)!r}).executable().run(np.ones((4, 32), np.float32))[0]\n"
        "assert y.shape == (4, 16) and np.isfinite(y).all()\n"
        "print([m for m in ('tvm', 'tvm_ffi', 'onnx', 'onnxruntime', 'sympy', 'islpy') if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
