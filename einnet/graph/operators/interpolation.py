"""Resize and Upsample: nearest elements by floor division, linear and cubic interpolation as a short sum with compile-time weights."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from einnet.expr.index import Index, bounds, simplify, var
from einnet.expr.nodes import Body, Cond, Iter, Read, Scope, Select, Tensor, make_mul
from einnet.graph.operators.builders import loops_of
from einnet.graph.operators.op import Function, Inexpressible, Op, Result, Unsupported, number

HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Position o of the result lies at `factor·o + shift` of the operand; `size` -> `target` elements, `ratio` the float32 scale."""

    factor: Fraction
    shift: Fraction
    size: int
    target: int
    ratio: np.float32
    mode: str

    def exact(self, o: int) -> Fraction:
        return self.factor * o + self.shift

    def rounded(self, o: int) -> np.float32:
        """The same in float32, operation by operation as the standard states it."""
        half, one = np.float32(0.5), np.float32(o)
        if self.mode == "align_corners":
            return np.float32(one * np.float32(self.size - 1) / np.float32(max(self.target - 1, 1)))
        if self.mode == "asymmetric":
            return np.float32(one / self.ratio)
        if self.mode == "tf_half_pixel_for_nn":
            return np.float32((one + half) / self.ratio)
        if self.mode == "pytorch_half_pixel" and self.target == 1:
            return np.float32(0)
        base = np.float32((one + half) / self.ratio) - half
        return np.float32(base)

    def machine(self, o: int) -> list[float]:
        """The positions that an implementation in float32 may come to.

        For the symmetric form, whose terms cancel, the order of operations decides unless the scale is exact.
        """
        if self.mode != "half_pixel_symmetric":
            return [float(self.rounded(o))]
        slack = 0.0 if Fraction(float(self.ratio)) == 1 / self.factor else 1e-5
        return [float(self.exact(o)) - slack, float(self.exact(o)) + slack]

    def index(self, name: str) -> Index:
        """The position as a (fractional) index function."""
        den = self.factor.denominator * self.shift.denominator
        return (var(name) * int(self.factor * den) + int(self.shift * den)) / den


def coordinates(mode: str, size: int, target: int, scale: float | None) -> Coordinates:
    """The transformation of one axis. `scale` is None where the result's extent was given instead."""
    ratio = np.float32(target) / np.float32(size) if scale is None else np.float32(scale)
    exact = Fraction(target, size)
    if np.float32(target) / np.float32(size) != ratio:
        exact = Fraction(number(float(ratio)))
    inverse = 1 / exact
    forms = {
        "half_pixel": (inverse, inverse / 2 - HALF),
        "pytorch_half_pixel": (inverse, inverse / 2 - HALF) if target > 1 else (Fraction(0), Fraction(0)),
        "align_corners": (Fraction(size - 1, target - 1) if target > 1 else Fraction(0), Fraction(0)),
        "asymmetric": (inverse, Fraction(0)),
        "tf_half_pixel_for_nn": (inverse, inverse / 2),
        "half_pixel_symmetric": (inverse, inverse / 2 - HALF + Fraction(size, 2) * (1 - target / (size * exact))),
    }
    if mode not in forms:
        raise Inexpressible(f"coordinate_transformation_mode {mode!r}")
    return Coordinates(*forms[mode], size, target, ratio, mode)


def axes_of(op: Op) -> list[Coordinates]:
    """The transformation of every dimension of the operand."""
    shape, target = op.input(0).shape, op.out.shape
    old = op.op_type == "Upsample" or op.version < 11
    mode = "asymmetric" if old else op.string("coordinate_transformation_mode", "half_pixel")
    if op.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Inexpressible("keep_aspect_ratio_policy other than stretch")
    axes = [a % len(shape) for a in op.integers("axes") or range(len(shape))]
    scales = op.attributes.get("scales") if old and op.version < 9 else None
    position = 1 if old else 2
    if scales is None and op.given(position) and op.input(position).shape != (0,):
        scales = tuple(float(v) for v in op.constant(position))
    given: dict[int, float] = dict(zip(axes, scales)) if isinstance(scales, tuple) and scales else {}
    if not given:
        return [coordinates(mode, n, m, None) for n, m in zip(shape, target)]
    return [coordinates(mode, n, m, given.get(k, 1.0)) for k, (n, m) in enumerate(zip(shape, target))]


def nearest_index(position: Index, mode: str) -> Index:
    """A fractional position to a whole one: where that is a floor of few terms, nothing has to be clamped, and what is read so is seen to repeat."""
    if mode == "floor":
        return position // 1
    if mode == "ceil":
        return ceiled(position)
    half = Index((), 1, 2)
    return ceiled(position - half) if mode == "round_prefer_floor" else (position + half) // 1


def ceiled(position: Index) -> Index:
    """The least whole number from a fraction on: ceil(n/d) = floor((n + d - 1)/d)."""
    return (position + Index((), position.den - 1, position.den)) // 1


def nearest_float(x: float, mode: str) -> int:
    if mode in ("floor", "ceil"):
        return floor(x) if mode == "floor" else ceil(x)
    up = x - floor(x) > 0.5 or (x - floor(x) == 0.5 and mode == "round_prefer_ceil")
    return floor(x) + up


