"""Plans and kernels as JSON values and back. Expressions travel as text in the notation, models of opaque nodes as numbered blobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from einnet.errors import ArtifactError, EinNetError
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, Kernel, Plan
from einnet.instantiate.kernels.kernel import ReadModel, StoreModel
from einnet.instantiate.kernels.views import Json, read_view, view_json
from einnet.instantiate.registry import KINDS

_ROLES = ("input", "output", "constant", "temporary")


def kernel_json(kernel: Kernel, blob: StoreModel) -> Json:
    """The kernel; `blob` stores a model and gives what stands for it."""
    return {"kind": kernel.kind, **kernel.json(blob)}


def canonical(value: Json) -> str:
    """The one text of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plan_json(plan: Plan, blob: StoreModel) -> Json:
    """Everything but the constants' values."""
    return {
        "buffers": [[b.name, b.size, b.dtype, b.role] for b in plan.buffers],
        "kernels": [kernel_json(k, blob) for k in plan.kernels],
        "inputs": [[name, view_json(v)] for name, v in plan.inputs],
        "outputs": [[name, view_json(v)] for name, v in plan.outputs],
        "expressions": {name: str(scope) for name, scope in plan.expressions.items()},
        "places": {name: view_json(v) for name, v in plan.places.items()},
    }


def plan_from_json(value: Json, models: ReadModel, constants: Mapping[str, np.ndarray]) -> Plan:
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


def _buffer(value: Json) -> Buffer:
    name, size, dtype, role = value
    if role not in _ROLES or type(size) is not int or size < 0:
        raise ValueError(f"buffer {name} of {size} elements with role {role}")
    return Buffer(str(name), size, str(dtype), role)


def read_kernel(value: Json, models: ReadModel) -> Kernel:
    """The inverse of `kernel_json`. Raises ValueError, TypeError, KeyError or EinNetError for a value that is no kernel."""
    kind = KINDS.get(value["kind"])
    if kind is None:
        raise ValueError(f"unknown kernel {value['kind']!r}")
    return kind.read(value, models)
