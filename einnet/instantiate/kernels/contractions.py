"""The vendor kernels that are contractions: products of matrices, and convolutions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import ClassVar, Self

from einnet.expr.index import Index, combine, var
from einnet.expr.nodes import Iter, Mul, Read, Scope, indices
from einnet.expr.remember import hashed_once
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, Arithmetic
from einnet.instantiate.kernels.kernel import (
    Kernel,
    Post,
    ReadModel,
    Shown,
    StoreModel,
    VendorKernel,
    loops_of,
    mapped_posts,
    post_json,
    read_posts,
    told_posts,
)
from einnet.instantiate.kernels.posts import QUANTISED, U8, U8_IN_F32
from einnet.instantiate.kernels.views import Json, View, integers, read_view, view_json


class Contraction(VendorKernel):
    """A sum of products, with posts. Both factors are rounded to numbers of the `arithmetic` before they are multiplied.

    A library may have several implementations: `by` names the one that is wanted where it is there, none for what the library takes first.
    """

    __slots__ = ()
    takes_posts: ClassVar[bool] = True
    post: tuple[Post, ...]
    arithmetic: Arithmetic
    by: str

    @property
    def posts(self) -> tuple[Post, ...]:
        return self.post

    @property
    def factors(self) -> Arithmetic:
        return self.arithmetic

    @property
    def elements(self) -> tuple[tuple[View, str], ...]:
        factors = tuple(zip(self.inputs, self.arithmetic.elements, strict=True))
        return (*factors, *((p.operand, "f32") for p in self.post if p.operand), (self.result, self.stored))

    @property
    def stored(self) -> str:
        """The element type of the result in memory."""
        return U8 if self.post and self.post[-1].kind == U8 else F32.name

    def storing(self, dtype: str) -> Contraction:
        """Integers that were rounded last are stored as bytes, or where the buffer has none as floats."""
        if not self.post or self.post[-1].kind not in QUANTISED:
            return self
        return self.with_posts((*self.post[:-1], replace(self.post[-1], kind=U8 if dtype == U8 else U8_IN_F32)))

    @abstractmethod
    def in_arithmetic(self, arithmetic: Arithmetic) -> Self:
        """The same product of factors that are rounded to numbers of another arithmetic, by what the library takes first."""

    @abstractmethod
    def made_by(self, name: str) -> Self:
        """The same by another of the library's implementations."""

    def _choices_json(self) -> dict[str, Json]:
        """The arithmetic by its name, where it is another than float32, and the implementation, where it is not what the library takes first."""
        arithmetic = arithmetic_json(self.arithmetic)
        return {**arithmetic, "by": self.by} if self.by else arithmetic

    def _posts_json(self) -> Json:
        """The posts without views."""
        return [[p.kind, p.operand is not None, float(p.alpha), float(p.beta)] for p in self.post]


@hashed_once
@dataclass(frozen=True, slots=True)
class Matmul(Contraction):
    """c[..., m, n] = Σ_k a[..., m, k] b[..., k, n]; leading batch dimensions, extent 1 broadcasts."""

    a: View
    b: View
    c: View
    post: tuple[Post, ...] = ()
    arithmetic: Arithmetic = F32
    by: str = ""
    kind: ClassVar[str] = "matmul"

    @property
    def inputs(self) -> tuple[View, ...]:
        return self.a, self.b

    @property
    def result(self) -> View:
        return self.c

    def map_views(self, change: Callable[[View], View]) -> Self:
        return replace(self, a=change(self.a), b=change(self.b), c=change(self.c), post=mapped_posts(self.post, change))

    def with_posts(self, posts: tuple[Post, ...]) -> Self:
        return replace(self, post=posts)

    def in_arithmetic(self, arithmetic: Arithmetic) -> Self:
        return replace(self, arithmetic=arithmetic, by="")

    def made_by(self, name: str) -> Self:
        return replace(self, by=name)

    def with_result(self, result: View) -> Self:
        return replace(self, c=result, post=())

    @property
    def flops(self) -> int:
        return 2 * prod(self.c.shape) * self.a.shape[-1]

    def along(self, dimension: int) -> tuple[int | None, ...] | None:
        rows, columns = dimension - len(self.c.shape) == -2, dimension - len(self.c.shape) == -1
        return None if columns else dimension, None if rows else dimension

    def joining(self, constant: Sequence[bool]) -> tuple[int, ...]:
        """Batches, the extent that is summed, and the rows of the operand that is no weight."""
        rows, columns = self.c.shape[-2:]
        kept = (rows, columns) if constant[0] == constant[1] else (columns,) if constant[0] else (rows,)
        return (prod(self.c.shape[:-2]), self.a.shape[-1], *sorted(kept))

    @property
    def stacked(self) -> tuple[View, View]:
        return self.a, self.c

    def with_row(self) -> Self:
        def with_row(view: View) -> View:
            *batch, rows, columns = view.shape
            return replace(view, shape=(*batch, rows + 1, columns))

        return replace(self, a=with_row(self.a), c=with_row(self.c))

    def meaning(self, shown: Shown) -> Scope:
        """Σ_k a[..., m, k] b[..., k, n]."""
        loops = loops_of(self.c.shape)
        sums, k = divided("k", self.a.shape[-1], shown.borders(self.a, -1) | shown.borders(self.b, -2))
        *batch, m, n = indices(loops)
        a = Read(shown(self.a), (*broadcast(self.a.shape[:-2], batch), m, k))
        b = Read(shown(self.b), (*broadcast(self.b.shape[:-2], batch), k, n))
        return Scope(loops, sums, Mul((a, b)))

    def attributes(self) -> dict[str, Json]:
        return {"post": self._posts_json(), **self._choices_json()}

    def json(self, store: StoreModel) -> dict[str, Json]:
        views = {"a": view_json(self.a), "b": view_json(self.b), "c": view_json(self.c)}
        return {**views, "post": [post_json(p) for p in self.post], **self._choices_json()}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        views = read_view(value["a"]), read_view(value["b"]), read_view(value["c"])
        return cls(*views, read_posts(value["post"]), read_arithmetic(value), str(value.get("by", "")))

    def describe(self) -> str:
        batch = "x".join(str(max(p, q)) for p, q in zip(self.a.shape[:-2], self.b.shape[:-2]))
        sizes = f"{batch + ' x ' if batch else ''}{self.a.shape[-2]}x{self.a.shape[-1]}x{self.b.shape[-1]}"
        return f"Matmul {sizes}{told_arithmetic(self.arithmetic)}{told_posts(self.post)}"