def nearest(op: Op, axes: list[Coordinates]) -> Result:
    """Y[i] = X[round(position)], the position clamped to the operand."""
    x = op.input(0).tensor
    loops = loops_of(op.out.shape)
    old = op.op_type == "Upsample" or op.version < 11
    places = []
    for axis, loop in zip(axes, loops):
        mode = op.string("nearest_mode", "round_prefer_floor")
        if old:
            mode = "floor" if axis.factor <= 1 else "ceil"
        if mode not in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            return Unsupported(f"nearest_mode {mode!r}")
        place = simplify(nearest_index(axis.index(loop.name), mode), {loop.name: loop.range})
        for o in range(axis.target):
            exact = nearest_index(Index((), *_ratio(axis.exact(o))), mode).const
            if any(_clamp(exact, axis.size) != _clamp(nearest_float(x, mode), axis.size) for x in axis.machine(o)):
                return Unsupported("positions that fall elsewhere in float32 than in exact arithmetic")
        places.append(place)
    return Scope(loops, (), clamped(x, places, loops))


def _ratio(value: Fraction) -> tuple[int, int]:
    return value.numerator, value.denominator


def _clamp(k: int, size: int) -> int:
    return min(max(k, 0), size - 1)


def clamped(x: Tensor, places: list[Index], loops: tuple[Iter, ...], axis: int = 0) -> Body:
    """x at the places, each moved to the nearest element of the operand where it leaves it."""
    if axis == len(places):
        return Read(x, tuple(places))

    def at(place: Index) -> Body:
        return clamped(x, [*places[:axis], place, *places[axis + 1 :]], loops, axis + 1)

    place, last = places[axis], x.shape[axis] - 1
    low, high = bounds(place, {i.name: i.range for i in loops})
    body = at(place)
    if low < 0:
        body = Select((Cond(place),), body, at(Index()))
    if high > last:
        body = Select((Cond(place - last - 1),), at(Index((), last)), body)
    return body


def hat(t: Fraction) -> list[Fraction]:
    """Weights of the two elements around a position with fractional part t."""
    return [1 - t, t]


def cubic(t: Fraction, a: Fraction) -> list[Fraction]:
    """Weights of the four elements around a position with fractional part t (Keys 1981)."""

    def near(d: Fraction) -> Fraction:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Fraction) -> Fraction:
        return ((d - 5) * d + 8) * d * a - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def tap_table(axis: Coordinates, a: Fraction | None, exclude: bool) -> np.ndarray:
    """weights[o, t] of element floor(position) - (taps/2 - 1) + t; what falls outside goes to the nearest element, or nowhere."""
    taps = 2 if a is None else 4
    table = np.zeros((axis.target, taps))
    for o in range(axis.target):
        position = axis.exact(o)
        first = floor(position) - (taps // 2 - 1)
        weights = hat(position - floor(position)) if a is None else cubic(position - floor(position), a)
        if exclude:
            inside = [w if 0 <= first + t < axis.size else Fraction(0) for t, w in enumerate(weights)]
            weights = [w / sum(inside) for w in inside]
        for t, w in enumerate(weights):
            slot = _clamp(first + t, axis.size) - first
            if w and not 0 <= slot < taps:
                raise Inexpressible("a position beyond the window of its interpolation")
            if w:
                table[o, slot] += float(w)
    return table


def interpolated(op: Op, axes: list[Coordinates], a: Fraction | None) -> Result:
    """Σ over taps of X[floor(position) + tap] · weight[i, tap], in every dimension that changes."""
    x = op.input(0).tensor
    loops = loops_of(op.out.shape)
    places: list[Index] = []
    sums: list[Iter] = []
    factors: list[Body] = []
    for k, (axis, loop) in enumerate(zip(axes, loops)):
        if axis.factor == 1 and axis.shift == 0 and axis.size == axis.target:
            places.append(var(loop.name))
            continue
        table = tap_table(axis, a, bool(op.integer("exclude_outside", 0)))
        tap = Iter(f"{loop.name}'", 0, table.shape[1])
        base = simplify(axis.index(loop.name) // 1, {loop.name: loop.range})
        places.append(base + var(tap.name) - (table.shape[1] // 2 - 1))
        sums.append(tap)
        factors.append(Read(op.weight(table, f"taps{k}"), (var(loop.name), var(tap.name))))
    return Scope(loops, tuple(sums), make_mul((Read(x, tuple(places)), *factors)))


def resize(op: Op) -> Result:
    """Resize (opset 10 and later) and Upsample."""
    if op.integer("antialias", 0):
        return Unsupported("antialias")
    axes = axes_of(op)
    mode = op.string("mode", "nearest")
    if mode == "nearest":
        return nearest(op, axes)
    if mode in ("linear", "bilinear"):
        return interpolated(op, axes, None)
    return interpolated(op, axes, op.real("cubic_coeff_a", -0.75)) if mode == "cubic" else Unsupported(f"mode {mode!r}")


RESIZE: dict[str, Function] = {"Resize": resize, "Upsample": resize}
