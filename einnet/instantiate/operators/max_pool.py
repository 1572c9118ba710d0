"""Max-pooling: y[n, c, o...] = max_{r...} x[n, c, o·stride + r·dilation - pad...], where what is read outside of x does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Self

from einnet.expr.index import Index, Range, in_range, var
from einnet.expr.nodes import INF, Iter, Read, Scope, indices
from einnet.instantiate.address import flat_index, name_of
from einnet.instantiate.kernels import Shown, dense_strides, loops_of, strided_view
from einnet.instantiate.kernels.kernel import OneOperand, ReadModel, StoreModel
from einnet.instantiate.kernels.primitive import RESULT, SOURCE, Primitive
from einnet.instantiate.kernels.views import Json, integers, read_view, view_json
from einnet.instantiate.matching.collapse import Dimension, collapse
from einnet.instantiate.matching.convolution import Window
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
    windows: list[Window] = []
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


def _window(ix: Index, box: Range, step: int, loops: Mapping[str, Iter], sums: Mapping[str, Iter]) -> Window | None:
    """The window of one dimension: one tap, and a loop or, where everything is one window, none."""
    own = [loops[str(a)] for a, _ in ix.terms if a in loops]
    taps = [sums[str(a)] for a, _ in ix.terms if a in sums]
    if not ix.is_affine or len(taps) != 1 or len(own) > 1 or len(own) + len(taps) != len(ix.terms) or any(c <= 0 for _, c in ix.terms):
        return None
    loop, (tap,) = own[0] if own else Iter("", 0, 1), taps
    stride, dilation = max(ix.coefficient(loop.name), 1), ix.coefficient(tap.name)
    pad = box[0] - ix.const - stride * loop.lo - dilation * tap.lo
    return Window(loop, tap, stride, dilation, pad, box[1] - box[0], step, False)


def _pooling(scope: Scope, body: Read, table: Table, windows: Sequence[Window], address: Mapping[str, int], offset: int) -> Match | list[Mismatch]:
    """The kernel, where the windows are what the library takes and all other dimensions are a batch and channels."""
    out = {str(a): c for a, c in flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges).terms}
    outer = _outer(scope, windows, address, out)
    problem = _unfit(windows, body) or (outer if isinstance(outer, str) else "")
    if problem or isinstance(outer, str):
        return [NoFix(problem)]
    spatial, taps = tuple(w.loop.name for w in windows if w.loop.name), tuple(w.tap.name for w in windows if w.tap)
    groups = (("n, c", tuple(x for d in outer for x in d.names)), ("o", spatial), ("r", taps))
    return Match(table.name, _kernel(windows, outer, out, offset), (body.base,), groups)


def _kernel(windows: Sequence[Window], outer: Sequence[Dimension], out: Mapping[str, int], offset: int) -> MaxPool:
    """The pooling of data that begins at an offset: the two outer dimensions, then those of the windows."""
    shape = tuple(d.extent for d in outer)
    read = (*(d.strides[0] for d in outer), *(w.step for w in windows))
    written = (*(d.strides[1] for d in outer), *(out.get(w.loop.name, 0) for w in windows))
    return MaxPool(
        strided_view("0", (*shape, *(w.fitted()[0] for w in windows)), read, offset + sum(w.unread for w in windows)),
        strided_view("out", (*shape, *(w.loop.extent for w in windows)), written),
        tuple(w.taps for w in windows), tuple(w.stride for w in windows), tuple(w.dilation for w in windows), tuple(max(w.pad, 0) for w in windows),
    )  # fmt: skip


def _unfit(windows: Sequence[Window], body: Read) -> str:
    """Why the windows are none that the library takes; empty where they are."""
    if not 1 <= len(windows) <= MOST_SPATIAL:
        return f"{len(windows)} spatial dimensions, 1 to {MOST_SPATIAL} are wanted"
    pads = [(max(w.pad, 0), w.fitted()[1]) for w in windows]
    if any(w.fitted()[0] <= 0 or max(pad) >= w.span for w, pad in zip(windows, pads)):
        return "a window reads nothing of the data"
    if body.fill != -INF and any(map(any, pads)):
        return "what is read outside counts in the maximum"
    return "" if any(w.loop.extent > 1 for w in windows) else "no window moves: it is a reduction"


def _outer(scope: Scope, windows: Sequence[Window], address: Mapping[str, int], out: Mapping[str, int]) -> list[Dimension] | str:
    """A batch and channels of what has no tap, or why it is no such."""
    rest = [i for i in scope.loops if i.extent > 1 and i not in [w.loop for w in windows]]
    if any(i.name not in address for i in rest):
        return "a loop stands nowhere in the data"
    plain = collapse(rest, (address, out))
    if len(plain) > 2:
        return "the dimensions without taps are no batch and channels"
    return [*(Dimension((), 1, (0, 0)) for _ in range(2 - len(plain))), *plain]


MAX_POOL = Table(
    "MaxPool", (("n, c, spatial", (True, True)), ("taps", (True, False))), "stride, dilation, asymmetric padding", match_max_pool, windows=True
)
OPERATOR = Operator(MaxPool, (MAX_POOL,), backends=("cpu",))
