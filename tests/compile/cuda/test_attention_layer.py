"""A layer of attention with its projections: scores and their softmax are in one kernel, and the projections are products of the library."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm")

from benchmarks.models.net import Net, Value
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.row_fusion import is_product
from einnet.runtime.cuda import shim
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.program import Gemm
from einnet.search.settings import Settings
from tests.models import random_inputs
from tests.runtime.cuda.programs import reference, worst


def layer(length: int, heads: int, size: int, causal: bool) -> onnx.ModelProto:
    """Multi-head attention as exporters write it, with biases, a projection of what the heads give, and a residual."""
    net, width = Net("layer", 0), heads * size
    x = net.input("x", (1, length, width))

    def split(name: str) -> Value:
        return net.transpose(net.reshape(net.linear(x, name, width), f"{name}.split", (1, length, heads, size)), f"{name}.heads", (0, 2, 1, 3))

    query, key, value = (split(name) for name in ("query", "key", "value"))
    scores = net.node("MatMul", "scores", [query, net.transpose(key, "key.turned", (0, 1, 3, 2))], (1, heads, length, length))
    scores = net.node("Mul", "scaled", [scores, net.constant("scale", np.array(size**-0.5, np.float32))], scores.shape)
    if causal:
        mask = np.where(np.tri(length) > 0, 0, -np.inf).astype(np.float32)
        scores = net.node("Add", "masked", [scores, net.constant("mask", mask)], scores.shape)
    weights = net.node("Softmax", "weights", [scores], scores.shape, axis=-1)
    context = net.node("MatMul", "context", [weights, value], (1, heads, length, size))
    merged = net.reshape(net.transpose(context, "context.turned", (0, 2, 1, 3)), "merged", (1, length, width))
    return net.finish(net.add(net.linear(merged, "output", width), x, "residual"))


@pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_attention_beside_its_projections_is_one_kernel(causal: bool) -> None:
    model = layer(100, 3, 32, causal)
    found = optimize_cuda(model, Settings(backend="cuda", allow="precision", time_budget=0.2, max_depth=0))
    assert found.report["verification"]["passed"]
    kernels = [k for r in found.outcome.results for k in r.candidate.kernels]
    (attention,) = (k for k in kernels if isinstance(k, EOperator) and sum(map(is_product, k.scope.parts)) == 2)
    assert "exp" in str(attention.scope) and sum(isinstance(s, Gemm) for s in found.program.steps) >= 3
    inputs = random_inputs(model)
    assert worst(Host(found.program)(inputs), reference(model, inputs)) < 1e-5
