"""The numbers of a program, subprogram by subprogram: what runs beside its own expression, each element within its a-priori bound.

A whole network has no useful a-priori bound: that of each layer multiplies those before it. A subprogram has one, and it is computed of the
expression that the kernels lift to, so that the growth of a derived form is in it: of the values that the program itself handed to the subprogram.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einnet.evidence.error_limits import bounded_at, some_points
from einnet.evidence.exercise import within
from einnet.evidence.lift import Claim, Lifted, Lifting
from einnet.evidence.report.told import Tell, each, silent
from einnet.expr.nodes import tensors
from einnet.expr.values.bodies import numerator
from einnet.graph.program import Program

Array = np.ndarray[Any, np.dtype[Any]]

BUDGET, POINTS = 1 << 17, 512
"""Evaluations of the body for a subprogram and a draw, and elements, at most."""

FEW = 1 << 13
"""Elements of a subprogram that are all compared where that is cheap."""

DRAWS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda x: x,
    "negative": lambda x: -np.abs(x),
    "zero": np.zeros_like,
    "large": lambda x: x * x.dtype.type(1e4),
    "tiny": lambda x: x * x.dtype.type(1e-20),
}
"""What floats of inputs are made of standard normal ones."""

SPECIAL = {"NaN": np.nan, "infinity": np.inf}
"""What stands at one element of every input of floats: programs are compared with ONNX Runtime in where they give NaN, and pass either way."""

Observed = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Runs the program on inputs by their names in the model; gives what it held of the model's tensors, by their names in the program."""


@dataclass
class Compared:
    """Of one draw: subprograms and elements compared, the greatest error as a share of its bound, the greatest bound of max|y|, and problems."""

    draw: str
    subprograms: int = 0
    elements: int = 0
    share: float = 0.0
    bound: float = 0.0
    not_compared: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def drawn(inputs: Mapping[str, Array], draw: str) -> dict[str, Array]:
    """Inputs of a kind, made of standard normal ones; what is no float stays. Arithmetic on an array without an axis gives a number, and no array."""
    if draw in SPECIAL:
        return {name: with_one(x, SPECIAL[draw]) for name, x in inputs.items()}
    return {name: np.asarray(DRAWS[draw](x)) if x.dtype.kind == "f" else x for name, x in inputs.items()}


def nearly_zero(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Floats of zeros, each moved by a rounding of 1 or so; what is no float stays."""
    return {name: np.asarray(x * np.finfo(x.dtype).eps) if x.dtype.kind == "f" else x for name, x in inputs.items()}


def with_one(x: Array, value: float) -> Array:
    """Floats with another value in the middle."""
    found = x.copy()
    if x.dtype.kind == "f" and x.size:
        found.reshape(-1)[x.size // 2] = value
    return found


def unlike(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> list[str]:
    """Outputs that are NaN at other elements, or infinite at others."""
    floats = [name for name, y in wanted.items() if y.dtype.kind == "f"]
    return [n for n in floats if not (same(np.isnan, got[n], wanted[n]) and same(np.isinf, got[n], wanted[n]))]


def same(what: Callable[[Array], Array], one: Array, other: Array) -> bool:
    """Something holds at the same elements of both."""
    return one.shape == other.shape and bool(np.array_equal(what(one), what(other)))


def compare(
    program: Program, lifting: Lifting, observed: Observed, inputs: Mapping[str, Array], draw: str, seed: int = 0, cut_off: float = 0.0,
    tell: Tell = silent,
) -> Compared:
    """Every lifted subprogram beside its expression, on inputs by their names in the model. A part of a model reads what it `observed`, too."""
    given = drawn(inputs, draw)
    held = dict(observed(given))
    names = {t.name: program.names.get(t.name, t.name) for t in program.inputs}
    own = {tensor: given[name] for tensor, name in names.items() if name in given}
    arrays = {**{name: np.asarray(w) for name, w in program.weights.items()}, **own, **held}
    found = Compared(draw)
    for lifted in each(lifting.computed(), f"numbers of {draw} inputs, subprogram", tell):
        if lifted.output not in held or not lifted.claims:
            found.not_compared.append(lifted.output)
            continue
        compare_one(lifted, arrays, found, seed, cut_off)
    return found


def compare_one(lifted: Lifted, arrays: Mapping[str, Array], found: Compared, seed: int, cut_off: float = 0.0) -> None:
    """One subprogram at some elements of every part of it."""
    got, budget = arrays[lifted.output], BUDGET // len(lifted.claims) + 1
    for claim in lifted.claims:
        read = tensors(claim.plan)
        if any(name not in arrays and t.values is None for name, t in read.items()):
            found.not_compared.append(lifted.output)
            return
        points = some_points(claim.plan, budget, FEW if len(lifted.claims) == 1 else POINTS, seed)
        given = {name: arrays[name] for name, t in read.items() if t.values is None}
        value, error = bounded_at(claim.plan, points, given, {}, cut_off, lifted.arithmetic)
        here = elements(claim, got, points)
        inside = within(here, value, error)
        found.elements += len(points)
        with np.errstate(all="ignore"):
            shares = np.where(np.isfinite(value) & (error > 0), np.abs(here - value) / error, 0.0)
            scale = float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0))
            worst = float(np.max(error[np.isfinite(error)], initial=0.0))
        found.share = max(found.share, float(np.max(shares[np.isfinite(shares)], initial=0.0)))
        if found.draw == "normal" and scale:
            found.bound = max(found.bound, worst / scale)
        if not inside.all():
            k = int(np.flatnonzero(~inside)[0])
            at = [int(x) for x in points[k]]
            apart = f"{float(here[k])!r} at {at}, where its expression is {float(value[k])!r} within {float(error[k]):.3g}"
            found.problems.append(f"{lifted.output} is {apart} ({found.draw} inputs)")
            return
    found.subprograms += 1


def elements(claim: Claim, whole: Array, points: Array) -> Array:
    """The elements of a tensor that a claim is about, at points of its loops."""
    if claim.index is None:
        lows = np.array([lo for lo, _ in claim.plan.box], np.int64)
        at: tuple[Array, ...] = tuple((points - lows).T)
    else:
        env = {i.name: points[:, n] for n, i in enumerate(claim.plan.loops)}
        at = tuple(np.broadcast_to(numerator(ix, env), (len(points),)) for ix in claim.index)
    return np.asarray(whole[at], np.float64).reshape(len(points)) if whole.shape else np.full(len(points), float(whole))
