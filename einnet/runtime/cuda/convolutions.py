"""Convolutions on a device through cuDNN's graphs: raw addresses, every layout that strides can say, plans chosen by time and found again.

A residual is added before the bias: cuDNN 9 declines the other order. Only a forward convolution has anything fused to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from einnet.errors import BackendError
from einnet.instantiate.kernels import Conv, View
from einnet.runtime.cuda.driver import Call, Driver

PLANS = 8
"""Plans that are built and compared."""

KEPT = 4
"""Steps whose plans stay listed: to list and to build them takes far longer than to run them."""

INEXACT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
"""Notes on a plan that strict float32 excludes."""

UNSTEADY = ("NONDETERMINISTIC",)
"""Notes that every arithmetic excludes: the same inputs give the same outputs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An engine of cuDNN with its settings, by which the same version finds it again."""

    engine: int
    knobs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Padding before and after, stride and dilation of each spatial dimension."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def plane(view: View, filters: bool = False) -> View:
    """At least two spatial dimensions, and strides that fit a batch of one or a dimension that is never walked, as cuDNN wants them.

    `filters`: three dimensions stand before the spatial ones, not two.
    """
    lead = 3 if filters else 2
    more = max(0, 2 - (len(view.shape) - lead))
    reach = max((n * s for n, s in zip(view.shape, view.strides, strict=True)), default=1)
    shape = (*view.shape[:lead], *(1,) * more, *view.shape[lead:])
    strides = (*view.strides[:lead], *(reach,) * more, *view.strides[lead:])
    moves = (n > 1 or (s > 0 and d) for d, (n, s) in enumerate(zip(shape, strides, strict=True)))
    return replace(view, shape=shape, strides=tuple(s if kept else reach for s, kept in zip(strides, moves, strict=True)))


def weight(step: Conv) -> View:
    """The filters as cuDNN indexes them: (groups·f, c, taps...); transposed (groups·c, f, taps...)."""
    w = plane(step.w, filters=True)
    (groups, f, c, *taps), (by_group, by_f, by_c, *by_tap) = w.shape, w.strides
    count, other, stride, stride_other = (c, f, by_c, by_f) if step.transposed else (f, c, by_f, by_c)
    if groups > 1 and by_group != count * stride:
        raise BackendError(f"cuDNN cannot walk the groups of the filters {step.w}")
    return replace(w, shape=(groups * count, other, *taps), strides=(stride, stride_other, *by_tap))


def geometry(step: Conv) -> Geometry:
    """The padding behind follows from the sizes: it makes the forward convolution give exactly what there is. Raises BackendError."""
    x, y, w = plane(step.x), plane(step.y), weight(step)
    large, small = (y, x) if step.transposed else (x, y)
    more = len(x.shape) - len(step.x.shape)
    strides, dilations, before = ((*(v,) * more, *given) for v, given in ((1, step.strides), (1, step.dilations), (0, step.pads_begin)))
    after = []
    for n, m, s, d, p, r in zip(small.shape[2:], large.shape[2:], strides, dilations, before, w.shape[2:], strict=True):
        needed = (n - 1) * s + (r - 1) * d + 1 - m - p
        if p < 0 or needed <= -s:
            raise BackendError(f"cuDNN has no convolution from {m} to {n} elements with stride {s} and padding {p}")
        after.append(max(0, needed))
    return Geometry(before, tuple(after), strides, dilations)


@dataclass
class Listed:
    """cuDNN's graph of a step with the plans that it proposes, its tensors with their views, and which plans are built (False: cannot be)."""

    graph: Any
    tensors: list[tuple[Any, View]]
    built: dict[int, bool] = field(default_factory=dict)

    def plans(self) -> Iterator[tuple[int, Plan]]:
        """Every plan with its number."""
        for n in range(self.graph.get_execution_plan_count()):
            engine, knobs = self.graph.get_engine_and_knobs_at_index(n)
            yield n, Plan(int(engine), tuple(sorted((k.name, int(v)) for k, v in (knobs or {}).items())))

    def build(self, n: int) -> bool:
        """Make the plan ready; False for one that is excluded by its notes, or declined when it is compiled."""
        if n not in self.built:
            try:
                self.graph.build_plan_at_index(n)
                self.built[n] = True
            except Exception:  # of several kinds
                self.built[n] = False
        return self.built[n]


