"""Every generated kernel of the seven models compiles for the card (`make nvrtc`)."""

from __future__ import annotations

import pytest

from benchmarks.models import build
from einnet.errors import BackendError
from einnet.instantiate.codegen.cuda.emit import lower_cuda
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.shim import functions
from tests.runtime.cuda.programs import derived_kernels, own_plan
from tests.runtime.cuda.test_models import SEVEN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))]


def compiled(text: str) -> None:
    """The text becomes machine code that a block fits into and that spills nothing."""
    found = nvrtc.resources(text)
    assert set(found) == set(functions(text))
    assert all(r.registers <= 255 and r.shared <= 48 << 10 for r in found.values())
    assert not any(r.spilled for r in found.values())


@pytest.mark.parametrize("name", SEVEN)
def test_every_text_becomes_machine_code(name):
    for text in lower(own_plan(build(name))).texts.values():
        compiled(text)


@pytest.mark.parametrize("name", SEVEN)
def test_every_text_of_what_is_derived_becomes_machine_code(name):
    kernels = derived_kernels(build(name), seconds=10)
    assert kernels
    for n, kernel in enumerate(kernels):
        compiled(lower_cuda(kernel, f"k{n}").text)


def test_spills_and_shared_memory_are_reported():
    text = """extern "C" __global__ void k(float* x) {
      __shared__ float s[64]; float a[99];
      for (int i = 0; i < 99; ++i) a[i] = x[i];
      for (int i = 0; i < 99; ++i) a[(int)x[i]] += a[(int)x[i + 1]];
      s[threadIdx.x] = a[(int)x[0]]; __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    (found,) = nvrtc.resources(text).values()
    assert found.shared == 256 and found.spilled >= 396 and found.registers > 0
    assert nvrtc.compile_text(text).startswith(b"\x7fELF")


def test_wrong_text_is_refused_with_the_compilers_message():
    with pytest.raises(BackendError, match=r"NVRTC rejects generated CUDA text: .*undefined"):
        nvrtc.compile_text('extern "C" __global__ void k(float* x) { x[0] = y; }')
