"""Functions that read a vendor kernel's result several times: recognised by their meaning, computed by the vendor, and without it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.nodes import Call, Const, Iter, Read, Scope, Tensor, indices, make_mul, reads
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate import fused_functions
from einnet.instantiate.epilogue_kernels import applied, loses_nan
from einnet.instantiate.fused_functions import fused
from einnet.instantiate.kernels import Matmul, Post
from einnet.instantiate.kernels.posts import ELEMENTWISE
from einnet.instantiate.kernels.views import dense_view
from einnet.runtime.cpu import dnnl, fallback
from einnet.runtime.cpu.measure import single
from einnet.runtime.cpu.program import Executable

SAME = [
    ("(T[i]+B[i])*sigmoid(T[i]+B[i])", "swish", 1, 0), ("T[i]*sigmoid(1.702*T[i])", "swish", 1.702, 0), ("sigmoid(3*T[i])*T[i]", "swish", 3, 0),
    ("0.5*T[i]*(erf(0.70710677*T[i])+1)", "gelu", 0.70710677, 0), ("T[i]*(erf(T[i]*0.70710678)+1)*0.5", "gelu", 0.70710678, 0),
    ("T[i]*(erf(T[i]/1.4142135)+1)*0.5", "gelu_divided", 1.4142135, 0),
    ("0.5*T[i]*(1+tanh(0.7978845608*(T[i]+0.044715*T[i]*T[i]*T[i])))", "gelu_tanh", 0.7978845608, 0.044715),
    ("T[i]*min(max(T[i]*0.2+0.5,0),1)", "hardswish", 0.2, 0.5), ("T[i]*tanh(softplus(T[i]))", "mish", 0, 0),
    ("relu(T[i])+0.1*min(T[i],0)", "relu", 0.1, 0), ("relu(T[i])+1.5*(exp(min(T[i],0))-1)", "elu", 1.5, 0),
]  # fmt: skip
OTHER = [
    "T[i]*sigmoid(T[i]+1)", "T[i]*sigmoid(T[i]+B[i])", "T[i]*tanh(T[i])", "0.5*T[i]*(erf(0.6*T[i])+1)", "0.5*T[i]*(erf(0.70710678*T[i])+2)",
    "T[i]*min(max(T[i]*0.2+0.5,0),2)", "T[i]*(erf(T[i]/1.5)+1)*0.5", "0.5*T[i] + 0.5*T[i]*erf(0.70710678*T[i])",
    "relu(T[i])+0.1*max(T[i],0.5)", "relu(T[i])+1.5*(exp(max(T[i],0))-1)", "T[i]*T[i]",
    "0.5*T[i]*(1+tanh(0.7978845608*(T[i]+0.05*T[i]*T[i]*T[i])))", "T[i]*sigmoid(T[0])",
]  # fmt: skip


def of(text: str) -> tuple[Scope, Read]:
    scope = parse(f"T : f32[4]\nB : f32[4]\nL[i<4] {text}")
    return scope, next(r for r in reads(scope.body) if isinstance(r.base, Tensor) and r.base.name == "T" and r.index[0].names())


@pytest.mark.parametrize(("text", "kind", "alpha", "beta"), SAME)
def test_recognised(text: str, kind: str, alpha: float, beta: float) -> None:
    scope, read = of(text)
    found = fused(scope.body, read)
    assert found is not None
    part, (name, a, b) = found
    assert (name, float(a.value), float(b.value)) == (kind, alpha, beta)
    whole = Scope(scope.loops, (), ELEMENTWISE[name].meaning(part, a, b))
    given = {"T": np.array([-2.0, -0.3, 0.4, 3.0]), "B": np.array([0.5, 1.0, -1.0, 0.0])}
    np.testing.assert_allclose(evaluate(whole, {n: given[n] for n in "TB" if n in text}), evaluate(scope, {n: given[n] for n in "TB" if n in text}))


@pytest.mark.parametrize("text", OTHER)
def test_not_recognised(text: str) -> None:
    scope, read = of(text)
    assert fused(scope.body, read) is None


PARAMETERS = {"relu": (0.1, 0), "clip": (-0.5, 0.75), "linear": (2, -1), "swish": (1.3, 0), "hardswish": (0.2, 0.5), "elu": (0.7, 0),
              "gelu": (2**-0.5, 0), "gelu_divided": (2**0.5, 0), "gelu_tanh": (0.7978845608, 0.044715)}  # fmt: skip
A, B = (np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate([(5, 8), (8, 6)]))


def product(kind: str) -> Matmul:
    alpha, beta = PARAMETERS.get(kind, (0.0, 0.0))
    return Matmul(dense_view("a", (5, 8)), dense_view("b", (8, 6)), dense_view("c", (5, 6)), (Post(kind, None, alpha, beta),))


def wanted(kernel: Matmul, y: np.ndarray) -> np.ndarray:
    loops = (Iter("m", 0, 5), Iter("n", 0, 6))
    return evaluate(Scope(loops, (), applied(kernel.post[0], Read(Tensor("Y", (5, 6)), indices(loops)), None)), {"Y": y})


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_the_vendor_computes_it(kind: str) -> None:
    if dnnl.available() is not None:
        pytest.skip("oneDNN is not there")
    kernel = product(kind)
    program = Executable(single(kernel, frozenset()), 1)
    a = A.copy()
    a[3] = np.nan
    got = program({"a": a.reshape(-1), "b": B.reshape(-1)})["c"].reshape(5, 6)
    plain = wanted(kernel, A.astype(np.float64) @ B.astype(np.float64))
    rows = [0, 1, 2, 4]
    np.testing.assert_allclose(got[rows], plain[rows], rtol=2e-5, atol=2e-5)
    assert np.isnan(got[3]).all() != loses_nan(kernel.post[0])


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_without_the_vendor(kind: str) -> None:
    kernel = product(kind)
    arrays = {"a": A, "b": B, "c": np.zeros((5, 6), np.float32)}
    fallback.vendor_call(kernel, lambda view: arrays[view.buffer], 1)()
    np.testing.assert_allclose(arrays["c"], wanted(kernel, A.astype(np.float64) @ B.astype(np.float64)), rtol=2e-5, atol=2e-5)


def test_functions_that_differ_somewhere_are_told_apart_without_normal_forms(monkeypatch):
    """Normal forms of functions take long, and nearly all that is asked for is none of a vendor's."""
    monkeypatch.setattr(fused_functions, "_keys", lambda function: pytest.fail("a normal form was made"))
    fused_functions.recognised.cache_clear()
    y = Read(Tensor("y", ()), ())
    assert fused_functions.recognised(make_mul((y, Call("tanh", (make_mul((Const(Fraction(3)), y)),))))) is None


def test_functions_that_agree_at_some_places_are_told_apart_by_normal_forms(monkeypatch):
    """Values are a hint: what agrees in all of them and has another normal form is another function."""
    monkeypatch.setattr(fused_functions, "_PLACES", np.array([0.25, 1.0, 3.0]))
    fused_functions.recognised.cache_clear()
    fused_functions._somewhere.cache_clear()
    y = Read(Tensor("y", ()), ())
    assert fused_functions.recognised(make_mul((y, Call("sigmoid", (Call("relu", (y,)),))))) is None
    fused_functions._somewhere.cache_clear()
    fused_functions.recognised.cache_clear()
