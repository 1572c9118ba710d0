"""Programs on machines whose vendor library may use fewer instructions than that on which they were made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from einnet.instantiate.kernels import Buffer, Conv, Matmul, Plan, Post, dense_view
from einnet.runtime import artifact
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.program import build_code
from tests.runtime.plans import NHWC, finish, rng_constants
from tests.runtime.reference import compute, layout

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))

SCRIPT = """
import json, sys, warnings
import numpy as np
from einnet.runtime import artifact
from einnet.runtime.cpu import fallback
if sys.argv[2] == "alone":
    fallback.missing = lambda kernel: "onnx is not installed"
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    program = artifact.load(sys.argv[1]).executable()
given = [np.linspace(-1, 1, v.size, dtype=np.float32).reshape(v.shape) for v in (a for _, a in program._inputs)]
y = program.run(*given)[0]
print(json.dumps([y.ravel().tolist(), [str(w.message) for w in told], [label for _, label in program._labels]]))
"""


def plan() -> Plan:
    """y = conv(x), padded, channels last; z = relu((y w + u) v) with an operand for each row and one for each column."""
    constants = rng_constants({"k": 16 * 8 * 9, "w": 3 * 16 * 24, "u": 49, "v": 24})
    x, k, y = layout("x", (3, 8, 7, 7), NHWC), layout("k", (1, 16, 8, 3, 3)), layout("y", (3, 16, 7, 7), NHWC)
    window = Conv(x, k, y, (1, 1), (1, 1), (1, 1), (1, 1), post=(Post("tanh"),))
    posts = (Post("add", dense_view("u", (1, 49, 1))), Post("mul", dense_view("v", (1, 1, 24))), Post("relu"))
    product = Matmul(dense_view("y", (3, 49, 16)), dense_view("w", (3, 16, 24)), dense_view("z", (3, 49, 24)), posts)
    buffers = [Buffer("x", 3 * 8 * 49, "f32", "input"), Buffer("y", 3 * 49 * 16, "f32", "temporary"), Buffer("z", 3 * 49 * 24, "f32", "output")]
    return finish(buffers, [window, product], constants, {"x": dense_view("x", (3, 7, 7, 8))}, {"z": dense_view("z", (3, 49, 24))})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The program for this processor, and for all of a level."""
    folder = tmp_path_factory.mktemp("programs")
    found = {level: folder / f"{level}.einnet" for level in (NATIVE, "x86-64-v2")}
    for level, path in found.items():
        artifact.save(path, plan(), build_code(plan(), 2, Objects(2, cpu=level)), threads=2)
    return found


def expected() -> np.ndarray:
    made = plan()
    buffers = {**made.constants, "x": np.linspace(-1, 1, 3 * 8 * 49, dtype=np.float32), "y": np.zeros(3 * 49 * 16, np.float32)}
    window, product = made.kernels
    buffers["y"] = np.ascontiguousarray(compute(window, buffers).transpose(0, 2, 3, 1), np.float32).ravel()
    return compute(product, {**buffers, "z": np.zeros(3 * 49 * 24, np.float32)}).ravel()


@pytest.mark.parametrize(
    ("level", "instructions", "with_others"),
    [(NATIVE, "ALL", "beside"), (NATIVE, "SSE41", "beside"), (NATIVE, "SSE41", "alone"), ("x86-64-v2", "AVX2", "beside")],
)
def test_a_program_runs_with_fewer_instructions(
    level: str, instructions: str, with_others: str, stored: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Where the library refuses a kernel there, that is said, and the result is the same."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", instructions)
    found = subprocess.run([sys.executable, "-c", SCRIPT, str(stored[level]), with_others], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    z, told, labels = json.loads(found.stdout)
    np.testing.assert_allclose(z, expected(), rtol=1e-4, atol=1e-4)
    if instructions != "ALL":
        assert any(f"limited to {instructions} refuses them" in text for text in told), labels
        assert any(("ref" if with_others == "alone" else "onnxruntime") in label for label in labels)
