"""Shapes under which both sides of a rule have a meaning: unknown extents, the equations that operators ask for, and small solutions.

Extents are linear forms in unknowns. A matrix product, a sum, a concatenation each give equations between them, which are solved as they
come; what is left free is drawn from small numbers. Extents under a stride are not linear: such an unknown is checked once it has a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.corpus.published import Tree, inputs


class NoShapes(Exception):
    """The operators of a rule ask for shapes that contradict each other."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rule is tried with: activations, strides, paddings, kernels and groups replace those that it was published with."""

    stride: int = 1
    padding: str = "same"
    kernel: tuple[int, int] = (3, 3)
    groups: int = 1
    activation: str = "relu"
    halves: str = "none"
    """A convolution of joined channels with joined outputs has as many groups more; its two parts have equal outputs or others."""

    draw: int = 0

    def text(self) -> str:
        """Words such as `stride=1 padding=same`; what is irrelevant for a rule is left out by the caller."""
        kernel = "x".join(map(str, self.kernel))
        words = f"stride={self.stride} padding={self.padding} kernel={kernel} groups={self.groups} halves={self.halves}"
        return f"{words} activation={self.activation}"


class Linear(NamedTuple):
    """A constant plus unknowns with factors."""

    constant: int
    factors: tuple[tuple[int, int], ...] = ()

    def plus(self, other: Linear, times: int = 1) -> Linear:
        factors = dict(self.factors)
        for unknown, factor in other.factors:
            factors[unknown] = factors.get(unknown, 0) + times * factor
        return Linear(self.constant + times * other.constant, tuple(sorted((u, f) for u, f in factors.items() if f)))

    def put(self, unknown: int, value: Linear) -> Linear:
        factor = dict(self.factors).get(unknown, 0)
        return self.plus(Linear(0, ((unknown, 1),)), -factor).plus(value, factor) if factor else self

    def value(self, values: dict[int, int]) -> int:
        return self.constant + sum(factor * values[unknown] for unknown, factor in self.factors)


Extents = tuple[Linear, ...]

KERNEL_AXES = (2, 3)


@dataclass
class Solver:
    """Unknowns of one rule, the equations so far, and which unknowns are extents of kernels."""

    setting: Setting
    known: dict[int, Linear] = field(default_factory=dict)
    kernels: dict[int, int] = field(default_factory=dict)
    shapes: dict[str, Extents] = field(default_factory=dict)
    count: int = 0

    def fresh(self, rank: int) -> Extents:
        self.count += rank
        return tuple(Linear(0, ((u, 1),)) for u in range(self.count - rank, self.count))

    def now(self, e: Linear) -> Linear:
        while True:
            solved = [u for u, _ in e.factors if u in self.known]
            if not solved:
                return e
            for u in solved:
                e = e.put(u, self.known[u])

    def equal(self, a: Linear, b: Linear) -> None:
        difference = self.now(a.plus(b, -1))
        if not difference.factors:
            if difference.constant:
                raise NoShapes
            return
        for unknown, factor in reversed(difference.factors):
            if abs(factor) == 1:
                rest = difference.plus(Linear(0, ((unknown, factor),)), -1)
                self.known[unknown] = Linear(-factor * rest.constant, tuple((u, -factor * f) for u, f in rest.factors))
                return

    def alike(self, a: Extents, b: Extents, but: int = -1) -> None:
        if len(a) != len(b):
            raise NoShapes
        for axis, (x, y) in enumerate(zip(a, b, strict=True)):
            if axis != but:
                self.equal(x, y)

    def extents(self, tree: Tree, rank: int | None = None) -> Extents:
        """The extents of a tree; an input that has none yet gets unknown ones, of the rank that is asked for."""
        if isinstance(tree, str):
            if tree not in self.shapes and tree.startswith(("Iconv", "Cpool")):
                self.shapes[tree] = (*self.fresh(1), *(Linear(int(n)) for n in ("1", *tree.split("_")[1:3])))
            if tree not in self.shapes and tree.startswith("Imatmul"):
                self.shapes[tree] = self.fresh(1) * 2
            if tree not in self.shapes:
                if rank is None:
                    raise LookupError(tree)
                self.shapes[tree] = self.fresh(rank)
            if rank is not None and len(self.shapes[tree]) != rank:
                raise NoShapes
            return self.shapes[tree]
        assert isinstance(tree, tuple)
        found = self._operator(tree, rank)
        if rank is not None and len(found) != rank:
            raise NoShapes
        return found

    def _operator(self, tree: tuple[Tree, ...], rank: int | None) -> Extents:
        match tree:
            case ("relu" | "sigmoid" | "tanh", x):
                return self.extents(x, rank)
            case ("transpose", x):
                return self.extents(x, 2)[::-1]
            case ("smul", x, scalar):
                self.extents(scalar, 0)
                return self.extents(x, rank)
            case ("ewadd" | "ewmul", x, y):
                left, right = self._both(x, y, rank)
                self.alike(left, right)
                return left
            case ("concat", int(axis), x, y):
                left, right = self._both(x, y, rank)
                if axis >= len(left):
                    raise NoShapes
                self.alike(left, right, axis)
                return (*left[:axis], left[axis].plus(right[axis]), *left[axis + 1 :])
            case ("split_0" | "split_1", int(axis), x):
                first = self.boundary(x, axis)
                whole = self.extents(x, rank)
                part = first if tree[0] == "split_0" else whole[axis].plus(first, -1)
                return (*whole[:axis], part, *whole[axis + 1 :])
            case ("matmul", _, x, y):
                left, right = self.extents(x, 2), self.extents(y, 2)
                self.equal(left[1], right[0])
                return left[0], right[1]
            case ("conv2d", _, _, _, _, x, weights):
                groups = self.setting.groups
                if joins(tree) and self.setting.halves != "none":
                    groups *= 2
                    self._halves(x, weights)
                return self._convolution(self.extents(x, 4), self.extents(weights, 4), groups)
            case ("poolavg" | "poolmax", int(kh), int(kw), _, _, _, x):
                n, c, *space = self.extents(x, 4)
                return (n, c, *(self._under(e, Linear(k)) for e, k in zip(space, (kh, kw), strict=True)))
            case ("enlarge", int(kh), int(kw), weights):
                out, channels, *kernel = self.extents(weights, 4)
                self._kernel(kernel)
                return out, channels, Linear(kh), Linear(kw)
        raise ValueError(f"unknown operator {tree[0]}")

    def _both(self, x: Tree, y: Tree, rank: int | None) -> tuple[Extents, Extents]:
        """The extents of two operands of one rank: the one that is known tells the other's."""
        try:
            left = self.extents(x, rank)
        except LookupError:
            right = self.extents(y, rank)
            return self.extents(x, len(right)), right
        return left, self.extents(y, len(left))

    def boundary(self, tree: Tree, axis: int) -> Linear:
        """Where a split cuts: at the seam of the concatenation that made the axis, which both systems remember along with a tensor."""
        match tree:
            case ("concat", int(along), x, _) if along == axis:
                return self.extents(x, None)[axis]
            case ("concat", _, x, _):
                return self.boundary(x, axis)
            case ("relu" | "sigmoid" | "tanh" | "smul" | "ewadd" | "ewmul", x, *_):
                return self.boundary(x, axis)
            case ("matmul", _, x, y):
                return self.boundary((x, y)[axis], axis)
            case ("transpose", x):
                return self.boundary(x, 1 - axis)
            case ("conv2d", _, _, _, _, x, weights) if axis < 2:
                return self.boundary((x, weights)[axis], 0)
            case ("poolavg" | "poolmax", *_, x) if axis < 2:
                return self.boundary(x, axis)
        raise NoShapes

    def _kernel(self, extents: list[Linear]) -> None:
        for e, k in zip(map(self.now, extents), self.setting.kernel, strict=True):
            for u, _ in e.factors:
                self.kernels.setdefault(u, k)

    def _halves(self, x: Tree, weights: Tree) -> None:
        assert isinstance(x, tuple) and isinstance(weights, tuple)
        self.equal(self.extents(x[2], 4)[1], self.extents(x[3], 4)[1])
        if self.setting.halves == "equal":
            self.equal(self.extents(weights[2], 4)[0], self.extents(weights[3], 4)[0])

    def _convolution(self, x: Extents, weights: Extents, groups: int) -> Extents:
        self._kernel(list(weights[2:]))
        if self.now(weights[1]) == Linear(1) and self.now(x[1]) != Linear(1):
            self.equal(weights[0], x[1])
        else:
            self.equal(x[1], Linear(0).plus(weights[1], groups))
            if groups > 1:
                (each,) = self.fresh(1)
                self.equal(weights[0], Linear(0).plus(each, groups))
        return (x[0], weights[0], self._under(x[2], weights[2]), self._under(x[3], weights[3]))

    def _under(self, extent: Linear, kernel: Linear) -> Linear:
        """The extent of an output; unknown where it is not linear, to be checked with numbers."""
        if self.setting.stride > 1:
            return self.fresh(1)[0]
        return extent if self.setting.padding == "same" else extent.plus(kernel, -1).plus(Linear(1))