class Convolutions:
    """cuDNN on a driver's stream. `math` is fp32, without tensor cores, or tf32."""

    def __init__(self, driver: Driver, math: str) -> None:
        self.driver, self.math = driver, math
        self._cudnn: Any = import_module("cudnn")
        self._handle = self._cudnn.create_handle()
        weakref.finalize(self, self._cudnn.destroy_handle, self._handle)
        self._cudnn.set_stream(handle=self._handle, stream=driver.stream)
        self._listed: dict[Conv, Listed] = {}
        self._places: dict[int, int] = {}
        """Scratch memory by its size."""

    def version(self) -> str:
        return str(self._cudnn.backend_version())

    def proposals(self, step: Conv) -> list[Plan]:
        """Plans that can be built for the step, the one that is expected to be fastest first. Raises BackendError where there is none."""
        listed = self._planned(step)
        found: dict[Plan, None] = {}
        for n, plan in listed.plans():
            if len(found) < PLANS and plan not in found and listed.build(n):
                found[plan] = None
        if not found:
            raise BackendError(f"cuDNN has no {self.math} plan for {described(step)}")
        return list(found)

    def bind(self, step: Conv, addresses: dict[str, int], plan: Plan) -> list[Call]:
        """The step's call with a plan. Raises BackendError where cuDNN does not find the plan."""
        listed = self._planned(step)
        for n, found in listed.plans():
            if found == plan and listed.build(n):
                graph, pointers = listed.graph, {t: addresses[v.buffer] + 4 * v.offset for t, v in listed.tensors}
                scratch = self._scratch(graph.get_workspace_size_plan_at_index(n))
                return [partial(graph.execute_plan_at_index, pointers, scratch, n, handle=self._handle)]
        raise BackendError(f"cuDNN does not find engine {plan.engine} again for {described(step)}")

    def _scratch(self, nbytes: int) -> int:
        """One region for each power of two: the steps run one after the other."""
        size = 1 << max(8, (nbytes - 1).bit_length())
        if size not in self._places:
            self._places[size] = self.driver.allocate(size)
        return self._places[size]

    def _planned(self, step: Conv) -> Listed:
        """The graph with what cuDNN proposes for it; the last few are kept."""
        if step not in self._listed:
            graph, tensors = build(self._cudnn, step, handle=self._handle)
            try:
                plan(self._cudnn, graph, self.math)
            except Exception as e:
                why = str(e).splitlines()[0] if str(e) else type(e).__name__
                raise BackendError(f"cuDNN has no plan for {described(step)}: {why}") from e
            while len(self._listed) >= KEPT:
                del self._listed[next(iter(self._listed))]
            self._listed[step] = Listed(graph, tensors)
        return self._listed[step]


def build(cudnn: Any, step: Conv, **where: Any) -> tuple[Any, list[tuple[Any, View]]]:
    """cuDNN's graph of a step; `where` names a handle, or the properties of a device that is not there."""
    float32 = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=float32, intermediate_data_type=float32, compute_data_type=float32, **where)
    tensors: list[tuple[Any, View]] = []

    def tensor(name: str, view: View) -> Any:
        made = graph.tensor(name=name, dim=view.shape, stride=view.strides, data_type=float32)
        tensors.append((made, view))
        return made

    y = plane(step.y)
    x, w = tensor("x", plane(step.x)), tensor("w", weight(step))
    g = geometry(step)
    where_to = {"pre_padding": g.before, "post_padding": g.after, "stride": g.strides, "dilation": g.dilations, "compute_data_type": float32}
    if step.transposed:
        out = graph.conv_dgrad(loss=x, filter=w, **where_to)
        out.set_dim(y.shape)
    else:
        out = graph.conv_fprop(image=x, weight=w, **where_to)
    for n, operand in enumerate(added(step)):
        out = graph.add(a=out, b=tensor(f"p{n}", operand))
    if any(p.kind == "relu" for p in step.post):
        out = graph.relu(input=out)
    out.set_output(True).set_data_type(float32).set_dim(y.shape).set_stride(y.strides)
    tensors.append((out, y))
    return graph, tensors


def added(step: Conv) -> Iterator[View]:
    """What is added to the result, a residual before a bias."""
    operands = [plane(p.operand) for p in step.post if p.operand is not None]
    yield from sorted(operands, key=lambda v: v.shape != plane(step.y).shape)


def plan(cudnn: Any, graph: Any, math: str) -> None:
    """Ask for plans, and exclude those that the arithmetic does, and those whose sums depend on the order in which blocks end."""
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    excluded = (*UNSTEADY, *(INEXACT if math == "fp32" else ()))
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in excluded])


def described(step: Conv) -> str:
    """The step for a message."""
    kind = "transposed convolution" if step.transposed else "convolution"
    return f"the {kind} of {step.x.shape} with {step.w.shape} to {step.y.shape}, {len(step.post)} operations fused"
