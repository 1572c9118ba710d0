"""Constants of a plan computed again from the model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einnet.evidence.report.told import Tell, each, silent
from einnet.expr.nodes import Scope, Tensor, is_weight, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.graph.program import Program
from einnet.instantiate.kernels import EOperator, Plan, Value
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.rounded import rounded

Array = np.ndarray[Any, np.dtype[Any]]

HALF = 0.5 + 2.0**-12
"""Units in the last place by which a constant may differ from its value in float64: rounding, and what float64 itself errs by."""


@dataclass
class Recomputed:
    """What constant buffers were found to hold: `same` are weights of the model bit by bit, `computed` their expressions' values; and problems."""

    values: dict[str, Value] = field(default_factory=dict)
    same: int = 0
    computed: int = 0
    tables: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.same + self.computed + self.tables


def recomputed(program: Program, plan: Plan, tell: Tell = silent) -> Recomputed:
    """Every constant of the plan beside what it is said to be: a weight of the model, or the value of an expression over such.

    A constant of a bilinear algorithm, whose values stand in the expressions of the kernels that read it, is compared where these are lifted.
    """
    known = program.tensors()
    found = Recomputed()
    rounding = factors_alone(plan)
    carried = {view.buffer for k in plan.kernels if isinstance(k, EOperator) for view in valued_views(k)}
    for buffer in each([b for b in plan.buffers if b.role == "constant"], "constant", tell):
        name, held = buffer.name, np.asarray(plan.constants[buffer.name]).reshape(-1)
        if name in plan.expressions:
            problem = differs(plan.expressions[name], held, program.weights, known, plan.constants, rounding.get(name, F32))
            if problem:
                found.problems.append(f"constant {name} {problem}")
            else:
                found.values[name], found.computed = plan.expressions[name], found.computed + 1
        elif name in program.weights and name in known:
            own = np.asarray(program.weights[name]).reshape(-1)
            if bits(held) in (bits(own), bits(rounded(own, rounding.get(name, F32)))):
                found.values[name], found.same = known[name], found.same + 1
            else:
                found.problems.append(f"constant {name} is not the model's weight of that name")
        elif name in carried:
            found.tables += 1
        elif any(v.buffer == name for k in plan.kernels for v in k.operand_views):
            found.problems.append(f"constant {name} is no weight of the model, and nothing says how it was computed")
    return found


def as_said(program: Program, plan: Plan) -> dict[str, Value]:
    """What the constants of a plan that was made in this process hold: nothing is computed again."""
    known = program.tensors()
    own = {b.name: known[b.name] for b in plan.buffers if b.role == "constant" and b.name in program.weights and b.name in known}
    return {**own, **plan.expressions}


def valued_views(kernel: EOperator) -> list[Any]:
    """The views that stand for tensors that carry their values."""
    declared = tensors(kernel.scope)
    return [view for name, view in kernel.operands if name in declared and declared[name].values is not None]


def bits(values: Array) -> tuple[str, bytes]:
    """An array's element type and bytes."""
    return values.dtype.str, np.ascontiguousarray(values).tobytes()


def factors_alone(plan: Plan) -> dict[str, Arithmetic]:
    """The constants that are nothing but factors of products which round them: held as they are, or as they are rounded, results are the same."""
    read: dict[str, set[Arithmetic]] = {}
    for k in plan.kernels:
        own = k.inputs if isinstance(k, Contraction) else ()
        for v in k.operand_views:
            read.setdefault(v.buffer, set()).add(k.factors if v in own else F32)
    return {name: a for name, found in read.items() if len(found) == 1 and (a := next(iter(found))).rounds}


def differs(
    expression: Scope, held: Array, weights: Mapping[str, Array], known: Mapping[str, Tensor], constants: Mapping[str, Array],
    arithmetic: Arithmetic = F32,
) -> str:  # fmt: skip
    """Why a constant is not the value of an expression over the model's weights, or over another constant laid flat; empty where it is.

    It may be rounded to numbers of the `arithmetic`.
    """
    read = {t.name: t for t in tensors(expression).values() if t.values is None}
    own = {name for name, t in read.items() if name in weights and known.get(name) == t}
    values = {name: np.asarray(weights[name] if name in own else constants[name]) for name in read if name in own or name in constants}
    strange = next((name for name, t in read.items() if name not in values or values[name].shape != t.shape), None)
    if strange is not None or not is_weight(expression):
        return f"is computed of {strange}, which is no weight of the model"
    value = evaluate(expression, values).reshape(-1)
    if held.dtype not in (np.float32, np.int8, np.uint8) or held.size != value.size:
        return f"has {held.size} values of {held.dtype}, its expression {value.size}"
    same = near(held, value) | nearly(held, value, arithmetic)
    if not same.all():
        at = int(np.flatnonzero(~same)[0])
        return f"is {held[at]!r} at {at} where its expression over the model's weights gives {value[at]!r}"
    return ""


def nearly(held: Array, value: Array, arithmetic: Arithmetic) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where numbers of an arithmetic are values in double precision that were rounded to float32, to a neighbour at most, and then to it; nowhere
    where it rounds nothing."""
    if not arithmetic.rounds or held.dtype != np.float32:
        return np.zeros(held.shape, np.bool_)
    with np.errstate(all="ignore"):
        single = value.astype(np.float32)
        around = (single, *(np.nextafter(single, np.float32(end)) for end in (-np.inf, np.inf)))
        return np.asarray(np.any([held == rounded(x, arithmetic) for x in around], axis=0))


def near(held: Array, value: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where what is held in single precision is a value in double precision, rounded; bytes are the values themselves."""
    if held.dtype.kind in "iu":
        return np.asarray(held == value)
    with np.errstate(all="ignore"):
        exact = held.astype(np.float64)
        close = np.abs(exact - value) <= HALF * np.spacing(np.maximum(np.abs(held), np.abs(value).astype(np.float32))).astype(np.float64)
    return np.asarray(close | (np.isnan(exact) & np.isnan(value)) | (exact == value))
