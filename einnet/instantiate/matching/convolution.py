"""The convolution kernel of a sum whose data are known dimension by dimension: directions, channels, shapes and strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import var
from einnet.expr.nodes import Iter, Read, Scope, used_names
from einnet.instantiate.address import Address, address_of, flat_index
from einnet.instantiate.kernels import Conv, strided_view
from einnet.instantiate.matching.collapse import Dimension, collapse
from einnet.instantiate.matching.mismatches import Permute, Relayout
from einnet.instantiate.matching.types import Match, Mismatch, NoFix

MAX_SPATIAL = 3


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension: (stride·loop + dilation·tap - pad), or (loop - dilation·tap + pad) / stride where transposed."""

    loop: Iter
    tap: Iter | None
    stride: int
    dilation: int
    pad: int
    extent: int
    step: int
    transposed: bool

    @property
    def plain(self) -> bool:
        """The loop walks the whole dimension, step by step: it can be a batch."""
        return self.tap is None and self.stride == 1 and not self.pad and self.extent == self.loop.extent


@dataclass(frozen=True, slots=True)
class Roles:
    """What the iterators of a product do in its data, which is operand `n`.

    One step of a batch, channel or group iterator is `address` elements of the data; the first element that is read, padding aside, is at `offset`.
    """

    data: Read
    weight: Read
    n: int
    windows: tuple[Window, ...]
    batches: tuple[Iter, ...]
    channels: tuple[Iter, ...]
    groups: tuple[Iter, ...]
    address: Mapping[str, int]
    offset: int


@dataclass(frozen=True, slots=True)
class Channels:
    """Groups, input and output channels as one dimension each, and the addresses of the weights and of the result."""

    groups: Dimension
    inputs: Dimension
    outputs: Dimension
    weights: Address
    out: Mapping[str, int]

    @property
    def strides(self) -> tuple[int, int]:
        """Elements from a channel to the next, in the data and in the result."""
        g, c, f = self.groups, self.inputs, self.outputs
        return (
            c.strides[1] if c.extent > 1 else g.strides[1] if g.extent > 1 else 1,
            f.strides[1] if f.extent > 1 else g.strides[2] if g.extent > 1 else 1,
        )


def convolution(scope: Scope, roles: Roles) -> Match | list[Mismatch]:
    """The kernel, or the mismatches left."""
    windows = _directed(roles.windows)
    if isinstance(windows, Mismatch):
        return [windows]
    channels = _channels(scope, roles, windows)
    if isinstance(channels, Mismatch):
        return [channels]
    return _kernel(roles, windows, channels)


def _directed(windows: Sequence[Window]) -> list[Window] | Mismatch:
    """The dimensions as windows that are all transposed or all not."""
    if not 1 <= len(windows) <= MAX_SPATIAL:
        return NoFix(f"{len(windows)} spatial dimensions, 1 to {MAX_SPATIAL} are wanted")
    if not any(w.tap or w.stride > 1 or w.pad for w in windows):
        return NoFix("no dimension is a window")
    transposed = any(w.transposed and w.tap and w.tap.extent > 1 or w.transposed and w.stride > 1 for w in windows)
    if transposed and any(not w.transposed and (w.tap is not None or w.stride > 1) for w in windows):
        return NoFix("some dimensions are transposed windows, others are not")
    found = [w if w.transposed == transposed else replace(w, pad=-w.pad, transposed=transposed) for w in windows]
    return NoFix("a transposed window with negative padding") if transposed and any(w.pad < 0 for w in found) else found


