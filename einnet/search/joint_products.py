"""Products of one tensor with weights, wherever they stand in a plan, as one product where that is measured to take less time.

What stands in one subprogram is found with its form (`instantiate.joint`); queries that are a subprogram and keys that are part of another meet here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from einnet.expr.nodes import Scope, Tensor, tensors
from einnet.instantiate.joint import COLUMNS, ROWS, Joined, groups, results, with_group
from einnet.instantiate.kernels import Buffer, Kernel, OpaqueCall, Plan, View, dense_view
from einnet.search.copy_elimination import Measured, views_of
from einnet.search.plan import within

GAIN = 0.01
"""Share of the time by which a joint product, with all that reads its parts, has to be faster."""


def together(plan: Plan, declared: Mapping[str, Tensor], values: Mapping[str, np.ndarray], costs: Callable[[Plan], Measured]) -> Plan:
    """The plan with joint products; `declared` are the program's tensors, `values` its weights, `costs` gives the seconds of a plan's kernels.

    What it computes is the same whatever is measured; a kernel without a time stays as it is.
    """
    weights, tried = known_weights(plan, declared, values), set[tuple[str, ...]]()
    while (group := next((g for g in groups(plan.kernels, free(plan), weights) if results(g) not in tried), None)) is not None:
        tried.add(results(group))
        ways = (with_group(Joined(list(plan.kernels), free(plan)), group, weights, axis) for axis in (ROWS, COLUMNS))
        best = plan
        for made in [made for found in ways if found and (made := planned(plan, found))]:
            known = {**plan.constants, **best.constants, **made.constants}  # weights are packed, and come from memory, on both sides
            if gains(costs(replace(made, constants=known)), best.kernels, made.kernels):
                best = made
        plan = best
    return plan


def known_weights(plan: Plan, declared: Mapping[str, Tensor], values: Mapping[str, np.ndarray]) -> dict[str, Tensor | Scope]:
    """What the constants of a plan hold: weights of the program, and what was computed of such alone."""
    own = [declared[b.name] for b in plan.buffers if b.role == "constant" and b.name in declared and b.name not in plan.expressions]
    computed = {name: s for name, s in plan.expressions.items() if all(t.name in values or t.values is not None for t in tensors(s).values())}
    return {**{t.name: t for t in own if t.weight and t.dtype == "f32" and t.name in values}, **computed}


def free(plan: Plan) -> dict[str, Buffer]:
    """The buffers that only kernels touch whose views may be any."""
    fixed = {v.buffer for _, v in (*plan.inputs, *plan.outputs)} | {v.buffer for k in plan.kernels if isinstance(k, OpaqueCall) for v in views_of(k)}
    return {b.name: b for b in plan.buffers if b.role == "temporary" and b.name not in fixed}


def planned(plan: Plan, found: Joined) -> Plan | None:
    """The plan with these kernels; None where a name is taken."""
    taken = {b.name for b in plan.buffers}
    new = {name: b for name, b in found.temporaries.items() if name not in taken}
    if {whole for whole, _ in found.windows.values()} - new.keys() or found.weights.keys() & taken:
        return None
    constants = {name: beside(plan.constants, views, axis) for name, (views, axis) in found.parts.items()}
    buffers = (*plan.buffers, *new.values(), *(Buffer(name, value.size, "f32", "constant") for name, value in constants.items()))
    used = {v.buffer for k in found.kernels for v in views_of(k)} | {v.buffer for _, v in (*plan.inputs, *plan.outputs)}
    return Plan(
        tuple(b for b in buffers if b.name in used), tuple(found.kernels), plan.inputs, plan.outputs,
        within({**plan.constants, **constants}, used), within({**plan.expressions, **found.weights}, used), placed(plan.places, found),
    )  # fmt: skip


def beside(constants: Mapping[str, np.ndarray], views: Sequence[View], axis: int) -> np.ndarray:
    """What matrices of constants hold, side by side or one below the other, flat."""
    found = [as_strided(constants[v.buffer].reshape(-1)[v.offset :], v.shape, [s * constants[v.buffer].itemsize for s in v.strides]) for v in views]
    return np.concatenate(found, axis=axis).reshape(-1)


def placed(places: Mapping[str, View], found: Joined) -> dict[str, View]:
    """Where tensors stand, those too that have become windows."""
    shapes = {name: tuple(w.extent if d == w.axis else n for d, n in enumerate(w.shape)) for name, (_, w) in found.windows.items()}
    own = {name: dense_view(name, shape) for name, shape in shapes.items()}

    def moved(v: View) -> View | None:
        whole, window = found.windows.get(v.buffer, ("", None))
        return window.view(v, whole) if window else v

    return {name: view for name, v in {**places, **own}.items() if (view := moved(v))}


def gains(measured: Measured, before: Sequence[Kernel], after: Sequence[Kernel]) -> bool:
    """The new kernels are measured to take less time than those they stand for."""
    kept = {id(k) for k in before} & {id(k) for k in after}
    old, new = ([k for k in kernels if id(k) not in kept] for kernels in (before, after))
    seconds = [s for s in measured([*old, *new]) if s is not None]
    return len(seconds) == len(old) + len(new) and sum(seconds[len(old) :]) < (1 - GAIN) * sum(seconds[: len(old)])
