"""Real cuDNN plans the convolutions of the seven models for an H200 that is not there: every layout, fusion and arithmetic is one that it takes.

Needs cuDNN and its frontend, and no GPU (`make plans`). That a plan is built says that the library has kernels for it; nothing runs.
"""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec

import pytest

from benchmarks.models import build as model
from einnet.instantiate.kernels import Conv, Post, dense_view
from einnet.runtime.cuda import convolutions
from einnet.runtime.cuda.fit import parts
from einnet.runtime.cuda.lower import lower
from tests.runtime.cuda.programs import own_plan
from tests.runtime.cuda.test_models import SEVEN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("cudnn") is None, reason="`pip install nvidia-cudnn-frontend nvidia-cudnn-cu13`")]

H200 = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerSM": 233472, "maxSharedMemoryPerMultiprocessor": 233472, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
    "totalGlobalMem": 150754820096, "computeCapability": 900, "smVersion": 900,
}  # fmt: skip
"""By the data sheet and the programming guide, in the names of the library."""


def plans(step: Conv, math: str) -> int:
    """How many plans are built, of the first that are proposed."""
    cudnn = import_module("cudnn")
    graph, tensors = convolutions.build(cudnn, step, device_property=cudnn.create_device_properties(json.dumps(H200)), sm_version=90)
    convolutions.plan(cudnn, graph, math)
    listed = convolutions.Listed(graph, tensors)
    return next((1 for n, plan in listed.plans() if plan.engine >= 0 and listed.build(n)), 0)


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize("name", SEVEN)
def test_the_seven_models(name, math):
    steps = {s for s in lower(own_plan(model(name))).steps if isinstance(s, Conv)}
    without = [convolutions.described(s) for s in steps if not plans(s, math)]
    assert not without


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_other_convolutions(transposed, groups, rank, math):
    made = 15 if transposed else 8
    x, y = dense_view("x", (2, groups * 4, *(8,) * rank)), dense_view("y", (2, groups * 8, *(made,) * rank))
    post = (Post("add", dense_view("b", (1, groups * 8, *(1,) * rank))), Post("add", dense_view("r", y.shape)), Post("relu"))
    stride, w = 2 if transposed else 1, dense_view("w", (groups, 8, 4, *(3,) * rank))
    given = (stride,) * rank, (1,) * rank, (1,) * rank, (1,) * rank
    kernel = Conv(x, w, y, *given, transposed, () if transposed else post)
    (step,) = (k for k in parts(kernel) if isinstance(k, Conv))
    assert plans(step, math)


@pytest.mark.parametrize("kind", ["HALF", "BFLOAT16"])
@pytest.mark.parametrize(("result", "taken"), [("same", True), ("FLOAT", False)])
def test_factors_of_16_bits_want_results_of_16_bits(kind, result, taken):
    """Why convolutions stay in TF32 where products have factors of 16 bits."""
    cudnn = import_module("cudnn")
    real, own = cudnn.data_type.FLOAT, getattr(cudnn.data_type, kind)
    given = cudnn.create_device_properties(json.dumps(H200))
    graph = cudnn.pygraph(io_data_type=real, intermediate_data_type=real, compute_data_type=real, device_property=given, sm_version=90)
    last = (64 * 14 * 14, 1, 14 * 64, 64)
    x = graph.tensor(name="x", dim=(1, 64, 14, 14), stride=last, data_type=own)
    w = graph.tensor(name="w", dim=(64, 64, 3, 3), stride=(64 * 9, 1, 3 * 64, 64), data_type=own)
    around = {"pre_padding": (1, 1), "post_padding": (1, 1), "stride": (1, 1), "dilation": (1, 1)}
    out = graph.conv_fprop(image=x, weight=w, **around, compute_data_type=real)
    out.set_output(True).set_data_type(own if result == "same" else real).set_dim((1, 64, 14, 14)).set_stride(last)
    try:
        convolutions.plan(cudnn, graph, "tf32")
    except Exception:  # of cuDNN's own kinds: it proposes nothing
        assert not taken
        return
    assert taken == (graph.get_execution_plan_count() > 0)


@pytest.mark.parametrize("posts", ["b", "r", "relu", "b relu", "r relu", "b r", "b r relu"])
def test_everything_that_is_fused(posts):
    x, w, y = dense_view("x", (2, 4, 8, 8)), dense_view("w", (1, 8, 4, 3, 3)), dense_view("y", (2, 8, 8, 8))
    operands = {"b": dense_view("b", (1, 8, 1, 1)), "r": dense_view("r", y.shape)}
    post = tuple(Post("add", operands[p]) if p in operands else Post(p) for p in posts.split())
    (step,) = parts(Conv(x, w, y, (1, 1), (1, 1), (1, 1), (1, 1), post=post))
    assert isinstance(step, Conv)
    assert plans(step, "fp32")
