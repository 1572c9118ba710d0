"""The host driver under compilers of other systems."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from einnet.runtime.cuda import shim

PROGRAM = """
import numpy as np
from einnet.runtime.cuda import shim

text = '''extern "C" __global__ void turn(float* __restrict__ x) {
  __shared__ alignas(16) float s[64];
  s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x]; __syncthreads();
}'''
library = shim.compiled({"turn": text}, {"turn": 1})
values = np.arange(64, dtype=np.float32)
assert library.run_turn(np.array([values.ctypes.data]).ctypes.data_as(__import__("ctypes").c_void_p), 1, 64) == 0
assert (values == np.arange(64)[::-1]).all()
print("turned")
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_compiler_that_hardens_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Some systems' g++ checks every jump against the stack that it leaves: coroutines leave theirs."""
    hardened = tmp_path / "g++"
    hardened.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 "$@"\n')
    hardened.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert shim.compiler() == str(hardened)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout == "turned\n", done.stderr
