"""Plans and kernels as JSON values and back. Expressions travel as text in the notation, models of opaque nodes as numbered blobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from einnet.errors import ArtifactError, EinNetError
from einnet.expr.nodes import Scope
from einnet.expr.text import parse
from einnet.instantiate.kernels import POSTS, Buffer, Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, Post, View

Json = Any
_ROLES = ("input", "output", "constant", "temporary")


@lru_cache(maxsize=4096)
def _text(scope: Scope) -> str:
    return str(scope)


def view_json(view: View) -> Json:
    return [view.buffer, list(view.shape), list(view.strides), view.offset]


def _post_json(post: Post) -> Json:
    return [post.kind, view_json(post.operand) if post.operand else None, post.alpha, post.beta]


def kernel_json(kernel: Kernel, blob: Callable[[bytes], int | str]) -> Json:
    """The kernel; `blob` stores a model and gives what stands for it."""
    match kernel:
        case Matmul(a, b, c, post):
            return {"kind": "matmul", "a": view_json(a), "b": view_json(b), "c": view_json(c), "post": [_post_json(p) for p in post]}
        case Conv():
            return {
                "kind": "conv", "x": view_json(kernel.x), "w": view_json(kernel.w), "y": view_json(kernel.y), "strides": list(kernel.strides),
                "dilations": list(kernel.dilations), "pads": [list(kernel.pads_begin), list(kernel.pads_end)], "transposed": kernel.transposed,
                "post": [_post_json(p) for p in kernel.post],
            }  # fmt: skip
        case EOperator(scope, operands, out):
            return {"kind": "eoperator", "scope": _text(scope), "operands": [[n, view_json(v)] for n, v in operands], "out": view_json(out)}
        case OpaqueCall(model, inputs, outputs, origin):
            views = {"inputs": [view_json(v) for v in inputs], "outputs": [view_json(v) for v in outputs]}
            return {"kind": "opaque", "model": blob(model), "origin": origin, **views}
    raise TypeError(kernel)


def canonical(value: Json) -> str:
    """The one text of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plan_json(plan: Plan, blob: Callable[[bytes], int | str]) -> Json:
    """Everything but the constants' values."""
    return {
        "buffers": [[b.name, b.size, b.dtype, b.role] for b in plan.buffers],
        "kernels": [kernel_json(k, blob) for k in plan.kernels],
        "inputs": [[name, view_json(v)] for name, v in plan.inputs],
        "outputs": [[name, view_json(v)] for name, v in plan.outputs],
        "expressions": {name: _text(scope) for name, scope in plan.expressions.items()},
        "places": {name: view_json(v) for name, v in plan.places.items()},
    }


def plan_from_json(value: Json, models: Callable[[int], bytes], constants: Mapping[str, np.ndarray]) -> Plan:
    """The inverse of `plan_json`. Raises ArtifactError for a value that is no plan."""
    try:
        return Plan(
            tuple(_buffer(b) for b in value["buffers"]), tuple(read_kernel(k, models) for k in value["kernels"]),
            tuple((str(name), read_view(v)) for name, v in value["inputs"]),
            tuple((str(name), read_view(v)) for name, v in value["outputs"]), constants,
            {str(name): parse(text) for name, text in value.get("expressions", {}).items()},
            {str(name): read_view(v) for name, v in value.get("places", {}).items()},
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError, EinNetError) as e:
        raise ArtifactError(f"the stored program cannot be read: {e}") from e


def _integers(values: Json) -> tuple[int, ...]:
    if not all(type(v) is int for v in values):
        raise ValueError(f"expected integers, found {values}")
    return tuple(values)


def read_view(value: Json) -> View:
    """The inverse of `view_json`. Raises ValueError or TypeError for a value that is no view."""
    buffer, shape, strides, offset = value
    view = View(str(buffer), _integers(shape), _integers(strides), *_integers([offset]))
    if len(view.shape) != len(view.strides):
        raise ValueError(f"a view with shape {shape} and strides {strides}")
    return view


def _buffer(value: Json) -> Buffer:
    name, size, dtype, role = value
    if role not in _ROLES or type(size) is not int or size < 0:
        raise ValueError(f"buffer {name} of {size} elements with role {role}")
    return Buffer(str(name), size, str(dtype), role)


def _posts(values: Json) -> tuple[Post, ...]:
    found = tuple(Post(kind, operand and read_view(operand), float(alpha), float(beta)) for kind, operand, alpha, beta in values)
    if any(p.kind not in POSTS for p in found):
        raise ValueError(f"unknown operation on a result: {values}")
    return found


def read_kernel(value: Json, models: Callable[[int], bytes]) -> Kernel:
    """The inverse of `kernel_json`. Raises ValueError, TypeError or KeyError for a value that is no kernel."""
    match value["kind"]:
        case "matmul":
            return Matmul(read_view(value["a"]), read_view(value["b"]), read_view(value["c"]), _posts(value["post"]))
        case "conv":
            begin, end = value["pads"]
            return Conv(
                read_view(value["x"]), read_view(value["w"]), read_view(value["y"]), _integers(value["strides"]), _integers(value["dilations"]),
                _integers(begin), _integers(end), bool(value["transposed"]), _posts(value["post"]),
            )  # fmt: skip
        case "eoperator":
            if not isinstance(value["scope"], str):
                raise ValueError(f"expected an expression, found {value['scope']!r}")
            return EOperator(parse(value["scope"]), tuple((str(n), read_view(v)) for n, v in value["operands"]), read_view(value["out"]))
        case "opaque":
            inputs, outputs = (tuple(read_view(v) for v in value[key]) for key in ("inputs", "outputs"))
            return OpaqueCall(models(value["model"]), inputs, outputs, str(value["origin"]))
    raise ValueError(f"unknown kernel {value['kind']!r}")