def _channels(scope: Scope, roles: Roles, windows: Sequence[Window]) -> Channels | Mismatch:
    """Channels, groups and batches, if each kind is one dimension in the data, the weights and the result."""
    batches, channels, groups, address = roles.batches, roles.channels, roles.groups, roles.address
    outputs = [i for i in scope.loops if i.name in used_names(roles.weight) and i.extent > 1 and i not in groups]
    taps = [w.tap for w in windows if w.tap]
    wanted = tuple(i.name for i in (*groups, *outputs, *channels, *taps) if i.extent > 1 or i in taps)
    relayout = Relayout("channels do not nest in the weights", 1 - roles.n, wanted)
    found = address_of(roles.weight, scope.ranges)
    if isinstance(found, str):
        return replace(relayout, why=found)
    out = {str(a): c for a, c in flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges).terms}
    c_groups = collapse([i for i in channels if i.extent > 1], (found.strides, address))
    f_groups = collapse(outputs, (found.strides, out))
    g_groups = collapse([i for i in groups if i.extent > 1], (found.strides, address, out))
    nested = len(collapse([i for i in batches if i.extent > 1], (address, out))) < 2
    if max(len(c_groups), len(f_groups), len(g_groups)) > 1 or not nested:
        if nested and tuple(x for x in wanted if x in found.strides) != _order(found):
            return relayout
        order = tuple(i.name for i in (*batches, *(w.loop for w in windows), *groups, *outputs))
        rest = tuple(i.name for i in scope.loops if i.name not in order)
        what = "channels" if nested else "batches"
        if (*rest, *order) != tuple(i.name for i in scope.loops):
            return Permute(f"the result's {what} are not adjacent", (*rest, *order))
        return NoFix(f"{what} do not nest in the data or the result")
    unit = Dimension((), 1, (1, 1, 1))
    g, c, f = (x[0] if x else unit for x in (g_groups, c_groups, f_groups))
    if g.extent > 1 and (c.extent > 1 and g.strides[1] != c.extent * c.strides[1] or f.extent > 1 and g.strides[2] != f.extent * f.strides[1]):
        return NoFix("groups are not the outer part of the channels")
    return Channels(g, c, f, found, out)


def _order(found: Address) -> tuple[str, ...]:
    return tuple(sorted(found.strides, key=lambda x: -abs(found.strides[x])))


def _kernel(roles: Roles, windows: Sequence[Window], channels: Channels) -> Match | list[Mismatch]:
    batch = Iter(roles.batches[-1].name, 0, prod(b.extent for b in roles.batches)) if roles.batches else None
    images = batch.extent if batch else 1
    ends: list[int] = []
    extents: list[int] = []
    offset = roles.offset
    for w in windows:
        extent, end = _fitted(w)
        if extent <= 0:
            return [NoFix("the window reads nothing of the data")]
        offset += max(-w.pad, 0) * w.step
        extents.append(extent)
        ends.append(end)
    g, c, f, weights, out = channels.groups, channels.inputs, channels.outputs, channels.weights, channels.out
    channel_stride, filter_stride = channels.strides
    x_strides = (roles.address[batch.name] if batch else 0, channel_stride, *(w.step for w in windows))
    x = strided_view("0", (images, g.extent * c.extent, *extents), x_strides, offset)
    y_strides = (out[batch.name] if batch else 0, filter_stride, *(out[w.loop.name] for w in windows))
    y = strided_view("out", (images, g.extent * f.extent, *(w.loop.extent for w in windows)), y_strides)
    w_shape = (g.extent, f.extent, c.extent, *(w.tap.extent if w.tap else 1 for w in windows))
    w_strides = (g.strides[0], f.strides[0], c.strides[0], *(weights.strides.get(w.tap.name, 0) if w.tap else 0 for w in windows))
    transposed = windows[0].transposed
    kernel = Conv(
        x, strided_view("1", w_shape, w_strides, weights.offset), y,
        tuple(w.stride for w in windows), tuple(w.dilation for w in windows), tuple(max(w.pad, 0) for w in windows), tuple(ends), transposed,
    )  # fmt: skip
    names = (
        ("n", tuple(b.name for b in roles.batches)), ("o", tuple(w.loop.name for w in windows)), ("f", f.names), ("c", c.names),
        ("r", tuple(w.tap.name for w in windows if w.tap)), ("g", g.names),
    )  # fmt: skip
    return Match("ConvTranspose" if transposed else "Conv", kernel, (roles.data.base, roles.weight.base), names)


def _fitted(w: Window) -> tuple[int, int]:
    """How much of the data's dimension is taken, and the padding behind it."""
    begin, extent = max(w.pad, 0), w.extent - max(-w.pad, 0)
    span = ((w.tap.extent if w.tap else 1) - 1) * w.dilation + 1
    if w.transposed:
        return extent, (extent - 1) * w.stride + span - begin - w.loop.extent
    end = (w.loop.extent - 1) * w.stride + span - extent - begin
    if end >= 0:
        return extent, end
    return extent + end if -end >= w.stride else extent, 0