def joins(tree: Tree) -> bool:
    """A convolution of concatenated channels with concatenated outputs."""
    match tree:
        case ("conv2d", _, _, _, _, ("concat", 1, *_), ("concat", 0, *_)):
            return True
    return False


def solve(left: Tree, right: Tree, setting: Setting, ranks: dict[str, int]) -> Solver:
    """The shapes of the inputs in unknowns; `ranks` are those that the operators do not tell. Raises NoShapes."""
    solver = Solver(setting)
    for name, rank in ranks.items():
        solver.shapes[name] = solver.fresh(rank)
    for _ in range(8):
        try:
            one = solver.extents(left)
            solver.alike(one, solver.extents(right, len(one)))
            return solver
        except LookupError as error:
            solver = Solver(setting)
            ranks = {**ranks, str(error.args[0]): 4 if _number(str(error.args[0])) >= 7 else 2}
            for name, rank in ranks.items():
                solver.shapes[name] = solver.fresh(rank)
    raise NoShapes


def _number(name: str) -> int:
    """Both systems number their inputs: matrices below 7, then images and weights."""
    return int(name.rpartition("_")[2])


def draws(left: Tree, right: Tree, setting: Setting, accepts: object, ranks: dict[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Small shapes of the inputs for which `accepts` says that both sides have one shape; None where none was found."""
    try:
        solver = solve(left, right, setting, ranks)
    except NoShapes:
        return None
    names = [n for n in dict.fromkeys((*inputs(left), *inputs(right))) if n in solver.shapes]
    shapes = {n: tuple(map(solver.now, solver.shapes[n])) for n in names}
    free = sorted({u for s in shapes.values() for e in s for u, _ in e.factors})
    rng = Random(setting.draw)
    assert callable(accepts)
    for attempt in range(400):
        sizes = [2, 3, 4, 5, 6, 7] if attempt < 40 else [1, 2, 3, 4, 5, 6, 7, 8, 9]
        rng.shuffle(sizes)
        values = {u: solver.kernels.get(u) or (sizes[k % len(sizes)] if attempt < 40 else rng.choice(sizes)) for k, u in enumerate(free)}
        found = {n: tuple(e.value(values) for e in s) for n, s in shapes.items()}
        if all(0 < x <= 12 for s in found.values() for x in s) and accepts(found):
            return found
    return None