@hashed_once
@dataclass(frozen=True, slots=True)
class Conv(Contraction):
    """y[n, g·f, o...] = Σ_{c, r...} x[n, g·c, o·stride + r·dilation - pad_begin ...] w[g, f, c, r...], reads outside x are 0.

    `transposed`: y[n, g·f, i·stride + r·dilation - pad_begin ...] += x[n, g·c, i...] w[g, f, c, r...].
    Views: x (n, groups·c, spatial...), w (groups, f, c, taps...), y (n, groups·f, spatial...).
    """

    x: View
    w: View
    y: View
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    transposed: bool = False
    post: tuple[Post, ...] = ()
    arithmetic: Arithmetic = F32
    by: str = ""
    kind: ClassVar[str] = "conv"

    @property
    def inputs(self) -> tuple[View, ...]:
        return self.x, self.w

    @property
    def result(self) -> View:
        return self.y

    def map_views(self, change: Callable[[View], View]) -> Self:
        return replace(self, x=change(self.x), w=change(self.w), y=change(self.y), post=mapped_posts(self.post, change))

    def with_posts(self, posts: tuple[Post, ...]) -> Self:
        return replace(self, post=posts)

    def in_arithmetic(self, arithmetic: Arithmetic) -> Self:
        return replace(self, arithmetic=arithmetic, by="")

    def made_by(self, name: str) -> Self:
        return replace(self, by=name)

    def with_result(self, result: View) -> Self:
        return replace(self, y=result, post=())

    @property
    def weights(self) -> tuple[View, ...]:
        return (self.w,)

    @property
    def flops(self) -> int:
        _, f, c, *taps = self.w.shape
        return 2 * prod(taps) * (prod(self.x.shape) * f if self.transposed else prod(self.y.shape) * c)

    @property
    def filters(self) -> int | None:
        """Of groups of one channel each libraries compute many side by side."""
        groups, outer, inner = self.w.shape[:3]
        return groups if outer == inner == 1 else outer

    def along(self, dimension: int) -> tuple[int | None, ...] | None:
        return (0, None) if dimension == 0 else None

    def joining(self, constant: Sequence[bool]) -> tuple[int, ...]:
        """All of a window but its output channels."""
        return (*self.x.shape, *self.w.shape[2:], *self.strides, *self.dilations, *self.pads_begin, *self.y.shape[2:])

    def meaning(self, shown: Shown) -> Scope:
        """Σ_{c, r...} x[n, g·c, o·stride + r·dilation - pad...] w[g, f, c, r...].

        Transposed: x at (o + pad - r·dilation)/stride..., where fractions lie outside.
        """
        _, filters, channels, *taps = self.w.shape
        loops = loops_of(self.y.shape)
        n, channel, *o = indices(loops)
        sums = (Iter("c", 0, channels), *(Iter(f"r{d}", 0, extent) for d, extent in enumerate(taps)))
        c, *r = indices(sums)
        group = channel // filters
        windows = zip(o, r, self.strides, self.dilations, self.pads_begin, strict=True)
        if self.transposed:
            at = [(ox + p - rx * d) / s for ox, rx, s, d, p in windows]
        else:
            at = [ox * s + rx * d - p for ox, rx, s, d, p in windows]
        x = Read(shown(self.x), (n, group * channels + c, *at))
        w = Read(shown(self.w), (group, channel - group * filters, c, *r))
        return Scope(loops, sums, Mul((x, w)))

    def attributes(self) -> dict[str, Json]:
        return {**self._window(), "post": self._posts_json(), **self._choices_json()}

    def json(self, store: StoreModel) -> dict[str, Json]:
        views = {"x": view_json(self.x), "w": view_json(self.w), "y": view_json(self.y)}
        return {**views, **self._window(), "post": [post_json(p) for p in self.post], **self._choices_json()}

    def _window(self) -> dict[str, Json]:
        pads = [list(self.pads_begin), list(self.pads_end)]
        return {"strides": list(self.strides), "dilations": list(self.dilations), "pads": pads, "transposed": self.transposed}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        begin, end = value["pads"]
        return cls(
            read_view(value["x"]), read_view(value["w"]), read_view(value["y"]), integers(value["strides"]), integers(value["dilations"]),
            integers(begin), integers(end), bool(value["transposed"]), read_posts(value["post"]), read_arithmetic(value),
            str(value.get("by", "")),
        )  # fmt: skip

    def describe(self) -> str:
        taps = "x".join(map(str, self.w.shape[3:]))
        marks = (("g", self.w.shape[0]), ("s", max(self.strides)), ("d", max(self.dilations)))
        extra = "".join(f" {mark}{n}" for mark, n in marks if n > 1)
        sizes = f"{self.x.shape[1]}@{'x'.join(map(str, self.x.shape[2:]))}->{self.y.shape[1]}"
        return f"{'ConvTranspose' if self.transposed else 'Conv'}{taps}{extra} {sizes}{told_arithmetic(self.arithmetic)}{told_posts(self.post)}"


