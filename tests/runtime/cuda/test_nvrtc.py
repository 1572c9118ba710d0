"""Every generated kernel of the seven models compiles for the card (`make nvrtc`)."""

from __future__ import annotations

import pytest

from benchmarks.models import build
from einnet.errors import BackendError
from einnet.runtime.cuda import nvrtc
from einnet.runtime.cuda.lower import lower
from tests.runtime.cuda.programs import own_plan
from tests.runtime.cuda.test_models import SEVEN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))]


@pytest.mark.parametrize("name", SEVEN)
def test_every_text_becomes_machine_code(name):
    for text in lower(own_plan(build(name))).texts.values():
        code = nvrtc.compile_text(text)
        assert code.startswith(b"\x7fELF")


def test_wrong_text_is_refused_with_the_compilers_message():
    with pytest.raises(BackendError, match=r"NVRTC rejects generated CUDA text: .*undefined"):
        nvrtc.compile_text('extern "C" __global__ void k(float* x) { x[0] = y; }')
