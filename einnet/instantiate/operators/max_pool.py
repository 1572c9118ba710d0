"""Max-pooling: y[n, c, o...] = max_{r...} x[n, c, o·stride + r·dilation - pad...], where what is read outside of x does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Self

from einnet.derivation.facts import in_range
from einnet.expr.index import Index, var
from einnet.expr.nodes import INF, Iter, Read, Scope, indices
from einnet.instantiate.address import flat_index, name_of
from einnet.instantiate.kernels import Shown, dense_strides, loops_of, strided_view
from einnet.instantiate.kernels.kernel import OneOperand, ReadModel, StoreModel
from einnet.instantiate.kernels.primitive import RESULT, SOURCE, Primitive
from einnet.instantiate.kernels.views import Json, integers, read_view, view_json
from einnet.instantiate.matching.collapse import Dimension, collapse
from einnet.instantiate.matching.types import Match, Mismatch, NoFix, Operator, Table

INFERENCE, MAXIMUM = 96, 0x1FF
"""oneDNN's names of what a primitive is for and of how it pools."""

MOST_SPATIAL = 3


@dataclass(frozen=True, slots=True)
class MaxPool(OneOperand):
    """The maximum over windows. Views: x and y (n, channels, spatial...); `taps` is the extent of the window in each spatial dimension."""

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    kind: ClassVar[str] = "max_pool"
    loses_nan: ClassVar[bool] = True
    """The library takes the maximum with the least number, which it gives for NaN and for an infinity below it."""

    @property
    def flops(self) -> int:
        return prod(self.y.shape) * prod(self.taps)

    def along(self, dimension: int) -> tuple[int | None, ...] | None:
        return (dimension,) if dimension < 2 else None

    def meaning(self, shown: Shown) -> Scope:
        loops = loops_of(self.y.shape)
        sums = tuple(Iter(f"r{d}", 0, extent) for d, extent in enumerate(self.taps))
        n, c, *o = indices(loops)
        windows = zip(o, indices(sums), self.strides, self.dilations, self.pads, strict=True)
        return Scope(loops, sums, Read(shown(self.x), (n, c, *(ox * s + rx * d - p for ox, rx, s, d, p in windows)), -INF), "max")

    def primitives(self) -> Iterator[Primitive]:
        sizes = zip(self.x.shape[2:], self.y.shape[2:], self.taps, self.strides, self.dilations, self.pads, strict=True)
        ends = tuple((out - 1) * s + (r - 1) * d + 1 - p - n for n, out, r, s, d, p in sizes)
        gaps = tuple(d - 1 for d in self.dilations)
        yield Primitive(
            "pooling_forward", (INFERENCE, MAXIMUM), ((SOURCE, self.x), (RESULT, self.y)), (self.strides, self.taps, gaps, self.pads, ends)
        )

    def attributes(self) -> dict[str, Json]:
        return {name: list(getattr(self, name)) for name in ("taps", "strides", "dilations", "pads")}

    def json(self, store: StoreModel) -> dict[str, Json]:
        return {"x": view_json(self.x), "y": view_json(self.y), **self.attributes()}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        taps, strides, dilations, pads = (integers(value[name]) for name in ("taps", "strides", "dilations", "pads"))
        return cls(read_view(value["x"]), read_view(value["y"]), taps, strides, dilations, pads)

    def describe(self) -> str:
        marks = "".join(f" {mark}{n}" for mark, n in (("s", max(self.strides)), ("d", max(self.dilations))) if n > 1)
        return f"MaxPool{'x'.join(map(str, self.taps))}{marks} {self.x.shape[1]}@{'x'.join(map(str, self.x.shape[2:]))}"


@dataclass(frozen=True, slots=True)
class _Window:
    """One spatial dimension of the data: read at stride·loop + dilation·tap - pad, one position `step` elements after the other."""

    loop: Iter
    tap: Iter
    stride: int
    dilation: int
    pad: int
    extent: int
    step: int

    @property
    def span(self) -> int:
        """Positions from the first tap to the last."""
        return (self.tap.extent - 1) * self.dilation + 1

    @property
    def end(self) -> int:
        """Positions behind the data that the last window reads; below 0 where data are left over."""
        return (self.loop.extent - 1) * self.stride + self.span - self.pad - self.extent

    def fitted(self) -> _Window:
        """The same without the data in front that no window reads; without those behind, too, where they are as many as a step."""
        begun = replace(self, pad=max(self.pad, 0), extent=self.extent - max(-self.pad, 0))
        return replace(begun, extent=begun.extent + begun.end) if -begun.end >= self.stride else begun