def as_convolution(kernel: Matmul, constants: Collection[str]) -> Conv | None:
    """A product of rows with constant weights as a convolution over a line of pixels with one tap; None for what is no such product.

    The library has other code for these, which on some processors is faster.
    """
    if kernel.b.buffer not in constants or any(n > 1 for n in kernel.c.shape[:-2]) or kernel.arithmetic.whole:
        return None
    a, b, c = (View(v.buffer, v.shape[-2:], v.strides[-2:], v.offset) for v in (kernel.a, kernel.b, kernel.c))
    if any(v.strides != (v.shape[1], 1) for v in (a, c)):
        return None

    def line(v: View) -> View:
        rows, columns = v.shape[-2:]
        return View(v.buffer, (1, columns, 1, rows), (rows * columns, v.strides[-1], rows * columns, v.strides[-2]), v.offset)

    (inner, outer), (down, across) = b.shape, b.strides
    weights = View(b.buffer, (1, outer, inner, 1, 1), (inner * outer, across, down, 1, 1), b.offset)
    posts = tuple(replace(p, operand=p.operand and line(p.operand)) for p in kernel.post)
    return Conv(line(a), weights, line(c), (1, 1), (1, 1), (0, 0), (0, 0), post=posts, arithmetic=kernel.arithmetic)


def arithmetic_of(kernel: Kernel) -> Arithmetic:
    """The arithmetic of a kernel's factors."""
    return kernel.factors


def arithmetic_json(arithmetic: Arithmetic) -> dict[str, Json]:
    """An arithmetic by its name, where it is another than float32."""
    return {} if arithmetic == F32 else {"arithmetic": arithmetic.name}


def told_arithmetic(arithmetic: Arithmetic) -> str:
    """The same for people."""
    return "" if arithmetic == F32 else f" in {arithmetic.name}"


def read_arithmetic(value: Json) -> Arithmetic:
    """The arithmetic of a stored kernel, float32 where it names none. Raises ValueError for one that there is not."""
    name = value.get("arithmetic", F32.name)
    if name not in ARITHMETICS:
        raise ValueError(f"unknown arithmetic {name!r}")
    return ARITHMETICS[name]


def divided(name: str, extent: int, borders: frozenset[int]) -> tuple[tuple[Iter, ...], Index]:
    """An iterator as several, divided at borders that divide each other, and its value by them."""
    chain = sorted({1, extent, *borders}, reverse=True)
    if any(a % b for a, b in pairwise(chain)) or len(chain) < 3:
        return (Iter(name, 0, extent),), var(name)
    digits = tuple(Iter(f"{name}{d}", 0, a // b) for d, (a, b) in enumerate(pairwise(chain)))
    return digits, combine(*((var(i.name), b) for i, b in zip(digits, chain[1:])))


def broadcast(shape: Sequence[int], index: Sequence[Index]) -> tuple[Index, ...]:
    """The last dimensions of an index for an operand of a shape: 0 where its extent is 1."""
    return tuple(ix if n > 1 else Index() for n, ix in zip(shape, index[len(index) - len(shape) :], strict=True))
