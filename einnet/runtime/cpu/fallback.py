"""Vendor kernels where oneDNN cannot load, or refuses them: as an ONNX Runtime session, views copied to and from dense order, or as an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from einnet.errors import BackendError
from einnet.expr.nodes import Iter, Read, Scope, Tensor, indices
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.vendor_models import conv_model, matmul_model
from einnet.instantiate.epilogue_kernels import applied
from einnet.instantiate.kernels import Conv, Matmul, Post, VendorKernel, View
from einnet.instantiate.kernels.generated import expressed
from einnet.runtime import ort
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl_kernels import exact_padding

Array = np.ndarray[Any, np.dtype[Any]]


ENGINE = "ONNX Runtime"


def engine(kernel: VendorKernel) -> str:
    """What runs the kernel here: a model of one node, or its expression in numpy where it is no node of its own."""
    return ENGINE if type(kernel) in _MODELS else "numpy"


def missing(kernel: VendorKernel) -> str | None:
    """Why ONNX Runtime cannot run the kernel here; None if it can."""
    if type(kernel) not in _MODELS:
        return None
    if find_spec("onnx") is None:
        return "the package onnx is not installed"
    try:
        if isinstance(kernel, Conv):
            exact_padding(kernel)
    except dnnl.Refused as reason:
        return str(reason)
    return ort.available()


def vendor_call(kernel: VendorKernel, array: Callable[[View], Array], threads: int) -> Callable[[], None]:
    """A call that computes the kernel on the arrays that `array` gives for views. Raises Refused or BackendError if it cannot be done."""
    if type(kernel) not in _MODELS:
        return _evaluated(kernel, array)
    try:
        model, operands, result = _MODELS[type(kernel)](kernel, array)
    except ModuleNotFoundError as e:
        raise BackendError(f"{dnnl.available()}; ONNX Runtime would stand in for it, with {e.name}, which is not installed") from e
    dense = [np.empty(o.shape, np.float32) for o in operands]
    y = np.empty(result.shape, np.float32)
    run = ort.OpaqueNode(model, dense, [y], threads, type(kernel).__name__)
    posts = [_post(p, array) for p in kernel.posts]

    def call() -> None:
        for target, source in zip(dense, operands, strict=True):
            target[...] = source
        run()
        value = y
        for post in posts:
            value = post(value)
        result[...] = value

    return call


def _matmul(kernel: Matmul, array: Callable[[View], Array]) -> tuple[bytes, Sequence[Array], Array]:
    return matmul_model(kernel.a.shape, kernel.b.shape, kernel.c.shape), (array(kernel.a), array(kernel.b)), array(kernel.c)


def _conv(kernel: Conv, array: Callable[[View], Array]) -> tuple[bytes, Sequence[Array], Array]:
    exact, pads = exact_padding(kernel)
    groups, f, c, *taps = kernel.w.shape
    x, w = array(exact.x), array(kernel.w)
    w = w.swapaxes(1, 2) if kernel.transposed else w
    flat = (groups * c, f, *taps) if kernel.transposed else (groups * f, c, *taps)
    model = conv_model(x.shape, flat, kernel.y.shape, groups, kernel.strides, kernel.dilations, pads, kernel.transposed)
    return model, (x, w.reshape(flat)), array(kernel.y)


_MODELS: Mapping[type[VendorKernel], Callable[..., tuple[bytes, Sequence[Array], Array]]] = {Matmul: _matmul, Conv: _conv}


def _evaluated(kernel: VendorKernel, array: Callable[[View], Array]) -> Callable[[], None]:
    """A kernel that is no node of its own in ONNX, by its expression in numpy."""
    same = expressed(kernel)
    operands, result = {name: array(view) for name, view in same.operands}, array(kernel.result)

    def call() -> None:
        result[...] = evaluate(same.scope, operands)

    return call


def _post(post: Post, array: Callable[[View], Array]) -> Callable[[Array], Array]:
    """The element function or the operation with an operand, in numpy."""
    if post.operand is not None:
        operand = array(post.operand)
        return (lambda y: y + operand) if post.kind == "add" else (lambda y: y * operand)

    def function(y: Array) -> Array:
        loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(y.shape))
        body = applied(post, Read(Tensor("Y", y.shape), indices(loops)), None)
        return evaluate(Scope(loops, (), body), {"Y": y}, "float32")

    return function