def match_max_pool(scope: Scope, table: Table) -> Match | list[Mismatch]:
    """The pooling that computes a maximum over windows of one read. No step of a derivation is tried to get to one."""
    body = scope.body
    if scope.reduce != "max" or not scope.sums or not isinstance(body, Read):
        return [NoFix("it is no maximum over one read")]
    loops, sums = {i.name: i for i in scope.loops}, {i.name: i for i in scope.sums}
    used = [str(a) for ix in body.index for a, _ in ix.terms]
    if len(used) != len(set(used)) or not sums.keys() <= set(used):
        return [NoFix(f"an iterator stands in two dimensions of {name_of(body)}, or a tap in none")]
    steps = dense_strides(tuple(hi - lo for lo, hi in body.base.box))
    windows: list[_Window] = []
    address: dict[str, int] = {}
    offset = 0
    for ix, box, step in zip(body.index, body.base.box, steps):
        if ix.names() & sums.keys():
            window = _window(ix, box, step, loops, sums)
            if window is None:
                return [NoFix(f"{ix} is no window of one loop and one tap")]
            windows.append(window)
        elif not (ix.is_affine and in_range(ix, box, scope.ranges) and all(c > 0 for _, c in ix.terms)):
            return [NoFix(f"a dimension without taps is read outside its box or backwards: {ix}")]
        else:
            address |= {str(a): c * step for a, c in ix.terms}
            offset += step * (ix.const + sum(c * loops[str(a)].lo for a, c in ix.terms) - box[0])
    return _pooling(scope, body, table, windows, address, offset)


def _window(ix: Index, box: tuple[int, int], step: int, loops: Mapping[str, Iter], sums: Mapping[str, Iter]) -> _Window | None:
    """The window of one dimension: one tap, and a loop or, where everything is one window, none."""
    own = [loops[str(a)] for a, _ in ix.terms if a in loops]
    taps = [sums[str(a)] for a, _ in ix.terms if a in sums]
    if not ix.is_affine or len(taps) != 1 or len(own) > 1 or len(own) + len(taps) != len(ix.terms) or any(c <= 0 for _, c in ix.terms):
        return None
    loop, (tap,) = own[0] if own else Iter("", 0, 1), taps
    stride, dilation = max(ix.coefficient(loop.name), 1), ix.coefficient(tap.name)
    pad = box[0] - ix.const - stride * loop.lo - dilation * tap.lo
    return _Window(loop, tap, stride, dilation, pad, box[1] - box[0], step)


def _pooling(
    scope: Scope, body: Read, table: Table, windows: Sequence[_Window], address: Mapping[str, int], offset: int
) -> Match | list[Mismatch]:  # fmt: skip
    if not 1 <= len(windows) <= MOST_SPATIAL:
        return [NoFix(f"{len(windows)} spatial dimensions, 1 to {MOST_SPATIAL} are wanted")]
    windows, unread = [w.fitted() for w in windows], sum(max(-w.pad, 0) * w.step for w in windows)
    ends = [w.end for w in windows]
    if any(w.extent <= 0 or max(w.pad, end) >= w.span for w, end in zip(windows, ends)):
        return [NoFix("a window reads nothing of the data")]
    if body.fill != -INF and any(w.pad or end > 0 for w, end in zip(windows, ends)):
        return [NoFix("what is read outside counts in the maximum")]
    if not any(w.loop.extent > 1 for w in windows):
        return [NoFix("no window moves: it is a reduction")]
    out = {str(a): c for a, c in flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges).terms}
    rest = [i for i in scope.loops if i.extent > 1 and i not in [w.loop for w in windows]]
    if any(i.name not in address for i in rest):
        return [NoFix("a loop stands nowhere in the data")]
    plain = collapse(rest, (address, out))
    if len(plain) > 2:
        return [NoFix("the dimensions without taps are no batch and channels")]
    images, channels = [*(Dimension((), 1, (0, 0)) for _ in range(2 - len(plain))), *plain]
    outer = (images.extent, channels.extent)
    x_strides = (images.strides[0], channels.strides[0], *(w.step for w in windows))
    y_strides = (images.strides[1], channels.strides[1], *(out.get(w.loop.name, 0) for w in windows))
    kernel = MaxPool(
        strided_view("0", (*outer, *(w.extent for w in windows)), x_strides, offset + unread),
        strided_view("out", (*outer, *(w.loop.extent for w in windows)), y_strides),
        tuple(w.tap.extent for w in windows), tuple(w.stride for w in windows), tuple(w.dilation for w in windows), tuple(w.pad for w in windows),
    )  # fmt: skip
    names = tuple(w.loop.name for w in windows if w.loop.name), tuple(w.tap.name for w in windows)
    return Match(table.name, kernel, (body.base,), (("n, c", (*images.names, *channels.names)), ("o", names[0]), ("r", names[1])))


MAX_POOL = Table(
    "MaxPool", (("n, c, spatial", (True, True)), ("taps", (True, False))), "stride, dilation, asymmetric padding", match_max_pool, windows=True
)
OPERATOR = Operator(MaxPool, (MAX_POOL,), backends=("cpu",))
