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

    @property
    def taps(self) -> int:
        return self.tap.extent if self.tap else 1

    @property
    def span(self) -> int:
        """Positions from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    def fitted(self) -> tuple[int, int]:
        """How much of the data's dimension is taken, and the padding behind it; data in front that no window reads are left out."""
        begin, extent = max(self.pad, 0), self.extent - max(-self.pad, 0)
        if self.transposed:
            return extent, (extent - 1) * self.stride + self.span - begin - self.loop.extent
        end = (self.loop.extent - 1) * self.stride + self.span - extent - begin
        if end >= 0:
            return extent, end
        return extent + end if -end >= self.stride else extent, 0

    @property
    def unread(self) -> int:
        """Elements of the data in front of the first that is read."""
        return max(-self.pad, 0) * self.step


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

    @property
    def nested(self) -> bool:
        """Groups are the outer part of the channels."""
        g, c, f = self.groups, self.inputs, self.outputs
        inputs = c.extent == 1 or g.strides[1] == c.extent * c.strides[1]
        outputs = f.extent == 1 or g.strides[2] == f.extent * f.strides[1]
        return g.extent == 1 or inputs and outputs


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
    transposed = any(w.transposed and (w.taps > 1 or w.stride > 1) for w in windows)
    if transposed and any(not w.transposed and (w.tap is not None or w.stride > 1) for w in windows):
        return NoFix("some dimensions are transposed windows, others are not")
    found = [w if w.transposed == transposed else replace(w, pad=-w.pad, transposed=transposed) for w in windows]
    return NoFix("a transposed window with negative padding") if transposed and any(w.pad < 0 for w in found) else found


def _channels(scope: Scope, roles: Roles, windows: Sequence[Window]) -> Channels | Mismatch:
    """Channels, groups and batches, if each kind is one dimension in the data, the weights and the result."""
    outputs = [i for i in scope.loops if i.name in used_names(roles.weight) and i.extent > 1 and i not in roles.groups]
    relayout = _relayout(roles, windows, outputs)
    weights = address_of(roles.weight, scope.ranges)
    if isinstance(weights, str):
        return replace(relayout, why=weights)
    data, out = roles.address, {str(a): c for a, c in flat_index([var(i.name) for i in scope.loops], scope.box, scope.ranges).terms}
    inputs = collapse(_wide(roles.channels), (weights.strides, data))
    filters = collapse(outputs, (weights.strides, out))
    groups = collapse(_wide(roles.groups), (weights.strides, data, out))
    batches = collapse(_wide(roles.batches), (data, out))
    if len(batches) > 1:
        return _reordered(scope, roles, windows, outputs, "batches")
    if max(len(inputs), len(filters), len(groups)) > 1:
        laid = tuple(x for x in relayout.order if x in weights.strides) == _order(weights)
        return _reordered(scope, roles, windows, outputs, "channels") if laid else relayout
    g, c, f = (x[0] if x else Dimension((), 1, (1, 1, 1)) for x in (groups, inputs, filters))
    found = Channels(g, c, f, weights, out)
    return found if found.nested else NoFix("groups are not the outer part of the channels")


def _wide(iters: Sequence[Iter]) -> list[Iter]:
    """Those of more than one value: the others stand nowhere in an address."""
    return [i for i in iters if i.extent > 1]


def _relayout(roles: Roles, windows: Sequence[Window], outputs: Sequence[Iter]) -> Relayout:
    """The copy of the weights in which the channels nest."""
    taps = [w.tap for w in windows if w.tap]
    wanted = tuple(i.name for i in (*roles.groups, *outputs, *roles.channels, *taps) if i.extent > 1 or i in taps)
    return Relayout("channels do not nest in the weights", 1 - roles.n, wanted)


def _reordered(scope: Scope, roles: Roles, windows: Sequence[Window], outputs: Sequence[Iter], what: str) -> Mismatch:
    """The order of the result in which `what` is adjacent, if it is not the one that it has."""
    order = tuple(i.name for i in (*roles.batches, *(w.loop for w in windows), *roles.groups, *outputs))
    rest = tuple(i.name for i in scope.loops if i.name not in order)
    if (*rest, *order) == tuple(i.name for i in scope.loops):
        return NoFix(f"{what} do not nest in the data or the result")
    return Permute(f"the result's {what} are not adjacent", (*rest, *order))


def _order(found: Address) -> tuple[str, ...]:
    return tuple(sorted(found.strides, key=lambda x: -abs(found.strides[x])))


def _kernel(roles: Roles, windows: Sequence[Window], channels: Channels) -> Match | list[Mismatch]:
    batch = Iter(roles.batches[-1].name, 0, prod(b.extent for b in roles.batches)) if roles.batches else None
    images = batch.extent if batch else 1
    extents, ends = zip(*(w.fitted() for w in windows))
    if min(extents) <= 0:
        return [NoFix("the window reads nothing of the data")]
    offset = roles.offset + sum(w.unread for w in windows)
    g, c, f, weights, out = channels.groups, channels.inputs, channels.outputs, channels.weights, channels.out
    channel_stride, filter_stride = channels.strides
    x_strides = (roles.address[batch.name] if batch else 0, channel_stride, *(w.step for w in windows))
    x = strided_view("0", (images, g.extent * c.extent, *extents), x_strides, offset)
    y_strides = (out[batch.name] if batch else 0, filter_stride, *(out[w.loop.name] for w in windows))
    y = strided_view("out", (images, g.extent * f.extent, *(w.loop.extent for w in windows)), y_strides)
    w_shape = (g.extent, f.extent, c.extent, *(w.taps for w in windows))
    w_strides = (g.strides[0], f.strides[0], c.strides[0], *(weights.strides.get(w.tap.name, 0) if w.tap else 0 for w in windows))
    transposed = windows[0].transposed
    kernel = Conv(
        x, strided_view("1", w_shape, w_strides, weights.offset), y,
        tuple(w.stride for w in windows), tuple(w.dilation for w in windows), tuple(max(w.pad, 0) for w in windows), ends, transposed,
    )  # fmt: skip
    names = _names(roles, windows, channels)
    return Match("ConvTranspose" if transposed else "Conv", kernel, (roles.data.base, roles.weight.base), names)


def _names(roles: Roles, windows: Sequence[Window], channels: Channels) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The iterators by the letters of the paper's table."""
    batches, loops = (tuple(i.name for i in iters) for iters in (roles.batches, [w.loop for w in windows]))
    taps = tuple(w.tap.name for w in windows if w.tap)
    return ("n", batches), ("o", loops), ("f", channels.outputs.names), ("c", channels.inputs.names), ("r", taps), ("g", channels.groups.names)
