"""Portable code: the levels of x86-64, what their instructions are, and what an artifact says it needs."""

from __future__ import annotations

import json
import platform
import re
import zipfile
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import ArtifactError, UsageError
from einnet.expr.notation.text import parse
from einnet.instantiate.codegen import lower
from einnet.instantiate.kernels import Buffer, EOperator, Plan, dense_view
from einnet.runtime import artifact, machine
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import levels
from einnet.runtime.cpu.compiler import machine_code
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.program import Executable, build_code
from einnet.search.settings import Settings

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")
WIDE = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])\b")
"""Registers that only AVX-512 has."""
NARROW = re.compile(r"%ymm|\bv[a-z]+ps\b")
"""What AVX brought."""


def plan() -> Plan:
    """A smoothed image: vectors, masks at the borders, and numbers to add up."""
    scope = parse("A : f32[30,50]\nL[i<30,j<50] Σ[r<3,s<3] exp(A[i+r-1,j+s-1])")
    kernel = EOperator(scope, (("A", dense_view("a", (30, 50))),), dense_view("y", (30, 50)))
    buffers = (Buffer("a", 1500, "f32", "input"), Buffer("y", 1500, "f32", "output"))
    return Plan(buffers, (kernel,), (("a", dense_view("a", (30, 50))),), (("y", kernel.out),))


def assembly(cpu: str) -> str:
    operators = [k for k in plan().kernels if isinstance(k, EOperator)]
    functions = {f"k{n}": lower(op, f"k{n}", 2).primfunc for n, op in enumerate(operators)}
    return str(machine_code.compile_module(functions, cpu).inspect_source("asm"))


def test_code_of_a_level_has_its_instructions_and_no_others() -> None:
    texts = {cpu: assembly(cpu) for cpu in levels.LEVELS}
    assert not NARROW.search(texts["x86-64-v2"])
    assert NARROW.search(texts["x86-64-v3"])
    assert not WIDE.search(texts["x86-64-v3"])
    assert WIDE.search(texts["x86-64-v4"])


def test_levels_contain_those_below() -> None:
    ordered = list(levels.LEVELS.values())
    assert all(a < b for a, b in pairwise(ordered))
    here = levels.level()
    assert here is None or levels.LEVELS[here] <= machine.cpu_features()


@pytest.fixture
def portable(tmp_path: Path) -> Path:
    levels_here = [cpu for cpu in ("x86-64-v3", "x86-64-v2") if levels.LEVELS[cpu] <= machine.cpu_features()]
    code = build_code(plan(), 1, Objects(1, cpu=levels_here[0]))
    artifact.save(tmp_path / "p.einnet", plan(), code, threads=1)
    return tmp_path / "p.einnet"


def test_an_artifact_says_what_its_code_needs(portable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = portable.read_bytes()
    with zipfile.ZipFile(BytesIO(data[40:])) as archive:
        needs = json.loads(archive.read("manifest.json"))["machine"]
    assert set(needs["features"]) == levels.LEVELS[needs["code"]]
    monkeypatch.setattr(machine, "cpu_features", lambda: levels.LEVELS[needs["code"]])
    loaded = artifact.load(portable)
    assert loaded.code is not None
    assert loaded.code.cpu == needs["code"]
    x = np.random.default_rng(0).standard_normal((30, 50)).astype(np.float32)
    np.testing.assert_allclose(loaded.executable().run(x)[0], Executable(plan(), 1).run(x)[0], rtol=1e-5, atol=1e-6)


def test_a_processor_below_the_level_is_told(portable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_features", lambda: frozenset({"ssse3"}))
    monkeypatch.setattr(codegen, "available", lambda: "TVM is not installed")
    loaded = artifact.load(portable)
    assert loaded.code is None
    with pytest.raises(ArtifactError, match=r"built for x86-64-v\d processors; this processor lacks .*sse4_2.*TVM is not installed"):
        loaded.executable()


def test_code_is_kept_by_level(tmp_path: Path) -> None:
    kernels = [k for k in plan().kernels if isinstance(k, EOperator)]
    native, old = Objects(1, tmp_path).get(kernels), Objects(1, tmp_path, "x86-64-v2").get(kernels)
    assert native != old
    assert Objects(1, tmp_path).get(kernels) == native
    assert Objects(1, tmp_path, "x86-64-v2").get(kernels) == old


def test_what_cannot_be_measured_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    levels.require(levels.NATIVE)
    with pytest.raises(UsageError, match="native, x86-64-v2, x86-64-v3, x86-64-v4"):
        levels.require("pentium")
    monkeypatch.setattr(machine, "cpu_features", lambda: levels.LEVELS["x86-64-v3"])
    with pytest.raises(UsageError, match="lacks avx512bw"):
        levels.require("x86-64-v4")
    with pytest.raises(UsageError, match="ONNX Runtime runs its model on any processor"):
        Settings(target="onnx", cpu="x86-64-v3")
